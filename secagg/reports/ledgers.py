"""What ledgers say, in a report: what this run cost, what it repeated, what all runs cost together.

The facts are those of `secagg.runs.ledger_facts`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from secagg.reports.numbers import (
    ADJACENCIES,
    any_setting,
    count,
    counted,
    fixed,
    flat,
    listing,
    moment,
    probability,
    significant,
)

Facts = Mapping[str, Any]
NO_BOUND = "no bound: exact sums are among them"


@dataclass(frozen=True)
class LedgerClaims:
    """What ledgers say of a run and of all runs on its records, evaluated once.

    kept: ledgers outlive the run, so that releases of many runs are added up; standing: how
    repeated: by round, the releases that an earlier session had made with the same noise
    repeats: the same in a sentence; empty if there is none
    exact: how many exact sums the coordinator's ledger holds
    exact_at: sites whose own ledgers, where they are known, hold exact sums of earlier runs
    adds_up: what all runs on these records cost together, as far as is known; together: the same
        for the first page. These three are empty if this run has no noise
    """

    kept: bool
    standing: str
    repeated: Mapping[int, Mapping[str, Any]]
    repeats: str
    exact: int
    exact_at: tuple[str, ...] = ()
    adds_up: str = ""
    together: str = ""

    @classmethod
    def of(cls, facts: Facts) -> Self:
        """Evaluate the facts of a run."""
        kept, standing = _standing(facts.get("ledger"))
        repeated = {again["round"]: again for again in _spent(facts).get("repeated", ())}
        repeats = _repeats(list(repeated.values()), len(facts["releases"]))
        exact = int(((facts.get("ledger") or {}).get("coordinator") or {}).get("exact") or 0)
        claims = cls(kept, standing, repeated, repeats, exact)
        if facts["privacy"] is None:
            return claims
        return replace(
            claims,
            exact_at=_exact_at(facts),
            adds_up=_adds_up(facts, kept, standing),
            together=_together(facts),
        )


def _standing(ledger: Mapping[str, Any] | None) -> tuple[bool, str]:
    if ledger is None:
        return False, "There is no word of a ledger that outlives this run."
    if not ledger["kept"]:
        return False, "No ledger of this run outlives it."
    text = "Each release is in ledgers that outlive the run: each site's own, and the coordinator's"
    standing = ledger.get("coordinator") or {}
    if "releases" not in standing:
        return True, f"{text}."
    exact = f", {count(standing['exact'])} of them exact" if standing.get("exact") else ""
    return True, f"{text}, which holds {counted(standing['releases'], 'release')}{exact}."


def _exact_at(facts: Facts) -> tuple[str, ...]:
    kept = {site["name"]: site["spent"] for site in facts["sites"] or () if site["spent"]}
    return tuple(name for name, spent in kept.items() if _unbounded(spent["before"]))


def _unbounded(spent: Mapping[str, float | None]) -> bool:
    return any(epsilon is None or math.isinf(epsilon) for epsilon in spent.values())


def _spent(facts: Facts) -> Mapping[str, Any]:
    return (facts.get("ledger") or {}).get("spent") or {}


def _repeats(again: Sequence[Mapping[str, Any]], made: int) -> str:
    if not again:
        return ""
    which = f"{len(again)} of the {made} releases repeat"
    if len(again) == made:
        which = "Both releases repeat" if made == 2 else f"All {made} releases repeat"
    sessions = {one["session"]: one["time"] for one in again}
    named = [f"{session[:8]} ({moment(time)})" for session, time in sessions.items()]
    what = "it costs" if len(again) == 1 else "they cost"
    return (
        f"{which} what was released in session {listing(named)}, with the same noise: {what} "
        "nothing more."
    )


def _adds_up(facts: Facts, kept: bool, standing: str) -> str:
    spent = _spent(facts)
    if not kept:
        return f"This one only. {standing} What other runs released of these records comes on top."
    beyond = "It knows of nothing that was released under another ledger or by other software."
    if "after" not in spent:
        return f"This one only; others come on top. {standing} {beyond}"
    adjacency = facts["privacy"]["adjacency"]
    total = spent["after"][adjacency]
    runs = counted(spent["runs"], "run")
    if total is None or math.isinf(total):
        return (
            f"This one only: by the coordinator's ledger exact sums of these records were "
            f"released, and no ε bounds the {runs} together. {beyond}"
        )
    return (
        f"This one. By the coordinator's ledger {runs} on these records, this one included, cost "
        f"{_size(total, spent['delta'])} together. {beyond}"
    )


def _together(facts: Facts) -> str:
    spent = _spent(facts)
    if "after" not in spent:
        return "In ledgers that outlive the run."
    total = _size(spent["after"][facts["privacy"]["adjacency"]], spent["delta"])
    return f"In ledgers that outlive the run: {counted(spent['runs'], 'run')}, {total} together."


def _size(epsilon: float | None, delta: float) -> str:
    if epsilon is None or math.isinf(epsilon):
        return NO_BOUND
    return f"ε {significant(epsilon)} at δ {probability(delta)}"


def totals(facts: Facts) -> list[tuple[str, str, str]]:
    """Return what the coordinator's ledger adds up to: (what, before this run, with it)."""
    spent = _spent(facts)
    if "after" not in spent:
        return []
    unit = "unit" if facts["privacy"] is None else facts["privacy"]["unit"]
    return [
        (
            words.format(unit),
            _size(spent["before"][adjacency], spent["delta"]),
            _size(spent["after"][adjacency], spent["delta"]),
        )
        for adjacency, words in ADJACENCIES.items()
    ]


