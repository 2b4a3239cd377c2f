"""Clipped gradients: what one record can move, exactly, in the integers that a site sends."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from support.methods.gradients import FAMILIES, GRID, contribution, method_of, public_of, stage_of

from secagg.models.common.clipped_sums import exact_bits
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.glm.clipped_gradients import residuals, site_sums
from secagg.models.glm.logistic import BINOMIAL


def extremal(p: int, square: float, seed: int) -> list[np.ndarray]:
    """Return records on the grid, of norm at most root(square) exactly: corners, axes, random."""
    rng = np.random.default_rng(seed)
    wanted = [np.zeros(p), *np.eye(p), *-np.eye(p)]
    wanted += [np.array(signs) for signs in itertools.product((-1.0, 1.0), repeat=p)]
    wanted += [rng.normal(size=p) for _ in range(8)]
    wanted += [rng.uniform(-1, 1, p) for _ in range(12)]
    kept = []
    for direction in wanted:
        reach = np.linalg.norm(direction) / math.sqrt(square)
        u = direction / max(1.0, np.abs(direction).max(), reach)
        steps = np.trunc(u * (1 - 2**-40) * 2.0**GRID) if np.any(u) else u
        if np.sum(u**2) <= square and np.array_equal(u * 2.0**GRID, np.rint(u * 2.0**GRID)):
            steps = u * 2.0**GRID
        assert Fraction(int(np.sum(steps.astype(int) ** 2)), 4**GRID) <= Fraction(square)
        kept.append(steps * 2.0**-GRID)
    return kept


def betas(p: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    large = [s * 99.0 * np.eye(p + 1)[j] for j in range(p + 1) for s in (-1, 1)]
    return [np.zeros(p + 1), *large, *(rng.normal(size=(3, p + 1)) * 2)]


def squared_move(one: list[int], other: list[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


@pytest.mark.oracle
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("square", "clip"), [(4.0, None), (1.7, None), (4.0, 0.3), (4.0, 1 / 3), (2.0, 50.0)]
)
def test_no_record_changes_a_contribution_by_more_than_the_sensitivity(family, square, clip):
    p = 3
    public, method = public_of(p, square), method_of(p, family, clip=clip)
    stage = stage_of(method, public)
    assert stage.sensitivity is not None
    steps = 2 ** stage.spec[0].fraction_bits
    assert {field.fraction_bits for field in stage.spec} == {stage.spec[0].fraction_bits}
    add, replace = (
        (Fraction(t) * steps) ** 2 for t in (stage.sensitivity.add, stage.sensitivity.replace)
    )
    others = np.array(extremal(p + 1, square, 8)[-9:])
    added, replaced = [], []
    for beta in betas(p, 4):
        alone = [contribution(method, public, u[None, :], beta) for u in extremal(p + 1, square, 9)]
        without = contribution(method, public, others, beta)
        for u, own in zip(extremal(p + 1, square, 9), alone, strict=True):
            there = contribution(method, public, np.vstack([others, u]), beta)
            # integers, so nothing is lost: a record adds what it would send by itself
            assert [a - b for a, b in zip(there, without, strict=True)] == own
            added.append(sum(v * v for v in own))
        replaced += [squared_move(a, b) for a, b in itertools.combinations(alone, 2)]
    assert max(added) <= add
    assert max(replaced) <= replace
    if clip is None or clip < 1:  # the bounds are not loose: extremal records come close to them
        assert max(replaced) > 0.7 * replace


def test_an_extreme_record_attains_the_sensitivity():
    """A record with the longest predictors and the wrong outcome: C and C/4, but for the slack."""
    p = 2
    public, method = public_of(p, 3.0), method_of(p, "binomial")
    stage = stage_of(method, public)
    assert stage.sensitivity is not None
    steps = 2.0 ** stage.spec[0].fraction_bits
    own = contribution(method, public, np.array([[1.0, 1.0, -1.0]]), np.array([99.0, 0, 0]))
    moved = math.sqrt(sum(v * v for v in own)) / steps
    # 2^-30 of slack, and truncation by less than a step in each of four numbers
    assert stage.sensitivity.add * (1 - 2**-29) - 2 / steps <= moved <= stage.sensitivity.add


@pytest.mark.parametrize("most", [1.0, math.sqrt(2), math.sqrt(3), 1 / 3, 0.1, 3.0])
def test_a_clipped_gradient_has_at_most_its_norm_in_the_integers(most):
    """At C = root 3, read as a float just below it, z = (1, 1, 1) would have the norm root 3."""
    bits = exact_bits(10**6, most)
    for x in (x for p in (1, 2, 3) for x in extremal(p, 3.0, 6)):
        gradient, _ = site_sums(x[None, :], np.array([1e3]), 4.0, most, bits)
        whole = [int(v) for v in gradient * 2.0**bits]
        assert np.array_equal(whole, gradient * 2.0**bits)
        assert sum(v * v for v in whole) <= (Fraction(most) * 2**bits) ** 2


def test_the_sensitivity_holds_for_unclipped_records():
    """Nothing rests on what was done to the records before."""
    public, method = public_of(3, 1.2), method_of(3)
    stage = stage_of(method, public)
    long = np.array([1.0, -1.0, 1.0, 1.0])
    own = contribution(method, public, long[None, :], np.array([900.0, 0.0, 0.0, 0.0]))
    assert stage.sensitivity is not None
    assert sum(v * v for v in own) <= (Fraction(stage.sensitivity.add) * 2**32) ** 2


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("columns", [1, 3, 8, 29])
def test_residuals_do_not_depend_on_the_position_of_a_record(family, columns):
    """A matrix product would not promise that: it blocks rows, and sums each block its own way."""
    rng = np.random.default_rng(12)
    x, y = rng.uniform(-1, 1, (70, columns)), rng.uniform(-1, 1, 70)
    beta = rng.normal(size=columns + 1)
    family = {each.name: each for each in (GAUSSIAN, BINOMIAL)}[family]
    together = residuals(x, y, beta, family)
    for size in (1, 2, 3, 7, 33):
        for start in (0, 1, 5, 30):
            rows = slice(start, start + size)
            apart = residuals(np.asfortranarray(x[rows]), y[rows], beta, family)
            assert apart.tobytes() == together[rows].tobytes()


@pytest.mark.parametrize("max_rows", [1, 2, 3, 1000, 1024, 10**6, 2**40])
@pytest.mark.parametrize("most", [0.3, 1.0, 1.5, 2.0, math.sqrt(7)])
def test_sums_of_gradients_are_exact_in_float64(max_rows, most):
    bits = exact_bits(max_rows, most)
    assert Fraction(max_rows) * Fraction(most) * Fraction(2) ** bits <= 2**53
    assert bits == 32 or Fraction(max_rows) * Fraction(most) * Fraction(2) ** (bits + 1) > 2**53


def test_a_site_with_the_largest_number_of_records_is_summed_exactly():
    """2^20 equal records at their largest: one rounded addition would show in the last step."""
    public, method = public_of(2, 3.0, max_rows=2**31), method_of(2, "binomial", clip=1.1)
    assert stage_of(method, public).spec[0].fraction_bits == 21
    one, beta = np.array([[1.0, 1.0, -1.0]]), np.array([99.0, 0.0, 0.0])
    own = contribution(method, public, one, beta)
    many = contribution(method, public, np.repeat(one, 2**20, axis=0), beta)
    assert many == [2**20 * v for v in own]


def test_a_record_shortened_by_the_clip_keeps_its_outcome():
    public, method = public_of(2, 2.0), method_of(2, "binomial")
    beta = np.zeros(3)
    for sign in (-1, 1):
        short = contribution(method, public, np.array([[0.5, 0.5, sign * 0.7]]), beta)
        full = contribution(method, public, np.array([[0.5, 0.5, sign * 1.0]]), beta)
        assert short == full
