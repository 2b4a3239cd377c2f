"""An experiment: the cells of a sweep, and what is planned before they are computed.

A cell is one run at one point with one seed. Its key is a digest of the job, the reference, the
records and the code, so a changed file recomputes what it concerns and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from secagg.errors import SecaggError, UsageError
from secagg.experiments.records import Tables, digest_of, read_tables
from secagg.experiments.runner.cells import Cell, cell, code_version
from secagg.experiments.sweep import Point, Sweep, changed, points
from secagg.jobs.job import Job, load_job
from secagg.jobs.privacy import Privacy
from secagg.jobs.registry import METHODS, PROTOCOLS
from secagg.runtime.planned_job import plan_job

TASK, ATTACK_TASK = "secagg.experiments.one_run", "secagg.experiments.one_audit"
BASELINES = "baselines"


@dataclass(frozen=True)
class Refused:
    """A point that has no runs, because its job is refused. why: one line"""

    point: Point
    why: str


@dataclass(frozen=True)
class Planned:
    """The cells of a sweep.

    name: stem of the files; refused: points without cells
    runs: line -> place on the horizontal axis -> seed -> cell
    baselines: seed -> cell; attacked: line -> place -> cell
    """

    name: str
    sweep: Sweep
    reference: Job
    tables: Tables
    runs: Mapping[str, Mapping[float, Mapping[int, Cell]]]
    baselines: Mapping[int, Cell]
    attacked: Mapping[str, Mapping[float, Cell]]
    refused: tuple[Refused, ...]

    def cells(self) -> list[Cell]:
        """Return every cell once."""
        found = list(self.baselines.values())
        for line in self.runs.values():
            found += [cell for seeds in line.values() for cell in seeds.values()]
        for along in self.attacked.values():
            found += along.values()
        return list(dict.fromkeys(found))


def plan_experiment(sweep: Sweep, name: str) -> Planned:
    """Read the records, and plan every run. Raises `UsageError` if every point is refused."""
    every = points(sweep)
    base = changed(load_job(sweep.job), sweep.keys, sweep.title)
    reference = base.model_copy(update={"privacy": Privacy()})
    tables = read_tables(reference)
    make = _Cells(sweep, reference, digest_of(tables))
    runs, attacked = dict[str, dict[float, dict[int, Cell]]](), dict[str, dict[float, Cell]]()
    refused = list[Refused]()
    for point in every:
        try:
            plan_job(point.job, tables)
        except SecaggError as error:
            refused.append(Refused(point, error.line()))
            continue
        seeds = range(sweep.seed, sweep.seed + sweep.repeat)
        runs.setdefault(point.line, {})[point.across] = {s: make.run(point.job, s) for s in seeds}
        if sweep.attacks is not None:
            attacked.setdefault(point.line, {})[point.across] = make.audit(point.job)
    if not runs:
        raise UsageError(str(sweep.job), f"every point is refused; the first: {refused[0].why}")
    seeds = range(sweep.seed, sweep.seed + sweep.repeat)
    baselines = {seed: make.run(None, seed) for seed in seeds}
    return Planned(name, sweep, reference, tables, runs, baselines, attacked, tuple(refused))


@dataclass(frozen=True)
class _Cells:
    sweep: Sweep
    reference: Job
    records: str

    @cached_property
    def place(self) -> str:
        """Where the records are, as JSON that is not part of any key."""
        return self.reference.model_dump_json()

    def run(self, job: Job | None, seed: int) -> Cell:
        """Return the cell of a run; of the baselines without a job."""
        named = self.reference if job is None else job
        made = cell(
            TASK, 1.0, job="" if job is None else json.dumps(job.agreed), seed=seed,
            reference=json.dumps(self.reference.agreed), digest=self.records,
            analysis=self.sweep.measure.analysis or "", records=self.sweep.measure.records,
            code=_code_of(named) + _code_of(self.reference),
        )  # fmt: skip
        return replace(made, place=self.place)

    def audit(self, job: Job) -> Cell:
        """Return the cell of the attacks on one run, which come after all runs."""
        attacks = self.sweep.attacks
        assert attacks is not None
        made = cell(
            ATTACK_TASK, 10.0, job=json.dumps(job.agreed), seed=self.sweep.seed,
            digest=self.records, names=",".join(attacks.names), set_aside=attacks.set_aside,
            code=_code_of(job),
        )  # fmt: skip
        return replace(made, place=self.place, late=True)


def _code_of(job: Job) -> str:
    """Return the versions of the code that only a job's names lead to."""
    return code_version(METHODS[job.method.name][0]) + code_version(PROTOCOLS[job.protocol.name][0])
