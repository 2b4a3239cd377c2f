"""What is still open, for the first page: the form, missing evidence, questions to judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from secagg.compliance.evidence import AllEvidence
from secagg.compliance.form_checks import aggregators_of, contradictions
from secagg.compliance.sections.people import NOT_FILLED_IN
from secagg.compliance.statements import Section, Statement, Status
from secagg.evidence.claims.disclosure import MAY_REVEAL
from secagg.evidence.claims.hazards import DERIVED, LESS_THAN_A_PERSON, TOO_LARGE

# Topic of a statement that needs a person; the key of the form that answers it, "" if none; the
# question. The form has the answer, or the page asks.
_QUESTIONS = (
    ("where it ran", "", "Who could use the computer or computers on which the parties ran?"),
    ("collusion", "trust/separate", "Are the parties that must not collude independent?"),
    (TOO_LARGE.lower(), "judgement/epsilon",
     "Is the guarantee strong enough for these records?"),
    ("one record", "judgement/epsilon", "May sums without noise be released for this purpose?"),
    (LESS_THAN_A_PERSON.lower(), "data/rows_per_person",
     "Does each person have only one record? If not, the person has less protection."),
    (DERIVED.lower(), "data/bounds",
     "Were all bounds and settings chosen without looking at the records?"),
    ("expected error", "judgement/utility", "Is the result exact enough for its purpose?"),
    ("all sums together", "judgement/residual",
     f"{MAY_REVEAL}: is this acceptable?"),
    ("groups", "judgement/groups",
     "Could what the result says about groups harm people?"),
)  # fmt: skip
_LABELS = {  # keys that say too little without their question
    "coordinator": "who runs the coordinator", "sites": "who runs the sites",
    "aggregators": "who runs the aggregators", "tested": "who ran audits and experiments",
    "separate": "why the parties are independent",
    "epsilon": "why the guarantee is adequate", "utility": "why the result is exact enough",
    "residual": "remaining risks", "groups": "harm to groups", "tuning": "choice of settings",
    "contact": "who answers questions", "bounds": "choice of bounds",
    "necessity": "why each column is needed", "source": "source of the records",
    "population": "whose records they are", "rows_per_person": "records of a person",
}  # fmt: skip
_MISSING = {  # topics of statements whose evidence is missing: what to attach
    "all runs together": "the ledgers of these records",
    "runs without a line": "ledgers with lines of every run",
    "attacks": "an audit (`secagg audit`): attacks on every job",
    "experiment": "an experiment (`secagg experiment`): how exact the result is",
    "job of the experiment": "an experiment (`secagg experiment`) with the job of a run",
    "tuning": "settings that were not chosen on private records",
}


def still_open(evidence: AllEvidence, sections: tuple[Section, ...]) -> dict[str, Any]:
    """Return what a person must still do: fill in, get, judge."""
    asked, against = _asked(evidence), contradictions(evidence)
    placed = [
        (f"{section.number}.{i}", statement)
        for section in sections
        for i, statement in enumerate(section.statements, start=1)
    ]
    first = dict[str, str]()  # section 6 has what is not protected, which the page shows as such
    for identity, statement in placed:
        if statement.status is Status.PERSON and not identity.startswith("6."):
            first.setdefault(statement.topic, identity)
    leaks = [
        {"id": identity, "text": f"Is this leak acceptable: {statement.text.split(': leak')[0]}?"}
        for identity, statement in placed
        if identity.startswith("8.") and statement.status is Status.PERSON
    ]
    judge = [
        (key, {"id": first[topic], "text": question})
        for topic, key, question in _QUESTIONS
        if topic in first and not (key and asked.get(key) and key not in against)
    ]
    if against:
        keys = [_label(key) for key in against]
        topics = {_topic(key) for key in against}
        where = (i for i, s in placed if s.topic in topics and s.status is Status.PERSON)
        text = f"The form contradicts the runs ({'; '.join(keys)}): which is right?"
        leaks.append({"id": next(where, ""), "text": text})
    left = [key for key, answer in asked.items() if not answer]
    return {
        "judge": leaks + [question for _, question in judge],
        "form": [_label(key) for key in left if key not in {key for key, _ in judge}],
        "answers": len(asked) - len(left),
        "missing": [
            {"id": identity, "text": _MISSING.get(topic, topic)}
            for topic, identity in _missing(placed).items()
        ],
    }


def _asked(evidence: AllEvidence) -> dict[str, str]:
    """Return the answers to what the form asks about these runs, by table and key."""
    pointless = set[str]()
    if not any(map(aggregators_of, evidence.runs)):
        pointless.add("trust/aggregators")
    if not (evidence.audits or evidence.experiments):
        pointless.add("trust/tested")
    return {
        f"{table}/{key}": answer
        for table in type(evidence.form).model_fields
        if table != "registry"  # only for the draft entry, which lists what it lacks
        for key, (_, answer) in evidence.form.questions(table).items()
        if answer or f"{table}/{key}" not in pointless
    }


def _topic(key: str) -> str:
    return key.split("/")[1].replace("_", " ")


def _missing(placed: Sequence[tuple[str, Statement]]) -> dict[str, str]:
    """Return each topic whose evidence is missing, with its first statement."""
    found = dict[str, str]()
    for identity, each in placed:
        if each.status is Status.MISSING and not _elsewhere(identity, each):
            found.setdefault(each.topic, identity)
    return found


def _label(key: str) -> str:
    return _LABELS.get(key.split("/")[1], _topic(key))


def _elsewhere(identity: str, statement: Statement) -> bool:
    """Return whether the page has it already: a warning, an attack, a question of the form."""
    tried = identity.startswith("8.") and bool(statement.evidence)
    return statement.topic == "warning" or tried or statement.text.startswith(NOT_FILLED_IN)
