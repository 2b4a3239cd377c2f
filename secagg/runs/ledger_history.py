"""`secagg budget history`: every line of the ledgers, as plain data and in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from secagg.contracts.noise import Adjacency, Placement
from secagg.core.identity import COORDINATOR
from secagg.privacy.accounting.composition import FREE, Cap, Cost, spent_epsilon
from secagg.privacy.ledger.records import VOID
from secagg.privacy.ledger.store import Line
from secagg.runs.budgets import DELTA, exact_releases, opened_ledgers


def history(
    path: Path, party: str | None = None, session: str | None = None, *, refused: bool = False
) -> list[dict[str, Any]]:
    """Return the lines of every ledger, oldest first: entries, re-uses, cohorts, caps, decisions.

    party: only this party's ledger
    session: only sessions whose names start with this
    refused: only decisions that refused something
    """
    rows = [
        {
            "time": line.when.isoformat(timespec="milliseconds"),
            "party": line.content.get("party", place.party), "dataset": dataset,
            "kind": line.kind, "session": line.session, "round": line.round,
            "cost": _cost(line), "text": _words(line), "content": line.content,
        }
        for place, ledger in opened_ledgers(path, party)
        for dataset in ledger.datasets()
        for line in ledger.history(dataset)
        if (session is None or (line.session or "").startswith(session))
        and not (refused and line.content.get("allowed", True))
    ]  # fmt: skip
    return sorted(rows, key=lambda row: str(row["time"]))


def session_totals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return, for each session and party in these rows of `history`, the cost of its releases."""
    paid: dict[tuple[str, str, float], Counter[Cost]] = {}
    for row in rows:
        if row["kind"] == "entry":
            key = row["session"], row["party"], row["cost"]["delta"]
            paid.setdefault(key, Counter())[Cost.of(row["content"]["cost"])] += 1
    return [
        f"session {session[:8]} cost {party} {_epsilons(costs, delta)} "
        f"for {costs.total()} releases together"
        for (session, party, delta), costs in paid.items()
    ]


def _epsilons(costs: Counter[Cost], delta: float) -> str:
    if exact_releases(costs):
        return "no finite epsilon"
    each = (f"{spent_epsilon(costs, kind, delta):.3g} ({kind.value})" for kind in Adjacency)
    return f"epsilon {', '.join(each)} at delta {delta:g}"


def _cost(line: Line) -> dict[str, Any] | None:
    """Return the cost of an entry alone, at its job's delta; None for lines without a cost."""
    if line.kind != "entry":
        return None
    cost, delta = Cost.of(line.content["cost"]), line.content["delta"] or DELTA
    return {"delta": delta} | {
        f"epsilon_{adjacency.value}": spent_epsilon(Counter([cost]), adjacency, delta)
        for adjacency in Adjacency
    }


def _words(line: Line) -> str:
    content = line.content
    match line.kind:
        case "entry" | "use":
            return f"{_repeated(line)}{_released(content)}{_price(line)}"
        case "cohort":
            return f"sum over {', '.join(content['cohort'])}"
        case "decision":
            verdict = "allowed" if content["allowed"] else "REFUSED"
            return f"{verdict}: {content['rule']}: {content['text']}"
        case _:
            return "; ".join(Cap.of(plain).words() for plain in content["caps"]) or "no cap"


def _repeated(line: Line) -> str:
    if line.kind != "use":
        return ""
    return f"repeated{' with the same noise' if line.content['variance'] else ''}, no cost: "


def _released(content: Mapping[str, Any]) -> str:
    cohort = f" of {', '.join(content['cohort'])}" if content["cohort"] else ""
    noise = _noise(content)
    noise += f", {VOID}" if content.get("privacy") == VOID else ""
    return f"{content['stage']}{cohort}, {noise}"


def _noise(content: Mapping[str, Any]) -> str:
    """Return the noise of a release: its own, that of what it was computed from, or none."""
    if content["variance"]:
        return f"noise in the {content['placement']}"
    if not _is_free(content):
        return "exact"
    if content["placement"] != Placement.SITE:
        return "from earlier noisy sums"
    at_site = content["party"] != COORDINATOR
    return "from the site's noisy numbers" if at_site else "from the sites' noisy numbers"


def _is_free(content: Mapping[str, Any]) -> bool:
    """Return whether a release was computed from noisy ones alone, so that it costs nothing."""
    return Cost.of(content["cost"]) == FREE


def _price(line: Line) -> str:
    cost = _cost(line)
    if cost is None:
        return ""
    if math.isinf(cost["epsilon_add_remove"]):
        return ": no finite epsilon"
    if _is_free(line.content):
        return ", no further cost"
    epsilons = ", ".join(f"{cost[f'epsilon_{a.value}']:.3g} ({a.value})" for a in Adjacency)
    return f": epsilon {epsilons} at delta {cost['delta']:g}"
