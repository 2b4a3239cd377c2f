"""The error of a regression under noise, predicted by running it on simulated records.

Before data is read, records are simulated from what the job says of its columns: typical ranges
and shares, and the assumptions of `secagg.privacy.expected_error` (equal correlations, the
explained share). The slopes' sizes and signs are drawn: equal ones would lie in the direction in
which correlated predictors vary most, where every method is at its best. Each method reads the
records as a site does, shortened by its own rules, and its own functions run on them with noise of
the planned variance. Nothing else is simulated: no protocol, no encoding, no grid of the noise,
whose effects are far smaller.

The error is the root mean square, over runs and slopes in typical standard deviations, of the
estimate less the fit to the records without noise and without limits (least squares, or maximum
likelihood), divided by the root mean square of that fit's slopes. So it has the bias of shortened
records. Estimates that need draws from a posterior are taken to first order
(`MethodFacts.first_order`). Random numbers have a fixed seed: the same job gives the same figure
(rounded to two digits), which `verify` computes again. Its Monte Carlo error is about a tenth of
it. benchmarks/noise/predicted_mechanisms.py has predictions beside errors on real records.

Verdict. w = root(1 + error^2 / sampling^2), with the relative sampling error of the fit without
noise, is how much longer intervals are at least. The noise costs as much as 1 - 1 / w^2 of the
records. Green: the noise is below the sampling error (w at most root 2, half of the records).
Amber: w is at most 2 (three quarters), or the error at most 30 %, so that large effects can be
seen. Red: more, or an error above 50 %, beside which even noise below the sampling error is no
comfort. Green does not depend on how much the predictors explain, which nobody knows
before: error and sampling error are then larger or smaller together.

Not covered: columns whose values are skewed or whose effects are not linear; wrong guesses, but for
`error_if_narrow`; predictors that explain much more than a fifth, whose relative error is smaller.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from secagg.contracts import (
    AskedRegression,
    Family,
    FisherLaw,
    Outcome,
    PublicFacts,
    SiteRecords,
)
from secagg.contracts.noise import Noise
from secagg.core.arrays import Array
from secagg.evidence.feasibility.simulated_run import run_on
from secagg.jobs.columns import Binary, Column, Number
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.privacy import Privacy
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from secagg.privacy.expected_error import (
    MAX_EPSILON,
    USABLE_ERROR,
    Assumptions,
    Verdict,
    percent,
    two_digits,
)
from secagg.sessions.planned_job import Planned

if TYPE_CHECKING:
    import pandas as pd

FIRST_RUNS, RUNS, SPREAD_RUNS = 2, 8, 5
"""Runs that choose a setting, further ones that predict its error, and those with other spreads."""
MOST_REGRESSIONS = 2  # of several, so many are simulated
_SHARE = 0.2  # of the second level of a binary column, where the job states none
_SEARCH_RUNS = 2
_MOST_NUMBERS = 600_000  # records times the square of the number of columns; but at least
_MANY_RECORDS = 4_000
_LEAST_RECORDS = 50
_WIDEST = 64.0
_SEARCH = 6  # halvings of the logarithm of the noise's factor
_USABLE_WIDTH = 2.0
_LARGEST_ERROR = 0.5
_MOST_ETA, _MOST_ERROR = 30.0, 10.0
_SEED = 21


@dataclass(frozen=True)
class _Question:
    """A plan and the public guess of the number of records. Plans of one job are equal."""

    planned: Planned = field(compare=False)
    records: int
    job: str
    public: str

    @classmethod
    def of(cls, planned: Planned, records: int) -> _Question:
        job = json.dumps(planned.job.agreed, sort_keys=True)
        return cls(replace(planned, sources={}), records, job, repr(planned.public))


def simulated_feasibility(planned: Planned, records: int) -> dict[str, Any]:
    """Return the verdict, as `secagg.privacy.expected_error.Feasibility.to_dict`, and `widened`.

    records: the public guess of their number; widened: intervals' length relative to that without
    noise and limits. A plan, its run and the check of the run's folder have one answer.
    """
    return dict(_simulated(_Question.of(planned, records)))


@lru_cache(maxsize=16)
def _simulated(question: _Question) -> dict[str, Any]:
    planned, records = question.planned, question.records
    trials = Trials(planned, planned.facts.asked[:MOST_REGRESSIONS], records)
    jobs = (planned,)
    found = trials.error(jobs, RUNS, start=FIRST_RUNS)
    narrow = trials.error(jobs, SPREAD_RUNS, start=FIRST_RUNS, spread=0.5)
    epsilon, delta = planned.job.privacy.epsilon, planned.job.privacy.delta
    assert epsilon is not None and delta is not None
    low, high = (1 / _WIDEST, 1.0) if found.verdict is Verdict.RED else (1.0, _WIDEST)  # of noise
    for _ in range(_SEARCH):
        middle = math.sqrt(low * high)
        usable = trials.error(jobs, _SEARCH_RUNS, noise=middle).verdict is not Verdict.RED
        low, high = (middle, high) if usable else (low, middle)
    enough = low > 1.01 / _WIDEST  # otherwise no factor that was tried is
    least_epsilon = gaussian_epsilon(gaussian_mu(epsilon, delta) / low, delta) if enough else None
    least_records = math.ceil(max(records, _LEAST_RECORDS) / low) if enough else None
    error, verdict = rounded(found.error), found.verdict
    words = f"{verdict.value}: expected coefficient error "
    words += f"{percent(error) if error <= 1 else 'above 100 %'} (relative to the coefficients "
    words += f"without noise and limits), sampling error {percent(rounded(found.sampling))}"
    widened = None if found.widened is None else rounded(max(found.widened, 1.0))
    if widened is not None:
        words += f", intervals {widened:.1f} times as long as without noise and limits"
    if least_epsilon is None or least_records is None or least_epsilon > MAX_EPSILON:
        words += "; not usable at any epsilon: it needs more records"
    elif verdict is Verdict.RED:
        words += f"; usable from epsilon {two_digits(least_epsilon)}"
        words += f", or with {two_digits(least_records)} records"
    return {
        "verdict": verdict.value, "error": error, "error_if_narrow": rounded(narrow.error),
        "left": None, "ratio": None, "least_epsilon": least_epsilon,
        "least_records": least_records, "least_rounds": None, "words": words, "widened": widened,
        "sampling": rounded(found.sampling),
    }  # fmt: skip


def rounded(value: float) -> float:
    """Return a figure with two digits."""
    return float(f"{value:.2g}")


@dataclass(frozen=True)
class RelativeError:
    """The relative error, and what belongs to it.

    monte_carlo: its Monte Carlo error; sampling: the relative sampling error without noise
    widened: intervals' length, relative to that without noise and limits; None without intervals
    """

    error: float
    monte_carlo: float
    sampling: float
    widened: float | None

    @property
    def verdict(self) -> Verdict:
        """The verdict, as the module says, by the figures that are shown."""
        error, sampling = rounded(self.error), rounded(self.sampling)
        if error > _LARGEST_ERROR:
            return Verdict.RED
        if error <= sampling:
            return Verdict.GREEN
        usable = error <= USABLE_ERROR or math.hypot(1.0, error / sampling) <= _USABLE_WIDTH
        return Verdict.AMBER if usable else Verdict.RED


class Trials:
    """Simulated records, the same for all jobs, and the fits without noise.

    planned: a job with these regressions; records: the public guess of their number
    """

    def __init__(self, planned: Planned, asked: Sequence[AskedRegression], records: int) -> None:
        self.job, self.asked = planned.job, asked
        exact = self.job.model_copy(update={"privacy": Privacy()})
        sites = planned.public.sites
        most = max(_MOST_NUMBERS // len(planned.public.variables) ** 2, _MANY_RECORDS)
        self.count = max(min(records, most), _LEAST_RECORDS)
        self.copies = records / self.count  # sums are those of so many copies of each record
        self.public = replace(public_facts(exact, sites), max_rows=self.count)
        self._made: dict[tuple[int, int, float], tuple[pd.DataFrame, Array, Array]] = {}
        self._rows: dict[int, tuple[Planned, SiteRecords]] = {}

    def error(
        self, jobs: Sequence[Planned], runs: int, *, start: int = 0, spread: float = 1.0,
        noise: float = 1.0,
    ) -> RelativeError:  # fmt: skip
        """Run a job on the records number `start` and following.

        jobs: one for all regressions, or one for each
        spread: factor of the columns' true standard deviations; noise: of that of all noise
        """
        squares, sizes, sampling, lengths = [], [], [], []
        for run in range(start, start + runs):
            for i in range(len(self.asked)):
                table, slopes, errors = self._records(run, i, spread)
                planned = jobs[i if len(jobs) > 1 else 0]
                estimate, std_errors = self._fit(planned, i, table, run, noise)
                squares.append(np.mean((estimate - slopes) ** 2))
                sizes.append(np.mean(slopes**2))
                sampling.append(np.mean(errors**2))
                lengths.append(None if std_errors is None else np.median(std_errors / errors))
        error = math.sqrt(float(np.mean(squares) / np.mean(sizes)))
        error = min(error, _MOST_ERROR) if math.isfinite(error) else _MOST_ERROR  # no estimate
        of_squares = float(np.std(squares) / np.mean(sizes)) / math.sqrt(len(squares))
        # all records have a smaller sampling error than those simulated
        sampled = math.sqrt(float(np.mean(sampling) / np.mean(sizes)) / self.copies)
        squared = [length**2 for length in lengths if length is not None]
        widened = math.sqrt(float(np.mean(squared)) * self.copies) if squared else None
        return RelativeError(error, of_squares / (2 * error), sampled, widened)

    def _records(self, run: int, i: int, spread: float) -> tuple[pd.DataFrame, Array, Array]:
        """Return the records, and the slopes and standard errors of the fit without noise."""
        if (run, i, spread) not in self._made:
            rng, asked = np.random.default_rng([_SEED, run, i]), self.asked[i]
            table = simulated_table(self.job.columns, self.public, asked, self.count, spread, rng)
            rows = read_rows(self.job.columns, table, self.public, self.public.sites[0])
            at = [j for name in asked.predictors for j in self.public.positions[name]]
            X = np.column_stack([np.ones(self.count), rows.values[:, at]])
            (y_at,) = self.public.positions[asked.outcome]
            variable = self.public.variables[y_at]
            y = variable.midpoint + variable.half_range * rows.values[:, y_at]
            slopes, errors = _exact(X, y, asked.family, _offset(table, asked))
            units = np.array([self.public.variables[j].typical_spread for j in at])
            self._made[run, i, spread] = table, units * slopes, units * errors
        return self._made[run, i, spread]

    def _fit(
        self, planned: Planned, i: int, table: pd.DataFrame, run: int, factor: float
    ) -> tuple[Array, Array | None]:
        """Return the estimated slopes, and their standard errors if there are any."""
        alone = {name for name, stage in planned.plans.stages.items() if stage.training}
        noise = {  # a site that sums its own records has no copies, so it has less noise instead
            name: times(each, factor / self.copies if name in alone else factor)
            for name, each in planned.public.noise.items()
        }
        public = replace(planned.public, noise=noise)
        rng = np.random.default_rng([_SEED, run, i, 1])
        found = fitted(planned, public, self._read(planned, table), i, rng, self.copies)
        at = [j for name in self.asked[i].predictors for j in self.public.positions[name]]
        names = [self.public.variables[j] for j in at]
        units = np.array([v.half_range * v.typical_spread for v in names])
        estimates = np.array([found[v.name]["estimate"] for v in names])
        errors = [found[v.name].get("std_error") for v in names]
        return units * estimates, None if None in errors else units * np.array(errors)

    def _read(self, planned: Planned, table: pd.DataFrame) -> SiteRecords:
        """Return the records as this job's sites read them, the same for all factors of noise."""
        known = self._rows.get(id(table))  # `_made` keeps all tables
        if known is None or known[0] is not planned:
            columns, privacy, public = planned.job.columns, planned.job.privacy, planned.public
            person, whole = privacy.person, table
            if person is not None and person not in table:  # each with as many as are allowed
                numbers = np.arange(len(table)) // privacy.records_per_person
                whole = table.assign(**{person: numbers.astype(str)})
            rows = read_rows(columns, whole, public, public.sites[0], person, privacy.records_used)
            known = self._rows[id(table)] = planned, rows
        return known[1]


