"""How far one record can move the moments: equations (1) and (2) against search and extremes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from secagg.contracts.noise import Clip
from secagg.models.common.clipped_moments import (
    CONSTANT,
    counted_moments_sensitivity,
    moments_sensitivity,
    upper_moments,
)

C2 = CONSTANT**2


def upper(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return M's upper triangle for one record, each entry over the root of its noise's weight."""
    z = np.array([CONSTANT, *u])
    rows, columns = np.triu_indices(len(z))
    product: NDArray[np.float64] = z[rows] * z[columns]
    return product / np.sqrt(moments_sensitivity(Clip(1.0, 16), len(u)).weights)


@pytest.mark.parametrize(
    ("square", "add", "replace"),
    [
        (1e-300, C2 / math.sqrt(2), C2 / math.sqrt(2)),  # nothing but the count
        (C2 / 16, C2 * 17 / 16 / math.sqrt(2), C2 * 17 / 16 / math.sqrt(2)),  # (2) is below (1)
        (C2, C2 * math.sqrt(2), 2 * C2),
        *((float(p), (C2 + p) / math.sqrt(2), C2 + p) for p in range(1, 9)),
    ],
)
def test_the_sensitivity_agrees_with_its_closed_form(
    square: float, add: float, replace: float
) -> None:
    sensitivity = moments_sensitivity(Clip(square, 16), 9)
    assert sensitivity.add == pytest.approx(add, rel=1e-12)
    assert sensitivity.replace == pytest.approx(replace, rel=1e-12)
    assert sensitivity.add >= add * (1 - 1e-16) and sensitivity.replace >= sensitivity.add
    assert moments_sensitivity(Clip(square, 16), 2).weights == (2, 1, 1, 2, 1, 2)


def records(square: float, p: int, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Return random records of norm at most root(square), many at the corners and edges."""
    u = rng.uniform(-1, 1, (n, p)) * rng.integers(0, 2, (n, p))
    u[: n // 2] = np.sign(u[: n // 2]) * np.abs(u[: n // 2]) ** rng.uniform(0, 1, (n // 2, 1))
    norm = np.sqrt((u**2).sum(axis=1, keepdims=True))
    scaled: NDArray[np.float64] = u * np.minimum(1.0, math.sqrt(square) / np.maximum(norm, 1e-300))
    return scaled


@given(st.integers(1, 6), st.floats(0.01, 1.0), st.integers(0, 2**32 - 1))
def test_no_pair_of_records_exceeds_the_sensitivity(p: int, share: float, seed: int) -> None:
    square = share * p
    sensitivity = moments_sensitivity(Clip(square, 16), p)
    found = [upper(u) for u in records(square, p, np.random.default_rng(seed), 20)]
    assert max(np.linalg.norm(a) for a in found) <= sensitivity.add
    assert max(np.linalg.norm(a - b) for a in found for b in found) <= sensitivity.replace


@pytest.mark.parametrize("square", [0.1, C2, 1.0, 2.5])
def test_any_record_of_full_norm_attains_the_sensitivity(square: float) -> None:
    """The bound is tight everywhere, so no noise is wasted."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        u = rng.normal(size=5)
        u *= math.sqrt(square) / np.linalg.norm(u)
        assert np.linalg.norm(upper(u)) == pytest.approx(
            moments_sensitivity(Clip(square, 16), 5).add
        )


@pytest.mark.parametrize("square", [C2, 1.0, 2.5])
def test_replacing_a_record_attains_its_sensitivity(square: float) -> None:
    """Where u'w = -c^2, z and v are orthogonal."""
    cosine = -C2 / square
    u = math.sqrt(square) * np.array([1.0, 0.0])
    w = math.sqrt(square) * np.array([cosine, math.sqrt(1 - cosine**2)])
    moved = np.linalg.norm(upper(u) - upper(w))
    assert moved == pytest.approx(moments_sensitivity(Clip(square, 16), 2).replace)


@pytest.mark.parametrize("square", [0.1, 0.25, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_count_and_moments_move_by_at_most_the_joint_sensitivity(
    square: float, share: float
) -> None:
    """The largest changes of both are attained, so the joint bound is too."""
    clip, rng = Clip(square, 16), np.random.default_rng(1)
    sensitivity = counted_moments_sensitivity(clip, 2, share)
    weights = np.array(sensitivity.weights)

    def moved(before: np.ndarray, after: np.ndarray) -> float:
        change = np.concatenate([
            [len(after) - len(before)],
            upper_moments(after, CONSTANT) - upper_moments(before, CONSTANT),
        ])  # fmt: skip
        return float(np.sqrt(np.sum(change**2 / weights)))

    nothing, added, replaced = np.zeros((0, 2)), 0.0, 0.0
    for angle in np.linspace(0, np.pi, 181):
        one = np.sqrt(square) * np.array([[1.0, 0.0]])
        other = np.sqrt(square) * np.array([[np.cos(angle), np.sin(angle)]])
        added = max(added, moved(nothing, other))
        replaced = max(replaced, moved(one, other), moved(one, rng.random() * other))
    assert added == pytest.approx(sensitivity.add, rel=1e-9)
    assert max(added, replaced) == pytest.approx(sensitivity.replace, rel=1e-3)
    assert max(added, replaced) <= sensitivity.replace
    assert 1 / (weights[0] * sensitivity.add**2) == pytest.approx(share, rel=0.05)
