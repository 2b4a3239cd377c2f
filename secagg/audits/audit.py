"""`secagg audit JOB`: run a job in a scratch folder, attack the run, and compare with the truth.

1. A fifth of each site's records is set aside at random. They take no part, so attacks on
   membership have others to compare with.
2. The job is run on the rest, in this process, with a transcript. The records are in memory, so
   no ledger is charged and nothing is released. The release rules are the job's. What the sites'
   own policies and ledgers would refuse is said first, and does not stop the audit. All draws,
   noise included, come from a seed, so an audit can be repeated.
3. The control: the same job under `plain`, without noise and with the weakest release rules.
4. Each attack is run on its views of the run, and on those of the control with the planted leak.
   An attack that asks the sites, asks a `secagg.audits.deployment`; that of the control forgets.

With several processes, each repeats both runs from the seed, and they share the attacks.

Guarantees: an attack gets a view and a generator, and no record but those of colluding sites. Only
its scorer gets the truth.

Not protected: the person who audits a job holds all records in one place. Audit jobs over records
that one person may hold, or over simulated ones. The folder of an audit has numbers about single
sites, so its files are private.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from secagg.audits.audited_run import (
    SET_ASIDE,
    AuditedRun,
    control_of,
    in_memory,
    split,
    truth_about,
)
from secagg.audits.catalogue import make_attacks
from secagg.audits.contract import Attack, Finding, Limit, Verdict
from secagg.audits.outcomes import Outcome, Outcomes, attack_once
from secagg.audits.views import Who
from secagg.core.process_pool import processes
from secagg.errors import PolicyRefusal, SecaggError, UsageError
from secagg.jobs.data_sources import Data, find_sites
from secagg.jobs.job import Job, read_job
from secagg.runs.checks.expected_refusals import expected_refusals
from secagg.sessions.planned_job import plan_job

Task = tuple[str, Who]
"""An attack's name, and whose view it attacks."""
Progress = Callable[[int, int, str], None]
"""Called with how many attacks are done, how many there are, and what is next."""


@dataclass(frozen=True)
class Attacked:
    """What one attack found on one view, or why it did not apply.

    limit: the one in force: the user's, or the attack's own
    rate: the rate in the details that is judged; "" for the attack's metric
    """

    attack: Attack
    who: Who
    outcome: Outcome
    limit: Limit | None = None
    rate: str = ""

    @property
    def verdict(self) -> Verdict:
        """What the number, its interval, the limit and the control say."""
        return self.outcome.judged(self.limit)[0]

    @property
    def why(self) -> str:
        """Why the verdict is neither a leak nor none."""
        return self.outcome.judged(self.limit)[1]

    @property
    def finding(self) -> Finding | None:
        """What it found in the run."""
        return self.outcome.finding

    @property
    def control(self) -> Finding | None:
        """What it found in the run with the planted leak."""
        return self.outcome.control

    @property
    def severity(self) -> float:
        """How far a leak is beyond its limit, from 0 to 1 (`Limit.severity`)."""
        assert self.finding is not None and self.limit is not None
        control = None if self.control is None else self.control.value
        return self.limit.severity(self.finding.value, control)

    @property
    def metric(self) -> str:
        """The name of the number."""
        return self.rate or self.attack.metric

    @property
    def label(self) -> str:
        """The name of the attack, with that of a rate."""
        return f"{self.attack.name}: {self.rate}" if self.rate else self.attack.name


@dataclass(frozen=True)
class Audit:
    """The findings about one job. share: of each site's records that was set aside"""

    job: Job
    sites: tuple[str, ...]
    records: int
    set_aside: int
    share: float
    seed: int
    attacked: tuple[Attacked, ...] = field(repr=False)
    refusals: tuple[str, ...] = ()
    """Why a run would be refused now, by the sites' own policies and ledgers among others."""

    @property
    def leaks(self) -> tuple[Attacked, ...]:
        """The attacks that found a leak."""
        return leaks(self.attacked)


def leaks(attacked: Sequence[Attacked]) -> tuple[Attacked, ...]:
    """Return those that found a leak, the worst first."""
    found = (each for each in attacked if each.verdict is Verdict.LEAK)
    return tuple(sorted(found, key=lambda each: -each.severity))


def audit_job(
    job: Job | Mapping[str, Any] | str | Path,
    data: Data | None = None,
    *,
    overrides: Mapping[str, str] | None = None,
    attacks: Sequence[str] = (),
    views: Sequence[Who] = (),
    limits: Mapping[str, Limit] | None = None,
    seed: int = 0,
    set_aside: float = SET_ASIDE,
    jobs: int = 1,
    cache: Path | None = None,
    progress: Progress = lambda *_: None,
) -> Audit:
    """Audit a job.

    data: records by site name instead of the job's sites
    attacks: their names; without any, all; views: whose; without any, all that the attacks have
    limits: by metric, instead of the attacks' own; seed: of all draws
    set_aside: the share of each site's records that takes no part, from 0 to below 1. Attacks on
        membership are stronger with more of them
    jobs: number of processes; cache: a folder for outcomes, which a later audit reads
    Raises what `secagg.run` raises, and `UsageError` for an unknown attack.
    """
    if not 0 <= set_aside < 1:
        raise UsageError("set_aside", f"is {set_aside}, and must be at least 0 and below 1")
    if seed < 0:
        raise UsageError("seed", f"is {seed}, and must be at least 0")
    chosen = {attack.name: attack for attack in make_attacks(attacks)}
    job = read_job(job, overrides)
    tables = {name: source.read() for name, source in find_sites(job, data).items()}
    refusals = tuple(expected_refusals(plan_job(job, data), None)[0])
    job = in_memory(job)
    kept, aside = split(tables, set_aside, np.random.default_rng([seed, 0]), job.privacy)
    tasks = [(a.name, who) for a, who in tasks_of(chosen.values(), views)]
    found = dict[Task, Outcome]()
    outcomes = None if cache is None else Outcomes.of(cache, job, (kept, aside), seed)
    if outcomes is not None:
        found = {task: known for task in tasks if (known := outcomes.load(*task)) is not None}
    left = [task for task in tasks if task not in found]
    for task, outcome in _computed(left, (job, kept, aside, seed), jobs, len(tasks), progress):
        found[task] = outcome
        if outcomes is not None and not outcome.error:
            outcomes.save(*task, outcome)
    planned = plan_job(job, kept)
    truth = truth_about(planned, kept, aside)
    attacked = tuple(
        row
        for name, who in tasks
        for row in judged(chosen[name], who, found[name, who], limits or {})
    )
    records = sum(len(rows.values) for rows in truth.sites.values())
    sites, aside_of = tuple(sorted(truth.sites)), len(truth.others)
    return Audit(job, sites, records, aside_of, set_aside, seed, attacked, refusals)


