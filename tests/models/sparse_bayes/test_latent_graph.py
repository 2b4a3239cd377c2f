"""A graph with normal errors under noise at the site: density, both moves, and the joint law."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from secagg.contracts import NoisyMatrix
from secagg.core.arrays import Array
from secagg.models.numerics.noise_posterior import factor_of
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.laplace_graph import (
    GraphDraw,
    draw_graph_noise,
    rotation_pairs,
    sweep_graph,
)
from secagg.models.sparse_bayes.latent import graph as latent_graph
from secagg.models.sparse_bayes.latent.graph import (
    GivenGraph,
    begin_latent_graph,
    draw_latent_graph,
    latent_columns,
)
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw

PRIOR = NoisePrior(shape=1.5, scale=0.7)
RECORDS = 13
FACTORS = np.array([2.0, 3.0])
"""d: what a column analysed is in scaled units."""
COMMON, SPREAD = np.array([0.2, -0.1]), 0.3
"""theta and t of both entries."""


def noisy(sd: float) -> NoisyMatrix:
    """Return moments of two columns; number and sums have hardly any noise."""
    M = np.array([[13.0, 0.5, -0.3], [0.5, 3.2, 0.9], [-0.3, 0.9, 1.1]])
    variance = np.full((3, 3), 1e-8)
    variance[1:, 1:] = sd**2 * (1 + np.eye(2))
    return NoisyMatrix(M, variance)


def played(given: NoisyMatrix, chains: int, rounds: int, seed: int = 0) -> list[Array]:
    """Return theta, b and S of every round after half of them."""
    rng, law = np.random.default_rng(seed), ErrorLaw(2, RECORDS)
    shape = (chains, 2)
    latent = begin_latent_graph(given, shape)
    draw = GraphDraw(np.zeros(shape), np.ones(shape), np.ones(shape), np.ones(shape))
    theta, t, reach = np.tile(COMMON, (chains, 1)), np.full(shape, SPREAD), np.full(shape, 0.3)
    seen = []
    for i in range(rounds):
        warmup = i + 1 if i < rounds // 2 else 0
        latent, draw = draw_latent_graph(
            latent, FACTORS, RECORDS - 1, draw, theta, t, PRIOR, rng, warmup=warmup
        )
        F = latent_columns(latent, FACTORS)
        noise = draw_graph_noise(chains, 2, law, PRIOR, rng)
        pairs = rotation_pairs(2, i, ordered=False)
        draw, _, _ = sweep_graph(F, draw, reach, theta, t, PRIOR, law, noise, pairs)
        if not warmup:
            seen.append((draw.theta, draw.b, F @ np.swapaxes(F, 1, 2)))
    return [np.array(each) for each in zip(*seen, strict=True)]


def by_importance(given: NoisyMatrix, many: int) -> tuple[Array, Array, Array, Array]:
    """Return weights and draws of theta, b and S: M from its noise, theta from its prior.

    The weight of a draw is the density of S given theta, with s integrated out.
    """
    rng, nu = np.random.default_rng(99), RECORDS - 1
    E = np.sqrt(given.variance) * rng.normal(size=(many, 3, 3))
    M = given.matrix + np.triu(E) + np.swapaxes(np.triu(E, 1), 1, 2)
    S = M[:, 1:, 1:] - M[:, 1:, :1] * M[:, :1, 1:] / M[:, :1, :1]
    S *= np.outer(FACTORS, FACTORS)
    det = S[:, 0, 0] * S[:, 1, 1] - S[:, 0, 1] ** 2
    local = np.abs(rng.standard_cauchy((many, 2)))
    theta = COMMON + local * np.sqrt(SPREAD) * rng.normal(size=(many, 2))
    volume = 1 - theta[:, 0] * theta[:, 1]
    possible = (np.abs(theta[:, 0] * theta[:, 1]) < 1) & (det > 0) & (S[:, 0, 0] > 0)
    one, other = theta[:, 0], theta[:, 1]
    q = np.column_stack([
        S[:, 0, 0] - 2 * one * S[:, 0, 1] + one**2 * S[:, 1, 1],
        S[:, 1, 1] - 2 * other * S[:, 0, 1] + other**2 * S[:, 0, 0],
    ])  # fmt: skip
    q, det, volume = (np.where(possible.reshape(-1, *[1] * (x.ndim - 1)), x, 1.0)
                      for x in (q, det, volume))  # fmt: skip
    log = (nu - 3) / 2 * np.log(det) + nu * np.log(volume)
    log -= (PRIOR.shape + nu / 2) * np.log(PRIOR.scale + q / 2).sum(axis=1)
    log[~possible] = -np.inf
    s = (PRIOR.scale + q / 2) / rng.gamma(PRIOR.shape + nu / 2, size=q.shape)
    return np.exp(log - log.max()), theta, np.sqrt(s), S


def functions(theta: Array, b: Array, S: Array) -> Array:
    """Return bounded or light-tailed functions of the draws, along a last axis."""
    correlation = S[..., 0, 1] / np.sqrt(S[..., 0, 0] * S[..., 1, 1])
    logs = np.log(np.stack([b[..., 0], b[..., 1], S[..., 0, 0], S[..., 1, 1]], axis=-1))
    bent = np.tanh(theta)
    return np.concatenate(
        [bent, bent**2, logs, correlation[..., None], correlation[..., None] ** 2,
         (bent[..., 0] * correlation)[..., None]], axis=-1,
    )  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("sd", [0.05, 0.4, 1.5])
def test_graph_variances_and_moments_have_their_joint_posterior(sd: float) -> None:
    """Against importance sampling, for noise far below, near and above the sampling errors."""
    given = noisy(sd)
    chains, rounds = 400, 400
    found = functions(*played(given, chains, rounds)).mean(axis=0)  # (chains, functions)
    mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(chains)
    weights, *draws = by_importance(given, 2_000_000)
    assert weights.sum() ** 2 / (weights**2).sum() > 5000
    values = functions(*(each[weights > 0] for each in draws))
    weights = weights[weights > 0] / weights.sum()
    expected = weights @ values
    its_error = np.sqrt(weights**2 @ (values - expected) ** 2)
    # 11 numbers three times: 4.2 errors are exceeded by chance in 1 of 1000 runs
    assert np.all(np.abs(mean - expected) < 4.2 * np.hypot(error, its_error))
    spread = np.sqrt(weights @ (values - expected) ** 2)
    assert np.all(error < 0.05 * spread)  # so the comparison can fail


ROWS = np.array([[1.1, -0.4, 0.2], [0.3, 0.9, -0.2], [0.0, 0.5, 1.3]])
AT = np.tril_indices(4)


def target_of(freedom: float, rows: Array = ROWS) -> GivenGraph:
    """Return (1) with so much noise that the normal density of E is flat."""
    return GivenGraph(np.zeros((1, 4, 4)), np.full((4, 4), 1e12), rows[None], freedom)


def point(x: Array) -> Array:
    X = np.zeros((1, 4, 4))
    X[0][AT] = x
    return X


def test_the_density_is_wisharts_in_other_coordinates() -> None:
    """By scipy, with a numerical Jacobian from X to n, sums and S; those of n and sums are flat."""
    freedom, rng = 9.0, np.random.default_rng(2)
    target = target_of(freedom)

    def natural(x: Array) -> Array:
        L = factor_of(point(x))[0]
        M = L @ L.T
        S = M[1:, 1:] - np.outer(M[0, 1:], M[0, 1:]) / M[0, 0]
        return np.concatenate([M[0], S[np.triu_indices(3)]])

    def log_density(x: Array) -> float:
        found = natural(x)
        S = np.zeros((3, 3))
        S[np.triu_indices(3)] = found[4:]
        S = S + np.triu(S, 1).T
        sizes = 1e-6 * np.eye(10)
        jacobian = np.array([(natural(x + d) - natural(x - d)) / 2e-6 for d in sizes])
        law = stats.wishart(freedom, np.linalg.inv(ROWS.T @ ROWS))
        return float(law.logpdf(S) + np.linalg.slogdet(jacobian)[1])

    points = [0.4 * rng.normal(size=10) for _ in range(4)]
    values = [float(target(point(x))[0][0]) for x in points]
    for i, k in combinations(range(4), 2):
        expected = log_density(points[i]) - log_density(points[k])
        assert values[i] - values[k] == pytest.approx(expected, abs=1e-5)


def test_the_gradient_is_that_of_the_density() -> None:
    rng = np.random.default_rng(4)
    released = np.diag([20.0, 5.0, 3.0, 4.0])[None]
    target = GivenGraph(released, 1 + rng.random((4, 4)) * np.eye(4), ROWS[None], 9.0)
    x = 0.4 * rng.normal(size=10)
    _, gradient = target(point(x))
    for i, d in enumerate(1e-6 * np.eye(10)):
        numeric = (target(point(x + d))[0] - target(point(x - d))[0])[0] / 2e-6
        assert gradient[0][AT][i] == pytest.approx(numeric, rel=1e-5, abs=1e-4)


def test_without_noise_the_moments_are_the_exact_ones() -> None:
    given = noisy(1e-6)
    _, _, S = played(given, 2, 60)
    M = given.matrix
    exact = (M[1:, 1:] - np.outer(M[0, 1:], M[0, 1:]) / M[0, 0]) * np.outer(FACTORS, FACTORS)
    assert np.broadcast_to(exact, S.shape) == pytest.approx(S, abs=1e-3)


def test_moments_of_a_column_without_a_unit_stay_finite() -> None:
    """It is constant among the repaired moments: its factor is 0."""
    latent = begin_latent_graph(noisy(0.4), (3, 2))
    shape, rng = (3, 2), np.random.default_rng(0)
    draw = GraphDraw(np.full(shape, 0.2), np.ones(shape), np.ones(shape), np.ones(shape))
    for i in range(20):
        latent, moved = draw_latent_graph(
            latent, np.array([2.0, 0.0]), 12.0, draw, np.zeros(shape), np.ones(shape), PRIOR, rng,
            warmup=i + 1,
        )  # fmt: skip
        assert moved.theta is not draw.theta and np.array_equal(moved.theta, draw.theta)
    F = latent_columns(latent, np.array([2.0, 0.0]))
    assert np.all(np.isfinite(latent["X"])) and np.all(F[:, 1] == 0) and np.all(F[:, 0, 0] > 0)


def spread_moments(sd: float) -> NoisyMatrix:
    M = np.diag([20.0, 5.0, 3.0, 4.0])
    M[1, 2] = M[2, 1] = 1.0
    return NoisyMatrix(M, np.full((4, 4), sd**2))


def moved_together(sd: float, rounds: int, chains: int) -> tuple[Array, Array, list[Array]]:
    """Return theta and b after the second step alone, and B S B' before every round."""
    rng, factors, shape = np.random.default_rng(6), np.array([2.0, 3.0, 1.5]), (chains, 6)
    latent = {**begin_latent_graph(spread_moments(1.0), shape), "variance": np.full((4, 4), sd**2)}
    latent["reach"][:], latent["reach_b"][:] = 0.5, 0.5
    graph = 0.2 * rng.normal(size=(chains, 3, 3)) * ~np.eye(3, dtype=bool)
    b, mean, square = np.ones((chains, 3)), np.full(shape, 0.1), np.full(shape, 0.04)
    kept = []
    for _ in range(rounds):
        T = (np.eye(3) - graph) / b[..., None] @ latent_columns(latent, factors)
        kept.append(T @ np.swapaxes(T, 1, 2))
        latent, graph, b = latent_graph._move_together(
            latent, factors, graph, b, mean, square, PRIOR, rng, 0, ~np.eye(3, dtype=bool)
        )
    return graph, b, kept


