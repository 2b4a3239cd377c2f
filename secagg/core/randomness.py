"""Where secrets come from: the one place that names the operating system's generator.

Every function that needs randomness takes a `RandomBytes` argument. In production that is
`system_random`; tests and published vectors pass `replayable_random(seed)`, whose output anyone
who knows the seed can predict: a run that used it protects nothing, and its report says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

RandomBytes = Callable[[int], bytes]
"""`random(n)` returns n fresh uniform bytes."""


def system_random(n: int) -> bytes:
    """Return n bytes of the operating system's cryptographic generator."""
    return os.urandom(n)


def replayable_random(seed: int) -> RandomBytes:
    """Return a generator fixed by `seed`; for tests and vectors only."""
    return expanded(seed.to_bytes(32, "little"))


def expanded(seed: bytes) -> RandomBytes:
    """Return the generator that 32 secret bytes stand for: AES-256 in counter mode.

    To whoever does not know the seed its output looks uniform; whoever does can repeat it.
    """
    stream = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16))).encryptor()
    return lambda n: stream.update(bytes(n))


def random_below(bound: int, random: RandomBytes) -> int:
    """Return a uniform integer in [0, bound), by rejection, so without bias."""
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        draw = int.from_bytes(random(size), "little") & ((1 << bits) - 1)
        if draw < bound:
            return draw
