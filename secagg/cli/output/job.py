"""What a job asks for, and how it stands at a party's home: what an officer reads to approve it.

Each text of a job is from its coordinator, who may want to mislead. So texts are quoted, and what
the home itself says comes last, after all that the job says.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from secagg.cli.output import terminal
from secagg.cli.output.tables import Table
from secagg.jobs.columns import Binary, Categorical, Column, Continuous, Count
from secagg.jobs.job import Job
from secagg.runs.checks.home_check import HomeCheck
from secagg.sessions.homes.approvals import MIN_DIGITS, Approval

_STATES = {
    Approval.APPROVED: "approved",
    Approval.WAITS: "waits for approval",
    Approval.NEW: "not approved; it has not asked this home yet",
    Approval.BY_POLICY: "needs no approval: site.toml says approve = 'policy'",
}


def show_job(job: Job) -> None:
    """Print all that the parties agree on: sites, method and settings, rules, columns."""
    out = terminal.standard_output()
    settings = Table(show_header=False)
    settings.add_column(no_wrap=True)
    settings.add_column(overflow="fold")
    for part, content in job.agreed.items():
        if part != "columns":
            for label, text in _lines(part, content):
                settings.add_row(label, escape(text))
    out.print(settings)
    columns = Table(title=f"{len(job.columns)} columns of the site's records")
    for name in ("column", "kind", "bounds or levels", "unit"):
        columns.add_column(name)
    for name, column in job.columns.items():
        cells = (_key(name), column.type, *_values_and_unit(column))
        columns.add_row(*map(escape, cells))
    out.print(columns)


def show_home_check(found: HomeCheck, home: Path) -> None:
    """Print how a job stands at this home, and what the officer may do next."""
    out = terminal.standard_output()
    show_rules(out, found.own_rules)
    for why in found.refusals:
        out.print(f"would refuse: {escape(why)}", style="bold red")
    if not found.refusals:
        out.print("refusals none known: roster, rules and ledger allow it. No record was read")
    show_approval(out, found)
    short, place = found.digest[:MIN_DIGITS], f"--home {shlex.quote(str(home))}"
    possible = {
        Approval.APPROVED: f"secagg site revoke {short} {place}",
        Approval.WAITS: f"secagg site approve {short} {place}   (or refuse)",
    }
    if found.approval in possible:
        out.print(f"next     {escape(possible[found.approval])}")


def show_rules(out: Console, own_rules: bool | None) -> None:
    """Print whose rules apply at a site; nothing for a party without records."""
    if own_rules is not None:
        no_file = "no policy.toml in this home: it refuses every job"
        out.print(f"rules    {'policy.toml of this home' if own_rules else no_file}")


def show_approval(out: Console, found: HomeCheck) -> None:
    """Print the job's digest, and whether it is approved."""
    out.print(f"job      {found.digest} ({_STATES[found.approval]})")


def _lines(part: str, content: Any) -> Iterator[tuple[str, str]]:
    """Yield label and text of each line on a part of a job: one line, and one for each table."""
    if not isinstance(content, Mapping):
        yield part, _quoted(content)
        return
    tables = {key: value for key, value in content.items() if _is_tables(value)}
    plain = {key: value for key, value in content.items() if key not in tables}
    yield part, _settings(plain)
    for key, value in tables.items():
        for i, each in enumerate(value, 1):
            yield "", f"{_key(key)} {i}: {_settings(each)}"


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _settings(content: Mapping[str, Any]) -> str:
    """Return the settings that are set, as in a job file."""
    shown = [f"{_key(k)} = {_quoted(v)}" for k, v in content.items() if v is not None]
    return ", ".join(shown) or "-"


def _key(name: str) -> str:
    """Return a name as it is if it is a plain word; quoted if it could look like something else."""
    return name if name.isascii() and name.isidentifier() else _quoted(name)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _values_and_unit(column: Column) -> tuple[str, str]:
    match column:
        case Continuous() | Count():
            log = ", natural logarithm" if column.transform == "log" else ""
            unit = _quoted(column.unit) if column.unit else ""
            low, high = (repr(bound).removesuffix(".0") for bound in (column.low, column.high))
            return f"{low} to {high}{log}", unit  # with all digits: an approval is of exactly these
        case Binary() | Categorical():
            return ", ".join(map(_quoted, column.levels)), ""
