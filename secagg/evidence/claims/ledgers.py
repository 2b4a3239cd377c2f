"""The ledgers in a report: the cost of this run, repeated releases, the cost of all runs together.

The facts come from `secagg.runs.ledger_facts`, which computes epsilon from the lines of a ledger
when the run ends (the coordinator calls it from `secagg.runs.facts`). So "Which runs it covers"
(`LedgerClaims.adds_up`) and the totals rest on ledger lines. "How strong it is" and the claim in
one sentence have the job's epsilon, which no ledger changes (`secagg.evidence.claims.guarantee`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from secagg.evidence.numbers import (
    ADJACENCIES,
    any_setting,
    count,
    counted,
    flat,
    listing,
    moment,
    probability,
    significant,
    typeset,
)
from secagg.privacy.accounting.composition import rounded_down

Facts = Mapping[str, Any]
NOT_IN_LEDGERS = (
    "Ledgers do not contain releases under another ledger, under another name of the same records, "
    "or by other software"
)
NO_BOUND = "no bound, because some sums are exact"


@dataclass(frozen=True)
class LedgerClaims:
    """What ledgers say about a run and about all runs on its records, evaluated once.

    kept: ledgers outlive the run, so they add up the releases of many runs; standing: in words
    repeated: by round, the releases that an earlier session made with the same noise
    repeats: the same in a sentence; empty if there is none
    exact: number of exact sums in the coordinator's ledger
    exact_at: sites whose own ledgers, if known, contain exact sums of earlier runs
    adds_up: known cost of all runs on these records; together: the same for the first page. These
        three are empty if this run has no noise
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
        if _free(facts) and len(repeated) < len(facts["releases"]):
            repeats = (
                "Every site used noise that it had added before, for an earlier job. So this run "
                "cost no privacy budget."
            )
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
        return False, "This run does not mention a permanent ledger."
    if not ledger["kept"]:
        return False, "This run has no permanent ledger."
    text = "Each release is in permanent ledgers: each site's own, and the coordinator's"
    standing = ledger.get("coordinator") or {}
    if "releases" not in standing:
        return True, f"{text}."
    exact = f", {count(standing['exact'])} of them exact" if standing.get("exact") else ""
    return True, f"{text}, which contains {counted(standing['releases'], 'release')}{exact}."


def _exact_at(facts: Facts) -> tuple[str, ...]:
    ledgers = {site["name"]: site["spent"] for site in facts["sites"] or () if site["spent"]}
    return tuple(name for name, spent in ledgers.items() if _unbounded(spent["before"]))


def _unbounded(spent: Mapping[str, float | None]) -> bool:
    return any(epsilon is None or math.isinf(epsilon) for epsilon in spent.values())


def _free(facts: Facts) -> bool:
    """Return whether a run with noise left what every site had spent before as it was."""
    spent = [site["spent"] for site in facts["sites"] or ()]
    known = facts["privacy"] is not None and bool(spent) and all(spent)
    return known and all(
        each["before"] == each["after"] and not _unbounded(each["before"]) for each in spent
    )


def _spent(facts: Facts) -> Mapping[str, Any]:
    return (facts.get("ledger") or {}).get("spent") or {}


def _repeats(repeated: Sequence[Mapping[str, Any]], releases: int) -> str:
    if not repeated:
        return ""
    which = f"{len(repeated)} of the {releases} releases repeat"
    if len(repeated) == releases:
        which = "Both releases repeat" if releases == 2 else f"All {releases} releases repeat"
    sessions = {release["session"]: release["time"] for release in repeated}
    names = [f"{session[:8]} ({moment(time)})" for session, time in sessions.items()]
    return (
        f"{which} releases of session {listing(names)} with the same noise, without additional "
        "cost."
    )


