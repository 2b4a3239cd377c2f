"""Sections 1 and 2: purpose and permit, and the data."""

from __future__ import annotations

from secagg.compliance.evidence import AllEvidence, RunEvidence
from secagg.compliance.form_checks import aggregators_of, contradictions
from secagg.compliance.statements import Evidence, Section, Statement, Status, Table
from secagg.evidence.claims.guarantee import unit_in_words
from secagg.evidence.claims.rules import NOT_OF_A_SITE, what_rules_count
from secagg.evidence.numbers import count, counted, listing
from secagg.reports import tables

NOT_FILLED_IN = "Not filled in."


def answers(evidence: AllEvidence, table: str, keys: tuple[str, ...] = ()) -> list[Statement]:
    """Return a statement for each question of the form's table; keys: only these.

    An answer is what a person states. It needs a person if the runs contradict it.
    """
    found, against = list[Statement](), contradictions(evidence)
    for key, (question, answer) in evidence.form.questions(table).items():
        if keys and key not in keys:
            continue
        text, status = answer, Status.STATED
        places: tuple[Evidence, ...] = (Evidence("form.toml", f"{table}/{key}"),) if answer else ()
        if not answer:
            text, status = f"{NOT_FILLED_IN} {question}", Status.MISSING
            if key == "aggregators" and not any(map(aggregators_of, evidence.runs)):
                text, status = "No run had an aggregator.", Status.ATTACHED
                places = tuple(run.at("roster") for run in evidence.runs)
            if key == "tested" and not (evidence.audits or evidence.experiments):
                continue
        if said := against.get(f"{table}/{key}"):
            ended = text if text.rstrip().endswith((".", "!", "?")) else f"{text}."
            text = " ".join([ended, *(f"But {what}" for _, what, _ in said)])
            status = Status.PERSON
            places += tuple(dict.fromkeys(place for *_, where in said for place in where))
        found.append(Statement(key.replace("_", " "), text, status, places))
    return found


def scope(evidence: AllEvidence) -> Section:
    """Return section 1."""
    runs = [
        run.says(
            "run",
            f"{run.facts['title']}: {run.facts['method']['title']} under "
            f"{run.facts['protocol']['name']}, finished {run.facts['finished'][:16]} UTC.",
            Status.ATTACHED,
            "title",
            "method/title",
            "finished",
        )
        for run in evidence.runs
    ]
    return Section(
        1, "Purpose and permit", "GDPR 35(7)(a); EHDS 73",
        (*answers(evidence, "purpose"), *runs),
    )  # fmt: skip


def data(evidence: AllEvidence) -> Section:
    """Return section 2."""
    found, columns = list[Statement](), list[Table]()
    for run in evidence.runs:
        found += [_sites(run), _records(run), _unit(run)]
        rows = tables.columns(run.facts, run.summary, run.claims)
        columns.append(
            Table(
                f"Columns of run {run.name}: public bounds and levels, declared before a record "
                "was read",
                ("Column", "Type", "Bounds or levels"),
                [row[:3] for row in rows],
                evidence=(run.at("job/columns"),),
            )
        )
    return Section(
        2, "Data", "ISO 27559 7.2; GDPR 5(1)(c), 35(7)(b)",
        (*answers(evidence, "data"), *found), tuple(columns),
    )  # fmt: skip


def _sites(run: RunEvidence) -> Statement:
    cohort = run.facts["cohort"]
    text = f"{counted(len(cohort), 'site')} are in every sum: {listing(cohort)}."
    return run.says("sites", text, Status.ATTACHED, "cohort")


def _records(run: RunEvidence) -> Statement:
    release = run.facts["job"]["release"]
    number, result = f"{count(run.records)} records took part", run.at("", "result.json")
    if run.claims.noised:
        text = (
            f"About {number} (the number has noise). How many a site has was not checked: "
            f"{NOT_OF_A_SITE}."
        )
        return run.says("records", text, Status.ATTACHED, result)
    text = (
        f"{number}. Each site has at least {count(release['min_records'])} complete records; a "
        "site's own rule may require more."
    )
    places = ("job/release/min_records", result)
    return run.says("records", text, Status.ATTACHED, *places)


def _unit(run: RunEvidence) -> Statement:
    if not run.claims.noised:
        person = run.facts["job"]["privacy"].get("person")
        text = "The run does not say how many records a person has: it has no noise for a person. "
        text += what_rules_count(person)
        return run.says("records of a person", text, Status.PERSON)
    guarantee = run.claims.guarantee
    text = f"The guarantee protects one {guarantee['unit']}: {unit_in_words(guarantee)}."
    return run.says("records of a person", text, Status.ATTACHED, "privacy/unit")
