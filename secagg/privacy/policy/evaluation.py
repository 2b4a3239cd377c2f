"""A site's policy applied to one request: every rule, its decision, and the reason for it.

`before_data` takes public facts only and may be asked by anybody, `secagg plan` included.
`with_data` takes the site's own numbers as well, and runs at the site, before it contributes. Each
evaluates all of its rules and returns all decisions, for the site's ledger; `enforce` then raises
the first refusal. A rule that the policy does not set makes no decision, but for the counting
rules, which refuse where they are unset (see `secagg.privacy.policy.site_policy`).

====================  ===================================================================  ======
rule                  allowed if                                                           when
====================  ===================================================================  ======
min_sites             it is set, and so many sites take part, this one among them          before
min_records           it is set                                                            before
min_total_records     the cohort has so many records, and min_sites * min_records          before
min_residual_dof      records in all - parameters >= it                                    before
cohorts               fixed: the sites are those of an earlier release, if there is one;   before
                      checked: no group is exposed (`secagg.privacy.policy.differencing`)
methods               the job's method is listed                                           before
columns               all of the job's columns are listed                                  before
protocols             the job's protocol is listed                                         before
keys.coordinators     the key of the coordinator who asks is listed                        before
noise                 required: there is noise; own: placed at each site                   before
budget                epsilon and delta of the whole job are not above the policy's        before
budget.adjacency      the job's is listed                                                  before
budget.unit           the job's is listed                                                  before
budget.person         the job protects persons, and this is the column that names them     before
budget.colluding      the noise allows for so many colluding sites, or is the site's own   before
min_records           the site has so many                                                 with
max_parameters_ratio  parameters <= ratio * the site's records                             with
min_level_records     each 0/1 variable has no ones or so many, and likewise zeros         with
dominance             see below                                                            with
max_site_share        the site's records <= share * records in all                         with
delta                 (always, where there is noise) delta < 1 / number of records         with
====================  ===================================================================  ======

Records in all are unknown in the round that counts them; there, rules about them decide nothing.

Parameters (`parameters`): of the largest model that the released sums determine, whichever analysis
is asked for. They come as the triangle of a p x p matrix, and p it is: with moments of v variables,
v + 1 (one variable regressed on all others: intercept, v - 1 slopes, variance of the residuals);
with logistic regression, its coefficients. Where a sum has no such matrix, all its numbers count.

Dominance is about magnitudes: sums, and sums of squares, of each variable that its public bounds
keep at 0 or above (in the units it is summed in), unless it only takes the values 0 and 1, whose
sum is a count. A site knows its own part x1 >= x2 >= ... of a total only, and that suffices: if
x1 + ... + xn <= k T at every site, then the n largest of all records have y1 + ... + yn <= the sum,
over sites that hold some of them, of that site's n largest <= k times the pooled total. And for
the p% rule, if the pooled largest, y1, is at a site with total T = x1 + x2 + ..., where x1 = y1,
then the pooled remainder, without the pooled second largest y2, is at least T - x1 - x2: whichever
site y2 is at, what is left of the other totals is not negative.

Not protected. Both refusal and consent tell the coordinator something of the records (not which of
the rules on records it was). The rules count and compare; they do not bound what somebody learns
who knows other records, which takes noise. Cells of two variables or more, products of columns,
small pooled counts where each site's are large or 0, and columns of both signs are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Kind, PublicFacts, SiteRecords, Stage
from secagg.contracts.noise import Adjacency, Placement
from secagg.errors import PolicyRefusal
from secagg.privacy.policy.differencing import exposed
from secagg.privacy.policy.site_policy import Dominance, SitePolicy


@dataclass(frozen=True, kw_only=True)
class PolicyRequest:
    """What a coordinator asks a site to take part in: public facts, all of them.

    site: who decides; coordinator_key: of whoever asks, 32 bytes, as pinned in the roster
    parameters: see `parameters`
    cohort: names of the sites whose sum is asked for
    earlier: the cohorts of all that was released from this data set before, from the ledger
    total_records: of the cohort, once counted; counting: this is the round that counts them
    epsilon, delta, adjacency, unit: of the whole job; without noise, infinite, 0 and None
    person: the column that names persons; colluding: how many sites the noise allows for
    """

    site: str
    coordinator_key: bytes
    method: str
    columns: tuple[str, ...]
    protocol: str
    parameters: int
    cohort: tuple[str, ...]
    earlier: tuple[frozenset[str], ...] = ()
    counting: bool
    total_records: int | None = None
    placement: Placement = Placement.NONE
    epsilon: float = math.inf
    delta: float = 0.0
    adjacency: Adjacency | None = None
    unit: str | None = None
    person: str | None = None
    colluding: int = 0


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


@dataclass(frozen=True)
class Decision:
    """One rule's decision.

    text: with all numbers, for the site's ledger and its own log; it stays at the site
    """

    rule: str
    allowed: bool
    text: str


def parameters(stages: Iterable[Stage]) -> int:
    """Return the free parameters of the largest model that the sums of these stages determine."""
    most = 0
    for stage in stages:
        # a triangle of a p x p matrix has p (p + 1) / 2 numbers
        sides = [(math.isqrt(8 * f.size + 1) - 1) // 2 for f in stage.spec if f.kind is Kind.PSD]
        most = max(most, max(sides, default=sum(field.size for field in stage.spec)))
    return most


def own_records(rows: SiteRecords, public: PublicFacts) -> OwnRecords:
    """Return what the rules need to know of a site's records."""
    magnitudes: dict[str, NDArray[np.float64]] = {}
    levels: dict[str, int] = {}
    for variable, scaled in zip(public.variables, rows.values.T, strict=True):
        values = variable.middle + variable.half * scaled
        if variable.indicator:  # a record that was clipped to a norm keeps its side
            levels[variable.name] = int(np.count_nonzero(scaled > 0))
        elif len(np.unique(scaled)) == 2:  # however the job declares it
            levels[variable.name] = int(np.count_nonzero(scaled > scaled.min()))
        elif variable.middle >= variable.half:
            # scaled >= -1, and rounding is monotone: no value is below 0
            magnitudes[variable.name], magnitudes[f"{variable.name}^2"] = values, values**2
    return OwnRecords(len(rows.values), magnitudes, levels)


