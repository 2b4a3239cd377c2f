"""Linear NOTEARS-ADMM in one process against a literal version of Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import minimize

from secagg.models.graphs.metrics import compare_graphs
from secagg.models.notears_admm import coordinator, linear_simulation
from secagg.models.notears_admm.coordinator import Schedule
from secagg.models.notears_admm.linear_simulation import learn
from secagg.reproductions.data.simulated_graphs import (
    edge_weights,
    erdos_renyi_dag,
    linear_gaussian_rows,
)

PAPER = Schedule("paper")


def simulated(seed: int, d: int, sizes: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The truth and records of sites of these sizes, each with its own means."""
    rng = np.random.default_rng(seed)
    W = edge_weights(erdos_renyi_dag(d, d, rng), rng)
    rows = linear_gaussian_rows(W, sum(sizes), rng)
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    return W != 0, [part + rng.normal(size=d) for part in parts]


@dataclass
class Sites:
    """B_k and beta_k of every site, by (10) and (7), literally."""

    S: list[np.ndarray]
    beta: list[np.ndarray] = field(init=False)
    B: list[np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        self.beta = [np.zeros_like(S) for S in self.S]

    @classmethod
    def of(cls, sites: list[np.ndarray]) -> Sites:
        n = sum(map(len, sites))
        return cls([(X - X.mean(axis=0)).T @ (X - X.mean(axis=0)) / n for X in sites])

    def solve(self, W: np.ndarray, rho2: float) -> None:
        unit = np.eye(len(W))
        self.B = [
            np.linalg.solve(S + rho2 * unit, rho2 * W - beta + S)
            for S, beta in zip(self.S, self.beta, strict=True)
        ]

    def dual(self, W: np.ndarray, rho2: float) -> None:
        self.beta = [beta + rho2 * (B - W) for beta, B in zip(self.beta, self.B, strict=True)]


def algorithm_1(sites: list[np.ndarray], penalty: float) -> tuple[np.ndarray, int]:
    """Line by line, with appendix B's settings; returns W and the number of rounds."""
    parties = Sites.of(sites)
    d = sites[0].shape[1]
    W, alpha, rho1, rho2 = np.zeros((d, d)), 0.0, 1e-3, 1e-3

    def lagrangian(x: np.ndarray) -> tuple[float, np.ndarray]:
        """The terms of (5), sums over k and all, with sign(W) for a subgradient."""
        V = x.reshape(d, d)
        exponential = scipy.linalg.expm(V * V)
        h = np.trace(exponential) - d
        value = penalty * np.sum(np.abs(V)) + alpha * h + rho1 / 2 * h * h
        slope = penalty * np.sign(V) + (alpha + rho1 * h) * exponential.T * 2 * V
        for beta, B in zip(parties.beta, parties.B, strict=True):
            value += np.trace(beta @ (B - V).T) + rho2 / 2 * np.sum((B - V) ** 2)
            slope += -beta - rho2 * (B - V)
        return float(value), slope.ravel()

    for rounds in range(1, 201):
        parties.solve(W, rho2)
        W = minimize(lagrangian, W.ravel(), jac=True, method="L-BFGS-B").x.reshape(d, d)
        alpha += rho1 * float(np.trace(scipy.linalg.expm(W * W)) - d)
        parties.dual(W, rho2)
        rho1, rho2 = min(1.75 * rho1, 1e16), min(1.25 * rho2, 1e16)
        if rho1 == rho2 == 1e16:
            return W, rounds
    raise AssertionError("200 rounds are more than it takes")


@pytest.mark.oracle
@pytest.mark.parametrize("penalty", [0.0, 0.01])
@pytest.mark.parametrize("seed", [1, 2])
def test_against_algorithm_1(seed: int, penalty: float) -> None:
    _, sites = simulated(seed, 5, (30, 60, 110))
    W, rounds = algorithm_1(sites, penalty)
    fit = learn(sites, schedule=PAPER, penalty=penalty)
    assert fit.weights is not None
    assert fit.diagnostics["rounds"] == rounds == 197
    np.testing.assert_array_equal(fit.directed, np.abs(W) > 0.3)
    # Both solve (5) only until L-BFGS gains less than 2.2e-9 of the objective, here below 1, where
    # the curvature is K rho2, 0.003 in the first rounds: W is known to sqrt(2 * 2.2e-9 / 0.003) =
    # 1.2e-3 there. Later rounds reduce that, but not to zero. With an l1 term a subgradient
    # may also stop at a kink, a slope of up to 2 lambda away from the minimum, which moves
    # least squares by up to 2 lambda over the smallest curvature of the pooled covariance.
    curvature = np.linalg.eigvalsh(sum(Sites.of(sites).S))[0]
    near = 1.2e-3 + 2 * penalty / curvature
    np.testing.assert_allclose(fit.weights, W, rtol=0, atol=near)


@pytest.fixture
def watched(monkeypatch) -> list[tuple[dict, dict]]:
    """The states around every round of `learn`."""
    states: list[tuple[dict, dict]] = []
    original = coordinator.advance

    def advance(state, *rest):
        states.append((state, original(state, *rest)))
        return states[-1][1]

    monkeypatch.setattr(linear_simulation, "advance", advance)
    return states


@pytest.mark.parametrize(("sizes", "d"), [((40, 70, 90), 5), ((3,) * 10, 10), ((1, 2, 30, 4), 6)])
def test_every_site_agrees_at_the_end(watched, sizes: tuple[int, ...], d: int) -> None:
    """The coordinator knows only the mean residual; this is each site's, from its own B_k."""
    _, sites = simulated(3, d, sizes)
    fit = learn(sites)
    assert fit.converged
    parties = Sites.of(sites)
    for before, after in watched:
        W, rho2 = before["W"], before["rho2"]
        parties.solve(W, rho2)
        # V_k summed: as the paper has it. B_k - W has an error of some roundings of B_k.
        total = sum(b + rho2 * (B - W) for b, B in zip(parties.beta, parties.B, strict=True))
        sure = 1e-13 * len(sites) * max(1.0, rho2) * (1 + max(np.abs(B).max() for B in parties.B))
        np.testing.assert_allclose(after["total"], total, rtol=0, atol=sure / min(1.0, rho2))
        parties.dual(after["W"], rho2)
    residuals = [float(np.abs(B - after["W"]).max()) for B in parties.B]
    mean = float(np.abs(np.mean(parties.B, axis=0) - after["W"]).max())
    # Ten times the tolerance on the mean, so that the mean does not hide sites' differences.
    assert max(residuals) <= 1e-7
    assert fit.diagnostics["consensus_residual"] == pytest.approx(mean, abs=1e-14)
    assert fit.diagnostics["consensus_residual"] <= 1e-8
    assert fit.diagnostics["h"] <= 1e-6
    # V_k = -grad l(B_k), so at the end their sum is the pooled S (I - W), but for the residual.
    S = sum(parties.S)
    near = 2e-7 * np.linalg.norm(S, 2) * d
    np.testing.assert_allclose(after["total"], S @ (np.eye(d) - after["W"]), rtol=0, atol=near)


def test_early_sums_depend_on_who_has_which_records(watched) -> None:
    """As the method's docstring warns, they are not a function of the pooled covariance."""
    _, (X,) = simulated(4, 5, (80,))
    A, B, C, D = (part - part.mean(axis=0) for part in np.split(X, 4))
    pairs = [((A, B), (C, D)), ((A, C), (B, D))]
    for sites in pairs:
        learn([np.vstack(site) for site in sites])
    first, second = (after["total"] for before, after in watched if before["rounds"] == 0)
    S = (A.T @ A + B.T @ B + C.T @ C + D.T @ D) / 80
    for total, sites in zip((first, second), pairs, strict=True):
        parties = [np.vstack(site) for site in sites]
        own = [P.T @ P / 80 for P in parties]
        np.testing.assert_allclose(sum(own), S, rtol=0, atol=1e-14 * np.abs(S).max())
        # W = 0 and beta = 0: V_k = rho2 (S_k + rho2)^-1 S_k.
        expected = sum(1e-3 * np.linalg.solve(P + 1e-3 * np.eye(5), P) for P in own)
        np.testing.assert_allclose(total, expected, rtol=0, atol=1e-13)
    assert np.abs(first - second).max() > 1e-9  # far above the tolerance on either


def test_records_count_alike_wherever_they_are() -> None:
    """Sites are weighted by their records, n_k / n: empty ones change nothing but K rho2."""
    truth, sites = simulated(5, 6, (1000,))
    X = sites[0]
    whole, uneven = learn([X]), learn([X[:10], X[10:200], X[200:], X[:0]])
    assert compare_graphs(uneven.directed, truth).shd == 0
    assert compare_graphs(whole.directed, truth).shd == 0


def test_a_site_twice_is_a_site_of_twice_the_records() -> None:
    """sum_k S_k and all that follows is the same: K sites of S / K each, at a K-th of rho2."""
    _, (X,) = simulated(6, 5, (60,))
    both = learn([X, X], schedule=Schedule(rho2=1e-3))
    one = learn([X], schedule=Schedule(rho2=2e-3))
    assert both.diagnostics["rounds"] == one.diagnostics["rounds"]
    # (5) is the same problem in both, to rounding, and each is solved to changes of W of 1e-6.
    np.testing.assert_allclose(both.weights, one.weights, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(both.directed, one.directed)
