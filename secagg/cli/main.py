"""The command line. Each command is a few lines over the Python interface.

Exit codes: 0 done; 1 a bug of ours; 2 wrong use, job or data; 3 refused by a release rule; 4 the
protocol aborted; 6 a run folder was changed. `plan` ends with 0 whoever would refuse. An error is
one line on standard error (with --json, one object): where, what, and how to mend it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secagg.cli.adapt import adapt
from secagg.cli.reproduce import app as reproduce
from secagg.core.version import __version__
from secagg.errors import InternalError, SecaggError, UsageError

if TYPE_CHECKING:
    from secagg.runs.run import Run

app = typer.Typer(
    help="Federated statistics through secure sums.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

budget = typer.Typer(help="What was released of each site's records, and what may still be.")
app.add_typer(budget, name="budget")
app.add_typer(reproduce, name="reproduce")
app.command()(adapt)

Ledgers = Annotated[
    Path,
    typer.Argument(help="A job, a folder of ledgers, or one ledger.", show_default=False),
]
Party = Annotated[
    str | None, typer.Option(help="Whose ledger: the name of a site, or 'coordinator'.")
]
JobFile = Annotated[Path, typer.Argument(help="The job, a TOML file.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a key of the job, e.g. method.level=0.9."
    ),
]
ProtocolName = Annotated[
    str | None, typer.Option("--protocol", help="Run under this protocol, with its defaults.")
]
EngineName = Annotated[
    str | None, typer.Option("--engine", help="Where the parties run: memory or processes.")
]
Key = Annotated[
    Path | None, typer.Option("--key", help="The coordinator's own keys (see secagg key).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class AdjacencyName(StrEnum):
    """`secagg.contracts.noise.Adjacency`, which is not imported here: it would load numpy."""

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"


class Listed(StrEnum):
    """What `secagg list` knows."""

    METHODS = "methods"
    PROTOCOLS = "protocols"


@app.command()
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
    as_json: AsJson = False,
) -> None:
    """Run a job and write its result, evidence and report."""
    from secagg.cli import output  # noqa: PLC0415  # each command imports what it needs, when it runs
    from secagg.runs.run import run as run_job  # noqa: PLC0415

    folder = out or Path("runs") / job.stem
    with output.progress(quiet=as_json) as show:
        done = run_job(
            job, out=folder, overwrite=overwrite, overrides=_overrides(protocol, engine, settings),
            progress=show, key=key,
        )  # fmt: skip
    _show_run(done, folder, as_json)


@app.command()
def key(
    file: Annotated[Path, typer.Argument(help="Where to keep the keys.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show the public key of a coordinator's key file; make the file if there is none."""
    from secagg.core.identity import COORDINATOR  # noqa: PLC0415
    from secagg.core.key_file import make_key, read_key  # noqa: PLC0415
    from secagg.core.randomness import system_random  # noqa: PLC0415

    made = not os.path.lexists(file)
    own = make_key(file, COORDINATOR, system_random) if made else read_key(file, COORDINATOR)
    shown = own.public.verify_key.hex()
    if as_json:
        _print_json({"file": str(file), "made": made, "key": shown})
    else:
        typer.echo(shown)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="The --out of that run.", show_default=False)],
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

    if as_json:
        _print_json(
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
            _fail(UsageError(str(folder), analysis["failed"], "Everything else is written."))


@app.command()
def plan(
    job: JobFile,
    protocol: ProtocolName = None,
    settings: Settings = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Show bounds, bits, messages and who would refuse a job, before any record is read."""
    from secagg.cli import output  # noqa: PLC0415
    from secagg.core.identity import COORDINATOR  # noqa: PLC0415
    from secagg.core.key_file import read_key  # noqa: PLC0415
    from secagg.jobs.job import read_job  # noqa: PLC0415
    from secagg.runs.plan import plan_run  # noqa: PLC0415
    from secagg.runtime.planned_job import plan_job  # noqa: PLC0415

    own = None if key is None else read_key(key, COORDINATOR).public.verify_key
    planned = plan_run(plan_job(read_job(job, _overrides(protocol, None, settings))), own)
    if as_json:
        _print_json(planned)
    else:
        output.show_plan(planned)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    head: Annotated[
        str | None, typer.Option("--head", help="The log's final head, printed when the run ended.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that a run folder is what was written."""
    from dataclasses import asdict  # noqa: PLC0415

    from secagg.audits.run_integrity import verify_folder  # noqa: PLC0415

    checked = verify_folder(folder, head)
    if as_json:
        _print_json(asdict(checked))
    else:
        what = "intact" if checked.failed is None else (
            f"the log of a run that failed ({checked.failed}) and has no result. The log is intact"
        )  # fmt: skip
        typer.echo(
            f"{folder}: {what}. {checked.lines} log lines, {len(checked.files)} files, "
            f"{checked.releases} releases with {checked.signatures} valid signatures.\n"
            f"head {checked.head}"
        )
        if head is None:
            typer.echo(
                "A chain rewritten as a whole shows only against a head kept elsewhere: --head."
            )


@budget.command(name="show")
def budget_show(
    where: Ledgers,
    delta: Annotated[
        float | None, typer.Option(help="Tell the epsilon of everything at this delta.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what was released, what it cost, and what is left under each cap.

    With --json also epsilon at other deltas, and by looser accountants.
    """
    from secagg.cli import output  # noqa: PLC0415
    from secagg.runs import budgets  # noqa: PLC0415

    rows = budgets.show(where, budgets.DELTA if delta is None else delta, in_full=as_json)
    if as_json:
        _print_json(rows)
    else:
        output.show_budget(rows)


@budget.command(name="set")
def budget_set(
    where: Ledgers,
    epsilon: Annotated[float, typer.Option(help="Most that may be spent.")],
    delta: Annotated[float, typer.Option(help="At this delta.")],
    party: Party = None,
    dataset: Annotated[
        str | None, typer.Option(help="Which data set, where neither job nor ledger tells.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="In so many days (default: ever).")] = None,
    adjacency: Annotated[
        AdjacencyName, typer.Option(help="Of data sets.")
    ] = AdjacencyName.ADD_REMOVE,
    as_json: AsJson = False,
) -> None:
    """Set the cap of a data set, before its first run or later; earlier caps stay on record."""
    from secagg.cli import output  # noqa: PLC0415
    from secagg.contracts.noise import Adjacency  # noqa: PLC0415
    from secagg.privacy.accounting.budget import Cap  # noqa: PLC0415
    from secagg.runs import budgets  # noqa: PLC0415

    cap = Cap(epsilon, delta, days, Adjacency(adjacency))
    row = budgets.set_cap(where, party, dataset, cap)
    if as_json:
        _print_json(row)
    else:
        output.show_budget([row])


@budget.command(name="history")
def budget_history(
    where: Ledgers,
    party: Party = None,
    session: Annotated[
        str | None, typer.Option(help="Only of sessions whose names begin so.")
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only what rules refused.")] = False,
    as_json: AsJson = False,
) -> None:
    """List entries and what each cost, re-uses, cohorts, caps and decisions, oldest first."""
    from secagg.cli import output  # noqa: PLC0415
    from secagg.runs import budgets  # noqa: PLC0415

    rows = budgets.history(where, party, session, refused=refused)
    if as_json:
        _print_json(rows)
    else:
        output.show_history(rows, party, session, refused=refused)


@app.command(name="list")
def list_(what: Listed, as_json: AsJson = False) -> None:
    """List methods or protocols."""
    from secagg.jobs import registry  # noqa: PLC0415

    table = registry.METHODS if what is Listed.METHODS else registry.PROTOCOLS
    described = registry.describe(table)
    if as_json:
        _print_json(dict(described))
    else:
        width = max(len(name) for name, _ in described) + 2
        for name, text in described:
            typer.echo(f"{name:{width}}{text}")
        if what is Listed.METHODS:
            typer.echo(f"\n{registry.CHOOSING_A_METHOD}")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"secagg {__version__}")
        raise typer.Exit


def _overrides(
    protocol: str | None, engine: str | None, settings: list[str] | None
) -> dict[str, str]:
    """Return `--set` pairs as a mapping; `--protocol` replaces the whole protocol table."""
    found = {} if protocol is None else {"protocol": f"{{ name = {json.dumps(protocol)} }}"}
    if engine is not None:
        found["engine.name"] = json.dumps(engine)
    for pair in settings or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(
                f"--set {pair}", "is not KEY=VALUE", "For example --set method.level=0.9."
            )
        found[key] = value
    return found


def _print_json(value: Any) -> None:
    from secagg.runs.run_files import finite  # noqa: PLC0415

    typer.echo(json.dumps(finite(value), indent=1, ensure_ascii=False))


def main() -> None:
    """Run the command line; turn every failure into one line and its exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as a shell sets it for `... &`
        signal.signal(signal.SIGINT, _interrupt)  # typer would lose what is noted on the exception
    try:
        sys.exit(app(args=sys.argv[1:] or ["--help"], standalone_mode=False))
    except SecaggError as error:
        if isinstance(error, InternalError) and os.environ.get("SECAGG_TRACEBACK"):
            raise
        _fail(error)
    except _Interrupt as error:
        _fail(_Interrupted("command", "interrupted", error.kept()), 128 + error.number)
    except Exception as error:
        describe = getattr(error, "format_message", None)
        if describe is not None:  # typer's own: a missing argument, an unknown option
            what = " ".join(str(describe()).split())  # some put their choices on lines of their own
            what = what.replace("Value error, ", "").rstrip(".")
            _fail(UsageError("command line", what, "Try --help."))
        if os.environ.get("SECAGG_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        _fail(InternalError("secagg", what, "A bug of ours: set SECAGG_TRACEBACK=1 and report it."))


class _Interrupt(SystemExit):
    """Ctrl-C, or a polite request to end (the signal's number)."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number

    def kept(self) -> str:
        """Return what was noted on the way out: what is kept, and where."""
        return " ".join(getattr(self, "__notes__", ()))


def _interrupt(number: int, _: object) -> None:
    """Leave by way of the clean-up, so that no half-written folder stays behind."""
    # A request that was just about to be sent never is; Python would print a warning about each.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    raise _Interrupt(number)


class _Interrupted(SecaggError):
    """What the user is told then."""

    code = "interrupted"


def _fail(error: SecaggError, exit_code: int | None = None) -> None:
    if "--json" in sys.argv:
        fields = {k: getattr(error, k) for k in ("code", "where", "what", "mend")}
        typer.echo(json.dumps({"error": fields}, ensure_ascii=False), err=True)
    else:
        typer.echo(f"secagg: {error.line()}".replace("\n", " "), err=True)
    sys.exit(error.exit_code if exit_code is None else exit_code)


if __name__ == "__main__":
    main()
