"""The command line. Each command is a few lines over the Python interface.

Exit codes: 0 success; 1 internal error; 2 wrong usage, job or data; 3 refused by a release rule;
4 the protocol aborted; 5 an audit found a leak; 6 a run folder was changed; 7 a result must not be
used. `plan` ends with 3 if a run would be refused. An error is one line on standard error (with
--json, one object): where, what, advice.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secagg.cli.adapt import adapt
from secagg.cli.audit import audit
from secagg.cli.budget import budget
from secagg.cli.compliance import report, sign
from secagg.cli.deploy import deploy, roster
from secagg.cli.experiment import experiment
from secagg.cli.failures import InterruptedRun, Interruption, exit_with, on_signal
from secagg.cli.options import (
    AsJson,
    EngineName,
    JobFile,
    Key,
    ProtocolName,
    Settings,
    job_overrides,
)
from secagg.cli.printing import print_json, say
from secagg.cli.query import query
from secagg.cli.settings import settings
from secagg.cli.site import site
from secagg.core.version import __version__
from secagg.errors import InternalError, PolicyRefusal, SecaggError, UnusableResult, UsageError

if TYPE_CHECKING:
    from secagg.runs.run import Run

app = typer.Typer(
    help="Federated statistics through secure sums.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Listed(StrEnum):
    """What `secagg list` can list."""

    METHODS = "methods"
    PROTOCOLS = "protocols"
    ATTACKS = "attacks"


def run(
    job: JobFile,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the run (default: runs/<job name>).")
    ] = None,
    protocol: ProtocolName = None,
    engine: EngineName = None,
    settings: Settings = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    key: Key = None,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="Write every message, too, for secagg audit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a job and write its result, evidence and report."""
    from secagg.cli import output  # noqa: PLC0415  # each command loads only what it needs
    from secagg.runs.run import run as run_job  # noqa: PLC0415

    folder = out or Path("runs") / job.stem
    with output.progress(quiet=as_json) as show:
        done = run_job(
            job,
            out=folder,
            overwrite=overwrite,
            overrides=job_overrides(protocol, engine, settings),
            progress=show,
            key=key,
            transcript=transcript,
        )
    _show_run(done, folder, as_json)


