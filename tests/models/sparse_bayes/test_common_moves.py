"""Moves of the common graph with all sites' graphs, and exchanges between tempered copies."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad

from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.joint import common_moves
from secagg.models.sparse_bayes.joint.common_moves import (
    Alternative,
    choose,
    exchange_places,
    in_pairs,
    log_prior,
    propose,
)
from secagg.models.sparse_bayes.joint.tempering import (
    exchanged,
    first_heats,
    of_rank,
    partners,
    ranks,
)
from secagg.models.sparse_bayes.laplace_graph import entry_positions, matrices
from secagg.models.sparse_bayes.metropolis.alternatives import (
    MAX_PAIRS,
    largest_score,
    pairs_of,
    score_alternatives,
    subsets,
)
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

PRIOR = NoisePrior(shape=1.5, scale=0.7)
P = 4
TWO = np.array([1, 3])


def common(chains: int, entries: int, rng: np.random.Generator) -> Common:
    theta, t, x = (rng.normal(size=(chains, entries)) * 0.4 for _ in range(3))
    eta = np.repeat(rng.gamma(2.0, size=(chains, 1)), entries, axis=1)
    g = np.round(rng.random((chains, entries)))
    return Common(theta, t**2, x**2, eta, g, rng.random(chains), g)


ALL, SOME = np.ones(P, dtype=bool), np.array([True, True, False, True])


@pytest.mark.parametrize("both", [ALL, SOME], ids=["all", "some"])
@pytest.mark.parametrize("reversal", [True, False])
def test_a_rotation_has_the_volume_of_its_weight(reversal: bool, both: Flags) -> None:
    """The derivative of (theta_jc, log r - centre) by central differences, the angle held fixed.

    A column that may not act on both rows is not rotated.
    """
    flags, spread = np.array([reversal]), common_moves._SPREAD
    rng = np.random.default_rng(3)
    for seed in range(40):
        rows = rng.normal(size=(1, 2, P)) * 0.5
        rows[0, [0, 1], TWO] = 0.0
        new, weight = common_moves._rotated(rows, TWO, flags, both, np.random.default_rng(seed))
        assert np.array_equal(new[..., ~both], rows[..., ~both])
        places = [(i, c) for i in range(2) for c in range(P) if new[0, i, c] != rows[0, i, c]]

        def moved(
            point: Array, seed: int = seed, places: Any = places, rows: Array = rows
        ) -> Array:
            """Return entries and the standardised log r; the last is that of the pair's r."""
            now = rows.copy()
            for (i, c), value in zip(places, point[:-1], strict=True):
                now[0, i, c] = value
            made, log_r = rotate_by_hand(now[0], point[-1], seed, reversal, both)
            return np.array([*(made[i, c] for i, c in places), log_r])

        start = np.random.default_rng(seed).standard_normal(1)[0] * spread
        point = np.array([*(rows[0, i, c] for i, c in places), start])
        end = moved(point)
        np.testing.assert_allclose([new[0, i, c] for i, c in places], end[:-1], rtol=1e-9)
        size = 1e-6
        columns = [
            (moved(point + size * d) - moved(point - size * d)) / (2 * size)
            for d in np.eye(len(point))
        ]
        volume = np.linalg.slogdet(np.array(columns))[1]
        expected = volume + (start**2 - end[-1] ** 2) / (2 * spread**2)
        # central differences with steps of 1e-6 are right to some 1e-8
        assert weight[0] == pytest.approx(expected, abs=1e-5)


def rotate_by_hand(
    rows: Array, log_r: float, seed: int, reversal: bool, both: Flags
) -> tuple[Array, float]:
    """Return two rows after (1) of `common_moves`, and the new log r less its centre.

    log_r: less its centre; the angle and the columns are those that the seed draws
    """
    rng = np.random.default_rng(seed)
    rng.standard_normal(1)
    size = rng.choice(common_moves._ANGLES, 1)
    flat, normal = rng.uniform(-np.pi / 2, np.pi / 2, 1)[0], rng.standard_normal(1)[0]
    angle = flat if np.isinf(size[0]) else size[0] * normal
    share = rng.choice([0.0, 0.5, 1.0, 1.0], 1)
    rotated = (rng.random((1, P))[0] < share) & both
    rotated[TWO] = True

    def centre(now: Array) -> float:
        x, y = now[0, TWO[1]], now[1, TWO[0]]
        least = common_moves._LEAST
        return float(np.log(max(1 - x**2, least) / max(1 - y**2, least)) / 2)

    b = np.array([np.exp(log_r + centre(rows)), 1.0])
    W = (np.eye(P)[TWO] - rows) / b[:, None]
    if reversal:
        angle = np.arctan(rows[1, TWO[0]] * b[0]) - np.arctan(rows[0, TWO[1]] / b[0])
    c, s = np.cos(angle), np.sin(angle)
    W = np.array([[c, -s], [s, c]]) @ W
    diagonal = W[[0, 1], TWO]
    made = np.where(rotated, np.eye(P)[TWO] - W / diagonal[:, None], rows)
    new_b = 1 / np.abs(diagonal)
    return made, float(np.log(new_b[0] / new_b[1]) - centre(made))


