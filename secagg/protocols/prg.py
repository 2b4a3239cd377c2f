"""A pseudorandom generator from 32-byte seeds to ring vectors: AES-256 in counter mode.

Source: NIST SP 800-38A, section 6.5 (CTR), as a PRG under the usual assumption that AES-256 is a
pseudorandom permutation. A seed is a fresh AES key used for one expansion only, so the counter
starts at zero; expansion is at most 2^32 blocks, far from where a permutation can be told from a
function (2^64 blocks). Not protected: timing of the host (AES runs in hardware where there is any).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secagg import ring
from secagg.ring import RingVector

SEED_BYTES = 32
_BLOCK_ELEMENTS = 1 << 14  # 128 or 256 KiB of key stream at a time stays in the cache


def subtract_in_place(vector: RingVector, seed: bytes) -> None:
    """Subtract the expansion of `seed`, as long as `vector`, without writing it to memory."""
    for part, stream in _blocks(seed, vector):
        part[:] = ring.subtract(part, stream)


def add_in_place(vector: RingVector, seed: bytes) -> None:
    """Add the expansion of `seed`, as long as `vector`, without writing it to memory."""
    for part, stream in _blocks(seed, vector):
        part[:] = ring.add(part, stream)


def _blocks(seed: bytes, vector: RingVector) -> Iterator[tuple[RingVector, RingVector]]:
    """Yield views of `vector` with the key stream that belongs to each (reused buffer)."""
    if len(seed) != SEED_BYTES:
        raise ValueError("a seed has 32 bytes")
    cipher = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16))).encryptor()
    step = min(_BLOCK_ELEMENTS, max(len(vector), 1))
    nothing = bytes(step * vector.shape[1] * 8)
    buffer = bytearray(len(nothing) + 15)  # update_into asks for room for a further block
    for start in range(0, len(vector), step):
        part = vector[start : start + step]
        size = part.size * 8
        cipher.update_into(memoryview(nothing)[:size], buffer)
        stream = np.frombuffer(buffer, dtype="<u8", count=part.size)
        yield part, stream.astype(np.uint64, copy=False).reshape(part.shape)
