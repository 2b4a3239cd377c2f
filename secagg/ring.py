"""The rings Z_2^64 and Z_2^128 on numpy arrays: where every secure sum happens.

An element is held as little-endian 64-bit limbs. A vector of m elements is a C-contiguous uint64
array of shape (m, limbs): one limb for Z_2^64, two for Z_2^128. Addition wraps, so sums are exact
modulo 2^bits and do not depend on their order; that the true sum lies inside the ring is proved
by `secagg.codec` before any data is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

RingVector = NDArray[np.uint64]
RING_BITS = (64, 128)


def limbs(bits: int) -> int:
    """Return how many 64-bit limbs an element of Z_2^bits has."""
    if bits not in RING_BITS:
        raise ValueError(f"ring of {bits} bits: only {RING_BITS} are implemented")
    return bits // 64


def zeros(length: int, bits: int) -> RingVector:
    """Return the zero vector of `length` elements."""
    return np.zeros((length, limbs(bits)), dtype=np.uint64)


def is_vector(value: object, length: int, bits: int) -> TypeGuard[RingVector]:
    """Return whether `value` is a vector of `length` elements of Z_2^bits."""
    return (
        isinstance(value, np.ndarray)
        and value.dtype == np.uint64
        and value.shape == (length, limbs(bits))
    )


def add(a: RingVector, b: RingVector) -> RingVector:
    """Return a + b elementwise, modulo 2^bits."""
    result = a + b
    if a.shape[1] == 2:
        result[:, 1] += result[:, 0] < a[:, 0]  # the low limb wrapped: carry
    return result


def subtract(a: RingVector, b: RingVector) -> RingVector:
    """Return a - b elementwise, modulo 2^bits."""
    result = a - b
    if a.shape[1] == 2:
        result[:, 1] -= a[:, 0] < b[:, 0]  # the low limb borrowed
    return result


def total(vectors: Iterable[RingVector], length: int, bits: int) -> RingVector:
    """Return the sum of the vectors, modulo 2^bits; of none, zero."""
    result = zeros(length, bits)
    for vector in vectors:
        result = add(result, vector)
    return result


def from_integers(values: Sequence[int], bits: int) -> RingVector:
    """Return integers of any sign and size reduced into the ring (slow; for tests and totals)."""
    size = bits // 8
    mask = (1 << bits) - 1
    data = b"".join((int(v) & mask).to_bytes(size, "little") for v in values)
    return from_bytes(data, bits)


def to_integers(vector: RingVector) -> list[int]:
    """Return the elements as signed integers in [-2^(bits-1), 2^(bits-1)) (slow, exact)."""
    size = vector.shape[1] * 8
    data = to_bytes(vector)
    return [
        int.from_bytes(data[i : i + size], "little", signed=True) for i in range(0, len(data), size)
    ]


def to_bytes(vector: RingVector) -> bytes:
    """Return the elements as little-endian bytes, bits / 8 for each."""
    return vector.astype("<u8", copy=False).tobytes()


def from_bytes(data: bytes | memoryview, bits: int) -> RingVector:
    """Return the vector that `to_bytes` wrote (read-only where it shares `data`)."""
    flat = np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)
    return flat.reshape(-1, limbs(bits))
