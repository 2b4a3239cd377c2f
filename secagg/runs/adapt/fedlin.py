"""A site that took no part in a run of FedLin's HM2: its own coefficients, and predictions.

Yue, Al Kontar and Estrada Gomez (2022), section 4.2.1: q(phi) tells what sites' coefficients are
like, and so of a site that nobody has seen. Where they take q's mean for a start, here q is the
prior that it is: the newcomer's posterior is equation (8) with q in place of the cavity,

    p(theta_*, phi | its records) ~ q(phi) p(y_* | theta_*, phi) p(theta_* | phi)

Its records change q for nobody else. Without records this is what the run's sites tell of others.

What is read of the run is what its folder holds; the site's records stay where they are, and what
is written tells of them at least what a model fitted to them tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import UsageError
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import Job
from secagg.jobs.registry import make_method
from secagg.models.fedlin.design import INTERCEPT, Layout
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.models.fedlin.posterior.selection import select
from secagg.models.fedlin.posterior.site_posterior import drawn_level
from secagg.models.fedlin.site import Site
from secagg.models.numerics.natural_gaussian import Natural
from secagg.runs.adapt.new_records import as_recorded, predictors_of
from secagg.runs.run_reader import RunFolder

DRAWS = 4000


@dataclass(frozen=True, repr=False)
class FinishedHm2Run:
    """What a finished run of HM2 tells of a new site.

    mean, cov: of q(phi), or of the weighed points, whose moments a normal density then has; centre,
        scale: of the columns, as analysed; noise: the pooled variance, in the units analysed, where
        the hierarchy needs it
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
        """Return it of a result in memory. Raises `UsageError` for another method's."""
        method, arrays, summary = make_method(job.method), result.arrays, result.summary
        if not isinstance(method, FedLinHm2):
            what = f"is a result of {job.method.name!r}"
            raise UsageError("the run", what, "Only 'fedlin_hm2' tells of sites unseen.")
        names = ("shared_mean", "shared_covariance", "centre", "scale", "noise")
        mean, cov, centre, scale, noise = (np.asarray(arrays[name]) for name in names)
        told = bool(summary["converged"]), tuple(map(str, summary["notes"]))
        try:
            Natural.of(mean, cov)
        except ValueError as error:  # of numpy's, and what is not positive definite
            what = "has no covariance of what its sites share"
            raise UsageError("the run", what, "Give the --out of a run.") from error
        return cls(job, method, mean, cov, centre, scale, float(noise[0]), *told)

    @classmethod
    def read(cls, run: RunFolder) -> FinishedHm2Run:
        """Read a run's folder. Raises `UsageError` for another method's run."""
        job, result = run.job, run.result
        with run.well_formed("result"):
            return cls.of(job, result)

    def __repr__(self) -> str:
        return f"SharedRun({self.job.title!r}, of {self.method.outcome!r})"

    @property
    def layout(self) -> Layout:
        """The regression."""
        return self.method.layout(public_facts(self.job, ("newcomer", "run")))

    @property
    def own_noise(self) -> bool:
        """Whether sites estimate a variance of the noise of their own."""
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
        draws, many = self.coefficients.shape
        what = f"{many} coefficients of {self.run.method.outcome!r}"
        return f"Newcomer({what} from records: {self.records}, draws: {draws})"

    def table(self) -> list[dict[str, Any]]:
        """Return each coefficient's numbers: mean, sd, interval, its sign's probability."""
        layout, level = self.run.layout, self.run.method.level
        found = select(self.coefficients, level)
        names = [INTERCEPT, *(term for term in layout.terms if term != INTERCEPT)]
        keys = ("mean", "sd", "low", "high", "direction")
        told = {name: getattr(found, name) for name in keys}
        unknown = layout.intercept == "site" and not self.records
        return [
            {"term": name}
            | {key: None if unknown and not j else float(v[j]) for key, v in told.items()}
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
            "coefficients": self.table(),
        }

    def predictions(
        self, table: pd.DataFrame, random: RandomBytes = system_random
    ) -> dict[str, Array]:
        """Return "median", "low" and "high" of the outcome of further records, at the run's level.

        An outcome that the job takes the logarithm of is given as itself.
        Raises `DataError` for records that lack a predictor; `UsageError` for a site without
        records where intercepts are the sites' own.
        """
        run = self.run
        if run.method.intercept == "site" and not self.records:
            what = "has no complete record, and only its own tell where its outcomes lie"
            raise UsageError("adapt", what, "Predictions need at least one.")
        X = predictors_of(run.job, run.layout, table)
        rng = np.random.default_rng(int.from_bytes(random(16), "little"))
        ends = (1 - run.method.level) / 2, (1 + run.method.level) / 2
        found = np.empty((3, len(X)))
        for i, x in enumerate(X):  # one by one: all draws of all records may not fit
            noise = self.error * rng.standard_normal(len(self.error))
            drawn = self.coefficients[:, 0] + self.coefficients[:, 1:] @ x + noise
            found[:, i] = np.quantile(drawn, (0.5, *ends))
        found = as_recorded(run.job, run.layout, found)
        return dict(zip(("median", "low", "high"), found, strict=True))


def fit_new_site(
    run: FinishedHm2Run,
    table: pd.DataFrame | Mapping[str, Any],
    *,
    draws: int = DRAWS,
    random: RandomBytes = system_random,
) -> NewSitePosterior:
    """Return the posterior of a site with these records.

    table: as a site's file would be, with the columns of the run's job; may be empty
    Raises `DataError` for a table that does not fit, `UsageError` for records so far from what the
    run's sites share that nothing can be drawn.
    """
    table = pd.DataFrame(table)
    public = public_facts(run.job, ("newcomer", "run"))
    public = replace(public, max_rows=max(public.max_rows, len(table)))
    rows = read_rows(run.job.columns, table, public, "the new site")
    layout, hierarchy = run.layout, run.method.hierarchy
    values = rows.values[:, layout.columns]
    site = Site.of(layout, values, run.centre, run.scale)
    noise = run.noise
    if run.own_noise:
        noise = site.noise(noise, layout, values, run.centre, run.scale)
    told = SufficientStatistics(site.gram, site.cross, site.square, site.freedom, noise)
    rng = np.random.default_rng(int.from_bytes(random(16), "little"))
    try:
        with np.errstate(all="ignore"):  # what comes of it is looked at
            drawn = hierarchy.draw(told, Natural.of(run.mean, run.cov), draws, rng)
        if not (np.all(np.isfinite(drawn.theta)) and np.all(np.isfinite(drawn.phi))):
            raise np.linalg.LinAlgError("a draw is not finite")
    except np.linalg.LinAlgError as error:
        what = f"no posterior can be drawn from its records and what the run's sites share: {error}"
        raise UsageError("the new site", what, "Are its columns in the run's units?") from error
    variance = run.method.noise_of(drawn.phi, noise)
    level = drawn_level(layout, site, variance, rng)
    coefficients = layout.in_own_units(drawn.theta, run.centre, run.scale, level)
    unit = float(layout.half_range[0] / run.scale[0])
    return NewSitePosterior(run, site.here, coefficients, unit * np.sqrt(variance), rows.remarks)
