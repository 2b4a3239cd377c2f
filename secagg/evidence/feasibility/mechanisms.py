"""Which mechanism answers a regression under noise with the least error, before data is read.

Several methods answer the same linear or logistic regression under the same epsilon and delta
(`secagg.jobs.registry.answers`). Each is planned as a job of its own, with the columns, rules,
protocol and protected unit of the job, at each of its placements, and with several limits of
records' norms where it has one. Then all run on the same simulated records
(`secagg.evidence.feasibility.simulated`, which says what the error is).

Several regressions. A method that answers them all by one release (moments) is given the whole
budget; any other pays for each: with m of them, each has mu / root(m), so that all together have
mu (Dong, Roth and Su 2022, corollary 3.3).

Settings are chosen in a first pass of few runs. The table is of further runs, so the choice does
not make the errors look smaller. `if_narrow`, `if_wide`: the error if all columns' standard
deviations are half or twice what the job says.

Not covered: as in `simulated`: columns that are skewed or have effects that are not linear.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from secagg.contracts import AskedRegression
from secagg.errors import UsageError
from secagg.evidence.feasibility.simulated import (
    FIRST_RUNS,
    MOST_REGRESSIONS,
    RUNS,
    SPREAD_RUNS,
    RelativeError,
    Trials,
    rounded,
)
from secagg.evidence.numbers import listing
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import Job, parse_job
from secagg.jobs.privacy import Privacy
from secagg.jobs.registry import answers
from secagg.jobs.typical_ranges import untypical
from secagg.privacy.accounting.composition import rounded_down
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from secagg.privacy.expected_error import percent
from secagg.sessions.planned_job import Planned, plan_sites

_NORMS = (0.6, 0.8, 1.0, 1.4)
"""Limits of records' norms that are tried, relative to the root mean square norm expected."""
_WRONG_GUESSES = 1.5
"""Ways that are equally good bear wrong guesses if these cost at most so many times the least."""


@dataclass(frozen=True)
class Way:
    """A way to answer the regressions: one job for all of them, or one for each.

    method, privacy: the keys of `[method]` (of the first job) and `[privacy]` that it sets
    """

    jobs: tuple[Planned, ...]
    method: dict[str, Any]
    privacy: dict[str, Any]
    own: bool = False

    @property
    def kind(self) -> tuple[str, str]:
        """Method and placement."""
        privacy = self.jobs[0].job.privacy
        return self.jobs[0].method.name, privacy.placement.value

    def same_noise(self, other: Way) -> bool:
        """Whether two jobs of one method shorten records equally and have equal noise."""
        a, b = self.jobs[0].public, other.jobs[0].public
        return self.kind == other.kind and (a.noise, a.clip) == (b.noise, b.clip)


def compared(planned: Planned) -> dict[str, Any] | None:
    """Return a row for each mechanism, the best one and the lines that change the job to it.

    None if there is no other way, or the job does not say how many records there are.
    """
    found = chosen_ways(planned)
    if found is None:
        return None
    trials, ways = found
    errors = [trials.error(way.jobs, RUNS, start=FIRST_RUNS) for way in ways]
    rows = []
    for way, error in zip(ways, errors, strict=True):
        narrow, wide = (
            trials.error(way.jobs, SPREAD_RUNS, start=FIRST_RUNS, spread=spread).error
            for spread in (0.5, 2.0)
        )
        rows.append(_row(way, len(planned.facts.asked), error, narrow, wide))
    return {"rows": rows, **_verdict(ways, errors, rows), "hint": _hint(planned, ways)}


