"""How far one record can move the moments: equations (1) and (2) against search and extremes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from secagg.models.moments import touched
from secagg.noise import Clip


def upper(u: NDArray[np.float64]) -> NDArray[np.float64]:
    z = np.array([1.0, *u])
    return np.outer(z, z)[np.triu_indices(len(z))]


@pytest.mark.parametrize(
    ("square", "add", "replace"),
    [
        (1e-300, 1, 1),
        (1.0, 3, 5),
        # q = 1 + 0.5^2: (2.5^2 + 1 + 1.25) / 2
        (1.5, 4.25, 7.5),
        # below 1: (1.25^2 + 1 + 0.0625) / 2, m = -1/4, f = -7/32
        (0.25, 1.3125, 1.3125),
        (0.81, 2.4661, 2 * 2.4661 - 2 - 2 * (-0.81 + 0.81**2 / 2)),
    ],
)
def test_closed_form(square: float, add: float, replace: float) -> None:
    touch = touched(Clip(square, 16), 40)
    assert touch.add == pytest.approx(math.sqrt(add), rel=1e-12)
    assert touch.replace == pytest.approx(math.sqrt(replace), rel=1e-12)
    assert touch.add >= math.sqrt(add) * (1 - 1e-16) and touch.replace >= touch.add


@pytest.mark.parametrize("p", range(1, 9))
def test_nothing_is_clipped(p: int) -> None:
    touch = touched(Clip(float(p), 16), p)
    assert touch.add == pytest.approx(math.sqrt((p + 1) * (p + 2) / 2), rel=1e-12)
    assert touch.replace == pytest.approx(p + 1, rel=1e-12)


def test_one_variable_replaced_reaches_its_bound() -> None:
    """u = 1 by v = -1 moves the sum by 2, which is (3)."""
    moved = upper(np.array([1.0])) - upper(np.array([-1.0]))
    assert np.linalg.norm(moved) == pytest.approx(touched(Clip(1.0, 16), 1).replace)


def records(square: float, p: int, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Return random records of norm at most root(square), many at the corners and edges."""
    u = rng.uniform(-1, 1, (n, p)) * rng.integers(0, 2, (n, p))
    u[: n // 2] = np.sign(u[: n // 2]) * np.abs(u[: n // 2]) ** rng.uniform(0, 1, (n // 2, 1))
    norm = np.sqrt((u**2).sum(axis=1, keepdims=True))
    return u * np.minimum(1.0, math.sqrt(square) / np.maximum(norm, 1e-300))


@given(st.integers(1, 6), st.floats(0.05, 1.0), st.integers(0, 2**32 - 1))
def test_no_pair_of_records_moves_the_moments_further(p: int, share: float, seed: int) -> None:
    square = share * p
    touch = touched(Clip(square, 16), p)
    rng = np.random.default_rng(seed)
    found = [upper(u) for u in records(square, p, rng, 40)]
    assert max(np.linalg.norm(a) for a in found) <= touch.add
    assert max(np.linalg.norm(a - b) for a in found for b in found) <= touch.replace


@pytest.mark.parametrize(
    ("p", "square"),
    [(p, square) for p in (1, 2, 4, 7) for square in (1.0, 1.5, 2.0, 4.0) if square <= p],
)
def test_adding_reaches_the_bound(p: int, square: float) -> None:
    """As many entries at 1 as fit, one with the rest: the bound is tight, so no noise is wasted."""
    whole = int(square)
    u = np.zeros(p)
    u[:whole] = 1.0
    if whole < p:
        u[whole] = math.sqrt(square - whole)
    assert np.linalg.norm(upper(u)) == pytest.approx(touched(Clip(square, 16), p).add, rel=1e-12)


def test_replacing_nearly_reaches_its_bound() -> None:
    """u = (R, 0, ...) and w = (-1/R, b, b, ...): the inner product is near its least, -1/2."""
    p, square = 40, 4.0
    u = np.full(p, 1.0) * math.sqrt(square / p)
    w = -u / square * 1.0
    rest = np.where(np.arange(p) % 2 == 0, 1.0, -1.0)  # orthogonal to u
    w = w + rest * math.sqrt((square - w @ w) / p)
    reached = np.linalg.norm(upper(u) - upper(w))
    spread = math.sqrt(2 * 25 / 2 + 1)  # |z|^4 / 2 only: no mass is concentrated
    assert reached == pytest.approx(spread, rel=0.05)
    assert reached <= touched(Clip(square, 16), p).replace


def test_leaving_the_response_out_would_promise_too_much() -> None:
    """Pitfall 3: with y = 1 beside |x| <= R the record is longer than x alone says."""
    assert touched(Clip(2.0, 16), 2).add > touched(Clip(1.0, 16), 2).add * 1.4
