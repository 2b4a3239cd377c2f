"""A site that took no part in a run of FedLin's HM2: its own coefficients, and predictions.

Yue, Al Kontar and Estrada Gomez (2022), section 4.2.1: q(phi) describes the distribution of sites'
coefficients, and so of a new site's. They start from q's mean; here q is the prior. The posterior
of the new site is equation (8) with q in place of the cavity,

    p(theta_*, phi | its records) ~ q(phi) p(y_* | theta_*, phi) p(theta_* | phi)

Its records do not change q for the other sites. Without records this is the predictive
distribution for a new site.

Only the run's folder is read, and the site's records stay at the site. The output reveals at least
as much about them as a model fitted to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import UsageError
from secagg.evidence.integrity import checked_result
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import Job
from secagg.jobs.records_to_predict import SITES
from secagg.jobs.registry import make_method
from secagg.models.fedlin.design import INTERCEPT, Layout
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.models.fedlin.posterior.selection import select
from secagg.models.fedlin.posterior.site_posterior import drawn_level
from secagg.models.fedlin.site import Site
from secagg.models.numerics.natural_gaussian import Natural
from secagg.runs.adapt.new_records import as_recorded, predictors_of, site_records

DRAWS = 4000


@dataclass(frozen=True, repr=False)
class FinishedHm2Run:
    """The parts of a finished run of HM2 that a new site needs.

    mean, cov: of q(phi); of the weighted points, q is the normal density with their moments
    centre, scale: of the columns, as analysed
    noise: the pooled variance, in the units analysed, if the hierarchy needs it
    """

    job: Job
    method: FedLinHm2
    mean: Array
    cov: Array
    centre: Array
    scale: Array
    noise: float
    converged: bool
    notes: tuple[str, ...]

    @classmethod
    def of(cls, job: Job, result: Result) -> FinishedHm2Run:
        """Return the run of a result in memory. Raises `UsageError` for another method."""
        method, arrays, summary = make_method(job.method), result.arrays, result.summary
        if not isinstance(method, FedLinHm2):
            what = f"is a result of {job.method.name!r}"
            raise UsageError("the run", what, "Only 'fedlin_hm2' supports new sites here.")
        names = ("shared_mean", "shared_covariance", "centre", "scale", "noise")
        mean, cov, centre, scale, noise = (np.asarray(arrays[name]) for name in names)
        converged, notes = bool(summary["converged"]), tuple(map(str, summary["notes"]))
        try:
            Natural.of(mean, cov)
        except ValueError as error:  # from numpy, or not positive definite
            what = "has no valid covariance of the shared parameters"
            raise UsageError("the run", what, "Give the --out of a run.") from error
        return cls(job, method, mean, cov, centre, scale, float(noise[0]), converged, notes)

    @classmethod
    def read(cls, run: RunFolder) -> FinishedHm2Run:
        """Read a run's folder. Raises `UsageError` for another method, `EvidenceError`."""
        job, result = checked_result(run)
        with run.well_formed("result"):
            return cls.of(job, result)

    def __repr__(self) -> str:
        return f"FinishedHm2Run({self.job.title!r}, outcome {self.method.outcome!r})"

    @property
    def layout(self) -> Layout:
        """The layout of the regression."""
        return self.method.layout(public_facts(self.job, SITES))

    @property
    def own_noise(self) -> bool:
        """Whether each site estimates its own noise variance."""
        method = self.method
        return method.needs_noise and method.variance == "site" and method.noise_sd is None


