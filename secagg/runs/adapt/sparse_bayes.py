"""A site that took no part in a sparse regression: its own coefficients, and predictions.

Only the run's folder is read, mainly the draws of the common coefficients. The site's records stay
at the site. `secagg.models.sparse_bayes.new_site` describes the model, which is a "cut" posterior:
the new site's records do not change the run's common coefficients.

Not protected: the output reveals at least as much about the records as a model fitted to them. It
belongs to the site.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import DataError, UsageError
from secagg.evidence.integrity import checked_result
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.columns import Continuous
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import Job
from secagg.jobs.records_to_predict import NEW_RECORDS_SOURCE, SITES
from secagg.models.common.posterior_summary import (
    Posterior,
    chains_agree,
    median,
    number,
    sampling_warnings,
    summarise,
    worst_diagnostics,
)
from secagg.models.sparse_bayes.new_site import NewSiteDraws, fit_new_site, have_moments, predict
from secagg.models.sparse_bayes.regression import SparseRegression
from secagg.models.sparse_bayes.sums import own_deviations
from secagg.runs.adapt.new_records import site_records

if TYPE_CHECKING:
    import pandas as pd


SWEEPS, MAX_DRAWS = 100, 1000


@dataclass(frozen=True)
class FinishedSparseRun:
    """The parts of a finished run of sparse regression that a new site needs.

    theta, t: draws after warm-up (draws, chains, q)
    deviations: of the outcome and the predictors, in the columns' own units; None if each site has
        its own
    converged, notes: of the run; a new site's draws are no better than the run's
    """

    title: str
    session: str
    job: Job
    method: SparseRegression
    theta: Array
    t: Array
    deviations: Array | None
    converged: bool | None
    notes: tuple[str, ...]

    @classmethod
    def read(cls, run: RunFolder) -> FinishedSparseRun:
        """Read a run's folder. Raises `UsageError` for another method, `EvidenceError`."""
        (job, result), method = checked_result(run), run.method
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
                deviations, summary["converged"], tuple(map(str, summary["notes"])),
            )  # fmt: skip

    @property
    def public(self) -> PublicFacts:
        """The public facts of the run's job."""
        return public_facts(self.job, SITES)

    @property
    def columns_used(self) -> list[str]:
        """The job's columns of the predictors, in the job's order."""
        public = self.public
        used = {public.variables[i].column for i in self.method.columns(public)[1:]}
        return [name for name in self.job.columns if name in used]


@dataclass(frozen=True)
class AdaptedSite:
    """A new site's posterior.

    newcomer: its draws; shape: their (draws, chains)
    centre, deviations: means and divisors of its scaled records, outcome first
    moments: which coefficients have a mean and a variance (`secagg.models.sparse_bayes.new_site`)
    remarks: on the records, for the site
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
        """Return the site's own coefficients as plain data for JSON; None is undefined.

        Keys: run: whether the run converged, and its notes; converged, notes: the same for these
        draws; enough_sweeps: for the sweeps alone, given the run's draws.
        """
        method = self.run.method
        draws = self.newcomer.theta.reshape(*self.shape, -1)
        posterior = summarise(draws, method.level)
        names = self._predictors()
        largest, *_ = worst_diagnostics([posterior])
        warnings = sampling_warnings(
            {"coefficients": posterior}, self.shape[1], [repr(n) for n in names]
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
            "converged": chains_agree(largest),
            "notes": [*warnings, *_without_moments(self.records, names, self.moments)],
            "enough_sweeps": self.newcomer.has_converged,
            "error_sd": float(np.median(np.sqrt(self.newcomer.s))),
            "remarks": list(self.remarks),
            "coefficients": self._coefficients(names, draws, posterior),
        }

    def predictions(
        self, table: pd.DataFrame, random: RandomBytes = system_random
    ) -> dict[str, Array]:
        """Return "median", "low" and "high" of the outcome of each row, in the unit of its column.

        table: complete records of the predictors
        low and high are the interval of a new record, at the run's level. They are in the unit of
        the column, even if the job takes its logarithm: the quantiles of such an outcome exist, but
        its mean does not (`secagg.models.sparse_bayes.new_site`).
        Raises `UsageError` for a site without records, whose intercept is unknown; `DataError`
        for rows that lack a predictor or lie outside the job's bounds.
        """
        if self.records < 1:
            what = "the site has no complete record, so its intercept is unknown"
            raise UsageError("adapt", what, "Predictions need at least one record.")
        if not np.isfinite(self.deviations[0]):
            what = "the site's outcome is constant, but scale = 'site' divides by its deviation"
            raise UsageError("adapt", what, "Predictions need more records.")
        run = self.run
        columns = {name: run.job.columns[name] for name in run.columns_used}
        job = run.job.model_copy(update={"columns": columns})
        everything = run.public
        used = tuple(v for v in everything.variables if v.column in columns)
        public = replace(everything, variables=used, columns=tuple(columns))
        rows = site_records(job, table, public)
        if rows.incomplete:
            what = f"{rows.incomplete} rows lack a predictor"
            raise DataError(NEW_RECORDS_SOURCE, what, "Leave them out.")
        for name, outside in zip(public.columns, rows.outside.astype(int).tolist(), strict=True):
            if outside:
                what = f"column {name!r}: {outside} values lie outside the run's bounds"
                raise DataError(NEW_RECORDS_SOURCE, what, "Leave those rows out.")
        position = {variable.name: i for i, variable in enumerate(public.variables)}
        chosen = run.method.columns(everything)
        order = [position[everything.variables[i].name] for i in chosen[1:]]
        x = (rows.values[:, order] - self.centre[1:]) / self.deviations[1:]
        rng = np.random.default_rng(int.from_bytes(random(16), "little"))
        drawn = predict(self.newcomer, x, self.records, rng)
        outcome = everything.variables[int(chosen[0])]
        scaled = self.centre[0] + self.deviations[0] * drawn
        values = outcome.midpoint + outcome.half_range * scaled
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
        public = self.run.public
        return [public.variables[i].name for i in self.run.method.columns(public)][1:]

    def _logarithms(self) -> list[str]:
        """Return the columns whose logarithm was analysed."""
        used = {self.run.method.outcome, *self.run.columns_used}
        return [
            name
            for name, column in self.run.job.columns.items()
            if name in used and isinstance(column, Continuous) and column.transform == "log"
        ]

    def _coefficients(
        self, names: Sequence[str], draws: Array, posterior: Posterior
    ) -> list[dict[str, Any]]:
        """Return each coefficient's numbers; also in own units if the run has deviations."""
        medians, error = median(draws)
        rows, deviations = [], self.run.deviations
        for j, name in enumerate(names):
            row: dict[str, Any] = {"term": name}
            row |= {key: number(values[j]) for key, values in asdict(posterior).items()}
            row |= {"median": number(medians[j]), "mcse_median": number(error[j])}
            del row["mcse_sd"]  # it requires fourth moments, which may not exist
            if not self.moments[j]:
                row |= dict.fromkeys(("mean", "sd", "mcse_mean"))
            if deviations is not None:
                own = {key: row[key] for key in ("mean", "sd", "median", "low", "high")}
                factor = float(deviations[0] / deviations[1 + j])
                row["own_units"] = {k: None if v is None else factor * v for k, v in own.items()}
            rows.append(row)
        return rows


