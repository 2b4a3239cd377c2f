"""A site's release rules that need its own records: small counts, and dominance in a total.

The table of all rules is in `secagg.privacy.policy.job_rules`. The rules apply without noise only.

If the job names a column of persons, every number of records below is a number of persons. A person
has a value if one of the person's records has it. What a person contributes to a total, and how
much a person weighs, is the sum over these records. So a patient with twelve records is one
patient. Without such a column, each record counts as a person.

=========================================  =====================================================
case                                       result
=========================================  =====================================================
12 records of one person, minimum 10       refused: 1 person
a level in 12 records of one person        refused by `min_level_records`
... which the person's other records lack  the person counts for both values
one value in all records but one person's  refused by `constant_columns`
half of a total in one person's records    refused by `dominance`, as one record with their sum
the weights are those of one person        refused by `effective_records`
held-out records of one person             refused by `held_out`; drawn at random: as if they were
                                           those of the persons with the most records
a batch that may be one person's records   refused by `batch`
=========================================  =====================================================

A column in which all records except a few have one value singles these few out, just as a rare
level does: with the cross products of the moments, the sums over the few records follow. So a rule
on such columns applies whatever type the job declares.

Dominance means that a few records make up most of a total. The rule applies to variables that are
not negative at this site, whatever bounds the job declares. The totals are the sum of such a
variable and the sum of its squares. Variables with only two values are excluded, because their sum
is a count. A site knows only its own values x1 >= x2 >= ..., with the sum T. This is enough:

* Share: suppose that x1 + ... + xn <= k T at every site. Let y1, ..., yn be the n largest values of
  all sites together. Their sum is at most the sum of the n largest values of every site that holds
  some of them. So it is at most k times the pooled total.
* Remainder (p% rule): let y1 be the largest value of all sites together. At the site that holds it,
  y1 = x1. Let y2 be the second largest value of all sites together. The pooled total without y1 and
  y2 is at least T - x1 - x2, whichever site holds y2, because no value is negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, SiteRecords
from secagg.privacy.ledger.records import Decision
from secagg.privacy.policy.exact_numbers import columns_of, moment_numbers, most_numbers
from secagg.privacy.policy.job_rules import PolicyRequest
from secagg.privacy.policy.policy_tables import Dominance
from secagg.privacy.policy.questions import Question
from secagg.privacy.policy.site_policy import SitePolicy

LARGE_SHARE = 0.9
"""If a site has more than this share of all records, it gets a remark."""


def share_remark(site: str, records: int, total: int) -> str:
    """Return a remark if almost all records are this site's, so that sums show it; "" if not."""
    if records <= LARGE_SHARE * total:
        return ""
    return (
        f"{site}: has {records / total:.2%} of all records, so the sums are almost its own. The "
        "rule max_site_share of its policy can prevent this."
    )


