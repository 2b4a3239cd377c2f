"""Masked sums against Flower's SecAgg+, step by step, on the same vectors in the same run.

    python -m benchmarks.peers.bench_flower [--quick]

secagg and Flower clip values at 8 and round them to steps of at most 2^-18. Clients have equally
many neighbours and the same thresholds. Flower's masks come from MT19937 with seeds of at most 32
bits (its issue 7522), and ours from AES-256 with keys from X25519. So the times compare the steps,
not methods of equal security. If flwr is not installed, only secagg's times are printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Spread, number, section, size, table, version
from benchmarks.protocols.masked_sums import MaskedAt, MaskedSums

CASES = ((10, 9, 0), (10, 9, 1), (100, 22, 0), (100, 22, 10), (100, 50, 0), (100, 50, 10))
"""(clients, neighbours, clients that fall silent after they shared their secrets)"""
VALUES = 1_000_000
ROUNDS = {10: 3, 100: 2}
STEPS = ("client: share", "client: mask", "server: add", "server: unmask")


@dataclass(frozen=True)
class Once:
    """Seconds of one client's or the server's steps in one round, in the order of STEPS."""

    steps: tuple[float, ...]
    upload: int


def ours(clients: int, degree: int, lost: int, values: NDArray[np.float64]) -> Once:
    threshold = round(2 / 3 * (degree + 1))
    protocol = MaskedAt(degree=degree, threshold=threshold, least=clients - lost - 1)
    session = MaskedSums(protocol, clients, values)
    session.run(lost)
    return Once(
        (
            session.each("site: share", "site: write share"),
            session.each("site: encode", "site: mask", "site: write mask"),
            session.each("server: mask"),
            session.each("server: unmask", "server: decode"),
        ),
        session.sent["mask"],
    )


def flowers(clients: int, degree: int, lost: int, values: NDArray[np.float64]) -> Once:
    from benchmarks.peers.flower import Flower  # noqa: PLC0415  # an optional peer

    peer = Flower(clients, degree, round(2 / 3 * (degree + 1)), values)
    sample = min(clients - lost, 9)
    share = peer.share()
    mask, upload = peer.mask()
    add = peer.add(upload, clients - lost, sample)
    unmask = peer.unmask(clients - lost, lost, min(sample, 9 if clients <= 10 else 3))
    return Once((share, mask, add, unmask), sum(map(len, upload)))


def case(
    clients: int, degree: int, lost: int, length: int, rounds: int
) -> Iterator[tuple[object, ...]]:
    values = np.random.default_rng(clients + degree).normal(0, 0.05, length)
    peers = {"secagg": ours}
    if version("flwr"):
        peers["Flower"] = flowers
    taken: dict[str, list[Once]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name, run in peers.items():
            taken[name].append(run(clients, degree, lost, values))
    name = f"{clients}, {degree}, {lost}"
    per_peer = {
        peer: [Spread(tuple(once.steps[i] for once in runs)) for i in range(len(STEPS))]
        for peer, runs in taken.items()
    }
    for peer, runs in taken.items():
        yield name, peer, *(spread * 1e3 for spread in per_peer[peer]), size(runs[0].upload)
    if "Flower" in taken:
        ratios = [
            theirs.over(mine)
            for theirs, mine in zip(per_peer["Flower"], per_peer["secagg"], strict=True)
        ]
        upload = taken["Flower"][0].upload / taken["secagg"][0].upload
        yield name, "ratio", *(f"**{r}**" for r in ratios), f"**{number(upload)}**"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the smallest case, once")
    options = parser.parse_args()
    cases, length = (CASES[1:2], 1000) if options.quick else (CASES, VALUES)
    rows = [
        row
        for clients, degree, lost in cases
        for row in case(clients, degree, lost, length, 1 if options.quick else ROUNDS[clients])
    ]
    head = ("clients, k, lost", "", *(f"{step} ms" for step in STEPS), "upload")
    section(
        f"Masked sums against Flower {version('flwr') or '(not installed)'}, {length:,} values",
        "Processor time of one step of a client or of the server. k is the number of neighbours of "
        "a client, and `lost` the number of clients that drop out. A ratio is Flower's number "
        "divided by secagg's.",
        table(head, rows),
    )


if __name__ == "__main__":
    main()
