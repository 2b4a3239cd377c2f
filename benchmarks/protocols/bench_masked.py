"""Masked sums compared with their unavoidable work, and with sums in clear.

    python -m benchmarks.protocols.bench_masked [--quick]

The floor of a step is the key stream of its masks by the cryptography library, and their additions
in the cache (`floor.py`), measured in the same round. secagg's compiled kernel can be faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.harness import Spread, quick_asked, section, table, total
from benchmarks.protocols.floor import masks
from benchmarks.protocols.masked_sums import MaskedAt, MaskedSums
from benchmarks.protocols.sessions import COHORT, SETUP, SUM, run_session
from secagg.protocols.masked.protocol import Masked
from secagg.protocols.plain import Plain

ROUNDS = 3
Row = tuple[object, ...]


def spreads(columns: Sequence[Sequence[float]]) -> list[Spread]:
    """Return a spread for each quantity, from one tuple of quantities a round."""
    return [Spread(tuple(values)) for values in zip(*columns, strict=True)]


def steps(sites: int, degree: int, lost: int, length: int, rounds: int) -> list[Row]:
    """Time the steps that touch the vector, in a first sum and a later one, with their floors."""
    values = np.random.default_rng(sites).normal(0, 0.05, length)
    stayed = sites - lost
    kept = round(degree * stayed / sites)  # neighbours that are still there, on average
    to_remove = stayed + lost * kept
    widths: list[int] = []
    taken: list[tuple[float, ...]] = []
    for _ in range(rounds):
        protocol = MaskedAt(degree=degree, threshold=degree // 2 + 1, least=stayed - 1)
        session = MaskedSums(protocol, sites, values)
        session.run(lost)
        session.run()
        bits = session.plan.ring_bits
        widths.append(bits)
        vector = session.plan.length * bits // 8
        taken.append(
            (
                session.each("site: encode"),
                session.each("site: mask"),
                session.each("later site: mask"),
                session.each("later site: write mask"),
                session.each("server: mask"),
                session.each("server: unmask"),
                *(masks(count, vector, bits) for count in (degree + 1, kept, to_remove)),
            )
        )
    encode, first, later, write, add, unmask, *floors = spreads(taken)
    parts: list[tuple[str, Spread, Spread | None]] = [
        ("site: encode", encode, None),
        (f"site: mask, first sum ({degree + 1} masks)", first, floors[0]),
        (f"site: mask, later sums ({kept} masks)", later, floors[1]),
        ("site: write the message", write, None),
        ("site: whole later upload", total([encode, later, write]), None),
        ("server: add", add, None),
        (f"server: unmask ({to_remove} masks)", unmask, floors[2]),
    ]
    where = f"{sites}, {degree}, {lost}"
    return [
        (where, widths[0], what, spent * 1e3,
         floor * 1e3 if floor else "-", spent.over(floor) if floor else "-")
        for what, spent, floor in parts
    ]  # fmt: skip


def sessions(sites: int, length: int, rounds: int) -> list[Row]:
    """Time whole sessions: a cold one, and the later sums of a warm one."""
    later = 5
    taken: list[tuple[float, ...]] = []
    for _ in range(rounds):
        cold, _ = run_session(Masked(), sites, length)
        warm, _ = run_session(Masked(), sites, length, later)
        clear, _ = run_session(Plain(), sites, length, later)
        upload = next(c.sent for c in cold.costs.values() if (c.part, c.role) == (SUM, "site"))
        floor = masks(sites * (sites - 1), upload // sites, 64)
        taken.append(
            (
                cold.seconds(SETUP, COHORT, SUM),
                warm.seconds(SUM) / later,
                clear.seconds(SUM) / later,
                floor,
            )
        )
    cold_all, warm_sum, clear_sum, floor_all = spreads(taken)
    name = f"{sites} sites, {length:,} values, complete graph"
    return [
        (name, "cold: keys, cohort round, one sum", cold_all * 1e3, "-", "-"),
        (name, "a later sum", warm_sum * 1e3, warm_sum.over(clear_sum), warm_sum.over(floor_all)),
    ]


def many_rounds(sites: int, length: int, sums: int, repeats: int) -> list[Row]:
    """Time a method of very many small sums, masked and in clear."""
    taken = []
    for _ in range(repeats):
        clear, _ = run_session(Plain(), sites, length, sums)
        masked, _ = run_session(Masked(), sites, length, sums)
        taken.append((clear.seconds(SUM) / sums, masked.seconds(SUM) / sums))
    plain, masked_sum = spreads(taken)
    overhead = Spread(tuple(b - a for a, b in taken))
    name = f"{sites} sites, {length} numbers, {sums:,} sums"
    return [
        (name, "a sum in clear", plain * 1e3, 1, "-"),
        (name, "a masked sum", masked_sum * 1e3, masked_sum.over(plain), "-"),
        (name, "overhead of masking", overhead * 1e3, "-", "-"),
    ]


def main() -> None:
    quick = quick_asked(__doc__, "small sizes, once")
    rounds = 1 if quick else ROUNDS
    length = 1000 if quick else 1_000_000
    cases = ((10, 9, 1),) if quick else ((10, 9, 0), (10, 9, 1), (100, 22, 10))
    section(
        f"Masked sums: the steps that touch {length:,} values",
        "Processor time of one party. k is the number of neighbours of a site, and `lost` the "
        "number of sites that drop out.",
        table(
            ("sites, k, lost", "ring", "step", "ms", "floor ms", "x floor"),
            [row for case in cases for row in steps(*case, length, rounds if case[0] < 50 else 2)],
        ),
    )
    sizes = (4, 100) if quick else (10, 100_000)
    section(
        "Masked sums: whole sessions",
        "Processor time of all parties together, with messages, signatures and release rules. A "
        "cold session includes the set-up and the first round.",
        table(
            ("session", "what", "ms", "x clear", "x floor"),
            [
                *sessions(*sizes, rounds),
                *many_rounds(*((4, 5, 3, 1) if quick else (7, 33, 1000, 2))),
            ],
        ),
    )


if __name__ == "__main__":
    main()