def test_the_second_step_keeps_what_does_not_depend_on_the_graph() -> None:
    _, _, kept = moved_together(1.0, 5, 30)
    for later in kept[1:]:
        np.testing.assert_allclose(later, kept[0], rtol=1e-8, atol=1e-8)


@pytest.mark.oracle
def test_with_much_noise_the_second_step_draws_from_the_prior() -> None:
    """4000 chains: Kolmogorov's distance is above 1.95 / root(4000) in 1 of 1000 runs."""
    graph, b, _ = moved_together(1e9, 60, 4000)
    assert np.abs(np.linalg.eigvals(graph)).max() < 1
    s = stats.invgamma(PRIOR.shape, scale=PRIOR.scale)
    assert stats.kstest(b[:, 1] ** 2, s.cdf).statistic < 1.95 / np.sqrt(4000)
    # the Cauchy prior, given a radius below 1, by rejection
    drawn = 0.1 + 0.2 * np.random.default_rng(1).standard_cauchy((60_000, 3, 3))
    drawn *= ~np.eye(3, dtype=bool)
    drawn = drawn[np.abs(np.linalg.eigvals(drawn)).max(axis=1) < 1]
    found = stats.ks_2samp(graph[:, 2, 0], drawn[:, 2, 0]).statistic
    assert found < 1.95 * np.sqrt(1 / 4000 + 1 / len(drawn))
