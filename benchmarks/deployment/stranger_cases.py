"""Cases of `refusals.py` with a client of NVFLARE that is connected, but that no roster has."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refused_cases import SITE, Stage
from same_bits import RECORDS, Consortium

from secagg.core.identity import Role
from secagg.core.randomness import system_random
from secagg.core.roster_file import fingerprint, make_roster
from secagg.jobs.job import Job
from secagg.sessions.homes.home import Home

STRANGER = "stranger"


def add_stranger(made: Consortium) -> None:
    """Give a stranger a home, whose roster has it in addition, and a kit that the server knows."""
    records, parties = RECORDS[SITE].absolute(), made.homes[SITE].roster.parties
    home = Home.create(
        made.folder / "homes" / STRANGER, STRANGER, Role.SITE, system_random, records
    )
    roster = make_roster([*parties.values(), home.identity.public], "stranger")
    home.pin(roster, fingerprint(roster))
    made.homes[STRANGER] = home
    made.install_kits()


def with_stranger(stage: Stage) -> Job:
    """Return the job with the stranger as one more site, which every site has approved."""
    sites = stage.job.sites.model_copy(update={"names": (*sorted(RECORDS), STRANGER)})
    job = stage.job.model_copy(update={"sites": sites})
    stage.made.approve(job)
    return job


def planted(stage: Stage) -> str:
    """The job names the stranger."""
    return stage.submit("planted", with_stranger(stage), more=(STRANGER,))


def planted_by_coordinator(stage: Stage) -> str:
    """The coordinator has pinned the stranger, too."""
    public = stage.made.homes[STRANGER].identity.public
    with stage.coordinators_roster(lambda parties: parties.update({STRANGER: public})):
        return stage.submit("planted_by_coordinator", with_stranger(stage))


@contextmanager
def stolen_home(stage: Stage) -> Iterator[Home]:
    """Copy the home of a site."""
    shutil.rmtree(stage.spare, ignore_errors=True)
    shutil.copytree(stage.made.homes[SITE].folder, stage.spare)
    yield Home.open(stage.spare)
    shutil.rmtree(stage.spare)


def stolen(stage: Stage) -> str:
    """The stranger has a copy of a site's home, and takes part in place of the site."""
    job = stage.impatient(stage.job)
    with stolen_home(stage) as home, stage.instead(home, STRANGER):
        return stage.submit("stolen", job, absent=SITE, more=(STRANGER,))


def wrong_home(stage: Stage) -> str:
    """The site's kit names the home of another party."""
    with stage.instead(stage.made.homes[STRANGER]):
        return stage.submit("wrong_home")


def received(stage: Stage) -> set[Path]:
    """Return what sessions and jobs have left in the stranger's home."""
    home = stage.made.homes[STRANGER].folder
    return {*(home / "runs").iterdir(), *(home / "waiting").iterdir(), *home.glob("log*.txt")}