@dataclass(frozen=True, repr=False)
class OwnRecords:
    """A site's own numbers, which never leave the site.

    records: number of persons; of records, if no column names persons
    magnitudes: for each total under the dominance rule, the value of every person, at least 0
    levels: for each 0/1 variable, the number of persons with value 1; for each column with three or
        more levels also the number of persons with the first level, which has no variable
    varying: for each other variable, the number of persons with another than its most common value
    clipped: for each column, the share of its values outside the bounds
    others: for each of `levels`, the number of persons with value 0; if it is missing, all others
    of_persons: the numbers of records of the persons, the largest first; empty if each has one
    last: the persons of the records, the last record first; empty if each has its own
    varying_records: as `varying`, of records
    """

    records: int
    magnitudes: Mapping[str, NDArray[np.float64]]
    levels: Mapping[str, int]
    varying: Mapping[str, int] = field(default_factory=dict)
    clipped: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)
    of_persons: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    last: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    varying_records: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a text that contains none of the numbers."""
        return "OwnRecords(...)"

    @property
    def rows(self) -> int:
        return int(self.of_persons.sum()) if len(self.of_persons) else self.records

    def among(self, drawn: int) -> int:
        """Return the smallest number of persons that so many of the records can be of."""
        if not len(self.of_persons):
            return min(drawn, self.records)
        reached = np.cumsum(self.of_persons)
        return min(int(np.searchsorted(reached, drawn)) + 1, len(reached)) if drawn > 0 else 0

    def among_last(self, held: int) -> int:
        """Return the number of persons of so many records at the end of the table."""
        return len(np.unique(self.last[:held])) if len(self.last) else min(held, self.records)


def own_records(rows: SiteRecords, public: PublicFacts) -> OwnRecords:
    """Return the numbers of a site's records that the rules use."""
    persons, count = rows.person_codes, rows.persons_count
    magnitudes: dict[str, NDArray[np.float64]] = {}
    levels: dict[str, int] = {}
    others: dict[str, int] = {}
    of_column: dict[str, list[NDArray[np.bool_]]] = {}
    varying: dict[str, int] = {}
    varying_records: dict[str, int] = {}

    def having(which: NDArray[np.bool_]) -> int:
        return len(np.unique(persons[which]))

    def level(name: str, ones: NDArray[np.bool_]) -> None:
        levels[name], others[name] = having(ones), having(~ones)

    for variable, scaled in zip(public.variables, rows.values.T, strict=True):
        if variable.column in rows.lacking:
            continue
        values = variable.midpoint + variable.half_range * scaled
        if variable.indicator:  # clipping to a norm keeps the sign
            level(variable.name, scaled > 0)
            of_column.setdefault(variable.column, []).append(scaled > 0)
            continue
        _, of_value, counts = np.unique(scaled, return_inverse=True, return_counts=True)
        varying_records[variable.name] = len(scaled) - int(counts.max(initial=0))
        varying[variable.name] = count - _of_one_value(of_value.reshape(-1), persons, count)
        if len(counts) == 2:  # binary, whatever the job declares
            level(variable.name, scaled > scaled.min())
        elif values.min(initial=0.0) >= 0:  # whatever bounds the job declares
            for name, each in ((variable.name, values), (f"{variable.name}^2", values**2)):
                magnitudes[name] = np.bincount(persons, each, count).astype(np.float64)
    for column, ones in of_column.items():
        if len(ones) > 1:  # for a single 0/1 variable, the rule checks both values
            level(f"{column}=(first level)", ~np.any(ones, axis=0))
    clipped = dict(zip(public.columns, rows.clipped_share.tolist(), strict=False))
    named = len(rows.persons) > 0
    of_persons = np.sort(np.bincount(persons))[::-1] if named else persons[:0]
    return OwnRecords(
        count, magnitudes, levels, varying, clipped, others, of_persons,
        persons[::-1] if named else persons[:0], varying_records,
    )  # fmt: skip


def _of_one_value(values: NDArray[np.int64], persons: NDArray[np.int64], count: int) -> int:
    """Return how many persons have one value in all their records: the value with most of them."""
    if not len(values):
        return 0
    lowest, highest = np.full(count, len(values)), np.full(count, -1)
    np.minimum.at(lowest, persons, values)
    np.maximum.at(highest, persons, values)
    return int(np.bincount(lowest[lowest == highest], minlength=1).max())


def with_data(policy: SitePolicy, request: PolicyRequest, own: OwnRecords) -> tuple[Decision, ...]:
    """Return the decisions of all rules that need the site's own numbers, for a job without noise.

    With noise these rules must not be used, because their decisions would reveal the records.
    """
    decisions: list[Decision] = []

    def decide(rule: str, allowed: bool, text: str) -> None:
        decisions.append(Decision(rule, allowed, text))

    n, total = own.records, request.total_records
    if policy.min_records is None:
        decide("min_records", False, "is not set")
    else:
        text = f"{n} {_unit(request)}, {policy.min_records} needed"
        decide("min_records", n >= policy.min_records, text)
    if policy.max_parameters_ratio is not None:
        ratio = policy.max_parameters_ratio
        text = f"{request.parameters} parameters for {n} {_unit(request)}; at most {ratio:g} each"
        decide("max_parameters_ratio", request.parameters <= ratio * n, text)
    min_level = policy.min_level_records or policy.min_records
    if min_level is not None and min_level > 1:
        decide("min_level_records", *_check_levels(min_level, own))
    decide("max_clipped_share", *check_clipped(policy.max_clipped_share, own.clipped))
    if policy.min_records is not None:
        constant = policy.fewest_level_sites == 1
        decide("constant_columns", *_check_varying(policy.min_records, own, constant=constant))
        decide("held_out", *_check_held_out(policy.min_records, own, request.question))
    if request.few_records and len(own.of_persons):
        fewest = own.among(request.few_records)
        text = f"a batch may be of {fewest} persons alone, {policy.smallest_cell} needed"
        decide("batch", fewest >= policy.smallest_cell, text)
    if policy.dominance is not None:
        decide("dominance", *_check_totals(policy.dominance, own.magnitudes))
    decisions += _check_numbers(policy, request, own)
    if policy.max_site_share is not None and not request.counting:
        ours, every = n, total or 0
        if policy.person is None:  # the job's persons may be few here and many elsewhere
            ours, every = own.rows, own.rows + every - n  # others have a record or more
        text = f"{ours} of {every} {_unit(request)}; at most a share of {policy.max_site_share:g}"
        decide("max_site_share", ours <= policy.max_site_share * every, text)
    return tuple(decisions)


