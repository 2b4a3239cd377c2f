"""An experiment: the cells of a sweep, and what is planned before they are computed.

A cell is one run at one point with one seed. Its key is a digest of the job, the reference, the
records and the code, so a changed file recomputes what it concerns and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from secagg.audits.audited_run import in_memory, without_noise
from secagg.audits.by_rounds import check_from_sums_only
from secagg.audits.catalogue import ATTACKS, make_attacks
from secagg.errors import SecaggError, UsageError
from secagg.experiments.measures.networks import is_measured
from secagg.experiments.opacus_alone import LINE, can_train_alone
from secagg.experiments.records import Tables, digest_of, read_tables
from secagg.experiments.reference import Reference
from secagg.experiments.runner.cells import Cell, Outcome, cell, code_version
from secagg.experiments.sweep import Point, Records, Sweep, changed, points
from secagg.jobs.job import Job, load_job
from secagg.jobs.privacy import Privacy
from secagg.jobs.registry import METHODS, PROTOCOLS, make_method
from secagg.runs.checks.expected_refusals import expected_refusals
from secagg.sessions.planned_job import plan_job

TASK, ATTACK_TASK = "secagg.experiments.one_run", "secagg.experiments.one_audit"
OPACUS_TASK = "secagg.experiments.opacus_alone"
EPSILON = "privacy.epsilon"
_NOT_REFERENCE = ("privacy", "records")
"""Tables whose keys the reference does not have."""


@dataclass(frozen=True)
class Refused:
    """A point that has no runs, because its job is refused. why: one line"""

    point: Point
    why: str

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"line": self.point.line, "across": self.point.across, "why": self.why}


@dataclass(frozen=True)
class Planned:
    """The cells of a sweep.

    refused: points without cells
    runs: line -> place on the horizontal axis -> seed -> cell
    baselines: place -> seed -> cell; one place, 0, if the records are the same everywhere
    exact: line -> seed -> cell of its job without noise, if that is not the reference; no seed if
        it is refused. Only if the horizontal axis is epsilon
    attacked: line -> place -> cell
    """

    sweep: Sweep
    reference: Job
    tables: Tables
    runs: Mapping[str, Mapping[float, Mapping[int, Cell]]]
    baselines: Mapping[float, Mapping[int, Cell]]
    exact: Mapping[str, Mapping[int, Cell]]
    attacked: Mapping[str, Mapping[float, Cell]]
    refused: tuple[Refused, ...]

    def cells(self) -> list[Cell]:
        """Return every cell once."""
        found = list[Cell]()
        for line in (self.baselines, *self.runs.values()):
            found += [cell for seeds in line.values() for cell in seeds.values()]
        found += [cell for seeds in self.exact.values() for cell in seeds.values()]
        for along in self.attacked.values():
            found += along.values()
        return list(dict.fromkeys(found))

    @property
    def pilot(self) -> Pilot:
        """One run of each curve with its attacks, and the baselines once."""
        first = [next(iter(next(iter(along.values())).values())) for along in self.runs.values()]
        once = next(iter(next(iter(self.baselines.values())).values()))
        return Pilot((once, *first, *map(_first, self.attacked.values())))

    def estimate(self, outcomes: Mapping[Cell, Outcome]) -> dict[str, Any]:
        """Return the number of cells and the processor time, from the outcomes of the pilot."""
        once, *first = self.pilot.chosen[: len(self.runs) + 1]
        total, curves = (
            outcomes[once].seconds * sum(map(len, self.baselines.values())),
            list[dict[str, Any]](),
        )
        for (line, along), run in zip(self.runs.items(), first, strict=True):
            outcome, runs = outcomes[run], sum(map(len, along.values()))
            seconds = None if outcome.failed else outcome.seconds
            total += (seconds or 0.0) * (runs + len(self.exact.get(line, ())))
            curves.append(
                {"line": line, "points": len(along), "runs": runs, "seconds": seconds,
                 "failed": outcome.failed or ""}
            )  # fmt: skip
        attacks = sum(
            outcomes[_first(along)].seconds * len(along) for along in self.attacked.values()
        )
        return {
            "cells": len(self.cells()), "seconds": total + attacks, "curves": curves,
            "attack_seconds": attacks,
            "refused": [r.plain() for r in self.refused],
            "without_goal": self._without_goal([outcomes[run] for run in first]),
        }  # fmt: skip

    def _without_goal(self, outcomes: Sequence[Outcome]) -> str:
        """Return the metric of the goal if no run of the pilot has it, or ""."""
        goal = self.sweep.goal
        measured = {m for o in outcomes if o.numbers for m in o.numbers.get("run", {})}
        return "" if goal is None or not measured or goal.metric in measured else goal.metric


def _first(along: Mapping[float, Cell]) -> Cell:
    return next(iter(along.values()))


@dataclass(frozen=True)
class Pilot:
    """A few cells of an experiment. Their results are kept, like those of all cells."""

    chosen: tuple[Cell, ...]

    def cells(self) -> list[Cell]:
        """Return every cell once."""
        return list(self.chosen)


def plan_experiment(sweep: Sweep) -> Planned:
    """Read the records, and plan every run. Raises `UsageError` if every point is refused."""
    every = points(sweep)
    if sweep.attacks is not None:
        make_attacks(sweep.attacks.names)  # refuses unknown ones
        if sweep.attacks.rounds:
            check_from_sums_only(sweep.attacks.names)
    keys = {k: v for k, v in sweep.keys.items() if k.partition(".")[0] not in _NOT_REFERENCE}
    base = load_job(sweep.job).model_copy(update={"privacy": Privacy()})
    reference = changed(base, keys, sweep.title)
    sweep.measure.settings_in(reference)  # refuses an unclear one
    tables = {} if sweep.records.simulate else read_tables(reference)
    make = _Cells(sweep, reference, digest_of(tables))
    runs, attacked = dict[str, dict[float, dict[int, Cell]]](), dict[str, dict[float, Cell]]()
    exact = dict[str, dict[int, Cell]]()
    refused, drawn = list[Refused](), dict[Records, Tables]()
    seeds = range(sweep.seed, sweep.seed + sweep.repeat)
    for point in every:
        records = point.records
        if records not in drawn:
            of_them = Reference(any_sites(reference, records), sweep.measure, records, tables)
            drawn[records] = of_them.draw(sweep.seed).tables
            plan_job(in_memory(of_them.job), drawn[records])  # raises, if baselines are refused
        job = in_memory(any_sites(point.job, records))
        _check_draw(job, records)
        if why := _refusal(job, drawn[records]):
            refused.append(Refused(point, why))
            continue
        if sweep.across == EPSILON and point.line not in runs:
            same = without_noise(in_memory(any_sites(reference, records)), drawn[records])
            bare = _exact(job, drawn[records])
            if bare is None or bare.agreed != same.agreed:
                allowed = bare is not None and not _refusal(bare, drawn[records])
                exact[point.line] = {s: make.run(bare, records, s) for s in seeds if allowed}
        along = runs.setdefault(point.line, {})
        along[point.across] = {seed: make.run(job, records, seed) for seed in seeds}
        if can_train_alone(make_method(job.method), job.privacy):
            line = f"{point.line}: {LINE}" if point.line else LINE
            alone = {s: replace(cell, task=OPACUS_TASK) for s, cell in along[point.across].items()}
            runs.setdefault(line, {})[point.across] = alone
            exact[line] = {}
        if sweep.attacks is not None and point.across in (sweep.attacks.at or [point.across]):
            attacked.setdefault(point.line, {})[point.across] = make.audit(job, records)
    if not runs:
        raise UsageError(str(sweep.job), f"every point is refused; the first: {refused[0].why}")
    places = {point.across: point.records for point in every}
    if len(drawn) == 1:
        places = {0.0: next(iter(drawn))}
    baselines = {
        across: {seed: make.run(None, records, seed) for seed in seeds}
        for across, records in places.items()
    }
    return Planned(sweep, reference, tables, runs, baselines, exact, attacked, tuple(refused))


def _exact(job: Job, tables: Tables) -> Job | None:
    """Return the job without noise; None if it cannot be planned."""
    try:
        return without_noise(job, tables)
    except SecaggError:
        return None


def _check_draw(job: Job, records: Records) -> None:
    """Refuse records that cannot be drawn, or on which the job's result cannot be measured.

    Single records are neither drawn nor dealt out where a person has several.
    """
    if not is_measured(job, records):
        what = "leaves no other records, on which a network could be tested"
        raise UsageError("records.draw", what, 'Set records.draw = "bootstrap".')
    apart = records.draw == "bootstrap" or records.sites
    if job.privacy.person is not None and not records.simulate and apart:
        what = "are drawn singly, but privacy.person protects all records of a person"
        raise UsageError("records", what, 'Set records.draw = "same", without records.sites.')


def any_sites(job: Job, records: Records) -> Job:
    """Return the job; without the names of its sites, if the records are dealt out anew."""
    if not records.sites and not records.simulate:
        return job
    return job.model_copy(update={"sites": job.sites.model_copy(update={"names": None})})


def _refusal(job: Job, tables: Tables) -> str:
    """Return why every run of a job would be refused, in a line; or ""."""
    try:
        certain, _ = expected_refusals(plan_job(job, tables), None)
    except SecaggError as error:
        return error.line()
    return certain[0] if certain else ""


@dataclass(frozen=True)
class _Cells:
    sweep: Sweep
    reference: Job
    digest: str

    @cached_property
    def place(self) -> str:
        """Where the records are, as JSON that is not part of any key."""
        return self.reference.model_dump_json()

    def run(self, job: Job | None, records: Records, seed: int) -> Cell:
        """Return the cell of a run; of the baselines without a job."""
        named = self.reference if job is None else job
        reference = any_sites(self.reference, records)
        made = cell(
            TASK, 1.0, job="" if job is None else json.dumps(job.agreed), seed=seed,
            reference=json.dumps(reference.agreed), digest=self.digest,
            measure=self.sweep.measure.model_dump_json(), records=records.model_dump_json(),
            code=_code_of(named) + _code_of(self.reference),
        )  # fmt: skip
        return replace(made, place=self.place)

    def audit(self, job: Job, records: Records) -> Cell:
        """Return the cell of the attacks on one run, which come after all runs."""
        attacks = self.sweep.attacks
        assert attacks is not None
        like = self.run(job, records, self.sweep.seed)
        code = [code_version(f"secagg.audits.attacks.{ATTACKS[name]}") for name in attacks.names]
        settings = dict(like.settings) | {
            "names": ",".join(attacks.names), "set_aside": attacks.set_aside,
            "code": "".join([str(dict(like.settings)["code"]), *code]),
        }  # fmt: skip
        if attacks.rounds:
            settings["rounds"] = ",".join(map(str, attacks.rounds))
        return replace(cell(ATTACK_TASK, 10.0, **settings), place=self.place, late=True)


def _code_of(job: Job) -> str:
    """Return the versions of the code that only a job's names lead to."""
    own = code_version(METHODS[job.method.name][0]) + code_version(PROTOCOLS[job.protocol.name][0])
    module = str(job.method.settings.get("module", "")).partition(":")[0]  # of `torch_module`
    try:
        return own + (code_version(module) if module else "")
    except (SecaggError, OSError, SyntaxError, ValueError):  # no source: the run says what is wrong
        return own
