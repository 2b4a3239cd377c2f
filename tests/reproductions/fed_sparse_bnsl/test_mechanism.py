"""DP-PGCD: sensitivities and noise against brute force, its limit without noise, equal budgets."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from reproductions.fed_sparse_bnsl.tasks import consensus, own, peer
from reproductions.fed_sparse_bnsl.tasks.mechanism import (
    LocalProblem,
    StepNoise,
    descend,
    select,
    step_noise,
)
from reproductions.fed_sparse_bnsl.tasks.zcdp import epsilon_of, gaussian_epsilon, rho_of

Array = NDArray[np.float64]
D, N = 3, 8
OFF = ~np.eye(D, dtype=bool)


def a_problem(rng: np.random.Generator, penalty: float = 0.1) -> LocalProblem:
    scale = rng.uniform(0.5, 3, D)
    return LocalProblem(
        rng.normal(0, scale, (N, D)), N, scale, 0.7 * np.outer(scale, scale), penalty
    )


def all_gradients(problem: LocalProblem, B: Array) -> Array:
    return np.column_stack([problem.gradients(B, k) for k in range(D)])


def test_no_record_moves_gradient_or_score_further_than_the_noise_assumes() -> None:
    """Every pattern of signs and sizes of an added record; the bounds are attained."""
    rng = np.random.default_rng(1)
    widest_gradient, widest_score = 0.0, 0.0
    for _ in range(20):
        problem, rho2 = a_problem(rng, penalty=float(rng.choice([0, 0.1]))), rng.uniform(0.01, 1)
        B, pull = rng.normal(size=(D, D)) * OFF, rng.normal(size=(D, D))
        G = all_gradients(problem, B)
        u, D_u = problem.scores(G, B, pull, rho2), problem.score_sensitivity(rho2)
        for record in itertools.product((-1e3, -1.0, 0.0, 1.0, 1e3), repeat=D):
            more = replace(problem, X=np.vstack([problem.X, record]))
            moved = all_gradients(more, B)
            share = np.abs(moved - G) / (problem.clip / N)
            widest_gradient = max(widest_gradient, share.max())
            change = np.abs(more.scores(moved, B, pull, rho2)[OFF] - u[OFF])
            widest_score = max(widest_score, change.max() / D_u)
    assert widest_gradient == pytest.approx(1, abs=1e-12)
    assert widest_score == pytest.approx(1, abs=1e-9)


def softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("e", [0.3, 1.0, 4.0])
def test_selection_satisfies_its_zcdp_between_all_neighbours(e: float) -> None:
    """Renyi divergences of the exact law, for scores moved by D_u in every pattern of signs."""
    rng, D_u = np.random.default_rng(2), 0.4
    worst = 0.0
    for scores in (np.zeros(6), rng.normal(size=6), np.array([3.0, 0, 0, 0, 0, 0])):
        p = softmax(scores * e / (2 * D_u))
        for signs in itertools.product((-1, 0, 1), repeat=6):
            q = softmax((scores + D_u * np.array(signs)) * e / (2 * D_u))
            for order in (1.001, 2.0, 16.0):
                divergence = math.log(float(np.sum(p**order * q ** (1 - order)))) / (order - 1)
                worst = max(worst, divergence / order)
    assert 0.8 * e**2 / 8 < worst <= StepNoise(e, math.inf).rho  # 0.8: the bound is nearly attained


def test_selection_has_the_law_of_the_exponential_mechanism() -> None:
    rng, draws = np.random.default_rng(3), 4000
    u, D_u, e = rng.uniform(0, 1, (D, D)), 0.3, 2.0
    np.fill_diagonal(u, -np.inf)
    counts = np.zeros((D, D))
    for _ in range(draws):
        counts[select(u, D_u, e, rng)] += 1
    expected = draws * softmax((u * e / (2 * D_u))[OFF])
    assert stats.chisquare(counts[OFF], expected).pvalue > 1e-4
    assert select(u, D_u, math.inf, rng) == np.unravel_index(np.argmax(u), u.shape)


def test_gradients_get_the_noise_that_is_accounted() -> None:
    """One step from zero, without a penalty: B_jk is -(G_jk + noise) / M, whose spread is known."""
    rng, noise, draws = np.random.default_rng(4), StepNoise(1e9, 2.5), 3000
    problem = a_problem(rng, penalty=0.0)
    zero, rho2 = np.zeros((D, D)), 0.5
    G = all_gradients(problem, zero)
    released = []
    for _ in range(draws):
        B, _, [(j, k)] = descend(problem, zero, G, zero, zero, rho2, 1, noise, rng)
        released.append(-B[j, k] * problem.curvature(rho2)[j, 0])
    sd = noise.s * problem.clip[j, k] / N
    # Under a normal law, (draws - 1) s^2 / sd^2 has a chi-squared law.
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], draws - 1)
    assert low < (draws - 1) * np.var(released, ddof=1) / sd**2 < high
    assert abs(np.mean(released) - G[j, k]) < 4 * sd / math.sqrt(draws)
    one_step = StepNoise(0.0, noise.s).rho
    assert one_step == pytest.approx((problem.clip[j, k] / N) ** 2 / (2 * sd**2), rel=1e-12)


@pytest.mark.parametrize("selection", [0.25, 0.75])
def test_steps_compose_to_the_budget(selection: float) -> None:
    noise = step_noise(0.2, 40, selection)
    assert 40 * noise.rho == pytest.approx(0.2, rel=1e-12)
    assert 40 * noise.e**2 / 8 == pytest.approx(0.2 * selection, rel=1e-12)
    assert step_noise(math.inf, 40, selection) == StepNoise(math.inf, 0.0)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
def test_conversions_of_epsilon(epsilon: float) -> None:
    """(1) is inverted; the exact epsilon has the hockey-stick divergence delta, by quadrature."""
    delta = 1e-5
    rho = rho_of(epsilon, delta)
    assert epsilon_of(rho, delta) == pytest.approx(epsilon, rel=1e-12)
    exact, mu = gaussian_epsilon(rho, delta), math.sqrt(2 * rho)
    assert exact < epsilon
    start = exact / mu + mu / 2  # where the densities' ratio is e^exact

    def excess(x: float) -> float:
        return float(stats.norm.pdf(x, mu) - math.exp(exact) * stats.norm.pdf(x))

    found, error = integrate.quad(excess, start, start + 12, epsabs=1e-12)
    assert abs(found - delta) < 10 * max(error, 1e-12)


def test_without_noise_the_steps_end_at_the_minimum() -> None:
    """The conditions of Karush, Kuhn and Tucker for problem (1), which is strictly convex."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, D)) @ rng.normal(size=(D, D))
    scale, penalty, rho2 = np.sqrt((X**2).mean(axis=0)), 0.1, 0.3
    problem = LocalProblem(X, len(X), scale, np.full((D, D), np.inf), penalty)
    beta, W, zero = rng.normal(size=(D, D)), rng.normal(size=(D, D)), np.zeros((D, D))
    B, G, changed = descend(
        problem, zero, all_gradients(problem, zero), beta, W, rho2, 800, StepNoise(), rng
    )
    assert len(changed) <= D * (D - 1)
    assert all_gradients(problem, B) == pytest.approx(G, abs=1e-12)
    slope = X.T @ (X @ B - X) / len(X) + beta + rho2 * (B - W)
    kept = (B != 0) & OFF
    assert kept.any()
    assert (slope + penalty * np.sign(B))[kept] == pytest.approx(0, abs=1e-6)
    assert np.all(np.abs(slope[OFF & ~kept]) <= penalty + 1e-6)


CHOICES = consensus.Choices(20, 5, 0.1, 2.0, 0.5, 0.3, 1e-3, 0.1, 1e4, 1e2)
RECORDS = {"d": 4, "sites": 3, "each": 400, "seed": 3}


def test_both_sides_of_the_comparison_spend_the_same_rho() -> None:
    """secagg's accountant and the peer's, for one epsilon."""
    privacy = {"epsilon": 8.0, "delta": 1e-5}
    settings = {**vars(CHOICES), **RECORDS}
    [(name, theirs)] = peer.compute({**settings, **privacy}).items()
    assert name == "fed-sparse-bnsl"
    assert theirs["rho"] == pytest.approx(rho_of(8.0, 1e-5), rel=1e-9)
    assert theirs["kilobytes"] <= 0.012 * CHOICES.rounds * CHOICES.steps
    [(name, ours)] = own.compute(
        {**RECORDS, **privacy, "learner": "notears", "placement": "site"}
    ).items()
    assert name == "notears-site"
    assert 0.99 * theirs["rho"] < ours["rho"] <= theirs["rho"]
    [(name, exact)] = peer.compute(settings).items()
    assert name == "fed-sparse-bnsl-exact" and "rho" not in exact and exact["tpr"] > 0.5
