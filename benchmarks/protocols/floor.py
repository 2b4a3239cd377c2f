"""The minimal times on this machine: key stream, additions, memory traffic, big multiplications.

Each function does so much of one elementary thing as its argument says, by the fastest means at
hand, and nothing else. A protocol's time is compared with the time of what it cannot do without.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from gmpy2 import mpz

from benchmarks.harness import timed

BLOCK = 1 << 17  # bytes; two or three of these stay in the cache nearest to a core


def key_stream(size: int) -> None:
    """Produce `size` bytes of AES-256 key stream in cached blocks, and drop them."""
    nothing, buffer = bytes(BLOCK), bytearray(BLOCK + 15)
    cipher = Cipher(algorithms.AES256(bytes(32)), modes.GCM(bytes(12))).encryptor()
    for _ in range(-(-size // BLOCK)):
        cipher.update_into(nothing, buffer)


def additions(size: int, ring_bits: int) -> None:
    """Add `size` bytes of ring elements to others, all in the cache (carries of 128 bits not)."""
    kind = np.dtype("u4") if ring_bits == 32 else np.dtype("u8")
    values, others = (np.ones(BLOCK // kind.itemsize, kind) for _ in range(2))
    for _ in range(-(-size // BLOCK)):
        np.add(values, others, out=values)


def masks(count: int, size: int, ring_bits: int) -> float:
    """Return the seconds that `count` masks of `size` bytes take: key stream and additions."""
    return timed(lambda: (key_stream(count * size), additions(count * size, ring_bits)))[0]


def copy(size: int) -> Callable[[], object]:
    """Return a task that copies `size` bytes from memory to memory that is mapped already."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    return functools.partial(np.copyto, target, source)


def add_from_memory(size: int) -> Callable[[], object]:
    """Return a task that adds a vector of `size` bytes in memory to another one, in place."""
    values, others = np.ones(size // 8, np.uint64), np.ones(size // 8, np.uint64)
    return functools.partial(np.add, values, others, out=values)


def products_modulo(bits: int, count: int) -> Callable[[], object]:
    """Return a task of `count` products modulo an odd number of `bits` bits, by GMP."""
    draw = random.Random(bits)
    modulus = mpz(draw.getrandbits(bits) | 1 << (bits - 1) | 1)
    factors = [mpz(draw.getrandbits(bits)) % modulus for _ in range(64)]

    def task() -> None:
        product = factors[0]
        for index in range(count):
            product = product * factors[index & 63] % modulus

    return task
