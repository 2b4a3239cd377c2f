"""The table of `secagg.privacy.policy.evaluation`, row by row, at and beside each threshold."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.contracts import Field, Kind, PublicFacts, SiteRecords, Stage, Variable
from secagg.contracts.noise import Adjacency, Placement
from secagg.errors import PolicyRefusal
from secagg.models.glm.logistic import Logistic
from secagg.models.moments.method import PooledMoments
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.policy import evaluation, record_rules
from secagg.privacy.policy.evaluation import (
    Decision,
    PolicyRequest,
    before_data,
    enforce,
    on_cohorts,
    parameters,
)
from secagg.privacy.policy.record_rules import OwnRecords, own_records, with_data
from secagg.privacy.policy.site_policy import Dominance, SitePolicy, parse_policy

ABC = ("a", "b", "c")
KEY = bytes(range(32))
COUNTS = "min_sites = 3\nmin_records = 10\n"

COUNTING = PolicyRequest(
    site="a", coordinator_key=KEY, method="moments", columns=("age", "sex"), protocol="masked",
    parameters=3, cohort=ABC, counting=True,
)  # fmt: skip
LATER = replace(COUNTING, counting=False, total_records=100)
TERMS = Terms(Placement.SUM, 1.0, 1e-6, Adjacency.ADD_REMOVE, colluding=0, count_share=0.05)
NOISED = replace(LATER, terms=TERMS)
OWN = OwnRecords(40, {}, {})


def with_terms(**changed: Any) -> PolicyRequest:
    """Return the request of a job with other terms."""
    return replace(LATER, terms=replace(TERMS, **changed))


def policy(text: str) -> SitePolicy:
    return parse_policy(tomllib.loads(COUNTS + text), "a.policy.toml")


def found(decisions: Iterable[Decision]) -> dict[str, bool]:
    return {decision.rule: decision.allowed for decision in decisions}


def verdict(
    rule: str, text: str, request: PolicyRequest, own: OwnRecords | None = None
) -> bool | None:
    """Return what one rule decides, None where it does not, and that it alone refuses."""
    rules_ = policy(text)
    made = before_data(rules_, request) if own is None else with_data(rules_, request, own)
    assert all(d.allowed for d in made if d.rule != rule), made
    return found(made).get(rule)


# --- counting rules ------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [COUNTING, LATER, NOISED])
def test_an_empty_policy_refuses(request_: PolicyRequest) -> None:
    empty = parse_policy({}, "a.policy.toml")
    before = found(before_data(empty, request_))
    assert (before["min_sites"], before["min_records"]) == (False, False)
    assert found(with_data(empty, request_, OWN))["min_records"] is False


@pytest.mark.parametrize(
    ("cohort", "allowed"),
    [
        (ABC, True),
        (("a", "b", "c", "d"), True),
        (("a", "b"), False),
        (("a", "b", "b"), False),
        (("a", "a", "b", "c"), False),
        (("b", "c", "d"), False),  # the site itself is not among them
        ((), False),
    ],
)
def test_min_sites(cohort: tuple[str, ...], allowed: bool) -> None:
    made = found(before_data(policy('cohorts = "fixed"'), replace(COUNTING, cohort=cohort)))
    assert made == {"min_sites": allowed, "cohorts": True}


@pytest.mark.parametrize(
    ("text", "total", "allowed"),
    [
        ("", 30, True),  # min_sites * min_records
        ("", 29, False),
        ("min_total_records = 50", 50, True),
        ("min_total_records = 50", 49, False),
        ("min_total_records = 5", 29, False),
        ("", None, False),  # has been counted, and is not known
        ("", -3, False),
    ],
)
def test_min_total_records(text: str, total: int | None, allowed: bool) -> None:
    assert verdict("min_total_records", text, replace(LATER, total_records=total)) is allowed


@pytest.mark.parametrize(("records", "allowed"), [(10, True), (9, False), (0, False)])
def test_min_records(records: int, allowed: bool) -> None:
    assert verdict("min_records", "", LATER, OwnRecords(records, {}, {})) is allowed


# --- lists and keys ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "text", "allowed"),
    [
        ("methods", "", None),
        ("methods", 'methods = ["logistic", "moments"]', True),
        ("methods", 'methods = ["logistic"]', False),
        ("methods", "methods = []", False),
        ("methods", 'methods = ["Moments"]', False),
        ("columns", 'columns = ["sex", "age", "height"]', True),
        ("columns", 'columns = ["age"]', False),
        ("columns", "columns = []", False),
        ("protocols", 'protocols = ["masked"]', True),
        ("protocols", 'protocols = ["additive"]', False),
        ("keys.coordinators", "", None),
        ("keys.coordinators", f'[keys]\ncoordinators = ["{KEY.hex()}"]', True),
        ("keys.coordinators", f'[keys]\ncoordinators = ["{bytes(32).hex()}"]', False),
    ],
)
def test_lists(rule: str, text: str, allowed: bool | None) -> None:
    assert verdict(rule, text, COUNTING) is allowed
    assert verdict(rule, text, LATER) is allowed


# --- noise and budget ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "placement", "allowed"),
    [
        ("any", Placement.NONE, None), ("required", Placement.NONE, False),
        ("required", Placement.SUM, True), ("required", Placement.SITE, True),
        ("own", Placement.NONE, False), ("own", Placement.SUM, False),
        ("own", Placement.ROUND, False), ("own", Placement.SITE, True),
    ],
)  # fmt: skip
def test_noise(noise: str, placement: Placement, allowed: bool | None) -> None:
    terms = None if placement is Placement.NONE else replace(TERMS, placement=placement)
    request = replace(LATER, terms=terms)
    assert verdict("noise", f'noise = "{noise}"', request) is allowed


@pytest.mark.parametrize(
    ("budget", "request_", "allowed"),
    [
        ("epsilon = 1\ndelta = 1e-6", NOISED, True),  # exactly
        ("epsilon = 0.99\ndelta = 1e-6", NOISED, False),
        ("epsilon = 1\ndelta = 9e-7", NOISED, False),
        ("epsilon = 100\ndelta = 0.1", LATER, False),  # without noise
        ("epsilon = 1\ndelta = 1e-6", with_terms(epsilon=math.inf), False),
        ("epsilon = 1\ndelta = 1e-6", with_terms(epsilon=math.nan), False),
        ("period_epsilon = 1\nperiod_delta = 1e-6", LATER, False),
        ("period_epsilon = 1\nperiod_delta = 1e-6", NOISED, None),  # is for the ledger
    ],
)
def test_budget(budget: str, request_: PolicyRequest, allowed: bool | None) -> None:
    assert verdict("budget", f"[budget]\n{budget}", request_) is allowed


@pytest.mark.parametrize(
    ("key", "listed", "change", "allowed"),
    [
        ("adjacency", '["add_remove"]', {}, True),
        ("adjacency", '["replace"]', {}, False),
        ("adjacency", '["replace", "add_remove"]', {}, True),
        ("unit", '["record", "person"]', {}, True),
        ("unit", '["person"]', {}, False),
        ("unit", '["person"]', {"person": "patient"}, True),
        ("person", '"patient"', {}, False),
        ("person", '"patient"', {"person": "patient"}, True),
        ("person", '"patient"', {"person": "row"}, False),
        ("colluding", "2", {"colluding": 1}, False),
        ("colluding", "2", {"colluding": 2}, True),
        ("colluding", "2", {"colluding": 0, "placement": Placement.SITE}, True),
    ],
)
def test_what_is_promised(key: str, listed: str, change: dict[str, Any], allowed: bool) -> None:
    text = f"[budget]\nepsilon = 1\ndelta = 1e-6\n{key} = {listed}"
    assert verdict(f"budget.{key}", text, with_terms(**change)) is allowed


@pytest.mark.parametrize(
    ("delta", "records", "total", "allowed"),
    [
        (1 / 64, 40, 64, False),  # not below 1 / n
        (0.99 / 64, 40, 64, True),
        (1 / 64, 64, 10, False),  # a noised total may be below the site's own count
        (1 / 64, 40, None, True),  # not counted yet
        (1 / 40, 40, None, False),
    ],
)
def test_delta(delta: float, records: int, total: int | None, allowed: bool) -> None:
    request = replace(with_terms(delta=delta), total_records=total)
    assert verdict("delta", "", request, OwnRecords(records, {}, {})) is allowed
    assert verdict("delta", "", LATER, OWN) is None  # without noise


# --- cohorts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "earlier", "cohort", "allowed"),
    [
        ("fixed", [], "abc", True),
        ("fixed", ["abc"], "abc", True),
        ("fixed", ["abc", "abcd"], "abcd", True),
        ("fixed", ["abc"], "abcdef", False),
        ("fixed", ["abcd"], "abc", False),
        ("checked", [], "abc", True),
        ("checked", ["abcd"], "abc", False),
        ("checked", ["abc"], "abcdef", True),  # differs by three
        ("checked", ["abcd"], "abce", False),
        ("checked", ["abcd"], "abcd", True),
    ],
)
def test_cohorts(mode: str, earlier: list[str], cohort: str, allowed: bool) -> None:
    request = replace(COUNTING, cohort=tuple(cohort), earlier=tuple(map(frozenset, earlier)))
    assert verdict("cohorts", f'cohorts = "{mode}"', request) is allowed
    alone = on_cohorts(policy(f'cohorts = "{mode}"'), request.earlier, request.cohort)
    assert alone == tuple(d for d in before_data(policy(f'cohorts = "{mode}"'), request)
                          if d.rule == "cohorts")  # fmt: skip


def test_without_a_least_number_no_cohort_is_allowed() -> None:
    unset = parse_policy({"min_records": 1}, "a.policy.toml")
    assert found(on_cohorts(unset, (), ABC)) == {"cohorts": False}


# --- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "total", "allowed"), [(3, 30, True), (3, 13, True), (3, 12, False), (3, None, False)]
)
def test_min_residual_dof(count: int, total: int | None, allowed: bool) -> None:
    request = replace(LATER, parameters=count, total_records=total)
    made = before_data(policy("min_residual_dof = 10"), request)
    assert found(made)["min_residual_dof"] is allowed
    assert verdict("min_residual_dof", "min_residual_dof = 10", COUNTING) is None


@pytest.mark.parametrize(("count", "allowed"), [(10, True), (11, False)])
def test_max_parameters_ratio(count: int, allowed: bool) -> None:
    request = replace(COUNTING, parameters=count)
    assert verdict("max_parameters_ratio", "max_parameters_ratio = 0.25", request, OWN) is allowed
    made = with_data(policy("max_parameters_ratio = 0.25"), request, OwnRecords(0, {}, {}))
    assert found(made)["max_parameters_ratio"] is False


PUBLIC = PublicFacts(
    (
        Variable("age", "age", 64.0, 46.0),  # 18 to 110
        Variable("sex=male", "sex", 0.5, 0.5, indicator=True),
        Variable("days", "days", 50.0, 50.0),  # 0 to 100
        Variable("score", "score", 0.0, 3.0),  # -3 to 3
        Variable("sick", "sick", 0.5, 0.5, indicator=True),
    ),
    ("age", "sex", "days", "score", "sick"), 100, ABC,
)  # fmt: skip


def test_parameters_are_those_of_the_largest_model_that_the_sums_allow() -> None:
    """Moments of 5 variables: intercept, 4 slopes, variance. Logistic: intercept and slopes."""
    for analysis in (
        {"kind": "describe"},
        {"kind": "ols", "outcome": "age", "predictors": ["sex"]},
    ):
        assert parameters(PooledMoments(analyses=(analysis,)).stages(PUBLIC)) == 6
    assert parameters(Logistic("sick", ("age", "days", "score")).stages(PUBLIC)) == 4


def test_parameters_of_sums_without_a_triangle_are_all_their_numbers() -> None:
    vector = Field("b", (4, 5), 1.0, 20, Kind.BOUNDED)
    count = Field("n", (1,), 1.0, 0, Kind.COUNT)
    triangle = Field("m", (6,), 1.0, 20, Kind.PSD)
    assert parameters([Stage("one", (vector, count), 1, "")]) == 21
    assert parameters([Stage("one", (triangle, vector), 1, "")]) == 3
    assert parameters([Stage("one", (triangle,), 1, ""), Stage("two", (vector,), 1, "")]) == 20
    assert parameters([Stage("one", (vector,), 1, ""), Stage("two", (triangle,), 1, "")]) == 20
    assert parameters([]) == 0


# --- the site's own numbers ----------------------------------------------------------------------


def rows(**columns: list[float]) -> SiteRecords:
    """Rows of PUBLIC's variables in their own units; what is not named is at the middle or 0."""
    length = len(next(iter(columns.values())))
    values = [
        (
            np.array(columns.get(v.column, [v.midpoint if v.half_range > 1 else 0.0] * length))
            - v.midpoint
        )
        / v.half_range
        for v in PUBLIC.variables
    ]
    return SiteRecords(np.column_stack(values), 0, np.zeros(5))


