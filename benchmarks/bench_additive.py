"""Encoding and additive sharing of 1M values, in processor milliseconds of one core.

    python benchmarks/bench_additive.py [values]

Compared in the same run with what numpy alone would cost: a copy (the memory floor) and shares
drawn with the insecure numpy generator, and the AES key stream that the shares need (the cipher
floor). Medians over interleaved rounds of `time.process_time`, so threads count too.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secagg import ring
from secagg.codec import decode, encode, plan_sum
from secagg.contracts import Field, Kind
from secagg.protocols import prg
from secagg.protocols.additive import split
from secagg.randomness import system_random

ROUNDS = 21


def main(size: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, size)
    plan = plan_sum((Field("x", (size,), 16.0, 24, Kind.BOUNDED),), 10)
    vector = encode(plan, {"x": values})
    seeds, remainder = split(vector, 2, system_random)
    assert np.array_equal(_combine(remainder, seeds), vector)

    tasks: dict[str, Callable[[], object]] = {
        "copy the vector (memory floor)": vector.copy,
        "AES key stream of two shares (cipher floor)": lambda: _key_stream(2 * 8 * size),
        "encode float64 to Z_2^64": lambda: encode(plan, {"x": values}),
        "decode": lambda: decode(plan, vector),
        "share for 3 parties (2 seeds)": lambda: split(vector, 2, system_random),
        "share for 10 parties (9 seeds)": lambda: split(vector, 9, system_random),
        "shares for 3 parties with numpy's generator": lambda: _numpy_shares(rng, vector),
        "combine 3 shares": lambda: _combine(remainder, seeds),
    }
    taken = measure(tasks)
    floor = taken["AES key stream of two shares (cipher floor)"]
    print(f"{size:,} values, processor ms of one core, median of {ROUNDS} interleaved rounds")
    for name, milliseconds in taken.items():
        print(f"  {name:46} {milliseconds:8.2f} ms   {milliseconds / floor:6.2f} x cipher floor")
    print("bars at 1M values: share for 3 parties 6 ms, encode 2 ms")


def measure(tasks: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return each task's median processor time in ms, the tasks taking turns."""
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(ROUNDS):
        for name, task in tasks.items():
            began = time.process_time()
            task()
            taken[name].append(1e3 * (time.process_time() - began))
    return {name: statistics.median(times) for name, times in taken.items()}


def _key_stream(size: int) -> int:
    """Produce `size` bytes of AES-256-CTR in cached blocks, and drop them."""
    nothing, buffer = bytes(1 << 17), bytearray((1 << 17) + 15)
    cipher = Cipher(algorithms.AES256(bytes(32)), modes.CTR(bytes(16))).encryptor()
    for _ in range(size >> 17):
        cipher.update_into(nothing, buffer)
    return size


def _numpy_shares(rng: np.random.Generator, vector: ring.RingVector) -> ring.RingVector:
    remainder = vector.copy()
    for _ in range(2):
        remainder -= rng.integers(0, 1 << 64, size=vector.shape, dtype=np.uint64)
    return remainder


def _combine(remainder: ring.RingVector, seeds: list[bytes]) -> ring.RingVector:
    total = remainder.copy()
    for seed in seeds:
        prg.add_in_place(total, seed)
    return total


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
