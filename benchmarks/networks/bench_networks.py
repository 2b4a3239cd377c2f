"""Networks: rounds of training under every protocol, and one average of a million parameters.

    python -m benchmarks.networks.bench_networks [--quick]

Without torch (`make bench-neural`) only the averages of secagg are timed, and without flwr
(`make bench-peers`) they are not compared with Flower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Spread, number, quick_asked, section, table, timed, version
from benchmarks.networks.network_rounds import (
    FRACTION_BITS,
    HEAD,
    PLAIN,
    SITES,
    compared,
    rows,
    tables,
)
from benchmarks.peers.bench_flower import flowers
from benchmarks.protocols.masked_sums import MaskedAt, MaskedSums
from benchmarks.protocols.sessions import SUM, run_session
from secagg.contracts import SecureSum
from secagg.protocols.masked.protocol import Masked
from secagg.protocols.plain import Plain

PROTOCOLS = (PLAIN, "additive", "masked", "paillier")
COLUMNS, RECORDS, HIDDEN = 20, 1000, 900
ROUNDS, TURNS = 4, 3
LEARNERS: dict[str, dict[str, Any]] = {
    "FedAvg, 5 epochs, batches of 32": {"algorithm": "fedavg", "epochs": 5, "batch": 32},
    "FedSGD": {"algorithm": "fedsgd", "optimiser": "adam"},
}
LARGE: dict[str, Any] = {"name": "fedngm", "network": "paper", "edges": "all", "optimiser": "adam"}
CLIENTS, NEIGHBOURS, LENGTH = 10, 9, 1_000_000
MISSING = "torch is not installed (make bench-neural): not measured."


def small(quick: bool) -> str:
    """Return the table of a network under every protocol, by the way of training."""
    columns, records, units = (3, 50, 4) if quick else (COLUMNS, RECORDS, HIDDEN)
    protocols = PROTOCOLS
    data, found = tables(records, columns), list[list[object]]()
    for name, learner in LEARNERS.items():
        method = {
            "name": "torch_module", "outcome": "y", "module_settings": {"hidden": [units]},
            "rounds": 2 if quick else ROUNDS, **learner,
        }  # fmt: skip
        runs = compared(method, protocols, data, columns, 1 if quick else TURNS)
        found += [[name, *row] for row in rows(runs)]
    return table(("training", *HEAD), found)


def large(quick: bool) -> tuple[int, str]:
    """Return the number of parameters and the table of the network of FedNGM's paper."""
    columns, records, units = (3, 30, 5) if quick else (249, 500, 1000)
    method = {**LARGE, "hidden": [units, units], "rounds": 2 if quick else ROUNDS}
    data = tables(records, columns)
    runs = compared(method, (PLAIN, "masked"), data, columns, 1 if quick else TURNS)
    return runs[PLAIN][0].parameters, table(HEAD, rows(runs))


# --- one average ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Average:
    """Seconds of one client, of the server and of all parties; the first two may be unknown."""

    every: float
    client: float | None = None
    server: float | None = None


def by_torch(values: NDArray[np.float64]) -> Callable[[], Average]:
    """Average state dicts in memory, in float32, in place: the fastest of three ways in torch."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    parts = torch.tensor(values, dtype=torch.float32).split(len(values) // 2)
    states = [{str(i): part.clone() for i, part in enumerate(parts)} for _ in range(CLIENTS)]

    def average() -> dict[str, Any]:
        mean = {name: tensor.clone() for name, tensor in states[0].items()}
        for name, tensor in mean.items():
            for state in states[1:]:
                tensor.add_(state[name])
            tensor.div_(CLIENTS)
        return mean

    average()
    return lambda: Average(timed(average)[0])


def by_steps(values: NDArray[np.float64], *, first: bool) -> Average:
    """Run the protocol's steps.

    first: the first sum of a session, in Flower's fixed point; else a later sum, as in a job
    """
    protocol = MaskedAt(degree=NEIGHBOURS, threshold=7, least=CLIENTS - 1)
    if first:
        session = MaskedSums(protocol, CLIENTS, values)
        session.run()
        when, share = "", session.each("site: share", "site: write share")
        unmask = session.each("server: unmask")
    else:
        session = MaskedSums(protocol, CLIENTS, values, FRACTION_BITS)
        session.run()
        session.run()
        when, share, unmask = "later ", 0.0, 0.0
    upload = (f"{when}site: {step}" for step in ("encode", "mask", "write mask"))
    client = share + session.each(*upload)
    server = unmask + session.each(f"{when}server: mask", f"{when}server: decode")
    return Average(CLIENTS * client + server, client, server)


def by_session(protocol: SecureSum, length: int) -> Average:
    """Run whole sums, with messages, signatures and release rules."""
    ledger, _ = run_session(protocol, CLIENTS, length, 2, FRACTION_BITS)
    return Average(ledger.seconds(SUM) / 2)


def by_flower(values: NDArray[np.float64]) -> Average:
    """Run Flower's steps."""
    share, mask, add, unmask = flowers(CLIENTS, NEIGHBOURS, 0, values).steps
    return Average(CLIENTS * (share + mask) + add + unmask, share + mask, add + unmask)


