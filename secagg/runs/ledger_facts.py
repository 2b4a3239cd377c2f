"""What ledgers and policies say when a run ends, as plain data for run.json.

The coordinator knows its own ledger, and what each site has signed. A site's data set, rules and
ledger are private to the site. They are read only if all parties run in one process, whose user has
every site's files anyway. The seeds of the noise are never included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from secagg.contracts.noise import Adjacency
from secagg.jobs.data_sources import SiteSource, as_policy
from secagg.privacy.accounting.composition import Cost, spent_epsilon
from secagg.privacy.ledger.ledger import Ledger
from secagg.privacy.ledger.store import Line
from secagg.privacy.policy.site_policy import policy_of
from secagg.runs.budgets import cap_status
from secagg.sessions.planned_job import Planned
from secagg.sessions.session_ledgers import open_ledger


def spent_budget(ledger: Ledger, dataset: str, session: str, delta: float | None) -> dict[str, Any]:
    """Return the budget of a data set spent before a session and after it, by this ledger.

    delta: of the session's job, for epsilon; None without noise, then there is no epsilon

    Epsilon covers all entries, from all coordinators: each is the line that
    `Ledger.record_release` wrote for one release. It ignores that the noise is discrete: each job
    pays for that itself, with less than a thousandth of its delta.
    """
    history = ledger.history(dataset)
    entries = [line for line in history if line.kind == "entry"]
    earlier = [line for line in entries if line.session != session]
    spent: dict[str, Any] = {
        "runs": len({line.session for line in history if line.kind in ("entry", "use")}),
        "releases": len(entries),
        "repeated": repeated(ledger, dataset, session),
    }
    if delta is None:
        return spent
    return spent | {
        "delta": delta,
        "before": _total_epsilon(earlier, delta),
        "after": _total_epsilon(entries, delta),
    }


def _total_epsilon(entries: Iterable[Line], delta: float) -> dict[str, float]:
    costs = Counter(Cost.of(line.content["cost"]) for line in entries)
    return {adjacency.value: spent_epsilon(costs, adjacency, delta) for adjacency in Adjacency}


def repeated(ledger: Ledger, dataset: str, session: str) -> list[dict[str, Any]]:
    """Return the releases of a session that repeat one of an earlier session, with the same noise.

    They reveal nothing new, so they cost nothing. Retries within the session do not count.
    """
    history = ledger.history(dataset)
    entries = {line.seq: line for line in history if line.kind == "entry"}
    uses = {
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
        for line, first in uses.values()
        if first.session != session
    ]


def of_sites(planned: Planned, session: str) -> list[dict[str, Any]]:
    """Return each site's data set, its own rules if it has any, and the state of its ledger."""
    return [
        {
            "name": source.name,
            "dataset": source.dataset,
            "rules": own_rules(planned, source),
            **_from_ledger(planned, source, session),
        }
        for source in planned.sources.values()
    ]


def own_rules(planned: Planned, source: SiteSource) -> dict[str, Any] | None:
    """Return a site's rules, including the job's release rules; None if it has only these."""
    if source.policy == policy_of(as_policy(planned.job.release)):
        return None
    return source.policy.model_dump(mode="json", exclude_defaults=True)


def _from_ledger(planned: Planned, source: SiteSource, session: str) -> dict[str, Any]:
    if source.ledger is None or not source.ledger.exists():
        return {"spent": None, "caps": []}
    with closing(open_ledger(source.ledger)) as ledger:
        caps = [
            cap_status(cap, ledger, source.dataset)
            for cap in (*ledger.caps(source.dataset), *source.caps)
        ]
        return {
            "spent": spent_budget(ledger, source.dataset, session, planned.job.privacy.delta),
            "caps": [{"words": cap["words"], "left": cap["left"]} for cap in caps],
        }
