"""Kill a client, an aggregator or the server with SIGKILL, 30 times, and go on over NVFLARE.

Each time: a logistic regression over four hospitals and two aggregators begins; a hook kills the
job process of one party in one phase, before or after its work; then the rest of the party's
processes are killed. As an operator would, the script starts the party again, ends the old job in
NVFLARE (which does not notice that a client has died), and submits the same job under the same
name.

Printed for each kill: the seconds from the kill to the finished run, whether the result has the
same bits as a run in one process, whether the folder verifies, and whether every ledger has exactly
the entries of a run without a kill. The exit code is 1 if one of these is not so.

It needs the extra `nvflare`:  python benchmarks/deployment/kills.py [--kills N] [--first N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hooked import install_hooks
from same_bits import CASES, COORDINATOR, FILES, RECORDS, Consortium, in_one_process, running

from secagg.evidence.integrity import verify_folder
from secagg.jobs.job import Job
from secagg.sessions.session_ledgers import open_ledger

SITE, AGGREGATOR = "hungary", "aggregator_1"
KILLS = (
    *((SITE, 0, "consent", when) for when in ("before", "after")),
    *((SITE, 0, "share", when) for when in ("before", "after")),
    *((SITE, 1, phase, when) for phase in ("consent", "share") for when in ("before", "after")),
    (SITE, 3, "share", "before"),
    (SITE, 4, "share", "after"),
    *((AGGREGATOR, 0, phase, when) for phase in ("hold", "open") for when in ("before", "after")),
    *((AGGREGATOR, 1, phase, when) for phase in ("hold", "open") for when in ("before", "after")),
    (AGGREGATOR, 3, "hold", "after"),
    (AGGREGATOR, 4, "open", "before"),
    *(
        (COORDINATOR, 0, phase, when)
        for phase in ("consent", "share", "hold", "open")
        for when in ("before", "after")
    ),
    (COORDINATOR, 2, "share", "before"),
    (COORDINATOR, 4, "open", "after"),
)


def entries(made: Consortium, session: str) -> dict[str, list[tuple[int, str]]]:
    """Return round and stage of each ledger entry of a session, by party."""
    found = {}
    for name, home in made.homes.items():
        for path in (home.folder / "ledgers").glob("*.ledger"):
            with open_ledger(path) as ledger:
                found[name] = sorted(
                    (line.content["round"], line.content["stage"])
                    for data in ledger.datasets()
                    for line in ledger.history(data)
                    if line.kind == "entry" and line.content["session"] == session
                )
    return found


def session_of(folder: Path) -> str:
    """Return the session of a finished run."""
    return str(json.loads((folder / "run.json").read_bytes())["session"])


def play(made: Consortium, job: Job, name: str, orders: Path, kill: tuple[Any, ...]) -> float:
    """Run the job, with this kill; return the seconds from it to the end."""
    (orders / "kill").write_text(json.dumps(kill))
    submitted = made.submit(job, name)
    until = time.monotonic() + 120
    while (orders / "kill").exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{kill} has not happened")
        time.sleep(0.05)
    began, victim = time.monotonic(), kill[0]
    made.kill(victim)
    if victim == COORDINATOR:
        made.forget_admin()
    made.start_party(victim)
    made.wait_for_clients()
    made.end(submitted)
    status = made.wait(made.submit(job, name), 180)
    if status != "FINISHED:COMPLETED":
        raise RuntimeError(f"{kill}: {status}")
    return time.monotonic() - began


def main() -> None:
    """Play all kills, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kills", type=int, default=len(KILLS))
    given = parser.parse_args()
    job, wrong = CASES[1].job(20.0), False
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="secagg-kills-") as scratch:
        folder = Path(scratch)
        orders = folder / "orders"
        orders.mkdir()
        install_hooks(orders)
        made = Consortium.make(folder / "consortium", RECORDS, aggregators=2)
        in_one_process(job, folder / "here", drawn=False)
        made.approve(job)
        with running(made):
            made.wait(made.submit(job, "whole"))
            whole = entries(made, session_of(made.run_folder("whole")))
            print("| kill | seconds | same bits | verified | ledgers |")
            print("|---|---|---|---|---|")
            for number, kill in enumerate(KILLS[given.first : given.first + given.kills]):
                took = play(made, job, f"kill{number}", orders, kill)
                there = made.run_folder(f"kill{number}")
                same = all(
                    (folder / "here" / f).read_bytes() == (there / f).read_bytes() for f in FILES
                )
                verify_folder(there)
                charged = entries(made, session_of(there)) == whole
                seconds.setdefault("server" if kill[0] == COORDINATOR else "client", []).append(
                    took
                )
                wrong |= not (same and charged)
                print(
                    f"| {kill[0]}, round {kill[1]}, {kill[3]} {kill[2]} | {took:.1f} | "
                    f"{'yes' if same else 'NO'} | yes | {'as without' if charged else 'OTHERS'} |",
                    flush=True,
                )
    for who, taken in seconds.items():
        print(
            f"{who}: {len(taken)} kills, median {statistics.median(taken):.1f} s, at most "
            f"{max(taken):.1f} s"
        )
    sys.exit(wrong)


if __name__ == "__main__":
    main()
