"""A site's draws of its own graph: each step against a slow one derived from the model."""

from dataclasses import fields, replace
from itertools import pairwise, permutations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import cauchy
from scipy.stats import gamma as gamma_law

from secagg.models.numerics.laplace_location import Locations
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.laplace_graph import (
    GraphDraw,
    Order,
    allowed_entries,
    draw_graph_noise,
    entry_positions,
    matrices,
    rotation_pairs,
    sweep_graph,
)
from secagg.models.sparse_bayes.metropolis.entries import (
    ACCEPTANCE,
    ErrorLaw,
    adapted,
    is_stable,
    move_entries,
    step_sizes,
)
from secagg.models.sparse_bayes.metropolis.rotations import rotate_rows
from secagg.models.sparse_bayes.normal_graph import scatter_columns

Array = NDArray[np.float64]

PRIOR = NoisePrior(shape=1.5, scale=0.7)


def radius(graph: Array) -> float:
    return float(np.abs(np.linalg.eigvals(graph)).max())


def log_likelihood(graph: Array, Y: Array, m: Array, b: Array) -> float:
    """Return (3) of `laplace_graph`, with the densities' constants."""
    if radius(graph) >= 1:
        return -np.inf
    A, n = np.eye(len(graph)) - graph, Y.shape[1]
    errors = A @ Y - m[:, None]
    volume = (n - 1) * np.linalg.slogdet(A)[1] if n else 0.0
    return float(volume - np.sum(n * np.log(2 * b)) - np.sum(np.abs(errors) / b[:, None]))


def without_scales(graph: Array, Y: Array, m: Array, beta: float = 1.0) -> float:
    """Return the same with b integrated out, up to a constant.

    beta: power of all but one of the n densities, and of the prior of log b
    """
    if radius(graph) >= 1:
        return -np.inf
    A, n = np.eye(len(graph)) - graph, Y.shape[1]
    sums = np.abs(A @ Y - m[:, None]).sum(axis=1)
    volume = (n - 1) * np.linalg.slogdet(A)[1] if n else 0.0
    power = beta * (PRIOR.shape + n - 1) + 1 if n else beta * PRIOR.shape
    return float(beta * volume - power * np.sum(np.log(PRIOR.scale + sums)))


def normal_without_scales(graph: Array, Y: Array, beta: float = 1.0) -> float:
    """Return (1) of `normal_graph` with s_kj integrated out, from records."""
    if radius(graph) >= 1:
        return -np.inf
    A, nu = np.eye(len(graph)) - graph, max(Y.shape[1] - 1, 0)
    e = A @ Y
    e = e - e.mean(axis=1, keepdims=True) if e.size else e
    half = (e * e).sum(axis=1) / 2
    terms = (PRIOR.shape + nu / 2) * np.log(PRIOR.scale + half)
    return float(beta * (nu * np.linalg.slogdet(A)[1] - terms.sum()))


def stable_graphs(chains: int, p: int, rng: np.random.Generator) -> Array:
    """Draw graphs with a radius below 1, some of whose absolute values have a larger one."""
    made = rng.standard_normal((chains, p, p)) * ~np.eye(p, dtype=bool)
    radii = np.abs(np.linalg.eigvals(made)).max(axis=-1)
    graphs: Array = made / radii[:, None, None] * rng.uniform(0.3, 0.99, (chains, 1, 1))
    return graphs


TWO_CYCLE = np.triu(np.ones((4, 4), dtype=bool), 1)  # the order backwards, and one arrow more
TWO_CYCLE[3, 0] = True


