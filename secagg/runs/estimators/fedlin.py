"""FedLin as an estimator in the style of scikit-learn, for users who hold all sites' tables.

    model = FedLin("hm2", outcome="score").fit_sites({"north": table, "south": table})
    model.coef_                              # sites x coefficients, in the columns' own units
    model.predict(new_records, "north")

It writes a job and runs it (`secagg.runs.estimators.base`). If columns are not declared, bounds and
levels are read from the tables (`secagg.runs.estimators.tables`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.errors import DataError, UsageError
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import Job
from secagg.jobs.registry import make_method
from secagg.models.fedlin.design import Layout
from secagg.models.fedlin.fedavg import FedAvg
from secagg.models.fedlin.full.method import FedLinFull
from secagg.models.fedlin.hm1 import FedLinHm1
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.runs.adapt.fedlin import FinishedHm2Run, NewSitePosterior, fit_new_site
from secagg.runs.adapt.new_records import as_recorded, outcomes_of, predictors_of
from secagg.runs.estimators.base import Estimator
from secagg.runs.estimators.tables import Tables, clipped_values, left_out

MODELS = {
    "hm1": FedLinHm1.name,
    "hm2": FedLinHm2.name,
    "full": FedLinFull.name,
    "fedavg": FedAvg.name,
    "ditto": FedAvg.name,
}
_ARGUMENTS = {"name": "model", "outcome": "outcome", "predictors": "predictors"}
_MAX_LISTED = 5  # sites in an error


class FedLin(Estimator):
    """Linear regressions at many sites that borrow strength from each other.

    model: "hm1", "hm2", "full", "fedavg" or "ditto"; see the methods of the job file for settings
    outcome: the column to explain
    predictors: columns; None for all others
    columns: as in a job's [columns]; None reads them from the tables, with a note in the result
    protocol: for instance "masked", or a table as in a job's [protocol]; None simulates
    settings: of the method, as in a job's [method], except those that are arguments here
    seed: None draws from the operating system; a number makes the result reproducible
    """

    def __init__(
        self,
        model: str = "hm2",
        *,
        outcome: str = "y",
        predictors: tuple[str, ...] | None = None,
        columns: Mapping[str, Any] | None = None,
        protocol: str | Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> None:
        self.model = model
        self.outcome = outcome
        self.predictors = predictors
        self.columns = columns
        self.protocol = protocol
        self.settings = settings
        self.seed = seed

    def fit_sites(self, tables: Tables) -> FedLin:
        """Fit. Raises `UsageError` as `secagg.run` does; the estimator is then unchanged.

        Sets job_, result_, own_ (each site's own result, meant only for that site), coef_ (sites x
        terms, in own units), across_sites_ and errors_ (data frames). With "hm2" and "full" also
        intervals_ (sites and terms x mean, sd, low, high, in own units, at the level of the
        settings) and shared_ (the parameters that sites share: estimate, low, high).
        """
        job = self._job(tables)
        result, own = self._fit(job, tables)
        rows = sum(len(table) for table in tables.values())
        used = sum(one.summary["records_here"] for one in own.values())
        result.summary["notes"] += left_out(rows - used, rows) + clipped_values(job, tables)
        self.job_, self.result_, self.own_ = job, result, own
        short = str(result.summary["method"]).removeprefix("fedlin-")
        self.coef_ = _coefficients(own, short)
        self.across_sites_ = pd.json_normalize(result.summary["across_sites"]).set_index("term")
        self.errors_ = pd.DataFrame(result.summary["errors"]).set_index("model")
        for name in ("intervals_", "shared_"):
            vars(self).pop(name, None)  # of an earlier fit
        if "shared" in result.summary:
            self.intervals_ = _intervals(own, short)
            shared = pd.DataFrame(result.summary["shared"]).set_index("name")
            self.shared_ = shared[["estimate", "low", "high"]]
        return self

    def predict(self, table: pd.DataFrame, site: object) -> Array:
        """Return the outcome that a site's own coefficients predict for each record.

        site: as in the fitted tables, compared as text (1 is "1")

        If the job takes the outcome's logarithm, the prediction is exp(mean of the logarithm), a
        median. Raises `UsageError` for a site that was not fitted, or had no record to estimate its
        intercept; `DataError` for incomplete records.
        """
        self._check_fitted()
        if str(site) not in self.coef_.index:
            known = ", ".join(map(str, self.coef_.index[:_MAX_LISTED]))
            more = " ..." if len(self.coef_) > _MAX_LISTED else "."
            what = f"site {site!r} was not fitted"
            raise UsageError("predict", what, f"Fitted sites: {known}{more}")
        layout = self._layout()
        predictors = predictors_of(self.job_, layout, table)
        records = self.own_[str(site)].summary["learned_from"]
        if layout.intercept == "site" and not records and len(predictors):
            what = f"site {site!r} had no complete record, so its intercept is unknown"
            raise UsageError("predict", what, 'Add a record, or set intercept = "modelled".')
        coefficients = self.coef_.loc[str(site)].to_numpy(dtype=np.float64)
        return as_recorded(self.job_, layout, coefficients[0] + predictors @ coefficients[1:])

    def score(self, tables: Tables) -> float:
        """Return R^2 of the predictions for all sites' records together, as in scikit-learn.

        An outcome with two levels is 0 or 1. Raises as `predict`, and `DataError` if outcomes are
        missing or constant.
        """
        self._check_fitted()
        layout = self._layout()
        parts = [outcomes_of(self.job_, layout, table) for table in tables.values()]
        actual = np.concatenate([np.empty(0), *parts])
        if not len(actual) or np.ptp(actual) == 0:
            raise DataError("the tables to score", "the outcome is constant")
        parts = [self.predict(table, site) for site, table in tables.items()]
        residual = float(np.sum((actual - np.concatenate(parts)) ** 2))
        return 1 - residual / float(np.sum((actual - actual.mean()) ** 2))

    def adapt(self, table: pd.DataFrame) -> NewSitePosterior:
        """Return the posterior of a site that was not fitted; only with "hm2"."""
        self._check_fitted()
        return fit_new_site(
            FinishedHm2Run.of(self.job_, self.result_), table, random=self._random()
        )

    def _layout(self) -> Layout:
        method: Any = make_method(self.job_.method)
        layout: Layout = method.layout(public_facts(self.job_, ("a", "b")))
        return layout

    def _job(self, tables: Tables) -> Job:
        if self.model not in MODELS:
            raise UsageError("FedLin", f"no model {self.model!r}", f"Known: {', '.join(MODELS)}.")
        for key, argument in _ARGUMENTS.items():
            if key in (self.settings or {}):
                what = f"settings contain {key!r}, which is the argument {argument!r}"
                raise UsageError("FedLin", what, f"Give only FedLin({argument}=...).")
        names = None if self.predictors is None else [self.outcome, *self.predictors]
        method = {"name": MODELS[self.model], "outcome": self.outcome, **(self.settings or {})}
        if self.model == "ditto":
            method.setdefault("personal", 1.0)
        if self.predictors is not None:
            method["predictors"] = list(self.predictors)
        return self._job_of(tables, f"FedLin {self.model} of {self.outcome}", method, names)


def _coefficients(own: Mapping[str, Result], model: str) -> pd.DataFrame:
    """Return the sites' coefficients, one row a site."""
    rows = {
        site: {row["term"]: row[model] for row in result.summary["coefficients"]}
        for site, result in own.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").sort_index()


def _intervals(own: Mapping[str, Result], model: str) -> pd.DataFrame:
    """Return the sites' posteriors, a row for each site and term.

    model: key of the posterior mean, where a row has no other
    """
    frames = {
        site: pd.DataFrame(result.summary["coefficients"]).set_index("term")
        for site, result in sorted(own.items())
    }
    every = pd.concat(frames, names=["site", "term"])
    if "mean" not in every:
        every = every.rename(columns={model: "mean"})
    return every[["mean", "sd", "low", "high"]].astype(np.float64)
