"""Clipped gradients of the networks: their values, and what one record can move, in integers."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from secagg.models.common.clipped_sums import exact_bits
from secagg.models.graphs.mlp import Networks
from secagg.models.notears_admm.mlp_gradients import MAX_INPUT, MAX_PARAMETER, clipped_gradient_sum

BITS = 32
LOOSE = 1e4  # a clip that shortens no gradient of records and networks of ordinary size


def loss(networks: Networks, theta: np.ndarray, x: np.ndarray) -> complex:
    """1/2 |x - f(x)|^2 of one record by the formulas of Zheng et al., entry by entry."""
    d, m = networks.d, networks.m
    entries = iter(theta)
    A = {
        (i, j, h): next(entries)
        for i, j in itertools.product(range(d), repeat=2)
        if i != j or not networks.zero_diagonal
        for h in range(m)
    }
    b, C = ([[next(entries) for _ in range(m)] for _ in range(d)] for _ in range(2))
    c = [next(entries) for _ in range(d)]
    value: complex = 0
    for j in range(d):
        f = c[j]
        for h in range(m):
            z = b[j][h] + sum(A.get((i, j, h), 0) * x[i] for i in range(d))
            f += C[j][h] / (1 + np.exp(-z))
        value += (f - x[j]) ** 2 / 2
    return value


def complex_step(networks: Networks, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The gradient without cancellation: Im loss(theta + i e) / e (Squire and Trapp 1998)."""
    steps = theta + 1e-30j * np.eye(len(theta))
    return np.array([loss(networks, step, x).imag for step in steps]) / 1e-30


def integers(networks, X, theta, clip, bits) -> list[int]:
    """The sum in whole steps."""
    summed = clipped_gradient_sum(networks, X, theta, clip, bits) * 2.0**bits
    assert np.array_equal(summed, np.rint(summed))
    return [int(v) for v in summed]


@pytest.mark.parametrize("zero_diagonal", [True, False])
@pytest.mark.parametrize(("d", "m"), [(2, 1), (3, 4)])
def test_each_gradient_is_that_of_the_loss_scaled_to_the_clip(d, m, zero_diagonal):
    networks, rng = Networks(d, m, 0.0, zero_diagonal), np.random.default_rng(2)
    for size in (0.0, 1.0, 3.0):
        theta, x = size * rng.normal(size=networks.size), rng.normal(size=d)
        exact = complex_step(networks, theta, x)
        norm = float(np.linalg.norm(exact))
        for clip in (LOOSE, norm * 1.001, norm * 0.999, norm / 7):
            bits = exact_bits(1, clip)
            found = clipped_gradient_sum(networks, x[None], theta, clip, bits)
            # Truncated to a step; the clip leaves 2^-30; some dozens of roundings of 2^-53.
            expected = exact * min(1.0, clip / norm)
            np.testing.assert_allclose(found, expected, rtol=2.0**-29, atol=2.0**-bits)
            if clip > norm:
                np.testing.assert_allclose(found, exact, rtol=1e-13, atol=2.0**-bits)


def records(d: int, rng: np.random.Generator) -> np.ndarray:
    """Corners, axes, zeros and random records, in units up to the largest."""
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=d)))
    some = np.vstack([corners, np.eye(d), np.zeros((1, d)), rng.uniform(-1, 1, (4, d))])
    return np.vstack([some, 30 * some, MAX_INPUT * corners[:3], 1e-300 * some[-4:]])


def parameters(networks: Networks, rng: np.random.Generator) -> list[np.ndarray]:
    """Networks that a coordinator could choose: saturated, huge, tiny, of one entry."""
    found = [np.zeros(networks.size), *(rng.normal(size=(2, networks.size)) * 3)]
    found += [MAX_PARAMETER * rng.choice([-1.0, 0.0, 1.0], networks.size) for _ in range(3)]
    found += [1e-200 * rng.normal(size=networks.size)]
    for part in range(4):
        one = np.zeros(networks.size)
        block = networks.split(one)[part].ravel()
        block[:] = MAX_PARAMETER * rng.choice([-1.0, 1.0], block.size)
        found.append(one)
    return found


def squared(values) -> int:
    return sum(v * v for v in values)


@pytest.mark.parametrize("clip", [2.0, 1 / 3, 1e-6, 50.0])
@pytest.mark.parametrize("zero_diagonal", [True, False])
def test_no_record_moves_the_sum_by_more_than_the_clip(clip, zero_diagonal):
    """In exact integers, whatever the networks; and a record adds what it adds alone."""
    networks, rng = Networks(2, 3, 0.0, zero_diagonal), np.random.default_rng(4)
    bits = exact_bits(1000, clip)
    bound = (Fraction(clip) * 2**bits) ** 2
    X = records(2, rng)
    added, replaced = Fraction(0), 0
    for theta in parameters(networks, rng):
        alone = [integers(networks, x[None], theta, clip, bits) for x in X]
        together = integers(networks, X, theta, clip, bits)
        assert [sum(each) for each in zip(*alone, strict=True)] == together
        added = max(added, *map(squared, alone))
        replaced = max(
            replaced,
            *(squared(map(int.__sub__, a, b)) for a, b in itertools.combinations(alone, 2)),
        )
    assert added <= bound
    assert replaced <= 4 * bound
    assert added > 0.99 * bound and replaced > 0.99 * 4 * bound  # the bounds are not loose