def _without_moments(records: int, names: Sequence[str], moments: NDArray[np.bool_]) -> list[str]:
    """Return a note on the coefficients without a mean, if there are any."""
    lacking = [name for name, exists in zip(names, moments.tolist(), strict=True) if not exists]
    if not lacking:
        return []
    listed, one = ", ".join(map(repr, lacking)), len(lacking) == 1
    why = (
        f"{listed} {'is' if one else 'are'} constant at this site, so its records do not inform "
        f"{'this coefficient' if one else 'these coefficients'}."
        if records > 1
        else f"{('No record', 'A single record')[records]} cannot inform any coefficient."
    )
    return [
        f"{why} The numbers shown are the run's prediction for a new site. Its tails are so heavy "
        "that it has neither a mean nor a standard deviation. Use the median and the interval."
    ]


def adapt(
    run: FinishedSparseRun,
    table: pd.DataFrame,
    *,
    sweeps: int = SWEEPS,
    max_draws: int = MAX_DRAWS,
    random: RandomBytes = system_random,
) -> AdaptedSite:
    """Return the posterior of a site with these records.

    table: like a site's file, with the columns of the run's job; may be empty
    max_draws: number of the run's draws to use, evenly spaced; at least one of each chain is used
    Raises `DataError` for a table that does not fit, `UsageError` for fewer than 2 sweeps or 1
    draw.
    """
    if sweeps < 2 or max_draws < 1:
        raise UsageError("adapt", "needs at least 2 sweeps and 1 draw")
    public, rows = run.public, site_records(run.job, table)
    chosen = run.method.columns(public)
    scaled = rows.values[:, chosen]
    centre = scaled.mean(axis=0) if len(scaled) else np.zeros(len(chosen))
    half = np.array([public.variables[i].half_range for i in chosen])
    deviations = own_deviations(scaled) if run.deviations is None else run.deviations / half
    step = -(-len(run.theta) // max(1, max_draws // run.theta.shape[1]))
    theta, t = run.theta[::step], run.t[::step]
    shape = (int(theta.shape[0]), int(theta.shape[1]))
    rng = np.random.default_rng(int.from_bytes(random(16), "little"))
    flat = theta.reshape(-1, theta.shape[-1]), t.reshape(-1, t.shape[-1])
    z = (scaled - centre) / deviations
    newcomer = fit_new_site(*flat, z, run.method.noise, sweeps, rng)
    moments = have_moments(scaled[:, 1:])
    return AdaptedSite(run, newcomer, shape, len(scaled), centre, deviations, moments, rows.remarks)
