"""The rules of a policy on the noise of a job, and on its budget: public facts only."""

from __future__ import annotations

from collections.abc import Iterable

from secagg.contracts.noise import Placement
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.ledger.records import Decision
from secagg.privacy.policy.policy_tables import Budget
from secagg.privacy.policy.site_policy import SitePolicy


def on_noise(policy: SitePolicy, terms: Terms | None, *, exact: bool) -> Iterable[Decision]:
    """Decide whether a job has the noise that the policy requires, and fits its budget.

    exact: whether the job asks for sums without noise. Noise that others can compute has no terms,
        and is not exact
    """
    budget = policy.budget
    placement = Placement.NONE if terms is None else terms.placement
    if policy.noise != "any":
        own = policy.noise == "own"
        needs = "placement 'site'" if own else "privacy.placement and epsilon"
        text = f"{policy.noise!r} requires {needs}; the job has placement {placement.value!r}"
        allowed = placement is Placement.SITE if own else terms is not None
        yield Decision("noise", allowed, text)
    if exact and (budget is None or budget.exact_jobs == "by_rules"):
        return
    if budget is None:
        if policy.is_own:
            text = "the policy sets no budget, so it allows no job with noise"
            yield Decision("budget.set", False, text)
        return
    if budget.epsilon is not None and budget.delta is not None:
        claim, fits = "no noise", False
        if terms is not None:
            claim = f"epsilon {terms.epsilon:g} at delta {terms.delta:g}"
            fits = terms.epsilon <= budget.epsilon and terms.delta <= budget.delta
        limit = f"at most epsilon {budget.epsilon:g} at delta {budget.delta:g}"
        yield Decision("budget", fits, f"the job has {claim}; allowed is {limit}")
    elif terms is None:
        yield Decision("budget", False, "no noise, and the period's budget is finite")
    if terms is not None:
        yield from _check_terms(budget, terms)


def _check_terms(budget: Budget, terms: Terms) -> Iterable[Decision]:
    """Decide whether the guarantee is of the kind that the policy requires."""
    if budget.adjacency is not None:
        listed = terms.adjacency in budget.adjacency
        text = f"{terms.adjacency.value} is {'' if listed else 'not '}listed"
        yield Decision("budget.adjacency", listed, text)
    if budget.unit is not None:
        as_record = terms.unit == "event" and "record" in budget.unit  # which is an event's part
        listed = terms.unit in budget.unit or as_record
        text = f"the job's unit is {terms.unit}, {'' if listed else 'not '}listed"
        yield Decision("budget.unit", listed, text)
    if budget.colluding is not None:
        text = f"noise allows for {terms.colluding} colluding sites, {budget.colluding} needed"
        enough = terms.placement is Placement.SITE or terms.colluding >= budget.colluding
        yield Decision("budget.colluding", enough, text)