def judged(attack: Attack, who: Who, found: Outcome, limits: Mapping[str, Limit]) -> list[Attacked]:
    """Return an outcome under its limit, then one for each rate that has a limit."""
    rows = [_row(attack, who, found, limits.get(attack.metric))]
    for name, guess in attack.rates.items():
        if name in limits and not found.why_not:
            of_rate = found.of_rate(name, guess, limits[name])
            rows.append(replace(_row(attack, who, of_rate, limits[name]), rate=name))
    return rows


def _row(attack: Attack, who: Who, found: Outcome, limit: Limit | None) -> Attacked:
    if limit is not None and found.limit is not None and limit.errors != found.limit.errors:
        sign = ">=" if found.limit.errors else "<="
        what = f"a limit of {attack.metric} is written with {sign}, not as {limit}"
        raise UsageError("limits", what)
    return Attacked(attack, who, found, limit or found.limit)


def tasks_of(attacks: Iterable[Attack], views: Sequence[Who]) -> list[tuple[Attack, Who]]:
    """Return the attacks on these views; without any, on all. Raises `UsageError` if none is."""
    attacks = list(attacks)
    tasks = [(a, who) for a in attacks for who in a.views if not views or who in views]
    if not tasks:
        theirs = {who.value: None for a in attacks for who in a.views}
        names = ", ".join(a.name for a in attacks)
        raise UsageError("views", f"{names} has the views {', '.join(theirs)} only")
    return tasks


Tables = Mapping[str, pd.DataFrame]
Runs = tuple[AuditedRun, AuditedRun | None]
_runs: list[Runs | SecaggError] = []  # of a process of the pool


def _computed(
    tasks: Sequence[Task], about: tuple[Job, Tables, Tables, int], jobs: int, total: int,
    progress: Progress,
) -> Iterator[tuple[Task, Outcome]]:  # fmt: skip
    """Yield the outcome of each task, in any order."""
    if not tasks:
        return
    done, seed = total - len(tasks), about[-1]
    progress(done, total, "the job and its control")
    with tempfile.TemporaryDirectory(prefix="secagg-audit-") as scratch:
        if jobs == 1 or len(tasks) == 1:
            runs = both_runs(*about, scratch)
            for name, who in tasks:
                progress(done, total, f"{name} ({who})")
                yield (name, who), _attack(runs, name, who, seed)
                done += 1
            return
        with processes(min(jobs, len(tasks)), _begin, *about, scratch) as pool:
            running = {pool.submit(_attack_here, *task, seed): task for task in tasks}
            for finished in as_completed(running):
                name, who = running[finished]
                done += 1
                progress(done, total, f"{name} ({who}) is done")
                yield (name, who), finished.result()


def both_runs(job: Job, kept: Tables, aside: Tables, seed: int, scratch: str) -> Runs:
    """Return the run and its control. Transcripts exist only until they are read."""
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        try:
            run = AuditedRun.of(job, kept, aside, seed, Path(place) / "job")
        except SecaggError as error:
            refused = isinstance(error, PolicyRefusal)
            error.advice = _advice(error.advice, sum(map(len, aside.values())) if refused else 0)
            if refused and "max_leverage" in error.what:
                error.advice += " To audit what it would show: --set release.min_records=1."
            raise
        try:
            planted = control_of(job, kept)
            there = Path(place) / "control"
            return run, AuditedRun.of(planted, kept, aside, seed, there, control=True)
        except SecaggError:
            return run, None


def _advice(advice: str, set_aside: int) -> str:
    """Return the advice of a run's error, without the scratch folder, which is gone."""
    advice = advice.partition("The log of the sums")[0].strip()
    if not set_aside:
        return advice
    more = f"The audit set {set_aside} records aside, which takes records from all counts"
    return f"{more}: first try --set-aside 0. {advice}".strip()


def _attack(runs: Runs, name: str, who: Who, seed: int) -> Outcome:
    (attack,) = make_attacks([name])
    return attack_once(attack, who, *runs, seed)


def _begin(job: Job, kept: Tables, aside: Tables, seed: int, scratch: str) -> None:
    try:
        _runs.append(both_runs(job, kept, aside, seed, scratch))
    except SecaggError as error:
        _runs.append(error)  # an error here would end the pool without its text


def _attack_here(name: str, who: Who, seed: int) -> Outcome:
    (runs,) = _runs
    if isinstance(runs, SecaggError):
        raise runs
    return _attack(runs, name, who, seed)
