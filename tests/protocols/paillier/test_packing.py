"""Oracle: Python integers, shifted and added one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.core import ring
from secagg.errors import CapabilityError, PeerError, UsageError
from secagg.protocols.paillier.packing import Packing


def to_limbs(values: list[int], limbs: int) -> np.ndarray:
    rows = [[value >> 64 * limb & (2**64 - 1) for limb in range(limbs)] for value in values]
    return np.array(rows, dtype=np.uint64).reshape(len(values), limbs)


def from_limbs(rows: np.ndarray) -> list[int]:
    return [sum(int(limb) << 64 * i for i, limb in enumerate(row)) for row in rows]


layouts = st.builds(
    Packing, st.integers(1, 128), st.integers(0, 64), st.sampled_from([200, 257, 512, 2048])
)


@given(layouts, st.integers(0, 60), st.data())
@settings(max_examples=60, deadline=None)
def test_pack_is_the_sum_of_shifted_values(
    packing: Packing, length: int, data: st.DataObject
) -> None:
    top = 2**packing.value_bits - 1
    element = st.one_of(st.integers(0, top), st.just(top), st.just(0))
    values = data.draw(st.lists(element, min_size=length, max_size=length))
    expected = [
        sum(v << j * packing.slot_bits for j, v in enumerate(values[start : start + packing.slots]))
        for start in range(0, length, packing.slots)
    ]
    limbs = 1 if packing.value_bits <= 64 else 2
    packed = packing.pack(to_limbs(values, limbs))
    assert packed == expected
    assert len(packed) == packing.plaintexts(length)
    assert all(x.bit_length() < packing.modulus_bits for x in packed)
    assert packing.pack(to_limbs(values, 2)) == expected
    unpacked = packing.unpack(packed, length)
    assert unpacked.shape == (length, packing.limbs)
    assert unpacked.dtype == np.uint64
    assert from_limbs(unpacked) == values


@given(st.integers(1, 128), st.integers(1, 40), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_sums_of_the_largest_values_do_not_carry(value_bits: int, sites: int, length: int) -> None:
    packing = Packing.for_sites(value_bits, sites, 1024)
    assert 2**packing.guard_bits >= sites > 2**packing.guard_bits // 2
    top = 2**value_bits - 1
    plaintexts = packing.pack(to_limbs([top] * length, 2))
    summed = packing.unpack([sites * x for x in plaintexts], length)
    assert from_limbs(summed) == [sites * top] * length


@pytest.mark.parametrize("bits", ring.RING_BITS)
def test_vectors_of_every_ring_pack_to_the_same_plaintexts(bits: int) -> None:
    """The same values give the same plaintexts, whatever the number of limbs."""
    packing = Packing(32, 4, 2048)
    values = [0, 1, 2**31, 2**32 - 1, *range(5, 120)]
    assert packing.pack(ring.from_integers(values, bits)) == packing.pack(to_limbs(values, 1))
    assert packing.pack(np.array(values, np.uint64)) == packing.pack(to_limbs(values, 1))
    assert (packing.slot_bits, packing.slots, packing.plaintexts(100)) == (36, 56, 2)


def test_the_largest_slot_has_three_limbs() -> None:
    packing = Packing(128, 64, 3072)
    assert packing.limbs == 3
    assert from_limbs(packing.unpack([2**192 - 1], 1)) == [2**192 - 1]


@pytest.mark.parametrize("bits", [1, 32, 64, 100])
def test_values_too_wide_are_refused(bits: int) -> None:
    packing = Packing(bits, 2, 2048)
    with pytest.raises(UsageError):
        packing.pack(to_limbs([0, 2**bits], 2))
    assert packing.pack(to_limbs([0, 2**bits - 1], 2))


def test_plaintexts_wider_than_their_slots_are_refused() -> None:
    packing = Packing(32, 4, 2048)  # 56 slots of 36 bits
    full, rest = 2 ** (56 * 36), 2 ** (4 * 36)
    assert packing.unpack([full - 1, rest - 1], 60).max() == 2**36 - 1
    for wrong in ([full, 0], [0, rest], [-1, 0], [0, -1], [0], [0, 0, 0]):
        with pytest.raises(PeerError):
            packing.unpack(wrong, 60)


def test_layouts_that_are_out_of_range_or_do_not_fit_are_refused() -> None:
    for value_bits, guard_bits in ((0, 1), (129, 0), (1, -1), (1, 65)):
        with pytest.raises(UsageError):
            Packing(value_bits, guard_bits, 2048)
    with pytest.raises(UsageError):
        Packing.for_sites(32, 0, 2048)
    assert Packing(60, 4, 65).slots == 1
    with pytest.raises(CapabilityError):
        Packing(60, 4, 64)
