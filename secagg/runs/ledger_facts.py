"""What ledgers and policies say when a run ends, as plain data for run.json.

The coordinator knows its own ledger, and of a site what that site signed. A site's data set, rules
and ledger are its own affair: they are read only where all parties were played in one process,
whose user has every site's files anyway. No seed of any noise is ever among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from secagg.contracts.noise import Adjacency
from secagg.jobs.data_sources import SiteSource, as_policy
from secagg.privacy.accounting.budget import Cap, Cost, affordable, spent_epsilon
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.store import Line
from secagg.privacy.policy.site_policy import policy_of
from secagg.runtime.planned_job import Planned
from secagg.runtime.session_ledgers import open_ledger


def spent_budget(ledger: Ledger, dataset: str, session: str, delta: float | None) -> dict[str, Any]:
    """Return what a data set has given away, by this ledger: before a session, and with it.

    delta: of the session's job, at which epsilon is told; None without noise, then it is not

    Epsilon adds up all that was entered, whoever asked. It leaves out that the noise is discrete,
    which each job pays for itself: of delta, less than a thousandth.
    """
    history = ledger.history(dataset)
    entries = [line for line in history if line.kind == "entry"]
    earlier = [line for line in entries if line.session != session]
    told: dict[str, Any] = {
        "runs": len({line.session for line in history if line.kind in ("entry", "use")}),
        "releases": len(entries),
        "repeated": repeated(ledger, dataset, session),
    }
    if delta is None:
        return told
    return told | {
        "delta": delta,
        "before": _together(earlier, delta),
        "after": _together(entries, delta),
    }


def _together(entries: Iterable[Line], delta: float) -> dict[str, float]:
    costs = Counter(Cost.of(line.content["cost"]) for line in entries)
    return {adjacency.value: spent_epsilon(costs, adjacency, delta) for adjacency in Adjacency}


def repeated(ledger: Ledger, dataset: str, session: str) -> list[dict[str, Any]]:
    """Return the releases of a session that an earlier session had made, with the same noise.

    A retry within the session is none. Whoever has the earlier release learns nothing from it, so
    it cost nothing more.
    """
    history = ledger.history(dataset)
    entries = {line.seq: line for line in history if line.kind == "entry"}
    again = {
        line.round: (line, entries[line.belongs])
        for line in history
        if line.kind == "use" and line.session == session and line.belongs in entries
    }
    return [
        {
            "round": line.round,
            "stage": line.content["stage"],
            "session": first.session,
            "time": first.when.isoformat(),
        }
        for line, first in again.values()
        if first.session != session
    ]


def of_sites(planned: Planned, session: str) -> list[dict[str, Any]]:
    """Return each site's data set, its own rules if it has any, and what its ledger says."""
    return [
        {
            "name": source.name,
            "dataset": source.dataset,
            "rules": _own_rules(planned, source),
            **_by_its_ledger(planned, source, session),
        }
        for source in planned.sources.values()
    ]


def _own_rules(planned: Planned, source: SiteSource) -> dict[str, Any] | None:
    """Return a site's rules, the job's counting rules among them; None if it has only these."""
    if source.policy == policy_of(as_policy(planned.job.release)):
        return None
    return source.policy.model_dump(mode="json", exclude_defaults=True)


def _by_its_ledger(planned: Planned, source: SiteSource, session: str) -> dict[str, Any]:
    if source.ledger is None or not source.ledger.exists():
        return {"spent": None, "caps": []}
    budget = source.policy.budget
    own = () if budget is None else budget.caps
    with closing(open_ledger(source.ledger)) as ledger:
        caps = (*ledger.caps(source.dataset), *own)
        return {
            "spent": spent_budget(ledger, source.dataset, session, planned.job.privacy.delta),
            "caps": [_left(cap, ledger, source.dataset) for cap in caps],
        }


def _left(cap: Cap, ledger: Ledger, dataset: str) -> dict[str, Any]:
    """Return a cap in words, and the epsilon that one more job may claim under it now."""
    since = None if cap.days is None else datetime.now(UTC) - timedelta(days=cap.days)
    costs = ledger.spent(dataset, since)
    return {"words": cap.words(), "left": affordable(cap, costs, 0.0, cap.delta)}
