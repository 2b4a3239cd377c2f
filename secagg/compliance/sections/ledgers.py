"""What the ledgers say of all runs on each data set together, whether this report has them or not.

The total of a ledger is composed from the costs of its releases, as a cap composes them
(`secagg.privacy.accounting`), and not from what runs claim. It includes what discrete noise adds.
It is at the largest δ of its releases.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from secagg.compliance.evidence import FOLDER, AllEvidence, well_formed
from secagg.compliance.statements import Evidence, Statement, Status, Table
from secagg.contracts.noise import Adjacency
from secagg.core.identity import COORDINATOR
from secagg.errors import EvidenceError, UsageError
from secagg.privacy.accounting.budget import FREE, Cost
from secagg.privacy.accounting.calibration import epsilon_at
from secagg.privacy.accounting.events import times
from secagg.privacy.ledger.records import RECORD
from secagg.reports.numbers import (
    ADJACENCIES,
    counted,
    listing,
    probability,
    rounded_up,
)
from secagg.runs.budgets import exact_releases

FILE = "ledgers.json"
_FEW = 5  # sessions that a sentence names
_UNITS = (RECORD, "person", "event")
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Total:
    """All releases of one data set in one ledger.

    lines: positions in the file, and its entries; repeats: the lines of releases that were repeated
    with the same noise, at no cost
    """

    party: str
    dataset: str
    lines: tuple[tuple[int, Line], ...]
    repeats: tuple[Line, ...] = ()

    @cached_property
    def sessions(self) -> list[str]:
        """The sessions of the releases and of their repetitions, oldest first."""
        entries = (line for _, line in self.lines)
        return list(dict.fromkeys(str(line["session"]) for line in (*entries, *self.repeats)))

    @cached_property
    def costs(self) -> Counter[Cost]:
        """How often each cost was paid."""
        return Counter(_cost(line) for _, line in self.lines)

    @cached_property
    def delta(self) -> float:
        """The largest δ of the releases; 0 if none has noise."""
        largest = max(float(line["content"]["delta"]) for _, line in self.lines)
        if not 0 <= largest < 1:
            raise ValueError(largest)  # with it, ε would be 0
        return largest

    @cached_property
    def exact(self) -> int:
        """The number of releases without noise, or with noise that a seed gives again."""
        return exact_releases(self.costs)

    @property
    def exact_sessions(self) -> set[str]:
        """The sessions of these releases."""
        exact = (line for _, line in self.lines if exact_releases(Counter([_cost(line)])))
        return {str(line["session"]) for line in exact}

    @cached_property
    def units(self) -> list[str]:
        """What the releases with a cost protect: records, persons or events."""
        paid = {_unit(line) for _, line in self.lines if _cost(line) != FREE}
        return sorted(paid) or [RECORD]

    def epsilon(self, adjacency: Adjacency) -> float:
        """Return the ε of all releases together; inf if there is none."""
        return _epsilon(self.costs, adjacency, self.delta)

    @property
    def ends(self) -> list[str]:
        """The places of its first and last entries in the file."""
        return list(dict.fromkeys(str(self.lines[i][0]) for i in (0, -1)))

    @property
    def together(self) -> str:
        """What all releases together guarantee, in a sentence."""
        if self.exact:
            are = _are(self.exact)
            return f"{self.exact} of the releases {are} exact, so no ε bounds them together."
        if len(self.units) > 1:
            return f"They protect different things ({listing(self.units)}), so no ε is given."
        each = (
            f"ε {rounded_up(self.epsilon(a))} ({ADJACENCIES[a.value].format(self.units[0])})"
            for a in Adjacency
        )
        return f"Together they cost {' or '.join(each)} at δ {probability(self.delta)}."


def _cost(line: Line) -> Cost:
    return Cost.of(line["content"]["cost"])


def _unit(line: Line) -> str:
    unit = str(line["content"].get("unit", RECORD))
    if unit not in _UNITS:
        raise ValueError(unit)  # the page would show it
    return unit


def _epsilon(costs: Counter[Cost], adjacency: Adjacency, delta: float) -> float:
    """Return the ε of releases together, with what discrete noise adds; inf if there is none."""
    if exact_releases(costs):
        return math.inf
    events = [times(cost.event(adjacency), number) for cost, number in costs.items()]
    discrete = math.fsum(number * cost.distance for cost, number in costs.items())
    return epsilon_at(events, delta, discrete)


def totals(evidence: AllEvidence) -> list[Total]:
    """Return the total of each data set in each ledger. Raises `EvidenceError`."""
    found = dict[tuple[str, str], list[tuple[int, Line]]]()
    again = dict[tuple[str, str], list[Line]]()
    with well_formed(FILE):
        for i, line in enumerate(evidence.ledgers or ()):
            where = str(line["party"]), str(line["dataset"])
            if line["kind"] == "entry":
                found.setdefault(where, []).append((i, line))
            elif line["kind"] == "use":
                again.setdefault(where, []).append(line)
        made = [
            Total(*where, tuple(lines), tuple(again.get(where, ())))
            for where, lines in sorted(found.items())
        ]
        try:
            for each in made:  # reads every cost
                assert each.units
                each.epsilon(Adjacency.REPLACE)
                Counter(map(_cost, each.repeats))
        except UsageError as error:
            raise EvidenceError(f"{FOLDER}/{FILE}", error.what) from None
    return made


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
        f" has {counted(len(total.lines), 'release')} of the data set {total.dataset!r}, in "
        f"{counted(len(total.sessions), 'run')}."
    )
    if others:
        few = listing(others[:_FEW]) + (" and others" if len(others) > _FEW else "")
        number = f"{len(others)} of these {_are(len(others))} not in this report"
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
            each.party, each.dataset, str(len(each.sessions)), str(len(each.lines)),
            str(each.exact), *(_no_bound_or(each.epsilon(a)) for a in Adjacency),
            probability(each.delta) if each.delta else "–",
        )
        for each in every
    ]  # fmt: skip
    words = [ADJACENCIES[each.value].format("unit") for each in Adjacency]
    return Table(
        "All releases of each ledger together: ε at the largest δ of the releases",
        ("Ledger", "Data set", "Runs", "Releases", "Exact", *(f"ε, {w}" for w in words), "δ"),
        rows, tuple(range(2, 8)), (Evidence(FILE),),
    )  # fmt: skip


def _no_bound_or(epsilon: float) -> str:
    return "no bound" if math.isinf(epsilon) else rounded_up(epsilon)


def all_runs_together(evidence: AllEvidence, adjacency: str) -> str:
    """Return for the first page what the ledgers say of all runs; "" if they lack one.

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
    if exact := {session for each in used for session in each.exact_sessions}:
        return (
            f"According to the attached ledgers, {counted(len(exact), 'run')}{where} "
            "released sums without noise, or with noise that anybody who knows its seed can "
            "subtract. So no ε bounds all runs together."
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
            "The attached ledgers list no other run on these records. Ask the sites whether there "
            f"are other ledgers, or releases by other software.{words}"
        )
    (unit,), kind, delta = units, Adjacency(adjacency), max(each.delta for each in used)
    of_sites = dict[str, Counter[Cost]]()
    for each in used:  # a site may have the same records under two names
        of_sites[each.party] = of_sites.get(each.party, Counter()) + each.costs
    costs = list(of_sites.values()) if unit == RECORD and not incomplete else [_each_once(used)]
    most = max(_epsilon(each, kind, delta) for each in costs)
    if math.isinf(most):
        return ""
    others = len(sessions - known)
    which = f", of which {others} {_are(others)} not in this report," if others else ""
    return (
        f"According to the attached ledgers, {counted(len(sessions), 'run')}{where}{which} "
        f"together bound the effect of one {unit} by ε {rounded_up(most)} at δ "
        f"{probability(delta)}.{words}"
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
    paid = {(str(line["session"]), str(line["round"]), _cost(line)) for line in lines}
    return Counter(cost for *_, cost in paid)


def _not_counted(incomplete: Sequence[str], others: Sequence[Total]) -> str:
    """Return what the ledgers leave out, in sentences."""
    words = ""
    if incomplete:
        each = "ledger" if len(incomplete) == 1 else "ledgers"
        words += (
            f" The {each} of {listing(incomplete)} {_are(len(incomplete))} missing or incomplete, "
            "so there may be further runs on these records."
        )
    if others:
        names = listing(sorted({repr(each.dataset) for each in others}))
        words += f" Not counted are releases of other data sets of these sites: {names}."
    return words


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
