"""Networks: rounds of training under every protocol, and one average of a million parameters.

python benchmarks/bench_networks.py [--quick]

Without torch, only the sums are timed. Without flwr, its row is left out.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from bench_flower import Once, flowers, ours
from harness import Spread, interleave, number, quick_asked, section, table, timed, version
from numpy.typing import NDArray

from secagg.core.randomness import replayable_random
from secagg.runs.run import run

PLAIN = "plain"
PROTOCOLS = (PLAIN, "additive", "masked", "paillier")
SITES, COLUMNS = 3, 20
HALF = 5.0
LEARNERS = {
    "FedAvg, 5 epochs": {"algorithm": "fedavg", "epochs": 5, "batch": 32},
    "FedSGD": {"algorithm": "fedsgd", "optimiser": "adam"},
}
CLIENTS, NEIGHBOURS, PARAMETERS = 10, 9, 1_000_000


def tables(records: int) -> dict[str, pd.DataFrame]:
    """Return sites whose outcome is a curved function of two columns."""
    rng, found = np.random.default_rng(0), {}
    for k in range(SITES):
        X = rng.uniform(-2, 2, (records, COLUMNS))
        y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(records)
        found[f"site{k}"] = pd.DataFrame(X, columns=_names()).assign(y=y)
    return found


def _names() -> list[str]:
    return [f"x{j}" for j in range(COLUMNS)]


def job(hidden: list[int], rounds: int, protocol: str, learner: dict[str, Any]) -> dict[str, Any]:
    """Return the job of a network."""
    column = {"type": "continuous", "low": -HALF, "high": HALF}
    settings = {"module_settings": {"hidden": hidden}, "rounds": rounds, **learner}
    return {
        "title": "Networks",
        "sites": {"max_rows": 5000},
        "columns": dict.fromkeys([*_names(), "y"], column),
        "method": {"name": "torch_module", "outcome": "y", **settings},
        "protocol": {"name": protocol},
        "release": {"min_sites": 2, "min_records": 1},
    }


def trained(given: dict[str, Any], data: dict[str, pd.DataFrame]) -> tuple[float, float, Any]:
    """Return wall seconds, processor seconds and the result of a run."""
    began = time.perf_counter()
    seconds, ran = timed(functools.partial(run, given, data, random=replayable_random(1)))
    return time.perf_counter() - began, seconds, ran.result


def protocols(
    hidden: list[int], records: int, rounds: int, turns: int, names: tuple[str, ...] = PROTOCOLS
) -> str:
    """Return the table of rounds under every protocol; protocols take turns."""
    data, rows = tables(records), list[list[object]]()
    for name, learner in LEARNERS.items():
        trained(job([1], 1, PLAIN, learner), data)  # modules are imported, untimed
        taken: dict[str, list[tuple[float, float]]] = {protocol: [] for protocol in names}
        arrays: dict[str, dict[str, NDArray[Any]]] = {}
        for _ in range(turns):
            for protocol in names:
                wall, cpu, result = trained(job(hidden, rounds, protocol, learner), data)
                taken[protocol].append((wall, cpu))
                arrays[protocol] = dict(result.arrays)
        walls, cpus = ({p: Spread(tuple(t[i] for t in times)) for p, times in taken.items()}
                       for i in (0, 1))  # fmt: skip
        for protocol in names:
            same = all(np.array_equal(arrays[protocol][k], v) for k, v in arrays[PLAIN].items())
            rows.append([
                name, protocol, walls[protocol] * (1 / rounds),
                f"{walls[protocol].over(walls[PLAIN])} x", f"{cpus[protocol].over(cpus[PLAIN])} x",
                "the same" if same else "OTHERS",
            ])  # fmt: skip
    head = ["training", "protocol", "seconds a round", "over plain", "processor time over plain"]
    return table([*head, "parameters"], rows)


def torch_average(values: NDArray[np.float64]) -> Callable[[], object]:
    """Return what averages the state dicts of ten equal networks, in float32."""
    import torch  # noqa: PLC0415

    side = int(np.sqrt(len(values) // 2))
    parts = torch.tensor(values, dtype=torch.float32).split([side * side, len(values) - side**2])
    states = [{"0": parts[0].clone(), "1": parts[1].clone()} for _ in range(CLIENTS)]

    def average() -> object:
        return {k: torch.stack([state[k] for state in states]).mean(dim=0) for k in states[0]}

    return average


def averages(length: int, turns: int) -> str:
    """Return the table of one average over ten sites."""
    values = np.random.default_rng(0).normal(0, 0.05, length)
    peers = {"secagg, masked": ours}
    if version("flwr"):
        peers["Flower, SecAgg+"] = flowers
    taken: dict[str, list[Once]] = {name: [] for name in peers}
    for _ in range(turns):
        for name, peer in peers.items():
            taken[name].append(peer(CLIENTS, NEIGHBOURS, 0, values))
    rows: list[list[object]] = []
    base = None
    if version("torch"):
        base = interleave({"torch": torch_average(values)}, turns, warm=True)["torch"]
        rows.append(["torch, plain", "", base * 1e3, base * 1e3, "1 x"])
    for name, runs in taken.items():
        share, mask, add, unmask = (Spread(tuple(o.steps[i] for o in runs)) for i in range(4))
        server = Spread(tuple(a + u for a, u in zip(add.values, unmask.values, strict=True)))
        every = Spread(tuple(
            CLIENTS * (s + m) + x
            for s, m, x in zip(share.values, mask.values, server.values, strict=True)
        ))  # fmt: skip
        client = Spread(tuple(s + m for s, m in zip(share.values, mask.values, strict=True)))
        over = f"{every.over(base)} x" if base else "not installed"
        rows.append([name, client * 1e3, server * 1e3, every * 1e3, over])
    head = ["average", "one client, ms", "server, ms", "all parties, ms", "over torch"]
    return table(head, rows)


def main() -> None:
    quick = quick_asked(__doc__, "small networks, one round: does it all run?")
    if version("torch"):
        hidden, records = ([10], 50) if quick else ([900], 1000)
        size = (COLUMNS + 2) * hidden[0] + 1
        section(
            f"Networks: {number(size)} parameters under every protocol",
            f"{SITES} sites of {records} records, {COLUMNS} predictors, one hidden layer. All "
            "parties are in one process, one after the other, with keys, signatures, rules and "
            "log. The first round includes the set-up of keys.",
            protocols(hidden, records, 1 if quick else 10, 1 if quick else 3),
        )
        hidden = [10, 10] if quick else [1210, 1210]
        size = (COLUMNS + 1) * hidden[0] + (hidden[0] + 1) * hidden[1] + hidden[1] + 1
        section(
            f"Networks: {number(size)} parameters",
            f"The same with two hidden layers of {hidden[0]} units, as large as the networks of "
            f"FedNGM's paper, and {50 if quick else 500} records a site.",
            protocols(hidden, 50 if quick else 500, 1 if quick else 3, 1, (PLAIN, "masked")),
        )
    length = 1000 if quick else PARAMETERS
    section(
        f"Networks: one average of {length:,} parameters over {CLIENTS} sites",
        "Processor time. `torch` averages state dicts that lie in memory, in float32. The others "
        "encode, mask, add and unmask; a client's step includes the sharing of its secrets.",
        averages(length, 1 if quick else 3),
    )


if __name__ == "__main__":
    main()
