"""Ask for what must be refused, over NVFLARE: print who refuses, the exit code and the line.

One consortium on this computer: four hospitals and two aggregators. In each case the job must fail
in NVFLARE, leave no run folder, and release no sum beyond those before the case. The exit code is 1
if one of these is not so.

It needs the extra `nvflare`:  python benchmarks/deployment/refusals.py
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from same_bits import CASES, COORDINATOR, HOOKS, RECORDS, Consortium, running

from secagg.core.identity import Role
from secagg.core.randomness import system_random
from secagg.core.roster_file import fingerprint, make_roster
from secagg.deploy.nvflare_job import job_files
from secagg.deploy.nvflare_kit import HOME_FILE
from secagg.jobs.job import Job
from secagg.runtime.homes.home import Home
from secagg.runtime.session_ledgers import open_ledger

SITE = "hungary"
_SAID = re.compile(r"\w+: ended with exit code (\d): (.*)")


@dataclass
class Stage:
    """What the cases need: the consortium, the orders of its hooks, and an approved job."""

    made: Consortium
    orders: Path
    job: Job
    spare: Path

    def entries(self) -> int:
        """Return the number of sums that any ledger has."""
        found = 0
        for home in self.made.homes.values():
            for path in (home.folder / "ledgers").glob("*.ledger"):
                with open_ledger(path) as ledger:
                    lines = (line for data in ledger.datasets() for line in ledger.history(data))
                    found += sum(line.kind == "entry" for line in lines)
        return found

    def submit(self, name: str, job: Job | None = None, *, absent: str = "") -> str:
        """Submit a job, to all clients but one, and return NVFLARE's status at its end."""
        parties = [party for party in self.made.homes if party not in (COORDINATOR, absent)]
        return self.made.wait(self.made.submit(job or self.job, name, parties))

    def other_home(self) -> Home:
        """Make a home of the same site with other keys."""
        made = Home.create(self.spare, SITE, Role.SITE, system_random, RECORDS[SITE].absolute())
        parties = self.made.homes[SITE].roster.parties | {SITE: made.identity.public}
        roster = make_roster(list(parties.values()), "other")
        made.pin(roster, fingerprint(roster))
        return made

    @contextmanager
    def instead(self, other: Home) -> Iterator[None]:
        """Let the site's kit name another home."""
        path = self.made.kit(SITE) / "local" / HOME_FILE
        before = path.read_text()
        path.write_text(f"{other.folder}\n")
        try:
            yield
        finally:
            path.write_text(before)
            shutil.rmtree(other.folder)

    @contextmanager
    def coordinators_roster(self, change: Callable[[dict[str, object]], None]) -> Iterator[None]:
        """Let the coordinator pin a changed roster."""
        home = self.made.homes[COORDINATOR]
        path = home.folder / "roster.json"
        before, parties = path.read_bytes(), dict(home.roster.parties)
        change(parties)
        path.unlink()
        forged = make_roster(list(parties.values()), "forged")
        home.pin(forged, fingerprint(forged))
        try:
            yield
        finally:
            path.unlink()
            path.write_bytes(before)


def unapproved(stage: Stage) -> str:
    return stage.submit("unapproved", stage.job.model_copy(update={"title": "Another"}))


def changed(stage: Stage) -> str:
    sites = stage.job.sites.model_copy(update={"max_rows": stage.job.sites.max_rows + 1})
    return stage.submit("changed", stage.job.model_copy(update={"sites": sites}))


def unpinned(stage: Stage) -> str:
    with stage.instead(stage.other_home()):
        return stage.submit("unpinned")


def forged(stage: Stage) -> str:
    other = stage.other_home()

    def swap(parties: dict[str, object]) -> None:
        parties[SITE] = other.identity.public

    with stage.instead(other), stage.coordinators_roster(swap):
        return stage.submit("forged")


