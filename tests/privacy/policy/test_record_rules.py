"""What a site computes from its own records for the rules, and the dominance rules."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.contracts import PublicFacts, SiteRecords, Variable
from secagg.privacy.policy.job_rules import PolicyRequest
from secagg.privacy.policy.policy_tables import Dominance
from secagg.privacy.policy.record_rules import OwnRecords, _check_totals, own_records, with_data
from secagg.privacy.policy.site_policy import parse_policy

ABC = ("a", "b", "c")
REQUEST = PolicyRequest(
    site="a", coordinator_key=bytes(32), method="moments", columns={}, protocol="masked",
    parameters=3, cohort=ABC, counting=True,
)  # fmt: skip
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


def test_own_records_computes_counts_levels_and_magnitudes() -> None:
    mine = own_records(rows(age=[20, 40, 100], sex=[1, 1, 0], score=[-1, 2, 0]), PUBLIC)
    assert mine.records == 3 and mine.levels == {"sex=male": 2, "sick": 0}
    assert set(mine.magnitudes) == {"age", "age^2", "days", "days^2"}  # score has both signs
    np.testing.assert_allclose(mine.magnitudes["age"], [20, 40, 100], rtol=1e-14)
    np.testing.assert_allclose(mine.magnitudes["age^2"], [400, 1600, 10000], rtol=1e-14)


def test_two_valued_columns_are_levels_and_rounding_gives_no_negatives() -> None:
    for larger in (1.0, 7.5):  # a column with two values, however it is declared
        own = own_records(rows(days=[0.0, larger, 0.0]), PUBLIC)
        assert own.levels["days"] == 1 and "days" not in own.magnitudes
    tiny = own_records(rows(days=[1e-15, 30.0, 7.0]), PUBLIC)
    assert np.all(tiny.magnitudes["days"] >= 0)


def test_the_first_level_of_a_column_is_counted_too() -> None:
    """A sum gives its count: all records less those of the other levels."""
    ward = [Variable(f"ward={level}", "ward", 0.5, 0.5, indicator=True) for level in "bcd"]
    public = replace(PUBLIC, variables=tuple(ward))
    scaled = np.array([[1, -1, -1], [-1, 1, -1], [-1, -1, -1], [-1, 1, -1]], dtype=float)
    mine = own_records(SiteRecords(scaled, 0, np.zeros(1)), public)
    assert mine.levels == {"ward=b": 1, "ward=c": 2, "ward=d": 0, "ward=(first level)": 1}


def test_levels_are_counted_in_clipped_records_too() -> None:
    shrunk = SiteRecords(
        rows(sex=[1, 0, 1]).values * np.array([[0.3], [0.9], [0.5]]), 0, np.zeros(5)
    )
    assert own_records(shrunk, PUBLIC).levels["sex=male"] == 2


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
def test_dominance_rules_are_enforced(text: str, values: list[float], allowed: bool) -> None:
    mine = OwnRecords(40, {"days": np.array(values), "cost": np.ones(40)}, {})
    rules = f"min_sites = 3\nmin_records = 10\n[dominance]\n{text}"
    policy = parse_policy(tomllib.loads(rules), "a.policy.toml")
    decisions = {d.rule: d.allowed for d in with_data(policy, REQUEST, mine)}
    assert decisions.pop("dominance") is allowed
    assert all(decisions.values())


amounts = st.lists(st.integers(0, 60), min_size=1, max_size=6)


@given(
    st.lists(amounts, min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([0.25, 0.5, 0.75, 0.875]),
    st.sampled_from([0.125, 0.25, 0.5, 1.0]),
)
def test_dominance_rules_met_at_each_site_are_met_over_all_sites(
    sites: list[list[int]], largest: int, share: float, remainder: float
) -> None:
    """The argument in the module's text, in numbers that floats hold exactly."""
    for rule in (Dominance(largest=largest, share=share), Dominance(remainder=remainder)):
        each = [_check_totals(rule, {"x": np.array(v, dtype=float)})[0] for v in sites]
        pooled = np.array([value for values in sites for value in values], dtype=float)
        if all(each):
            assert _check_totals(rule, {"x": pooled})[0]


def test_repr_shows_no_numbers_of_a_sites_records() -> None:
    assert "17" not in repr(OwnRecords(17, {"age": np.array([17.0])}, {"sex": 17}))