def caps(facts: Facts) -> list[tuple[str, str]]:
    """Return the caps of the coordinator's ledger, and what is left under each."""
    standing: Mapping[str, Any] = (facts.get("ledger") or {}).get("coordinator") or {}
    return [_cap(cap) for cap in standing.get("caps", ())]


def _cap(cap: Mapping[str, Any]) -> tuple[str, str]:
    return f"Cap: {cap['words']}", f"left: ε {_downwards(cap['left'])}"


def _downwards(epsilon: float | None) -> str:
    """Write an epsilon with three digits, rounded down: what is written is there to be had."""
    if not epsilon:
        return "0"
    decimals = max(2 - math.floor(math.log10(epsilon)), 0)
    return fixed(math.floor(epsilon * 10**decimals) / 10**decimals, decimals)


def sites(facts: Facts) -> list[dict[str, Any]]:
    """Return each site's data set, rules and ledger, written; empty where they are not known."""
    return [
        {
            "name": site["name"],
            "dataset": site["dataset"],
            "rules": _rules(site["rules"]),
            "released": _released(site["spent"]),
            "cost": _cost(site["spent"], facts),
            "caps": [_cap(cap) for cap in site["caps"]],
        }
        for site in facts["sites"] or ()
    ]


def counting(facts: Facts) -> str:
    """Return why a site's ledger has fewer entries than sums were opened, where that is so."""
    most = max(Counter(release["stage"] for release in facts["releases"]).values())
    if facts["privacy"] is not None or most == 1 or not (facts.get("ledger") or {}).get("kept"):
        return ""
    return (
        "Without noise it has one entry for each stage of a run, however many rounds: the first "
        f"exact sum spends all there is. The {counted(len(facts['releases']), 'sum')} of this run "
        "are in the coordinator's ledger one by one. "
    )


def _rules(rules: Mapping[str, Any] | None) -> str:
    if rules is None:
        return "none of its own: the job's"
    return "; ".join(f"{name} {any_setting(value)}" for name, value in flat(rules))


def _released(spent: Mapping[str, Any] | None) -> str:
    if spent is None:
        return "no ledger"
    text = f"{counted(spent['releases'], 'release')} in {counted(spent['runs'], 'run')}"
    repeated: Sequence[Any] = spent["repeated"]
    return f"{text}; this run repeated {count(len(repeated))}" if repeated else text


def _cost(spent: Mapping[str, Any] | None, facts: Facts) -> str:
    """Return epsilon over all runs, under the adjacency of this one."""
    if spent is None:
        return "–"
    if facts["privacy"] is None:
        return NO_BOUND
    return _size(spent["after"][facts["privacy"]["adjacency"]], spent["delta"])
