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
dominance             see `record_rules`                                                      with
max_site_share        the site's records <= share * records in all                         with
delta                 (always, where there is noise) delta < 1 / number of records         with
====================  ===================================================================  ======

Records in all are unknown in the round that counts them; there, rules about them decide nothing.

Parameters (`parameters`): of the largest model that the released sums determine, whichever analysis
is asked for. They come as the triangle of a p x p matrix, and p it is: with moments of v variables,
v + 1 (one variable regressed on all others: intercept, v - 1 slopes, variance of the residuals);
with logistic regression, its coefficients. Where a sum has no such matrix, all its numbers count.

Not protected. Both refusal and consent tell the coordinator something of the records (not which of
the rules on records it was). The rules count and compare; they do not bound what somebody learns
who knows other records, which takes noise. Cells of two variables or more, products of columns,
small pooled counts where each site's are large or 0, and columns of both signs are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from secagg.contracts import Kind, Stage
from secagg.contracts.noise import Adjacency, Placement
from secagg.errors import PolicyRefusal
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.policy.differencing import exposed
from secagg.privacy.policy.site_policy import Budget, SitePolicy


@dataclass(frozen=True, kw_only=True)
class PolicyRequest:
    """What a coordinator asks a site to take part in: public facts, all of them.

    site: who decides; coordinator_key: of whoever asks, 32 bytes, as pinned in the roster
    parameters: see `parameters`
    cohort: names of the sites whose sum is asked for
    earlier: the cohorts of all that was released from this data set before, from the ledger
    total_records: of the cohort, once counted; counting: this is the round that counts them
    terms: of the whole job; None without noise
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
    terms: Terms | None = None

    @property
    def delta(self) -> float:
        """Return delta of the whole job; 0 without noise."""
        return 0.0 if self.terms is None else self.terms.delta

    @property
    def adjacency(self) -> Adjacency | None:
        """Return the job's adjacency; None without noise."""
        return None if self.terms is None else self.terms.adjacency


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


_ADVICE = {
    "budget": "Lower privacy.epsilon or privacy.delta; the policy's owner decides.",
    "budget.unit": "Set privacy.person to the column that names persons, or leave it out.",
    "delta": "Lower privacy.delta.",
    "keys.coordinators": "Run with --key FILE and the key that its policy lists.",
}


def enforce(who: str, decisions: Sequence[Decision]) -> None:
    """Raise `PolicyRefusal` for the first decision that refuses; its text stays at the site."""
    for decision in decisions:
        if not decision.allowed:
            advice = "Its policy's owner decides; its ledger's history has all decisions."
            advice = _ADVICE.get(decision.rule, advice)
            raise PolicyRefusal(who, f"release rule {decision.rule}: {decision.text}", advice)


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
    terms, budget = request.terms, policy.budget
    placement = Placement.NONE if terms is None else terms.placement
    if policy.noise != "any":
        own = policy.noise == "own"
        needs = "placement 'site'" if own else "privacy.placement and epsilon"
        text = f"{policy.noise!r}, for which it takes {needs}; the job has {placement.value!r}"
        allowed = placement is Placement.SITE if own else terms is not None
        yield Decision("noise", allowed, text)
    if budget is None:
        return
    if budget.epsilon is not None and budget.delta is not None:
        claim, fits = "no noise", False
        if terms is not None:
            claim = f"epsilon {terms.epsilon:g} at delta {terms.delta:g}"
            fits = terms.epsilon <= budget.epsilon and terms.delta <= budget.delta
        most = f"at most epsilon {budget.epsilon:g} at delta {budget.delta:g}"
        yield Decision("budget", fits, f"the job has {claim}, and a job may have {most}")
    elif terms is None:
        yield Decision("budget", False, "no noise, and the period's budget is finite")
    if terms is not None:
        yield from _on_terms(budget, terms)


def _on_terms(budget: Budget, terms: Terms) -> Iterable[Decision]:
    """Decide whether this is the kind of guarantee that the policy asks for."""
    if budget.adjacency is not None:
        listed = terms.adjacency in budget.adjacency
        text = f"{terms.adjacency.value} is {'' if listed else 'not '}listed"
        yield Decision("budget.adjacency", listed, text)
    if budget.unit is not None:
        listed = terms.unit in budget.unit
        text = f"the job's unit is {terms.unit}, {'' if listed else 'not '}listed"
        yield Decision("budget.unit", listed, text)
    if budget.person is not None:
        named = "no column" if terms.person is None else f"column {terms.person!r}"
        text = f"persons are named by {named} in the job, and by column {budget.person!r} here"
        yield Decision("budget.person", terms.person == budget.person, text)
    if budget.colluding is not None:
        text = f"noise allows for {terms.colluding} colluding sites, {budget.colluding} needed"
        enough = terms.placement is Placement.SITE or terms.colluding >= budget.colluding
        yield Decision("budget.colluding", enough, text)
