"""Sources of random bytes. Only this module calls the operating system's generator.

Every function that needs randomness takes a `RandomBytes` argument. In real runs this is
`system_random`. Tests and published vectors pass `replayable_random(seed)`: anyone who knows the
seed can predict its output, so such a run protects nothing, and its report says so.
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
    """Return a generator that repeats its output for an equal `seed`; for tests and vectors."""
    return seeded_random(seed.to_bytes(32, "little"))


def seeded_random(seed: bytes) -> RandomBytes:
    """Return the generator seeded with 32 secret bytes: AES-256 in counter mode.

    Without the seed its output cannot be told from uniform bytes; with it, anyone can repeat it.
    """
    stream = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16))).encryptor()
    return lambda n: stream.update(bytes(n))


def random_below(bound: int, random: RandomBytes) -> int:
    """Return an exactly uniform integer in [0, bound), by rejection sampling."""
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        draw = int.from_bytes(random(size), "little") & ((1 << bits) - 1)
        if draw < bound:
            return draw
