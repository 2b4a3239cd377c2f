"""How far one record can move the moments: equations (1) and (2) against search and extremes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

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


# --- persons: (4), (5) and (6) ----------------------------------------------------------------

MOST = 6  # records of a person


def person_clip(square: float, mean: float) -> Clip:
    """Return the clip of persons with MOST records, at most `mean` squared on average."""
    return Clip(square, 16, mean * MOST, MOST)


def turned(base: NDArray[np.float64], norm: float, cosine: float) -> NDArray[np.float64]:
    """Return a vector of this norm whose cosine with the first vector of `base` is given."""
    found: NDArray[np.float64] = norm * (cosine * base[0] + math.sqrt(1 - cosine**2) * base[1])
    return found


def moved_by(one: NDArray[np.float64], other: NDArray[np.float64], weights: object) -> float:
    """Return by how much n and M change if one person's records replace another's."""
    change = upper_moments(one, CONSTANT) - upper_moments(other, CONSTANT)
    both = np.array([len(one) - len(other), *change])
    return float(np.linalg.norm(both / np.sqrt(np.array(weights))))


def limited(u: NDArray[np.float64], clip: Clip) -> NDArray[np.float64]:
    """Return records within both limits."""
    u = u * np.minimum(1, clip.norm / np.maximum(np.linalg.norm(u, axis=1), 1e-300))[:, None]
    assert clip.person_square is not None
    found: NDArray[np.float64] = u * min(
        1.0, math.sqrt(clip.person_square / max((u**2).sum(), 1e-300))
    )
    return found


@pytest.mark.parametrize(("square", "mean"), [(1.0, 0.5), (2.5, 0.3), (1.0, 0.05), (0.1, 0.05)])
@pytest.mark.parametrize("share", [0.01, 0.5])
def test_no_person_exceeds_the_sensitivity(square: float, mean: float, share: float) -> None:
    """Random persons, many with few long records, or with many equal ones."""
    clip, rng = person_clip(square, mean), np.random.default_rng(3)
    both = counted_moments_sensitivity(clip, 3, share)
    alone = moments_sensitivity(clip, 3)
    weights = (1e300, *alone.weights)  # n has no part in it
    persons = [np.zeros((0, 3))]
    for _ in range(300):
        u = rng.normal(size=(rng.integers(1, MOST + 1), 3)) * 10.0 ** rng.uniform(-2, 1)
        u = u if rng.random() < 0.5 else np.repeat(u[:1], len(u), axis=0)
        persons += [limited(u, clip), limited(-u, clip)]
    changes = np.array([[len(u), *upper_moments(u, CONSTANT)] for u in persons])
    for bound, of in ((both, both.weights), (alone, weights)):
        scaled = changes / np.sqrt(np.array(of))
        assert np.linalg.norm(scaled, axis=1).max() <= MOST * bound.add
        assert pdist(scaled).max() <= MOST * bound.replace


@pytest.mark.parametrize(("square", "mean"), [(1.0, 0.5), (2.0, 1.0), (1.0, 1.0 / 3)])
@pytest.mark.parametrize("share", [0.001, 0.05, 0.5])
def test_persons_attain_the_sensitivity(square: float, mean: float, share: float) -> None:
    """Equal records attain (4); replaced by orthogonal ones, (5); by few long ones, (6)."""
    clip = person_clip(square, mean)
    both, alone = counted_moments_sensitivity(clip, 2, share), moments_sensitivity(clip, 2)
    base = np.eye(2)
    many = np.repeat(math.sqrt(mean) * base[:1], MOST, axis=0)
    none = np.zeros((0, 2))
    assert moved_by(many, none, both.weights) == pytest.approx(MOST * both.add, rel=1e-9)
    found = [moved_by(many, none, both.weights)]
    for number in range(1, MOST + 1):
        norm = math.sqrt(min(square, mean * MOST / number))
        other = turned(base, norm, -C2 / (norm * math.sqrt(mean)))  # so that z'w = 0
        found.append(moved_by(many, np.repeat(other[None], number, axis=0), both.weights))
    assert max(found) == pytest.approx(MOST * both.replace, rel=1e-9)
    opposite = np.repeat(turned(base, math.sqrt(mean), -C2 / mean)[None], MOST, axis=0)
    weights = (1e300, *alone.weights)
    assert moved_by(many, opposite, weights) == pytest.approx(MOST * alone.replace, rel=1e-9)


def test_a_person_with_few_long_records_can_change_more_than_one_with_many() -> None:
    """So the larger of "added" and "replaced, with as many" is not a bound."""
    clip = person_clip(24.0, 4.0)  # one record may have all of the person's square
    both = counted_moments_sensitivity(clip, 2, 0.5)
    total = (C2 + 4) / math.sqrt(both.weights[1] / 2)
    assert both.replace > 1.1 * max(both.add, total)


@pytest.mark.parametrize("square", [0.1, C2, 1.0, 3.0])
@pytest.mark.parametrize("person", [None, MOST, 50.0])
def test_without_an_effective_limit_a_person_is_m_records(
    square: float, person: float | None
) -> None:
    clip = Clip(square, 16, None if person is None else person * square, MOST)
    assert moments_sensitivity(clip, 3) == moments_sensitivity(Clip(square, 16), 3)
    for share in (0.05, 0.5):
        found = counted_moments_sensitivity(clip, 3, share)
        assert found == counted_moments_sensitivity(Clip(square, 16), 3, share)


@pytest.mark.parametrize("mean", [0.001, 0.02, 0.09])
def test_a_limit_never_needs_more_noise(mean: float) -> None:
    """Below a norm of c, (2) and (3) may be smaller than the bounds for persons."""
    for share in (0.01, 0.5):
        one = counted_moments_sensitivity(person_clip(0.1, mean), 2, share)
        free = counted_moments_sensitivity(Clip(0.1, 16), 2, share)
        scale = one.weights[1] / free.weights[1]  # in the units of M
        assert one.add**2 * scale <= free.add**2 * 1.06  # the whole weights differ
    assert moments_sensitivity(person_clip(0.1, mean), 2).replace <= (
        moments_sensitivity(Clip(0.1, 16), 2).replace
    )


@pytest.mark.parametrize(
    ("square", "mean", "replace"),
    [
        (0.1, 0.09, math.sqrt(0.35**2 - 0.15**2)),  # (2) is below c^2 + Q
        (0.1, 0.05, 0.3),  # c^2 + Q
        (2.0, 0.5, 0.75),
    ],
)
def test_a_person_s_sensitivity_agrees_with_its_closed_form(
    square: float, mean: float, replace: float
) -> None:
    """(4) and (5), divided by the number of records."""
    found = moments_sensitivity(person_clip(square, mean), 3)
    assert found.add == pytest.approx((C2 + mean) / math.sqrt(2), rel=1e-12)
    assert found.replace == pytest.approx(replace, rel=1e-12)
