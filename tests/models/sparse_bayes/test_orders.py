"""Orders of the columns of graphs without cycles: places of entries, and reversals."""

import numpy as np
import pytest
from numpy.typing import NDArray

from secagg.models.sparse_bayes.joint import orders as module
from secagg.models.sparse_bayes.joint.direction_means import first_means, learned, translated
from secagg.models.sparse_bayes.joint.orders import (
    Orders,
    covariances,
    first_orders,
    inner,
    is_order,
    neighbours,
    outer,
    propose_reversals,
)
from secagg.models.sparse_bayes.laplace_graph import entry_positions, matrices
from secagg.models.sparse_bayes.metropolis.alternatives import MAX_PAIRS

Array = NDArray[np.float64]

P, CHAINS = 5, 40


def drawn() -> tuple[Orders, Array]:
    """Return orders, and graphs that agree with them, all entries."""
    orders = Orders(first_orders(CHAINS, P, 3).astype(np.int64))
    values = np.random.default_rng(1).normal(size=(CHAINS, P * (P - 1) // 2))
    return orders, outer(values, orders.places, P)


def test_entries_by_position_are_those_of_columns_before() -> None:
    orders, entries = drawn()
    graphs = orders.graphs_by_position(entries)
    assert np.all(np.triu(graphs) == 0)
    by_hand = matrices(entries, P)
    for c, order in enumerate(orders.columns):
        np.testing.assert_array_equal(graphs[c], by_hand[c][np.ix_(order, order)])
    np.testing.assert_array_equal(graphs, matrices(inner(entries, orders.places), P))
    np.testing.assert_array_equal(orders.present(), entries != 0)


def test_a_reversal_changes_two_positions_and_one_arrow() -> None:
    orders, entries = drawn()
    pairs = np.array([[0, 1], [3, 4]])
    reversal = np.random.default_rng(2).random((CHAINS, 2)) < 0.5
    after = orders.after(pairs, reversal)
    values = inner(entries, orders.places)
    moved = outer(values, orders.places_after(pairs, reversal), P)
    np.testing.assert_array_equal(moved != 0, after.present() > 0)
    before, now = matrices(entries, P), matrices(moved, P)
    for c in range(CHAINS):
        expected = before[c].copy()
        for (i, k), flag in zip(pairs, reversal[c], strict=True):
            j, h = orders.columns[c, [i, k]]
            assert list(after.columns[c, [i, k]]) == ([h, j] if flag else [j, h])
            if flag:
                expected[j, h], expected[h, j] = expected[h, j], 0.0
        np.testing.assert_array_equal(now[c], expected)
    rows = entry_positions(P)[0]
    for c, flags in enumerate(orders.in_pairs(pairs, reversal)):
        changed = orders.columns[c, pairs[reversal[c]].ravel()]
        np.testing.assert_array_equal(flags, np.isin(rows, changed))


@pytest.mark.parametrize("p", [2, 3, 4, 11, 30])
def test_neighbours_share_no_column_and_all_have_their_turn(p: int) -> None:
    found = [neighbours(p, number) for number in range(60)]
    assert len({len(pairs) for pairs in found}) == 1 and 1 <= len(found[0]) <= MAX_PAIRS
    for pairs in found:
        assert np.all(np.diff(pairs) == 1) and len(np.unique(pairs)) == pairs.size
    assert {int(i) for pairs in found for i in pairs[:, 0]} == set(range(p - 1))


def test_an_order_has_each_column_once() -> None:
    assert is_order(np.array([[2.0, 0.0, 1.0]])) and is_order(first_orders(3, 6, 0))
    for wrong in ([0.0, 0.0, 1.0], [1.0, 2.0, 3.0], [0.0, 0.5, 2.0]):
        assert not is_order(np.array([[0.0, 1.0, 2.0], wrong]))


def reversed_by_hand(rows: Array, i: int, log_r: float, rotated: NDArray[np.bool_]) -> Array:
    """Return both rows after (1) of `orders` by a rotation of scaled rows, and log r'."""
    b = np.array([np.exp(log_r), 1.0])
    A = np.zeros((2, len(rows[0])))
    A[0, i], A[1, i + 1] = 1.0, 1.0
    W = (A - rows) / b[:, None]
    angle = np.arctan2(-W[1, i], W[0, i])
    c, s = np.cos(angle), np.sin(angle)
    turned = np.array([[c, -s], [s, c]]) @ W
    new_b = 1 / np.array([turned[0, i], turned[1, i + 1]])
    new = A - turned * new_b[:, None]
    new[:, :i] = np.where(rotated[:i], new[:, :i], rows[:, :i])
    return np.concatenate([new.ravel(), np.log(new_b[:1] / new_b[1:])])


def test_a_reversal_keeps_normal_records_and_has_the_volume_of_its_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Positions 2 and 3 of four columns. The volume is that of central differences."""
    i, p = 2, 4
    for seed in range(30):
        rng = np.random.default_rng(seed)
        graphs = np.tril(rng.normal(size=(1, p, p)) * 0.5, -1)
        rows = graphs[0, i:]
        covariance = covariances(graphs)
        new, weight = module._reversed(rows[None], i, covariance, np.random.default_rng(seed))
        again = np.random.default_rng(seed)
        centre = module._log_ratio(
            rows[None, 0, :i], rows[None, 1, :i], rows[None, 1, i], covariance[:, :i, :i]
        )[0]
        z = again.standard_normal(1)[0] * module._SPREAD
        rotated = again.random((1, p))[0] < again.choice(module._SHARES, (1, 1))[0]
        made = reversed_by_hand(rows, i, centre + z, rotated)
        expected = made[:-1].reshape(2, p)
        # x is in the place of y
        assert new[0, 1, i] == pytest.approx(expected[0, i + 1])
        assert expected[1, i] == pytest.approx(0.0, abs=1e-12)
        np.testing.assert_allclose(new[0, :, :i], expected[:, :i], atol=1e-12)

        free = [(a, h) for a in range(2) for h in range(i) if rotated[h]]

        def moved(point: Array, rows: Array = rows, free: list[tuple[int, int]] = free,
                  rotated: NDArray[np.bool_] = rotated) -> Array:  # fmt: skip
            now = rows.copy()
            for (a, h), value in zip(free, point[:-2], strict=True):
                now[a, h] = value
            now[1, i] = point[-2]
            found = reversed_by_hand(now, i, point[-1], rotated)
            graph = found[:-1].reshape(2, p)
            return np.array([*(graph[a, h] for a, h in free), graph[0, i + 1], found[-1]])

        point = np.array([*(rows[a, h] for a, h in free), rows[1, i], centre + z])
        slopes = [
            (moved(point + 1e-6 * d) - moved(point - 1e-6 * d)) / 2e-6 for d in np.eye(len(point))
        ]
        volume = np.linalg.slogdet(np.array(slopes))[1]
        back = module._log_ratio(new[:, 1, :i], new[:, 0, :i], new[:, 1, i], covariance[:, :i, :i])[
            0
        ]
        density = (z**2 - (made[-1] + back) ** 2) / (2 * module._SPREAD**2)
        # central differences with steps of 1e-6 are right to some 1e-8
        assert weight[0] == pytest.approx(volume + density, abs=1e-5)


def test_a_reversal_undoes_itself_and_keeps_the_covariance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With all columns rotated and the ratio of scales exact."""
    monkeypatch.setattr(module, "_SHARES", np.ones(1))
    monkeypatch.setattr(module, "_SPREAD", 1e-9)
    # effects so small that no error's variance is below the least one
    graphs = np.tril(np.random.default_rng(4).uniform(-0.4, 0.4, (CHAINS, P, P)), -1)
    pairs, turn = np.array([[1, 2]]), np.ones((CHAINS, 1), dtype=bool)
    orders = Orders(np.tile(np.arange(P), (CHAINS, 1)))

    def after(now: Array, orders: Orders) -> tuple[Array, Orders]:
        made = propose_reversals(now, pairs, np.random.default_rng(0))
        entries = outer(made.theta, orders.places_after(pairs, made.reversal), P)
        turned = orders.after(pairs, turn)
        return turned.graphs_by_position(entries), turned

    there, turned = after(graphs, orders)
    back, first = after(there, turned)
    np.testing.assert_array_equal(first.columns, orders.columns)
    np.testing.assert_allclose(back, graphs, atol=1e-7)
    at = turned.columns[0]
    np.testing.assert_allclose(covariances(there), covariances(graphs)[:, at][:, :, at], atol=1e-7)
    assert np.abs(there - graphs).max() > 0.1


def test_jumps_between_directions_go_by_the_difference_of_means_and_back() -> None:
    """Two chains with the orders a, b, c and a, c, b; the arrow between b and c is in the slab."""
    orders, pairs = Orders(np.array([[0, 1, 2], [0, 2, 1]])), np.array([[1, 2]])
    graphs = np.zeros((2, 3, 3))
    graphs[0, 1, 0], graphs[0, 2, 0], graphs[0, 2, 1] = 0.1, 0.2, 0.7
    graphs[1, 1, 0], graphs[1, 2, 0], graphs[1, 1, 2] = -0.3, 0.5, 0.9
    theta, means = graphs[:, *entry_positions(3)], first_means(3)
    for _ in range(30):
        means = learned(means, orders, theta, (theta != 0) * 1.0)
    first = orders.graphs_by_position(theta)
    made = translated(first, orders, pairs, means)
    turned = orders.after(pairs, np.ones((2, 1), dtype=bool))
    entries = outer(inner_of(made), orders.places_after(pairs, np.ones((2, 1), dtype=bool)), 3)
    # each chain is at the other one's graph: the only graph with that direction
    np.testing.assert_allclose(matrices(entries, 3), graphs[::-1], atol=1e-12)
    back = translated(turned.graphs_by_position(entries), turned, pairs, means)
    again = outer(inner_of(back), turned.places_after(pairs, np.ones((2, 1), dtype=bool)), 3)
    np.testing.assert_allclose(again, theta, atol=1e-12)
    # means of few draws are not used
    few = {"sum": means["sum"] / 100, "weight": means["weight"] / 100}
    np.testing.assert_array_equal(translated(first, orders, pairs, few), first)


def inner_of(graphs: Array) -> Array:
    rows, sources = entry_positions(graphs.shape[1], ordered=True)
    return graphs[:, rows, sources]