def test_own_numbers() -> None:
    own = own_records(rows(age=[20, 40, 100], sex=[1, 1, 0], score=[-1, 2, 0]), PUBLIC)
    assert own.records == 3 and own.levels == {"sex=male": 2, "sick": 0}
    assert set(own.magnitudes) == {"age", "age^2", "days", "days^2"}  # score has both signs
    np.testing.assert_allclose(own.magnitudes["age"], [20, 40, 100], rtol=1e-14)
    np.testing.assert_allclose(own.magnitudes["age^2"], [400, 1600, 10000], rtol=1e-14)


def test_a_count_is_no_magnitude_and_rounding_is_no_negative_number() -> None:
    for larger in (1.0, 7.5):  # a column with two values, however it is declared
        own = own_records(rows(days=[0.0, larger, 0.0]), PUBLIC)
        assert own.levels["days"] == 1 and "days" not in own.magnitudes
    tiny = own_records(rows(days=[1e-15, 30.0, 7.0]), PUBLIC)
    assert np.all(tiny.magnitudes["days"] >= 0)


def test_a_level_is_counted_in_records_that_were_clipped_too() -> None:
    shrunk = SiteRecords(
        rows(sex=[1, 0, 1]).values * np.array([[0.3], [0.9], [0.5]]), 0, np.zeros(5)
    )
    assert own_records(shrunk, PUBLIC).levels["sex=male"] == 2