@pytest.mark.parametrize("ordered", [False, True, TWO_CYCLE], ids=["all", "ordered", "some"])
@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_moves_equal_those_of_a_sampler_that_recomputes_everything(
    n: int, degree: int, ordered: Order
) -> None:
    rng, chains, p = np.random.default_rng(n), 80, 4
    heats = np.where(np.arange(chains) % 2, 1.0, 0.3)
    law = ErrorLaw(degree, n, heats)
    graph, Y, m = stable_graphs(chains, p, rng), rng.laplace(size=(p, n)), rng.normal(size=p)
    positions = entry_positions(p, ordered=ordered)
    entries = (chains, len(positions[0]))
    theta, steps = rng.normal(size=entries), rng.normal(size=entries) * 0.4
    # In half of them all cycles add up, and the moves of a row raise the radius together.
    alike = np.abs(graph[:40])
    graph[:40], steps[:40] = alike / np.abs(np.linalg.eigvals(alike)).max() * 0.9, 0.1
    allowed = allowed_entries(p, ordered)
    graph = np.where(allowed, graph, 0.0)
    if not is_stable(graph).all():
        graph *= 0.9 / np.abs(np.linalg.eigvals(graph)).max(axis=-1)[:, None, None]
    w, chance = rng.gamma(1.0, size=entries), -rng.exponential(size=entries)

    def density(one: Array, beta: float) -> float:
        if degree == 1:
            return without_scales(one, Y, m, beta)
        return normal_without_scales(one, Y, beta)

    slow, taken, stopped = graph.copy(), np.zeros(entries, dtype=bool), 0
    for c in range(chains):
        for i, (j, h) in enumerate(zip(*positions, strict=True)):
            other = slow[c].copy()
            other[j, h] += steps[c, i]
            gain = density(other, heats[c]) - density(slow[c], heats[c])
            gain -= ((other[j, h] - theta[c, i]) ** 2 - (slow[c, j, h] - theta[c, i]) ** 2) / (
                2 * w[c, i]
            )
            taken[c, i] = gain > chance[c, i]
            stopped += gain == -np.inf
            if taken[c, i]:
                slow[c] = other
    # so that the test of the radius is exercised
    assert ordered is True or stopped > (20 if ordered is False else 0)
    columns = Y
    if degree == 2:
        columns, m = scatter_columns((Y.T - Y.mean(axis=1)) if n else Y.T), np.zeros(p)
    fast, errors = graph.copy(), columns - graph @ columns - m[:, None]
    before = graph[:, *positions]
    toll = chance + ((before + steps - theta) ** 2 - (before - theta) ** 2) / (2 * w)
    moved, sums = move_entries(columns, fast, errors, steps, toll, PRIOR, law, allowed)
    assert np.array_equal(moved, taken)
    # Sums of a few terms of order 1, each entry changed once: some 1e-16 a term.
    left = columns - slow @ columns - m[:, None]
    np.testing.assert_allclose(fast, slow, atol=1e-14)
    np.testing.assert_allclose(errors, left, atol=1e-13)
    size = np.abs(left).sum(axis=-1) if degree == 1 else (left**2).sum(axis=-1) / 2
    np.testing.assert_allclose(sums, size, atol=1e-12)


def test_the_spectral_radius_of_a_graph_is_correct() -> None:
    rng = np.random.default_rng(0)
    graphs = stable_graphs(500, 5, rng) * rng.uniform(0.8, 2.5, (500, 1, 1))
    expected = np.array([radius(graph) < 1 for graph in graphs])
    assert 0.2 < expected.mean() < 0.9
    assert np.array_equal(is_stable(graphs), expected)
    acyclic = np.triu(np.full((5, 5), 1e30), 1)
    huge = np.full((5, 5), 1e30)
    assert is_stable(np.array([acyclic, huge])).tolist() == [True, False]


@pytest.mark.parametrize("q", [1.2, 7.5])
@pytest.mark.parametrize(
    "x", [[0.3], [0.0, 1.0], [1.0, -2.0, 0.5], [2.0, 2.0, -1.0, 2.0, 0.1, 9.0]]
)
def test_locations_have_their_density_and_its_integral(x: list[float], q: float) -> None:
    rng = np.random.default_rng(6)
    many, c = 20_000, 0.8
    pieces = Locations(np.repeat(np.array(x)[None], many, axis=0), c)
    powers = np.full(many, q)
    drawn = pieces.draw(powers, rng.random((2, many)))

    def density(m: float) -> float:
        return float((c + np.abs(np.array(x) - m).sum()) ** -q)

    def below(m: float) -> float:
        ends = [-np.inf, *sorted(each for each in set(x) if each < m), m]
        return sum(quad(density, *two, epsabs=1e-12)[0] for two in pairwise(ends))

    total = below(np.inf)
    # quad is right to some 1e-9 of these integrals
    assert pieces.log_integral(powers)[0] == pytest.approx(np.log(total), abs=1e-7)
    for m in (-3.0, -0.5, 0.3, 0.7, 1.5, 8.0):
        share = below(m) / total
        error = np.sqrt(share * (1 - share) / many)
        assert abs(np.mean(drawn < m) - share) < 4.5 * error  # 48 of them: once in 3000 runs


def test_locations_are_finite_at_the_ends_of_the_uniforms() -> None:
    x, q = np.array([[1.0, 2.0, 3.0]] * 4), np.full(4, 1.01)
    last = np.nextafter(1.0, 0.0)
    ends = np.array([[0.0, 0.0, last, last], [0.0, last, 0.0, last]])
    assert np.all(np.isfinite(Locations(x, 1e-3).draw(q, ends)))


def law(graph: Array, b: Array, m: Array, Y: Array, mean: Array, square: Array) -> float:
    """Return the log density of theta, b and m given the records."""
    prior = -np.sum(np.log(1 + (graph - mean) ** 2 / square))
    prior -= np.sum((PRIOR.shape + 1) * np.log(b) + PRIOR.scale / b)
    return log_likelihood(graph, Y, m, b) + float(prior)


