"""exp(A) - I against sixty digits, entry by entry."""

import math

import mpmath as mp
import numpy as np
import pytest
import scipy.linalg

from secagg.models.numerics.matrix_exponential import exponential_minus_identity

ROUNDING = 2.0**-53


@pytest.fixture(autouse=True)
def sixty_digits():
    with mp.workdps(60):
        yield


def exact(A: np.ndarray) -> np.ndarray:
    """exp(A) - I by its series at A / 2^s, doubled back: mpmath's own `expm` adds the identity."""
    halvings = max(0, math.ceil(math.log2(max(float(A.sum(axis=0).max()), 1.0)))) + 4
    M = mp.matrix(A.tolist()) / mp.mpf(2) ** halvings
    term = F = M.copy()
    for k in range(2, 60):
        term = term * M / k
        F += term
    for _ in range(halvings):
        F = F * F + 2 * F
    return np.array(F.tolist(), dtype=object)


def bound(A: np.ndarray) -> float:
    """A rigorous bound on an entry's relative error.

    All numbers are nonnegative, so relative errors add in products and do not grow in sums. An
    entry of a product adds p roundings. A^2 has p, A^3 and A^4 2p; the top of Horner's rule runs
    through three factors A^4, three products and a block with A^4: 11 p, and ten sums and
    coefficients. Each doubling F^2 + 2F at most doubles the error and adds p + 2 roundings. The
    rest of the series adds one more here: no entry is made of long paths only.
    """
    p = len(A)
    squared = A @ A
    x = max(squared.sum(axis=0).max() ** 0.5, (squared @ A).sum(axis=0).max() ** (1 / 3))
    halvings = max(0, math.ceil(math.log2(x / 0.85))) if x > 0 else 0
    return 2.0**halvings * (12 * p + 14) * ROUNDING


def worst(A: np.ndarray) -> float:
    """The largest relative error of an entry; zeros must be zeros."""
    F, truth = exponential_minus_identity(A), exact(A)
    errors = [0.0]
    for found, true in zip(F.ravel(), truth.ravel(), strict=True):
        if true == 0:
            assert found == 0
        else:
            errors.append(float(abs(mp.mpf(float(found)) - true) / true))
    return max(errors)


@pytest.mark.parametrize(
    ("p", "norm"),
    [(1, 0.0), (3, 0.0), *((p, norm) for p in (1, 4) for norm in (1e-300, 1e-4, 0.84, 0.86, 40.0)),
     (2, 0.3), (2, 600.0), (1, 709.0), (1, 709.78)],
)  # fmt: skip
@pytest.mark.parametrize("lowest", [0.0, -80.0])
def test_exponentials_of_entries_of_any_size_are_accurate(
    p: int, norm: float, lowest: float
) -> None:
    """Alike, or over 35 orders of magnitude with zeros; the largest decides the halvings."""
    rng, wide = np.random.default_rng(p), lowest < 0 and norm > 1e-100  # no squares underflow
    A = np.exp(rng.uniform(lowest, 0, (p, p))) if wide else rng.uniform(size=(p, p))
    A[rng.uniform(size=A.shape) < 0.3 * (wide and p > 1)] = 0
    A *= norm / A.sum(axis=0).max()
    assert worst(A) <= bound(A)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4, 1e60])
def test_the_trace_of_a_nilpotent_matrix_is_exactly_zero(size: float) -> None:
    """A DAG: the trace is zero, not nearly zero, and 200 halvings (at 1e60) do no harm.

    Doubled, a path of length L has weight 2^L, of which 2^L - 2 come from F^2, from two shorter
    paths. So its error r_L goes to at most (1 - 2^(1-L)) (r_a + r_(L-a)) + 2^(1-L) r_L + (p + 2) u
    each time, which never exceeds L r_1 + 2^L (p + 2) u, however often.
    """
    p = 6
    A = size * np.triu(np.random.default_rng(0).uniform(size=(p, p)), 1)
    assert np.trace(exponential_minus_identity(A)) == 0
    assert worst(A) <= ((p - 1) * (12 * p + 14) + 2**p * (p + 2)) * ROUNDING


@pytest.mark.parametrize("back", [1e-10, 1e-17, 1e-40])
def test_small_traces_keep_their_digits(back: float) -> None:
    A = np.triu(np.random.default_rng(1).uniform(0.1, 2, size=(6, 6)), 1)
    A[5, 0] = back
    h = mp.fsum(np.diagonal(exact(A)))
    assert 1e-2 * back < h < 1e2 * back
    error = abs(mp.mpf(float(np.trace(exponential_minus_identity(A)))) - h) / h
    assert error <= bound(A) + 6 * ROUNDING
    if h < 1e-16:  # numbers near 6 are 9e-16 apart: such a difference is zero or far too large
        ordinary = float(np.trace(scipy.linalg.expm(A))) - 6
        assert abs(ordinary - h) / h >= 1


def test_entries_lost_by_truncation_are_negligible() -> None:
    """A ring of ten: entries of long paths only may be lost, but are negligible."""
    p, w = 10, 1e-4
    A = w * np.roll(np.eye(p), 1, axis=1)
    F, truth = exponential_minus_identity(A), exact(A)
    missed = np.array([[float(t - mp.mpf(float(f))) for f, t in zip(*rows, strict=True)]
                       for rows in zip(F, truth, strict=True)])  # fmt: skip
    # The docstring's bound on the remainder, 2^-52 x with x = w, and the sum's own rounding.
    assert np.abs(missed).sum(axis=0).max() <= 2.0**-52 * w + bound(A) * F.sum(axis=0).max()


def test_the_argument_is_not_changed_in_any_memory_layout() -> None:
    A = np.random.default_rng(2).uniform(size=(4, 4))
    kept, expected = A.copy(), exponential_minus_identity(A)
    np.testing.assert_array_equal(A, kept)
    np.testing.assert_array_equal(exponential_minus_identity(np.asfortranarray(A)), expected)
    padded = np.zeros((8, 8))
    padded[::2, ::2] = A
    np.testing.assert_array_equal(exponential_minus_identity(padded[::2, ::2]), expected)


@pytest.mark.parametrize(
    "A",
    [
        np.array([[710.0]]),
        np.array([[1e300]]),
        np.full((3, 3), 300.0),
        np.full((3, 3), 1e160),
        np.array([[0.0, np.inf], [0.0, 0.0]]),
        np.array([[0.0, np.nan], [0.0, 0.0]]),
        np.diag([800.0, 0.0, 1.0]),
        np.array([[400.0, 1e200], [0.0, 400.0]]),
        np.array([[0.0, 1e200, 0.0], [0.0, 0.0, 1e200], [0.0, 0.0, 0.0]]),
    ],
)
def test_overflow_gives_values_that_are_not_finite(A: np.ndarray) -> None:
    # pytest makes an error of a warning. Where zeros meet inf there may be NaN beside it.
    F = exponential_minus_identity(A)
    assert not np.all(np.isfinite(F))
    assert not np.any(np.isneginf(F))
