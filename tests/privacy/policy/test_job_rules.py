"""The table of `secagg.privacy.policy.job_rules`, row by row, at and beside each threshold."""

import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secagg.contracts import Field, Kind, PublicFacts, Stage, Variable
from secagg.contracts.noise import Adjacency, Placement
from secagg.errors import PolicyRefusal
from secagg.models.glm.logistic import Logistic
from secagg.models.moments.method import PooledMoments
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.policy import job_rules
from secagg.privacy.policy.advice import ADVICE
from secagg.privacy.policy.job_rules import (
    Decision,
    PolicyRequest,
    before_data,
    enforce,
    on_cohorts,
    parameters,
)
from secagg.privacy.policy.questions import Question
from secagg.privacy.policy.record_rules import OwnRecords, with_data
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.privacy.policy.site_policy import SitePolicy, parse_policy, policy_of

ABC = ("a", "b", "c")
KEY, OTHER_KEY = (  # RFC 8032, section 7.1, tests 1 and 2
    bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
    bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"),
)
COUNTS = "min_sites = 3\nmin_records = 10\n"
PERIOD = "period_epsilon = 1\nperiod_delta = 1e-6"

AGE = {"type": "continuous", "low": 18, "high": 100, "transform": "none"}
DECLARED = {"age": AGE, "sex": {"type": "binary", "levels": ["0", "1"]}}
COUNTING = PolicyRequest(
    site="a", coordinator_key=KEY, method="moments", columns=DECLARED, protocol="masked",
    parameters=3, cohort=ABC, counting=True, question=Question(DECLARED, 100, 10),
    min_cell_records=10, min_level_sites=3,
)  # fmt: skip
LATER = replace(COUNTING, counting=False, total_records=100)
TERMS = Terms(Placement.SUM, 1.0, 1e-6, Adjacency.ADD_REMOVE, colluding=0, count_share=0.05)
NOISED = replace(LATER, terms=TERMS, question=None)
OWN = OwnRecords(40, {}, {})


PLAIN = replace(LATER, protocol="plain")


def with_terms(protocol: str = "masked", **changed: Any) -> PolicyRequest:
    """Return the request of a job with other terms."""
    return replace(NOISED, protocol=protocol, terms=replace(TERMS, **changed))


AMPLE = '\n[budget]\nperiod_epsilon = 100\nperiod_delta = 0.1\nexact_jobs = "by_rules"\n'


def policy(text: str) -> SitePolicy:
    """Return a policy; its budget, unless the text sets one, decides nothing here."""
    budget = "" if "[budget]" in text else AMPLE
    return parse_policy(tomllib.loads(COUNTS + text + budget), "a.policy.toml")


def found(decisions: Iterable[Decision]) -> dict[str, bool]:
    return {decision.rule: decision.allowed for decision in decisions}


# --- each rule, at and next to its threshold ------------------------------------------------------


@pytest.mark.parametrize("request_", [COUNTING, LATER, NOISED])
def test_an_empty_policy_refuses(request_: PolicyRequest) -> None:
    empty = parse_policy({}, "a.policy.toml")
    before = found(before_data(empty, request_))
    assert (before["min_sites"], before["min_records"], before["cohorts"]) == (False,) * 3
    assert found(with_data(empty, request_, OWN))["min_records"] is False


@pytest.mark.parametrize(
    ("cohort", "allowed"),
    [
        (ABC, True), (("a", "b", "c", "d"), True), (("a", "b"), False), ((), False),
        (("a", "b", "b"), False), (("a", "a", "b", "c"), False),
        (("b", "c", "d"), False),  # the site itself is not among them
    ],
)  # fmt: skip
def test_min_sites_is_enforced(cohort: tuple[str, ...], allowed: bool) -> None:
    decisions = found(before_data(policy('cohorts = "fixed"'), replace(COUNTING, cohort=cohort)))
    assert (decisions["min_sites"], decisions["cohorts"]) == (allowed, True)


def own(records: int, **levels: int) -> OwnRecords:
    return OwnRecords(records, {}, levels)


def total(records: int | None, **changes: Any) -> PolicyRequest:
    return replace(LATER, total_records=records, **changes)


