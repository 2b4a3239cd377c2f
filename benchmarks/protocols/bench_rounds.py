"""The cost of one round when the numbers are few: what a long run pays beside its arithmetic.

    python -m benchmarks.protocols.bench_rounds [--quick]

The floor is the signatures that a round cannot do without: the coordinator signs a request to each
site, each site signs its reply, and each of the two is verified. All parties run in this process,
and the time is the processor time of all of them. Bare sums have no ledger and no files. Whole runs
are of `gradient`, with ledgers, log and run folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import Spread, quick_asked, section, table, timed
from benchmarks.protocols.sessions import SUM, run_session
from secagg import run
from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import system_random
from secagg.jobs.registry import Named, make_protocol

SITES, VALUES, VARIABLES, RECORDS = 7, 33, 20, 200
ROUNDS, FEW = 100, 20
PROTOCOLS = ("plain", "masked", "additive")


def signatures() -> None:
    """Sign and verify one request and one reply for each site, `ROUNDS` times."""
    me = Identity.generate("site", Role.SITE, system_random)
    roster = Roster({"site": me.public})
    for _ in range(ROUNDS * SITES * 2):
        header = system_random(250)
        roster.verify("site", header, me.sign(header))


def bare_sums(protocol: str) -> float:
    """Return the seconds of `ROUNDS` sums of few numbers."""
    ledger, _ = run_session(make_protocol(Named(name=protocol)), SITES, VALUES, ROUNDS)
    return ledger.seconds(SUM)


def job(folder: Path, protocol: str, rounds: int) -> dict[str, object]:
    """Return a job of exactly `rounds` gradient rounds: its columns are nearly collinear."""
    names = [f"x{i:02}" for i in range(VARIABLES)]
    columns = {name: {"type": "continuous", "low": -10, "high": 10} for name in [*names, "y"]}
    method = {"name": "gradient", "outcome": "y", "predictors": names, "family": "gaussian"}
    return {
        "title": "rounds",
        "sites": {"folder": folder, "max_rows": 1000},
        "columns": columns,
        "method": {**method, "rounds": rounds},
        "release": {"min_sites": 3, "min_records": 10},
        "protocol": {"name": protocol},
    }


def write_records(folder: Path) -> None:
    """Write one CSV file for each site."""
    rng = np.random.default_rng(1)
    head = ",".join([*(f"x{i:02}" for i in range(VARIABLES)), "y"])
    for site in range(SITES):
        x = rng.normal(0, 1, (RECORDS, 1)) + rng.normal(0, 0.1, (RECORDS, VARIABLES))
        y = x @ rng.normal(0, 1, VARIABLES) / 10
        np.savetxt(folder / f"site_{site}.csv", np.clip(np.column_stack([x, y]), -9, 9),
                   fmt="%.6g", delimiter=",", header=head, comments="")  # fmt: skip


def run_seconds(protocol: str, rounds: int) -> float:
    """Return the seconds of a run in memory, with fresh ledgers and a run folder."""
    with tempfile.TemporaryDirectory() as scratch:
        sites = Path(scratch) / "sites"
        sites.mkdir()
        write_records(sites)
        seconds, done = timed(lambda: run(job(sites, protocol, rounds), out=Path(scratch) / "run"))
    assert done.result.summary["rounds"] == rounds
    return seconds


def whole_run(protocol: str) -> float:
    """Return the seconds of `ROUNDS` rounds of a run, without its start and its end."""
    return run_seconds(protocol, ROUNDS + FEW) - run_seconds(protocol, FEW)


def main() -> None:
    quick = quick_asked(__doc__, "plain only, once")
    protocols, repeats = (PROTOCOLS[:1], 1) if quick else (PROTOCOLS, 3)
    tasks: dict[str, Callable[[], float]] = {}
    for protocol in protocols:
        tasks[f"bare sums, {protocol}"] = partial(bare_sums, protocol)
        tasks[f"whole run, {protocol}"] = partial(whole_run, protocol)
    floor: list[float] = []
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats):
        floor.append(timed(signatures)[0])
        for name, task in tasks.items():
            taken[name].append(task())
    least = Spread(tuple(floor))
    rows: list[tuple[object, ...]] = [("signatures: the floor", least * (1e3 / ROUNDS), "")]
    for name, seconds in taken.items():
        spread = Spread(tuple(seconds))
        rows.append((name, spread * (1e3 / ROUNDS), spread.over(least)))
    what = f"{SITES} sites. Bare sums: {VALUES} numbers. Whole run: {VARIABLES} predictors."
    section("Cost of a round", what, table(("", "ms a round", "x floor"), rows))


if __name__ == "__main__":
    main()