TORCH, FLOWER = "torch, state dicts in memory", "Flower, SecAgg+: steps"


def averages(length: int, turns: int) -> str:
    """Return the table of one average over ten sites; the ways take turns."""
    values = np.random.default_rng(0).normal(0, 0.05, length)
    ways: dict[str, Callable[[], Average] | None] = {
        TORCH: by_torch(values) if version("torch") else None,
        "secagg, plain: whole sum": lambda: by_session(Plain(), length),
        "secagg, masked: whole sum": lambda: by_session(Masked(), length),
        "secagg, masked: steps of a later sum": lambda: by_steps(values, first=False),
        "secagg, masked: steps of the first sum": lambda: by_steps(values, first=True),
        FLOWER: (lambda: by_flower(values)) if version("flwr") else None,
    }
    taken: dict[str, list[Average]] = {name: [] for name, way in ways.items() if way}
    for _ in range(turns):
        for name, way in ways.items():
            if way:
                taken[name].append(way())
    every = {name: Spread(tuple(one.every for one in ran)) for name, ran in taken.items()}
    found: list[list[object]] = []
    for name in ways:
        if name not in taken:
            found.append([name, "not installed", *["-"] * 4])
            continue
        ratios = [
            every[name].over(every[TORCH]) if TORCH in every else "-",
            every[FLOWER].over(every[name]) if FLOWER in every else "-",
        ]
        parts = (_ms([one.client for one in taken[name]]), _ms([one.server for one in taken[name]]))
        found.append([name, *parts, every[name] * 1e3, *ratios])
    return table(
        ("average", "one client, ms", "server, ms", "all parties, ms", "x torch", "Flower / this"),
        found,
    )


def _ms(seconds: list[float | None]) -> object:
    known = [value for value in seconds if value is not None]
    return Spread(tuple(known)) * 1e3 if known else "-"


def main() -> None:
    quick = quick_asked(__doc__, "small networks, few rounds: does it all run?")
    units, columns, records = (4, 3, 50) if quick else (HIDDEN, COLUMNS, RECORDS)
    title = f"Networks: {number((columns + 2) * units + 1)} parameters under every protocol"
    if version("torch"):
        section(
            title,
            f"Method `torch_module` with squared errors: {SITES} sites of {records} records, "
            f"{columns} predictors, one hidden layer of {units} units. All parties are in one "
            "process, one after the other. A round includes training, messages, signatures, rules "
            "and log. FedSGD is the least favourable case: one gradient in a round. What comes "
            "before the first round is keys, reading records and the sum of their numbers, in "
            "processor seconds.",
            small(quick),
        )
        parameters, printed = large(quick)
        section(
            f"Networks: {parameters:,} parameters",
            "Method `fedngm` with the paper's network of two hidden layers of "
            f"{5 if quick else '1,000'} units. {SITES} sites of {30 if quick else 500} records, "
            "one gradient in a round.",
            printed,
        )
    else:
        section(title, MISSING)
    length = 1000 if quick else LENGTH
    section(
        f"Networks: one average of {length:,} parameters over {CLIENTS} sites",
        f"Processor time, without training. A whole sum has messages, signatures and rules, and "
        f"numbers with {FRACTION_BITS} fraction bits as in a job. Steps are encoding, masking and "
        "writing at a client, and adding, unmasking and decoding at the server. Those of the first "
        "sum include that a client shares its secrets, and they have 18 fraction bits, like "
        "Flower's. torch works in float32 and protects nothing.",
        averages(length, 1 if quick else TURNS),
    )


if __name__ == "__main__":
    main()
