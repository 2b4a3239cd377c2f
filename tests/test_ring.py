"""Ring arithmetic against Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg import ring

EDGES = {
    bits: [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 2 ** (bits - 1) - 1,
           -(2 ** (bits - 1)), 2**bits - 1, 2**bits, 2**64 - 2**32]
    for bits in ring.RING_BITS
}  # fmt: skip
both_rings = pytest.mark.parametrize("bits", ring.RING_BITS)


def signed(value: int, bits: int) -> int:
    """The representative of `value` in [-2^(bits-1), 2^(bits-1))."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def values(bits: int) -> st.SearchStrategy[int]:
    near = st.builds(lambda edge, off: edge + off, st.sampled_from(EDGES[bits]), st.integers(-2, 2))
    return st.integers(-(2 ** (bits + 1)), 2 ** (bits + 1)) | near


pairs = st.sampled_from(ring.RING_BITS).flatmap(
    lambda bits: st.tuples(
        st.just(bits), st.lists(st.tuples(values(bits), values(bits)), min_size=0, max_size=6)
    )
)


@settings(deadline=None)
@given(pairs)
def test_add_and_subtract(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    bits, numbers = drawn
    a = ring.from_integers([x for x, _ in numbers], bits)
    b = ring.from_integers([y for _, y in numbers], bits)
    before = a.copy(), b.copy()
    assert ring.to_integers(ring.add(a, b)) == [signed(x + y, bits) for x, y in numbers]
    assert ring.to_integers(ring.subtract(a, b)) == [signed(x - y, bits) for x, y in numbers]
    np.testing.assert_array_equal(a, before[0])  # operands are left alone
    np.testing.assert_array_equal(b, before[1])


@both_rings
def test_every_pair_of_edges(bits: int) -> None:
    left = [x for x in EDGES[bits] for _ in EDGES[bits]]
    right = EDGES[bits] * len(EDGES[bits])
    a, b = ring.from_integers(left, bits), ring.from_integers(right, bits)
    sums = [signed(x + y, bits) for x, y in zip(left, right, strict=True)]
    differences = [signed(x - y, bits) for x, y in zip(left, right, strict=True)]
    assert ring.to_integers(ring.add(a, b)) == sums
    assert ring.to_integers(ring.subtract(a, b)) == differences


@settings(deadline=None)
@given(
    st.sampled_from(ring.RING_BITS).flatmap(lambda b: st.tuples(st.just(b), st.lists(values(b))))
)
def test_integers_and_bytes_round_trip(drawn: tuple[int, list[int]]) -> None:
    bits, numbers = drawn
    vector = ring.from_integers(numbers, bits)
    assert vector.shape == (len(numbers), bits // 64)
    assert ring.to_integers(vector) == [signed(n, bits) for n in numbers]
    data = ring.to_bytes(vector)
    assert data == b"".join((n % 2**bits).to_bytes(bits // 8, "little") for n in numbers)
    np.testing.assert_array_equal(ring.from_bytes(data, bits), vector)


@both_rings
def test_total_is_the_sum_in_any_order(bits: int) -> None:
    rng = np.random.default_rng(3)
    vectors = [
        ring.from_bytes(rng.bytes(5 * bits // 8), bits) for _ in range(50)
    ]  # uniform, so carries and wraps abound
    columns = zip(*(ring.to_integers(v) for v in vectors), strict=True)
    expected = [signed(sum(column), bits) for column in columns]
    assert ring.to_integers(ring.total(vectors, 5, bits)) == expected
    assert ring.to_integers(ring.total(reversed(vectors), 5, bits)) == expected


@both_rings
def test_total_of_nothing_is_zero(bits: int) -> None:
    assert ring.to_integers(ring.total([], 3, bits)) == [0, 0, 0]


@both_rings
def test_is_vector(bits: int) -> None:
    good = ring.zeros(3, bits)
    assert ring.is_vector(good, 3, bits)
    assert not ring.is_vector(good, 2, bits)
    assert not ring.is_vector(good, 3, 192 - bits)
    assert not ring.is_vector(good.astype(np.int64), 3, bits)
    assert not ring.is_vector(good.astype(np.float64), 3, bits)
    assert not ring.is_vector(good.reshape(-1), 3, bits)
    assert not ring.is_vector(good.tolist(), 3, bits)
    assert not ring.is_vector(None, 3, bits)


@pytest.mark.parametrize("bits", [0, 32, 65, 192, 256])
def test_no_other_ring(bits: int) -> None:
    with pytest.raises(ValueError, match="only"):
        ring.limbs(bits)
