"""Take a finished sparse regression to a site that had no part in it: its own result, predictions.

What is read of the run is what its folder holds, the draws of the common coefficients above all;
the site's records stay where they are. See `secagg.models.sparse_bayes.new_site` for the model, and
for what a "cut" posterior is: the run's common coefficients are not changed by the newcomer's
records.

Not protected: the file that is written tells of the records at least what a model fitted to them
tells. It is the site's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, SiteRecords
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import DataError, UsageError
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import Continuous, Job
from secagg.models.common.posterior_summary import (
    Posterior,
    median,
    number,
    sampling_warnings,
    summarise,
    worst_diagnostics,
)
from secagg.models.sparse_bayes.new_site import NewSiteDraws, fit_new_site, have_moments, predict
from secagg.models.sparse_bayes.regression import SparseRegression
from secagg.models.sparse_bayes.result import MAX_R_HAT
from secagg.models.sparse_bayes.sums import own_deviations
from secagg.runs.run_reader import RunFolder

if TYPE_CHECKING:
    import pandas as pd


SWEEPS, MOST_DRAWS = 100, 1000


@dataclass(frozen=True)
class FinishedSparseRun:
    """What a finished run of sparse regression tells of a new site.

    theta, t: kept draws (draws, chains, q); deviations: of the outcome and the predictors, in the
        columns' own units; None where each site has its own
    converged, notes: what the run says of itself; a newcomer's draws are no better than its
    """

    title: str
    session: str
    job: Job
    method: SparseRegression
    theta: Array
    t: Array
    deviations: Array | None
    converged: bool
    notes: tuple[str, ...]

    @classmethod
    def read(cls, run: RunFolder) -> FinishedSparseRun:
        """Read a run's folder. Raises `UsageError` for another method's run."""
        job, method, result = run.job, run.method, run.result
        if not isinstance(method, SparseRegression):
            raise UsageError(str(run.path), f"is a run of {method.name!r}")
        with run.well_formed("result"):
            summary, arrays = result.summary, result.arrays
            deviations = None
            if method.scale == "pooled":
                rows = summary["coefficients"]
                scales = [summary["outcome_deviation"], *(row["deviation"] for row in rows)]
                deviations = np.array(scales)
            return cls(
                str(summary["title"]), run.session, job, method,
                np.asarray(arrays["draws_theta"]), np.asarray(arrays["draws_tau_squared"]),
                deviations, bool(summary["converged"]), tuple(map(str, summary["notes"])),
            )  # fmt: skip


@dataclass(frozen=True)
class AdaptedSite:
    """A new site's posterior.

    centre: means of its records, deviations: divisors of them, outcome first, as carried
    shape: (draws, chains) of the newcomer's draws
    moments: which coefficients have a mean and a variance (`secagg.models.sparse_bayes.new_site`)
    remarks: what its owner should know of the records
    """

    run: FinishedSparseRun
    newcomer: NewSiteDraws
    shape: tuple[int, int]
    records: int
    centre: Array
    deviations: Array
    moments: NDArray[np.bool_]
    remarks: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return the site's own coefficients, plain data for JSON; None is undefined.

        run: whether its result may be used, and its notes. converged, notes: the same of these
        draws; enough_sweeps: of the sweeps alone, given the run's draws.
        """
        method = self.run.method
        draws = self.newcomer.theta.reshape(*self.shape, -1)
        found = summarise(draws, method.level)
        names = self._predictors()
        largest, *_ = worst_diagnostics([found])
        complained = sampling_warnings(
            {"coefficients": found}, self.shape[1], [repr(n) for n in names]
        )
        return {
            "title": self.run.title,
            "session": self.run.session,
            "outcome": method.outcome,
            "records_here": self.records,
            "level": method.level,
            "scale": method.scale,
            "logarithms": self._logarithms(),
            "run": {"converged": self.run.converged, "notes": list(self.run.notes)},
            "converged": largest is None or largest <= MAX_R_HAT,
            "notes": [*complained, *_without_moments(self.records, names, self.moments)],
            "enough_sweeps": self.newcomer.has_converged,
            "error_sd": float(np.median(np.sqrt(self.newcomer.s))),
            "remarks": list(self.remarks),
            "coefficients": self._coefficients(names, draws, found),
        }

    def predictions(
        self, table: pd.DataFrame, random: RandomBytes = system_random
    ) -> dict[str, Array]:
        """Return "median", "low" and "high" of the outcome of each row, in the unit of its column.

        table: complete records of the predictors
        low and high are of further records, at the run's level. An outcome that the job takes the
        logarithm of is given as itself: its quantiles are there, and its mean is not
        (`secagg.models.sparse_bayes.new_site`).
        Raises `UsageError` for a site without records, whose intercept nobody knows; `DataError`
        for rows that lack a predictor or lie outside the job's bounds.
        """
        if self.records < 1:
            what = "has no complete record, and only its own records tell where its outcomes lie"
            raise UsageError("adapt", what, "Predictions need at least one.")
        if not np.isfinite(self.deviations[0]):
            what = "its outcome does not vary, and with scale = 'site' that is its unit"
            raise UsageError("adapt", what, "Predictions need more records.")
        run = self.run
        terms = _columns_of(run)
        job = run.job.model_copy(update={"columns": {k: run.job.columns[k] for k in terms}})
        everything = public_facts(run.job, ("newcomer", "run"))
        public = public_facts(job, ("newcomer", "run"))
        rows = _rows(job, table, public)
        if rows.incomplete:
            what = f"{rows.incomplete} rows lack a predictor"
            raise DataError("the table to predict", what, "Leave them out.")
        for name, many in zip(public.columns, rows.outside.astype(int).tolist(), strict=True):
            if many:
                what = f"column {name!r}: {many} values lie outside the bounds that the run had"
                raise DataError("the table to predict", what, "Leave those rows out.")
        at = {variable.name: i for i, variable in enumerate(public.variables)}
        chosen = run.method.columns(everything)
        order = [at[everything.variables[i].name] for i in chosen[1:]]
        x = (rows.values[:, order] - self.centre[1:]) / self.deviations[1:]
        rng = np.random.default_rng(int.from_bytes(random(16), "little"))
        drawn = predict(self.newcomer, x, self.records, rng)
        outcome = everything.variables[int(chosen[0])]
        carried = self.centre[0] + self.deviations[0] * drawn
        values = outcome.midpoint + outcome.half_range * carried
        column = run.job.columns[outcome.column]
        if isinstance(column, Continuous) and column.transform == "log":
            values = np.exp(values)
        low, high = (1 - run.method.level) / 2, (1 + run.method.level) / 2
        return {
            "median": np.median(values, axis=0),
            "low": np.quantile(values, low, axis=0),
            "high": np.quantile(values, high, axis=0),
        }

    def _predictors(self) -> list[str]:
        public = public_facts(self.run.job, ("newcomer", "run"))
        return [public.variables[i].name for i in self.run.method.columns(public)][1:]

    def _logarithms(self) -> list[str]:
        """Return the columns whose logarithm was analysed."""
        used = {self.run.method.outcome, *_columns_of(self.run)}
        return [
            name
            for name, column in self.run.job.columns.items()
            if name in used and isinstance(column, Continuous) and column.transform == "log"
        ]

    def _coefficients(
        self, names: Sequence[str], draws: Array, found: Posterior
    ) -> list[dict[str, Any]]:
        """Return each coefficient's numbers; in own units where the run's columns have them."""
        middle, error = median(draws)
        rows, deviations = [], self.run.deviations
        for j, name in enumerate(names):
            row: dict[str, Any] = {"term": name}
            row |= {key: number(values[j]) for key, values in asdict(found).items()}
            row |= {"median": number(middle[j]), "mcse_median": number(error[j])}
            del row["mcse_sd"]  # which fourth moments would have to be there for
            if not self.moments[j]:
                row |= dict.fromkeys(("mean", "sd", "mcse_mean"))
            if deviations is not None:
                own = {key: row[key] for key in ("mean", "sd", "median", "low", "high")}
                factor = float(deviations[0] / deviations[1 + j])
                row["own_units"] = {k: None if v is None else factor * v for k, v in own.items()}
            rows.append(row)
        return rows


