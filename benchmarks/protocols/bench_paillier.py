"""Paillier: packed and fixed-base (secagg), with and without kernels, compared with ordinary phe.

    python -m benchmarks.protocols.bench_paillier [--bits 2048] [--values 100000] [--rounds 3]

The job: 10 clients encrypt a vector of float64 values, a coordinator adds the ciphertexts, a key
holder decrypts the sum. All times are CPU seconds of one core (`time.process_time`). Each round
times phe and both variants of secagg in turn on the same key, and computes ratios, so that a busy
machine slows all of them. All run on fewer values than the job has and are scaled by the number of
values, except secagg's tables: every client pays for them in full, at the size for the whole job.
The time of secagg covers float64 to bytes on the wire and back to float64; that of phe excludes
serialisation. Exit status 1 if a sum is not exact.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import phe
from numpy.typing import NDArray

from benchmarks.harness import portable, timed
from secagg.core.randomness import system_random
from secagg.protocols.kernels.library import available
from secagg.protocols.paillier import cryptosystem
from secagg.protocols.paillier.fixed_base import fixed_base
from secagg.protocols.paillier.keys import PrivateKey, generate_keypair
from secagg.protocols.paillier.packing import Packing

Vectors = NDArray[np.float64]
VALUE_BITS = 32
SCALE = 2.0**28  # 32 value bits: [-8, 8) in steps of 2^-28
OFFSET = 1 << (VALUE_BITS - 1)


@dataclass(frozen=True)
class Cost:
    """CPU seconds of the whole job: all clients' encryption, the addition, the decryption."""

    encrypt: float
    add: float
    decrypt: float

    @property
    def total(self) -> float:
        return self.encrypt + self.add + self.decrypt


def encode(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(values * SCALE).astype(np.int64)


def run_phe(key: PrivateKey, vectors: Vectors, job: int) -> Cost:
    """Encrypt, add and decrypt with phe, value by value."""
    public = phe.PaillierPublicKey(key.public.n)
    private = phe.PaillierPrivateKey(public, key.p, key.q)
    encrypting, columns = timed(lambda: [[public.encrypt(float(x)) for x in v] for v in vectors])
    adding, sums = timed(
        lambda: [sum(numbers[1:], numbers[0]) for numbers in zip(*columns, strict=True)]
    )
    decrypting, decoded = timed(lambda: [private.decrypt(number) for number in sums])
    np.testing.assert_allclose(decoded, vectors.sum(axis=0), rtol=0, atol=1e-12)
    scale = job / vectors.shape[1]
    return Cost(encrypting * scale, adding * scale, decrypting * scale)


def run_secagg(key: PrivateKey, vectors: Vectors, job: int, *, key_holder: bool) -> Cost:
    """Encrypt, add and decrypt packed vectors; raise SystemExit if a sum is wrong."""
    public = key.public
    clients, length = vectors.shape
    packing = Packing.for_sites(VALUE_BITS, clients, public.bits)
    expected = packing.plaintexts(job)

    def encrypted(plaintexts: Sequence[int]) -> Sequence[int]:
        if key_holder:
            return cryptosystem.encrypt_as_key_holder(
                key, plaintexts, system_random, expected=expected
            )
        return cryptosystem.encrypt(public, plaintexts, system_random, expected=expected)

    def client(vector: NDArray[np.float64]) -> bytes:
        ring_values = (encode(vector) + OFFSET).astype(np.uint64)
        return cryptosystem.ciphertexts_to_bytes(public, encrypted(packing.pack(ring_values)))

    def coordinator(messages: list[bytes]) -> bytes:
        count = packing.plaintexts(length)
        columns = [cryptosystem.ciphertexts_from_bytes(public, data, count) for data in messages]
        return cryptosystem.ciphertexts_to_bytes(public, cryptosystem.multiply(public, columns))

    def holder(message: bytes) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        ciphertexts = cryptosystem.ciphertexts_from_bytes(
            public, message, packing.plaintexts(length)
        )
        slots = packing.unpack(cryptosystem.decrypt(key, ciphertexts), length)
        integers = slots[:, 0].astype(np.int64) - clients * OFFSET
        return integers, integers / SCALE

    fixed_base.cache_clear()
    tables, _ = timed(lambda: encrypted([0]))  # builds them, for as many ciphertexts as the job has
    encrypting, messages = timed(lambda: [client(vector) for vector in vectors])
    adding, total = timed(lambda: coordinator(messages))
    decrypting, (integers, _) = timed(lambda: holder(total))
    if not np.array_equal(integers, encode(vectors).sum(axis=0)):
        sys.exit("a sum is not exact")
    scale = job / length
    return Cost(encrypting * scale + clients * tables, adding * scale, decrypting * scale)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bits", type=int, default=2048)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--job", type=int, default=1_000_000, help="values to scale to")
    parser.add_argument("--values", type=int, default=100_000, help="values secagg is run on")
    parser.add_argument("--phe-values", type=int, default=20, help="values phe is run on")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    key = generate_keypair(options.bits, system_random)
    packing = Packing.for_sites(VALUE_BITS, options.clients, options.bits)
    rng = np.random.default_rng(1)
    vectors = rng.normal(0, 0.05, (options.clients, options.values))
    costs: dict[str, list[Cost]] = {}
    for _ in range(options.rounds):
        phe_cost = run_phe(key, vectors[:, : options.phe_values], options.job)
        costs.setdefault("phe", []).append(phe_cost)
        for how, few in (("kernels", 1), ("no kernels", 5)):
            if how == "kernels" and not available():
                continue
            for who, key_holder in (("key holder", True), ("public key", False)):
                with nullcontext() if how == "kernels" else portable():
                    cost = run_secagg(
                        key, vectors[:, : options.values // few], options.job, key_holder=key_holder
                    )
                costs.setdefault(f"{who}, {how}", []).append(cost)

    wire = packing.plaintexts(options.job) * key.public.ciphertext_bytes / options.job
    print(
        f"{options.bits} bits, {options.clients} clients, {options.job} values of {VALUE_BITS} "
        f"bits, {packing.slots} to a ciphertext; CPU s of one core, median of {options.rounds}"
    )
    print(f"{'':22}{'encrypt':>10}{'add':>10}{'decrypt':>10}{'total':>10}  total x phe (range)")
    for name, rounds in costs.items():
        parts = [
            statistics.median(getattr(cost, part) for cost in rounds)
            for part in ("encrypt", "add", "decrypt", "total")
        ]
        ratios = [a.total / b.total for a, b in zip(costs["phe"], rounds, strict=True)]
        print(
            f"{name:22}" + "".join(f"{seconds:10.4g}" for seconds in parts),
            f" {statistics.median(ratios):.0f} ({min(ratios):.0f} to {max(ratios):.0f})",
        )
    print(f"bytes a value: phe {key.public.ciphertext_bytes}, secagg {wire:.2f}; sums exact: yes")


if __name__ == "__main__":
    main()
