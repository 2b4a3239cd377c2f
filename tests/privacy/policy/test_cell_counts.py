"""Small cells over all sites: the counts, and the check before anything else is computed."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.contracts import Variable
from secagg.errors import PolicyRefusal
from secagg.privacy.policy.cell_counts import (
    check_cells,
    check_level_sites,
    check_table_cells,
    check_varying_sites,
    level_counts,
    sites_with_level,
    varying,
)

VARIABLES = (
    Variable("age", "age", 50.0, 50.0),
    *(Variable(f"grade={level}", "grade", 0.5, 0.5, indicator=True) for level in ("b", "c")),
    Variable("sick", "sick", 0.5, 0.5, indicator=True),
)


def check(grades: list[int], sick: list[bool], minimum: int | None) -> None:
    grade = np.array(grades)
    indicators = np.column_stack([grade == 1, grade == 2, np.array(sick)])
    half = len(grade) // 2  # two sites
    counts = level_counts(indicators[:half]) + level_counts(indicators[half:])
    check_cells("coordinator", minimum, VARIABLES, len(grade), counts)


records = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=30)


@settings(deadline=None)
@given(records, st.integers(1, 6))
def test_a_small_cell_is_refused_as_cross_tables_say(
    rows: list[tuple[int, bool]], minimum: int
) -> None:
    grades, sick = [grade for grade, _ in rows], [ill for _, ill in rows]
    cells: list[Any] = [*pd.Series(grades).value_counts(), *pd.Series(sick).value_counts()]
    cells += [*pd.crosstab(grades, sick).to_numpy().reshape(-1)]
    small = any(0 < count < minimum for count in cells)
    with pytest.raises(PolicyRefusal) if small else nullcontext():
        check(grades, sick, minimum)


sites = st.lists(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=4), max_size=5)


@settings(deadline=None)
@given(sites, st.integers(1, 4))
def test_a_level_at_few_sites_is_refused(
    tables: list[list[tuple[int, bool]]], minimum: int
) -> None:
    """Levels that have a variable, and reference levels; sites without records."""
    columns = [v.column for v in VARIABLES if v.indicator]
    counts = np.zeros(5)
    for rows in tables:
        table = np.array([[g == 1, g == 2, ill] for g, ill in rows], dtype=bool).reshape(-1, 3)
        counts += sites_with_level(table, columns)
    at = [sum(any(g == level for g, _ in rows) for rows in tables) for level in range(3)]
    at += [sum(any(ill is level for _, ill in rows) for rows in tables) for level in (False, True)]
    assert sorted(counts) == sorted(at)
    with pytest.raises(PolicyRefusal) if any(0 < n < minimum for n in at) else nullcontext():
        check_level_sites("coordinator", minimum, counts)


columns_of_sites = st.lists(st.lists(st.sampled_from([-1.0, 0.0, 0.1]), max_size=4), max_size=5)


@settings(deadline=None)
@given(columns_of_sites, st.integers(1, 4))
def test_a_column_that_varies_at_few_sites_is_refused(
    values: list[list[float]], minimum: int
) -> None:
    """A second column is constant everywhere; sites without records."""
    counts = np.zeros(2)
    for rows in values:
        counts += varying(np.array([[value, 0.3] for value in rows]).reshape(-1, 2))
    at = sum(len(set(rows)) > 1 for rows in values)
    assert counts.tolist() == [at, 0]
    with pytest.raises(PolicyRefusal) if 0 < at < minimum else nullcontext():
        check_varying_sites("coordinator", minimum, counts)


def test_a_rule_that_is_not_set_refuses() -> None:
    with pytest.raises(PolicyRefusal):
        check([0] * 20, [False] * 20, None)
    with pytest.raises(PolicyRefusal):
        check_level_sites("coordinator", None, np.array([2.0, 2.0]))
    with pytest.raises(PolicyRefusal):
        check_varying_sites("coordinator", None, np.array([2.0, 2.0]))


def test_without_indicators_there_is_nothing_to_check() -> None:
    check_cells("coordinator", 5, VARIABLES[:1], 3, np.zeros(0))


@pytest.mark.parametrize(
    ("counts", "minimum", "refused"),
    [
        ([0, 5, 8], 5, False),
        ([0, 4, 8], 5, True),
        ([0, 1], 1, False),
        ([0, 0], 5, False),
        ([9], None, True),
    ],
)
def test_a_cell_of_a_table_has_no_records_or_enough(
    counts: list[float], minimum: int | None, refused: bool
) -> None:
    fields = {"counts": np.array([50.0, 0.0]), "persons": np.array(counts)}
    with pytest.raises(PolicyRefusal) if refused else nullcontext():
        check_table_cells("coordinator", minimum, fields)