def _without_moments(records: int, names: Sequence[str], moments: NDArray[np.bool_]) -> list[str]:
    """Return why coefficients have no mean, if some have none."""
    lacking = [name for name, there in zip(names, moments.tolist(), strict=True) if not there]
    if not lacking:
        return []
    why = (
        f"These records do not tell of {', '.join(map(repr, lacking))}, which "
        f"{'does' if len(lacking) == 1 else 'do'} not vary in them:"
        if records > 1
        else f"{('No record tells', 'A single record does not tell')[records]} of any coefficient:"
    )
    return [
        f"{why} what is shown is what the run's sites tell of one they have not seen, a "
        "distribution with tails so heavy that it has neither a mean nor a standard deviation. "
        "Median and interval stand for it."
    ]


def adapt(
    run: FinishedSparseRun,
    table: pd.DataFrame,
    *,
    sweeps: int = SWEEPS,
    most_draws: int = MOST_DRAWS,
    random: RandomBytes = system_random,
) -> AdaptedSite:
    """Return the posterior of a site with these records.

    table: as a site's file would be, with the columns of the run's job; may be empty
    most_draws: of the run's draws as many are used, evenly spaced, and of each chain at least one
    Raises `DataError` for a table that does not fit, `UsageError` for absurd numbers.
    """
    if sweeps < 2 or most_draws < 1:
        raise UsageError("adapt", "wants at least 2 sweeps and 1 draw")
    public = public_facts(run.job, ("newcomer", "run"))
    rows = _rows(run.job, table, public)
    chosen = run.method.columns(public)
    carried = rows.values[:, chosen]
    centre = carried.mean(axis=0) if len(carried) else np.zeros(len(chosen))
    half = np.array([public.variables[i].half_range for i in chosen])
    deviations = own_deviations(carried) if run.deviations is None else run.deviations / half
    step = -(-len(run.theta) // max(1, most_draws // run.theta.shape[1]))
    theta, t = run.theta[::step], run.t[::step]
    shape = (int(theta.shape[0]), int(theta.shape[1]))
    rng = np.random.default_rng(int.from_bytes(random(16), "little"))
    flat = theta.reshape(-1, theta.shape[-1]), t.reshape(-1, t.shape[-1])
    z = (carried - centre) / deviations
    newcomer = fit_new_site(*flat, z, run.method.noise, sweeps, rng)
    moments = have_moments(carried[:, 1:])
    return AdaptedSite(
        run, newcomer, shape, len(carried), centre, deviations, moments, rows.remarks
    )


def _columns_of(run: FinishedSparseRun) -> list[str]:
    """Return the job's columns of the predictors, in the job's order."""
    public = public_facts(run.job, ("newcomer", "run"))
    used = {public.variables[i].column for i in run.method.columns(public)[1:]}
    return [name for name in run.job.columns if name in used]


def _rows(job: Job, table: pd.DataFrame | Mapping[str, Any], public: PublicFacts) -> SiteRecords:
    import pandas as pd  # noqa: PLC0415  # half a second that `secagg --help` should not pay

    table = pd.DataFrame(table)
    public = replace(public, max_rows=max(public.max_rows, len(table)))
    return read_rows(job.columns, table, public, "the new site")