def turned_by_hand(point: Array, p: int, two: list[int], angle: float) -> Array:
    """Return (theta, b, m) of two rows after a rotation, as one flat vector."""
    rows = point.reshape(2, p + 1)  # effects with b in place of the diagonal, then m
    A, b = np.zeros((2, p)), np.zeros(2)
    for i, j in enumerate(two):
        A[i], b[i] = -rows[i, :p], rows[i, j]
        A[i, j] = 1.0
    W = np.hstack([A, rows[:, p:]]) / b[:, None]
    c, s = np.cos(angle), np.sin(angle)
    turned = np.array([[c, -s], [s, c]]) @ W
    made = np.zeros_like(rows)
    for i, j in enumerate(two):
        made[i] = turned[i] / turned[i, j]
        made[i, :p] *= -1
        made[i, j] = 1 / abs(turned[i, j])
    return made.ravel()


@pytest.mark.parametrize("n", [1, 5])
def test_reversals_are_accepted_by_the_ratio_of_densities_and_volumes(n: int) -> None:
    rng = np.random.default_rng(7 + n)
    p, reached = 3, 0
    for two in list(permutations(range(p), 2)) * 8:
        graph = stable_graphs(1, p, rng)[0]
        b, m, Y = rng.gamma(3.0, size=p), rng.normal(size=p), rng.laplace(size=(p, n))
        mean = rng.normal(size=(p, p)) * ~np.eye(p, dtype=bool)
        square = rng.gamma(1.0, size=(p, p))
        angle = rng.uniform(-np.pi / 2, np.pi / 2)
        pair = list(two)
        point = np.hstack([graph[pair], m[pair, None]])
        point[[0, 1], pair] = b[pair]
        point = point.ravel()
        size = 1e-6 * np.maximum(np.abs(point), 0.1)
        columns = [
            (turned_by_hand(point + d, p, pair, angle) - turned_by_hand(point - d, p, pair, angle))
            / (2 * d.sum())
            for d in np.diag(size)
        ]
        made = turned_by_hand(point, p, pair, angle).reshape(2, p + 1)
        new_graph, new_b, new_m = graph.copy(), b.copy(), m.copy()
        new_graph[pair], new_m[pair], new_b[pair] = made[:, :p], made[:, p], made[[0, 1], pair]
        new_graph[pair, pair] = 0.0
        gain = law(new_graph, new_b, new_m, Y, mean, square)
        gain -= law(graph, b, m, Y, mean, square)
        gain += np.linalg.slogdet(np.array(columns))[1]
        reached += gain > -np.inf
        # Central differences with steps of 1e-6 are right to some 1e-8 of the volume's logarithm.
        for slack, expected in ((-1e-5, gain > -np.inf), (1e-5, False)):
            threshold = gain + slack if gain > -np.inf else -1e300
            now, scale = graph[None].copy(), b[None].copy()
            errors = (Y - graph @ Y - m[:, None])[None]
            taken = rotate_rows(
                now, errors, scale, mean[None], square[None], PRIOR, ErrorLaw(1, n),
                np.array([pair]), np.array([[angle]]), np.array([[threshold]]),
            )  # fmt: skip
            assert taken[0, 0] == expected
            if expected:
                np.testing.assert_allclose(now[0], new_graph, atol=1e-9)
                np.testing.assert_allclose(scale[0], new_b, rtol=1e-9)
                np.testing.assert_allclose(errors[0], Y - now[0] @ Y - new_m[:, None], atol=1e-8)
            else:
                assert np.array_equal(now[0], graph) and np.array_equal(scale[0], b)
    assert 10 < reached < 48  # some rotations keep the radius below 1, some do not


def begun(chains: int, p: int) -> GraphDraw:
    entries = (chains, p * (p - 1))
    return GraphDraw(np.zeros(entries), np.ones((chains, p)), np.ones(entries), np.ones(entries))


def test_a_sweep_does_not_depend_on_the_initial_w() -> None:
    rng, law = np.random.default_rng(12), ErrorLaw(1, 9)
    Y, theta, t, reach = rng.laplace(size=(4, 9)), *(np.full((2, 12), x) for x in (0.1, 0.5, 0.2))
    noise = draw_graph_noise(2, 4, law, PRIOR, rng)
    first = begun(2, 4)
    other = replace(first, w=np.full_like(first.w, np.nan))
    pairs = rotation_pairs(4, 0, ordered=False)
    one, two = (
        sweep_graph(Y, x, reach, theta, t, PRIOR, law, noise, pairs)[0] for x in (first, other)
    )
    assert all(np.array_equal(getattr(one, f.name), getattr(two, f.name)) for f in fields(one))


