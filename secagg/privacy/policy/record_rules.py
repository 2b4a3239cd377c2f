"""A site's release rules that need its own numbers: what is small, and who dominates a total.

The table of all rules is in `secagg.privacy.policy.evaluation`.

Dominance is about magnitudes: sums, and sums of squares, of each variable that its public bounds
keep at 0 or above (in the units it is summed in), unless it only takes the values 0 and 1, whose
sum is a count. A site knows its own part x1 >= x2 >= ... of a total only, and that suffices: if
x1 + ... + xn <= k T at every site, then the n largest of all records have y1 + ... + yn <= the sum,
over sites that hold some of them, of that site's n largest <= k times the pooled total. And for
the p% rule, if the pooled largest, y1, is at a site with total T = x1 + x2 + ..., where x1 = y1,
then the pooled remainder, without the pooled second largest y2, is at least T - x1 - x2: whichever
site y2 is at, what is left of the other totals is not negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, SiteRecords
from secagg.privacy.policy.evaluation import Decision, PolicyRequest
from secagg.privacy.policy.site_policy import Dominance, SitePolicy


@dataclass(frozen=True, repr=False)
class OwnRecords:
    """A site's own numbers; they never leave it.

    magnitudes: for each total that dominance is about, every record's contribution, at least 0
    levels: for each 0/1 variable, how many records are 1
    """

    records: int
    magnitudes: Mapping[str, NDArray[np.float64]]
    levels: Mapping[str, int]

    def __repr__(self) -> str:
        """Return nothing of it."""
        return "Own(...)"


def own_records(rows: SiteRecords, public: PublicFacts) -> OwnRecords:
    """Return what the rules need to know of a site's records."""
    magnitudes: dict[str, NDArray[np.float64]] = {}
    levels: dict[str, int] = {}
    for variable, scaled in zip(public.variables, rows.values.T, strict=True):
        values = variable.midpoint + variable.half_range * scaled
        if variable.indicator:  # a record that was clipped to a norm keeps its side
            levels[variable.name] = int(np.count_nonzero(scaled > 0))
        elif len(np.unique(scaled)) == 2:  # however the job declares it
            levels[variable.name] = int(np.count_nonzero(scaled > scaled.min()))
        elif variable.midpoint >= variable.half_range:
            # scaled >= -1, and rounding is monotone: no value is below 0
            magnitudes[variable.name], magnitudes[f"{variable.name}^2"] = values, values**2
    return OwnRecords(len(rows.values), magnitudes, levels)


def with_data(policy: SitePolicy, request: PolicyRequest, own: OwnRecords) -> tuple[Decision, ...]:
    """Decide by every rule that needs the site's own numbers; pure."""
    made: list[Decision] = []

    def decide(rule: str, allowed: bool, text: str) -> None:
        made.append(Decision(rule, allowed, text))

    n, total = own.records, request.total_records
    if policy.min_records is None:
        decide("min_records", False, "is not set")
    else:
        decide("min_records", n >= policy.min_records, f"{n} records, {policy.min_records} needed")
    if policy.max_parameters_ratio is not None:
        most = policy.max_parameters_ratio
        text = f"{request.parameters} parameters for {n} records, at most {most:g} a record"
        decide("max_parameters_ratio", request.parameters <= most * n, text)
    if policy.min_level_records is not None:
        decide("min_level_records", *_on_levels(policy.min_level_records, own))
    if policy.dominance is not None:
        decide("dominance", *_on_totals(policy.dominance, own.magnitudes))
    if policy.max_site_share is not None and not request.counting:
        text = f"{n} of {total} records, at most a share of {policy.max_site_share:g}"
        decide("max_site_share", n <= policy.max_site_share * (total or 0), text)
    if request.terms is not None:
        delta, most_records = request.terms.delta, max(n, total or 0)
        decide("delta", delta * most_records < 1, f"delta {delta:g} for {most_records} records")
    return tuple(made)


def _on_levels(least: int, own: OwnRecords) -> tuple[bool, str]:
    for name, ones in own.levels.items():
        for count, value in ((ones, 1), (own.records - ones, 0)):
            if 0 < count < least:
                return False, f"{name} is {value} in {count} records, {least} needed"
    return True, f"each of {len(own.levels)} variables has none or {least}"


def _on_totals(rule: Dominance, magnitudes: Mapping[str, NDArray[np.float64]]) -> tuple[bool, str]:
    for name, values in magnitudes.items():
        total, ordered = float(values.sum()), np.sort(values)[::-1]
        top = float(ordered[: rule.largest].sum())
        if rule.share is not None and top > rule.share * total:
            text = f"the {rule.largest} largest make up {top / total:.3g} of the total of {name}"
            return False, f"{text}, at most {rule.share:g}"
        rest = total - float(ordered[:2].sum())
        if rule.remainder is not None and ordered.size and rest < rule.remainder * ordered[0]:
            text = f"all but the 2 largest make up {rest / ordered[0]:.3g} of the largest of {name}"
            return False, f"{text}, at least {rule.remainder:g}"
    return True, f"nobody dominates any of {len(magnitudes)} totals"
