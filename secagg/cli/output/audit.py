"""What `secagg audit` prints: one line an attack, with its number, control and verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from secagg.audits.audit import Attacked, Audit
from secagg.audits.contract import Finding, Verdict
from secagg.cli.output.terminal import standard_output
from secagg.reports.numbers import significant

_COLOURS = {
    Verdict.LEAK: "bold red",
    Verdict.NO_LEAK_FOUND: "green",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_APPLICABLE: "dim",
}


@contextmanager
def working(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show what is done, on standard error; nothing if quiet."""
    console = Console(stderr=True, quiet=quiet)
    with console.status("audit") as status:
        yield lambda what: status.update(f"audit: {what}")


def show_audit(audit: Audit) -> None:
    """Print the findings."""
    out = standard_output()
    job = audit.job
    noise = "" if job.privacy.epsilon is None else f", epsilon {job.privacy.epsilon:g}"
    out.print(f"[bold]{escape(job.title)}[/]: {job.method.name} under {job.protocol.name}{noise}")
    out.print(
        f"{len(audit.sites)} sites, {audit.records} records; {audit.set_aside} set aside for "
        f"comparison; seed {audit.seed}",
        soft_wrap=True,
    )
    table = Table()
    for head in ("attack", "view", "number", "guess", "limit", "control", "verdict"):
        table.add_column(head, justify="left" if head in ("attack", "view", "verdict") else "right")
    for each in audit.attacked:
        if each.verdict is not Verdict.NOT_APPLICABLE:
            table.add_row(*_row(each))
    if table.row_count:
        out.print(table)
    for each in audit.attacked:
        name = f"{each.attack.name} ({each.who.value})"
        if each.verdict is Verdict.NOT_APPLICABLE:
            out.print(f"[dim]{name}: not applicable: {escape(each.why)}[/]", soft_wrap=True)
        else:
            knows = f"The attacker knows {each.attack.knows}."
            text = f"{name}: {each.attack.metric} = {each.attack.meaning}. {knows}"
            out.print(escape(text), soft_wrap=True)
    out.print(
        "guess: the same without the run. control: the same attack on this job in clear and "
        "without noise, where it must find the leak.",
        soft_wrap=True,
    )


def _row(each: Attacked) -> tuple[str, ...]:
    assert each.finding is not None and each.control is not None
    colour = _COLOURS[each.verdict]
    return (
        each.attack.name,
        each.who.value,
        _number(each.finding),
        significant(each.finding.baseline, 3),
        str(each.limit),
        _number(each.control),
        f"[{colour}]{each.verdict.value}[/]",
    )


def _number(finding: Finding) -> str:
    if finding.low == finding.high:
        return significant(finding.value, 3)
    low, value, high = (significant(x, 3) for x in (finding.low, finding.value, finding.high))
    return f"{value} ({low} to {high})"


def as_plain(audit: Audit) -> dict[str, Any]:
    """Return the audit as plain data for JSON."""
    return {
        "title": audit.job.title,
        "method": audit.job.method.name,
        "protocol": audit.job.protocol.name,
        "sites": list(audit.sites),
        "records": audit.records,
        "set_aside": audit.set_aside,
        "seed": audit.seed,
        "attacks": [_plain(each) for each in audit.attacked],
    }


def _plain(each: Attacked) -> dict[str, Any]:
    attack = each.attack
    about = {name: getattr(attack, name) for name in ("name", "title", "source", "knows")}
    about |= {"view": each.who.value, "metric": attack.metric, "meaning": attack.meaning}
    found = {} if each.finding is None else vars(each.finding)
    control = {} if each.control is None else {"control": vars(each.control)}
    limit = {} if each.limit is None else {"limit": str(each.limit)}
    verdict = {"verdict": each.verdict.value, "why": each.why, "seconds": each.seconds}
    return about | verdict | found | limit | control
