"""Paths on which the common graph and all sites' graphs move: slopes, steps and their choice."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from secagg.contracts import State
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.joint import paths
from secagg.models.sparse_bayes.joint.paths import (
    RATE,
    adapted_steps,
    advance,
    begin_path,
    first_steps,
    log_density,
    slopes,
)
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw
from secagg.models.sparse_bayes.metropolis.slopes import (
    draw_location_and_scale,
    log_likelihood_and_slopes,
)
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab

Array = NDArray[np.float64]

P, CHAINS = 4, 3
OFF = ~np.eye(P, dtype=bool)
PRIOR = SpikeSlab()


def likelihood(graph: Array, Y: Array, m: Array, b: Array, degree: int) -> float:
    """Return the log density of the records about the constants, by its definition."""
    A, n = np.eye(P) - graph, Y.shape[1]
    e = A @ Y - m[:, None]
    sizes = np.abs(e) if degree == 1 else e**2 / 2
    found = max(n - 1, 0) * np.log(abs(np.linalg.det(A)))
    return float(found - (sizes / b[:, None] ** degree).sum())


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 7])
def test_slopes_are_those_of_the_likelihood(n: int, degree: int) -> None:
    rng = np.random.default_rng(n)
    graph = rng.normal(size=(CHAINS, P, P)) * 0.25 * OFF
    Y, law = rng.laplace(size=(CHAINS, P, n)), ErrorLaw(degree, n, np.ones(CHAINS))
    m, b = rng.normal(size=(CHAINS, P)), rng.uniform(0.5, 2.0, (CHAINS, P))
    m *= degree == 1
    found, slope = log_likelihood_and_slopes(Y, graph, m, b, law, least=-1e6, steepest=1e6)
    size = 1e-6  # |e| is linear so near to a record that has no error of 0
    for c in range(CHAINS):
        arguments = Y[c], m[c], b[c], degree
        assert found[c] == pytest.approx(likelihood(graph[c], *arguments))
        for j, h in np.argwhere(OFF):
            step = np.zeros((P, P))
            step[j, h] = size
            ends = [likelihood(graph[c] + sign * step, *arguments) for sign in (1, -1)]
            assert slope[c, j, h] == pytest.approx((ends[0] - ends[1]) / (2 * size), abs=1e-6)


def test_a_graph_without_likelihood_has_the_least_one_and_slopes_are_clipped() -> None:
    rng = np.random.default_rng(4)
    graph, Y = np.zeros((2, P, P)), rng.laplace(size=(2, P, 9)) * 100
    graph[1, 0, 1] = graph[1, 1, 0] = 1.0  # I - Theta cannot be inverted
    law, one = ErrorLaw(1, 9, np.ones(2)), np.ones((2, P))
    found, slope = log_likelihood_and_slopes(Y, graph, 0 * one, one, law, least=-5e5, steepest=7.0)
    assert found[1] == -5e5 < found[0]
    assert np.isfinite(slope).all() and np.abs(slope).max() == 7.0


@pytest.mark.parametrize("degree", [1, 2])
def test_constants_and_scales_have_their_law_given_the_graph(degree: int) -> None:
    """At a power of 1/2, against sums over a grid of the joint density of m and b."""
    many, n, prior = 30_000, 5, NoisePrior(shape=3.0, scale=2.0)
    Y = np.zeros((1, P, n))
    Y[0, 0] = [-1.0, 0.0, 0.5, 2.0, 4.0]
    law, rng = ErrorLaw(degree, n, np.full(many, 0.5)), np.random.default_rng(3)
    m, b = draw_location_and_scale(
        np.repeat(Y, many, axis=0), np.zeros((many, P, P)), prior, law, rng
    )
    log_s = np.linspace(-4, 5, 600)[:, None]  # of b^degree; the prior has the power, too
    where = np.linspace(-25, 25, 2001)[None, :] if degree == 1 else np.zeros((1, 1))
    e = Y[0, 0] - where[..., None]
    S = np.abs(e).sum(-1) if degree == 1 else (e**2).sum(-1) / 2
    records = n if degree == 1 else (n - 1) / 2
    # |det A| has the power n - 1, and as one power of 1 / b belongs to m, all b but it have beta
    shape = 0.5 * (3.0 + (n - 1 if degree == 1 else records)) + (degree == 1)
    weight = np.exp(-shape * log_s - 0.5 * (2.0 + S) * np.exp(-log_s))
    weight /= weight.sum()
    expected = (weight * log_s).sum(), (weight * np.tanh(where)).sum()
    for drawn, mean in zip((degree * np.log(b[:, 0]), np.tanh(m[:, 0])), expected, strict=True):
        error = drawn.std() / np.sqrt(many)
        assert abs(drawn.mean() - mean) <= 4.5 * error + 1e-3  # the grid's own error is below it


def common(chains: int, entries: int, rng: np.random.Generator) -> Common:
    theta = rng.normal(size=(chains, entries)) * 0.3
    one = np.ones_like(theta)
    eta = np.repeat(rng.uniform(0.1, 0.5, (chains, 1)), entries, axis=1)
    return Common(theta, one, one, eta, one, rng.uniform(0.2, 0.8, chains), one)


def answers(theta: Array, widths: Array) -> State:
    """Return the sums of sites whose likelihood is normal with these standard deviations."""
    total = -((theta / widths) ** 2).sum(axis=1) / 2
    return {"likelihood": total, "slope": -theta / widths**2}


def walked(path: State, now: Common, widths: Array, heat: Array, steps: int) -> tuple[State, Array]:
    for _ in range(steps + 1):
        path, log_chance = advance(path, now, answers(path["theta"], widths), heat, PRIOR,
                                   steps=steps)  # fmt: skip
    return path, log_chance


def test_prior_slopes_are_those_of_the_density() -> None:
    rng = np.random.default_rng(1)
    now, widths, heat = common(CHAINS, 6, rng), rng.uniform(0.1, 1, 6), np.array([1.0, 0.5, 0.1])
    found = slopes(now, answers(now.theta, widths)["slope"], heat, PRIOR)
    for i in range(6):
        step = 1e-6 * np.eye(6)[i]
        ends = [
            log_density(new, answers(new.theta, widths)["likelihood"], heat, PRIOR)
            for new in (replace(now, theta=now.theta + sign * step) for sign in (1, -1))
        ]
        np.testing.assert_allclose(found[:, i], (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-5)


def test_a_path_leads_back_with_its_momentum_turned_round() -> None:
    rng, steps = np.random.default_rng(2), 5
    now, widths = common(CHAINS, 6, rng), rng.uniform(0.1, 1, 6)
    heat, rank = np.array([1.0, 0.5, 0.1]), np.zeros(CHAINS, dtype=np.int64)
    start = begin_path(now, first_steps(1, 6, 200), rank, rng)

    def energy(theta: Array, momentum: Array) -> Array:
        at = replace(now, theta=theta)
        density = log_density(at, answers(theta, widths)["likelihood"], heat, PRIOR)
        return np.asarray(density - (momentum**2).sum(axis=1) / 2)

    end, log_chance = walked(start, now, widths, heat, steps)
    # the last half step of the momentum, which `advance` does not return
    here = replace(now, theta=end["theta"])
    last = end["momentum"] + start["size"] / 2 * slopes(
        here, answers(end["theta"], widths)["slope"], heat, PRIOR
    )
    gain = energy(end["theta"], last) - energy(now.theta, start["momentum"])
    np.testing.assert_allclose(log_chance, np.minimum(gain, 0.0), atol=1e-9)
    assert np.all(np.abs(end["theta"] - now.theta).max(axis=1) > 0.01)
    back, returned = walked(
        {**start, "theta": end["theta"], "momentum": -last}, here, widths, heat, steps
    )
    np.testing.assert_allclose(back["theta"], now.theta, atol=1e-10)
    np.testing.assert_allclose(returned, np.minimum(-gain, 0.0), atol=1e-9)


def test_a_path_that_leads_too_far_is_not_taken() -> None:
    rng, widths = np.random.default_rng(5), np.full(6, 0.1)
    now, rank = common(2, 6, rng), np.zeros(2, dtype=np.int64)
    path = begin_path(now, first_steps(1, 6, 200), rank, rng)
    path["size"] = path["size"] * np.array([[1.0], [1e9]])
    end, log_chance = walked(path, now, widths, np.ones(2), 4)
    assert log_chance[0] > -20 and log_chance[1] == -np.inf
    assert np.abs(end["theta"]).max() < paths._FARTHEST


def test_steps_are_adapted_to_each_entry_and_to_the_share_of_paths_taken() -> None:
    """Sites' likelihoods are narrower than the prior: so curvatures are 1 / width^2 there."""
    rng, chains, steps = np.random.default_rng(7), 200, 4
    widths, heat = np.array([0.005, 0.01, 0.002, 0.003]), np.ones(chains)
    now, rank = common(chains, 4, rng), np.arange(chains) % 2
    heat[rank == 1] = 0.25
    held, shares = first_steps(2, 4, 1000), []
    for number in range(300):
        now = replace(now, theta=rng.normal(size=(chains, 4)) * widths / np.sqrt(heat)[:, None])
        path, log_chance = walked(begin_path(now, held, rank, rng), now, widths, heat, steps)
        held = adapted_steps(held, rank, path, np.exp(log_chance), number)
        shares.append([np.exp(log_chance)[rank == at].mean() for at in range(2)])
    ratio = held["information"] * widths**2 / np.array([[1.0], [0.25]])
    # the prior adds up to 1 / (0.01 * 0.1) to curvatures, which are above 0.25 / 0.01^2
    assert np.all((ratio > 0.7) & (ratio < 1.7))
    assert np.mean(shares[100:], axis=0) == pytest.approx([RATE, RATE], abs=0.05)
