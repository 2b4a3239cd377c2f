"""Who would refuse a job, from public facts: rules, ledgers and budgets, before any record is read.

`secagg plan` shows these refusals. A run meets each certain one before it releases a sum. Refusals
that depend on records, or on releases between plan and run, appear only in the run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from secagg.contracts.noise import Placement
from secagg.core.identity import COORDINATOR
from secagg.errors import PolicyRefusal, UsageError
from secagg.jobs.data_sources import SiteSource, as_policy
from secagg.privacy.accounting.calibration import EXACT
from secagg.privacy.accounting.composition import Cap
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.policy.job_rules import PolicyRequest, before_data
from secagg.privacy.policy.release_rules import ReleasePolicy, check_cohort, check_invitation
from secagg.privacy.policy.site_policy import SitePolicy, policy_of
from secagg.runs.checks.earlier_draws import moments_drawn_before, opened
from secagg.sessions.parties import open_coordinator_ledger
from secagg.sessions.planned_job import Planned
from secagg.sessions.rounds import COHORT
from secagg.sessions.session_ledgers import ALL_SITES, open_ledger, request_before_data

_OF_COORDINATOR = ("min_sites", "min_records")
"""Rules of the job that the coordinator checks before the sites do (`check_invitation`)."""


def expected_refusals(planned: Planned, key: bytes | None) -> tuple[list[str], list[str]]:
    """Return the certain refusals, and those that the run may avoid; a line for each.

    With placement `site`, a release costs nothing if it repeats an earlier one with the same
    records, which are not read here. So a refusal for lack of budget is then only possible, unless
    the ledger has no such release.

    key: the coordinator's public key, if it has one
    """
    names, release = planned.public.sites, as_policy(planned.job.release)
    coordinator_ledger = open_coordinator_ledger(planned, b"")
    certain = _refusal(check_invitation, release, COORDINATOR, names, None) or _refusal(
        check_cohort, release, COORDINATOR, names, coordinator_ledger.earlier
    )
    possible: list[str] = []
    drawn = set(moments_drawn_before(planned))
    path = coordinator_ledger.path
    if path is not None and path.exists():
        repeats = _may_repeat(planned, drawn >= set(names))
        with closing(open_ledger(path)) as ledger:
            refused = _refusal(_check_budget, planned, ledger, ALL_SITES)
        (possible if repeats else certain).extend(refused)
    shared = policy_of(release)
    certain += [f"{COORDINATOR}: {why}" for why in _impossible_records(planned, shared, release)]
    for source in planned.sources.values():
        with closing(opened(source)) as ledger:
            name = source.name
            certain += [f"{name}, {why}" for why in _by_policy(planned, source, ledger, key)]
        refused, unless = budget_refusals(planned, source, drawn)
        texts = [f"{name}, by its budget{unless}: {why}" for why in refused]
        (possible if unless else certain).extend(texts)
    return certain, possible


def budget_refusals(
    planned: Planned, source: SiteSource, drawn: Collection[str]
) -> tuple[list[str], str]:
    """Return why a site's budget would not allow the job, and unless when; "" if it is certain.

    drawn: the sites that drew this job's noise before (`moments_drawn_before`)
    """
    caps = source.policy.caps(exact=planned.private is None)
    with closing(opened(source)) as ledger:
        refused = _refusal(_check_budget, planned, ledger, source.dataset, caps)
    if not _may_repeat(planned, source.name in drawn):
        return refused, ""
    if planned.public.site_moments:
        return refused, ", if a record has changed since it drew this job's noise"
    return refused, ", unless this repeats an earlier release"


def _may_repeat(planned: Planned, drawn: bool) -> bool:
    """Whether the noise may be that of an earlier release, which costs nothing."""
    at_site = planned.job.privacy.placement is Placement.SITE
    return at_site and (drawn or not planned.public.site_moments)


def check_ledger_places(planned: Planned) -> None:
    """Check that the ledgers can be created or written, without doing it. Raises `UsageError`."""
    places = [source.ledger for source in planned.sources.values()]
    for file in [*places, open_coordinator_ledger(planned, b"").path]:
        if file is None:
            continue
        near = [path for path in (file, *file.parents[:2]) if os.path.lexists(path)]
        if near and os.access(near[0], os.W_OK) and (near[0] == file or near[0].is_dir()):
            continue
        advice = "Set sites.ledgers to a folder that secagg may write to."
        raise UsageError(str(file.parent), "ledgers cannot be written there", advice)


def _refusal(check: Callable[..., None], *arguments: Any) -> list[str]:
    """Return the line of a check that refuses; an empty list if it passes."""
    try:
        check(*arguments)
    except PolicyRefusal as error:
        return [error.line()]
    return []


def _by_policy(
    planned: Planned, source: SiteSource, ledger: Ledger, key: bytes | None
) -> Iterator[str]:
    job, policy, shared = planned.job, source.policy, policy_of(as_policy(planned.job.release))
    stages = [stage for name, stage in planned.plans.stages.items() if name != COHORT]
    sites = planned.public.sites
    request = request_before_data(
        job, planned.facts, stages, source, ledger, sites, key or b"", planned.private
    )
    decisions = before_data(shared, request)
    by_job = {d.text for d in decisions if not d.allowed and d.rule in _OF_COORDINATOR}
    refusing = {d.rule: d.text for d in before_data(policy, request) if not d.allowed}
    for rule, text in refusing.items():
        if rule == "cohorts":
            if "min_sites" not in refusing:  # otherwise it follows
                yield f"by its ledger: {text}"
        elif rule == "keys.coordinators" and key is None:
            yield "by its rules: keys: it answers only to some coordinators; run with --key"
        elif text not in by_job:  # those are refusals by the coordinator
            yield f"by its rules: {rule}: {text}"
    of_job = set(_impossible_records(planned, shared, shared.release, request))
    for why in _impossible_records(planned, policy, policy.release, request):
        if why not in of_job:
            yield f"by its rules: {why}"


def _impossible_records(
    planned: Planned,
    policy: SitePolicy,
    release: ReleasePolicy,
    request: PolicyRequest | None = None,
) -> Iterator[str]:
    """Yield the rules that no number of records can satisfy.

    Without noise, a site has at most `sites.max_rows` records, and all records may be of one level.
    With noise, the run ends if the noised total is below the minimum, and the rule on delta refuses
    a total of that size and more.

    release: the release rules of a site, or of the coordinator
    request: for rules on parameters and delta, which only a site has
    """
    job, sites = planned.job, len(planned.public.sites)
    if release.min_sites is None or release.min_records is None:
        return
    _, min_records, min_total = release.thresholds(COORDINATOR)
    if job.privacy.placement is not Placement.NONE:
        if request is not None:
            least = replace(request, counting=False, total_records=min_total)
            yield from _refused_by(policy, least, "delta")
        return
    own, all_rows = job.sites.max_rows, sites * job.sites.max_rows
    levels = any(variable.indicator for variable in planned.public.variables)
    needed = [
        ("min_records", min_records, own),
        ("min_total_records", min_total, all_rows),
        ("min_cell_records", release.min_cell_records if levels else None, all_rows),
        ("min_level_records", policy.min_level_records if levels else None, own),
    ]
    if request is not None and policy.max_parameters_ratio is not None:
        least_rows = request.parameters / policy.max_parameters_ratio
        needed.append(("max_parameters_ratio", math.ceil(least_rows), own))
    for rule, least_records, most in needed:
        if least_records is not None and least_records > most:
            where = "a site" if most == own else f"{sites} sites together"
            yield (
                f"{rule}: {least_records} records needed, and with sites.max_rows = {own} "
                f"{where} can have at most {most}"
            )
            return
    if release.min_sites <= sites < (least_sites := release.min_level_sites or 0):
        yield f"min_level_sites: {least_sites} sites needed, and {sites} take part"
        return
    if request is not None:
        full = replace(request, counting=False, total_records=all_rows)
        yield from _refused_by(policy, full, "min_residual_dof")


def _refused_by(policy: SitePolicy, request: PolicyRequest, rule: str) -> Iterator[str]:
    for decision in before_data(policy, request):
        if decision.rule == rule and not decision.allowed:
            yield f"{rule}: {decision.text}"


def _check_budget(planned: Planned, ledger: Ledger, dataset: str, caps: Sequence[Cap] = ()) -> None:
    """Check the cost of the whole run against the caps. Raises `PolicyRefusal`."""
    private = planned.private
    mechanisms = [] if private is None else private.mechanisms.values()
    costs = [m.cost() for m in mechanisms for _ in range(m.rounds)] or [EXACT]
    adjacency = None if private is None else private.terms.adjacency
    ledger.check_costs(dataset, costs, caps, planned.job.privacy.delta or 0.0, adjacency)