def code(stage: Stage) -> str:
    out = stage.spare.with_name("code")
    parties = [party for party in stage.made.homes if party != COORDINATOR]
    for path, content in job_files(json.dumps(stage.job.agreed), "code", parties).items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(json.dumps(content))
    (out / "app" / "custom").mkdir()
    (out / "app" / "custom" / "more.py").write_text("print('here')\n")
    try:
        return stage.made.wait(str(stage.made.admin.submit_job(str(out))))
    except Exception as error:  # of NVFLARE, which may refuse at once
        return f"{error}".splitlines()[0]


def removed(stage: Stage) -> str:
    with stage.coordinators_roster(lambda parties: parties.pop(SITE)):
        return stage.submit("removed")


def records(stage: Stage) -> str:
    """The site's process is killed after its first contribution, and its file is changed."""
    made, path = stage.made, made_records(stage)
    (stage.orders / "kill").write_text(json.dumps([SITE, 1, "share", "after"]))
    submitted = made.submit(stage.job, "records")
    while (stage.orders / "kill").exists():
        time.sleep(0.05)
    made.kill(SITE)
    made.end(submitted)
    before = path.read_text()
    path.write_text(before.rpartition("\n")[0].rpartition("\n")[0] + "\n")
    made.start_party(SITE)
    made.wait_for_clients()
    try:
        return stage.submit("records")
    finally:
        path.write_text(before)


def made_records(stage: Stage) -> Path:
    return stage.made.homes[SITE].records


def missing(stage: Stage) -> str:
    stage.made.kill("aggregator_2")
    engine = stage.job.engine.model_copy(update={"deadline": 10.0})
    job = stage.job.model_copy(update={"engine": engine})
    try:
        return stage.submit("missing", job, absent="aggregator_2")
    finally:
        stage.made.start_party("aggregator_2")
        stage.made.wait_for_clients()


def old(stage: Stage) -> str:
    (stage.orders / "versions").write_text(json.dumps({SITE: "0.0.9"}))
    try:
        return stage.submit("old")
    finally:
        (stage.orders / "versions").unlink()


CASES_REFUSED = {
    "unapproved job": unapproved, "changed job": changed, "unpinned key": unpinned,
    "forged roster": forged, "job with code": code, "removed site": removed,
    "changed records": records, "missing aggregator": missing, "old version of secagg": old,
}  # fmt: skip


def main() -> None:
    """Play all cases, and print a table."""
    wrong = False
    with tempfile.TemporaryDirectory(prefix="secagg-refusals-") as scratch:
        folder = Path(scratch)
        orders = folder / "orders"
        orders.mkdir()
        own = {name: Path(shutil.copy(path, folder)) for name, path in RECORDS.items()}
        os.environ |= {"SECAGG_HOOKS": str(orders), "PYTHONPATH": str(HOOKS)}
        made = Consortium.make(folder / "consortium", own, aggregators=2)
        job = CASES[1].job()
        made.approve(job)
        with running(made):
            stage = Stage(made, orders, job, folder / "spare")
            print("| case | NVFLARE | exit code | the coordinator's log | sums |")
            print("|---|---|---|---|---|")
            log = made.homes[COORDINATOR].folder / "log.txt"
            for case, play in CASES_REFUSED.items():
                known, sums = len(log.read_text()) if log.exists() else 0, stage.entries()
                status = play(stage)
                found = _SAID.search(log.read_text()[known:] if log.exists() else "")
                exit_code, line = found.groups() if found else ("-", "-")
                more = stage.entries() - sums
                finished = (made.run_folder(play.__name__)).exists()
                wrong |= finished or status == "FINISHED:COMPLETED"
                # The count and one sum, at five parties, came before the records changed.
                wrong |= more != (10 if play is records else 0)
                print(
                    f"| {case} | {status} | {exit_code} | {line.partition('. ')[0]} | {more} |",
                    flush=True,
                )  # fmt: skip
    sys.exit(wrong)


if __name__ == "__main__":
    main()
