"""Linear NOTEARS-ADMM in one process: against a literal Algorithm 1, and on difficult data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from support.methods.time_series import time_series

from secagg.errors import SecaggError, UsageError
from secagg.experiments.simulated_graphs import edge_weights, erdos_renyi_dag, linear_gaussian_rows
from secagg.models.graphs.acyclicity import is_acyclic
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.notears_admm import coordinator, linear_simulation
from secagg.models.notears_admm.coordinator import Schedule
from secagg.models.notears_admm.linear_simulation import learn
from secagg.models.notears_admm.result import MAX_GRADIENT

PAPER = Schedule("subgradient")


def simulated(seed: int, d: int, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """Records of sites of these sizes, each with its own means."""
    rng = np.random.default_rng(seed)
    rows = linear_gaussian_rows(edge_weights(erdos_renyi_dag(d, d, rng), rng), sum(sizes), rng)
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    return [part + rng.normal(size=d) for part in parts]


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
def test_a_simulation_agrees_with_algorithm_1(seed: int, penalty: float) -> None:
    sites = simulated(seed, 5, (30, 60, 110))
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
def test_all_sites_agree_with_the_consensus_at_the_end(
    watched, sizes: tuple[int, ...], d: int
) -> None:
    """The coordinator knows only the mean residual; this is each site's, from its own B_k."""
    sites = simulated(3, d, sizes)
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


def test_early_sums_depend_on_the_division_of_records(watched) -> None:
    """As the method's docstring warns, they are not a function of the pooled covariance."""
    (X,) = simulated(4, 5, (80,))
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


@pytest.mark.parametrize(
    "solver", ["proximal", pytest.param("subgradient", marks=pytest.mark.statistical)]
)
def test_the_structure_of_a_vector_autoregression_is_recovered(solver) -> None:
    """In four models of 4000 windows at most one wrong edge of five, on the mean.

    Not none: penalties grow faster than the multipliers settle, so that W stops short of the
    optimum by up to half a weight, whatever the number of records.
    """
    wrong, runs = 0, 4
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        model = time_series(5, 1, rng, edges=5, lagged_edges=5)
        fit = learn(np.split(model.rows(4000, rng), [500, 2000]), lags=1, schedule=Schedule(solver))
        assert fit.converged
        assert is_acyclic(fit.directed)
        wrong += compare_graphs(fit.directed, model.W != 0).shd
    assert wrong <= runs


def test_the_diagonal_of_w_is_zero() -> None:
    sites = simulated(7, 6, (20, 30))
    assert not np.diagonal(learn(sites, zero_diagonal=True).weights).any()
    assert np.diagonal(learn(sites, schedule=Schedule(rounds=5)).weights).any()


@pytest.mark.parametrize("solver", ["proximal", "subgradient"])
def test_unequal_raw_scales_are_not_reported_as_a_converged_graph(solver) -> None:
    """Standard deviations of 12 to 428, as in Sachs et al.: the published program overflows."""
    sites, schedule = simulated(8, 5, (100,) * 4), Schedule(solver, gamma1=2.5, gamma2=1.5)
    fit = learn([X * np.geomspace(12, 428, 5) for X in sites], schedule=schedule)
    assert np.all(np.isfinite(fit.weights))
    assert is_acyclic(fit.directed) or fit.notes
    if fit.converged:  # rho2 = 0.001 does not suit 428^2
        assert fit.diagnostics["h"] <= 1e-6
        assert fit.diagnostics["stationarity"] > MAX_GRADIENT
        assert any("method.standardise" in note for note in fit.notes)


@pytest.mark.parametrize(
    ("sites", "lags"),
    [
        ([], 0),
        ([np.zeros((3, 1))], 0),
        ([np.zeros(3)], 0),
        ([np.zeros((4, 5))], 1),  # columns that are no multiple of the lags
        ([np.zeros((3, 2)), np.zeros((3, 3))], 0),
        ([np.zeros((3, 2)), np.full((3, 2), np.nan)], 0),
        ([np.zeros((3, 2)), np.full((3, 2), np.inf)], 0),
        ([np.zeros((1, 2)), np.zeros((0, 2))], 0),
    ],
)
def test_unusable_records_are_refused(sites: list[np.ndarray], lags: int) -> None:
    with pytest.raises(UsageError):
        learn(sites, lags=lags)


VALUES = st.one_of(
    st.floats(-10, 10),
    st.floats(-1e6, 1e6),
    st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e100, -1e300]),
)


@st.composite
def some_sites(draw: st.DrawFn) -> list[np.ndarray]:
    q = draw(st.integers(1, 5))
    rows = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    scale = draw(st.sampled_from([1.0, 1e-8, 1e3]))
    return [scale * draw(arrays(np.float64, (n, q), elements=VALUES)) for n in rows]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    some_sites(),
    st.sampled_from([Schedule()] * 6 + [Schedule("subgradient", rounds=20)]),
    st.sampled_from([0.0, 0.01, 5.0]),
    st.booleans(),
)
def test_any_finite_records_give_a_graph_or_a_typed_error(
    sites: list[np.ndarray], schedule: Schedule, penalty: float, zero_diagonal: bool
) -> None:
    """They give a finite graph that says whether it converged, or a typed error."""
    try:
        fit = learn(sites, schedule=schedule, penalty=penalty, zero_diagonal=zero_diagonal)
    except SecaggError:
        return
    assert np.all(np.isfinite(fit.weights))
    assert not (zero_diagonal and np.diagonal(fit.weights).any())
    if fit.converged:
        assert fit.diagnostics["h"] <= 1e-6
        assert fit.diagnostics["consensus_residual"] <= 1e-8
        # An edge above 0.3 in a cycle of d <= 5 has h >= d 0.09^d / d! > 1e-7: hence the note.
        assert is_acyclic(fit.directed) or fit.notes
    else:
        assert fit.notes
