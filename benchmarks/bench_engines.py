"""What it costs that each party is a process of its own: start-up, and the wall time of a phase.

Wall time, not processor time: most of what is added is waiting, for processes to start and for
states to reach the disk. A phase is one `exchange`: from the first request sent to the last reply,
over four sites (and two aggregators under `additive`). The first phase, in which the sites read
their records, stands apart. Timings of one machine at one time; other load on it shows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import Spread, section, table

from secagg.engines.loopback import LoopbackEngine
from secagg.engines.memory import MemoryEngine
from secagg.running import run

SITES, RECORDS = 4, 200
JOB: dict[str, Any] = {
    "title": "engines",
    "columns": {
        "age": {"type": "continuous", "low": 0, "high": 100},
        "dose": {"type": "continuous", "low": -9, "high": 9},
        "case": {"type": "binary"},
    },
    "method": {"name": "logistic", "outcome": "case", "predictors": ["age", "dose"]},
    "release": {"min_sites": SITES, "min_records": 10},
}


def write_records(folder: Path) -> None:
    """Write one CSV file a site."""
    rng = np.random.default_rng(1)
    for i in range(SITES):
        age, dose = rng.uniform(20, 90, RECORDS), rng.normal(0, 2, RECORDS)
        case = rng.random(RECORDS) < 1 / (1 + np.exp(-dose))
        rows = [f"{a:.0f},{d:.2f},{c:d}" for a, d, c in zip(age, dose, case, strict=True)]
        (folder / f"site_{i}.csv").write_text("\n".join(["age,dose,case", *rows]) + "\n")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one protocol")
    protocols = ("plain",) if parser.parse_args().quick else ("plain", "additive", "masked")
    clock, rows = Clock(), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_records(folder)
        for protocol in protocols:
            for engine in ("memory", "processes"):
                clock.reset()
                sites = {"folder": folder, "max_rows": 1000}
                named = {"protocol": {"name": protocol}, "engine": {"name": engine}}
                began = time.perf_counter()
                run({**JOB, "sites": sites, **named})
                whole = time.perf_counter() - began
                first, *later = (1e3 * seconds for seconds in clock.phases)
                start = f"{clock.starts[0]:.1f}" if clock.starts else ""
                rows.append([protocol, engine, len(later) + 1, start, f"{first:.0f}",
                             Spread(tuple(later)), f"{whole:.1f}"])  # fmt: skip
    head = ["protocol", "engine", "phases", "start, s", "first phase, ms", "later phases, ms",
            "whole run, s"]  # fmt: skip
    text = f"Logistic regression over {SITES} sites of {RECORDS} records. Wall time."
    section("Engines", text, table(head, rows))


if __name__ == "__main__":
    main()
