"""Simulated records: the stated truth is the one that large samples show."""

import numpy as np
import pandas as pd
import pytest

from secagg.errors import UsageError
from secagg.experiments.records import Design, deal, draw
from secagg.experiments.simulators import simulate_graph, simulate_regression
from secagg.experiments.sweep import Records
from secagg.jobs.job import Job, parse_job


def job(**columns: object) -> Job:
    plain = {f"x{i}": {"type": "continuous", "low": -1, "high": 9} for i in range(4)}
    return parse_job(
        {
            "title": "A job", "sites": {"max_rows": 100}, "columns": {**plain, **columns},
            "method": {"name": "moments"},
        }
    )  # fmt: skip


def test_least_squares_finds_the_slopes_of_a_simulated_regression() -> None:
    made = simulate_regression(job(), "x3", sites=3, each=20_000, spread=0.0, seed=5)
    table = pd.concat(made.tables.values())
    X = np.column_stack([np.ones(len(table)), table[["x0", "x1", "x2"]]])
    found, residuals, *_ = np.linalg.lstsq(X, table["x3"], rcond=None)
    # 4 standard errors of slopes in equal units, whose predictors have variance inflation 1.2
    error = 4 * np.sqrt(1.2 * residuals[0] / len(table) / len(table) / table["x0"].var())
    assert [made.slopes[name] for name in ("x0", "x1", "x2")] == pytest.approx(found[1:], abs=error)
    assert made.slopes["x2"] == 0.0 != made.slopes["x0"]
    assert len(made.test) == 3 and made.test["site_1"]["x3"].iloc[0] != table["x3"].iloc[0]


def test_a_simulated_graph_is_that_of_its_partial_correlations() -> None:
    made = simulate_graph(job(), sites=2, each=20_000, edges=3, seed=4)
    table = pd.concat(made.tables.values())
    assert len(made.edges) == 3
    # an edge, or two causes of one effect, and no other pair has a partial correlation
    precision = np.linalg.inv(np.corrcoef(table.to_numpy().T))
    related = np.abs(precision) / np.sqrt(np.outer(np.diag(precision), np.diag(precision))) > 0.03
    names, pairs = list(table.columns), set[frozenset[str]]()
    for start, end in made.edges:
        pairs |= {frozenset((start, end))}
        pairs |= {frozenset((start, other)) for other, to in made.edges if to == end != other}
    pairs = {pair for pair in pairs if len(pair) == 2}
    found = {frozenset((names[i], names[j])) for i, j in np.argwhere(related) if i != j}
    assert found == pairs
    assert table.std().to_numpy() == pytest.approx(np.ones(4), abs=0.03)  # a tenth of the range
    assert table.mean().to_numpy() == pytest.approx(np.full(4, 4.0), abs=0.03)


def test_equal_seeds_give_equal_records_and_others_do_not() -> None:
    one, other, third = (simulate_graph(job(), 2, 50, 0, seed) for seed in (1, 1, 2))
    assert one.tables["site_1"].equals(other.tables["site_1"]) and one.edges == other.edges
    assert not one.tables["site_1"].equals(third.tables["site_1"])
    assert len(one.edges) == 4


def test_columns_of_a_graph_may_stand_after_their_causes() -> None:
    made = simulate_graph(job(), 2, 20, 5, seed=3, causes_first=True)
    names = list(made.tables["site_1"])
    assert all(names.index(cause) < names.index(effect) for cause, effect in made.edges)
    other = simulate_graph(job(), 2, 20, 5, seed=3)
    assert any(names.index(cause) > names.index(effect) for cause, effect in other.edges)


def test_only_continuous_columns_can_be_simulated() -> None:
    with pytest.raises(UsageError):
        simulate_graph(job(sex={"type": "binary"}), 2, 50, 0, 1)
    with pytest.raises(UsageError):
        simulate_regression(job(), "weight", 2, 50, 0.0, 1)


def test_all_records_are_dealt_out_once() -> None:
    tables = {"a": pd.DataFrame({"x": range(7)}), "b": pd.DataFrame({"x": range(7, 12)})}
    dealt = deal(tables, 5, seed=3)
    assert sorted(len(table) for table in dealt.values()) == [2, 2, 2, 3, 3]
    assert sorted(x for table in dealt.values() for x in table["x"]) == list(range(12))


def test_the_records_of_a_run_follow_its_table() -> None:
    tables = {"a": pd.DataFrame({f"x{i}": np.arange(30.0) % 9 for i in range(4)})}
    same = draw(job(), "", Records(draw="same"), tables, 1)
    assert same.tables["a"].equals(tables["a"]) and not same.test
    split = draw(job(), "", Records(draw="same", sites=3), tables, 1)
    assert list(split.tables) == ["site_1", "site_2", "site_3"]
    made = draw(job(), "", Records(simulate="graph", each=20, sites=2), {}, 1)
    assert made.simulated is not None and len(made.tables["site_2"]) == 20
    assert Design.of(job(), made.tables).values.shape == (40, 4)
