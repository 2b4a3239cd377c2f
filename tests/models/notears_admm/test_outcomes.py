"""`learn` on time series, raw scales, failures and invalid data."""

from __future__ import annotations

import numpy as np
import pytest
from support.time_series import time_series

from secagg.errors import UsageError
from secagg.models.graphs.acyclicity import is_acyclic
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.proximal_newton import Step
from secagg.models.notears_admm import coordinator
from secagg.models.notears_admm.coordinator import Schedule
from secagg.models.notears_admm.linear_simulation import learn
from secagg.models.notears_admm.result import MAX_GRADIENT
from secagg.reproductions.data.simulated_graphs import (
    edge_weights,
    erdos_renyi_dag,
    linear_gaussian_rows,
)


def simulated(seed: int, d: int, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """Records of sites of these sizes."""
    rng = np.random.default_rng(seed)
    rows = linear_gaussian_rows(edge_weights(erdos_renyi_dag(d, d, rng), rng), sum(sizes), rng)
    return np.split(rows, np.cumsum(sizes)[:-1])


@pytest.mark.parametrize("variant", ["fast", pytest.param("paper", marks=pytest.mark.statistical)])
def test_finds_the_structure_of_a_vector_autoregression(variant) -> None:
    """In four models of 4000 windows at most one wrong edge of five, on the mean.

    Not none: penalties grow faster than the multipliers settle, so that W stops short of the
    optimum by up to half a weight, whatever the number of records.
    """
    wrong, runs = 0, 4
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        model = time_series(5, 1, rng, edges=5, lagged_edges=5)
        fit = learn(
            np.split(model.rows(4000, rng), [500, 2000]), lags=1, schedule=Schedule(variant)
        )
        assert fit.converged
        assert fit.weights is not None
        assert fit.weights.shape == (5, 5)
        assert is_acyclic(fit.directed)
        wrong += compare_graphs(fit.directed, model.W != 0).shd
    assert wrong <= runs


def test_zero_diagonal() -> None:
    sites = simulated(7, 6, (20, 30))
    held = learn(sites, zero_diagonal=True)
    assert not np.diagonal(held.weights).any()
    free = learn(sites, schedule=Schedule(rounds=5))
    assert np.diagonal(free.weights).any()


def test_raw_scales_do_not_end_in_a_clean_looking_graph() -> None:
    """Standard deviations of 12 to 428, as in Sachs et al.: the published program overflows."""
    sites = simulated(8, 5, (100,) * 4)
    scale = np.geomspace(12, 428, 5)
    for variant in ("paper", "fast"):
        fit = learn([X * scale for X in sites], schedule=Schedule(variant))
        assert np.all(np.isfinite(fit.weights))
        assert is_acyclic(fit.directed) or fit.notes
        if not fit.converged:
            assert "do not rely on this graph" in fit.notes[0]
            continue
        assert fit.diagnostics["h"] <= 1e-6
        assert fit.diagnostics["stationarity"] > MAX_GRADIENT  # rho2 = 0.001 does not suit 428^2
        assert "not a local optimum" in fit.notes[-1]
        assert "method.standardise" in fit.notes[-1]


@pytest.mark.parametrize("variant", ["fast", "paper"])
def test_divergence_is_reported_and_not_cleaned_up(monkeypatch, variant) -> None:
    cyclic = np.array([[0, 1.0, 0], [0, 0, 1.0], [1.0, 0, 0]])
    coming = iter([Step(cyclic, 0.5, True, 1), Step(cyclic, np.inf, False, 1)])
    for name in ("proximal_step", "subgradient_step"):
        monkeypatch.setattr(coordinator, name, lambda *_: next(coming))
    fit = learn(simulated(1, 3, (20, 20)), schedule=Schedule(variant))
    assert not fit.converged
    assert "no finite step" in fit.notes[0]
    assert not is_acyclic(fit.directed)


def test_too_few_rounds_are_reported() -> None:
    fit = learn(simulated(1, 5, (30, 30)), schedule=Schedule(rounds=4))
    assert not fit.converged
    assert fit.diagnostics["rounds"] == 4
    assert "after 4 rounds" in fit.notes[0]


@pytest.mark.parametrize(
    ("sites", "what"),
    [
        ([], "tables of the same columns"),
        ([np.zeros((3, 1))], "at least two"),
        ([np.zeros(3)], "tables"),
        ([np.zeros((3, 2)), np.zeros((3, 3))], "same columns"),
        ([np.zeros((3, 2)), np.full((3, 2), np.nan)], "not finite"),
        ([np.zeros((3, 2)), np.full((3, 2), np.inf)], "not finite"),
        ([np.zeros((1, 2)), np.zeros((0, 2))], "at least 2 records"),
    ],
)
def test_unusable_records(sites: list[np.ndarray], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        learn(sites)


def test_columns_that_are_no_multiple_of_the_lags() -> None:
    with pytest.raises(UsageError):
        learn([np.zeros((4, 5))], lags=1)
