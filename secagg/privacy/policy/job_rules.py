"""A site's policy applied to one request: every rule, its decision and the reason.

The rules are evaluated in two steps. `before_data` uses public facts only, so anyone may call it;
`secagg plan` does. `secagg.privacy.policy.record_rules.with_data` also uses the site's own numbers.
It runs at the site, before the site contributes. Each step evaluates all of its rules and returns
all decisions, which are written to the site's ledger. `enforce` then raises the first refusal. If a
rule is not set, there is no decision about it, and it forbids nothing. Two rules are exceptions: if
min_sites or min_records is not set, nothing is released.

In the table, N is the number set by the rule. The cohort is the set of sites in the sum.

====================  ===================================================================  ======
rule                  allowed if                                                           when
====================  ===================================================================  ======
min_sites             it is set, at least N sites take part, and this site is one of them  before
min_records           it is set                                                            before
min_total_records     the cohort has >= N records, and >= min_sites * min_records          before
min_residual_dof      total records - parameters >= N                                      before
cohorts               fixed: the sites are those of an earlier release, or there is none;  before
                      checked: no group is exposed (`secagg.privacy.policy.differencing`)
methods               the job's method is listed; if no list is set, an exact job's        before
                      messages cannot choose which records weigh most
columns               all of the job's columns are listed, and declared as the policy says  before
person                the job names persons by the column that the policy names; if the     before
                      policy names none, the job does not rely on it (`person_pinned`)
protocols             the job's protocol is listed; if no list is set, it hides this site   before
keys.coordinators     the requesting coordinator's key is listed                           before
noise                 required: there is noise; own: each site adds all noise itself       before
budget.set            a job with noise: the policy sets a budget, directly or by a profile  before
budget                epsilon and delta of the whole job are at most those of the policy   before
budget.adjacency      the job's adjacency is listed                                        before
budget.unit           the job's unit (record, event or person) is listed                   before
budget.colluding      noise allows for >= N colluding sites, or each site adds all itself  before
refusals              in a period, fewer than N exact jobs were refused because of the     before
                      records
unreleased            in a period, fewer than N other exact jobs released nothing          before
questions             an exact job declares columns as earlier exact releases did: see   before
                      `secagg.privacy.policy.questions`
max_levels            an exact job's categorical columns have at most N levels              before
min_cell_records      an exact job's release.min_cell_records is N or more                  before
batch                 no contribution to an exact job depends on a batch of fewer records   before
                      than min_cell_records
participation         no sum of an exact job depends on fewer sites than min_level_sites    before
min_level_sites       an exact job's release.min_level_sites is N or more                   before
delta                 (always, if there is noise) delta < 1 / total records                noised
max_parameters_ratio  parameters <= ratio * total records / number of sites                noised
min_records           the site has >= N records                                            with
max_parameters_ratio  parameters <= ratio * the site's records                             with
min_level_records     each value of a 0/1 variable, and each level of a categorical        with
                      column, has no records or >= N records
constant_columns      in each continuous column, >= min_records records, or half of them,   with
                      differ from the most common value; none may if min_level_sites is 1
max_clipped_share     of the values of each column, at most this share is out of bounds    with
dominance             see `secagg.privacy.policy.record_rules`                             with
max_site_share        the site's records <= share * total records                          with
questions             no combination with earlier exact releases isolates fewer than       with
                      min_records records: see `secagg.privacy.policy.record_sets`
exact_numbers         all exact numbers that jobs released of these records are at most    with
                      max_exact_share of the unknown values: see
                      `secagg.privacy.policy.exact_numbers`
max_leverage          no record has a larger leverage in the columns of all exact jobs      with
held_out              a method holds out no records of the site, or min_records or more     with
effective_records     a sum, and its difference to each earlier sum, depends on >=         with
                      min_cell_records records, or on 11 if that is less: see
                      `secagg.privacy.policy.answered_weights`
====================  ===================================================================  ======

"before" and "with" are the two steps. In the round that counts records, their total is unknown, so
there is no decision about the rules on the total.

Under differential privacy the second step does not take place, and the rules marked "noised" apply
in the first step. Every decision is then a function of public facts: of the job, of the policy, and
of the total number of records, which was released with noise that the budget has paid for. A
refusal therefore reveals nothing about the records. A rule on the site's own records would reveal
them exactly, and outside the budget. Small counts and dominant records need no rule there, because
noise hides every single record.

Without noise, if the job names a column of persons, every number of records in the table is a
number of persons (`secagg.privacy.policy.record_rules`), at the site and over all sites. A person
with records at several sites counts at each of them, because nobody can know that it is one person.

The number of parameters is that of the largest statistical model that the released sums determine,
whichever analysis the job requests. With the moments of v variables, this is a regression of one
variable on all others. It has v + 1 parameters: intercept, v - 1 slopes and residual variance. With
logistic regression, it is the number of coefficients. In general, the triangle of a p x p matrix
counts as p parameters, and if a sum has no such matrix, all its numbers count. Sums that are
functions of moments have at most the v + 1 parameters of the moments of the job's columns.

Not protected:

* Without noise, both a refusal and a consent reveal something about the records. They do not reveal
  which rule on records decided. The rules `refusals` and `unreleased` limit how often this happens.
* Under differential privacy, a site with few records takes part if the noised total is large
  enough.
* The rules count and compare. They do not limit what someone learns who knows the other records.
  Only noise limits this.
* The rules do not look at cross tables of variables, products of columns, or columns with both
  positive and negative values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from secagg.contracts import Kind, Stage
from secagg.contracts.noise import Adjacency, Placement
from secagg.errors import PolicyRefusal
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.ledger.records import Decision
from secagg.privacy.policy.advice import ADVICE
from secagg.privacy.policy.differencing import exposed
from secagg.privacy.policy.exact_numbers import NO_NUMBERS, PlannedNumbers
from secagg.privacy.policy.noise_rules import on_noise
from secagg.privacy.policy.questions import Declarations, Question, conflict
from secagg.privacy.policy.site_policy import ANY_PROTOCOL, SitePolicy


@dataclass(frozen=True, kw_only=True)
class PolicyRequest:
    """The facts, all public, on which a site decides whether to answer a coordinator's request.

    site: the site that decides
    coordinator_key: the coordinator's public key, 32 bytes, from the roster
    columns: how the job declares its columns
    parameters: number of parameters of the model, as the module's text says
    cohort: names of the sites of the requested sum
    earlier: the cohorts of all earlier releases of this data set, from the ledger
    total_records: number of records of the cohort; None if unknown
    same_sites: whether all earlier releases must have the same cohort, because the job analyses a
        column that some sites lack: a difference may cover several sites of which one has it
    counting: whether this is the round that counts records
    terms: the guarantee of the whole job; None without noise
    refusals: number of exact jobs that were refused in the policy's period because of the records
    unreleased: number of other exact jobs in this period that were answered and released nothing
    min_cell_records, min_level_sites: of the job's release rules
    few_records, few_sites: the numbers on which a sum may depend alone (`secagg.contracts.Stage`)
    question: what an exact job asks of the records; None with noise
    asked: the questions of all earlier exact releases of this data set, from the ledger
    person: the column that names persons, by the job; None if it names none
    chosen_weights: why messages can choose which records weigh most in a sum; "" if they cannot
    numbers: the exact numbers that the job releases beyond moments
    released_numbers: those that rounds of other jobs have released, from the ledger
    """

    site: str
    coordinator_key: bytes
    method: str
    columns: Declarations
    protocol: str
    parameters: int
    cohort: tuple[str, ...]
    earlier: tuple[frozenset[str], ...] = ()
    counting: bool
    total_records: int | None = None
    terms: Terms | None = None
    refusals: int = 0
    unreleased: int = 0
    min_cell_records: int = 0
    min_level_sites: int = 0
    same_sites: bool = False
    few_records: int = 0
    few_sites: int = 0
    question: Question | None = None
    asked: tuple[Question, ...] = ()
    person: str | None = None
    chosen_weights: str = ""
    numbers: PlannedNumbers = NO_NUMBERS
    released_numbers: int = 0

    @property
    def delta(self) -> float:
        """Delta of the whole job; 0 without noise."""
        return 0.0 if self.terms is None else self.terms.delta

    @property
    def adjacency(self) -> Adjacency | None:
        """The job's adjacency; None without noise."""
        return None if self.terms is None else self.terms.adjacency


