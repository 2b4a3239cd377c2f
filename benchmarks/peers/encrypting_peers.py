"""Peers of encrypted sums, each through its public interface: HEU (Paillier), TenSEAL (CKKS).

Each `run_*` takes one vector per client, does the whole job on them and scales its cost to `job`
values; sums are checked. Each package is imported only when it is used.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import timed
from benchmarks.protocols.bench_paillier import OFFSET, SCALE, Cost, Vectors, encode
from secagg.protocols.paillier.packing import Packing


@dataclass(frozen=True)
class Ran:
    """What a job cost, how many bytes a value takes on the wire, and the sums' largest error."""

    cost: Cost
    wire: float
    error: float


def run_job(
    vectors: Vectors,
    job: int,
    encrypt: Callable[[Any], Any],
    add: Callable[[list[Any]], Any],
    decrypt: Callable[[Any], Any],
    wire: Callable[[Any], int],
) -> Ran:
    """Time the three steps on these vectors and scale them to `job` values."""
    length = vectors.shape[1]
    encrypting, ciphertexts = timed(lambda: [encrypt(vector) for vector in vectors])
    adding, total = timed(lambda: add(ciphertexts))
    decrypting, sums = timed(lambda: decrypt(total))
    error = float(np.abs(np.asarray(sums, dtype=float).ravel() - vectors.sum(axis=0)).max())
    assert error < 1e-4
    scale = job / length
    cost = Cost(encrypting * scale, adding * scale, decrypting * scale)
    return Ran(cost, wire(ciphertexts[0]) / length, error)


# --- HEU ------------------------------------------------------------------------------------------


def heu_kit(bits: int) -> Any:
    import heu.numpy as hnp  # noqa: PLC0415  # an optional peer
    from heu import phe as schemes  # noqa: PLC0415

    return hnp.setup(schemes.SchemaType.ZPaillier, bits)


def run_heu(kit: Any, coder: Any, shape: tuple[int, ...], vectors: Vectors, job: int) -> Ran:
    """HEU with one of its own encoders: `shape` (-1,) for single values, (-1, 2) for pairs."""
    return run_job(
        vectors,
        job,
        lambda vector: kit.encryptor().encrypt(kit.array(vector.reshape(shape), coder)),
        functools.partial(functools.reduce, kit.evaluator().add),
        lambda total: kit.decryptor().decrypt(total).to_numpy(coder),
        lambda ciphertext: len(ciphertext.serialize()),
    )


def run_heu_packed(kit: Any, packing: Packing, vectors: Vectors, job: int) -> Ran:
    """HEU's ciphertexts with our packing: as many values per ciphertext as ours."""

    def encrypt(vector: Any) -> Any:
        plaintexts = packing.pack((encode(vector) + OFFSET).astype(np.uint64))
        return kit.encryptor().encrypt(kit.array(np.array(plaintexts, dtype=object)))

    def decrypt(total: Any) -> Any:
        plaintexts = kit.decryptor().decrypt(total).to_numpy(kit.bigint_encoder()).ravel()
        slots = packing.unpack([int(x) for x in plaintexts], vectors.shape[1])[:, 0]
        return (slots.astype(np.int64) - len(vectors) * OFFSET) / SCALE

    add = functools.partial(functools.reduce, kit.evaluator().add)
    return run_job(vectors, job, encrypt, add, decrypt, lambda c: len(c.serialize()))


# --- TenSEAL --------------------------------------------------------------------------------------


def run_tenseal(vectors: Vectors, job: int) -> Ran:
    """CKKS with the parameters that NVFlare provisions, serialised between the parties.

    Another kind of scheme: approximate, and symmetric here, so all clients hold the secret key.
    """
    import tenseal as ts  # noqa: PLC0415  # an optional peer

    context = ts.context(
        ts.SCHEME_TYPE.CKKS,
        poly_modulus_degree=8192,
        coeff_mod_bit_sizes=[60, 40, 40],
        encryption_type=ts.ENCRYPTION_TYPE.SYMMETRIC,
    )
    context.global_scale = 2**40
    blind = ts.context_from(context.serialize(save_secret_key=False))

    def encrypt(vector: Any) -> list[bytes]:
        parts = vector.reshape(-1, 4096)  # the slots of one ciphertext
        return [ts.ckks_vector(context, part).serialize() for part in parts]

    def add(messages: list[list[bytes]]) -> list[bytes]:
        columns = zip(*messages, strict=True)
        loaded = [[ts.ckks_vector_from(blind, part) for part in column] for column in columns]
        return [functools.reduce(operator.add, column).serialize() for column in loaded]

    def decrypt(total: list[bytes]) -> list[list[float]]:
        return [ts.ckks_vector_from(context, part).decrypt() for part in total]

    return run_job(vectors, job, encrypt, add, decrypt, lambda parts: sum(map(len, parts)))
