"""Vectors over the rings Z_2^32, Z_2^64 and Z_2^128, in which all secure sums are computed.

Z_2^w is the ring of the integers modulo 2^w. A vector of m elements is a C-contiguous array of m
rows. A row is one uint32 for w = 32, one uint64 for w = 64, and two uint64 numbers for w = 128, the
low one first. Each of these numbers is called a limb. Numpy's unsigned addition is addition modulo
2^32 or 2^64. For two limbs, the carry of the low limb is added to the high limb. Sums are exact
modulo 2^w and do not depend on the order of the terms. Before any data is read,
`secagg.sessions.sum_plan` checks that the true sum fits into the ring.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

RingVector = NDArray[np.unsignedinteger[Any]]
RING_BITS = (32, 64, 128)

_LIMBS: Final = {32: ("u4", 1), 64: ("u8", 1), 128: ("u8", 2)}
_MAX_CARRIES: Final = 255  # carries that one byte can count
BLOCK_BYTES: Final = 1 << 17


def limbs(bits: int) -> int:
    """Return the number of limbs of an element of Z_2^bits, which are the columns of a vector."""
    return _layout(bits)[1]


def dtype(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the type of one limb of Z_2^bits, in this machine's byte order."""
    return np.dtype(_layout(bits)[0])


def bits_of(vector: RingVector) -> int:
    """Return w, where Z_2^w is the ring of this vector."""
    columns: int = vector.shape[1]
    return 8 * vector.itemsize * columns


def _layout(bits: int) -> tuple[str, int]:
    if bits not in _LIMBS:
        raise ValueError(f"no ring of {bits} bits; choose one of {RING_BITS}")
    return _LIMBS[bits]


def empty(length: int, bits: int) -> RingVector:
    """Return an uninitialised vector of `length` elements."""
    return np.empty((length, limbs(bits)), dtype=dtype(bits))


def zeros(length: int, bits: int) -> RingVector:
    """Return the zero vector of `length` elements."""
    return np.zeros((length, limbs(bits)), dtype=dtype(bits))


def is_vector(value: object, length: int, bits: int) -> TypeGuard[RingVector]:
    """Return whether `value` is a vector of `length` elements of Z_2^bits."""
    return (
        isinstance(value, np.ndarray)
        and value.dtype == dtype(bits)
        and value.shape == (length, limbs(bits))
    )


def signed(vector: RingVector) -> NDArray[np.signedinteger[Any]]:
    """Return a signed view of the elements. If they have two limbs, return that of the high limbs.

    The sign of an entry is the sign of the element.
    """
    return vector[:, -1].view(f"i{vector.itemsize}")


def add(a: RingVector, b: RingVector) -> RingVector:
    """Return a + b elementwise, modulo 2^bits; b may be a single row, added to every row."""
    result = a.copy()
    add_in_place(result, [b])
    return result


def subtract(a: RingVector, b: RingVector) -> RingVector:
    """Return a - b elementwise, modulo 2^bits; b may be a single row, subtracted from every row."""
    result = a.copy()
    subtract_in_place(result, [b])
    return result


def add_in_place(a: RingVector, others: Iterable[RingVector]) -> None:
    """Add each of `others` to a, modulo 2^bits.

    others: each of a's shape or a single row; must not share memory with a
    """
    if a.shape[1] == 1:
        for other in others:
            np.add(a, other, out=a)
        return
    carries = np.zeros(a.shape, np.uint8)
    for count, other in enumerate(others, 1):
        np.add(a, other, out=a)
        carries += np.less(a, other).view(np.uint8)  # the limb wrapped around
        if count % _MAX_CARRIES == 0:
            _apply_carries(np.add, a, carries)
    _apply_carries(np.add, a, carries)


def subtract_in_place(a: RingVector, others: Iterable[RingVector]) -> None:
    """Subtract each of `others` from a, modulo 2^bits; `others` as in `add_in_place`."""
    if a.shape[1] == 1:
        for other in others:
            np.subtract(a, other, out=a)
        return
    borrows = np.zeros(a.shape, np.uint8)
    for count, other in enumerate(others, 1):
        borrows += np.less(a, other).view(np.uint8)  # the limb will borrow
        np.subtract(a, other, out=a)
        if count % _MAX_CARRIES == 0:
            _apply_carries(np.subtract, a, borrows)
    _apply_carries(np.subtract, a, borrows)


def _apply_carries(operation: np.ufunc, a: RingVector, carries: NDArray[np.uint8]) -> None:
    """Add the carries of the low limbs to the high limbs and set them to zero.

    Carries may be collected over several vectors, because the order of additions modulo 2^64 does
    not matter. Carries of the high limbs are dropped (reduction modulo 2^128). They are counted
    only because comparing whole rows is faster than comparing every second limb.
    """
    operation(a[:, 1], carries[:, 0], out=a[:, 1])
    carries[:] = 0


def total(vectors: Iterable[RingVector], length: int, bits: int) -> RingVector:
    """Return the sum of the vectors modulo 2^bits. Without vectors, return the zero vector.

    Raises `ValueError` for a vector of another ring or length. (Numpy would convert or repeat it.)
    """
    result = zeros(length, bits)
    terms = list(vectors)
    if not all(is_vector(term, length, bits) for term in terms):
        raise ValueError(f"every term must be a vector of {length} elements of Z_2^{bits}")
    for rows in blocks(result):
        add_in_place(result[rows], (term[rows] for term in terms))
    return result


def blocks(vector: RingVector) -> Iterator[slice]:
    """Yield slices of rows, in order, 128 KiB each. A few blocks then fit the processor's cache."""
    rows = BLOCK_BYTES // (vector.itemsize * vector.shape[1])
    for start in range(0, len(vector), rows):
        yield slice(start, start + rows)


def from_signed(values: NDArray[np.int64], bits: int) -> RingVector:
    """Return 64-bit integers modulo 2^bits, as a vector; a negative v becomes 2^bits + v."""
    limb = dtype(bits)
    if limbs(bits) == 1:
        return values.astype(f"i{limb.itemsize}").view(limb)[:, np.newaxis]  # wraps: reduction
    return np.stack([values, values >> 63], axis=1).view(limb)  # the high limb extends the sign


def from_integers(values: Sequence[int], bits: int) -> RingVector:
    """Return integers of any sign and size modulo 2^bits, as a vector to change (slow)."""
    size = bits // 8
    mask = (1 << bits) - 1
    data = b"".join((int(v) & mask).to_bytes(size, "little") for v in values)
    return from_bytes(data, bits).copy()


def to_integers(vector: RingVector) -> list[int]:
    """Return the elements as signed Python integers in [-2^(bits-1), 2^(bits-1)) (slow)."""
    size = bits_of(vector) // 8
    data = to_bytes(vector)
    return [
        int.from_bytes(data[i : i + size], "little", signed=True) for i in range(0, len(data), size)
    ]


def to_bytes(vector: RingVector) -> bytes:
    """Return the elements as little-endian bytes, bits / 8 bytes for each."""
    return vector.astype(vector.dtype.newbyteorder("<"), copy=False).tobytes()


def from_bytes(data: bytes | memoryview, bits: int) -> RingVector:
    """Return the vector that `to_bytes` wrote. It is read-only if it shares memory with `data`."""
    limb = dtype(bits)
    flat = np.frombuffer(data, dtype=limb.newbyteorder("<")).astype(limb, copy=False)
    return flat.reshape(-1, limbs(bits))
