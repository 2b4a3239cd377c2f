"""FedAvg and Ditto as runs, against a plain loop over raw records; their edge cases."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.fedlin.written_out import (
    Drawn,
    Written,
    bounds,
    continuous,
    linear_tables,
    simulated,
    steps_from,
    told,
)
from support.methods.wrong_settings import wrong_settings

from secagg.errors import DataError, JobError

FEDAVG = {"name": "fedavg"}
SIZES = (12, 30, 7, 55, 3, 0)


def written_out(
    written: Written,
    *,
    rounds: int = 30,
    steps: int = 20,
    step: float = 0.5,
    batch: int | None = None,
    participation: float = 1.0,
    weights: str = "records",
) -> np.ndarray:
    """FedAvg's theta by a plain loop, with the sites' own coins and batches."""
    here = np.array([len(X) for X in written.X], dtype=float)
    eta, drawn = written.eta(step), Drawn(len(here), 1)
    theta = np.zeros(written.X[0].shape[1])
    for _ in range(rounds):
        weight, reached = np.zeros(len(here)), np.zeros((len(here), len(theta)))
        for k, rng in enumerate(drawn.round()):
            if rng.random() < participation:
                weight[k] = here[k] if weights == "records" else here[k] > 0
                args = (written.X[k], written.y[k], theta, eta[k], steps, rng, batch)
                reached[k] = steps_from(*args)
        if weight.sum():
            theta = weight @ reached / weight.sum()
    return theta


def near(written: Written, k: int, theta: np.ndarray, personal: float) -> np.ndarray:
    """|y - X v|^2 / (2 n) + personal / 2 |v - theta|^2 at its least: least squares of more rows."""
    X, y = written.X[k], written.y[k]
    root = np.sqrt(len(y) * personal)
    more = np.vstack([X, root * np.eye(len(theta))])
    return np.linalg.lstsq(more, np.concatenate([y, root * theta]), rcond=None)[0]


SETTINGS: list[dict[str, Any]] = [
    {"participation": 0.4},
    {"participation": 0.05},  # in most rounds nobody
    {"batch": 9, "step": 0.1, "participation": 0.5, "weights": "equal"},
    {"intercept": "modelled", "scale": "own", "steps": 3},
    {"scale": "own", "weights": "equal"},
    {"intercept": "none", "scale": "own"},
    {"steps": 1, "rounds": 7},
]
# What a site sends is rounded to 2^-57; a mean over the weight that took part, 1 of 107 records at
# the least, multiplies that by 107, and 30 rounds of contracting maps add up to 30 times as much:
# 2e-14. Rounding of floats in 20 steps of sums of 55 records is of that order too.
EXACT = 1e-12


@pytest.mark.parametrize("method", SETTINGS, ids=str)
def test_a_run_equals_a_plain_loop(method: dict[str, Any]) -> None:
    tables = linear_tables(SIZES)
    result, own = simulated({**FEDAVG, **method}, bounds(tables), tables)
    written = Written.of(tables, method.get("intercept", "site"), method.get("scale", "pooled"))
    names = ("rounds", "steps", "step", "batch", "participation", "weights")
    theta = written_out(written, **{k: method[k] for k in names if k in method})
    found = np.array(list(result.summary["common"].values()))
    np.testing.assert_allclose(found, theta, rtol=0, atol=EXACT * max(1, np.abs(theta).max()))
    for k, each in enumerate(list(own.values())[:-1]):  # the last has no records
        atol = 10 * EXACT * written.largest
        np.testing.assert_allclose(told(each, "fedavg"), written.back(theta, k), atol=atol)
    assert result.summary["rounds"] == method.get("rounds", 30)
    assert [row["sd"] for row in result.summary["across_sites"]] == pytest.approx(
        [0.0] * len(theta),
        abs=2**-20,  # the root of sums in steps of 2^-56
    )


@pytest.mark.parametrize(
    ("personal", "method"),
    [(1e-3, {}), (0.1, {"intercept": "modelled"}), (1.0, {"scale": "own"}), (30.0, {})],
)
def test_ditto_agrees_with_equation_1(personal: float, method: dict[str, Any]) -> None:
    tables = linear_tables(SIZES)
    settings = {**FEDAVG, **method, "personal": personal}
    result, own = simulated(settings, bounds(tables), tables)
    written = Written.of(tables, method.get("intercept", "site"), method.get("scale", "pooled"))
    theta = written_out(written)
    common = np.array(list(result.summary["common"].values()))
    np.testing.assert_allclose(common, theta, rtol=0, atol=EXACT)
    for k, each in enumerate(list(own.values())[:-1]):
        expected = written.back(near(written, k, theta, personal), k)
        np.testing.assert_allclose(told(each, "ditto"), expected, rtol=0, atol=1e-10)
        assert [row["model"] for row in each.summary["errors"]] == [
            "ditto", "site_ols", "mean_only", "fedavg",
        ]  # fmt: skip
    assert result.summary["personal"] == personal


def test_ditto_works_in_own_units_of_any_size() -> None:
    """A slope per 1e-3 beside one per 1e6: eigenvalues of X'X, 18 powers of ten apart, lose it."""
    rng = np.random.default_rng(0)
    tables = {}
    for name in ("a", "b"):
        z = rng.standard_normal((30, 2))
        y = z @ [1.0, 2.0] + 0.1 * rng.standard_normal(30)
        tables[name] = pd.DataFrame({"x0": 1e-3 * z[:, 0], "x1": 1e6 * z[:, 1], "y": y})
    _, own = simulated({**FEDAVG, "scale": "own", "personal": 1e-9}, bounds(tables), tables)
    for name, table in tables.items():
        X = np.column_stack([np.ones(30), table.x0 * 1e3, table.x1 * 1e-6])
        expected = np.linalg.lstsq(X, table.y, rcond=None)[0] * [1, 1e3, 1e-6]
        np.testing.assert_allclose(told(own[name], "ditto")[1:], expected[1:], rtol=1e-2)


