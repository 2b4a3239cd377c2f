"""The path of a long vector: encode, mask, share, frame, add, decode, ring by ring.

    python -m benchmarks.protocols.bench_additive [--quick]

Floors come from the same round (`floor.py`). The unavoidable work of a step is key stream and
additions in the cache, reading and writing memory, or SHA-256 of its bytes. The floor's key stream
comes from a Python library, so our compiled kernel can be faster. For comparison the table includes
numpy's generator, which is suitable for simulation only.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from unittest import mock

import numpy as np

from benchmarks.harness import Spread, interleave, quick_asked, section, table
from benchmarks.protocols import floor
from secagg.contracts import Field, Kind
from secagg.core import ring
from secagg.core.frames import read_frame, write_frame
from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import system_random
from secagg.protocols import prg
from secagg.protocols.additive import split
from secagg.sessions.fixed_point import decode, encode
from secagg.sessions.sum_plan import plan_sum

ROUNDS = 15
BOUND, SITES = 16.0, 10
FRACTION_BITS = {32: 20, 64: 24, 128: 80}
"""for each ring a resolution that needs it, for values up to 16 at 10 sites"""

Task = Callable[[], object]
Row = tuple[object, ...]


def vector_steps(size: int, bits: int, rounds: int) -> list[Row]:
    """Time every step on a vector of Z_2^bits, and its floor."""
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, size)
    plan = plan_sum((Field("x", (size,), BOUND, FRACTION_BITS[bits], Kind.BOUNDED),), SITES)
    assert plan.ring_bits == bits
    vector = encode(plan, {"x": values})
    masked = vector.copy()
    seeds = [system_random(prg.SEED_BYTES) for _ in range(10)]
    length = vector.nbytes
    to_and_from = floor.copy(8 * size)

    def masks(count: int) -> Task:
        return lambda: floor.masks(count, length, bits)

    steps: dict[str, tuple[Task, Task]] = {
        "encode float64": (lambda: encode(plan, {"x": values}), to_and_from),
        "decode to float64": (lambda: decode(plan, vector), to_and_from),
        "1 mask": (lambda: prg.apply_masks(masked, seeds[:1], ()), masks(1)),
        "10 masks in one pass": (lambda: prg.apply_masks(masked, seeds[:5], seeds[5:]), masks(10)),
        "10 masks without the kernel": (lambda: _portable(masked, seeds), masks(10)),
        "share for 3 parties": (lambda: split(vector, 2, system_random), masks(2)),
        "share for 10 parties": (lambda: split(vector, 9, system_random), masks(9)),
        "1 mask of numpy's generator": (lambda: _numpy_mask(rng, masked), masks(1)),
        "add 10 vectors": (
            lambda: ring.total([vector] * 10, plan.length, bits),
            _ten_times(floor.add_from_memory(length)),
        ),
        **_frames(vector),
    }
    return [(f"{bits}", *row) for row in _compare(steps, rounds)]


def _frames(vector: ring.RingVector) -> dict[str, tuple[Task, Task]]:
    """Sign and write, read and verify a message that carries the vector; the floor is its hash."""
    roles = {"coordinator": Role.COORDINATOR, "site": Role.SITE}
    who = {name: Identity.generate(name, role, system_random) for name, role in roles.items()}
    roster = Roster({name: identity.public for name, identity in who.items()})
    session, data = bytes(16), ring.to_bytes(vector)
    write = functools.partial(
        write_frame, who["site"], session, 1, "submit", "coordinator", {"values": vector}
    )
    frame = write()
    return {
        "write a frame": (write, lambda: hashlib.sha256(data)),
        "read a frame": (
            lambda: read_frame(frame, roster, "coordinator", session),
            lambda: hashlib.sha256(data),
        ),
    }


def _portable(vector: ring.RingVector, seeds: list[bytes]) -> None:
    with mock.patch.dict(os.environ, {"SECAGG_KERNELS": "off"}):
        prg.apply_masks(vector, seeds[:5], seeds[5:])


def _ten_times(task: Task) -> Task:
    return lambda: [task() for _ in range(10)]


def _numpy_mask(rng: np.random.Generator, vector: ring.RingVector) -> None:
    top = np.iinfo(vector.dtype).max
    vector += rng.integers(0, top, size=vector.shape, dtype=vector.dtype, endpoint=True)


def _compare(steps: dict[str, tuple[Task, Task]], rounds: int) -> list[Row]:
    """Time steps and floors in turns; return (name, ms, floor ms, ratio) for each step."""
    tasks = {name: step for name, (step, _) in steps.items()}
    floors = {f"floor of {name}": least for name, (_, least) in steps.items()}
    taken: dict[str, Spread] = interleave(tasks | floors, rounds)
    return [
        (name, taken[name] * 1e3, taken[f"floor of {name}"] * 1e3,
         taken[name].over(taken[f"floor of {name}"]))
        for name in tasks
    ]  # fmt: skip


def main() -> None:
    quick = quick_asked(__doc__, "a small vector, once")
    size, rounds = (10_000, 1) if quick else (1_000_000, ROUNDS)
    section(
        f"The path of a vector of {size:,} values",
        f"Processor time of one core; {rounds} repetitions, in turns.",
        table(
            ("ring", "step", "ms", "floor ms", "x floor"),
            [row for bits in ring.RING_BITS for row in vector_steps(size, bits, rounds)],
        ),
    )


if __name__ == "__main__":
    main()
