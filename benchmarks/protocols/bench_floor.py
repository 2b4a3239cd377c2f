"""The speed of this machine, and the cost of Paillier relative to the products that it needs.

    python -m benchmarks.protocols.bench_floor [--quick]

The floor is products of big integers by GMP, one at a time: the limit of the portable path. The
kernels multiply eight at a time and can be faster. `bench_additive.py` and `bench_masked.py`
compare vectors and masked sums with their floors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.harness import Spread, interleave, number, quick_asked, section, table
from benchmarks.protocols.floor import (
    BLOCK,
    add_from_memory,
    additions,
    copy,
    key_stream,
    products_modulo,
)
from secagg.core.randomness import random_below, system_random
from secagg.protocols.kernels.library import available
from secagg.protocols.paillier import cryptosystem
from secagg.protocols.paillier.fixed_base import choose_window
from secagg.protocols.paillier.keys import generate_keypair

BITS, SITES, JOB, ROUNDS = 2048, 10, 18_000, 5
"""key, sites, ciphertexts a client makes in all: 1M values"""
PRODUCTS = 300


@dataclass(frozen=True)
class Work:
    """One operation: what it cannot do without, and the two tasks to be timed against each other.

    units: how much of `floor` the operation needs, where that task does a part only
    """

    needs: str
    floor: Callable[[], object]
    task: Callable[[], object]
    units: float = 1.0


def ciphertexts(count: int) -> dict[str, Work]:
    """Paillier operations on `count` ciphertexts; tables are made before."""
    key = generate_keypair(BITS, system_random)
    public = key.public
    plain = [random_below(public.n, system_random) for _ in range(count)]
    half = (BITS + 1) // 2
    n, p = (
        -(-half // choose_window(half, bits, JOB, kernels=available()))
        for bits in (BITS, BITS // 2)
    )
    modulo_square = products_modulo(2 * BITS, PRODUCTS)
    modulo_n = products_modulo(BITS, PRODUCTS)  # as long as p^2
    modulo_p = products_modulo(BITS // 2, PRODUCTS)
    encrypted = cryptosystem.encrypt(public, plain, system_random, expected=JOB)
    cryptosystem.encrypt_as_key_holder(key, plain, system_random, expected=JOB)
    power = BITS // 2 * 1.2  # squarings, and a product for every five bits
    return {
        "encrypt with the public key": Work(
            f"{n} products modulo n",
            modulo_n,
            lambda: cryptosystem.encrypt(public, plain, system_random, expected=JOB),
            n * count / PRODUCTS,
        ),
        "encrypt as key holder": Work(
            f"2 x {p} products modulo p",
            modulo_p,
            lambda: cryptosystem.encrypt_as_key_holder(key, plain, system_random, expected=JOB),
            2 * p * count / PRODUCTS,
        ),
        f"add {SITES}": Work(
            f"{SITES - 1} products modulo n^2",
            modulo_square,
            lambda: cryptosystem.multiply(public, [encrypted] * SITES),
            (SITES - 1) * count / PRODUCTS,
        ),
        "decrypt": Work(
            f"2 x {number(power)} products modulo p^2",
            modulo_n,
            lambda: cryptosystem.decrypt(key, encrypted),
            2 * power * count / PRODUCTS,
        ),
    }


def against_floor(works: dict[str, Work], rounds: int, each: float) -> str:
    """Return the table of operations; `each` turns seconds into microseconds a piece."""
    tasks: dict[str, Callable[[], object]] = {}
    for name, work in works.items():
        tasks |= {f"floor of {name}": work.floor, name: work.task}
    taken = interleave(tasks, rounds, warm=True)
    rows = []
    for name, work in works.items():
        floor = taken[f"floor of {name}"] * work.units
        rows.append((name, work.needs, floor * each, taken[name] * each, taken[name].over(floor)))
    return table(("operation", "needs", "floor us", "measured us", "x floor"), rows)


def rates(rounds: int, scale: int) -> str:
    """Return the table of elementary rates on this machine."""
    size = 64 * BLOCK * scale
    taken = interleave(
        {
            "random bytes of the operating system": lambda: system_random(size),
            "AES-256 key stream, cached blocks": lambda: key_stream(size),
            "32-bit additions in the cache": lambda: additions(size, 32),
            "64-bit additions in the cache": lambda: additions(size, 64),
            "copy, memory to memory": copy(size),
            "addition, memory to memory": add_from_memory(size),
        },
        rounds,
    )
    per_second = [
        (name, Spread(tuple(size / 1e9 / s for s in spread.values)), "GB/s")
        for name, spread in taken.items()
    ]
    products = interleave(
        {f"product modulo {bits} bits (GMP)": products_modulo(bits, PRODUCTS)
         for bits in (BITS // 2, BITS, 2 * BITS)},
        rounds,
    )  # fmt: skip
    each = [(name, spread * (1e6 / PRODUCTS), "us") for name, spread in products.items()]
    return table(("elementary work", "", "unit"), [*per_second, *each])


def main() -> None:
    quick = quick_asked(__doc__, "small sizes, once")
    rounds = 1 if quick else ROUNDS
    count = 8 if quick else 512
    section(
        "What this machine does, and Paillier against it",
        f"Keys of {BITS} bits, tables made before. The second table is for one ciphertext.",
        rates(rounds, 1 if quick else 8),
        against_floor(ciphertexts(count), rounds, 1e6 / count),
    )


if __name__ == "__main__":
    main()
