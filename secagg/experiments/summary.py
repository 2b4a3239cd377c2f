"""What an experiment found, as plain data: summary.json, from which the page is drawn."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from typing import Any

from secagg.audits.catalogue import make_attacks
from secagg.core.version import __version__
from secagg.errors import EvidenceError
from secagg.experiments.experiment import EPSILON, TASK, Planned
from secagg.experiments.one_audit import AFTER, ROUNDS
from secagg.experiments.one_run import BASELINES, NO_NOISE
from secagg.experiments.runner.experiment import Done
from secagg.experiments.statistics import (
    CONFIDENCE,
    LEVEL,
    Mean,
    PointResult,
    baselines,
    fewest_runs,
    paired_difference,
    recommendation,
    results,
    smallest,
    without_noise,
)
from secagg.experiments.sweep import Goal
from secagg.jobs.job import load_job

SCHEMA = 3
SECONDS = "seconds"


def summarise(planned: Planned, done: Done) -> dict[str, Any]:
    """Return the summary. Numbers that do not exist are null."""
    sweep, found, base = (
        planned.sweep,
        results(planned, done.outcomes),
        baselines(planned, done.outcomes),
    )
    goal = sweep.goal
    exact, along_axis = base[NO_NOISE], set(planned.baselines) != {0.0}
    own = without_noise(planned, done.outcomes)

    def no_noise(line: str) -> dict[str, Any] | None:
        if line not in own:
            return None
        point = _point(None, own[line], None)
        if line not in planned.exact:  # the time of a cell of all baselines is not that of a run
            point["metrics"].pop(SECONDS, None)
        return point

    def curves(of: Mapping[str, Mapping[float, PointResult]]) -> list[dict[str, Any]]:
        return [
            {"line": line, "mechanism": _mechanism(planned, line),
             "points": [_point(x, r, own.get(line, exact.get(x, exact.get(0.0))))
                        for x, r in along.items()],
             "no_noise": no_noise(line)}
            for line, along in of.items()
        ]  # fmt: skip

    return {
        "schema": SCHEMA,
        "title": sweep.title,
        "file": sweep.file,
        "secagg": __version__,
        "versions": list(done.versions),
        "seconds": done.seconds,
        "job": {"title": planned.reference.title, "method": planned.reference.method.name,
                "columns": list(planned.reference.columns), "own": _own_place(planned),
                "level": _interval_level(planned)},
        "sites": {name: len(table) for name, table in planned.tables.items()},
        "records": sweep.records.model_dump(),
        "truth": sweep.measure.truth,
        "public": sweep.public,
        "repeat": sweep.repeat,
        "seed": sweep.seed,
        "across": sweep.across,
        "level": LEVEL,
        "curves": curves(found),
        "baselines": {} if along_axis else {n: _means(b[0.0]) for n, b in base.items()},
        "baseline_curves": curves(base) if along_axis else [],
        "goal": None if goal is None else {
            **goal.model_dump(), "confidence": CONFIDENCE, "fewest_runs": fewest_runs(goal.share),
        },
        "recommendations": [] if goal is None else [
            {"line": line, "smallest": r.epsilon,
             "points": [
                 {"across": x, "limit": _number(limit), "reached": r.reached[x],
                  "runs": len(along[x].seconds) + len(along[x].failed)}
                 for x, limit in r.limits.items()
             ]}
            for line, along in found.items()
            for r in [recommendation(line, along, goal, between=sweep.across == EPSILON)]
        ],
        "attacks": _attacks(planned, done),
        "attack_words": _attack_words(planned),
        "refused": [r.plain() for r in planned.refused],
    }  # fmt: skip


def _mechanism(planned: Planned, line: str) -> dict[str, str] | None:
    """Return method and placement of a curve; None of one that is no job, or of several."""
    cells = (c for along in planned.runs.get(line, {}).values() for c in along.values())
    jobs = {str(dict(cell.settings).get("job", "")) if cell.task == TASK else "" for cell in cells}
    found = {
        (job["method"]["name"], job["privacy"]["placement"])
        for job in (json.loads(text) for text in jobs if text)
    }
    if len(found) != 1 or "" in jobs:
        return None
    ((method, placement),) = found
    return {"method": method, "placement": placement}


def _own_place(planned: Planned) -> float | None:
    """Return the place of the job itself on the horizontal axis; None if it has none."""
    value: Any = load_job(planned.sweep.job).model_dump()
    for key in planned.sweep.across.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) else None


def _interval_level(planned: Planned) -> float:
    """Return the level of the intervals whose coverage is measured."""
    return float(planned.sweep.measure.settings_in(planned.reference).get("level", LEVEL))


def check_summary(summary: Mapping[str, Any], where: str) -> None:
    """Compute again what follows from the numbers of a summary that somebody else wrote.

    That is what each curve recommends, of all its points, and that means are in their intervals.
    The values of single runs are not in it, so means and limits are as stated. Raises
    `EvidenceError`.
    """
    goal = summary["goal"]
    said_of = {r["line"]: [p["across"] for p in r["points"]] for r in summary["recommendations"]}
    drawn = {c["line"]: [p["across"] for p in c["points"]] for c in summary["curves"]}
    if said_of != (
        {} if summary["goal"] is None else {n: sorted(along) for n, along in drawn.items()}
    ):
        what = "recommends something for other curves or points than those that it shows"
        raise EvidenceError(where, what)
    for each in summary["recommendations"]:
        wanted = Goal(**{key: goal[key] for key in ("metric", "below", "above", "share")})
        limits = {
            float(point["across"]): math.inf if point["limit"] is None
            else wanted.loss(float(point["limit"]))
            for point in each["points"]
        }  # fmt: skip
        found = smallest(limits, wanted, between=summary["across"] == EPSILON)
        said = each["smallest"]
        if (found is None) != (said is None) or not math.isclose(found or 0, said or 0):
            what = f"recommends {said} for {each['line']!r}, and {found} follows from its limits"
            raise EvidenceError(where, what)
        if any(not 0 <= point["reached"] <= point["runs"] for point in each["points"]):
            raise EvidenceError(where, f"more runs of {each['line']!r} reached the goal than ran")
    for curve in (*summary["curves"], *summary["baseline_curves"]):
        for point in (*curve["points"], *([curve["no_noise"]] if curve["no_noise"] else [])):
            for metric, mean in point["metrics"].items():
                low, value, high = mean["low"], mean["mean"], mean["high"]
                if None not in (low, value, high) and not low <= value <= high:
                    what = f"the mean of {metric}, {value:g}, is not in {low:g} to {high:g}"
                    raise EvidenceError(where, what)


def _point(
    across: float | None, result: PointResult, no_noise: PointResult | None
) -> dict[str, Any]:
    """Return a point. across: None for the place without noise"""
    differences = {
        metric: _mean(difference)
        for metric in result.values
        if no_noise is not None
        and (difference := paired_difference(result, no_noise, metric)) is not None
    }
    return {
        "across": across,
        "runs": len(result.seconds),
        "waiting": result.waiting,
        "failed": sorted(set(result.failed.values())),
        "failures": len(result.failed),
        "metrics": _means(result),
        "more_than_no_noise": differences,
    }


def _means(result: PointResult) -> dict[str, Any]:
    means = {m: _mean(Mean.of(list(by_seed.values()))) for m, by_seed in result.values.items()}
    if result.seconds:
        means[SECONDS] = _mean(Mean.of(list(result.seconds.values())))
    return means


def _mean(mean: Mean) -> dict[str, Any]:
    return {
        "mean": _number(mean.value), "low": _number(mean.low), "high": _number(mean.high),
        "runs": mean.runs,
    }  # fmt: skip


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _extended(value: float) -> float | str | None:
    """Return a number; an infinite one, which JSON lacks, as text: it decides a verdict."""
    return str(value) if math.isinf(value) else _number(value)


def _attacks(planned: Planned, done: Done) -> list[dict[str, Any]]:
    rows, attacks = list[dict[str, Any]](), planned.sweep.attacks
    names = attacks.names if attacks else ()

    def order(found: tuple[str, Any]) -> tuple[int, str]:  # of the file; stored ones are sorted
        return names.index(found[0].partition(" ")[0].rstrip(":")), found[0]

    for line, along in planned.attacked.items():
        for across, cell in along.items():
            outcome = done.outcomes.get(cell)
            if outcome is None:
                continue
            numbers = {
                name: {k: _extended(v) for k, v in sorted(each.items())}
                for name, each in sorted((outcome.numbers or {}).items(), key=order)
            }
            by_rounds = dict[str, list[dict[str, Any]]]()
            for name, each in numbers.items():
                if ROUNDS in each:
                    by_rounds.setdefault(name.rpartition(AFTER)[0], []).append(each)
            for several in by_rounds.values():
                several.sort(key=lambda each: each[ROUNDS])
            found = {name: each for name, each in numbers.items() if ROUNDS not in each}
            rows.append(
                {"line": line, "across": across, "failed": outcome.failed, "found": found,
                 "by_rounds": by_rounds}
            )  # fmt: skip
    return rows


def _attack_words(planned: Planned) -> dict[str, str]:
    """Return what the number of each attack is."""
    attacks = planned.sweep.attacks
    return {} if attacks is None else {a.name: a.meaning for a in make_attacks(attacks.names)}


def as_csv(planned: Planned, done: Done) -> str:
    """Return every number of every run: one row for each line, place, seed and metric."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("line", planned.sweep.across, "seed", "metric", "value"))
    for name in BASELINES:
        for across, result in baselines(planned, done.outcomes)[name].items():
            _rows(writer, (name, f"{across:g}" if across else ""), result)
    for line, along in results(planned, done.outcomes).items():
        for across, result in along.items():
            _rows(writer, (line, f"{across:g}"), result)
    for line in planned.exact:
        _rows(writer, (line, "inf"), without_noise(planned, done.outcomes)[line])
    return text.getvalue()


def _rows(writer: Any, start: tuple[str, str], result: PointResult) -> None:
    metrics: Mapping[str, Mapping[int, float]] = {**result.values, SECONDS: result.seconds}
    for metric, by_seed in metrics.items():
        for seed, value in by_seed.items():
            writer.writerow((*start, seed, metric, repr(value)))