def fitted(
    planned: Planned, public: PublicFacts, rows: SiteRecords, i: int, rng: np.random.Generator,
    copies: float = 1.0,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Run a method once on all sites' records; return the terms of its regression number i."""
    parts = [rows]
    if any(stage.training for stage in planned.plans.stages.values()):
        ends = np.linspace(0, len(rows.values), len(public.sites) + 1).astype(int)
        parts = [rows.part(a, b) for a, b in pairwise(ends)]
    result = run_on(planned, public, parts, rng, planned.facts.first_order, copies).summary
    fits = result.get("analyses", [result])
    return {term["term"]: term for term in fits[i if len(fits) > 1 else 0]["terms"]}


def _offset(table: pd.DataFrame, asked: AskedRegression) -> Array | float:
    """Return the logarithm of the exposure of each record, if there is one."""
    return 0.0 if asked.exposure is None else np.log(table[asked.exposure].to_numpy())


def _exact(X: Array, y: Array, family: Family, offset: Array | float = 0.0) -> tuple[Array, Array]:
    """Return the slopes of maximum likelihood and their classical standard errors."""
    b = np.zeros(X.shape[1])
    if family.outcome is Outcome.COUNT:
        b[0] = math.log(max(y.mean(), 1e-3) / np.mean(np.exp(offset)))
    for _ in range(1 if family.linear else 12):
        eta = np.clip(X @ b + offset, -_MOST_ETA, _MOST_ETA)  # of few records, some are separated
        inverse = np.linalg.pinv((X.T * family.weight(eta)) @ X, rcond=1e-12, hermitian=True)
        b = b + inverse @ (X.T @ family.score(y, eta))
    if family.linear:
        inverse = inverse * (np.sum((y - X @ b) ** 2) / (len(y) - len(b)))
    return b[1:], np.sqrt(np.diagonal(inverse))[1:]


def times(noise: Noise, factor: float) -> Noise:
    """Return noise whose standard deviation is multiplied by a factor."""
    return replace(noise, variance=max(1, round(noise.variance * factor**2)))


def simulated_table(
    columns: Mapping[str, Column], public: PublicFacts, asked: AskedRegression, count: int,
    spread: float, rng: np.random.Generator,
) -> pd.DataFrame:  # fmt: skip
    """Return simulated records as a table: the assumptions are those of `Assumptions`.

    public: without noise. Columns have equal correlations, and the slopes of the predictors are
        drawn; all levels of a categorical column are equally likely, and a fifth of the records
        have the second level of a binary column, if the job does not say how many
    """
    import pandas as pd  # noqa: PLC0415  # as the job's readers do

    family, assumed = asked.family, Assumptions(count, 1, 1, 1.0)
    law = family.fisher or FisherLaw()
    rho, shared = assumed.correlation, rng.normal(size=count)
    latent = {
        name: math.sqrt(rho) * shared + math.sqrt(1 - rho) * rng.normal(size=count)
        for name in columns
    }
    outcome, *rest = (
        name if name in columns else name.partition("=")[0]  # of an indicator: its column
        for name in (asked.outcome, *asked.predictors)
    )
    predictors = dict.fromkeys(rest)
    signal = rng.normal(size=len(predictors)) @ np.array([latent[name] for name in predictors])
    signal /= signal.std()
    if family.linear:
        latent[outcome] = math.sqrt(assumed.explained) * signal + math.sqrt(
            1 - assumed.explained
        ) * rng.normal(size=count)
    table, exposure = {}, np.zeros(count)
    of_exposure = [asked.exposure] if asked.exposure is not None else []
    for name in [*of_exposure, *(name for name in columns if name not in of_exposure)]:
        column = columns[name]
        places = public.positions[name]
        first = public.variables[places[0]]
        if not isinstance(column, Number):
            share = 0.5 + first.half_range * first.typical_centre  # of each level but the first
            if isinstance(column, Binary) and column.typical is None:
                share = _SHARE
            ends = np.quantile(latent[name], 1 - share * np.arange(1, len(places) + 1))
            level = (latent[name][:, None] > ends).sum(axis=1)
            if name == outcome and not family.linear:
                size = math.sqrt(law.signal(assumed.explained, assumed.outcome_variance))
                eta = math.log(share / (1 - share)) + size * signal
                level = (rng.random(count) < 1 / (1 + np.exp(-eta))).astype(int)
            table[name] = np.array(column.levels)[level]
            continue
        if name == outcome and not family.linear:
            mean = max(first.midpoint + first.half_range * first.typical_centre, 1e-3)
            # of log means, so that they explain this share of the counts' variance
            size = min(assumed.explained / (1 - assumed.explained) / mean, 1.0)
            eta = math.log(mean) - size / 2 + math.sqrt(size) * signal + exposure
            table[name] = np.clip(rng.poisson(family.mean(eta)), column.low, column.high)
            continue
        u = np.clip(first.typical_centre + spread * first.typical_spread * latent[name], -1, 1)
        values = first.midpoint + first.half_range * u
        values = np.exp(values) if first.log else values
        table[name] = np.rint(values) if first.count else values
        if name == asked.exposure:
            exposure = np.log(values / values.mean())
    return pd.DataFrame(table)
