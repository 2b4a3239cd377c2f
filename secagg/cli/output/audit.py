"""What `secagg audit` prints: one line an attack, with its number, control and verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from secagg.audits.audit import Attacked, Audit, Progress
from secagg.audits.contract import Verdict
from secagg.audits.folder_audit import FolderAudit
from secagg.cli.output.tables import Table
from secagg.cli.output.terminal import standard_error, standard_output
from secagg.core.private_files import write_private
from secagg.errors import UsageError
from secagg.evidence.numbers import count, counted, declared, typeset
from secagg.evidence.run_files import json_bytes
from secagg.jobs.job import Job
from secagg.reports.audits.page import audit_page, interval, number, remark

_FILES = {"audit.json", "audit.html", "cache"}
_HEADS = ("attack", "view", "number", "guess", "limit", "control", "verdict")
_COLOURS = {
    Verdict.LEAK: "bold red",
    Verdict.NO_LEAK_FOUND: "green",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_APPLICABLE: "dim",
}


@contextmanager
def working(*, quiet: bool) -> Iterator[Progress]:
    """Show a bar with what is done, on standard error; nothing if quiet."""
    bar = Bar(
        TextColumn("audit"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=standard_error(),
        transient=True,
        disable=quiet,
    )
    with bar:
        task = bar.add_task("reading the records", total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total,
            description=f"{done} of {total} attacks; {escape(what)}",
        )  # fmt: skip


def show(audit: Audit | FolderAudit) -> None:
    """Print the findings."""
    if isinstance(audit, Audit):
        _show_job_audit(audit)
    else:
        _show_folder_audit(audit)
    if not audit.leaks:  # a leak is the error that the command ends with
        found = Counter(each.verdict.value for each in audit.attacked)
        listed = ", ".join(f"{count(number)} {verdict}" for verdict, number in found.items())
        standard_output().print(f"no number is beyond its limit: {listed}", style="bold")


def check_folder(folder: Path, about: str) -> None:
    """Refuse a folder that has anything but an audit of the same, or is inside that of a run.

    about: a digest of the job, or the name of the run's session
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError("--out", f"{folder} is a file", "Give a folder.")
    for place in (folder.resolve(), *folder.resolve().parents):
        if (place / "run.json").exists():
            what = f"{folder} is in the folder of a run, which must not change"
            raise UsageError("--out", what, "Give another folder.")
    if not folder.exists():
        return
    if not {path.name for path in folder.iterdir()} <= _FILES:
        raise UsageError("--out", f"{folder} holds other files", "Give a new folder.")
    try:
        earlier = json.loads((folder / "audit.json").read_text("utf-8")).get("about", about)
    except (OSError, ValueError, AttributeError):
        return
    if earlier != about:
        what = f"{folder} has the audit of another job or run"
        raise UsageError("--out", what, "Give another folder.")


def write_audit(content: Mapping[str, Any], folder: Path) -> None:
    """Write audit.json and audit.html into a folder; both are private. Raises `UsageError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(folder / "audit.json", json_bytes(content))
        write_private(folder / "audit.html", audit_page(content).encode())
    except OSError as error:
        raise UsageError(str(folder), f"cannot be written ({error.strerror})") from None


def _show_job_audit(audit: Audit) -> None:
    out = standard_output()
    for why in audit.refusals:
        out.print(f"a run would be refused: {escape(why)}", style="bold red")
    _show_job(audit.job)
    out.print(
        f"{counted(len(audit.sites), 'site')}, {counted(audit.records, 'record')}; "
        f"{count(audit.set_aside)} set aside for "
        f"comparison; seed {audit.seed}"
    )
    _show_attacks(audit.attacked, _HEADS)
    out.print(
        "guess: the same without the run. control: the same attack where the leak is certain, for "
        "example on this job in clear and without noise."
    )


def _show_folder_audit(audit: FolderAudit) -> None:
    out = standard_output()
    _show_job(audit.job)
    transcript = "with" if audit.with_messages else "without"
    out.print(
        f"{counted(len(audit.sites), 'site')}; session {audit.session[:8]}, {transcript} transcript"
    )
    _show_attacks(audit.attacked, [head for head in _HEADS if head not in {"guess", "control"}])


def _show_job(job: Job) -> None:
    noise = "" if job.privacy.epsilon is None else f", epsilon {declared(job.privacy.epsilon)}"
    text = f"[bold]{escape(job.title)}[/]: {job.method.name} under {job.protocol.name}{noise}"
    standard_output().print(text)


def _show_attacks(attacked: Sequence[Attacked], heads: Sequence[str]) -> None:
    out, table = standard_output(), Table()
    for head in heads:
        left = head in {"attack", "view", "verdict"}
        table.add_column(head, justify="left" if left else "right", no_wrap=head != "view")
    tried = {each.attack.name for each in attacked if each.finding is not None}
    meanings, missing = dict[str, None](), dict[str, dict[str, None]]()
    for each in attacked:
        attack = each.attack
        if each.finding is None:
            name = each.label if attack.name not in tried else f"{each.label} ({each.who.value})"
            missing.setdefault(f"{each.verdict.value} ({each.why})", {})[name] = None
            continue
        row = _row(each)
        table.add_row(*(row[head] for head in heads))
        own = each.outcome.limit
        if own is not None and own != each.limit:
            meanings[f"{each.label}: the program's own limit is {typeset(str(own))}."] = None
        meanings[
            f"{attack.name}: {attack.metric} = {attack.meaning}. The attacker knows {attack.knows}."
        ] = None
        if text := remark(vars(each.finding)):
            meanings[f"{each.label}: {text}"] = None
        if each.why:
            meanings[f"{each.label} ({each.who.value}) is {each.verdict.value}: {each.why}."] = None
    if table.row_count:
        out.print(table)
    for text in meanings:
        out.print(escape(text))
    for why, names in missing.items():
        out.print(f"[dim]{', '.join(names)}: {escape(why)}[/]")


def _row(each: Attacked) -> dict[str, str]:
    assert each.finding is not None
    colour = _COLOURS[each.verdict]
    return {
        "attack": each.label,
        "view": each.who.value,
        "number": interval(vars(each.finding)),
        "guess": number(each.finding.baseline),
        "limit": typeset(str(each.limit)),
        "control": "" if each.control is None else interval(vars(each.control)),
        "verdict": f"[{colour}]{each.verdict.value}[/]",
    }