def _adds_up(facts: Facts, kept: bool, standing: str) -> str:
    spent = _spent(facts)
    if not kept:
        return f"This run only. {standing} Releases of these records by other runs add to the cost."
    limit = f"{NOT_IN_LEDGERS}."
    if "after" not in spent:
        return f"This run only; other runs add to the cost. {standing} {limit}"
    adjacency = facts["privacy"]["adjacency"]
    total = spent["after"][adjacency]
    runs = counted(spent["runs"], "run")
    when = f" on {moment(facts['finished'])}" if facts.get("finished") else ""
    if total is None or math.isinf(total):
        return (
            f"This run only. The coordinator's ledger{when} contains exact sums of these records, "
            f"so no ε bounds the {runs} together. {limit}"
        )
    return (
        f"This run. According to the coordinator's ledger{when}, {runs} on these records, "
        f"including this one, cost {_epsilon_and_delta(total, spent['delta'])} together. {limit}"
    )


def _together(facts: Facts) -> str:
    spent = _spent(facts)
    if "after" not in spent:
        return "In permanent ledgers."
    total = _epsilon_and_delta(spent["after"][facts["privacy"]["adjacency"]], spent["delta"])
    return f"In permanent ledgers: {counted(spent['runs'], 'run')}, {total} together."


def _epsilon_and_delta(epsilon: float | None, delta: float) -> str:
    if epsilon is None or math.isinf(epsilon):
        return NO_BOUND
    return f"ε {significant(epsilon)} at δ {probability(delta)}"


def totals(facts: Facts) -> list[tuple[str, str, str]]:
    """Return the totals of the coordinator's ledger: (adjacency, before this run, with it)."""
    spent = _spent(facts)
    if "after" not in spent:
        return []
    unit = "unit" if facts["privacy"] is None else facts["privacy"]["unit"]
    return [
        (
            words.format(unit),
            _epsilon_and_delta(spent["before"][adjacency], spent["delta"]),
            _epsilon_and_delta(spent["after"][adjacency], spent["delta"]),
        )
        for adjacency, words in ADJACENCIES.items()
    ]


def caps(facts: Facts) -> list[tuple[str, str]]:
    """Return the caps of the coordinator's ledger, and what is left under each."""
    standing: Mapping[str, Any] = (facts.get("ledger") or {}).get("coordinator") or {}
    return [_cap(cap) for cap in standing.get("caps", ())]


def _cap(cap: Mapping[str, Any]) -> tuple[str, str]:
    return f"Cap: {typeset(cap['words'])}", f"left: ε {rounded_down(cap['left'] or 0.0)}"


def sites(facts: Facts) -> list[dict[str, Any]]:
    """Return each site's data set, rules and ledger in words; empty if they are not known."""
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
    """Return why a ledger has fewer entries than there are opened sums, if it has."""
    max_rounds = max(Counter(release["stage"] for release in facts["releases"]).values())
    kept = (facts.get("ledger") or {}).get("kept")
    if facts["privacy"] is not None or max_rounds == 1 or not kept:
        return ""
    return (
        "Without noise, a ledger has one entry for each stage of a run with any number of rounds, "
        "because the first exact sum uses up any budget. This run opened "
        f"{counted(len(facts['releases']), 'sum')}. "
    )


def _rules(rules: Mapping[str, Any] | None) -> str:
    if rules is None:
        return "the job's rules only"
    return "; ".join(f"{name} {any_setting(value)}" for name, value in flat(rules))


def _released(spent: Mapping[str, Any] | None) -> str:
    if spent is None:
        return "no ledger"
    text = f"{counted(spent['releases'], 'release')} in {counted(spent['runs'], 'run')}"
    repeated: Sequence[Any] = spent["repeated"]
    return f"{text}; this run repeated {count(len(repeated))}" if repeated else text


def _cost(spent: Mapping[str, Any] | None, facts: Facts) -> str:
    """Return epsilon over all runs, under the adjacency of this run."""
    if spent is None:
        return "–"
    if facts["privacy"] is None:
        return NO_BOUND
    return _epsilon_and_delta(spent["after"][facts["privacy"]["adjacency"]], spent["delta"])