def chosen_ways(planned: Planned) -> tuple[Trials, list[Way]] | None:
    """Return the job's own way and the best of each other method and placement; None as above."""
    records, asked = planned.job.privacy.expected_records, planned.facts.asked
    if records is None or not asked:
        return None
    ways = _ways(planned, asked)
    trials = Trials(planned, asked[:MOST_REGRESSIONS], records)
    chosen = [ways[0]]
    for kind in dict.fromkeys(way.kind for way in ways[1:]):
        group = [way for way in ways[1:] if way.kind == kind]
        first = [trials.error(way.jobs, FIRST_RUNS).error for way in group]
        best = group[int(np.argmin(first))]
        if not best.same_noise(ways[0]):
            chosen.append(best)
    return (trials, chosen) if len(chosen) > 1 else None


# --- the ways ------------------------------------------------------------------------------------


def _ways(planned: Planned, asked: Sequence[AskedRegression]) -> list[Way]:
    """Return the job itself, and every other way that can be planned."""
    own = Way((planned,), {}, {}, own=True)
    job = planned.job
    base = public_facts(job.model_copy(update={"privacy": Privacy()}), planned.public.sites)
    size = math.sqrt(sum(v.typical_centre**2 + v.typical_spread**2 for v in base.variables))
    norms: list[float | None] = [None, *(float(f"{share * size:.2g}") for share in _NORMS)]
    found = [own]
    for name, jobs, placement in answers(asked):
        for norm in norms:
            privacy = {"placement": placement.value, "record_norm": norm, "person_norm": None}
            try:
                plans = tuple(
                    _plan(planned, {"name": name, **settings}, privacy, len(jobs))
                    for settings in jobs
                )
            except UsageError:  # such as a limit of norms where a method weighs records itself
                continue
            found.append(Way(plans, {"name": name, **jobs[0]}, privacy))
    return found


def _plan(
    planned: Planned, method: Mapping[str, Any], privacy: Mapping[str, Any], jobs: int
) -> Planned:
    raw = planned.job.model_dump(mode="json", exclude={"simulation", "engine"})
    raw["method"], raw["privacy"] = dict(method), {**raw["privacy"], **privacy}
    raw["privacy"]["epsilon"] = _epsilon_of_each(planned.job, jobs)
    return plan_sites(parse_job(raw), planned.public.sites, {})


def _epsilon_of_each(job: Job, jobs: int) -> float:
    epsilon, delta = job.privacy.epsilon, job.privacy.delta
    assert epsilon is not None and delta is not None
    if jobs == 1:
        return epsilon
    return gaussian_epsilon(gaussian_mu(epsilon, delta) / math.sqrt(jobs), delta)


# --- in words ------------------------------------------------------------------------------------


def _row(
    way: Way, regressions: int, found: RelativeError, narrow: float, wide: float
) -> dict[str, Any]:
    method, placement = way.kind
    privacy = way.jobs[0].job.privacy
    rounds = way.jobs[0].method.__dict__.get("rounds")
    settings = [f"record_norm {privacy.record_norm:g}"] if privacy.record_norm else []
    settings += [f"{rounds} rounds"] if rounds else []
    return {
        "method": method, "placement": placement, "settings": ", ".join(settings),
        "own": way.own, "jobs": len(way.jobs), "regressions": regressions,
        "epsilon": privacy.epsilon,
        "error": rounded(found.error), "monte_carlo": rounded(found.monte_carlo),
        "widened": None if found.widened is None else rounded(max(found.widened, 1.0)),
        "intervals": found.widened is not None,
        "verdict": found.verdict.value,
        "if_narrow": rounded(narrow), "if_wide": rounded(wide),
    }  # fmt: skip


def _hint(planned: Planned, ways: Sequence[Way]) -> str:
    """Return what moments would need to be at its best; "" if nothing, or if it is no way."""
    lacking = untypical(planned.job)
    if not lacking or all(way.kind[0] != "moments" for way in ways):
        return ""
    names = listing([f"`{name}`" for name in lacking])
    one = len(lacking) == 1
    return (
        f"`typical` is not set for {names}, so moments limits records by the bounds of the "
        f"columns. State `typical`, or leave the column{'' if one else 's'} out if no analysis "
        "needs "
        f"{'it' if one else 'them'}: moments then weighs records by typical ranges, and may be "
        "better"
    )