@dataclass(frozen=True, repr=False)
class NewSitePosterior:
    """A new site's posterior: draws of intercept and slopes (draws, 1 + slopes), in own units.

    error: draws of the standard deviation of the noise, in the outcome's unit
    """

    run: FinishedHm2Run
    records: int
    coefficients: Array
    error: Array
    remarks: tuple[str, ...]

    def __repr__(self) -> str:
        draws, number = self.coefficients.shape
        what = f"{number} coefficients of {self.run.method.outcome!r}"
        return f"NewSitePosterior({what} from records: {self.records}, draws: {draws})"

    def table(self) -> list[dict[str, Any]]:
        """Return each coefficient's mean, sd, interval and the probability of its sign."""
        layout, level = self.run.layout, self.run.method.level
        selection = select(self.coefficients, level)
        names = [INTERCEPT, *(term for term in layout.terms if term != INTERCEPT)]
        keys = ("mean", "sd", "low", "high", "direction")
        columns = {name: getattr(selection, name) for name in keys}
        unknown = layout.intercept == "site" and not self.records
        return [
            {"term": name}
            | {key: None if unknown and not j else float(v[j]) for key, v in columns.items()}
            for j, name in enumerate(names)
        ]

    def summary(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        run = self.run
        return {
            "title": run.job.title,
            "outcome": run.method.outcome,
            "records_here": self.records,
            "level": run.method.level,
            "run": {"converged": run.converged, "notes": list(run.notes)},
            "error_sd": float(np.median(self.error)),
            "remarks": list(self.remarks),
            "logarithms": self._logarithms(),
            "coefficients": self.table(),
        }

    def _logarithms(self) -> list[str]:
        """Return the columns whose logarithm was analysed."""
        used = {self.run.method.outcome, *self.run.layout.terms}
        columns = self.run.job.columns.items()
        return [n for n, c in columns if n in used and getattr(c, "transform", "none") == "log"]

    def predictions(
        self, table: pd.DataFrame, random: RandomBytes = system_random
    ) -> dict[str, Array]:
        """Return "median", "low" and "high" of the outcome of new records, at the run's level.

        They are in the unit of the column, even if the job takes its logarithm.
        Raises `DataError` for records that lack a predictor; `UsageError` for a site without
        records if each site has its own intercept.
        """
        run = self.run
        if run.method.intercept == "site" and not self.records:
            what = "the site has no complete record, so its intercept is unknown"
            raise UsageError("adapt", what, "Predictions need at least one record.")
        X = predictors_of(run.job, run.layout, table)
        rng = np.random.default_rng(int.from_bytes(random(16), "little"))
        ends = (1 - run.method.level) / 2, (1 + run.method.level) / 2
        quantiles = np.empty((3, len(X)))
        for i, x in enumerate(X):  # one by one: the draws for all records may not fit into memory
            noise = self.error * rng.standard_normal(len(self.error))
            drawn = self.coefficients[:, 0] + self.coefficients[:, 1:] @ x + noise
            quantiles[:, i] = np.quantile(drawn, (0.5, *ends))
        quantiles = as_recorded(run.job, run.layout, quantiles)
        return dict(zip(("median", "low", "high"), quantiles, strict=True))


def fit_new_site(
    run: FinishedHm2Run,
    table: pd.DataFrame | Mapping[str, Any],
    *,
    draws: int = DRAWS,
    random: RandomBytes = system_random,
) -> NewSitePosterior:
    """Return the posterior of a site with these records.

    table: like a site's file, with the columns of the run's job; may be empty
    Raises `DataError` for a table that does not fit, `UsageError` for records so far from the
    run's sites that no posterior can be drawn.
    """
    rows = site_records(run.job, table)
    layout, hierarchy = run.layout, run.method.hierarchy
    values = rows.values[:, layout.columns]
    site = Site.of(layout, values, run.centre, run.scale)
    noise = run.noise
    if run.own_noise:
        noise = site.noise(noise, layout, values, run.centre, run.scale)
    statistics = SufficientStatistics(site.gram, site.cross, site.square, site.freedom, noise)
    rng = np.random.default_rng(int.from_bytes(random(16), "little"))
    try:
        with np.errstate(all="ignore"):  # the draws are checked below
            drawn = hierarchy.draw(statistics, Natural.of(run.mean, run.cov), draws, rng)
        if not (np.all(np.isfinite(drawn.theta)) and np.all(np.isfinite(drawn.phi))):
            raise np.linalg.LinAlgError("a draw is not finite")
    except np.linalg.LinAlgError as error:
        what = f"no posterior can be drawn from its records and the run's result: {error}"
        raise UsageError("the new site", what, "Check that its units are the run's.") from error
    variance = run.method.noise_of(drawn.phi, noise)
    level = drawn_level(layout, site, variance, rng)
    coefficients = layout.in_own_units(drawn.theta, run.centre, run.scale, level)
    unit = float(layout.half_range[0] / run.scale[0])
    return NewSitePosterior(run, site.records, coefficients, unit * np.sqrt(variance), rows.remarks)
