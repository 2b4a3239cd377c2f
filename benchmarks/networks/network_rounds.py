"""Jobs that train networks over sites, and the seconds that each of their rounds takes.

A round lasts from the release of one sum to the release of the next: the coordinator's step, the
sites' gradients or epochs, and the sum with its messages, signatures and release rules. What comes
before the first round, such as keys and reading the records, is timed apart.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import Spread
from secagg.core.randomness import replayable_random
from secagg.runs.run import run

PLAIN = "plain"
SITES = 3
HALF = 5.0  # of the columns' range
FRACTION_BITS = 40  # of the numbers in these sums: see secagg.models.neural.rounds
TRAIN = "train"


def tables(records: int, columns: int) -> dict[str, pd.DataFrame]:
    """Return sites whose outcome y is a curved function of two columns."""
    rng, found = np.random.default_rng(0), {}
    for k in range(SITES):
        X = rng.uniform(-2, 2, (records, columns))
        y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(records)
        found[f"site{k}"] = pd.DataFrame(X, columns=_names(columns)).assign(y=y)
    return found


def _names(columns: int) -> list[str]:
    return [f"x{j}" for j in range(columns)]


def job(method: Mapping[str, Any], protocol: str, columns: int) -> dict[str, Any]:
    """Return the job of a network over `tables`."""
    column = {"type": "continuous", "low": -HALF, "high": HALF}
    return {
        "title": "Networks",
        "sites": {"max_rows": 5000},
        "columns": dict.fromkeys([*_names(columns), "y"], column),
        "method": dict(method),
        "protocol": {"name": protocol},
        "release": {"min_sites": 2, "min_records": 1},
    }


@dataclass(frozen=True)
class Trained:
    """Seconds of one run.

    before: processor seconds before the first round of training
    wall, processor: median seconds of a round
    bits: the network's parameters
    """

    before: float
    wall: float
    processor: float
    parameters: int
    bits: bytes


def trained(given: dict[str, Any], data: dict[str, pd.DataFrame]) -> Trained:
    """Run a job."""
    ends: list[tuple[str, float, float]] = []  # stage, wall and processor time of each release

    def note(event: Mapping[str, Any]) -> None:
        if event["event"] == "release":
            ends.append((event["stage"], time.perf_counter(), time.process_time()))

    began = time.process_time()
    result = run(given, data, progress=note, random=replayable_random(1)).result
    rounds = [
        (after[1] - before[1], after[2] - before[2], before[2])
        for before, after in itertools.pairwise(ends)
        if after[0] == TRAIN
    ]
    walls, processors, starts = zip(*rounds, strict=True)
    bits = b"".join(array.tobytes() for _, array in sorted(result.arrays.items()))
    parameters = result.summary["parameters"]
    return Trained(
        starts[0] - began, statistics.median(walls), statistics.median(processors), parameters, bits
    )


def compared(
    method: Mapping[str, Any],
    protocols: tuple[str, ...],
    data: dict[str, pd.DataFrame],
    columns: int,
    turns: int,
) -> dict[str, list[Trained]]:
    """Return the runs of each protocol; protocols take turns."""
    trained(job({**method, "rounds": 1}, PLAIN, columns), data)  # modules are imported, untimed
    runs: dict[str, list[Trained]] = {protocol: [] for protocol in protocols}
    for _ in range(turns):
        for protocol in protocols:
            runs[protocol].append(trained(job(method, protocol, columns), data))
    return runs


def rows(runs: dict[str, list[Trained]]) -> list[list[object]]:
    """Return a row for each protocol."""
    found: list[list[object]] = []
    plain = _spreads(runs[PLAIN])
    for protocol, ran in runs.items():
        before, wall, processor = _spreads(ran)
        same = {r.bits for r in ran} == {runs[PLAIN][0].bits}
        ratios = wall.over(plain[1]), processor.over(plain[2])
        found.append([protocol, before, wall, ratios[0], processor, ratios[1],
                      "the same" if same else "OTHERS"])  # fmt: skip
    return found


HEAD = (
    "protocol", "before the first round, s", "a round, wall s", "x plain",
    "a round, processor s", "x plain", "parameters",
)  # fmt: skip


def _spreads(ran: list[Trained]) -> tuple[Spread, Spread, Spread]:
    each = ((r.before, r.wall, r.processor) for r in ran)
    before, wall, processor = map(Spread, zip(*each, strict=True))
    return before, wall, processor
