"""The costs of all releases in the attached ledgers, composed.

The total of a ledger is composed from the costs of its releases, as a cap composes them
(`secagg.privacy.accounting`), and not from what runs claim. It includes what discrete noise adds.
It is at the largest δ of the report's own runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from secagg.compliance.evidence import FOLDER, AllEvidence, well_formed
from secagg.contracts.noise import Adjacency
from secagg.errors import EvidenceError, UsageError
from secagg.evidence.claims.guarantee import percent_right
from secagg.evidence.numbers import ADJACENCIES, listing, moment, probability, rounded_up
from secagg.privacy.accounting.calibration import epsilon_at
from secagg.privacy.accounting.composition import FREE, Cost
from secagg.privacy.accounting.events import Event, times
from secagg.privacy.ledger.records import RECORD
from secagg.runs.budgets import exact_releases

FILE = "ledgers.json"
_UNITS = (RECORD, "person", "event")
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Total:
    """All releases of one data set in one ledger.

    delta: at which ε is given; 0 if nothing has noise
    lines: positions in the file, and its entries; repeats: the lines of releases that were repeated
    with the same noise, at no cost
    """

    party: str
    dataset: str
    delta: float
    lines: tuple[tuple[int, Line], ...]
    repeats: tuple[Line, ...] = ()

    @cached_property
    def sessions(self) -> list[str]:
        """The sessions of the releases and of their repetitions, oldest first."""
        entries = (line for _, line in self.lines)
        return list(dict.fromkeys(str(line["session"]) for line in (*entries, *self.repeats)))

    @cached_property
    def until(self) -> str:
        """The time of the last of these lines: later releases are not in its figures."""
        lines = (*(line for _, line in self.lines), *self.repeats)
        return moment(max(str(line["time"]) for line in lines))

    @cached_property
    def costs(self) -> Counter[Cost]:
        """How often each cost was paid."""
        return Counter(cost_of(line) for _, line in self.lines)

    @cached_property
    def exact(self) -> int:
        """The number of releases without noise, or with noise that a seed gives again."""
        return exact_releases(self.costs)

    @property
    def exact_sessions(self) -> set[str]:
        """The sessions of these releases."""
        exact = (line for _, line in self.lines if exact_releases(Counter([cost_of(line)])))
        return {str(line["session"]) for line in exact}

    @cached_property
    def units(self) -> list[str]:
        """What the releases with a cost protect: records, persons or events."""
        paid = {_unit(line) for _, line in self.lines if cost_of(line) != FREE}
        return sorted(paid) or [RECORD]

    def epsilon(self, adjacency: Adjacency) -> float:
        """Return the ε of all releases together; inf if there is none."""
        return total_epsilon(self.costs, adjacency, self.delta)

    @property
    def ends(self) -> list[str]:
        """The places of its first and last entries in the file."""
        return list(dict.fromkeys(str(self.lines[i][0]) for i in (0, -1)))

    @property
    def together(self) -> str:
        """What all releases together guarantee, in a sentence."""
        if self.exact:
            exact = f"{self.exact} of the releases {are(self.exact)} exact"
            return f"{exact}, so no ε bounds them together."
        if len(self.units) > 1:
            return f"They protect different things ({listing(self.units)}), so no ε is given."
        each = (
            f"ε {rounded_up(self.epsilon(a))} ({ADJACENCIES[a.value].format(self.units[0])})"
            for a in Adjacency
        )
        return f"Together they cost {' or '.join(each)} at δ {probability(self.delta)}."


def cost_of(line: Line) -> Cost:
    """Return the cost of an entry. Raises `UsageError` if it is none."""
    return Cost.of(line["content"]["cost"])


def _unit(line: Line) -> str:
    unit = str(line["content"].get("unit", RECORD))
    if unit not in _UNITS:
        raise ValueError(unit)  # the page would show it
    return unit


def total_epsilon(costs: Counter[Cost], adjacency: Adjacency, delta: float) -> float:
    """Return the ε of releases together, with what discrete noise adds; inf if there is none."""
    events, discrete = _composed(costs, adjacency)
    return epsilon_at(events, delta, discrete)


def total_right_guesses(costs: Counter[Cost], adjacency: Adjacency) -> int:
    """Return how many of 100 guesses of an attacker are right at most; 100 if a sum is exact."""
    return percent_right(*_composed(costs, adjacency))


def _composed(costs: Counter[Cost], adjacency: Adjacency) -> tuple[list[Event], float]:
    """Return the events of releases as if their noise were Gaussian, and what is discrete."""
    events = [times(cost.event(adjacency), number) for cost, number in costs.items()]
    return events, math.fsum(number * cost.distance for cost, number in costs.items())


def _delta(evidence: AllEvidence, lines: Sequence[Line]) -> float:
    """Return the largest δ of the report's runs; without one, that of all releases.

    A further run with a large δ must not make the ε of all runs small.
    """
    deltas = [float(line["content"]["delta"]) for line in lines]
    if not all(0 <= delta < 1 for delta in deltas):
        raise ValueError(deltas)
    own = [float(run.claims.guarantee["delta"]) for run in evidence.runs if run.claims.holds]
    return max(own or deltas, default=0.0)


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
        delta = _delta(evidence, [line for lines in found.values() for _, line in lines])
        made = [
            Total(*where, delta, tuple(lines), tuple(again.get(where, ())))
            for where, lines in sorted(found.items())
        ]
        try:
            for each in made:  # reads every cost and every unit
                for _, line in each.lines:
                    _unit(line)
                each.epsilon(Adjacency.REPLACE)
                Counter(map(cost_of, each.repeats))
                assert each.until  # reads its times
        except UsageError as error:
            raise EvidenceError(f"{FOLDER}/{FILE}", error.what) from None
    return made


def are(number: int) -> str:
    """Return the verb of so many things."""
    return "is" if number == 1 else "are"
