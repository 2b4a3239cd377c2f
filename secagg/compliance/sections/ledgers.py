"""What the ledgers say of all runs on each data set, including runs that are not in this report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from secagg.compliance.evidence import AllEvidence
from secagg.compliance.ledger_totals import (
    FILE,
    Line,
    Total,
    are,
    cost_of,
    total_epsilon,
    total_right_guesses,
    totals,
)
from secagg.compliance.statements import Evidence, Statement, Status, Table
from secagg.contracts.noise import Adjacency
from secagg.core.identity import COORDINATOR
from secagg.evidence.numbers import ADJACENCIES, counted, listing, probability, rounded_up
from secagg.privacy.accounting.composition import Cost
from secagg.privacy.ledger.records import RECORD

_FEW = 5  # sessions that a sentence names


def ledger_statements(evidence: AllEvidence) -> tuple[list[Statement], list[Table]]:
    """Return what the ledgers say, for section 5."""
    if evidence.ledgers is None:
        text = (
            "No ledger is attached, so nothing here says which other runs used the same records. "
            "Nor does it say what all of them cost together."
        )
        return [Statement("all runs together", text, Status.MISSING)], []
    found, known = list[Statement](), {run.facts["session"] for run in evidence.runs}
    every = totals(evidence)
    in_ledgers = {session for each in every for session in each.sessions}
    if absent := [run.name for run in evidence.runs if run.facts["session"] not in in_ledgers]:
        text = f"The ledgers have no line of {counted(len(absent), 'run')}: {listing(absent)}."
        found.append(Statement("runs without a line", text, Status.MISSING, (Evidence(FILE),)))
    found += [_of_ledger(each, known) for each in every]
    return found, [_table(every)] if every else []


def _of_ledger(total: Total, known: Collection[str]) -> Statement:
    others = [session[:16] for session in total.sessions if session not in known]
    words = (
        f"The ledger of the {total.party}" if total.party == COORDINATOR
        else f"The ledger of {total.party}"
    )  # fmt: skip
    words += (
        f", up to its last line on {total.until}, has {counted(len(total.lines), 'release')} of "
        f"the data set {total.dataset!r}, in {counted(len(total.sessions), 'run')}."
    )
    if others:
        few = listing(others[:_FEW]) + (" and others" if len(others) > _FEW else "")
        number = f"{len(others)} of these {are(len(others))} not in this report"
        words += f" {number}: {few}."
    words += f" {total.together}"
    bounded = not total.exact and len(total.units) == 1
    status = Status.ATTACHED if bounded and not others else Status.PERSON
    topic = "coordinator's ledger" if total.party == COORDINATOR else f"ledger of {total.party}"
    places = tuple(Evidence(FILE, where) for where in total.ends)
    return Statement(topic, words, status, places)


def _table(every: Sequence[Total]) -> Table:
    rows = [
        (
            each.party, each.dataset, each.until, str(len(each.sessions)), str(len(each.lines)),
            str(each.exact), *(_no_bound_or(each.epsilon(a)) for a in Adjacency),
            probability(each.delta) if each.delta else "–",
        )
        for each in every
    ]  # fmt: skip
    words = [ADJACENCIES[each.value].format("unit") for each in Adjacency]
    return Table(
        "All releases of each ledger together",
        ("Ledger", "Data set", "Last line", "Runs", "Releases", "Exact",
         *(f"ε, {w}" for w in words), "δ"),
        rows, tuple(range(3, 9)), (Evidence(FILE),),
    )  # fmt: skip


def _no_bound_or(epsilon: float) -> str:
    return "no bound" if math.isinf(epsilon) else rounded_up(epsilon)


def all_runs_together(evidence: AllEvidence, adjacency: str) -> str:
    """Return for the first page what the ledgers say of all runs.

    It is "" if the ledgers lack a run of this report.

    A record is at one site, so the largest total of a site bounds all runs, if each site's ledger
    is complete. Otherwise, and for persons, who may be at several sites, all releases of all
    ledgers are added up, each once.

    adjacency: that of the guarantees of the report's runs
    """
    every, known = totals(evidence), {str(run.facts["session"]) for run in evidence.runs}
    cohorts = {str(run.facts["session"]): set(run.facts["cohort"]) for run in evidence.runs}
    sites = set().union(*cohorts.values())
    used = [of for each in every if known & set(each.sessions) if (of := _at(each, sites)).lines]
    incomplete = _incomplete(evidence, every, cohorts)
    if not incomplete:
        used = [each for each in used if each.party != COORDINATOR]
    sessions = {session for each in used for session in each.sessions}
    units = {unit for each in used for unit in each.units}
    where = " of these sites" if incomplete else " on these records"
    until = max((each.until for each in used), default="")
    if exact := {session for each in used for session in each.exact_sessions}:
        return (
            f"According to the attached ledgers, up to {until}, {counted(len(exact), 'run')}"
            f"{where} released sums without noise, or with noise that is not secret. So no ε "
            "bounds all runs together: each guarantee is for its run alone."
        )
    if len(units) > 1:
        return (
            f"The runs{where} in the attached ledgers protect different things "
            f"({listing(sorted(units))}), so this report does not add them up."
        )
    if not known <= sessions:
        return ""
    words = _not_counted(incomplete, [e for e in every if e.party in sites and e not in used])
    if sessions == known and len(known) == 1:
        return (
            "The attached ledgers list no other run on these records. Their last line is of "
            f"{until}. Ask the sites whether there are other ledgers, or releases by other "
            f"software.{words}"
        )
    (unit,), kind, delta = units, Adjacency(adjacency), used[0].delta
    of_sites = dict[str, Counter[Cost]]()
    for each in used:  # a site may have the same records under two names
        of_sites[each.party] = of_sites.get(each.party, Counter()) + each.costs
    costs = list(of_sites.values()) if unit == RECORD and not incomplete else [_each_once(used)]
    most = max(total_epsilon(each, kind, delta) for each in costs)
    right = max(total_right_guesses(each, kind) for each in costs)
    if math.isinf(most):
        return "The attached ledgers give no finite ε for all runs on these records together."
    others = len(sessions - known)
    which = f", of which {others} {are(others)} not in this report," if others else ""
    return (
        f"According to the attached ledgers, up to {until}, {counted(len(sessions), 'run')}{where}"
        f"{which} "
        f"together bound the effect of one {unit} by ε {rounded_up(most)} at δ "
        f"{probability(delta)} (at most {right} of 100 right guesses).{words}"
    )


def _at(total: Total, sites: Collection[str]) -> Total:
    """Return a total; of the coordinator's, what it released of these sites."""
    if total.party != COORDINATOR:
        return total

    def about(line: Line) -> bool:
        cohort = set(map(str, line["content"]["cohort"]))
        return not cohort or not cohort.isdisjoint(sites)

    lines = tuple((i, line) for i, line in total.lines if about(line))
    return replace(total, lines=lines, repeats=tuple(filter(about, total.repeats)))