def _unit(request: PolicyRequest) -> str:
    return "records" if request.person is None else "persons"


def _check_numbers(policy: SitePolicy, request: PolicyRequest, own: OwnRecords) -> list[Decision]:
    """Decide whether the first rounds fit. Before the total is known, it is taken to be large."""
    n = own.records
    if not n or policy.max_exact_share is None or request.question is None:
        return []
    jobs = [replace(request.question, rows=own.rows), *request.asked]
    sites = policy.min_sites or len(request.cohort)
    total = sites * n if request.total_records is None else request.total_records
    most = most_numbers(policy.max_exact_share, columns_of(jobs), n, total, sites)
    numbers = moment_numbers(jobs) + request.released_numbers + request.numbers.least
    text = (
        f"moments, rounds of other jobs and the first rounds of this one are {numbers} exact "
        f"numbers; at most {most} allowed"
    )
    return [Decision("exact_numbers", numbers <= most, text)]


def _check_levels(min_records: int, own: OwnRecords) -> tuple[bool, str]:
    for name, ones in own.levels.items():
        for count, value in ((ones, 1), (own.others.get(name, own.records - ones), 0)):
            if 0 < count < min_records:
                return False, f"{name} is {value} in {count} records, {min_records} needed"
    return True, f"in {len(own.levels)} variables, each value has 0 or {min_records} records"


def _check_held_out(
    min_records: int, own: OwnRecords, question: Question | None
) -> tuple[bool, str]:
    share = question.held_out if question else 0.0
    held = max(int(share * own.rows), 1) if share else 0
    last = question is not None and question.held_out_rows == "last"
    persons = own.among_last(held) if last else own.among(held)
    text = f"the method holds out {persons} of {own.records}; 0 or {min_records} needed"
    return held == 0 or persons >= min_records, text


def _check_varying(min_records: int, own: OwnRecords, *, constant: bool) -> tuple[bool, str]:
    for name, varying in own.varying.items():
        if not (varying or constant) and own.records:
            return False, f"all records have one value of {name}, which may name this site"
        # If most values differ from each other, the column does not single out a few records.
        # Records are counted too: among few persons, those with the one value may be no majority.
        of_records = own.varying_records.get(name, varying)
        for differ, all_ in ((varying, own.records), (of_records, own.rows)):
            if 0 < differ < min(min_records, all_ - differ):
                text = f"{name} has one value in all records except {differ}, {min_records} needed"
                return False, text
    return True, f"no column has one value in almost all records ({len(own.varying)} columns)"


def check_clipped(limit: float, clipped: Mapping[str, float]) -> tuple[bool, str]:
    """Decide whether bounds and unit fit the values. clipped: share outside, by column."""
    for name, share in clipped.items():
        if share > limit:
            text = f"{share:.0%} of the values of {name} lie outside the job's bounds"
            return False, f"{text}, at most {limit:.0%} allowed: wrong bounds or a wrong unit"
    return True, f"in {len(clipped)} columns, at most {limit:.0%} of the values are clipped"


def _check_totals(
    rule: Dominance, magnitudes: Mapping[str, NDArray[np.float64]]
) -> tuple[bool, str]:
    for name, values in magnitudes.items():
        total, ordered = float(values.sum()), np.sort(values)[::-1]
        top = float(ordered[: rule.largest].sum())
        if rule.share is not None and top > rule.share * total:
            text = f"the {rule.largest} largest are {top / total:.3g} of the total of {name}"
            return False, f"{text}; at most {rule.share:g} allowed"
        rest = total - float(ordered[:2].sum())
        if rule.remainder is not None and ordered.size and rest < rule.remainder * ordered[0]:
            text = f"the total of {name} without the 2 largest is {rest / ordered[0]:.3g}"
            return False, f"{text} of the largest; at least {rule.remainder:g} needed"
    return True, f"no record dominates any of {len(magnitudes)} totals"
