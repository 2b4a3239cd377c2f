"""audit.json: an audit as plain data, and reading such a file of somebody else.

`as_plain` writes what was measured: numbers, intervals, limits and controls, the job, the seed, and
where the records were (`local`). All else in the file follows from these: verdicts, reasons, names,
the texts of the attacks, the limits of the program. `read_audit` computes what follows again and
refuses a file in which anything differs, with the place and both values.

| in the file                                | what `read_audit` does                             |
|--------------------------------------------|----------------------------------------------------|
| verdict or reason                          | computed from number, interval, limit and control  |
| a number outside its interval              | refused                                            |
| rate of an attack (`tpr_at_1pct`)          | computed from the details of the attack            |
| limit, other than the program's            | kept; `changed` is then the program's              |
| the program's limit (`own_limit`)          | computed from the job, unless that names code      |
| title, method, protocol, ε, digest of job  | computed from the job                              |
| names and texts of an attack               | those of this program                              |
| not applicable, although there is a number | computed as if it applied                          |

Not protected: invented numbers that fit together, an attack that was left out, an attack that is
said not to apply. A signature says who measured them (`secagg.compliance.signatures`), and
`secagg verify --again` measures again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from secagg.audits.audit import Attacked, Audit, judged
from secagg.audits.catalogue import make_attacks
from secagg.audits.contract import Attack, Finding, Limit
from secagg.audits.folder_audit import FolderAudit
from secagg.audits.outcomes import Outcome, plain
from secagg.audits.views import View, Who
from secagg.contracts import Result
from secagg.core.version import __version__
from secagg.errors import EvidenceError, SecaggError, UsageError
from secagg.evidence.run_files import finite, job_digest
from secagg.evidence.run_folder import MALFORMED_ERRORS
from secagg.jobs.job import Job, parse_job
from secagg.sessions.planned_job import plan_sites

SCHEMA = 2
_NUMBERS = ("value", "low", "high", "baseline")
_PLACE = ("folder", "table", "site_column")
_MEASURED = (
    "sites", "records", "set_aside", "share", "seed", "session", "with_messages", "refusals",
)  # fmt: skip


def as_plain(audit: Audit | FolderAudit) -> dict[str, Any]:
    """Return the audit as plain data for JSON."""
    given = {n: v for n, v in vars(audit).items() if n in _MEASURED}
    rows = [_plain(each) for each in audit.attacked]
    place = {key: audit.job.local["sites"].get(key) for key in _PLACE}
    about = _about(audit.job) | {"secagg": __version__, "local": place}
    return dict(finite(plain(about | given | {"attacks": rows})))


def _about(job: Job) -> dict[str, Any]:
    """Return what follows from the job."""
    return {
        "schema": SCHEMA, "title": job.title, "method": job.method.name,
        "protocol": job.protocol.name, "epsilon": job.privacy.epsilon,
        "job": job_digest(job.agreed), "agreed": job.agreed,
    }  # fmt: skip


def _plain(each: Attacked) -> dict[str, Any]:
    attack, found = each.attack, each.outcome
    row = {name: getattr(attack, name) for name in ("name", "title", "source", "knows")} | {
        "view": each.who.value, "metric": each.metric, "label": each.label,
        "meaning": "true positive rate" if each.rate else attack.meaning,
        "verdict": each.verdict.value, "why": each.why, "error": found.error,
        "seconds": found.seconds, "changed": "",
    }  # fmt: skip
    if found.finding is not None:
        row |= _numbers(found.finding)
    if each.limit is not None:
        row["limit"] = each.limit.exact
    if found.limit is not None and each.limit is not None and not each.rate:
        row["own_limit"] = own = found.limit.exact
        row["changed"] = own if each.limit.exact != own else ""
    if found.control is not None and found.control_limit is not None:
        row["control"] = {**_numbers(found.control), "limit": found.control_limit.exact}
    return row


def _numbers(found: Finding) -> dict[str, Any]:
    """Return a finding; an infinite number is a text, because JSON has none."""
    numbers = {name: getattr(found, name) for name in _NUMBERS}
    return vars(found) | {n: str(v) if math.isinf(v) else v for n, v in numbers.items()}


def read_audit(content: Any, where: str) -> dict[str, Any]:
    """Return an audit with everything that follows computed anew.

    content: of the file; where: its name
    Raises `EvidenceError` that names the first attack in which something else follows.
    """
    try:
        if (schema := content.get("schema", 1)) != SCHEMA:
            raise EvidenceError(
                where, f"has schema {schema!r}, and this version reads {SCHEMA}",
                "Run `secagg audit` again.",
            )  # fmt: skip
        job = parse_job(content["agreed"])
        stated = _about(job)
        for key, value in stated.items():
            if key != "agreed" and content[key] != value:
                what = f"{key} is {content[key]!r}, and {value!r} follows from the job in the file"
                raise EvidenceError(where, what)
        view = _public_view(job, content["sites"])
        rows = list(_rows(content["attacks"], view, where))
        return {**content, **stated, "attacks": rows}
    except EvidenceError:
        raise
    except (SecaggError, *MALFORMED_ERRORS, OverflowError) as error:
        what = error.line() if isinstance(error, SecaggError) else "is malformed"
        raise EvidenceError(where, what) from error


def _rows(rows: Sequence[Any], view: View | None, where: str) -> Iterator[dict[str, Any]]:
    seen, at = set[tuple[str, str]](), 0
    for (name, who), several in itertools.groupby(rows, lambda row: (row["name"], row["view"])):
        group, place = list(several), f"attack {at + 1} ({name}, {who})"
        if (name, who) in seen:
            raise EvidenceError(where, f"has {place} twice")
        seen.add((name, who))
        (attack,) = make_attacks([str(name)])
        main = group[0]
        limits = {row["metric"]: Limit.of_text(row["limit"]) for row in group if "limit" in row}
        try:
            found = judged(attack, Who(who), _outcome(main, f"{where}, {place}"), limits)
        except UsageError as error:
            raise EvidenceError(f"{where}, {place}", error.what) from None
        if len(found) != len(group):
            raise EvidenceError(where, f"{place} has not one row for each limit")
        for row, each in zip(group, found, strict=True):
            at += 1
            computed = finite(plain(_plain(each)))
            _compare(row, computed, f"{where}, {place}")
            yield computed
        _check_limit(main, attack, view, f"{where}, {place}")


def _outcome(row: Mapping[str, Any], where: str) -> Outcome:
    finding = _finding(row, where) if "value" in row else None
    control = row.get("control")
    return Outcome(
        why_not=str(row["why"]) if finding is None and not row["error"] else "",
        finding=finding,
        limit=None if finding is None else Limit.of_text(row["own_limit"]),
        control=None if control is None else _finding(control, f"{where}, control"),
        control_limit=None if control is None else Limit.of_text(control["limit"]),
        error=str(row["error"]),
        seconds=float(row["seconds"]),
    )


def _finding(plain_row: Mapping[str, Any], where: str) -> Finding:
    numbers = {name: _number(plain_row[name]) for name in _NUMBERS}
    value, low, high = (numbers[name] for name in ("value", "low", "high"))
    slack = 1e-9 * max(1.0, abs(value)) if math.isfinite(value) else 0.0
    if value < low - slack or value > high + slack:
        raise EvidenceError(where, f"the number {value:.4g} is not in {low:.4g} to {high:.4g}")
    return Finding(
        value=value,
        low=low,
        high=high,
        baseline=numbers["baseline"],
        details=dict(plain_row["details"]),
        failed=str(plain_row["failed"]),
        bound=str(plain_row["bound"]),
        why_not=str(plain_row["why_not"]),
    )


def _number(value: Any) -> float:
    """Return a number of the file. Raises `ValueError` for anything else."""
    if value is None:
        return math.nan
    if value in ("inf", "-inf") or (isinstance(value, int | float) and not isinstance(value, bool)):
        return float(value)
    raise ValueError(value)


def _compare(row: Mapping[str, Any], computed: Mapping[str, Any], where: str) -> None:
    """Compare a row with what follows from its numbers; the verdict first."""
    texts = {"title", "source", "knows", "meaning"}  # another version may word them differently
    for key in ["verdict", "why", *row, *computed]:
        if key not in texts and key != "seconds" and row.get(key) != computed.get(key):
            if key == "changed":
                what = (
                    f"limit is {row['limit']!r}, and the program's is {row['own_limit']!r}: changed"
                )
                raise EvidenceError(where, f"{what}, and the file does not say so")
            what = f"{key} is {row.get(key)!r}, and {computed.get(key)!r} follows"
            raise EvidenceError(where, f"{what} from number, interval, limit and control")


def _check_limit(row: Mapping[str, Any], attack: Attack, view: View | None, where: str) -> None:
    """Compare what is said to be the program's limit with the one for this job."""
    own = None if view is None or "own_limit" not in row else _own_limit(attack, view)
    if own is not None and own.exact != row["own_limit"]:
        what = f"own_limit is {row['own_limit']!r}, and this program's is {own.exact!r}"
        raise EvidenceError(where, what)


def _own_limit(attack: Attack, view: View) -> Limit | None:
    try:
        return attack.limit(view)
    except Exception:  # a limit that depends on more than the job: it stays as stated
        return None


def _public_view(job: Job, sites: Sequence[str]) -> View | None:
    """Return a view with the job alone; None if it cannot be planned here.

    Nor is a job planned that names code, because that would be imported.
    """
    names = tuple(map(str, sites))
    if "module" in (job.method.model_extra or {}):
        return None
    try:
        return View(Who.COORDINATOR, plan_sites(job, names, {}), names, (), Result({}))
    except SecaggError:  # for example without an extra that the method needs
        return None
