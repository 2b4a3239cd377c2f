"""A consortium in this process: a home for each party, and a fake federated engine between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from support.runs.jobs import RULES, SITES, as_csv, raw_job, table

from secagg.core.identity import COORDINATOR, Role
from secagg.core.randomness import system_random
from secagg.core.roster_file import fingerprint, make_roster
from secagg.jobs.job import Job, parse_job
from secagg.jobs.registry import make_protocol
from secagg.runs.remote_run import lead
from secagg.runs.session_loop import Run
from secagg.sessions.engines import remote
from secagg.sessions.engines.site_node import PartyNode
from secagg.sessions.homes.approvals import approve
from secagg.sessions.homes.home import Home

Before = Callable[["Consortium", str, bytes], bytes]
"""Called before each call with the party and the message; returns the message that arrives."""


class Clock:
    """The clock of the engine's side, in place of the module `time`."""

    skipped = 0.0
    sleep = staticmethod(time.sleep)

    @classmethod
    def monotonic(cls) -> float:
        return time.monotonic() + cls.skipped


@dataclass
class Consortium:
    """Homes with a common roster, and the nodes that run in them.

    calls: the parties that were called, in order
    away: the number of parties whose call has no answer; deadlines: how many have passed
    before, after: change a call or its answer, or raise to lose it
    """

    folder: Path
    job: Job
    homes: dict[str, Home]
    nodes: dict[str, PartyNode] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    away: int = 0
    deadlines: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)
    before: Before = lambda consortium, party, message: message
    after: Before = lambda consortium, party, answer: answer

    @classmethod
    def of(
        cls, folder: Path, job: Job | None = None, *, approved: bool = True, rows: int = 12
    ) -> Consortium:
        """Make the homes of all parties of a job, and pin the roster everywhere.

        rows: records of a site
        """
        job = remote_job() if job is None else job
        (folder / "records").mkdir(parents=True)
        files = {}
        for seed, site in enumerate(job.sites.names or ()):
            files[site] = folder / "records" / f"{site}.csv"
            files[site].write_text(as_csv(table(seed, rows)), encoding="utf-8")
        everyone = dict.fromkeys(job.sites.names or (), Role.SITE)
        everyone |= dict(make_protocol(job.protocol).parties())
        homes = {COORDINATOR: Home.create(folder / COORDINATOR, COORDINATOR, Role.COORDINATOR,
                                          system_random)}  # fmt: skip
        for name, role in everyone.items():
            records = files[name] if role is Role.SITE else None
            homes[name] = Home.create(folder / name, name, role, system_random, records)
            if role is Role.SITE:
                (homes[name].folder / "policy.toml").write_text(RULES)
        roster = make_roster([home.identity.public for home in homes.values()], "roster")
        for home in homes.values():
            home.pin(roster, fingerprint(roster))
        made = cls(folder, job, homes)
        for name in everyone:
            if approved:
                approve(homes[name], job)
            made.restart(name)
        return made

    def restart(self, name: str) -> None:
        """End the party's process, if there is one, and start another."""
        if name in self.nodes:
            self.nodes[name].close()
        self.nodes[name] = PartyNode(Home.open(self.homes[name].folder))

    def call(self, party: str, message: bytes, seconds: float) -> bytes:
        """Carry a message to a party's node, as an engine's adapter does."""
        self.calls.append(party)
        arrived = self.before(self, party, message)
        return self.after(self, party, self.nodes[party].answer(arrived))

    def let_the_deadline_pass(self) -> None:
        """Be away until all other parties have answered; then it is long after the deadline.

        So a test waits for no deadline, which would be too short on a busy computer or too long on
        any other. Raises `ConnectionError`, as a call that has no answer.
        """
        with self._changed:
            self.away, now = self.away + 1, self.deadlines
            self._changed.wait_for(lambda: self.deadlines > now)
            self.away -= 1
        raise ConnectionError

    def wait(self, futures: Collection[Future[Any]], seconds: float) -> None:
        """Wait for the engine's calls; the deadline passes when all left are away."""
        while left := sum(not future.done() for future in futures):
            with self._changed:
                if left <= self.away:
                    Clock.skipped += 1e6
                    self.deadlines += 1
                    self._changed.notify_all()
            time.sleep(0.005)

    def lead(self, name: str = "run", **changed: Any) -> Run:
        """Run the job as the coordinator."""
        job = self.job.model_copy(update=changed)
        with patch.object(remote, "time", Clock), patch.object(remote, "wait", self.wait):
            return lead(self.homes[COORDINATOR], job, self.call, "fake", name)


def remote_job(**changed: Any) -> Job:
    """Return the small job with the names of its sites."""
    raw = {
        "sites": {"max_rows": 100, "names": list(SITES)},
        "protocol": {"name": "masked"},
        "engine": {"deadline": 100},
    }
    return parse_job(raw_job(**(raw | changed)))