def parameters(stages: Iterable[Stage]) -> int:
    """Return the number of parameters of the largest model that the sums of these stages determine.

    The module's text gives the rule.
    """
    largest = 0
    for stage in stages:
        # the triangle of a p x p matrix has p (p + 1) / 2 numbers
        sides = [(math.isqrt(8 * f.size + 1) - 1) // 2 for f in stage.spec if f.kind is Kind.PSD]
        largest = max(largest, max(sides, default=sum(field.size for field in stage.spec)))
    return largest


def before_data(policy: SitePolicy, request: PolicyRequest) -> tuple[Decision, ...]:
    """Return the decisions of all rules that need public facts only."""
    return (
        *_check_cohort(policy, request),
        *_check_lists(policy, request),
        *on_noise(policy, request.terms, exact=request.question is not None),
        *_check_question(policy, request),
        *_check_total(policy, request),
    )


def on_cohorts(
    policy: SitePolicy, earlier: Sequence[frozenset[str]], cohort: Sequence[str],
    *, same_sites: bool = False,
) -> tuple[Decision, ...]:  # fmt: skip
    """Return the decision of the rule on cohorts.

    This rule is checked again when the final cohort is known, because the first sum of a run may
    cover fewer sites than were invited.
    """
    sites = frozenset(cohort)
    if same_sites and not {*earlier} <= {sites}:
        text = "an earlier release had other sites, and this job has a column that some sites lack"
        return (Decision("cohorts", False, text),)
    if policy.cohorts == "fixed":
        known = not earlier or sites in earlier
        text = "the sites of an earlier release" if known else "not the sites of an earlier release"
        return (Decision("cohorts", known, text if earlier else "the first release"),)
    if policy.min_sites is None:
        return (Decision("cohorts", False, "min_sites is not set"),)
    exposure = exposed(earlier, sites, policy.min_sites)
    text = "no group of sites is exposed" if exposure is None else exposure.line()
    return (Decision("cohorts", exposure is None, text),)


def enforce(who: str, decisions: Sequence[Decision]) -> None:
    """Raise `PolicyRefusal` for the first decision that forbids the release, if there is any.

    The text of the error stays at the site. who: name of the site
    """
    for decision in decisions:
        if not decision.allowed:
            advice = "Ask the policy's owner; the site's ledger holds all decisions."
            advice = ADVICE.get(decision.rule, advice)
            raise PolicyRefusal(who, f"release rule {decision.rule}: {decision.text}", advice)


# --- rules on public facts -----------------------------------------------------------------------


def _check_cohort(policy: SitePolicy, request: PolicyRequest) -> Iterable[Decision]:
    cohort, total = request.cohort, request.total_records
    if policy.min_sites is None:
        yield Decision("min_sites", False, "is not set")
    else:
        text = f"{len(cohort)} sites, {policy.min_sites} needed"
        valid = request.site in cohort and len(set(cohort)) == len(cohort)
        text += "" if valid else "; a site is counted twice, or this one is not counted"
        yield Decision("min_sites", valid and len(cohort) >= policy.min_sites, text)
    if policy.min_records is None:
        yield Decision("min_records", False, "is not set")
    if not request.counting:
        implied = (policy.min_sites or 0) * (policy.min_records or 0)
        yield _at_least("min_total_records", total, max(policy.min_total_records or 0, implied), 0)
        if policy.min_residual_dof is not None:
            yield _at_least("min_residual_dof", total, policy.min_residual_dof, request.parameters)
    yield from on_cohorts(policy, request.earlier, cohort, same_sites=request.same_sites)


def _at_least(rule: str, total: int | None, minimum: int, parameters: int) -> Decision:
    if total is None:
        return Decision(rule, False, "the total number of records is unknown")
    minus = f" minus {parameters} parameters" if parameters else ""
    text = f"{total} records in total{minus}, {minimum} needed"
    return Decision(rule, total - parameters >= minimum, text)


def _check_lists(policy: SitePolicy, request: PolicyRequest) -> Iterable[Decision]:
    for rule, allowed, names in (
        ("methods", policy.methods, (request.method,)),
        ("columns", policy.columns, tuple(request.columns)),
    ):
        if allowed is not None:
            others = [name for name in names if name not in allowed]
            text = f"{others[0]!r} is not listed" if others else "all listed"
            if rule == "columns" and not others:
                others = [
                    n for n, declared in request.columns.items() if policy.forbids(n, declared)
                ]
                text = f"{others[0]!r} is listed with another declaration" if others else text
            yield Decision(rule, not others, text)
    yield from _check_person(policy, request)
    exact = request.terms is None
    if policy.is_own and policy.methods is None and exact and request.chosen_weights:
        text = f"without noise, the policy must name {request.method!r}. {request.chosen_weights}"
        yield Decision("methods", False, text)
    yield from _check_protocol(policy, request)
    if policy.keys is not None:
        key = request.coordinator_key.hex()
        listed = key in policy.keys.coordinators
        yield Decision("keys.coordinators", listed, f"{key} is {'' if listed else 'not '}listed")


def _check_person(policy: SitePolicy, request: PolicyRequest) -> Iterable[Decision]:
    terms = request.terms
    person = request.person if terms is None else terms.person
    if policy.person is None and (terms is None or not terms.pinned):
        return
    job, own = (
        "no column" if name is None else f"column {name!r}" for name in (person, policy.person)
    )
    text = f"the job names persons by {job}, the policy by {own}"
    yield Decision("person", person == policy.person, text)


def _check_protocol(policy: SitePolicy, request: PolicyRequest) -> Iterable[Decision]:
    allowed, name = policy.protocols, request.protocol
    if allowed is None:
        own_noise = request.terms is not None and request.terms.placement is Placement.SITE
        if name == "plain" and not own_noise:
            text = "'plain' shows the coordinator this site's own numbers, and is not listed"
            yield Decision("protocols", False, text)
    elif ANY_PROTOCOL not in allowed:
        listed = name in allowed
        yield Decision("protocols", listed, "all listed" if listed else f"{name!r} is not listed")


def _check_question(policy: SitePolicy, request: PolicyRequest) -> Iterable[Decision]:
    """Decide on what an exact job asks of the records."""
    question, limit = request.question, policy.max_refusals
    if question is None:
        return
    times = f"{request.refusals} exact jobs were refused because of the records"
    text = f"in the last {policy.refusal_days:g} days, {times}; at {limit}, all are refused"
    yield Decision("refusals", request.refusals < limit, text)
    limit, times = policy.max_unreleased, f"{request.unreleased} other exact jobs released nothing"
    text = f"in the last {policy.refusal_days:g} days, {times}; at {limit}, all others are refused"
    yield Decision("unreleased", request.unreleased < limit, text)
    reason = conflict(request.asked, question)
    text = f"no conflict with {len(request.asked)} earlier exact releases"
    yield Decision("questions", reason is None, reason or text)
    levels = {name: len(declared.get("levels", ())) for name, declared in question.columns.items()}
    many = [f"{name!r} has {count}" for name, count in levels.items() if count > policy.max_levels]
    text = f"{', '.join(many) or 'no column has more'}; at most {policy.max_levels} levels allowed"
    yield Decision("max_levels", not many, text)
    for rule, own, needed in (
        ("min_cell_records", request.min_cell_records, policy.smallest_cell),
        ("min_level_sites", request.min_level_sites, policy.fewest_level_sites),
    ):
        yield Decision(rule, own >= needed, f"the job's is {own}, {needed} needed")
    for rule, own, needed, what in (
        ("batch", request.few_records, policy.smallest_cell, "records of one batch"),
        ("participation", request.few_sites, policy.fewest_level_sites, "sites in one round"),
    ):
        if own:
            text = f"a sum may depend on {own} {what} alone, {needed} needed"
            yield Decision(rule, own >= needed, text)


def _check_total(policy: SitePolicy, request: PolicyRequest) -> Iterable[Decision]:
    """Decide by the total number of records, if it was released with noise."""
    total = request.total_records
    if request.terms is None or total is None:
        return
    delta = request.terms.delta
    yield Decision("delta", delta * total < 1, f"delta {delta:g} for about {total} records")
    if policy.max_parameters_ratio is not None:
        ratio, share = policy.max_parameters_ratio, total / max(len(request.cohort), 1)
        text = f"{request.parameters} parameters for about {share:.0f} records per site"
        allowed = request.parameters <= ratio * share
        yield Decision("max_parameters_ratio", allowed, f"{text}; at most {ratio:g} per record")
