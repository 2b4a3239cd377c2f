"""Ring arithmetic against Python integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.core import ring

EDGES = {
    bits: [0, 1, -1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, -(2**31), 2**63 - 1, 2**63, 2**64 - 1,
           2**64, -(2**63), 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2**bits - 1, 2**bits,
           2**64 - 2**32]
    for bits in ring.RING_BITS
}  # fmt: skip
all_rings = pytest.mark.parametrize("bits", ring.RING_BITS)


def signed(value: int, bits: int) -> int:
    """The representative of `value` in [-2^(bits-1), 2^(bits-1))."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def values(bits: int) -> st.SearchStrategy[int]:
    near = st.builds(lambda edge, off: edge + off, st.sampled_from(EDGES[bits]), st.integers(-2, 2))
    return st.integers(-(2 ** (bits + 1)), 2 ** (bits + 1)) | near


@all_rings
def test_sums_of_all_pairs_of_edge_values_are_correct(bits: int) -> None:
    left = [x for x in EDGES[bits] for _ in EDGES[bits]]
    right = EDGES[bits] * len(EDGES[bits])
    a, b = ring.from_integers(left, bits), ring.from_integers(right, bits)
    before = a.copy(), b.copy()
    sums = [signed(x + y, bits) for x, y in zip(left, right, strict=True)]
    differences = [signed(x - y, bits) for x, y in zip(left, right, strict=True)]
    assert ring.to_integers(ring.add(a, b)) == sums
    assert ring.to_integers(ring.subtract(a, b)) == differences
    np.testing.assert_array_equal((a, b), before)  # the operands do not change


@settings(deadline=None)
@given(
    st.sampled_from(ring.RING_BITS).flatmap(lambda b: st.tuples(st.just(b), st.lists(values(b))))
)
def test_integers_and_bytes_round_trip(drawn: tuple[int, list[int]]) -> None:
    bits, numbers = drawn
    vector = ring.from_integers(numbers, bits)
    assert vector.shape == (len(numbers), {32: 1, 64: 1, 128: 2}[bits])
    assert ring.bits_of(vector) == bits
    assert ring.to_integers(vector) == [signed(n, bits) for n in numbers]
    data = ring.to_bytes(vector)
    assert data == b"".join((n % 2**bits).to_bytes(bits // 8, "little") for n in numbers)
    np.testing.assert_array_equal(ring.from_bytes(data, bits), vector)


def uniform(count: int, length: int, bits: int) -> list[ring.RingVector]:
    """Vectors of uniform elements, so that carries and wraps abound."""
    rng = np.random.default_rng(3)
    return [ring.from_bytes(rng.bytes(length * bits // 8), bits) for _ in range(count)]


BLOCKED = [0, 1, *(rows + off for rows in (1 << 13, 1 << 14, 1 << 15) for off in (0, 1))]
"""Lengths about a block: 2^13, 2^14 or 2^15 elements of 128, 64 or 32 bits."""


@all_rings
@pytest.mark.parametrize("length", BLOCKED)
def test_total_is_the_sum_in_any_order(bits: int, length: int) -> None:
    vectors = uniform(4, length, bits)
    columns = zip(*(ring.to_integers(v) for v in vectors), strict=True)
    expected = [signed(sum(column), bits) for column in columns]
    assert ring.to_integers(ring.total(vectors, length, bits)) == expected
    assert ring.to_integers(ring.total(reversed(vectors), length, bits)) == expected
    assert ring.to_integers(ring.total([], length, bits)) == [0] * length


@all_rings
@pytest.mark.parametrize("count", [0, 1, 50, 254, 255, 256, 511])
def test_many_terms_are_added_in_place(bits: int, count: int) -> None:
    """About 255 and twice as many, where the byte that counts a limb's carries would overflow."""
    start, *terms = uniform(count + 1, 5, bits)
    columns = list(zip(*(ring.to_integers(v) for v in terms), strict=True)) or [()] * 5
    firsts = ring.to_integers(start)
    raised, lowered = start.copy(), start.copy()
    ring.add_in_place(raised, iter(terms))
    ring.subtract_in_place(lowered, iter(terms))
    pairs = list(zip(firsts, columns, strict=True))
    assert ring.to_integers(raised) == [signed(x + sum(c), bits) for x, c in pairs]
    assert ring.to_integers(lowered) == [signed(x - sum(c), bits) for x, c in pairs]


@all_rings
def test_carries_of_every_term_are_added(bits: int) -> None:
    """600 times -1: every low limb wraps each time, but for the first."""
    ones = ring.from_integers([-1, -1], bits)
    vector = ring.zeros(2, bits)
    ring.add_in_place(vector, [ones] * 600)
    assert ring.to_integers(vector) == [-600, -600]
    ring.subtract_in_place(vector, [ones] * 1200)
    assert ring.to_integers(vector) == [600, 600]


@all_rings
def test_one_row_is_broadcast_over_a_vector(bits: int) -> None:
    vector, row = ring.from_integers([5, -5, 2**31], bits), ring.from_integers([-7], bits)
    assert ring.to_integers(ring.add(vector, row)) == [signed(v - 7, bits) for v in (5, -5, 2**31)]
    assert ring.to_integers(ring.subtract(vector, row)) == [
        signed(v + 7, bits) for v in (5, -5, 2**31)
    ]


@all_rings
def test_unaligned_and_foreign_byte_order_read_the_same(bits: int) -> None:
    """Vectors out of a message begin anywhere in it."""
    (vector,) = uniform(1, 40, bits)
    data = ring.to_bytes(vector)
    unaligned = ring.from_bytes(memoryview(b"x" + data)[1:], bits)
    assert not unaligned.flags.writeable
    swapped = vector.astype(vector.dtype.newbyteorder())
    for other in (unaligned, swapped):
        assert ring.to_bytes(other) == data
        assert ring.to_integers(other) == ring.to_integers(vector)
        np.testing.assert_array_equal(ring.add(vector, other), ring.add(vector, vector))
    assert ring.is_vector(unaligned, 40, bits)


@all_rings
def test_total_refuses_vectors_of_another_ring_or_length(bits: int) -> None:
    good = ring.zeros(3, bits)
    for bad in (ring.zeros(1, bits), *(ring.zeros(3, b) for b in ring.RING_BITS if b != bits)):
        with pytest.raises(ValueError, match="3 elements"):
            ring.total([good, bad], 3, bits)


@all_rings
def test_is_vector_recognises_ring_vectors(bits: int) -> None:
    good = ring.zeros(3, bits)
    assert ring.is_vector(good, 3, bits)
    assert not ring.is_vector(good, 2, bits)
    assert not any(ring.is_vector(good, 3, other) for other in ring.RING_BITS if other != bits)
    assert not ring.is_vector(good.astype(np.int64), 3, bits)
    assert not ring.is_vector(good.astype(np.float64), 3, bits)
    assert not ring.is_vector(good.reshape(-1), 3, bits)
    assert not ring.is_vector(good.tolist(), 3, bits)
    assert not ring.is_vector(None, 3, bits)


@pytest.mark.parametrize("bits", [0, 16, 33, 65, 192, 256])
def test_unsupported_rings_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match=str(bits)):
        ring.limbs(bits)
