"""Section 8: what attacks on the same job found.

Every verdict was computed from number, interval, limit and control when the file was read
(`secagg.audits.audit_file`). The person who ran the audit states the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from secagg.audits.catalogue import ATTACKS, make_attacks
from secagg.compliance.evidence import AllEvidence, well_formed
from secagg.compliance.statements import Evidence, Section, Statement, Status, Table
from secagg.evidence.numbers import counted, listing, moment
from secagg.evidence.run_files import job_digest
from secagg.reports.audits.page import interval, number

_FEW = 6  # attacks that a sentence names
_STATUS = {"leak": Status.PERSON, "inconclusive": Status.MISSING}


def adversarial(evidence: AllEvidence) -> Section:
    """Return section 8."""
    found, shown = list[Statement](), list[Table]()
    for name, audit in evidence.audits.items():
        with well_formed(f"audits/{name}"):
            found += _of_audit(name, audit, evidence)
            shown.append(_table(name, audit))
    attacked = {run for audit in evidence.audits.values() for run in _which(audit, evidence)}
    if found:
        found += [
            Statement("attacks", "No attached audit has the job of this run.", Status.MISSING,
                      run=run.name)
            for run in evidence.runs if run.name not in attacked
        ]  # fmt: skip
    else:
        text = (
            "No audit is attached, so no attack on these jobs was tried. `secagg audit JOB --out "
            "DIR` tries all that are known."
        )
        found.append(Statement("attacks", text, Status.MISSING))
    return Section(
        8, "Adversarial testing", "ISO 27559 8.2.3; HIPAA 164.514(b)(1)", tuple(found),
        tuple(shown),
    )  # fmt: skip


def _which(audit: Mapping[str, Any], evidence: AllEvidence) -> list[str]:
    """Return the runs whose job an audit attacked; of an audit of a run, only that run."""
    return [
        run.name
        for run in evidence.runs
        if audit.get("job") == job_digest(run.facts["job"])
        and audit.get("session", run.facts["session"]) == run.facts["session"]
    ]


def _of_audit(name: str, audit: Mapping[str, Any], evidence: AllEvidence) -> list[Statement]:
    file, attacks = f"audits/{name}", audit["attacks"]
    verdicts = [each["verdict"] for each in attacks]
    applied = [each for each in attacks if each["verdict"] != "not applicable"]
    when = f", on {moment(audit['finished'])}" if "finished" in audit else ""
    over = f"{audit['records']} records" if "records" in audit else f"session {audit['session']}"
    titles = {each["title"] for each in applied}
    text = (
        f"{counted(len(titles), 'attack')}, some of them from several views, on the job "
        f"“{audit['title']}” ({over}){when}. Of {counted(len(applied), 'view')}: "
        f"{counted(verdicts.count('leak'), 'leak')}, {verdicts.count('no leak found')} without a "
        f"leak, {verdicts.count('inconclusive')} inconclusive. That no leak was found shows only "
        "that these attacks did not succeed."
    )
    place = Evidence(file, "attacks")
    runs = _which(audit, evidence)
    text += (
        f" The job is that of {listing(runs)}."
        if runs
        else " This is not the job of a run in this report, so it says nothing about them."
    )
    who, stated = evidence.stated_by(file)
    text += f"{_untried(attacks)} {who}"
    found = [Statement("attacks", text, stated if runs else Status.MISSING, (place,))]
    for i, each in enumerate(attacks):
        if "value" not in each:
            continue
        words = (
            f"{each['title']}: {each['verdict']}. {each['metric']} ({each['meaning']}) is "
            f"{interval(each)}; the limit is {each['limit']}."
        )
        if each.get("changed"):
            words += f" This limit was changed: the program's is {each['changed']}."
        words += f" {each['why'].capitalize()}." if each["why"] else ""
        where = Evidence(file, f"attacks/{i}/value")
        topic = f"{each['label']}, {each['view']}"
        status = _STATUS.get(each["verdict"], stated)
        if each.get("changed") and status is stated:
            status = Status.PERSON  # somebody must judge whether this limit is strict enough
        found.append(Statement(topic, words, status, (where,)))
    return found


def _untried(attacks: Sequence[Mapping[str, Any]]) -> str:
    """Return which attacks and views of this program the audit does not have, in two sentences."""
    had = {(each["name"], each["view"]) for each in attacks}
    names = dict.fromkeys(name for name, _ in had)
    views = [
        f"{each.name} ({who.value})"
        for each in (make_attacks(sorted(names)) if names else ())
        for who in each.views
        if (each.name, who.value) not in had
    ]
    return _lacking([name for name in ATTACKS if name not in names], "attack", "this program") + (
        _lacking(views, "view", "these attacks")
    )


def _lacking(missing: Sequence[str], what: str, whose: str) -> str:
    if not missing:
        return ""
    few = f": {listing(missing)}" if len(missing) <= _FEW else ""
    return f" It lacks {counted(len(missing), what)} of {whose}{few}."


def _table(name: str, audit: Mapping[str, Any]) -> Table:
    rows = [
        (each["label"], each["view"], each["verdict"], interval(each), number(each["baseline"]),
         _limit(each), interval(each["control"]) if "control" in each else "–", each["knows"])
        for each in audit["attacks"] if "value" in each
    ]  # fmt: skip
    return Table(
        f"Attacks of audit {name.removesuffix('.json')}: the number, the same guess without the "
        "run, the limit, and the number where the leak is certain (control)",
        ("Attack", "View", "Verdict", "Number", "Guess", "Limit", "Control", "Attacker knows"),
        rows, (3, 4, 5, 6), (Evidence(f"audits/{name}", "attacks"),),
    )  # fmt: skip


def _limit(each: Mapping[str, Any]) -> str:
    changed = each.get("changed")
    return f"{each['limit']} (the program's: {changed})" if changed else str(each["limit"])


# In the order of the first page; what each verdict says, for readers without special knowledge.
_IN_WORDS = {
    "leak": "succeeded: there is a leak",
    "inconclusive": "inconclusive: shows nothing",
    "no leak found": "did not succeed",
}


def tried(evidence: AllEvidence) -> dict[str, Any]:
    """Return for the first page what was tried on which run, and what it found."""
    attacked = {run for audit in evidence.audits.values() for run in _which(audit, evidence)}
    return {
        "audits": [_in_short(name, audit, evidence) for name, audit in evidence.audits.items()],
        "not_attacked": [run.name for run in evidence.runs if run.name not in attacked],
    }


def _in_short(name: str, audit: Mapping[str, Any], evidence: AllEvidence) -> dict[str, Any]:
    applied = [each for each in audit["attacks"] if each["verdict"] != "not applicable"]
    worst = dict[str, str]()  # an attack is tried from several views
    for verdict in _IN_WORDS:
        for each in applied:
            if each["verdict"] == verdict:
                worst.setdefault(each["title"], verdict)
    found = [
        {"verdict": words, "leak": verdict == "leak",
         "attacks": [title for title, of in worst.items() if of == verdict]}
        for verdict, words in _IN_WORDS.items() if verdict in worst.values()
    ]  # fmt: skip
    runs = _which(audit, evidence)
    place = "on a run's folder"
    when = f", on {moment(audit['finished'])[:10]}" if "finished" in audit else ""
    if "records" in audit:
        place = f"in a trial with {counted(audit['records'], 'record')}"
        place += " of the same job" if runs else ""
    return {
        "title": audit["title"],
        "runs": runs,
        "text": f"{counted(len(worst), 'attack')}, {place}{when}",
        "stated": evidence.stated_by(f"audits/{name}")[0],
        "found": found,
    }