@pytest.mark.parametrize(
    ("ones", "allowed"), [(0, True), (1, False), (4, False), (5, True), (35, True), (36, False),
                          (39, False), (40, True)]
)  # fmt: skip
def test_min_level_records(ones: int, allowed: bool) -> None:
    own = OwnRecords(40, {}, {"sex=male": 20, "sick": ones})
    assert verdict("min_level_records", "min_level_records = 5", COUNTING, own) is allowed


@pytest.mark.parametrize(
    ("records", "total", "allowed"), [(40, 80, True), (41, 80, False), (40, None, False),
                                      (40, -5, False)]
)  # fmt: skip
def test_max_site_share(records: int, total: int | None, allowed: bool) -> None:
    own = OwnRecords(records, {}, {})
    request = replace(LATER, total_records=total)
    assert verdict("max_site_share", "max_site_share = 0.5", request, own) is allowed
    assert verdict("max_site_share", "max_site_share = 0.5", COUNTING, own) is None


@pytest.mark.parametrize(
    ("text", "values", "allowed"),
    [
        ("share = 0.5", [5, 3, 2], True),  # exactly half
        ("share = 0.5", [5.1, 3, 2], False),
        ("largest = 2\nshare = 0.8", [5, 3, 2], True),
        ("largest = 2\nshare = 0.79", [5, 3, 2], False),
        ("largest = 9\nshare = 0.99", [1] * 9, False),  # fewer records than that are everybody
        ("largest = 9\nshare = 0.9", [1] * 10, True),
        ("remainder = 0.4", [5, 3, 2], True),  # 2 = 0.4 * 5
        ("remainder = 0.41", [5, 3, 2], False),
        ("remainder = 0.1", [5, 3], False),  # each of two knows the other's
        ("remainder = 0.1", [5], False),
        ("share = 0.5\nremainder = 0.41", [5, 3, 2], False),
        ("share = 0.5\nremainder = 0.1", [0, 0, 0], True),  # nobody contributes
        ("share = 0.5\nremainder = 0.1", [0, 7, 0], False),
    ],
)
def test_dominance(text: str, values: list[float], allowed: bool) -> None:
    own = OwnRecords(40, {"days": np.array(values), "cost": np.ones(40)}, {})
    assert verdict("dominance", f"[dominance]\n{text}", COUNTING, own) is allowed


