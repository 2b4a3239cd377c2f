"""Encrypted sums compared with other libraries: phe, HEU, TenSEAL. Same job, same run.

    python -m benchmarks.peers.bench_peers [--quick]

The job is that of `bench_paillier`: 10 clients encrypt 1M float64 values each, a coordinator adds,
a key holder decrypts; 2048 bits. Every peer runs through its public interface on as many values as
it can process in about a second. The result is scaled, since the cost per value is constant. Peers
that are not installed are skipped and listed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import (
    Spread,
    interleave,
    number,
    portable,
    quick_asked,
    section,
    table,
    version,
)
from benchmarks.peers.encrypting_peers import Ran, heu_kit, run_heu, run_heu_packed, run_tenseal
from benchmarks.protocols.bench_paillier import SCALE, VALUE_BITS, Vectors, run_phe, run_secagg
from secagg.core.randomness import random_below, system_random
from secagg.protocols.kernels.library import available
from secagg.protocols.paillier import cryptosystem
from secagg.protocols.paillier.keys import PrivateKey, generate_keypair
from secagg.protocols.paillier.packing import Packing

BITS, CLIENTS, JOB, ROUNDS = 2048, 10, 1_000_000, 3
CIPHERTEXTS = 256
"""for the table of single operations"""
PHE = "phe, value by value"


@dataclass
class Peer:
    """One way to do the job.

    package: what has to be installed; values: how many of each client's it is run on
    """

    name: str
    package: str
    values: int
    run: Callable[[Vectors, int], Ran]


def peers(key: PrivateKey, quick: bool) -> list[Peer]:
    """Return every peer that is installed; phe and ours always are."""
    packing = Packing.for_sites(VALUE_BITS, CLIENTS, BITS)
    unpacked = float(key.public.ciphertext_bytes)
    packed = packing.plaintexts(JOB) * unpacked / JOB

    def phe(vectors: Vectors, job: int) -> Ran:
        return Ran(run_phe(key, vectors, job), unpacked, 0.0)

    def ours(key_holder: bool, vectors: Vectors, job: int) -> Ran:
        cost = run_secagg(key, vectors, job, key_holder=key_holder)
        return Ran(cost, packed, CLIENTS * 0.5 / SCALE)

    def ours_portable(vectors: Vectors, job: int) -> Ran:
        with portable():
            return ours(True, vectors, job)

    few, pages, many = (2, 1, 500) if quick else (20, 10, 50_000)
    found = [
        Peer(PHE, "phe", few, phe),
        Peer("secagg, key holder", "secagg", many, functools.partial(ours, True)),
        Peer("secagg, public key", "secagg", many, functools.partial(ours, False)),
    ]
    if available():
        slow = Peer("secagg, key holder, kernels off", "secagg", many // 5, ours_portable)
        found.append(slow)
    if version("sf-heu"):
        kit = heu_kit(BITS)
        one, two = kit.float_encoder(int(SCALE)), kit.batch_float_encoder(int(SCALE), 32)
        single, pairs = ((kit, one, (-1,)), (kit, two, (-1, 2)))
        filled = functools.partial(run_heu_packed, kit, packing)
        found += [
            Peer("HEU, float encoder", "sf-heu", 5 * few, functools.partial(run_heu, *single)),
            Peer("HEU, batch encoder", "sf-heu", 5 * few, functools.partial(run_heu, *pairs)),
            Peer("HEU, packed by us", "sf-heu", 3 * few * packing.slots, filled),
        ]
    if version("tenseal"):
        found.append(Peer("TenSEAL CKKS as in NVFlare", "tenseal", 4096 * pages, run_tenseal))
    return found


def whole_job(key: PrivateKey, rounds: int, quick: bool) -> str:
    """Return the table of the job, peers taking turns."""
    found = peers(key, quick)
    rng = np.random.default_rng(1)
    vectors = rng.normal(0, 0.05, (CLIENTS, max(peer.values for peer in found)))
    ran: dict[str, list[Ran]] = {peer.name: [] for peer in found}
    for _ in range(rounds):
        for peer in found:
            ran[peer.name].append(peer.run(vectors[:, : peer.values], JOB))

    def seconds(name: str, part: str) -> Spread:
        return Spread(tuple(getattr(run.cost, part) for run in ran[name]))

    rows = [
        (
            f"{peer.name} ({version(peer.package)})",
            *(number(seconds(peer.name, part).median) for part in ("encrypt", "add", "decrypt")),
            seconds(peer.name, "total"),
            seconds(PHE, "total").over(seconds(peer.name, "total")),
            number(ran[peer.name][0].wire),
            f"{max(run.error for run in ran[peer.name]):.0e}",
            f"{peer.values:,}",
        )
        for peer in found
    ]
    head = ("", "encrypt s", "add s", "decrypt s", "all s", "phe / this", "bytes a value",
            "error up to", "values run")  # fmt: skip
    return table(head, rows)


def without_kernels(step: Callable[[], object]) -> Callable[[], object]:
    """Return the step, run by the portable code."""

    def portably() -> object:
        with portable():
            return step()

    return portably


def single_operations(key: PrivateKey, rounds: int) -> str:
    """Return the table of single ciphertexts: ours and HEU's, without packing and tables."""
    public, random = key.public, system_random
    job = Packing.for_sites(VALUE_BITS, CLIENTS, BITS).plaintexts(JOB)
    plaintexts = [random_below(public.n >> 8, random) for _ in range(CIPHERTEXTS)]
    holder = functools.partial(
        cryptosystem.encrypt_as_key_holder, key, plaintexts, random, expected=job
    )
    encrypt = functools.partial(cryptosystem.encrypt, public, plaintexts, random, expected=job)
    short = functools.partial(encrypt, short_exponent_assumption=True)
    columns = [encrypt()] * CLIENTS
    steps: list[tuple[str, str, Callable[[], object]]] = [
        ("encrypt", ", key holder", holder),
        ("encrypt", ", public key", encrypt),
        ("encrypt", ", public key, 256-bit exponents", short),
        ("add 10", "", lambda: cryptosystem.multiply(public, columns)),
        ("decrypt", "", lambda: cryptosystem.decrypt(key, columns[0])),
    ]
    ours = {(what, f"secagg{how}"): step for what, how, step in steps}
    if available():
        ours |= {(what, f"secagg{how}, kernels off"): without_kernels(step)
                 for what, how, step in steps}  # fmt: skip
    theirs: dict[tuple[str, str], Callable[[], object]] = {}
    if version("sf-heu"):
        kit = heu_kit(BITS)
        encoded = kit.array(np.array(plaintexts, dtype=object))
        encryptor, evaluator, decryptor = kit.encryptor(), kit.evaluator(), kit.decryptor()
        encrypted = [encryptor.encrypt(encoded) for _ in range(CLIENTS)]
        theirs = {
            ("encrypt", "HEU"): lambda: encryptor.encrypt(encoded),
            ("add 10", "HEU"): lambda: functools.reduce(evaluator.add, encrypted),
            ("decrypt", "HEU"): lambda: decryptor.decrypt(encrypted[0]),
        }
    taken = interleave({**ours, **theirs}, rounds, warm=True)
    rows = [
        (*task, taken[task] * (1e6 / CIPHERTEXTS),
         taken[task[0], "HEU"].over(taken[task]) if theirs else "-")
        for task in ours
    ]  # fmt: skip
    rows += [(*task, taken[task] * (1e6 / CIPHERTEXTS), 1) for task in theirs]
    return table(("operation", "", "us a ciphertext", "HEU / this"), rows)


def main() -> None:
    quick = quick_asked(__doc__, "few values, once")
    rounds = 1 if quick else ROUNDS
    key = generate_keypair(BITS, system_random)
    missing = [name for name in ("sf-heu", "tenseal") if not version(name)]
    section(
        "Encrypted sums against their peers",
        f"{CLIENTS} clients, {JOB:,} values each, {BITS} bits; processor seconds, scaled from the "
        f"number of values in the last column; {rounds} repetitions, in turns. "
        f"Not installed: {', '.join(missing) or 'none'}.",
        whole_job(key, rounds, quick),
        single_operations(key, rounds),
    )


if __name__ == "__main__":
    main()
