"""What the lines of one data set come to: its costs, its cohorts and its caps, as they are read.

A ledger's lines are only ever appended, so each is read once and added here; what a release may
cost is then asked of the sums, however long the ledger is. Costs are kept as how often, and when,
each was paid: a job pays the same one in every round, and n equal Gaussian releases compose to one
(`secagg.privacy.accounting.budget`). What is counted so is what is counted line by line: the tests
compare.

Not protected: a tally knows what it was given; `Ledger` sees to it that this is all that was
committed, and nothing else.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field

from secagg.privacy.accounting.budget import Cap, Cost
from secagg.privacy.ledger.records import Cohort
from secagg.privacy.ledger.store import Line

Answer = tuple[str, str, int]
"""Party, session, round."""


@dataclass
class Tally:
    """The standing of one data set. Add its lines in their order, each once.

    caps: those set last
    """

    caps: tuple[Cap, ...] = ()
    _paid: dict[Cost, list[int]] = field(default_factory=dict)
    """when each cost was paid, sorted: clocks may have been set back"""
    _cohorts: dict[Answer, Cohort] = field(default_factory=dict)
    """in the order of their first lines; without sites while these are not known"""
    _settled: set[Answer] = field(default_factory=set)

    def add(self, line: Line) -> None:
        """Count a line; those that change nothing here, decisions, may be left out."""
        match line.kind:
            case "entry":
                insort(self._paid.setdefault(Cost.of(line.content["cost"]), []), line.time)
                self._cohort(line)
            case "use" | "cohort":
                self._cohort(line)
            case "caps":
                self.caps = tuple(Cap.of(plain) for plain in line.content["caps"])

    def spent(self, since: int | None = None) -> Counter[Cost]:
        """Return how often each cost was paid at `since` or later, in the future too.

        since: in microseconds, as lines have it; None for ever
        """
        paid = {
            cost: len(times) - (0 if since is None else bisect_left(times, since))
            for cost, times in self._paid.items()
        }
        return Counter({cost: often for cost, often in paid.items() if often})

    def cohorts(self, but: Answer | None = None) -> tuple[Cohort, ...]:
        """Return the cohort of each release whose cohort is known, but for one release.

        In the order in which they were entered, by which a refusal counts them. Where a cohort was
        settled, that; otherwise the one that the release was entered with.
        """
        known = self._cohorts.items()
        return tuple(cohort for answer, cohort in known if cohort.sites and answer != but)

    def _cohort(self, line: Line) -> None:
        assert line.session is not None and line.round is not None
        answer = line.content["party"], line.session, line.round
        sites = frozenset(line.content["cohort"])
        first = answer not in self._cohorts  # which gives it its place, whatever it knows
        if first or (sites and answer not in self._settled):
            self._cohorts[answer] = Cohort(sites, line.session, line.round)
        if line.kind == "cohort":
            self._settled.add(answer)
