"""How many exact numbers all jobs together may release of a site's records.

Every exact number is an equation in the records. If there are about as many equations as values in
the records, the equations can be solved, however harmless each sum is by itself: Dinur and Nissim
2003, "Revealing information while preserving privacy"; Garfinkel, Abowd and Martindale 2018,
"Understanding database reconstruction attacks on public data". So the rule counts numbers over all
rounds and all exact jobs on a data set. A job may release as long as

    numbers <= share * columns * min(total records, min_sites * own records).                   (1)

numbers   the moments of every pair of columns that an exact job had together, each counted once;
          and all numbers of each round of methods that need more than moments
          (`secagg.contracts.MethodFacts.reads`). A round that repeats an earlier one of the same
          job, on the same records and with the same messages, releases no new number
columns   those of all exact jobs together, this one included
share     `max_exact_share` of the policy

The right side counts the unknown values. Every sum covers at least `min_sites` sites, and a site
counts each of them with as many records as it has itself, but not with more than the announced
total. A coordinator that announces a false total gains at most the factor `min_sites`. With a share
of 1/3 and three sites, numbers <= columns * own records even then: so even if all other sites
collude, there are no more equations than values of this site.

Why 1/3: DataSHIELD allows .33 parameters for each record (nfilter.glm), and each parameter of a
regression stands for one exact equation in each of its rounds. With a third as many equations as
values, two of three values stay undetermined, if one only counts. Profiles with larger minimum
counts have the smaller shares.

=================================================  =============================================
case                                               result
=================================================  =============================================
moments of the same columns, asked again           no new number
... after records were added                       all of them are new
one more column                                    its moments and its products with the others
a repeated job with the same messages              no new number
the same job with another message in some round    this round and all later ones count
a method that draws random numbers, repeated       every round counts
killed during a run                                what was reserved counts: more than was released
numbers = the right side of (1)                    allowed
fewer records than the first rounds need           refused before the first sum of the method
the limit is reached in a later round              this round is refused
with noise                                         no rule: the budget limits it
=================================================  =============================================

Not protected: this is a count. Fewer equations may determine single records: if these are unusual
(`max_leverage`), if few records change their weight between two rounds (`effective_records`), or if
values are whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, Final

from secagg.contracts import MethodFacts, SingleRecords, Stage
from secagg.privacy.policy.questions import Declarations, Question

FEWEST_ROUNDS: Final = 10
"""A job begins only if so many rounds of each stage fit the limit: a Newton fit needs about as
many. A run that had to end earlier would release numbers without a result."""


@dataclass(frozen=True)
class PlannedNumbers:
    """The exact numbers of a job beyond the moments of its columns.

    least: those of the first rounds of each stage; all: those of all rounds; 0 if moments are all
    repeatable: as for `secagg.contracts.SingleRecords`
    job: digest of what decides the numbers: columns, method and its settings
    """

    least: int = 0
    all: int = 0
    repeatable: bool = False
    job: str = ""

    @classmethod
    def of(cls, facts: MethodFacts, stages: Iterable[Stage], job: str) -> PlannedNumbers:
        """Return those of an exact job. stages: of the method; job: as for the class."""
        if not isinstance(facts.reads, SingleRecords):
            return cls()
        sizes = [(round_numbers(stage), stage.max_rounds) for stage in stages]
        least = sum(size * min(rounds, FEWEST_ROUNDS) for size, rounds in sizes)
        every = sum(size * rounds for size, rounds in sizes)
        return cls(least, every, facts.reads.repeatable, job)


NO_NUMBERS: Final = PlannedNumbers()


def round_numbers(stage: Stage) -> int:
    return sum(field.size for field in stage.spec)


def variables_of(declared: Mapping[str, Any]) -> int:
    """Return the number of variables of a column: one fewer than its levels, or one."""
    return max(len(declared.get("levels", ())) - 1, 1)


def moment_numbers(jobs: Sequence[Question]) -> int:
    """Return how many numbers the moments of all these jobs' columns are, the counts included.

    Moments of the same columns over other records are other numbers. Which records a job covered is
    told by their number; a job that does not know it is taken to cover those of the others.

    A 0/1 variable equals its square, and the product of two indicators of one column is 0, so
    neither is a number of its own.
    """
    seen: set[tuple[frozenset[str], int]] = set()
    numbers = 0
    for job in sorted(jobs, key=lambda job: not job.rows):
        rows = [job.rows] if job.rows else sorted({n for _, n in seen}) or [0]
        for group in map(frozenset, _groups(job.columns)):
            if not any((group, n) in seen for n in rows):
                seen.add((group, rows[0]))
                numbers += _moments_of(group, job.columns)
    return numbers


def _groups(columns: Iterable[str]) -> Iterable[tuple[str, ...]]:
    """Yield no column (the count), each column, and each pair of columns."""
    names = tuple(columns)
    return chain.from_iterable(combinations(names, size) for size in range(3))


def _moments_of(group: frozenset[str], columns: Declarations) -> int:
    """Return how many moments belong to these columns together, and to no fewer of them."""
    products = math.prod(variables_of(columns[name]) for name in group)
    one = next(iter(group)) if len(group) == 1 else ""
    return products + bool(one and "levels" not in columns[one])


def most_numbers(share: float, columns: int, own: int, total: int, min_sites: int) -> int:
    """Return the right side of (1), rounded down. A total below the own records is false."""
    records = min(max(total, own), min_sites * own)
    return math.floor(share * columns * records * (1 + 1e-12))


def most_in_rounds(
    share: float | None, jobs: Sequence[Question], own: int, total: int, min_sites: int
) -> int | None:
    """Return how many numbers all rounds may release beside the moments; None for no limit."""
    if share is None:
        return None
    return most_numbers(share, columns_of(jobs), own, total, min_sites) - moment_numbers(jobs)


def fewest_records(numbers: int, share: float, columns: int, min_sites: int) -> int:
    """Return the smallest number of own records for which (1) allows so many numbers.

    This holds if the total is at least `min_sites` times as large.
    """
    return math.ceil(numbers / (share * columns * min_sites) * (1 - 1e-12))


def columns_of(jobs: Iterable[Question]) -> int:
    return len({name for job in jobs for name in job.columns})
