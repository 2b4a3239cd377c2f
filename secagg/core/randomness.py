"""Sources of random bytes. Only this module calls the operating system's generator.

Every function that needs random numbers has an argument of type `RandomBytes`. In real runs the
argument is `system_random`. Tests and published test vectors use `replayable_random(seed)`. Anyone
who knows this seed can compute the random numbers, so such a run protects nothing, and its report
says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

RandomBytes = Callable[[int], bytes]
"""`random(n)` returns n fresh uniform bytes."""


def system_random(n: int) -> bytes:
    """Return n bytes from the operating system's cryptographic generator."""
    return os.urandom(n)


def replayable_random(seed: int) -> RandomBytes:
    """Return a generator that gives equal output for equal seeds; for tests and test vectors."""
    return seeded_random(seed.to_bytes(32, "little"))


def seeded_random(seed: bytes) -> RandomBytes:
    """Return a generator of pseudorandom bytes, computed by AES-256 in counter mode.

    seed: 32 secret bytes. Whoever knows the seed can compute the output. For everyone else, the
        output cannot be distinguished from uniform random bytes
    """
    stream = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16))).encryptor()
    return lambda n: stream.update(bytes(n))


def random_below(bound: int, random: RandomBytes) -> int:
    """Return an integer in [0, bound), exactly uniform, by rejection sampling."""
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        draw = int.from_bytes(random(size), "little") & ((1 << bits) - 1)
        if draw < bound:
            return draw