def cohorts(mode: str, earlier: str, cohort: str, allowed: bool) -> tuple[Any, ...]:
    request = replace(
        COUNTING, cohort=tuple(cohort), earlier=tuple(map(frozenset, earlier.split()))
    )
    return "cohorts", f'cohorts = "{mode}"', request, None, allowed


def noise(kind: str, placement: str, allowed: bool | None) -> tuple[Any, ...]:
    request = LATER if placement == "none" else with_terms(placement=Placement(placement))
    return "noise", f'noise = "{kind}"', request, None, allowed


def budget(text: str, request: PolicyRequest, allowed: bool | None) -> tuple[Any, ...]:
    return "budget", f"[budget]\n{text}", request, None, allowed


def of_person(policy: str, request_: PolicyRequest, allowed: bool | None) -> Any:
    return "person", policy, request_, None, allowed


def claim(key: str, listed: str, allowed: bool, **terms: Any) -> tuple[Any, ...]:
    text = f"[budget]\n{PERIOD}\n{key} = {listed}"
    return f"budget.{key}", text, with_terms(**terms), None, allowed


def asked(age: dict[str, Any]) -> PolicyRequest:
    """Return a request after an exact release that declared age like this."""
    return replace(COUNTING, asked=(Question({"age": age}, 100, 10),))


def declaring(levels: int) -> PolicyRequest:
    declared = {"grade": {"type": "categorical", "levels": [str(i) for i in range(levels)]}}
    return replace(COUNTING, columns=declared, question=Question(declared, 100, 10))


PINNED = """
[columns]
age = { type = "continuous", low = 18, high = 100, unit = "years" }
sex = { type = "binary" }
"""
DOF, RATIO = "min_residual_dof = 10", "max_parameters_ratio = 0.25"
SHARE, LEVELS = "max_site_share = 0.5", "min_level_records = 5"
ONE = f"epsilon = 1\ndelta = 1e-6\n{PERIOD}"
PERIOD = "period_epsilon = 1\nperiod_delta = 1e-6"

