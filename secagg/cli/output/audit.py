"""What `secagg audit` prints: first what leaked, then a line for each number.

What the numbers mean, and why other attacks do not apply, is in audit.html and audit.json.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from secagg.audits.audit import Attacked, Audit, Progress, leaks
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
_COMPARISONS = {"guess", "control"}
_WIDE = 105  # columns of a terminal on which all fit
_COLOURS = {
    Verdict.LEAK: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NO_LEAK_FOUND: "green",
    Verdict.NOT_APPLICABLE: "dim",
}
"""In the order in which they are shown."""
_NAMED = 3  # leaks in the answer
_REASON = 100  # characters of a refusal in the answer


@contextmanager
def working(*, quiet: bool, folder: Path | None = None) -> Iterator[Progress]:
    """Show a bar with what is done, on standard error; nothing if quiet.

    folder: has what was found, and goes on from there, if the user interrupts the audit of a job
    """
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
        try:
            yield lambda done, total, what: bar.update(
                task, completed=done, total=total,
                description=f"{done} of {total} attacks; {escape(what)}",
            )  # fmt: skip
        except BaseException as interruption:
            if folder is not None:
                interruption.add_note(f"The same command goes on with what is in {folder}.")
            raise


def show(audit: Audit | FolderAudit, folder: Path | None) -> None:
    """Print the answer, a table of all numbers, and why some show nothing.

    folder: that has the full list, if it was written
    """
    out = standard_output()
    for text, style in answer(audit):
        out.print(escape(text), style=style)
    out.print()
    _show_job(audit.job)
    if isinstance(audit, Audit):
        out.print(
            f"{counted(len(audit.sites), 'site')}, {counted(audit.records, 'record')}; "
            f"{count(audit.set_aside)} set aside for comparison; seed {audit.seed}"
        )
        heads = [h for h in _HEADS if h not in _COMPARISONS or out.width >= _WIDE]
    else:
        transcript = "with" if audit.with_messages else "without"
        sites = counted(len(audit.sites), "site")
        out.print(f"{sites}; session {audit.session[:8]}, {transcript} transcript")
        heads = [h for h in _HEADS if h not in _COMPARISONS]
    _show_attacks(audit.attacked, heads)
    where = "--out FOLDER writes" if folder is None else f"{escape(str(folder))} has"
    out.print(f"What each number means, and why attacks do not apply: {where} audit.html.")


def answer(audit: Audit | FolderAudit) -> list[tuple[str, str]]:
    """Return the answer with its styles: leaks by name, a refusal, and numbers of verdicts.

    At 80 columns it has at most six lines, whatever was found.
    """
    found = Counter(each.verdict for each in audit.attacked)
    numbers = ", ".join(
        f"{verdict} {count(found[verdict])}"
        for verdict in _COLOURS
        if found[verdict] and verdict is not Verdict.LEAK
    )
    names = named(audit.leaks)
    worst = ", worst first" if len(names) > 1 else ""
    leaked = f"{counted(found[Verdict.LEAK], 'leak')}{worst}: {', '.join(names[:_NAMED])}"
    if len(names) > _NAMED:
        leaked += f" and {count(len(names) - _NAMED)} more"
    refusals = audit.refusals if isinstance(audit, Audit) else ()
    refused = [
        f"a run would be refused: {textwrap.shorten(why, _REASON, placeholder=' ...')}"
        + (f" (and {count(len(refusals) - 1)} more)" if refusals[1:] else "")
        for why in refusals[:1]
    ]
    return [
        *([(leaked, "bold red")] if names else []),
        *((text, "bold red") for text in refused),
        *([(f"{'' if names else 'no limit is exceeded: '}{numbers}", "bold")] if numbers else []),
    ]


def named(attacked: Sequence[Attacked]) -> list[str]:
    """Return each attack once, with its views."""
    views = dict[str, list[str]]()
    for each in attacked:
        views.setdefault(each.label, []).append(each.who.value)
    return [f"{label} ({', '.join(whose)})" for label, whose in views.items()]


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
    except (OSError, ValueError, AttributeError, RecursionError):
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


def _show_job(job: Job) -> None:
    noise = "" if job.privacy.epsilon is None else f", epsilon {declared(job.privacy.epsilon)}"
    text = f"[bold]{escape(job.title)}[/]: {job.method.name} under {job.protocol.name}{noise}"
    standard_output().print(text)


def _show_attacks(attacked: Sequence[Attacked], heads: Sequence[str]) -> None:
    """Print a row for each number, leaks first, and what explains leaks and inconclusive ones."""
    out, table = standard_output(), Table()
    for head in heads:
        left = head in {"attack", "view", "verdict"}
        table.add_column(head, justify="left" if left else "right", no_wrap=head != "view")
    order = list(_COLOURS)
    shown = [each for each in attacked if each.finding is not None]
    others = [each for each in shown if each.verdict is not Verdict.LEAK]
    others.sort(key=lambda each: order.index(each.verdict))
    for each in (*leaks(shown), *others):
        row = _row(each)
        table.add_row(*(row[head] for head in heads))
    if table.row_count:
        out.print(table)
    explained, reasons = dict[str, None](), dict[str, list[Attacked]]()
    for each in attacked:
        own = each.outcome.limit
        if own is not None and own != each.limit:
            explained[f"{each.label}: the program's own limit is {typeset(str(own))}."] = None
        if each.verdict is Verdict.INCONCLUSIVE:
            reasons.setdefault(each.why, []).append(each)
    worst = dict[str, Attacked]()
    for leak in leaks(shown):
        worst.setdefault(leak.label, leak)
    for leak in worst.values():
        if leak.finding is not None and (text := remark(vars(leak.finding))):
            explained[f"{leak.label} ({leak.who.value}): {text}"] = None
    for text in explained:
        out.print(escape(text))
    for why, having in reasons.items():
        out.print(escape(f"inconclusive, {why}: {', '.join(named(having))}"))


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
