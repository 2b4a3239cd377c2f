"""Whole sessions of `masked` with up to 1000 sites, what they cost, and what more sites would cost.

    python -m benchmarks.protocols.scale [--sites N ...] [--values D] [--keep FILE] [--figure FILE]

Each session runs in a new process, in which the real coordinator and sites exchange signed frames:
set-up, consent, the count of records, and two sums. With --keep, measurements are added to a file,
and those that are there already are not repeated. docs/scale.md has the tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import machine, timed
from benchmarks.protocols.scale_laws import Measured, figure, tables
from benchmarks.protocols.sessions import run_session
from secagg.protocols.masked import graph
from secagg.protocols.masked.protocol import FAILURE_LOG2, GRINDING_LOG2, Masked

SITES = (10, 30, 100, 300, 1000)
LOST = (0.0, 0.01, 0.1)
ALONE = 8
"""How many sites of a session are timed without what the others' checks left in memory."""


def session(sites: int, lost: int, values: int, dropping: float) -> None:
    """Run one session and print its measurement as JSON."""
    protocol = Masked(dropping=dropping)
    settings = sites, protocol.colluding, dropping, FAILURE_LOG2 - GRINDING_LOG2
    planning, plan = timed(lambda: graph.plan_graph(*settings))
    ledger, peak = run_session(
        protocol, sites, values, rounds=2, lost=lost, alone=ALONE, each_round=True
    )
    costs = [dataclasses.asdict(cost) for cost in ledger.costs.values()]
    about = {"sites": sites, "lost": lost, "values": values, "dropping": dropping}
    about |= {"degree": plan.degree, "threshold": plan.threshold, "planning": planning}
    print(json.dumps({**about, "costs": costs, "peak": peak}))


def measure(case: tuple[int, int, int, float]) -> dict[str, Any]:
    """Run one session in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, "--session", *map(str, case)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def cases(sites: list[int], values: int) -> list[tuple[int, int, int, float]]:
    """Return (sites, lost, values, dropping) of each session; the last one has fewer neighbours."""
    usual = [(n, round(n * part), values, 0.1) for n in sites for part in LOST]
    few = [(n, n // 100, values, 0.01) for n in sites[-1:] if n >= 100]
    return [*dict.fromkeys(usual), *few]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sites", type=int, nargs="+", default=SITES, metavar="N")
    parser.add_argument("--values", type=int, default=10_000, metavar="D")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="of measurements, as JSON")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the costs (matplotlib)")
    parser.add_argument("--session", nargs=4, metavar=("SITES", "LOST", "VALUES", "DROPPING"))
    options = parser.parse_args()
    if options.session:
        session(*map(int, options.session[:3]), float(options.session[3]))
        return
    lines: list[str] = []
    if options.keep is not None and options.keep.exists():
        lines = options.keep.read_text(encoding="utf-8").splitlines()
    kept = [Measured.of(json.loads(line)) for line in lines]
    found = {one.case: one for one in kept}
    for case in cases(list(options.sites), options.values):
        if case not in found:
            raw = measure(case)
            found[case] = Measured.of(raw)
            if options.keep is not None:
                with options.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(raw) + "\n")
    print(machine(), end="\n\n")
    tables([found[case] for case in cases(list(options.sites), options.values) if case in found])
    if options.figure is not None:
        figure(list(found.values()), options.figure)


if __name__ == "__main__":
    main()
