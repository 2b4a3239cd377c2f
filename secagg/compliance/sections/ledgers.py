"""What the ledgers say of all runs on each data set together, whether this report has them or not.

The total of a ledger is composed from the costs of its releases, as `secagg budget show` does
(`secagg.privacy.accounting`), and not from what runs claim. It is at the largest δ of its releases.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from secagg.compliance.evidence import FOLDER, AllEvidence, well_formed
from secagg.compliance.statements import Evidence, Statement, Status, Table
from secagg.contracts.noise import Adjacency
from secagg.core.identity import COORDINATOR
from secagg.errors import EvidenceError, UsageError
from secagg.privacy.accounting.budget import Cost, spent_epsilon
from secagg.privacy.ledger.records import RECORD
from secagg.reports.numbers import (
    ADJACENCIES,
    counted,
    epsilon_or_no_bound,
    listing,
    probability,
    significant,
)
from secagg.runs.budgets import exact_releases

FILE = "ledgers.json"
_FEW = 5  # sessions that a sentence names
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Total:
    """All releases of one data set in one ledger. lines: positions in the file, and its entries"""

    party: str
    dataset: str
    lines: tuple[tuple[int, Line], ...]

    @cached_property
    def sessions(self) -> list[str]:
        """The sessions of the releases, oldest first."""
        return list(dict.fromkeys(str(line["session"]) for _, line in self.lines))

    @cached_property
    def costs(self) -> Counter[Cost]:
        """How often each cost was paid."""
        return Counter(Cost.of(line["content"]["cost"]) for _, line in self.lines)

    @cached_property
    def delta(self) -> float:
        """The largest δ of the releases; 0 if none has noise."""
        return max(float(line["content"]["delta"]) for _, line in self.lines)

    @cached_property
    def exact(self) -> int:
        """The number of releases without noise, or with noise that a seed gives again."""
        return exact_releases(self.costs)

    @cached_property
    def units(self) -> list[str]:
        """What the releases protect: records, persons or events."""
        return sorted({str(line["content"].get("unit", RECORD)) for _, line in self.lines})

    def epsilon(self, adjacency: Adjacency) -> float:
        """Return the ε of all releases together; inf if one is exact."""
        return math.inf if self.exact else spent_epsilon(self.costs, adjacency, self.delta)

    @property
    def ends(self) -> list[str]:
        """The places of its first and last entries in the file."""
        return list(dict.fromkeys(str(self.lines[i][0]) for i in (0, -1)))

    @property
    def together(self) -> str:
        """What all releases together guarantee, in a sentence."""
        if self.exact:
            return f"{self.exact} of the releases are exact, so no ε bounds them together."
        if len(self.units) > 1:
            return f"They protect different things ({listing(self.units)}), so no ε is given."
        each = (
            f"ε {significant(self.epsilon(a))} ({ADJACENCIES[a.value].format(self.units[0])})"
            for a in Adjacency
        )
        return f"Together they cost {' or '.join(each)} at δ {probability(self.delta)}."


def totals(evidence: AllEvidence) -> list[Total]:
    """Return the total of each data set in each ledger. Raises `EvidenceError`."""
    found = dict[tuple[str, str], list[tuple[int, Line]]]()
    with well_formed(FILE):
        for i, line in enumerate(evidence.ledgers or ()):
            if line["kind"] == "entry":
                found.setdefault((str(line["party"]), str(line["dataset"])), []).append((i, line))
        made = [Total(*names, tuple(lines)) for names, lines in sorted(found.items())]
        try:
            for each in made:  # reads every cost
                each.epsilon(Adjacency.REPLACE)
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
    in_ledgers |= {str(line["session"]) for line in evidence.ledgers}  # repeated releases
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
            str(each.exact), *(epsilon_or_no_bound(each.epsilon(a)) for a in Adjacency),
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


def all_runs_together(evidence: AllEvidence, adjacency: str) -> str:
    """Return for the first page what the ledgers bound; "" if they do not bound all runs.

    adjacency: that of the guarantees of the report's runs
    """
    every = totals(evidence)
    units = {unit for each in every for unit in each.units}
    sessions = {session for each in every for session in each.sessions}
    known = {str(run.facts["session"]) for run in evidence.runs}
    if not known <= sessions or any(each.exact for each in every) or len(units) > 1:
        return ""
    if sessions == known and len(known) == 1:
        return (
            "The attached ledgers list no other run on these records. Ask the sites whether there "
            "are other ledgers, or releases by other software."
        )
    kind = Adjacency(adjacency)
    most = max(every, key=lambda each: each.epsilon(kind))
    others = len(sessions - known)
    which = f", of which {others} {_are(others)} not in this report," if others else ""
    return (
        f"According to the attached ledgers, {counted(len(sessions), 'run')} on these "
        f"records{which} together bound the effect of one {units.pop()} by ε "
        f"{significant(most.epsilon(kind))} at δ {probability(most.delta)}."
    )


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
