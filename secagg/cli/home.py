"""`secagg site` for a party's home: its keys, its roster, and the jobs it takes part in."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secagg.cli.options import AsJson
from secagg.cli.printing import print_json, say

if TYPE_CHECKING:
    from secagg.sessions.homes.approvals import Asked
    from secagg.sessions.homes.home import Home

HomeFolder = Annotated[
    Path, typer.Option("--home", help="The party's home.", envvar="SECAGG_HOME", show_default=False)
]
Digest = Annotated[
    str, typer.Argument(help="The job's digest, at least 8 digits.", show_default=False)
]


class PartyRole(StrEnum):
    """A copy of `secagg.core.identity.Role`."""

    SITE = "site"
    AGGREGATOR = "aggregator"
    COORDINATOR = "coordinator"


class Approval(StrEnum):
    """How a site approves jobs."""

    EACH = "each"
    POLICY = "policy"


def init(
    home: HomeFolder,
    name: Annotated[str, typer.Option("--name", help="The party's name.", show_default=False)],
    records: Annotated[
        Path | None, typer.Option("--records", help="A site's .csv or .parquet file.")
    ] = None,
    role: Annotated[PartyRole, typer.Option("--role", help="What the party does.")] = (
        PartyRole.SITE
    ),
    approve: Annotated[
        Approval,
        typer.Option("--approve", help="each: jobs approved one by one. policy: by its rules."),
    ] = Approval.EACH,
) -> None:
    """Make a party's home, and draw its keys. Give its card.json to the maker of the roster."""
    from secagg.core.identity import Role  # noqa: PLC0415
    from secagg.core.randomness import system_random  # noqa: PLC0415
    from secagg.sessions.homes.home import Home  # noqa: PLC0415

    own = None if records is None else records.absolute()
    made = Home.create(
        home.absolute(), name, Role(role.value), system_random, own, approve.value
    )  # fmt: skip
    say(f"home    {made.folder}", f"card    {made.folder / 'card.json'}")
    if made.settings.role is Role.SITE:
        say(f"rules   {made.folder / 'policy.toml'}: refuses every job until you choose in it")


def pin(
    roster: Annotated[Path, typer.Argument(help="The roster file.", show_default=False)],
    home: HomeFolder,
    fingerprint: Annotated[
        str,
        typer.Option(
            "--fingerprint", help="The fingerprint as its maker read it out.", show_default=False
        ),
    ],
) -> None:
    """Pin the roster: from now on, these are the keys of all parties."""
    from secagg.core.roster_file import read_roster  # noqa: PLC0415

    read = read_roster(roster)
    _open(home).pin(read, fingerprint)
    say(f"pinned {len(read.parties)} parties: {', '.join(read.parties)}")


def jobs(home: HomeFolder, as_json: AsJson = False) -> None:
    """List the jobs that wait for approval, and those that are approved."""
    from secagg.sessions.homes.approvals import jobs_of  # noqa: PLC0415

    found = jobs_of(_open(home))
    if as_json:
        print_json(
            [{"digest": a.digest, "title": a.job.title, "approved": a.approved} for a in found]
        )
        return
    for asked in found:
        say(f"{asked.digest[:12]}  {_state(asked):8}  {asked.job.title}")
    if not found:
        say("no jobs")


def show(digest: Digest, home: HomeFolder, as_json: AsJson = False) -> None:
    """Show a job: what it asks for, what would leave and what it costs, and if rules allow it."""
    from secagg.cli import output  # noqa: PLC0415
    from secagg.runs.checks.home_check import check_home, coordinator_key  # noqa: PLC0415
    from secagg.runs.plan import plan_run  # noqa: PLC0415
    from secagg.sessions.homes.approvals import find_job  # noqa: PLC0415
    from secagg.sessions.planned_job import named_sites  # noqa: PLC0415

    own = _open(home)
    asked = find_job(own, digest)
    found = check_home(own, asked.job)
    if not as_json:  # first, since a job that cannot be planned must be readable, too
        output.show_job(asked.job)
    planned = {} if found.planned is None else plan_run(found.planned, coordinator_key(own))
    if as_json:
        state = {"digest": asked.digest, "approved": asked.approved, "home": found.plain()}
        print_json({**state, "job": asked.job.agreed, **planned})
        return
    if planned:
        output.show_plan(planned, at_home=True)
    named = named_sites(asked.job)
    if named is not None and len(named.groups) > 1:
        groups = " | ".join(", ".join(group) for group in named.groups)
        say(
            "lost     the coordinator may leave out groups of its choice; "
            f"{named.fewest} sites must be left: {groups}"
        )
    output.show_home_check(found, home)