def test_a_reversal_exchanges_scaled_effects_and_keeps_the_law_of_normal_records() -> None:
    b = np.array([0.6, 1.0, 0.8, 1.2])
    graph = np.zeros((P, P))
    graph[1, 3], graph[1, 0], graph[3, 2] = 0.8, 0.4, -0.5
    j, h = TWO
    r = b[j] / b[h]
    A = np.eye(P) - graph
    angle = np.arctan(graph[h, j] * r) - np.arctan(graph[j, h] / r)
    W = A / b[:, None]
    W[TWO] = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ W[TWO]
    new_b = 1 / np.diagonal(W)
    new = np.eye(P) - W * new_b[:, None]
    assert new[j, h] * new_b[h] / new_b[j] == pytest.approx(graph[h, j] * r, abs=1e-12)
    assert new[h, j] * new_b[j] / new_b[h] == pytest.approx(graph[j, h] / r)
    np.testing.assert_allclose(W.T @ W, (A / b[:, None]).T @ (A / b[:, None]), atol=1e-12)


def test_a_reversal_undoes_itself_and_takes_differences_along() -> None:
    many, yes = 200, np.ones(200, dtype=bool)
    rows = np.zeros((many, 2, P))  # no other columns: r is at its centre before and after
    rows[:, 0, TWO[1]] = np.random.default_rng(5).uniform(-0.9, 0.9, many)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common_moves, "_SPREAD", 1e-9)
        there, _ = common_moves._rotated(rows, TWO, yes, ALL, np.random.default_rng(1))
        back, _ = common_moves._rotated(there, TWO, yes, ALL, np.random.default_rng(1))
    np.testing.assert_allclose(there[:, 1, TWO[0]], rows[:, 0, TWO[1]], atol=1e-6)
    np.testing.assert_allclose(there[:, 0, TWO[1]], 0.0, atol=1e-6)
    np.testing.assert_allclose(back, rows, atol=1e-6)
    places = exchange_places(TWO[None], np.array([[True], [False]]), P, ordered=False)
    ends = list(zip(*entry_positions(P), strict=True))
    first, second = ends.index((1, 3)), ends.index((3, 1))
    assert places[0, first] == second and places[0, second] == first
    assert np.array_equal(
        np.delete(places[0], [first, second]), np.delete(places[1], [first, second])
    )
    assert np.array_equal(places[1], np.arange(12))


def score_by_integrals(graph: Array, Y: Array, beta: float, degree: int) -> float:
    """Return (1) of `alternatives`; without records the scales' prior is all there is."""
    A, n = np.eye(len(graph)) - graph, Y.shape[1]
    found = beta * max(n - 1, 0) * float(np.linalg.slogdet(A)[1])
    for e in A @ Y:
        if degree == 1 and n:
            power = beta * (PRIOR.shape + n - 1) + 1

            def density(m: float, e: Array = e, power: float = power) -> float:
                return float((PRIOR.scale + np.abs(e - m).sum()) ** -power)

            ends = [-np.inf, *np.sort(e), np.inf]
            parts = pairwise(ends)
            found += np.log(sum(quad(density, *two, epsabs=1e-14)[0] for two in parts))
        else:
            half = (e * e).sum() / 2 if degree == 2 else 0.0
            shape = PRIOR.shape + max(n - 1, 0) / degree
            found -= beta * shape * np.log(PRIOR.scale + half)
    return found


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 6])
def test_scores_of_alternatives_equal_integrals(n: int, degree: int) -> None:
    rng = np.random.default_rng(n)
    pairs, chains, least = np.array([[0, 2], [1, 3]]), 3, -1e6
    graph, other = (
        rng.normal(size=(chains, P, P)) * 0.3 * ~np.eye(P, dtype=bool) for _ in range(2)
    )
    other[2, 0, 2] = other[2, 2, 0] = 1.2  # not stable
    Y, heats = rng.laplace(size=(P, n)), np.array([[1.0, 0.4], [0.7, 0.2], [1.0, 0.1]])
    found = score_alternatives(
        Y, graph, other, pairs, heats, PRIOR, ErrorLaw(degree, n, heats[:, 0]), least
    )
    sets = subsets(2)
    assert sorted(map(tuple, sets.tolist())) == sorted(product([False, True], repeat=2))
    for c, i, a in product(range(chains), range(2), range(4)):
        made = graph[c].copy()
        for two in pairs[sets[a]]:
            made[two] = other[c, two]
        if c == 2 and sets[a, 0]:
            assert found[c, i, a] == least
        else:
            assert np.abs(np.linalg.eigvals(made)).max() < 1
            expected = score_by_integrals(made, Y, heats[c, i], degree)
            # quad's error is near 1e-8 of an integral
            assert found[c, i, a] == pytest.approx(expected, abs=1e-6)
            assert abs(found[c, i, a]) < largest_score(P, n, PRIOR)


