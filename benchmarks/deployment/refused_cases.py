"""The cases of `refusals.py`: each asks for what must be refused, and returns NVFLARE's status."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from same_bits import COORDINATOR, RECORDS, Consortium

from secagg.core.identity import Role
from secagg.core.randomness import system_random
from secagg.core.roster_file import fingerprint, make_roster
from secagg.deploy.nvflare_job import job_files
from secagg.deploy.nvflare_kit import HOME_FILE
from secagg.jobs.job import Job
from secagg.sessions.homes.home import Home
from secagg.sessions.session_ledgers import open_ledger

SITE = "hungary"


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

    def submit(
        self, name: str, job: Job | None = None, *, absent: str = "", more: tuple[str, ...] = ()
    ) -> str:
        """Submit a job, to all clients but one, or more, and return NVFLARE's status at its end."""
        parties = [*(party for party in self.clients if party != absent), *more]
        return self.made.wait(self.made.submit(job or self.job, name, parties))

    @property
    def clients(self) -> list[str]:
        """The names of the roster's parties but the coordinator."""
        return [name for name in self.made.homes[COORDINATOR].roster.parties if name != COORDINATOR]

    def impatient(self, job: Job) -> Job:
        """Return a job whose coordinator waits for a short time."""
        return job.model_copy(update={"engine": job.engine.model_copy(update={"deadline": 10.0})})

    def other_home(self) -> Home:
        """Make a home of the same site with other keys, in place of an earlier one."""
        shutil.rmtree(self.spare, ignore_errors=True)
        made = Home.create(self.spare, SITE, Role.SITE, system_random, RECORDS[SITE].absolute())
        parties = self.made.homes[SITE].roster.parties | {SITE: made.identity.public}
        roster = make_roster(list(parties.values()), "other")
        made.pin(roster, fingerprint(roster))
        return made

    @contextmanager
    def instead(self, other: Home, name: str = SITE) -> Iterator[None]:
        """Let a party's kit name another home."""
        path = self.made.kit(name) / "local" / HOME_FILE
        before = path.read_text()
        path.write_text(f"{other.folder}\n")
        try:
            yield
        finally:
            path.write_text(before)

    def restart(self, name: str) -> None:
        """Start a party's process again."""
        self.made.kill(name)
        self.made.forget_admin()
        self.made.start_party(name)
        self.made.wait_for_clients()

    @contextmanager
    def loosened(self, *names: str) -> Iterator[None]:
        """Let the kits of these parties allow code in jobs, and all classes."""
        paths = [
            self.made.kit(name) / "local" / file
            for name in names for file in ("authorization.json", "resources.json")
        ]  # fmt: skip
        before = {path: path.read_text() for path in paths}
        for path, text in before.items():
            loose = text.replace('"byoc": "none"', '"byoc": "any"').replace('"enforce"', '"warn"')
            path.write_text(loose)
        try:
            for name in names:
                self.restart(name)
            yield
        finally:
            for path, text in before.items():
                path.write_text(text)
            for name in names:
                self.restart(name)

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


def submit_code(stage: Stage, parties: list[str]) -> str:
    """Submit a job whose code, if a site runs it, writes the file `code-ran`."""
    out = stage.spare.with_name(f"code-{time.time_ns()}")
    for path, content in job_files(json.dumps(stage.job.agreed), "code", parties).items():
        if "client" in path:
            content["components"].append({"id": "more", "path": "more.Ran", "args": {}})
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(json.dumps(content))
    ran = f"open({str(stage.orders / 'code-ran')!r}, 'w').close()\nclass Ran: pass\n"
    (out / "app" / "custom").mkdir()
    (out / "app" / "custom" / "more.py").write_text(ran)
    try:
        return stage.made.wait(str(stage.made.admin.submit_job(str(out))))
    except Exception as error:  # of NVFLARE, which may refuse at once
        return f"{error}".splitlines()[0]


def code(stage: Stage) -> str:
    return submit_code(stage, stage.clients)


def code_let_through(stage: Stage) -> str:
    """The server is the coordinator's, so that it refuses is not enough."""
    with stage.loosened(COORDINATOR):
        return code(stage)


def removed(stage: Stage) -> str:
    everyone = stage.clients
    with stage.coordinators_roster(lambda parties: parties.pop(SITE)):
        return stage.made.wait(stage.made.submit(stage.job, "removed", everyone))


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
    try:
        return stage.submit("missing", stage.impatient(stage.job), absent="aggregator_2")
    finally:
        stage.made.start_party("aggregator_2")
        stage.made.wait_for_clients()


def old(stage: Stage) -> str:
    (stage.orders / "versions").write_text(json.dumps({SITE: "0.0.9"}))
    try:
        return stage.submit("old")
    finally:
        (stage.orders / "versions").unlink()