def test_every_graph_of_a_long_run_has_radius_below_one() -> None:
    rng = np.random.default_rng(10)
    chains, p, law = 50, 4, ErrorLaw(1, 3)  # so few records that the bound is often near
    Y, draw = rng.laplace(size=(p, 3)), begun(50, 4)
    theta, t = rng.normal(size=(chains, 12)), np.full((chains, 12), 4.0)
    reach = np.full((chains, 12), 0.7)
    largest = 0.0
    for number in range(100):
        noise = draw_graph_noise(chains, p, law, PRIOR, rng)
        pairs = rotation_pairs(p, number, ordered=False)
        draw, _, _ = sweep_graph(Y, draw, reach, theta, t, PRIOR, law, noise, pairs)
        largest = max(largest, *(radius(graph) for graph in matrices(draw.theta, p)))
    assert 0.9 < largest < 1


def test_step_sizes_reach_the_target_acceptance_rate() -> None:
    rng = np.random.default_rng(11)
    # A random walk over N(0, 0.3^2), as the likelihood is when the prior is flat.
    x, reach, w = np.zeros(400), np.full(400, 50.0), np.full(400, 1e30)
    share = np.zeros(400)
    for sweep in range(1, 2001):
        steps = step_sizes(reach, w) * rng.normal(size=400)
        taken = -rng.exponential(size=400) < (x**2 - (x + steps) ** 2) / (2 * 0.09)
        x = np.where(taken, x + steps, x)
        if sweep <= 1000:
            reach = adapted(reach, taken, sweep)
        else:
            share += taken / 1000
    # Such a walk takes the share exactly where reach is the deviation. The last gains, 1000^-0.6,
    # leave log(reach) a deviation of about sqrt(0.016 / 2) = 0.09, the mean of 400 some 0.005.
    assert abs(float(np.mean(np.log(reach / 0.3)))) < 0.05
    assert abs(float(share.mean()) - ACCEPTANCE) < 0.01


@pytest.mark.statistical
@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_sweeps_have_the_posterior_of_two_columns_at_every_power(beta: float) -> None:
    """Against a grid of both effects, v integrated by a sum over quantiles of its prior.

    The posterior has two modes, one for each direction.
    """
    rng, chains, n = np.random.default_rng(4), 400, 8
    x = rng.laplace(size=n)
    Y = np.array([x, 0.8 * x + 0.5 * rng.laplace(size=n)])
    common, t = np.array([0.1, -0.2]), 0.3
    even = np.linspace(-9, 9, 1201)
    grid, width = np.sinh(even) / 4, np.cosh(even)  # up to 1000
    v = 1 / gamma_law(0.5).ppf((np.arange(2000) + 0.5) / 2000)  # IG(1/2, 1)
    scale = np.sqrt(2 * t / v)
    prior = [cauchy(mean, scale).pdf(grid[:, None]).mean(axis=1) for mean in common]
    q = np.full(len(grid), beta * (PRIOR.shape + n - 1) + 1)
    first = Locations(Y[0] - grid[:, None] * Y[1], PRIOR.scale).log_integral(q)
    second = Locations(Y[1] - grid[:, None] * Y[0], PRIOR.scale).log_integral(q)
    both = np.multiply.outer(grid, grid)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = first[:, None] + second + beta * (n - 1) * np.log(1 - both)
        density = np.where(np.abs(both) < 1, np.exp(log - np.nanmax(log)), 0.0)
    density *= np.multiply.outer(*(each * width for each in prior))
    density /= density.sum()
    law = ErrorLaw(1, n, np.full(chains, beta))
    shape = (chains, 2)
    draw = GraphDraw(np.zeros(shape), np.ones(shape), np.ones(shape), np.ones(shape))
    theta, spread, reach = np.tile(common, (chains, 1)), np.full(shape, t), np.full(shape, 0.4)
    seen = []
    for i in range(600):
        noise = draw_graph_noise(chains, 2, law, PRIOR, rng)
        pairs = rotation_pairs(2, i, ordered=False)
        draw, _, _ = sweep_graph(Y, draw, reach, theta, spread, PRIOR, law, noise, pairs)
        if i >= 100:
            seen.append(draw.theta)
    draws = np.array(seen)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    for found, exact in (
        (np.tanh(draws[..., 0]), np.tanh(a)),
        (np.tanh(draws[..., 1]), np.tanh(b)),
        (np.abs(draws[..., 0]) > np.abs(draws[..., 1]), np.abs(a) > np.abs(b)),
        (np.tanh(draws[..., 0] * draws[..., 1]), np.tanh(a * b)),
    ):
        means = found.mean(axis=0)  # of independent chains
        error = means.std(ddof=1) / np.sqrt(chains)
        # eight statistics; the grid has half of its diagonal in neither mode
        gap = means.mean() - (density * exact).sum()
        assert abs(gap) < 4.5 * error + 0.003, (beta, gap, error)