def before_data(policy: SitePolicy, request: PolicyRequest) -> tuple[Decision, ...]:
    """Decide by every rule that needs public facts only; pure."""
    return (
        *_on_cohort(policy, request),
        *_on_lists(policy, request),
        *_on_noise(policy, request),
    )


def on_cohorts(
    policy: SitePolicy, earlier: Sequence[frozenset[str]], cohort: Sequence[str]
) -> tuple[Decision, ...]:
    """Decide by the rule on cohorts alone, as `before_data` does: for a cohort that became known.

    The first sum of a run may cover fewer sites than were invited.
    """
    sites = frozenset(cohort)
    if policy.cohorts == "fixed":
        known = not earlier or sites in earlier
        text = "the sites are those of an earlier release" if known else "other sites than before"
        return (Decision("cohorts", known, text if earlier else "the first release"),)
    if policy.min_sites is None:
        return (Decision("cohorts", False, "min_sites is not set"),)
    exposure = exposed(earlier, sites, policy.min_sites)
    text = "no group of sites is exposed" if exposure is None else exposure.line()
    return (Decision("cohorts", exposure is None, text),)


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
    if request.placement is not Placement.NONE:
        most_records = max(n, total or 0)
        text = f"delta {request.delta:g} for {most_records} records"
        decide("delta", request.delta * most_records < 1, text)
    return tuple(made)


_MEND = {
    "budget": "Lower privacy.epsilon or privacy.delta; the policy's owner decides.",
    "budget.unit": "Set privacy.person to the column that names persons, or leave it out.",
    "delta": "Lower privacy.delta.",
    "keys.coordinators": "Run with --key FILE and the key that its policy lists.",
}


def enforce(who: str, decisions: Sequence[Decision]) -> None:
    """Raise `PolicyRefusal` for the first decision that refuses; its text stays at the site."""
    for decision in decisions:
        if not decision.allowed:
            mend = "Its policy's owner decides; its ledger's history has all decisions."
            mend = _MEND.get(decision.rule, mend)
            raise PolicyRefusal(who, f"release rule {decision.rule}: {decision.text}", mend)


