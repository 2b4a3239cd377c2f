"""A site's release rules that need its own records: small counts, and dominance in a total.

The table of all rules is in `secagg.privacy.policy.evaluation`. The rules apply without noise only.

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
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, SiteRecords
from secagg.privacy.ledger.records import Decision
from secagg.privacy.policy.evaluation import PolicyRequest
from secagg.privacy.policy.exact_numbers import columns_of, moment_numbers, most_numbers
from secagg.privacy.policy.policy_tables import Dominance
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

    records: number of records
    magnitudes: for each total under the dominance rule, the value of every record, at least 0
    levels: for each 0/1 variable, the number of records with value 1; for each column with three or
        more levels also the number of records with the first level, which has no variable
    varying: for each other variable, the number of records without its most common value
    clipped: for each column, the share of its values outside the bounds
    """

    records: int
    magnitudes: Mapping[str, NDArray[np.float64]]
    levels: Mapping[str, int]
    varying: Mapping[str, int] = field(default_factory=dict)
    clipped: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a text that contains none of the numbers."""
        return "OwnRecords(...)"


def own_records(rows: SiteRecords, public: PublicFacts) -> OwnRecords:
    """Return the numbers of a site's records that the rules use."""
    magnitudes: dict[str, NDArray[np.float64]] = {}
    levels: dict[str, int] = {}
    of_column: dict[str, list[int]] = {}
    varying: dict[str, int] = {}
    for variable, scaled in zip(public.variables, rows.values.T, strict=True):
        values = variable.midpoint + variable.half_range * scaled
        if variable.indicator:  # clipping to a norm keeps the sign
            levels[variable.name] = int(np.count_nonzero(scaled > 0))
            of_column.setdefault(variable.column, []).append(levels[variable.name])
            continue
        counts = np.unique(scaled, return_counts=True)[1]
        varying[variable.name] = len(scaled) - int(counts.max(initial=0))
        if len(counts) == 2:  # binary, whatever the job declares
            levels[variable.name] = int(np.count_nonzero(scaled > scaled.min()))
        elif values.min(initial=0.0) >= 0:  # whatever bounds the job declares
            magnitudes[variable.name], magnitudes[f"{variable.name}^2"] = values, values**2
    for column, ones in of_column.items():
        if len(ones) > 1:  # for a single 0/1 variable, the rule checks both values
            levels[f"{column}=(first level)"] = len(rows.values) - sum(ones)
    clipped = dict(zip(public.columns, rows.clipped_share.tolist(), strict=False))
    return OwnRecords(len(rows.values), magnitudes, levels, varying, clipped)


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
        decide("min_records", n >= policy.min_records, f"{n} records, {policy.min_records} needed")
    if policy.max_parameters_ratio is not None:
        ratio = policy.max_parameters_ratio
        text = f"{request.parameters} parameters for {n} records; at most {ratio:g} per record"
        decide("max_parameters_ratio", request.parameters <= ratio * n, text)
    min_level = policy.min_level_records or policy.min_records
    if min_level is not None and min_level > 1:
        decide("min_level_records", *_check_levels(min_level, own))
    decide("max_clipped_share", *_check_clipped(policy.max_clipped_share, own))
    if policy.min_records is not None:
        constant = policy.fewest_level_sites == 1
        decide("constant_columns", *_check_varying(policy.min_records, own, constant=constant))
        held = request.question.held_out if request.question else 0.0
        decide("held_out", *_check_held_out(policy.min_records, n, held))
    if policy.dominance is not None:
        decide("dominance", *_check_totals(policy.dominance, own.magnitudes))
    if n and total is not None and policy.max_exact_share is not None and request.question:
        jobs = [request.question.columns, *(asked.columns for asked in request.asked)]
        columns, needed = columns_of(jobs), moment_numbers(jobs) + request.numbers.least
        numbers = needed + request.released_numbers
        most = most_numbers(
            policy.max_exact_share, columns, n, total, policy.min_sites or len(request.cohort)
        )
        text = (
            f"{numbers} exact numbers, {request.released_numbers} of them of rounds of other jobs"
        )
        text += f"; at most {most}: {policy.max_exact_share:g} for each unknown value"
        decide("exact_numbers", numbers <= most, text)
    if policy.max_site_share is not None and not request.counting:
        text = f"{n} of {total} records; at most a share of {policy.max_site_share:g}"
        decide("max_site_share", n <= policy.max_site_share * (total or 0), text)
    return tuple(decisions)


def _check_levels(min_records: int, own: OwnRecords) -> tuple[bool, str]:
    for name, ones in own.levels.items():
        for count, value in ((ones, 1), (own.records - ones, 0)):
            if 0 < count < min_records:
                return False, f"{name} is {value} in {count} records, {min_records} needed"
    return True, f"in {len(own.levels)} variables, each value has 0 or {min_records} records"


def _check_held_out(min_records: int, records: int, share: float) -> tuple[bool, str]:
    held = max(int(share * records), 1) if share else 0
    text = f"the method holds out {held} of {records} records; 0 or {min_records} needed"
    return held == 0 or held >= min_records, text


def _check_varying(min_records: int, own: OwnRecords, *, constant: bool) -> tuple[bool, str]:
    for name, varying in own.varying.items():
        if not (varying or constant) and own.records:
            return False, f"all records have one value of {name}, which may name this site"
        # If most values differ from each other, the column does not single out a few records.
        if 0 < varying < min(min_records, own.records - varying):
            text = f"{name} has one value in all records except {varying}, {min_records} needed"
            return False, text
    return True, f"no column has one value in almost all records ({len(own.varying)} columns)"


def _check_clipped(limit: float, own: OwnRecords) -> tuple[bool, str]:
    for name, share in own.clipped.items():
        if share > limit:
            text = f"{share:.0%} of the values of {name} lie outside the job's bounds"
            return False, f"{text}, at most {limit:.0%} allowed: wrong bounds or a wrong unit"
    return True, f"in {len(own.clipped)} columns, at most {limit:.0%} of the values are clipped"


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
