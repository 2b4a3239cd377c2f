"""A consortium in this process: a home for each party, and a fake federated engine between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.jobs import SITES, as_csv, raw_job, table

from secagg.core.identity import COORDINATOR, Role
from secagg.core.randomness import system_random
from secagg.core.roster_file import fingerprint, make_roster
from secagg.jobs.job import Job, parse_job
from secagg.jobs.registry import make_protocol
from secagg.runs.remote_run import lead
from secagg.runs.session_loop import Run
from secagg.runtime.engines.site_node import PartyNode
from secagg.runtime.homes.approvals import approve
from secagg.runtime.homes.home import Home

Before = Callable[["Consortium", str, bytes], bytes]
"""Called before each call with the party and the message; returns the message that arrives."""


@dataclass
class Consortium:
    """Homes with a common roster, and the nodes that run in them.

    calls: the parties that were called, in order
    before, after: change a call or its answer, or raise to lose it
    """

    folder: Path
    job: Job
    homes: dict[str, Home]
    nodes: dict[str, PartyNode] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    before: Before = lambda consortium, party, message: message
    after: Before = lambda consortium, party, answer: answer

    @classmethod
    def of(cls, folder: Path, job: Job | None = None, *, approved: bool = True) -> Consortium:
        """Make the homes of all parties of a job, and pin the roster everywhere."""
        job = remote_job() if job is None else job
        (folder / "records").mkdir(parents=True)
        files = {}
        for seed, site in enumerate(job.sites.names or ()):
            files[site] = folder / "records" / f"{site}.csv"
            files[site].write_text(as_csv(table(seed)), encoding="utf-8")
        everyone = dict.fromkeys(job.sites.names or (), Role.SITE)
        everyone |= dict(make_protocol(job.protocol).parties())
        homes = {COORDINATOR: Home.create(folder / COORDINATOR, COORDINATOR, Role.COORDINATOR,
                                          system_random)}  # fmt: skip
        for name, role in everyone.items():
            records = files[name] if role is Role.SITE else None
            homes[name] = Home.create(folder / name, name, role, system_random, records)
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

    def lead(self, name: str = "run", **changed: Any) -> Run:
        """Run the job as the coordinator."""
        job = self.job.model_copy(update=changed)
        return lead(self.homes[COORDINATOR], job, self.call, "fake", name)


def remote_job(**changed: Any) -> Job:
    """Return the small job with the names of its sites, and a short deadline."""
    raw = {
        "sites": {"max_rows": 100, "names": list(SITES)},
        "protocol": {"name": "masked"},
        "engine": {"deadline": 5},
    }
    return parse_job(raw_job(**(raw | changed)))