# --- rules on public facts -----------------------------------------------------------------------


def _on_cohort(policy: SitePolicy, request: PolicyRequest) -> Iterable[Decision]:
    cohort, total = request.cohort, request.total_records
    if policy.min_sites is None:
        yield Decision("min_sites", False, "is not set")
    else:
        text = f"{len(cohort)} sites, {policy.min_sites} needed"
        proper = request.site in cohort and len(set(cohort)) == len(cohort)
        text += "" if proper else "; a site is counted twice, or this one is not counted"
        yield Decision("min_sites", proper and len(cohort) >= policy.min_sites, text)
    if policy.min_records is None:
        yield Decision("min_records", False, "is not set")
    if not request.counting:
        implied = (policy.min_sites or 0) * (policy.min_records or 0)
        yield _at_least("min_total_records", total, max(policy.min_total_records or 0, implied), 0)
        if policy.min_residual_dof is not None:
            yield _at_least("min_residual_dof", total, policy.min_residual_dof, request.parameters)
    yield from on_cohorts(policy, request.earlier, cohort)


def _at_least(rule: str, total: int | None, least: int, less: int) -> Decision:
    if total is None:
        return Decision(rule, False, "the number of records in all is not known")
    minus = f" less {less} parameters" if less else ""
    return Decision(rule, total - less >= least, f"{total} records in all{minus}, {least} needed")


def _on_lists(policy: SitePolicy, request: PolicyRequest) -> Iterable[Decision]:
    for rule, allowed, asked in (
        ("methods", policy.methods, (request.method,)),
        ("columns", policy.columns, request.columns),
        ("protocols", policy.protocols, (request.protocol,)),
    ):
        if allowed is not None:
            others = [name for name in asked if name not in allowed]
            text = f"{others[0]!r} is not listed" if others else "all listed"
            yield Decision(rule, not others, text)
    if policy.keys is not None:
        key = request.coordinator_key.hex()
        listed = key in policy.keys.coordinators
        yield Decision("keys.coordinators", listed, f"{key} is {'' if listed else 'not '}listed")


def _on_noise(policy: SitePolicy, request: PolicyRequest) -> Iterable[Decision]:
    placement, noised = request.placement, request.placement is not Placement.NONE
    if policy.noise != "any":
        own = policy.noise == "own"
        needs = "placement 'site'" if own else "privacy.placement and epsilon"
        text = f"{policy.noise!r}, for which it takes {needs}; the job has {placement.value!r}"
        yield Decision("noise", placement is Placement.SITE if own else noised, text)
    budget = policy.budget
    if budget is None:
        return
    if budget.epsilon is not None and budget.delta is not None:
        claim = f"epsilon {request.epsilon:g} at delta {request.delta:g}" if noised else "no noise"
        most = f"at most epsilon {budget.epsilon:g} at delta {budget.delta:g}"
        fits = noised and request.epsilon <= budget.epsilon and request.delta <= budget.delta
        yield Decision("budget", fits, f"the job has {claim}, and a job may have {most}")
    elif not noised:
        yield Decision("budget", False, "no noise, and the period's budget is finite")
    if budget.adjacency is not None and noised:
        asked = "unknown" if request.adjacency is None else request.adjacency.value
        listed = request.adjacency in budget.adjacency
        yield Decision("budget.adjacency", listed, f"{asked} is {'' if listed else 'not '}listed")
    if budget.unit is not None and noised:
        listed = request.unit in budget.unit
        text = f"the job's unit is {request.unit or 'unknown'}, {'' if listed else 'not '}listed"
        yield Decision("budget.unit", listed, text)
    if budget.person is not None and noised:
        named = "no column" if request.person is None else f"column {request.person!r}"
        text = f"persons are named by {named} in the job, and by column {budget.person!r} here"
        yield Decision("budget.person", request.person == budget.person, text)
    if budget.colluding is not None and noised:
        text = f"noise allows for {request.colluding} colluding sites, {budget.colluding} needed"
        enough = placement is Placement.SITE or request.colluding >= budget.colluding
        yield Decision("budget.colluding", enough, text)


# --- rules on the site's own numbers -------------------------------------------------------------


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