TABLE = [
    ("min_total_records", "", total(30), None, True),  # min_sites * min_records
    ("min_total_records", "", total(29), None, False),
    ("min_total_records", "min_total_records = 50", total(50), None, True),
    ("min_total_records", "min_total_records = 50", total(49), None, False),
    ("min_total_records", "min_total_records = 5", total(29), None, False),
    ("min_total_records", "", total(None), None, False),  # has been counted, and is unknown
    ("min_total_records", "", total(-3), None, False),
    ("min_records", "", LATER, own(10), True),
    ("min_records", "", LATER, own(9), False),
    ("min_records", "", LATER, own(0), False),
    ("methods", "", COUNTING, None, None),
    ("methods", 'methods = ["logistic", "moments"]', LATER, None, True),
    ("methods", 'methods = ["logistic"]', COUNTING, None, False),
    ("methods", "methods = []", LATER, None, False),
    ("methods", 'methods = ["Moments"]', COUNTING, None, False),
    ("columns", 'columns = ["sex", "age", "height"]', COUNTING, None, True),
    ("columns", 'columns = ["age"]', LATER, None, False),
    ("columns", "columns = []", COUNTING, None, False),
    ("protocols", 'protocols = ["masked"]', LATER, None, True),
    ("protocols", 'protocols = ["additive"]', COUNTING, None, False),
    ("protocols", "", PLAIN, None, False),
    ("batch", "", replace(COUNTING, few_records=9), None, False),
    ("batch", "", replace(COUNTING, few_records=10), None, True),
    ("batch", "", COUNTING, None, None),
    ("participation", "", replace(COUNTING, few_sites=1), None, False),
    ("participation", "min_level_sites = 1", replace(COUNTING, few_sites=1), None, True),
    ("participation", "", COUNTING, None, None),
    ("protocols", 'protocols = ["any"]', PLAIN, None, None),
    ("protocols", 'protocols = ["plain"]', PLAIN, None, True),
    ("protocols", "", with_terms(placement=Placement.SUM, protocol="plain"), None, False),
    ("protocols", "", with_terms(placement=Placement.SITE, protocol="plain"), None, None),
    ("keys.coordinators", "", LATER, None, None),
    ("keys.coordinators", f'[keys]\ncoordinators = ["{KEY.hex()}"]', COUNTING, None, True),
    ("keys.coordinators", f'[keys]\ncoordinators = ["{OTHER_KEY.hex()}"]', LATER, None, False),
    noise("any", "none", None), noise("required", "none", False), noise("required", "sum", True),
    noise("required", "site", True), noise("own", "none", False), noise("own", "sum", False),
    noise("own", "round", False), noise("own", "site", True),
    budget(ONE, NOISED, True),  # exactly
    budget(f"epsilon = 0.99\ndelta = 1e-6\n{PERIOD}", NOISED, False),
    budget(f"epsilon = 1\ndelta = 9e-7\n{PERIOD}", NOISED, False),
    budget(f"epsilon = 100\ndelta = 0.1\n{PERIOD}", LATER, False),  # without noise
    budget(ONE, with_terms(epsilon=math.inf), False),
    budget(ONE, with_terms(epsilon=math.nan), False),
    budget(PERIOD, LATER, False),
    budget(PERIOD, NOISED, None),  # the ledger decides
    claim("adjacency", '["add_remove"]', True), claim("adjacency", '["replace"]', False),
    claim("adjacency", '["replace", "add_remove"]', True),
    claim("unit", '["record", "person"]', True), claim("unit", '["person"]', False),
    claim("unit", '["person"]', True, person="patient"),
    claim("unit", '["event"]', True, records=3), claim("unit", '["event"]', False),
    claim("unit", '["record"]', True, records=3),  # an event's records include each of them
    claim("unit", '["person"]', False, records=3),
    claim("unit", '["record"]', False, records=3, person="patient"),
    of_person('person = "patient"', NOISED, False),
    of_person('person = "patient"', with_terms(person="patient"), True),
    of_person('person = "patient"', with_terms(person="patient", pinned=True), True),
    of_person('person = "patient"', with_terms(person="row"), False),
    of_person(f'[budget]\n{PERIOD}\nperson = "patient"', NOISED, False),
    of_person('person = "patient"', LATER, False),
    of_person('person = "patient"', replace(LATER, person="patient"), True),
    of_person('person = "patient"', replace(LATER, person="row"), False),
    of_person("", with_terms(person="row"), None),
    of_person("", replace(LATER, person="row"), None),
    of_person("", with_terms(person="row", pinned=True), False),
    claim("colluding", "2", False, colluding=1), claim("colluding", "2", True, colluding=2),
    claim("colluding", "2", True, colluding=0, placement=Placement.SITE),
    ("delta", "", total(64, terms=replace(TERMS, delta=1 / 64)), None, False),  # not below 1 / n
    ("delta", "", total(64, terms=replace(TERMS, delta=0.99 / 64)), None, True),
    ("delta", "", replace(COUNTING, terms=TERMS), None, None),
    ("delta", "", LATER, None, None),  # without noise
    ("refusals", "", replace(LATER, refusals=4), None, True),
    ("refusals", "", replace(LATER, refusals=5), None, False),
    ("refusals", "max_refusals = 2", replace(LATER, refusals=2), None, False),
    ("refusals", "", replace(NOISED, refusals=99), None, None),
    ("unreleased", "", replace(LATER, unreleased=9), None, True),
    ("unreleased", "", replace(LATER, unreleased=10), None, False),
    ("unreleased", "max_unreleased = 2", replace(LATER, unreleased=2), None, False),
    ("unreleased", "", replace(NOISED, unreleased=99), None, None),
    ("min_cell_records", "", replace(LATER, min_cell_records=10), None, True),
    ("min_cell_records", "", replace(LATER, min_cell_records=9), None, False),
    ("min_cell_records", "min_cell_records = 3", replace(LATER, min_cell_records=3), None, True),
    ("min_cell_records", "", replace(NOISED, min_cell_records=1), None, None),
    ("min_level_sites", "", replace(LATER, min_level_sites=2), None, False),
    ("min_level_sites", "min_level_sites = 2", replace(LATER, min_level_sites=2), None, True),
    ("min_level_sites", "", replace(NOISED, min_level_sites=1), None, None),
    ("questions", "", asked(AGE), None, True),
    ("questions", "", asked(AGE | {"high": 99}), None, False),
    ("questions", "", replace(asked(AGE | {"high": 99}), terms=TERMS, question=None), None, None),
    ("max_levels", "", declaring(40), None, True), ("max_levels", "", declaring(41), None, False),
    ("max_levels", "max_levels = 3", declaring(4), None, False),
    ("columns", PINNED, COUNTING, None, True),
    ("columns", PINNED.replace("18", "17"), COUNTING, None, False),
    ("columns", PINNED.replace("18", "17"), NOISED, None, False),
    ("columns", PINNED.replace("sex", "height"), COUNTING, None, False),
    ("max_clipped_share", "", COUNTING, OwnRecords(40, {}, {}, clipped={"age": 0.5}), True),
    ("max_clipped_share", "", COUNTING, OwnRecords(40, {}, {}, clipped={"age": 0.51}), False),
    *(
        ("constant_columns", "", COUNTING, OwnRecords(40, {}, {}, {"age": others}), allowed)
        for others, allowed in ((0, False), (1, False), (9, False), (10, True), (39, True))
    ),
    ("constant_columns", "min_level_sites = 1", COUNTING,
     OwnRecords(40, {}, {}, {"age": 0}), True),
    *(
        ("held_out", "", replace(COUNTING, question=Question(DECLARED, 100, 10, share, "last")),
         OWN, allowed)
        for share, allowed in ((0.0, True), (0.2, False), (0.249, False), (0.25, True))
    ),
    *(
        ("constant_columns", "", COUNTING, OwnRecords(10, {}, {}, {"age": others}), allowed)
        for others, allowed in ((4, False), (5, True), (9, True))
    ),
    cohorts("fixed", "", "abc", True), cohorts("fixed", "abc", "abc", True),
    cohorts("fixed", "abc abcd", "abcd", True), cohorts("fixed", "abc", "abcdef", False),
    cohorts("fixed", "abcd", "abc", False), cohorts("checked", "", "abc", True),
    cohorts("checked", "abcd", "abc", False),
    cohorts("checked", "abc", "abcdef", True),  # differs by three
    cohorts("checked", "abcd", "abce", False), cohorts("checked", "abcd", "abcd", True),
    ("min_residual_dof", DOF, total(30), None, True),
    ("min_residual_dof", DOF.replace("10", "40"), total(43), None, True),
    ("min_residual_dof", DOF.replace("10", "40"), total(42), None, False),
    ("min_residual_dof", DOF, COUNTING, None, None),
    ("max_parameters_ratio", RATIO, replace(NOISED, parameters=8), None, True),  # 100 / 3 / 4
    ("max_parameters_ratio", RATIO, replace(NOISED, parameters=9), None, False),
    ("max_parameters_ratio", RATIO, replace(COUNTING, parameters=10), own(40), True),
    ("max_parameters_ratio", RATIO, replace(COUNTING, parameters=11), own(40), False),
    *(
        ("min_level_records", LEVELS, COUNTING, own(40, male=20, sick=ones), allowed)
        for ones, allowed in ((0, True), (1, False), (4, False), (5, True), (35, True),
                              (36, False), (39, False), (40, True))
    ),
    ("min_level_records", "", COUNTING, own(40, male=9), False),  # min_records is 10
    ("min_level_records", "", COUNTING, own(40, male=10), True),
    ("min_level_records", "min_level_records = 1", COUNTING, own(40, male=1), None),
    ("max_site_share", SHARE, total(80), own(40), True),
    ("max_site_share", SHARE, total(80), own(41), False),
    ("max_site_share", SHARE, total(None), own(40), False),
    ("max_site_share", SHARE, total(-5), own(40), False),
    ("max_site_share", SHARE, COUNTING, own(40), None),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text", "request_", "mine", "allowed"), TABLE)
def test_each_rule_allows_and_refuses_as_specified(
    rule: str, text: str, request_: PolicyRequest, mine: OwnRecords | None, allowed: bool | None
) -> None:
    """The rule decides this, and no other rule refuses."""
    rules = policy(text)
    decisions = before_data(rules, request_) if mine is None else with_data(rules, request_, mine)
    assert all(d.allowed for d in decisions if d.rule != rule), decisions
    assert found(decisions).get(rule) is allowed
    if rule == "cohorts":
        alone = on_cohorts(rules, request_.earlier, request_.cohort)
        assert alone == tuple(d for d in decisions if d.rule == rule)


BY_RULES = f'{ONE}\nexact_jobs = "by_rules"'
REPLAYABLE = replace(NOISED, terms=None)


@pytest.mark.parametrize(
    ("text", "request_", "refusing"),
    [
        ("profile = 10", LATER, set()),
        ("profile = 10", with_terms(epsilon=2.0, delta=1e-5), set()),
        ("profile = 10", with_terms(epsilon=2.01, delta=1e-5), {"budget"}),
        ("profile = 10", with_terms(epsilon=2.0, delta=1.1e-5), {"budget"}),
        ("profile = 3", with_terms(epsilon=4.0), set()),
        ("profile = 3", with_terms(epsilon=4.01), {"budget"}),
        ("profile = 10\n[budget]\nepsilon = 0.9", NOISED, {"budget"}),
        ("profile = 10\n[budget]\nperiod_epsilon = 3", with_terms(epsilon=2.01), {"budget"}),
        ("profile = 10\n[budget]\nperiod_epsilon = 3", LATER, {"budget"}),
        ('profile = 10\n[budget]\nperiod_epsilon = 3\nexact_jobs = "by_rules"', LATER, set()),
        ('profile = 10\nnoise = "required"', LATER, {"noise"}),
        (f"[budget]\n{ONE}", LATER, {"budget"}),
        (f"[budget]\n{PERIOD}", LATER, {"budget"}),
        (f"[budget]\n{BY_RULES}", LATER, set()),
        (f"[budget]\n{BY_RULES}", NOISED, set()),
        (f"[budget]\n{BY_RULES}", with_terms(epsilon=1.01), {"budget"}),
        ("", NOISED, {"budget.set"}),
        ('noise = "required"', NOISED, {"budget.set"}),
        ("", LATER, set()),
        ("profile = 10", REPLAYABLE, {"budget"}),
        (f"[budget]\n{BY_RULES}", REPLAYABLE, {"budget"}),
        ("", REPLAYABLE, {"budget.set"}),
    ],
)  # fmt: skip
def test_a_budget_decides_about_noise_and_exact_jobs_as_the_table_of_policies_says(
    text: str, request_: PolicyRequest, refusing: set[str]
) -> None:
    rules = parse_policy(tomllib.loads(COUNTS + text), "a.policy.toml")
    assert {d.rule for d in before_data(rules, request_) if not d.allowed} == refusing


def test_a_site_without_a_policy_file_needs_no_budget() -> None:
    for request in (NOISED, LATER, REPLAYABLE):
        assert all(d.allowed for d in before_data(policy_of(ReleasePolicy(3, 10)), request))


@pytest.mark.parametrize("rule", [rule for rule, text in ADVICE.items() if "[privacy]" in text])
def test_advice_to_use_noise_says_what_it_costs(rule: str) -> None:
    assert "[budget]" in ADVICE[rule] and "rules on records" in ADVICE[rule]


def test_no_records_allow_no_parameters() -> None:
    assert found(with_data(policy(RATIO), COUNTING, own(0)))["max_parameters_ratio"] is False


# --- the number of parameters ---------------------------------------------------------------------


def test_parameters_are_those_of_the_largest_model_that_the_sums_allow() -> None:
    """Moments of 5 variables: intercept, 4 slopes, variance. Logistic: intercept and slopes."""
    names = ("age", "sex", "days", "score", "sick")
    variables = (
        Variable(name, name, 0.5, 0.5, indicator=name in ("sex", "sick")) for name in names
    )
    public = PublicFacts(tuple(variables), names, 100, ABC)
    for analysis in (
        {"kind": "describe"},
        {"kind": "ols", "outcome": "age", "predictors": ["sex"]},
    ):
        assert parameters(PooledMoments(analyses=(analysis,)).stages(public)) == 6
    assert parameters(Logistic("sick", ("age", "days", "score")).stages(public)) == 4


def test_parameters_of_sums_without_a_triangle_are_all_their_numbers() -> None:
    vector = Field("b", (4, 5), 1.0, 20, Kind.BOUNDED)
    count = Field("n", (1,), 1.0, 0, Kind.COUNT)
    triangle = Field("m", (6,), 1.0, 20, Kind.PSD)
    assert parameters([Stage("one", (vector, count), 1, "")]) == 21
    assert parameters([Stage("one", (triangle, vector), 1, "")]) == 3
    assert parameters([Stage("one", (triangle,), 1, ""), Stage("two", (vector,), 1, "")]) == 20
    assert parameters([Stage("one", (vector,), 1, ""), Stage("two", (triangle,), 1, "")]) == 20
    assert parameters([]) == 0


# --- decisions -----------------------------------------------------------------------------------

EVERYTHING = policy(
    'min_total_records = 1\nmin_level_records = 5\nmethods = []\ncolumns = []\nprotocols = []\n'
    'max_parameters_ratio = 0.01\nmin_residual_dof = 999\nmax_site_share = 0.01\n'
    'noise = "own"\n[dominance]\nshare = 0.01\n[budget]\nepsilon = 0.1\ndelta = 1e-9\n'
    f'{PERIOD}\n'
    'adjacency = ["replace"]\nunit = ["person"]\nperson = "patient"\ncolluding = 3\n'
    f'[keys]\ncoordinators = ["{OTHER_KEY.hex()}"]'
)  # fmt: skip


def policy_without_budget(rules: SitePolicy) -> SitePolicy:
    return rules.model_copy(update={"budget": None})


def test_all_rules_are_evaluated_even_if_the_first_refuses() -> None:
    """All rows of the module's table, all of them refusing."""
    noised = replace(with_terms(delta=0.5), cohort=("a", "b"), total_records=7)
    request = replace(
        noised, terms=None, columns=declaring(50).columns,
        question=Question(declaring(50).columns, 100, 10, held_out=0.2),
        asked=(Question(declaring(49).columns, 1, 1),), refusals=5,
        unreleased=10, min_cell_records=1, min_level_sites=1, few_records=1, few_sites=1,
    )  # fmt: skip
    own = OwnRecords(7, {"age": np.ones(7)}, {"sex": 2}, {"height": 1}, {"age": 0.6})
    with_noise = {d.rule: d for d in before_data(EVERYTHING, noised)}
    exact = {d.rule: d for d in before_data(EVERYTHING, request)}
    without = policy_without_budget(EVERYTHING)
    with_noise |= {d.rule: d for d in before_data(without, noised) if d.rule == "budget.set"}
    second = {d.rule: d for d in with_data(EVERYTHING, request, own)}
    assert not any(d.allowed for d in (*with_noise.values(), *exact.values(), *second.values()))
    noised_only = {"delta", "max_parameters_ratio"}
    when = {
        "before": {*exact, *with_noise} - noised_only,
        "noised": {*with_noise} & noised_only,
        "with": {*second, "questions", "max_leverage", "effective_records"},  # by the guard
    }
    rows = re.findall(r"^(\S+)  +.*  (before|noised|with)$", job_rules.__doc__ or "", re.M)
    for rule, phase in rows:
        if (rule, phase) != ("min_records", "before"):  # it is set
            assert rule in when[phase], (rule, phase)
            when[phase].remove(rule)
    assert when == {"before": set(), "noised": set(), "with": set()}


def test_enforce_raises_the_first_refusal() -> None:
    enforce("a", ())
    enforce("a", (Decision("x", True, "fine"),))
    with pytest.raises(PolicyRefusal) as caught:
        enforce("a", [Decision("x", True, ""), Decision("y", False, "7 of 9"),
                      Decision("z", False, "later")])  # fmt: skip
    assert caught.value.code == "policy" and caught.value.exit_code == 3
