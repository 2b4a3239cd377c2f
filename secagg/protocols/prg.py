"""A pseudorandom generator: it computes long vectors (masks) from seeds of 32 bytes, by AES-256.

Source: AES in counter mode, NIST SP 800-38A, section 6.5. Under the usual assumption that AES-256
is a pseudorandom permutation, this is a pseudorandom generator. A seed is a fresh AES key and is
used only once. So all seeds can be used with the same counter blocks T_i, which are those of GCM
with a nonce of zeros (NIST SP 800-38D, section 7.1):

    stream(seed) = AES(seed, T_2) || AES(seed, T_3) || ...,    T_i = i as 16 bytes, big-endian.

Each element of the vector, an integer modulo 2^w, is the next w / 8 bytes of the stream,
little-endian.

There are two implementations, with the same output. If the processor supports it, the compiled
kernel (`kernels.aes`) is used. Otherwise zeros are encrypted with GCM by the library cryptography.
There GCM is 1.3 times as fast as CTR, because only its GCM code uses wide AES instructions. The
checksum of GCM is computed but not used. GCM reserves counter blocks 0 and 1, so the stream starts
at 2. The counter has 32 bits, so a seed gives at most 2^32 - 2 blocks (64 GiB). Blocks of one seed
never repeat, whereas random blocks sometimes do. An attacker could notice this only after some 2^64
blocks.

Not protected: timing, if AES does not run in hardware.
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
    """Change a vector in place: add the masks of the seeds `add`, subtract those of `subtract`.

    The vector is processed in blocks, so that a block stays in the cache while its masks are
    computed.

    vector: as in `secagg.core.ring`, C-contiguous and writable
    add, subtract: seeds of 32 bytes
    Raises `ValueError` for another vector, a seed of another length, or a vector above 64 GiB.
    """
    if not ring.is_vector(vector, len(vector), ring.bits_of(vector)):
        raise ValueError("the vector must be a ring vector in this machine's byte order")
    if not (vector.flags.c_contiguous and vector.flags.writeable):
        raise ValueError("the vector must be contiguous and writable")
    if vector.nbytes > _MAX_BYTES:
        raise ValueError(f"the vector must have at most {_MAX_BYTES} bytes")
    if any(len(seed) != SEED_BYTES for seed in (*add, *subtract)):
        raise ValueError(f"a seed must have {SEED_BYTES} bytes")
    if aes.available():
        aes.apply(vector, add, subtract)
    else:
        _apply_portably(vector, add, subtract)


def _apply_portably(vector: RingVector, add: Sequence[bytes], subtract: Sequence[bytes]) -> None:
    added, subtracted = [_cipher(seed) for seed in add], [_cipher(seed) for seed in subtract]
    # The library requires room for one more AES block.
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
    """Yield the next part of each stream, in the shape of `like`; all parts reuse `buffer`."""
    zeros = memoryview(_ZEROS)[: like.nbytes]
    stream = np.frombuffer(buffer, like.dtype.newbyteorder("<"), like.size).reshape(like.shape)
    for cipher in ciphers:
        cipher.update_into(zeros, buffer)
        yield stream