amounts = st.lists(st.integers(0, 60), min_size=1, max_size=6)


@given(
    st.lists(amounts, min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([0.25, 0.5, 0.75, 0.875]),
    st.sampled_from([0.125, 0.25, 0.5, 1.0]),
)
def test_what_holds_at_each_site_holds_over_all(
    sites: list[list[int]], largest: int, share: float, remainder: float
) -> None:
    """The argument in the module's text, in numbers that floats hold exactly."""
    for rule in (Dominance(largest=largest, share=share), Dominance(remainder=remainder)):
        each = [record_rules._check_totals(rule, {"x": np.array(v, dtype=float)})[0] for v in sites]
        pooled = np.array([value for values in sites for value in values], dtype=float)
        if all(each):
            assert record_rules._check_totals(rule, {"x": pooled})[0]


# --- decisions -----------------------------------------------------------------------------------

EVERYTHING = policy(
    'min_total_records = 1\nmin_level_records = 5\nmethods = []\ncolumns = []\nprotocols = []\n'
    'max_parameters_ratio = 0.01\nmin_residual_dof = 999\nmax_site_share = 0.01\n'
    'noise = "own"\n[dominance]\nshare = 0.01\n[budget]\nepsilon = 0.1\ndelta = 1e-9\n'
    'adjacency = ["replace"]\nunit = ["person"]\nperson = "patient"\ncolluding = 3\n'
    f'[keys]\ncoordinators = ["{bytes(32).hex()}"]'
)  # fmt: skip


def test_every_rule_is_evaluated_though_the_first_refuses() -> None:
    """All rows of the module's table, all of them refusing."""
    request = replace(with_terms(delta=0.5), cohort=("a", "b"), total_records=7)
    own = OwnRecords(7, {"age": np.ones(7)}, {"sex": 2})
    first, second = before_data(EVERYTHING, request), with_data(EVERYTHING, request, own)
    assert not any(decision.allowed for decision in (*first, *second))
    when = {"before": {d.rule for d in first}, "with": {d.rule for d in second}}
    for rule, phase in re.findall(r"^(\S+)  +.*  (before|with)$", evaluation.__doc__ or "", re.M):
        if (rule, phase) != ("min_records", "before"):  # it is set
            assert rule in when[phase], rule
            when[phase].remove(rule)
    assert when == {"before": set(), "with": set()}


def test_own_numbers_are_not_printed() -> None:
    assert "17" not in repr(OwnRecords(17, {"age": np.array([17.0])}, {"sex": 17}))


def test_enforce_raises_the_first_refusal() -> None:
    enforce("a", ())
    enforce("a", (Decision("x", True, "fine"),))
    with pytest.raises(PolicyRefusal) as caught:
        enforce("a", [Decision("x", True, ""), Decision("y", False, "7 of 9"),
                      Decision("z", False, "later")])  # fmt: skip
    assert caught.value.code == "policy" and caught.value.exit_code == 3