def test_the_worst_table_that_a_search_finds_moves_the_sum_by_at_most_the_clip():
    """Hill climbing over networks and records, in exact integers."""
    networks, rng, clip, bits = Networks(3, 2), np.random.default_rng(5), 1.5, 8
    bound = (Fraction(clip) * 2**bits) ** 2
    found = 0.0
    for _ in range(6):
        theta, x = rng.normal(size=networks.size), rng.normal(size=3)
        best = -1
        for _ in range(80):
            other = theta * np.exp(rng.normal(size=theta.shape) / 3), x * np.exp(rng.normal() / 3)
            moved = squared(integers(networks, other[1][None], other[0], clip, bits))
            assert moved <= bound
            if moved > best:
                best, (theta, x) = moved, other
        found = max(found, best / float(bound))
    assert found > 0.98  # 20 entries, each cut by up to a step of 384


@pytest.mark.parametrize("d", [2, 5])
def test_a_record_has_the_same_term_at_each_position(d):
    """A matrix product would not promise that. Bits coarser than rounding would hide a change."""
    networks, rng = Networks(d, 4), np.random.default_rng(6)
    theta, X = rng.normal(size=networks.size), rng.normal(size=(67, d))
    bits = 52  # of sums far below 2^53 steps: single additions stay exact
    alone = np.array([clipped_gradient_sum(networks, x[None], theta, 0.9, bits) for x in X])
    for order in (np.arange(67), rng.permutation(67), rng.permutation(67)[:31]):
        for start, end in ((0, 1), (0, 2), (1, 4), (3, 20), (0, 67)):
            chosen = order[start:end]
            sums = [sum(Fraction(v) for v in column) for column in alone[chosen].T]
            exact = [abs(s) * 2**bits < 2**53 for s in sums]
            found = clipped_gradient_sum(networks, X[chosen], theta, 0.9, bits)
            for s, v, small in zip(sums, found, exact, strict=True):
                assert not small or float(s) == v


def test_blocks_of_records_do_not_change_the_sum(monkeypatch):
    networks, rng = Networks(3, 4), np.random.default_rng(7)
    theta, X = rng.normal(size=networks.size), rng.normal(size=(50, 3))
    whole = clipped_gradient_sum(networks, X, theta, 1.0, BITS)
    monkeypatch.setattr("secagg.models.notears_admm.mlp_gradients._BLOCK", 7 * 12)
    assert clipped_gradient_sum(networks, X, theta, 1.0, BITS).tobytes() == whole.tobytes()


def test_a_site_with_the_largest_number_of_records_is_summed_exactly():
    networks, clip = Networks(2, 1), 2.0
    theta = np.zeros(networks.size)
    theta[-1] = 1e6  # one entry has nearly the whole norm
    bits = exact_bits(2**18, clip)
    x = np.array([[0.3, -0.7]])
    one = integers(networks, x, theta, clip, bits)
    many = integers(networks, np.repeat(x, 2**18, axis=0), theta, clip, bits)
    assert many == [2**18 * v for v in one]
    assert max(map(abs, one)) > 0.7 * clip * 2**bits


def test_gradients_without_length_and_saturated_units_are_finite():
    networks = Networks(2, 2)
    zero = np.zeros(networks.size)
    assert not clipped_gradient_sum(networks, np.zeros((3, 2)), zero, 1.0, BITS).any()
    assert not clipped_gradient_sum(networks, np.zeros((0, 2)), zero, 1.0, BITS).any()
    tiny = clipped_gradient_sum(networks, np.full((1, 2), 1e-12), zero, 1.0, BITS)
    assert not tiny.any()
    theta = np.zeros(networks.size)
    A, b, C, _ = networks.split(theta)
    A[:], b[:], C[:] = 1e6, -1e6, 1.0
    for x in (np.array([[5.0, 5.0]]), np.array([[-5.0, -5.0]])):  # all units at 1, or at 0
        dA, db, dC, dc = networks.split(clipped_gradient_sum(networks, x, theta, LOOSE, 20))
        assert not dA.any() and not db.any()
        level = 1.0 if x[0, 0] > 0 else 0.0
        np.testing.assert_array_equal(dc, 2 * level - x[0])
        np.testing.assert_array_equal(dC, np.repeat(dc[:, None] * level, 2, axis=1))
    assert math.isfinite(float(np.sum(clipped_gradient_sum(networks, -x, theta, 1e-6, BITS))))