def key(
    file: Annotated[Path, typer.Argument(help="The key file.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show the public key of a coordinator's key file; create the file if it does not exist."""
    from secagg.core.identity import COORDINATOR  # noqa: PLC0415
    from secagg.core.key_file import make_key, read_key  # noqa: PLC0415
    from secagg.core.randomness import system_random  # noqa: PLC0415

    made = not os.path.lexists(file)
    own = make_key(file, COORDINATOR, system_random) if made else read_key(file, COORDINATOR)
    shown = own.public.verify_key.hex()
    if as_json:
        print_json({"file": str(file), "made": made, "key": shown})
    else:
        say(shown)


def resume(
    folder: Annotated[Path, typer.Argument(help="The run's --out folder.", show_default=False)],
    deadline: Annotated[
        float | None, typer.Option("--deadline", help="Seconds for each phase from now on.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Continue a run of engine "processes" that failed or was killed."""
    from secagg.cli import output  # noqa: PLC0415
    from secagg.runs.run import resume as resume_run  # noqa: PLC0415

    with output.progress(quiet=as_json) as show:
        done = resume_run(folder, deadline=deadline, progress=show)
    _show_run(done, folder, as_json)


def _show_run(done: Run, folder: Path, as_json: bool) -> None:
    from secagg.cli import output  # noqa: PLC0415
    from secagg.evidence.claims.privacy import PrivacyClaims  # noqa: PLC0415
    from secagg.reports.results import blocks  # noqa: PLC0415
    from secagg.reports.summary import ending  # noqa: PLC0415

    if as_json:
        print_json(
            {
                "folder": str(folder),
                "log": done.facts["log"],
                "warnings": [warning for warning, _ in output.warnings(done)],
                "remarks": list(done.remarks),
                "result": done.result.summary,
            }
        )
    else:
        output.show_run(done)
    for analysis in done.result.summary.get("analyses", []):
        if "failed" in analysis:
            advice = "All other results are written."
            exit_with(UnusableResult(str(folder), analysis["failed"], advice))
    unusable = [block for block in blocks(done.facts, done.result.summary) if not block.usable]
    if unusable:
        what = unusable[0].title + ": " + next(iter(unusable[0].notes), "not converged").rstrip(".")
        exit_with(UnusableResult(str(folder), f"a result must not be used. {what}"))
    if not as_json:
        say(ending(done.facts, done.result.summary, PrivacyClaims.of(done.facts)))


def plan(
    job: JobFile,
    protocol: ProtocolName = None,
    settings: Settings = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Show bounds, bits, messages and which site would refuse the job, before it runs."""
    from secagg.cli import output  # noqa: PLC0415
    from secagg.core.identity import COORDINATOR  # noqa: PLC0415
    from secagg.core.key_file import read_key  # noqa: PLC0415
    from secagg.jobs.job import read_job  # noqa: PLC0415
    from secagg.runs.plan import plan_run  # noqa: PLC0415
    from secagg.sessions.planned_job import plan_job  # noqa: PLC0415

    own = None if key is None else read_key(key, COORDINATOR).public.verify_key
    planned = plan_run(plan_job(read_job(job, job_overrides(protocol, None, settings))), own)
    if as_json:
        print_json(planned)
    else:
        output.show_plan(planned)
    if planned["refusals"]:
        first, *others = planned["refusals"]
        more = f" (and {len(others)} more)" if others else ""
        exit_with(PolicyRefusal(str(job), f"a run would be refused: {first}{more}"))


def verify(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Folder of a run, a report, an audit or an experiment.", show_default=False
        ),
    ],
    head: Annotated[
        str | None, typer.Option("--head", help="The log's final head, printed when the run ended.")
    ] = None,
    recompute: Annotated[
        bool, typer.Option(help="Compute the result again from the released sums.")
    ] = True,
    again: Annotated[
        bool, typer.Option("--again", help="Also run audits and experiments anew, and compare.")
    ] = False,
    records: Annotated[
        list[Path] | None,
        typer.Option(
            "--records",
            help="With --again: a job whose records to use, a run's folder, or an experiment.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a run folder, the sites' signatures in it, and that the result follows.

    A report: check every run in it, and build every statement again from the evidence. An audit or
    an experiment: compute again what follows from its numbers.
    """
    from dataclasses import asdict  # noqa: PLC0415

    measured = not (folder / "run.json").exists() and any(
        (folder / name).exists() for name in ("report.json", "audit.json", "summary.json")
    )
    if records and not again:
        raise UsageError("--records", "is for --again", "Add --again.")
    if measured:
        from secagg.cli.output.verified import show_measured  # noqa: PLC0415

        show_measured(folder, (records or []) if again else None, as_json=as_json)
        return
    if again:
        raise UsageError("--again", "is for reports, audits and experiments", "Leave it out.")
    from secagg.evidence.integrity import verify_folder  # noqa: PLC0415

    checked = verify_folder(folder, head, recompute=recompute)
    if as_json:
        print_json(asdict(checked))
    else:
        from secagg.cli.output.verified import show_verified  # noqa: PLC0415

        show_verified(folder, checked, head is not None)


def list_(
    what: Listed,
    privacy: Annotated[
        bool, typer.Option("--privacy", help="Methods: where they can have noise.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List methods, protocols or attacks."""
    from secagg.jobs import registry  # noqa: PLC0415

    if privacy:
        if what is not Listed.METHODS:
            raise UsageError("--privacy", "is for methods", "Write: secagg list methods --privacy")
        _list_placements(as_json=as_json)
        return
    if what is Listed.ATTACKS:
        from secagg.audits.catalogue import make_attacks  # noqa: PLC0415

        described = [(attack.name, attack.title) for attack in make_attacks()]
    else:
        table = registry.METHODS if what is Listed.METHODS else registry.PROTOCOLS
        described = registry.describe(table)
    if as_json:
        print_json(dict(described))
    else:
        width = max(len(name) for name, _ in described) + 2
        for name, text in described:
            say(f"{name:{width}}{text}")
        if what is Listed.METHODS:
            say("", " ".join(registry.CHOOSING_A_METHOD.split()))


def _list_placements(*, as_json: bool) -> None:
    """Print where each method can have the noise of differential privacy."""
    from secagg.cli.output.tables import Table  # noqa: PLC0415
    from secagg.cli.output.terminal import standard_output  # noqa: PLC0415
    from secagg.jobs import registry  # noqa: PLC0415

    found = registry.placements()
    if as_json:
        print_json(
            {
                name: {"placements": list(p.where), "note": p.note, "instead": p.instead}
                for name, p in found.items()
            }
        )
        return
    table = Table("method", "noise", "remarks")
    for name, each in found.items():
        table.add_row(name, ", ".join(each.where) or "none", f"{each.note} {each.instead}".strip())
    standard_output().print(table)
    say("", " ".join(registry.WHAT_A_RECORD_IS.split()))


_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Analyse": (plan, run, resume, adapt, query),
    "Check and audit": (verify, audit, experiment, report, sign),
    "Sites and parties": (key,),
    "Look up": (list_, settings),
}
"""In the order of work, by the headings of --help."""

for panel, commands in _COMMANDS.items():
    for command in commands:
        app.command(name=command.__name__.strip("_"), rich_help_panel=panel)(command)
for name, group in {"site": site, "budget": budget, "roster": roster, "deploy": deploy}.items():
    app.add_typer(group, name=name, rich_help_panel="Sites and parties")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        say(f"secagg {__version__}")
        raise typer.Exit


def main(program: typer.Typer = app) -> None:
    """Run a command line; turn every failure into one line and its exit code.

    program: commands of one's own, with these errors and exit codes
    """
    signal.signal(signal.SIGTERM, on_signal)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a shell ignores it for `... &`
        signal.signal(signal.SIGINT, on_signal)  # typer would lose the exception's notes
    try:
        sys.exit(program(args=sys.argv[1:] or ["--help"], standalone_mode=False))
    except SecaggError as error:
        if isinstance(error, InternalError) and os.environ.get("SECAGG_TRACEBACK"):
            raise
        exit_with(error)
    except Interruption as error:
        exit_with(InterruptedRun("command", "interrupted", error.advice), 128 + error.number)
    except Exception as error:
        describe = getattr(error, "format_message", None)
        if describe is not None:  # an error of typer: a missing argument, an unknown option
            what = " ".join(str(describe()).split())  # some have several lines
            what = what.replace("Value error, ", "").rstrip(".")
            exit_with(UsageError("command line", what, "Try --help."))
        if os.environ.get("SECAGG_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        advice = "This is an internal error: set SECAGG_TRACEBACK=1 and report it."
        exit_with(InternalError("secagg", what, advice))