def approve(
    home: HomeFolder,
    digest: Annotated[
        str | None, typer.Argument(help="Of a job that waits.", show_default=False)
    ] = None,
    job: Annotated[
        Path | None, typer.Option("--job", help="Instead of a digest: the job file.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also if a run would be refused now.")
    ] = False,
) -> None:
    """Approve a job: this party takes part in it, as often as its rules and its ledger allow.

    A job that they would refuse now is approved only with --anyway, because rules may change.
    """
    from secagg.errors import PolicyRefusal, UsageError  # noqa: PLC0415
    from secagg.jobs.job import load_job  # noqa: PLC0415
    from secagg.runs.checks.home_check import check_home  # noqa: PLC0415
    from secagg.sessions.homes import approvals  # noqa: PLC0415

    own = _open(home)
    if (digest is None) == (job is None):
        raise UsageError("site approve", "needs a digest, or --job FILE")
    agreed = load_job(job) if job is not None else approvals.find_job(own, str(digest)).job
    refusals = check_home(own, agreed).refusals
    if refusals and not anyway:
        first, *others = refusals
        more = f" (and {len(others)} more: secagg site show)" if others else ""
        what = f"is not approved: a run would be refused now: {first}{more}"
        raise PolicyRefusal("job", what, "To approve it for later, add --anyway.")
    say(f"approved {approvals.approve(own, agreed)}")
    for why in refusals:
        say(f"! A run would be refused now: {why}")


def refuse(digest: Digest, home: HomeFolder) -> None:
    """Remove a job that waits. For a job that is approved: revoke."""
    from secagg.sessions.homes import approvals  # noqa: PLC0415

    say(f"refused {approvals.refuse(_open(home), digest)}")


def revoke(digest: Digest, home: HomeFolder) -> None:
    """Take back an approval. A session that runs now may end; no later one takes part."""
    from secagg.sessions.homes import approvals  # noqa: PLC0415

    say(f"revoked {approvals.revoke(_open(home), digest)}")


def kit(
    folder: Annotated[Path, typer.Argument(help="The startup kit.", show_default=False)],
    home: HomeFolder,
    check: Annotated[bool, typer.Option("--check", help="Change nothing.")] = False,
    remove_jobs: Annotated[
        float | None,
        typer.Option(
            "--remove-jobs",
            metavar="DAYS",
            help="Remove what the kit keeps of older jobs.",
        ),
    ] = None,
) -> None:
    """Set up an NVFLARE startup kit for this home: no code from others, no log streaming."""
    from secagg.deploy.nvflare_kit import check_kit, harden, remove_old_jobs  # noqa: PLC0415

    own = _open(home)
    if not check:
        harden(folder, own)
    check_kit(folder, own)
    if remove_jobs is not None and not check:
        for job in remove_old_jobs(folder, own, remove_jobs, datetime.now(UTC)):
            say(f"removed {job}")
    say(f"kit     {folder} is set up for {own.name}")


COMMANDS = (init, pin, jobs, show, approve, refuse, revoke, kit)
"""What `secagg site` has besides `check`."""


def _open(folder: Path) -> Home:
    from secagg.sessions.homes.home import Home  # noqa: PLC0415

    return Home.open(folder)


def _state(asked: Asked) -> str:
    return "approved" if asked.approved else "waits"
