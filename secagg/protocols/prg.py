"""A pseudorandom generator from 32-byte seeds to ring vectors: AES-256 in counter mode.

Source: NIST SP 800-38A, section 6.5 (CTR), as a PRG under the usual assumption that AES-256 is a
pseudorandom permutation. A seed is a fresh AES key used for one expansion only, so every expansion
may use the same counter blocks: those of GCM with a nonce of zeros (NIST SP 800-38D, section 7.1),

    stream(seed) = AES(seed, T_2) || AES(seed, T_3) || ...,    T_i = i as 16 bytes, big-endian.

Element by element, w / 8 bytes of the stream each, little-endian, are the vector of Z_2^w.

There are two ways to make it, and both give the same bits: the compiled kernel (`kernels.masks`)
where it runs, and GCM encryption of zeros, which *is* this stream. Why GCM's counters: the GCM code
of the library uses the wide AES instructions that its CTR code does not, which makes it 1.3 times
as fast with its checksum, unwanted here, included. The checksum is never asked for. GCM keeps
counter blocks 0 and 1 to itself, hence the start at 2; the last 32 bits count, so a seed gives at
most 2^32 - 2 blocks (64 GiB), far from where a permutation can be told from a function (2^64).

Not protected: timing of the host (AES runs in hardware where there is any).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from secagg.core import ring
from secagg.core.ring import RingVector
from secagg.protocols.kernels import aes

SEED_BYTES = 32
_MAX_BYTES = 16 * (2**32 - 2)
_ZEROS = bytes(ring.BLOCK_BYTES)


def apply_masks(vector: RingVector, add: Sequence[bytes], subtract: Sequence[bytes]) -> None:
    """Add the expansions of some seeds and subtract those of others, in place.

    One pass over the vector: all masks of a block are made and used while it is in the cache.

    vector: of any ring, C-contiguous and writable; on return, with all the masks
    Raises `ValueError` for another vector, a seed of another length, or a vector over 64 GiB.
    """
    if not ring.is_vector(vector, len(vector), ring.bits_of(vector)):
        raise ValueError("masks are applied to vectors of a ring, in this machine's byte order")
    if not (vector.flags.c_contiguous and vector.flags.writeable):
        raise ValueError("masks are applied in place: to a contiguous, writable vector")
    if vector.nbytes > _MAX_BYTES:
        raise ValueError(f"a seed expands to at most {_MAX_BYTES} bytes")
    if any(len(seed) != SEED_BYTES for seed in (*add, *subtract)):
        raise ValueError(f"a seed has {SEED_BYTES} bytes")
    if aes.available():
        aes.apply(vector, add, subtract)
    else:
        _apply_portably(vector, add, subtract)


def _apply_portably(vector: RingVector, add: Sequence[bytes], subtract: Sequence[bytes]) -> None:
    added, subtracted = [_cipher(seed) for seed in add], [_cipher(seed) for seed in subtract]
    # The library asks for room for one more AES block.
    buffer = bytearray(min(vector.nbytes, ring.BLOCK_BYTES) + 15)
    for rows in ring.blocks(vector):
        part = vector[rows]
        if added:
            ring.add_in_place(part, _expand(added, buffer, part))
        if subtracted:
            ring.subtract_in_place(part, _expand(subtracted, buffer, part))


def _cipher(seed: bytes) -> CipherContext:
    return Cipher(algorithms.AES256(seed), modes.GCM(bytes(12))).encryptor()


def _expand(
    ciphers: Iterable[CipherContext], buffer: bytearray, like: RingVector
) -> Iterator[RingVector]:
    """Yield the next part of each stream, shaped as `like`, one after the other in `buffer`."""
    zeros = memoryview(_ZEROS)[: like.nbytes]
    stream = np.frombuffer(buffer, like.dtype.newbyteorder("<"), like.size).reshape(like.shape)
    for cipher in ciphers:
        cipher.update_into(zeros, buffer)
        yield stream