def _verdict(
    ways: Sequence[Way], found: Sequence[RelativeError], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return which way is best, why, and the lines that change the job to it.

    Among ways whose errors cannot be told apart, those with intervals come first, then those that
    bear wrong guesses of spreads, then that of the job. "change" is None if that is best.
    """
    least = min(range(len(ways)), key=lambda i: found[i].error)

    def equal(i: int) -> bool:
        apart = found[i].error - found[least].error
        return apart <= 2 * math.hypot(found[i].monte_carlo, found[least].monte_carlo)

    equals = [i for i in range(len(ways)) if equal(i)]
    with_intervals = [i for i in equals if rows[i]["intervals"]] or equals
    worst = {i: max(rows[i]["error"], rows[i]["if_narrow"], rows[i]["if_wide"]) for i in equals}
    borne = _WRONG_GUESSES * min(worst[i] for i in with_intervals)
    robust = [i for i in with_intervals if worst[i] <= borne]
    best = min(robust, key=lambda i: (not ways[i].own, found[i].error))
    row, own = rows[best], rows[0]
    name = f"{row['method']}, placement {row['placement']}"
    words = f"best: {name}: {percent(row['error'])}"
    if others := [rows[i] for i in equals if i != best]:
        listed = listing([f"{r['method']} ({r['placement']})" for r in others])
        words += f"; its difference from {listed} is within the simulation's error"
        reasons = ["it has intervals"] if len(with_intervals) < len(equals) else []
        if len(robust) < len(with_intervals):
            reasons.append("it is less affected by wrong guesses of standard deviations")
        if best == 0 and len(robust) > 1:
            reasons.append("it needs no change")
        words += f", but {' and '.join(reasons)}" if reasons else ""
    else:
        words += "; it has the least expected error"
    if not row["intervals"]:
        words += "; no way with intervals is as good"
    if row["jobs"] > 1:
        each = f"{row['jobs']} jobs of epsilon {row['epsilon']:.2g} each"
        words += f"; it takes {each}, which together cost epsilon {own['epsilon']:g}"
    if best == 0:
        return {"best": 0, "words": f"{words}. The job takes it", "change": None}
    words += f". The job as it is: {percent(own['error'])}"
    more = len(ways[0].jobs[0].method.tables(ways[0].jobs[0].public)) - row["regressions"]
    if more > 0 and row["method"] != own["method"]:
        words += ". It answers the regressions only, not the job's other analyses"
    return {"best": best, "words": words, "change": _change(ways[0].jobs[0].job, ways[best])}


def _change(job: Job, way: Way) -> list[str]:
    """Return the lines of a job's tables that change."""
    lines, own = list[str](), job.method.model_dump()
    if way.method["name"] != own["name"]:
        own = {}
    tables = {k: v for k, v in way.method.items() if k == "analyses" and not own}
    changed = {k: v for k, v in way.method.items() if own.get(k) != v and k != "analyses"}
    if changed or tables:
        lines += ["[method]", *(f"{k} = {_value(v)}" for k, v in changed.items())]
    for analysis in tables.get("analyses", ()):
        lines += ["[[method.analyses]]", *(f"{k} = {_value(v)}" for k, v in analysis.items())]
    lines.append("[privacy]")
    before, after = job.privacy.model_dump(), way.jobs[0].job.privacy.model_dump()
    for key in ("placement", "epsilon", "record_norm", "person_norm"):
        if after[key] is None and before[key] is not None:
            lines.append(f"# no {key}")
        elif key == "epsilon" and after[key] != before[key]:
            each = rounded_down(after[key])
            lines.append(f"{key} = {each}  # in one job for each outcome, such as the above")
        elif after[key] != before[key]:
            lines.append(f"{key} = {_value(after[key])}")
    return lines


def _value(value: Any) -> str:
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