def test_alternatives_are_chosen_by_posterior_times_weight() -> None:
    rng = np.random.default_rng(8)
    many, pairs = 40_000, np.array([[0, 2], [1, 3]])
    one, prior = common(1, 12, rng), SpikeSlab()
    now = Common(**{name: np.repeat(values, many, axis=0) for name, values in vars(one).items()})
    theta = now.theta + 0.2
    reversal = np.tile([True, False], (many, 1))
    other = Alternative(theta, reversal, np.tile([0.3, -0.4], (many, 1)))
    scores = np.tile([0.0, 1.0, -0.5, 0.7], (many, 1))
    sums = {"one": np.tile(np.arange(12.0), (many, 1))}
    drawn, moved, taken = choose(now, sums, other, scores, pairs, prior, rng, p=P)
    rows = entry_positions(P)[0]
    gain = (log_prior(theta, now, prior) - log_prior(now.theta, now, prior))[0]
    of_pair = [gain[np.isin(rows, two)].sum() for two in pairs]
    weights = [
        scores[0, a] + sum((of_pair[i] + other.weight[0, i]) * sets[i] for i in range(2))
        for a, sets in enumerate(subsets(2))
    ]
    expected = np.exp(weights) / np.exp(weights).sum()
    shares = np.array([np.all(taken == each, axis=1).mean() for each in subsets(2)])
    # four shares of 40 000 draws
    assert np.all(np.abs(shares - expected) < 4.5 * np.sqrt(expected * (1 - expected) / many))
    changed = in_pairs(pairs, taken, P, ordered=False)
    assert np.array_equal(drawn.theta, np.where(changed, theta, now.theta))
    assert np.array_equal(taken[:, 0], (moved["one"] != sums["one"]).any(axis=1))
    assert np.array_equal(np.sort(moved["one"], axis=1), sums["one"])


def test_an_ordered_graph_stays_ordered_and_pairs_share_no_column() -> None:
    rng = np.random.default_rng(2)
    graphs = np.tril(rng.normal(size=(50, 13, 13)), -1)
    pairs = pairs_of(13, 4)
    assert len(pairs) == MAX_PAIRS and len(np.unique(pairs)) == 2 * MAX_PAIRS
    made = propose(graphs, pairs, 100, rng, ordered=True)
    assert made.theta.shape == (50, 78) and not made.reversal.any()
    assert not np.array_equal(matrices(made.theta, 13), graphs)
    assert len({tuple(pairs_of(13, number).ravel()) for number in range(20)}) == 20


def test_neighbouring_copies_exchange_by_the_ratio_of_their_densities() -> None:
    rng = np.random.default_rng(4)
    chains, many = 1, 6000
    heats = np.array([0.5, 1.0, 0.2])
    assert ranks(heats, chains).tolist() == [[1, 0, 2]]
    assert of_rank(heats, chains).tolist() == [[1, 0, 2]]
    mates = partners(heats, chains, 0)
    assert mates.tolist() == [1, 0, 2]
    assert partners(heats, chains, 1).tolist() == [2, 1, 0]
    likelihood = np.array([1.3, -0.4, 2.0])
    for sign in (1, -1):
        own, others = sign * heats * likelihood, sign * heats[mates] * likelihood
        swaps = [
            exchanged(heats, chains, 0, own, others, rng, warmup=False)[0] == 1.0
            for _ in range(many)
        ]
        rate = min(1.0, float(np.exp(sign * (1.0 - 0.5) * (1.3 + 0.4))))
        assert abs(np.mean(swaps) - rate) <= 4.5 * np.sqrt(rate * (1 - rate) / many)


def test_powers_are_adapted_in_warmup_until_neighbours_exchange_equally_often() -> None:
    """Copies of a normal density: the rate of an exchange depends on the ratio of powers only."""
    rng, chains, copies = np.random.default_rng(6), 50, 4
    heats, rates = first_heats(chains, copies), []
    for number in range(3000):
        warmup = number < 2000
        energy = -rng.chisquare(8, chains * copies) / (2 * heats)
        mates = partners(heats, chains, number)
        new = exchanged(heats, chains, number, heats * energy, heats[mates] * energy, rng,
                        warmup=warmup)  # fmt: skip
        ladder = heats[of_rank(heats, chains)]
        assert np.all(ladder == ladder[0]) and np.all(np.diff(ladder[0]) < 0) and ladder[0, 0] == 1
        if not warmup:
            rates.append([(new != heats)[of_rank(heats, chains)[:, i]].mean() for i in (0, 3)])
            assert np.array_equal(np.sort(new), np.sort(heats))
        heats = new
    # each end has a partner in every other round
    assert np.mean(rates, axis=0) * 2 == pytest.approx([0.3, 0.3], abs=0.03)