def _incomplete(
    evidence: AllEvidence, every: Sequence[Total], cohorts: Mapping[str, set[str]]
) -> list[str]:
    """Return the sites of these runs whose ledgers lack a run.

    cohorts: sites by session. The coordinator's ledger may list further sessions of the same sites.
    """
    known = {(each.party, session) for each in every for session in each.sessions}
    sites = set().union(*cohorts.values())
    needed = {(site, session) for session, cohort in cohorts.items() for site in cohort}
    for line in evidence.ledgers or ():
        if line["party"] == COORDINATOR and line["kind"] in ("entry", "use", "cohort"):
            cohort = sites & set(map(str, line["content"]["cohort"]))
            needed |= {(site, str(line["session"])) for site in cohort}
    return sorted({site for site, _ in needed - known})


def _each_once(used: Sequence[Total]) -> Counter[Cost]:
    """Return the costs of all releases, once for each sum, whichever ledgers have it."""
    lines = [line for each in used for line in (*(e for _, e in each.lines), *each.repeats)]
    paid = {(str(line["session"]), str(line["round"]), cost_of(line)) for line in lines}
    return Counter(cost for *_, cost in paid)


def _not_counted(incomplete: Sequence[str], others: Sequence[Total]) -> str:
    """Return what the ledgers leave out, in sentences."""
    words = ""
    if incomplete:
        each = "ledger" if len(incomplete) == 1 else "ledgers"
        words += (
            f" The {each} of {listing(incomplete)} {are(len(incomplete))} missing or incomplete, "
            "so there may be further runs on these records."
        )
    if others:
        names = listing(sorted({repr(each.dataset) for each in others}))
        words += f" Not counted are releases of other data sets of these sites: {names}."
    return words
