"""Homes of a consortium whose parties are all on this computer, for any federated engine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import psutil

from secagg.core.identity import COORDINATOR, Role
from secagg.core.randomness import system_random
from secagg.core.roster_file import fingerprint, make_roster
from secagg.jobs.job import Job, load_job
from secagg.jobs.registry import make_protocol
from secagg.sessions.homes.approvals import approve
from secagg.sessions.homes.home import Home

RULES = """\
min_sites = 3
min_records = 3
min_level_records = 1
min_cell_records = 1
min_level_sites = 1
max_leverage = 1.0
protocols = ["any"]

[budget]
period_epsilon = 10
period_delta = 1e-5
exact_jobs = "by_rules"
"""
"""Each hospital's own rules: no stricter than the job's, since these records are small examples."""
HEART = Path(__file__).parents[1] / "heart-disease"


def make_homes(folder: Path, records: Mapping[str, Path], aggregators: int = 0) -> dict[str, Home]:
    """Make all parties' homes and pin their roster. records: each site's file, by its name."""
    folder.mkdir(mode=0o700)
    everyone = {COORDINATOR: Role.COORDINATOR, **dict.fromkeys(records, Role.SITE)}
    everyone |= {f"aggregator_{i + 1}": Role.AGGREGATOR for i in range(aggregators)}
    homes = {}
    for name, role in everyone.items():
        own = records[name].absolute() if role is Role.SITE else None
        homes[name] = Home.create(folder / name, name, role, system_random, own)
        if role is Role.SITE:
            (homes[name].folder / "policy.toml").write_text(RULES)
    roster = make_roster([home.identity.public for home in homes.values()], "roster")
    for home in homes.values():
        home.pin(roster, fingerprint(roster))
    return homes


def approve_everywhere(homes: Mapping[str, Home], job: Job) -> None:
    """Let every party that the job names approve it."""
    for name in parties_of(job):
        approve(homes[name], job)


def parties_of(job: Job) -> list[str]:
    """Return the names of the parties of a job but the coordinator."""
    return [*(job.sites.names or ()), *dict(make_protocol(job.protocol).parties())]


def heart_disease(path: Path, protocol: str) -> tuple[Job, dict[str, Path]]:
    """Return a job of examples/heart-disease over its four hospitals, and their files."""
    records = {path.stem: path for path in sorted((HEART / "data").glob("*.csv"))}
    overrides = {
        "protocol": f'{{ name = "{protocol}" }}',
        "sites.names": json.dumps(list(records)),
        "simulation.site_alone": "false",
    }
    return load_job(path, overrides), records


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Consortium(Protocol):
    """The parties of a federated engine on this computer."""

    homes: dict[str, Home]

    def start(self) -> None:
        """Start all processes."""

    def stop(self) -> None:
        """End all processes."""

    def processes_of(self, name: str) -> list[psutil.Process]:
        """Return a party's processes."""
        ...


Made = TypeVar("Made", bound=Consortium)


@contextmanager
def running(made: Made) -> Iterator[Made]:
    """Start a consortium, and stop all its processes at the end."""
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Memory(threading.Thread):
    """Watches the memory of all processes of a consortium: the largest sum.

    Pages that several processes share count in proportion (PSS).
    """

    def __init__(self, made: Consortium) -> None:
        super().__init__(daemon=True)
        self.made, self.largest, self.processes = made, 0, 0
        self.ended = threading.Event()

    def run(self) -> None:
        """Look twice a second."""
        while not self.ended.wait(0.5):
            total, number = 0, 0
            for name in self.made.homes:
                for process in self.made.processes_of(name):
                    try:
                        total += process.memory_full_info().pss
                        number += 1
                    except psutil.Error:
                        continue
            if total > self.largest:
                self.largest, self.processes = total, number
