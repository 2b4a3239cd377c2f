"""Every protocol, phase by phase and role by role, compared with the sum in clear.

    python -m benchmarks.protocols.bench_protocols [--quick] [--only PROTOCOL ...]

Each session runs in a new process, and protocols take turns. So no caches are warm, and the memory
peak belongs to that session only.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.harness import Spread, number, section, size, table
from benchmarks.protocols.sessions import COHORT, SETUP, SUM, Cost, run_session
from secagg.jobs.registry import PROTOCOLS, Named, make_protocol
from secagg.protocols.kernels.library import available

CASES = ((10, 100_000), (100, 10_000), (4, 1_000_000))
ROUNDS = 3
MOST_VALUES = {"paillier": 250_000, "threshold_paillier": 50_000}
"""Of all sites together, for slow protocols (with the kernels, four times as many): longer vectors
are cut, and the table scales what their sum took."""


@dataclass(frozen=True)
class Run:
    """What one session in a process of its own reported."""

    costs: tuple[Cost, ...]
    peak: int

    def seconds(self, part: str) -> float:
        return sum(cost.seconds for cost in self.costs if cost.part == part)


@dataclass(frozen=True)
class Case:
    """One protocol at one size, and its repeats."""

    protocol: str
    sites: int
    values: int
    scale: int
    runs: list[Run]

    @property
    def name(self) -> str:
        return self.protocol if self.scale == 1 else f"{self.protocol} (1/{self.scale}, scaled)"

    def seconds(self, part: str) -> Spread:
        scale = self.scale if part == SUM else 1
        return Spread(tuple(run.seconds(part) for run in self.runs)) * scale

    def run(self) -> None:
        arguments = [self.protocol, str(self.sites), str(self.values // self.scale)]
        command = [sys.executable, "-m", __spec__.name, "--session", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        report = json.loads(done.stdout)
        self.runs.append(Run(tuple(Cost(**cost) for cost in report["costs"]), report["peak"]))


def session(protocol: str, sites: int, values: int) -> None:
    """Run one session and print its report as JSON."""
    ledger, peak = run_session(make_protocol(Named(name=protocol)), sites, values)
    costs = [dataclasses.asdict(cost) for cost in ledger.costs.values()]
    print(json.dumps({"costs": costs, "peak": peak}))


def report(names: Sequence[str], sites: int, values: int, rounds: int) -> None:
    cases = []
    for name in names:
        most = MOST_VALUES.get(name, sites * values) * (4 if available() else 1)
        scale = max(1, round(sites * values / most))
        cases.append(Case(name, sites, values, scale, []))
    for _ in range(rounds):
        for case in cases:
            case.run()
    summary = table(
        ("protocol", "set-up ms", "cohort ms", "one sum ms", "x plain", "a site sends",
         "a site receives", "peak memory"),
        [summary_row(case, cases[0]) for case in cases],
    )  # fmt: skip
    details = table(
        ("protocol", "phase", "role", "ms of each party", "each sends", "each receives"),
        [row for case in cases for row in detail_rows(case)],
    )
    what = (
        f"First table: processor time of all parties together ({rounds} repetitions). Second "
        "table: processor time of each party."
    )
    section(f"{sites} sites, {values:,} values each", what, summary, details)


def summary_row(case: Case, plain: Case) -> tuple[object, ...]:
    one_sum = case.seconds(SUM)
    of_site = [cost for cost in case.runs[0].costs if (cost.part, cost.role) == (SUM, "site")]
    sent, received = (
        sum(getattr(cost, way) * case.scale / case.sites for cost in of_site)
        for way in ("sent", "received")
    )
    peak = size(Spread(tuple(run.peak for run in case.runs)).median) if case.scale == 1 else "-"
    return (
        case.name, case.seconds(SETUP) * 1e3, case.seconds(COHORT) * 1e3, one_sum * 1e3,
        one_sum.over(plain.seconds(SUM)), size(sent), size(received), peak,
    )  # fmt: skip


def detail_rows(case: Case) -> Iterator[tuple[object, ...]]:
    """Yield a row for each phase and role; all phases once, those of a sum on the long vector."""
    in_sum = {cost.phase for cost in case.runs[0].costs if cost.part == SUM}
    for index, cost in enumerate(case.runs[0].costs):
        if cost.phase == "start" or (cost.part == COHORT and cost.phase in in_sum):
            continue
        scale = (case.scale if cost.part == SUM else 1) / cost.parties
        seconds = Spread(tuple(run.costs[index].seconds for run in case.runs)).median * scale
        role = cost.role if cost.parties == 1 else f"{cost.role} x {cost.parties}"
        sent, received = size(cost.sent * scale), size(cost.received * scale)
        yield case.name, f"{cost.part}: {cost.phase}", role, number(1e3 * seconds), sent, received


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small case, once")
    parser.add_argument("--only", nargs="+", default=list(PROTOCOLS), help="beside plain")
    parser.add_argument("--session", nargs=3, metavar=("PROTOCOL", "SITES", "VALUES"))
    options = parser.parse_args()
    if options.session:
        session(options.session[0], *map(int, options.session[1:]))
        return
    names = ["plain", *(name for name in options.only if name != "plain")]
    for sites, values in ((4, 100),) if options.quick else CASES:
        report(names, sites, values, 1 if options.quick else ROUNDS)


if __name__ == "__main__":
    main()
