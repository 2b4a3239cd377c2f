"""What a planned job would add to what the ledgers have spent, and its owners' caps.

The costs are those of all sites taking part in all rounds. As in `secagg budget`, epsilon ignores
that the noise is discrete: each job pays for that itself, with less than a thousandth of its delta.
A ledger counts each job in its own unit (records, events or persons).

==============================================  ====================================================
case                                            result
==============================================  ====================================================
no ledger yet, but a place for one              nothing is spent before
no permanent ledger (records in memory)         no row: nothing adds up over jobs
an exact release in the ledger                  epsilon is infinite, before and after
the site drew this job's noise before           `repeats`: nothing is added, if no record has
                                                changed since. The numbers are those if one has
placement `site` without noise in moments,      `at_most`: the job may repeat a release, so that
something is spent                              the numbers are the largest possible ones
job without noise                               no row: no epsilon. `plan` warns of exact sums
==============================================  ====================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from secagg.contracts.noise import Placement
from secagg.core.identity import COORDINATOR
from secagg.privacy.accounting.calibration import EXACT
from secagg.privacy.accounting.composition import Cap, Cost, spent_epsilon
from secagg.privacy.ledger.ledger import Ledger
from secagg.runs.budgets import cap_status
from secagg.sessions.parties import open_coordinator_ledger
from secagg.sessions.planned_job import Planned
from secagg.sessions.session_ledgers import ALL_SITES, open_ledger


def planned_totals(planned: Planned, drawn: Sequence[str]) -> list[dict[str, Any]]:
    """Return, for each party, epsilon spent before a job, of the job, and of all after it.

    All are at the job's delta and under its adjacency. drawn: the sites that drew its noise before
    """
    private = planned.private
    if private is None:
        return []
    terms, costs = private.terms, job_costs(planned)
    may_repeat = terms.placement is Placement.SITE and not planned.public.site_moments
    own = spent_epsilon(costs, terms.adjacency, terms.delta)
    known: dict[frozenset[tuple[Cost, int]], tuple[float, float]] = {}  # often equal at all sites
    rows = []
    for party, path, dataset, _, ledger in _ledgers(planned):
        if path is None:
            continue
        spent = ledger.spent(dataset)
        key = frozenset(spent.items())
        if key not in known:
            known[key] = (
                spent_epsilon(spent, terms.adjacency, terms.delta),
                spent_epsilon(spent + costs, terms.adjacency, terms.delta),
            )
        before, after = known[key]
        at_all = set(drawn) == set(planned.public.sites) and bool(spent)
        rows.append({
            "party": party, "dataset": dataset,
            "delta": terms.delta, "adjacency": terms.adjacency.value,
            "before": before, "job": own, "after": after,
            "repeats": at_all if party == COORDINATOR else party in drawn,
            "at_most": may_repeat and bool(spent),
        })  # fmt: skip
    return rows


def planned_caps(planned: Planned) -> list[dict[str, Any]]:
    """Return, for each cap of each party, what is spent, what is left, and what a job would add."""
    costs = job_costs(planned)
    return [
        {"site": party, "dataset": dataset, **cap_status(cap, ledger, dataset, costs)}
        for party, _, dataset, caps, ledger in _ledgers(planned)
        for cap in (*ledger.caps(dataset), *caps)
    ]


def sites_without_budget(planned: Planned) -> list[str]:
    """Return the sites at which nothing limits all jobs with noise together.

    They have no policy file, which would refuse such a job without a budget, and no cap in their
    ledger. Without noise, or without permanent ledgers: none.
    """
    if planned.private is None:
        return []
    limited = {row["site"] for row in planned_caps(planned)}
    return [
        name for name, source in planned.sources.items()
        if source.ledger is not None and not source.policy.is_own and name not in limited
    ]  # fmt: skip


def job_costs(planned: Planned) -> Counter[Cost]:
    """Return how often a job pays each cost; without noise, one exact release."""
    if planned.private is None:
        return Counter([EXACT])
    costs: Counter[Cost] = Counter()
    for mechanism in planned.private.mechanisms.values():
        costs[mechanism.cost()] += mechanism.rounds
    return costs


def _ledgers(
    planned: Planned,
) -> Iterator[tuple[str, Path | None, str, tuple[Cap, ...], Ledger]]:
    """Yield party, path, data set, caps of its policy, and its ledger, open: sites first."""
    places = [(s.name, s.ledger, s.dataset, s.caps) for s in planned.sources.values()]
    of_coordinator = open_coordinator_ledger(planned, b"").path
    for party, path, dataset, caps in (*places, (COORDINATOR, of_coordinator, ALL_SITES, ())):
        exists = path is not None and path.exists()  # a plan creates no file
        with closing(open_ledger(path if exists else None)) as ledger:
            yield party, path, dataset, caps, ledger
