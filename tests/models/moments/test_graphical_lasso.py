"""The Gaussian graphical model of pooled moments."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.covariance import graphical_lasso as reference

import secagg
from secagg.core.randomness import seeded_random
from secagg.errors import JobError, UsageError
from secagg.models.common.noisy_moments import NoisyMoments
from secagg.models.common.pooled_moments import Moments
from secagg.models.moments.graphical_lasso import (
    effective_records,
    gaussian_graph,
    partial_correlations,
)
from secagg.models.numerics.graphical_lasso import graphical_lasso


def moments_of(rows: np.ndarray, **more: Any) -> Moments:
    centred = rows - rows.mean(axis=0)
    names = tuple(f"v{i}" for i in range(rows.shape[1]))
    return Moments(names, len(rows), rows.mean(axis=0), centred.T @ centred, **more)


def rows_of(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return records of 0 - 1 - 2, 3 - 4 and 5."""
    x = rng.normal(size=(n, 6))
    x[:, 1] += 0.5 * x[:, 0]
    x[:, 2] += 0.6 * x[:, 1]
    x[:, 4] -= 0.4 * x[:, 3]
    return x


def refitted_by_regressions(S: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Algorithm 17.1 of Hastie, Tibshirani and Friedman: the covariance matrix of a graph."""
    W = S.copy()
    for _ in range(1000):
        for j in range(len(S)):
            rest = np.arange(len(S)) != j
            near, slopes = edges[rest, j], np.zeros(len(S) - 1)
            inner = W[np.ix_(rest, rest)]
            slopes[near] = np.linalg.solve(inner[np.ix_(near, near)], S[rest, j][near])
            W[rest, j] = W[j, rest] = inner @ slopes
    return W


@pytest.mark.parametrize("penalty", [0.05, 0.1, 0.3])
def test_graph_and_partial_correlations_agree_with_other_programs(penalty: float) -> None:
    rows = rows_of(np.random.default_rng(1), 400)
    R = np.corrcoef(rows, rowvar=False)
    _, precision = reference(R, alpha=penalty, tol=1e-10, enet_tol=1e-12, max_iter=1000)
    fit, _ = gaussian_graph(moments_of(rows * [1, 9, 2, 5, 1, 100]), penalty=penalty)
    np.testing.assert_array_equal(
        fit.undirected, (np.abs(precision) > 1e-9) & ~np.eye(6, dtype=bool)
    )
    K = np.linalg.inv(refitted_by_regressions(R, fit.undirected))
    rho = -K / np.sqrt(np.outer(np.diagonal(K), np.diagonal(K)))
    np.testing.assert_allclose(fit.weights, np.where(fit.undirected, rho, 0.0), atol=1e-7)


def test_ebic_finds_the_graph_and_estimates_are_not_shrunk() -> None:
    rows = rows_of(np.random.default_rng(2), 800)
    fit, errors = gaussian_graph(moments_of(rows))
    assert {tuple(e.values())[:2] for e in fit.edges()} == {
        ("v0", "v1"),
        ("v1", "v2"),
        ("v3", "v4"),
    }
    assert fit.weights is not None and errors is not None
    assert fit.weights[3, 4] == pytest.approx(np.corrcoef(rows[:, 3], rows[:, 4])[0, 1], abs=1e-9)
    truth = -0.4 / np.sqrt(1.16)
    assert abs(fit.weights[3, 4] - truth) < 4 * errors[3, 4]
    assert np.all(np.isnan(errors) == ~fit.undirected)


def test_standard_errors_have_the_closed_form_of_a_full_graph() -> None:
    S = np.corrcoef(rows_of(np.random.default_rng(3), 50), rowvar=False)
    rho, errors = partial_correlations(np.linalg.inv(S), np.ones((6, 6), dtype=bool), 50)
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(errors[off], ((1 - rho**2) / np.sqrt(50))[off], rtol=1e-9)


def test_standard_errors_are_the_spread_over_samples() -> None:
    """Of a chain, where the missing edge makes them smaller than those of the full graph."""
    rng, n, draws = np.random.default_rng(4), 400, 300
    free = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=bool)
    found, errors = [], []
    for _ in range(draws):
        R = np.corrcoef(rows_of(rng, n)[:, :3], rowvar=False)
        K = graphical_lasso(R, np.zeros((3, 3)), free=free)
        rho, error = partial_correlations(K, free, n)
        found.append(rho[0, 1]), errors.append(error[0, 1])
    spread = np.std(found, ddof=1)
    monte_carlo = spread / np.sqrt(2 * draws)  # of a standard deviation, if normal
    assert abs(np.mean(errors) - spread) < 3 * monte_carlo
    full = (1 - np.mean(found) ** 2) / np.sqrt(n)
    assert np.mean(errors) < full - 3 * monte_carlo


def test_indicators_of_one_column_have_no_edge() -> None:
    rng = np.random.default_rng(5)
    group = rng.integers(3, size=600)
    y = 0.8 * (group == 2) + rng.normal(size=600)
    rows = np.column_stack([group == 1, group == 2, y]).astype(float)
    fit, _ = gaussian_graph(moments_of(rows, columns=("g", "g", "y")))
    assert not fit.undirected[0, 1] and fit.undirected[1, 2]
    apart, _ = gaussian_graph(moments_of(rows))
    assert apart.undirected[0, 1]


def test_noise_lowers_the_number_of_effective_records() -> None:
    """A correlation of columns that fill their bounds gets the variance v / n^2 more."""
    rows = rows_of(np.random.default_rng(6), 100)
    rows /= rows.std(axis=0)
    n, v = 100, 25.0
    ones = np.ones(6)

    def noisy(variance: float) -> Moments:
        release = NoisyMoments(
            moments_of(rows).names, 0 * ones, ones, np.diag([float(n), *ones]),
            np.full((7, 7), variance), np.ones(7),
        )  # fmt: skip
        return moments_of(rows, noisy=release)

    expected = 1 / (1 / n + v / n**2)
    assert effective_records(noisy(v), n) == pytest.approx(expected, rel=1e-6)
    _, errors = gaussian_graph(noisy(v))
    assert errors is None
    with pytest.raises(UsageError):
        effective_records(noisy(1e6), n)


COLUMNS = {name: {"type": "continuous", "low": -8, "high": 8} for name in ("a", "b", "c")}


def job(**method: Any) -> dict[str, Any]:
    return {
        "title": "A collider", "sites": {"max_rows": 1000}, "columns": COLUMNS,
        "method": {"name": "moments", **method}, "protocol": {"name": "plain"},
        "release": {"min_sites": 3, "min_records": 2},
    }  # fmt: skip


def run(**method: Any) -> dict[str, Any]:
    rng, sites = np.random.default_rng(7), {}
    for site in "pqr":
        a, b, e = rng.normal(size=(3, 300))
        sites[site] = pd.DataFrame({"a": a, "b": b, "c": 0.7 * a + 0.7 * b + e})
    random = seeded_random(bytes(31) + b"7")
    return dict(secagg.run(job(**method), sites, random=random).result.summary["analyses"][0])


def test_a_run_is_scored_against_the_moral_graph() -> None:
    """a and b are independent, but not given their common effect c."""
    found = run(analyses=[{"kind": "graphical_lasso"}], truth=[["a", "c"], ["b", "c"]])
    assert {frozenset((e["from"], e["to"])) for e in found["edges"]} == {
        frozenset(pair) for pair in ("ab", "ac", "bc")
    }
    assert found["score"]["shd"] == 0 and len(found["truth"]) == 3
    assert all(0 < edge["std_error"] < 0.05 for edge in found["edges"])


def test_knowledge_of_directions_needs_a_directed_graph() -> None:
    tiers = [["a"], ["b", "c"]]
    with pytest.raises(JobError) as caught:
        run(analyses=[{"kind": "graphical_lasso"}], tiers=tiers)
    assert caught.value.where == "method.analyses"
    both = [{"kind": "graphical_lasso"}, {"kind": "notears"}]
    assert run(analyses=both, tiers=tiers)["edges"]
