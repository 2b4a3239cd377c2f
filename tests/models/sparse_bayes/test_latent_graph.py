"""A graph with normal errors under noise at the site: density, both moves, and the joint law."""

from __future__ import annotations

import numpy as np
import pytest

from secagg.contracts import NoisyMatrix
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.laplace_graph import GraphDraw, draw_graph_noise, sweep_graph
from secagg.models.sparse_bayes.latent_graph import (
    begin_latent_graph,
    draw_latent_graph,
    latent_columns,
)
from secagg.models.sparse_bayes.metropolis_entries import ErrorLaw

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
        draw, _, _ = sweep_graph(F, draw, reach, theta, t, PRIOR, law, noise)
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
    print(
        sd,
        np.round((mean - expected) / np.hypot(error, its_error), 2),
        np.round(error, 4),
        np.round(its_error, 4),
    )
    # 11 numbers three times: 4.2 errors are exceeded by chance in 1 of 1000 runs
    assert np.all(np.abs(mean - expected) < 4.2 * np.hypot(error, its_error))
    spread = np.sqrt(weights @ (values - expected) ** 2)
    assert np.all(error < 0.05 * spread)  # so the comparison can fail
