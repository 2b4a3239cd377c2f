"""`secagg roster` and `secagg deploy`: from cards to a roster, from a job to an engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from secagg.cli.home import HomeFolder
from secagg.cli.options import JobFile, Settings, job_overrides
from secagg.cli.printing import say

roster = typer.Typer(help="The list of all parties with their public keys.")
deploy = typer.Typer(help="Run a job over parties on computers of their own.")


@roster.command(name="make")
def make(
    cards: Annotated[list[Path], typer.Argument(help="All parties' cards.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="The roster file.", show_default=False)],
) -> None:
    """Make a roster of cards, and print its fingerprint, to be read out to every party."""
    from secagg.core.private_files import write_private  # noqa: PLC0415
    from secagg.core.roster_file import make_roster, read_card, roster_text  # noqa: PLC0415
    from secagg.errors import UsageError  # noqa: PLC0415

    made = make_roster([read_card(card) for card in cards], "cards")
    if out.exists():
        raise UsageError(str(out), "already exists", "Choose another --out.")
    try:
        write_private(out, roster_text(made).encode())
    except OSError as error:
        raise UsageError(str(out), f"cannot be written ({error.strerror})") from None
    show(out)


@roster.command(name="show")
def show(
    file: Annotated[Path, typer.Argument(help="The roster file.", show_default=False)],
) -> None:
    """Show the parties of a roster, and its fingerprint."""
    from secagg.core.roster_file import fingerprint, read_roster  # noqa: PLC0415

    read = read_roster(file)
    width = max(map(len, read.parties))
    for party in read.parties.values():
        say(f"{party.name:{width}}  {party.role.value}")
    say(f"fingerprint  {fingerprint(read)}")


OutFolder = Annotated[Path, typer.Option("--out", help="The folder to submit.", show_default=False)]
RunName = Annotated[
    str | None, typer.Option("--name", help="Of the run (default: the job file's name).")
]


@deploy.command(name="nvflare")
def nvflare(
    job: JobFile, home: HomeFolder, out: OutFolder, name: RunName = None, settings: Settings = None
) -> None:
    """Write the job folder that NVFLARE gets, without code. The sites must approve the job."""
    from secagg.deploy.nvflare_job import write_job_folder  # noqa: PLC0415

    def write(text: str, parties: list[str]) -> None:
        write_job_folder(out, text, name or job.stem, parties)

    _write(job, home, out, settings, write)


@deploy.command(name="flower")
def flower(
    job: JobFile, home: HomeFolder, out: OutFolder, name: RunName = None, settings: Settings = None
) -> None:
    """Write the app folder that Flower gets, without code. The sites must approve the job."""
    from secagg.deploy.flower_job import write_app_folder  # noqa: PLC0415

    def write(text: str, _: list[str]) -> None:
        write_app_folder(out, text, name or job.stem)

    _write(job, home, out, settings, write)


def _write(
    job: Path, home: Path, out: Path, settings: list[str] | None,
    write: Callable[[str, list[str]], None],
) -> None:  # fmt: skip
    """Write a job, as JSON, for its pinned parties, and print what the officers must know."""
    from secagg.jobs.job import load_job, parse_job  # noqa: PLC0415
    from secagg.runs.remote_run import pinned_parties, plan_remote  # noqa: PLC0415
    from secagg.sessions.homes.approvals import approval_digest  # noqa: PLC0415
    from secagg.sessions.homes.home import Home  # noqa: PLC0415

    loaded = load_job(job, job_overrides(None, None, settings))
    agreed = parse_job({**loaded.agreed, "engine": {"deadline": loaded.engine.deadline}})
    parties = pinned_parties(Home.open(home), plan_remote(agreed))
    write(agreed.model_dump_json(), sorted(parties))
    say(f"job     {approval_digest(agreed)}", f"folder  {out}", f"parties {', '.join(parties)}")
