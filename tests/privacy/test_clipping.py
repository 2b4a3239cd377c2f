"""Clipping: the norm and the grid hold in the integers, whatever the records."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from secagg.contracts.noise import Clip
from secagg.privacy.clipping import cap_per_person, choose_clip, clip_persons, clip_rows

UNIT = st.floats(-1, 1)


def integers(values: NDArray[np.float64], clip: Clip) -> list[list[int]]:
    whole = values * 2.0**clip.grid_bits
    assert np.array_equal(np.rint(whole), whole)  # on the grid
    return [[int(x) for x in row] for row in whole]


@given(
    arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=UNIT),
    st.floats(1e-3, 3),
    st.integers(8, 16),
)
def test_no_record_is_longer_than_promised(
    values: NDArray[np.float64], square: float, bits: int
) -> None:
    clip = Clip(min(square, float(values.shape[1])), bits)
    rows = integers(clip_rows(values, clip), clip)
    for row in rows:
        assert sum(q * q for q in row) <= Fraction(clip.squared_norm) * 4**bits
        assert all(abs(q) <= 2**bits for q in row)


@given(arrays(np.float64, (5, 4), elements=UNIT), st.floats(0.01, 4))
def test_a_record_depends_on_nothing_but_itself(values: NDArray[np.float64], square: float) -> None:
    clip = Clip(square, 16)
    alone = [clip_rows(row[np.newaxis], clip)[0] for row in values]
    assert np.array_equal(clip_rows(values, clip), alone)


@pytest.mark.parametrize(
    ("record", "square", "clipped"),
    [
        ([0.5, 0.25], 1.0, [0.5, 0.25]),  # below R, on the grid
        ([0.1, -0.1], 1.0, [6553 / 65536, -6553 / 65536]),  # truncated, towards zero
        ([0.6, 0.8], 1.0, [39321 / 65536, 52428 / 65536]),
        ([0.0, 1.0], 1.0, [0.0, 1.0]),  # exactly R
        ([0.0, 0.0], 1.0, [0.0, 0.0]),
        ([1.0, -1.0], 2.0, [1.0, -1.0]),  # R^2 = p: nothing is ever clipped
    ],
)
def test_edge_cases(record: list[float], square: float, clipped: list[float]) -> None:
    assert clip_rows(np.array([record]), Clip(square, 16)).tolist() == [clipped]


def test_a_record_just_above_the_norm_is_scaled() -> None:
    step = 2.0**-16
    clip = Clip(0.25, 16)
    (row,) = integers(clip_rows(np.array([[0.5, step]]), clip), clip)
    assert row[0] < 2**15 and sum(q * q for q in row) <= 2**30


def test_a_norm_between_two_integers_is_rounded_down() -> None:
    clip = Clip(2.5 * 4.0**-8, 8)  # three ones would have a square of 3
    (row,) = integers(clip_rows(np.full((1, 3), 2.0**-8), clip), clip)
    assert sum(q * q for q in row) <= 2


def test_scaling_keeps_the_direction() -> None:
    clip = Clip(0.01, 16)
    (row,) = clip_rows(np.array([[0.9, -0.3]]), clip)
    assert row == pytest.approx(0.1 * np.array([3, -1]) / math.sqrt(10), abs=2.0**-16)


def test_moments_of_clipped_records_are_exact_in_float64() -> None:
    """Any order of adding gives the same bits, which is what the sensitivity rests on."""
    clip = choose_clip(None, 3, 5000)
    assert clip is not None
    rng = np.random.default_rng(1)
    rows = clip_rows(rng.uniform(-1, 1, (5000, 3)), clip)
    exact = [[int(q) for q in row] for row in rows * 2.0**clip.grid_bits]
    oracle = [[sum(row[j] * row[k] for row in exact) for k in range(3)] for j in range(3)]
    for order in (np.arange(5000), rng.permutation(5000)):
        assert (rows[order].T @ rows[order] * 4.0**clip.grid_bits).tolist() == oracle


@pytest.mark.parametrize(
    ("max_rows", "bits"), [(1, 16), (1000, 16), (2**21, 16), (2**21 + 1, 15), (2**37, 8)]
)
def test_the_grid_is_as_fine_as_exact_sums_allow(max_rows: int, bits: int) -> None:
    clip = choose_clip(2.0, 9, max_rows)
    assert clip == Clip(4.0, bits)
    assert max_rows * 4**bits <= 2**53


def test_no_grid_for_absurdly_many_rows() -> None:
    assert choose_clip(None, 3, 2**38) is None


def test_a_norm_beyond_the_bounds_is_the_bounds() -> None:
    assert choose_clip(None, 7, 10) == choose_clip(99.0, 7, 10) == Clip(7.0, 16)


def test_a_person_keeps_the_first_records() -> None:
    persons = ["a", "b", "a", "", "a", "", "b"]
    assert cap_per_person(persons, 1).tolist() == [True, True, False, True, False, False, False]
    assert cap_per_person(persons, 2).tolist() == [True, True, True, True, False, True, True]


def total_squares(values: NDArray[np.float64], persons: list[str], clip: Clip) -> dict[str, int]:
    found = dict.fromkeys(persons, 0)
    for row, person in zip(integers(values, clip), persons, strict=True):
        found[person] += sum(q * q for q in row)
    return found


PERSONS = ["a", "b", "a", "c", "a", "b"]  # interleaved


@given(
    arrays(np.float64, (6, 3), elements=UNIT), st.floats(1e-3, 3), st.floats(1e-3, 9),
    st.integers(8, 16),
)  # fmt: skip
def test_no_persons_squares_exceed_the_limit(
    values: NDArray[np.float64], square: float, person: float, bits: int
) -> None:
    clip = Clip(square, bits, person, 3)
    rows = clip_rows(values, clip)
    found = clip_persons(rows, PERSONS, clip)
    before, after = (total_squares(each, PERSONS, clip) for each in (rows, found))
    limit = Fraction(person) * 4**bits
    for name, total in before.items():
        of = np.array([each == name for each in PERSONS])
        assert after[name] <= limit
        assert np.array_equal(found[of], rows[of]) == (total <= limit)
        assert np.all(np.abs(found[of]) <= np.abs(rows[of]))
        if total > limit:  # one factor for all records, up to a step
            wanted = rows[of] * np.sqrt(float(limit / total))
            assert np.allclose(found[of], wanted, rtol=2e-3, atol=1.01 * 2.0**-bits)


@given(arrays(np.float64, (6, 3), elements=UNIT), st.permutations(range(6)))
def test_a_person_depends_on_own_records_alone_and_not_on_their_order(
    values: NDArray[np.float64], order: list[int]
) -> None:
    clip = Clip(2.0, 16, 0.7, 3)
    rows = clip_rows(values, clip)
    together = clip_persons(rows, PERSONS, clip)
    turned = clip_persons(rows[order], [PERSONS[i] for i in order], clip)
    assert np.array_equal(turned, together[order])
    for name in "abc":
        of = np.array([each == name for each in PERSONS])
        assert np.array_equal(clip_persons(rows[of], [name] * int(of.sum()), clip), together[of])


def test_a_person_exactly_at_the_limit_is_not_scaled() -> None:
    rows = np.array([[0.5, 0.0], [0.0, 0.5]])
    exactly, below = Clip(1.0, 16, 0.5, 2), Clip(1.0, 16, 0.5 - 4.0**-16, 2)
    assert np.array_equal(clip_persons(rows, ["a", "a"], exactly), rows)
    (one, zero), (zero_too, other) = integers(clip_persons(rows, ["a", "a"], below), below)
    assert zero == zero_too == 0 and one == other == 2**15 - 1
    assert np.array_equal(clip_persons(rows, ["a", "b"], below), rows)


def test_a_limit_below_one_step_leaves_zeros() -> None:
    clip = Clip(1.0, 8, 1e-6, 2)
    assert not clip_persons(np.full((2, 3), 0.5), ["a", "a"], clip).any()


def test_names_that_differ_by_a_null_are_two_persons() -> None:
    rows = np.full((2, 1), 0.5)
    assert np.array_equal(clip_persons(rows, ["a", "a\0"], Clip(1.0, 16, 0.3, 2)), rows)


def test_the_mean_square_of_a_person_is_at_most_that_of_a_record() -> None:
    assert Clip(2.0, 16).mean_square == Clip(2.0, 16, 99.0, 3).mean_square == 2.0
    assert Clip(2.0, 16, 3.0, 3).mean_square == 1.0
    assert choose_clip(1.0, 9, 10, 1.5, 3) == Clip(1.0, 16, 2.25, 3)