def test_the_tolerance_ends_the_rounds() -> None:
    tables = linear_tables((20, 30, 9))
    result, _ = simulated({**FEDAVG, "rounds": 500, "tolerance": 1e-6}, bounds(tables), tables)
    rounds = result.summary["rounds"]
    assert 1 < rounds < 500
    assert result.summary["change"] < 1e-6
    before, _ = simulated({**FEDAVG, "rounds": rounds - 1}, bounds(tables), tables)
    assert before.summary["change"] >= 1e-6


@pytest.mark.oracle
@pytest.mark.parametrize(("method", "noted"), [({}, True), ({"rounds": 100}, False)], ids=str)
def test_the_remaining_change_is_estimated_for_slow_convergence(
    method: dict[str, Any], noted: bool
) -> None:
    """Nearly collinear columns: theta creeps by less than 1 % a round, with 7 % to go."""
    tables = linear_tables((20, 30, 25))
    tables = {site: t.assign(x2=t.x0 + 0.05 * t.x2) for site, t in tables.items()}
    result, _ = simulated({**FEDAVG, **method}, bounds(tables), tables)
    late, _ = simulated({**FEDAVG, "rounds": 400}, bounds(tables), tables)
    theta, end = (np.array(list(r.summary["common"].values())) for r in (result, late))
    away = np.linalg.norm(end - theta) / np.linalg.norm(theta)
    summary = result.summary
    assert summary["change"] < 0.01
    assert summary["remaining"] == pytest.approx(away, rel=0.05)  # of moves of one direction
    assert bool(summary["notes"]) == noted
    assert late.summary["remaining"] < 1e-12
    assert late.summary["notes"] == []


def test_chance_does_not_trigger_the_note_on_remaining_change() -> None:
    tables = linear_tables((20, 30, 25))
    for chance in ({"batch": 9, "step": 0.1}, {"participation": 0.5}, {"rounds": 1}):
        result, _ = simulated({**FEDAVG, **chance}, bounds(tables), tables)
        assert result.summary["change"] > 0
        assert result.summary["remaining"] is None


@pytest.mark.parametrize(
    ("setting", "where"),
    [
        *wrong_settings(personal=[0.0, -1.0, 1e10, float("nan")]),
        ({"weights": "rows"}, "method: weights"),
        ({"alpha": 0.1}, "method: unknown key"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any], where: str) -> None:
    tables = linear_tables((5, 6))
    with pytest.raises(JobError) as caught:
        simulated({**FEDAVG, **setting}, bounds(tables), tables)
    assert caught.value.line().startswith(where)


def test_batches_too_small_for_their_steps_end_with_an_error() -> None:
    """eta_k is for all records: a batch of one in 40 may be steeper, times 40."""
    tables = linear_tables((40, 40), d=6)
    method = {**FEDAVG, "batch": 1, "step": 0.99, "rounds": 100, "steps": 200}
    with pytest.raises(DataError) as raised:
        simulated(method, bounds(tables), tables)
    assert "method.step" in raised.value.advice


def test_coefficients_beyond_the_declared_bound_are_refused() -> None:
    """Slopes of 2e7 a unit: once clipped to 2^20 in the mean over sites, without a word."""
    rng = np.random.default_rng(0)
    x = [rng.uniform(-1e-7, 1e-7, 20) for _ in range(2)]
    tables = {f"s{k}": pd.DataFrame({"x0": each, "y": 2e7 * each}) for k, each in enumerate(x)}
    columns = {"x0": continuous(-1e-7, 1e-7), "y": continuous(-2, 2)}
    with pytest.raises(DataError) as raised:
        simulated({**FEDAVG, "scale": "own"}, columns, tables)
    assert "method.scale" in raised.value.advice
    result, own = simulated(FEDAVG, columns, tables)
    assert result.summary["across_sites"][0]["own_units"]["mean"] == pytest.approx(2e7)
    assert told(own["s0"], "fedavg")[1] == pytest.approx(2e7)
