"""Packing of many values into one Paillier plaintext, which is a large integer divided into slots.

Source: the packing of C. Zhang et al., "BatchCrypt: efficient homomorphic encryption for cross-silo
federated learning" (USENIX ATC 2020), but here values are already non-negative. Value i of a
vector is in plaintext i // slots, and begins at bit (i % slots) slot_bits:

    plaintext = sum over j of value_j 2^(j slot_bits),    slot_bits = value_bits + guard_bits.

**Sums do not overflow their slots.** Values are at most 2^value_bits - 1. With at most 2^guard_bits
summands, a slot of the sum is at most 2^guard_bits (2^value_bits - 1) < 2^slot_bits. All slots
together are below 2^(slots slot_bits) <= 2^(modulus_bits - 1) <= n, so the sum modulo n is the sum
itself. Hence the sum of packed integers contains the sum of the vectors, slot by slot, exactly.

Not protected: if a site's values exceed their range, or if there are more than 2^guard_bits
summands, slots overflow into neighbouring slots. `unpack` detects only an overflow of the last
slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.core.ring import RingVector
from secagg.errors import CapabilityError, PeerError, UsageError
from secagg.protocols.paillier.integers import Integers

Limbs = NDArray[np.uint64]

MAX_VALUE_BITS = 128
MAX_GUARD_BITS = 64
_ALL_ONES = (1 << 64) - 1
_BLOCK = 64  # plaintexts processed together; each bit takes one byte, and all must fit the cache


@dataclass(frozen=True)
class Packing:
    """How values are packed into plaintexts.

    value_bits: values are in [0, 2^value_bits); 1 to 128
    guard_bits: room for sums of up to 2^guard_bits values; 0 to 64
    modulus_bits: length of the Paillier modulus; a plaintext has at most one bit less
    Raises `CapabilityError` if not even one slot fits, `UsageError` for other lengths.
    """

    value_bits: int
    guard_bits: int
    modulus_bits: int

    def __post_init__(self) -> None:
        if not (1 <= self.value_bits <= MAX_VALUE_BITS and 0 <= self.guard_bits <= MAX_GUARD_BITS):
            raise UsageError(
                "packing", f"slots of {self.value_bits} + {self.guard_bits} bits are not supported"
            )
        if self.slots < 1:
            raise CapabilityError(
                "packing",
                f"a slot of {self.slot_bits} bits does not fit a {self.modulus_bits}-bit modulus",
            )

    @classmethod
    def for_sites(cls, value_bits: int, sites: int, modulus_bits: int) -> Packing:
        """Return the packing for sums over `sites` >= 1: guard_bits = ceil(log2(sites))."""
        if sites < 1:
            raise UsageError("packing", f"the number of sites must be at least 1, not {sites}")
        return cls(value_bits, (sites - 1).bit_length(), modulus_bits)

    @property
    def slot_bits(self) -> int:
        """Bits of one slot."""
        return self.value_bits + self.guard_bits

    @property
    def slots(self) -> int:
        """Values in one plaintext."""
        return (self.modulus_bits - 1) // self.slot_bits

    @property
    def limbs(self) -> int:
        """64-bit limbs of an unpacked slot: 1, 2 or 3."""
        return -(-self.slot_bits // 64)

    def plaintexts(self, values: int) -> int:
        """Return how many plaintexts hold a vector of `values` values."""
        return -(-values // self.slots)

    def pack(self, values: RingVector) -> Integers:
        """Return the plaintexts of a vector of m values, as integers in [0, 2^(modulus_bits-1)).

        values: a `secagg.core.ring` vector of any ring; or uint64, shape (m,)
        Raises `UsageError` for a value of more than `value_bits` bits.
        """
        rows = values[:, np.newaxis] if values.ndim == 1 else values
        count = self.plaintexts(len(rows))
        for index, limb in enumerate(rows.T):
            if np.any(limb > _limb_mask(self.value_bits, index)):
                raise UsageError("packing", f"a value has more than {self.value_bits} bits")
        width = max(self.limbs, rows.shape[1])
        limbs = np.zeros((count, self.slots, width), dtype="<u8")
        limbs.reshape(count * self.slots, width)[: len(rows), : rows.shape[1]] = rows
        slots = limbs.view(np.uint8)
        plaintexts = np.empty((count, self._size), dtype=np.uint8)
        # Expand the used bits of each slot to one byte per bit, join the slots, and pack the bits.
        for block in _blocks(count):
            bits = np.unpackbits(slots[block], axis=2, count=self.slot_bits, bitorder="little")
            bits = bits.reshape(-1, self.slots * self.slot_bits)
            plaintexts[block] = np.packbits(bits, axis=1, bitorder="little")
        return Integers(plaintexts)

    def unpack(self, plaintexts: Sequence[int], values: int) -> Limbs:
        """Return the slots of plaintexts, as uint64 of shape (values, limbs), lowest limb first.

        plaintexts: the plaintexts of a vector, or of a sum of vectors
        values: length of the vector
        Raises `PeerError` if the number of plaintexts is not `plaintexts(values)`, if a plaintext
        is negative or exceeds its slots, or if the last plaintext exceeds the slots in use.
        """
        count = self.plaintexts(values)
        if len(plaintexts) != count:
            raise PeerError(
                "packing", f"{values} values require {count} plaintexts, not {len(plaintexts)}"
            )
        last_bits = (values - (count - 1) * self.slots) * self.slot_bits
        too_wide = PeerError("packing", "a plaintext exceeds its slots")
        try:
            integers = Integers.of(plaintexts, self._size, below=1 << self.slots * self.slot_bits)
        except OverflowError:
            raise too_wide from None
        if count and integers[-1].bit_length() > last_bits:
            raise too_wide
        limbs = np.zeros((count, self.slots, self.limbs), dtype="<u8")
        slots = limbs.view(np.uint8)[:, :, : -(-self.slot_bits // 8)]
        for block in _blocks(count):
            bits = np.unpackbits(
                integers.rows[block], axis=1, count=self.slots * self.slot_bits, bitorder="little"
            )
            bits = bits.reshape(-1, self.slots, self.slot_bits)
            slots[block] = np.packbits(bits, axis=2, bitorder="little")
        return limbs.reshape(-1, self.limbs)[:values].astype(np.uint64, copy=False)

    @property
    def _size(self) -> int:
        """Bytes of a plaintext."""
        return -(-self.slots * self.slot_bits // 8)


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))


def _limb_mask(bits: int, index: int) -> int:
    """Return limb `index` of 2^bits - 1: the largest limb of a number of `bits` bits."""
    return ((1 << bits) - 1) >> (64 * index) & _ALL_ONES
