"""The cost of separate processes for the parties: start-up, and the wall time of a phase.

This is wall time, not processor time: most of the additional time is waiting for processes to start
and for states to reach the disk. A phase is one `exchange`: from the first request sent to the last
reply, over all sites (and two aggregators under `additive`). The first phase, in which the sites
read their records, is shown separately. Other load on the machine affects these timings.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Spread, quick_asked, section, table
from secagg.runs.run import run
from secagg.sessions.engines.loopback import LoopbackEngine
from secagg.sessions.engines.memory import MemoryEngine


@dataclass(frozen=True)
class Case:
    """A job over sites of made records: some columns, and the method that reads them."""

    title: str
    sites: int
    columns: int
    method: dict[str, Any]

    def job(self, folder: Path, protocol: str, engine: str) -> dict[str, Any]:
        columns = {f"x{i}": {"type": "continuous", "low": -9, "high": 9}
                   for i in range(self.columns)}  # fmt: skip
        return {
            "title": self.title,
            "sites": {"folder": folder, "max_rows": 1000},
            "columns": {**columns, "case": {"type": "binary"}},
            "method": self.method,
            "release": {"min_sites": 2, "min_records": 10},
            "protocol": {"name": protocol},
            "engine": {"name": engine},
        }

    def write_records(self, folder: Path) -> None:
        """Write one CSV file for each site."""
        rng = np.random.default_rng(1)
        head = ",".join([*(f"x{i}" for i in range(self.columns)), "case"])
        for i in range(self.sites):
            x = rng.normal(0, 2, (RECORDS, self.columns))
            case = rng.random(RECORDS) < 1 / (1 + np.exp(-x[:, 0]))
            np.savetxt(folder / f"site_{i}.csv", np.column_stack([x, case]), fmt="%.3g",
                       delimiter=",", header=head, comments="")  # fmt: skip


RECORDS = 200
LOGISTIC = Case("logistic regression, 4 sites", 4, 2,
                {"name": "logistic", "outcome": "case", "predictors": ["x0", "x1"]})  # fmt: skip
# 446 columns and the constant have 447 * 448 / 2 = 100 128 second moments
MOMENTS = Case("100 128 moments at 64 bits, 5 sites", 5, 445, {"name": "moments",
               "fraction_bits": 48})  # fmt: skip


class Clock:
    """Wall times of every exchange with requests, and of every start of the parties."""

    def __init__(self) -> None:
        self.phases: list[float] = []
        self.starts: list[float] = []
        for kind in (MemoryEngine, LoopbackEngine):
            self._watch(kind, "exchange", self.phases)
        self._watch(LoopbackEngine, "start", self.starts)

    def _watch(self, kind: Any, name: str, into: list[float]) -> None:
        real = getattr(kind, name)

        def timed(engine: Any, *requests: Mapping[str, bytes]) -> Sequence[bytes]:
            began = time.perf_counter()
            result = real(engine, *requests)
            if requests != ({},):
                into.append(time.perf_counter() - began)
            return result

        setattr(kind, name, timed)

    def reset(self) -> None:
        self.phases.clear()
        self.starts.clear()


def measure(case: Case, protocol: str, engine: str, folder: Path, clock: Clock) -> list[object]:
    """Run a job; return its row of the table."""
    clock.reset()
    began = time.perf_counter()
    run(case.job(folder, protocol, engine))
    whole = time.perf_counter() - began
    first, *later = (1e3 * seconds for seconds in clock.phases)
    start = f"{clock.starts[0]:.1f}" if clock.starts else ""
    return [case.title, protocol, engine, len(later) + 1, start, f"{first:.0f}",
            Spread(tuple(later)), f"{later[-1]:.0f}", f"{sum(clock.phases):.2f}",
            f"{whole:.1f}"]  # fmt: skip


def main() -> None:
    quick = quick_asked(__doc__, "one job, one protocol")
    protocols = ("plain",) if quick else ("plain", "additive", "masked")
    clock, rows = Clock(), []
    for case in (LOGISTIC,) if quick else (LOGISTIC, MOMENTS):
        with tempfile.TemporaryDirectory() as scratch:
            case.write_records(Path(scratch))
            rows += [
                measure(case, protocol, engine, Path(scratch), clock)
                for protocol in protocols
                for engine in ("memory", "processes")
            ]
    head = ["job", "protocol", "engine", "phases", "start, s", "first phase, ms",
            "later phases, ms", "last phase, ms", "all phases, s", "whole run, s"]  # fmt: skip
    section("Engines", "Wall time. The first phase reads the records. With masked, the last phase "
            "is one whole later sum.", table(head, rows))  # fmt: skip


if __name__ == "__main__":
    main()
