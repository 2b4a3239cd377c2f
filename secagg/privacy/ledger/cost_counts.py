"""How often each cost was paid for one data set, with its cohorts and caps, from its ledger lines.

`secagg.privacy.accounting.composition` computes epsilon from these counts, n releases of equal cost
in one step. There are few different costs, because a job pays the same cost in every round.

Lines are never removed from a ledger, so each line is read once and counted. The time to check a
release then does not depend on the length of the ledger. Tests compare with a count line by line.

Not protected: `PaidCosts` counts the lines that it is given. `Ledger` ensures that these are the
committed lines, each of them once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field

from secagg.privacy.accounting.composition import Cap, Cost
from secagg.privacy.ledger.records import Cohort
from secagg.privacy.ledger.store import Line

Answer = tuple[str, str, int]
"""Party, session, round."""


@dataclass
class PaidCosts:
    """What one data set's lines say. Add them in order, each once.

    caps: the caps that were set last
    """

    caps: tuple[Cap, ...] = ()
    _paid: dict[Cost, list[int]] = field(default_factory=dict)
    """for each cost, the sorted times of payment; the clock may have been set back meanwhile"""
    _cohorts: dict[Answer, Cohort] = field(default_factory=dict)
    """cohorts in the order of their first lines; empty while the sites are unknown"""
    _settled: set[Answer] = field(default_factory=set)

    def add(self, line: Line) -> None:
        """Count a line. Lines with decisions change nothing."""
        match line.kind:
            case "entry":
                insort(self._paid.setdefault(Cost.of(line.content["cost"]), []), line.time)
                self._cohort(line)
            case "use" | "cohort":
                self._cohort(line)
            case "caps":
                self.caps = tuple(Cap.of(plain) for plain in line.content["caps"])

    def spent(self, since: int | None = None) -> Counter[Cost]:
        """Return how often each cost was paid, at `since` or later. Future times count too.

        since: time in microseconds, as in the lines; None for all time
        """
        counts = {
            cost: len(times) - (0 if since is None else bisect_left(times, since))
            for cost, times in self._paid.items()
        }
        return Counter({cost: count for cost, count in counts.items() if count})

    def cohorts(self, excluding: Answer | None = None) -> tuple[Cohort, ...]:
        """Return the known cohorts of all releases, in the order of their first lines.

        A cohort recorded by `Ledger.settle` replaces the cohort of the release's first line. The
        texts of refusals number the releases in this order.

        excluding: a release to leave out
        """
        known = self._cohorts.items()
        return tuple(cohort for answer, cohort in known if cohort.sites and answer != excluding)

    def _cohort(self, line: Line) -> None:
        assert line.session is not None and line.round is not None
        answer = line.content["party"], line.session, line.round
        sites = frozenset(line.content["cohort"])
        first = answer not in self._cohorts  # keeps its place in the order, even without sites
        if first or (sites and answer not in self._settled):
            self._cohorts[answer] = Cohort(sites, line.session, line.round)
        if line.kind == "cohort":
            self._settled.add(answer)
