"""FedLin as an estimator in the style of scikit-learn, for users who hold all sites' tables.

    model = FedLin("hm2", outcome="score").fit_sites({"north": table, "south": table})
    model.coef_                              # sites x coefficients, in the columns' own units
    model.predict(new_records, "north")

It writes a job and runs it: with `secagg.run`, or without a protocol with `secagg.runs.simulate`,
which has the same result. So you can try out a study before you run it over real sites. All tables
are in this process, and nothing is protected from its user.

Columns are declared as in a job. Without a declaration, bounds and levels are read from the tables
(`columns_of`). In a study over real sites this would be a leak: bounds and levels are public there,
and they would reveal about the smallest and largest number of each column. The result has a note
about this.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, replayable_random, system_random
from secagg.errors import DataError, UsageError
from secagg.jobs.cells import MISSING
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import Continuous, Job, parse_job
from secagg.jobs.registry import make_method
from secagg.models.fedlin.design import Layout
from secagg.models.fedlin.fedavg import FedAvg
from secagg.models.fedlin.hm1 import FedLinHm1
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.runs.adapt.fedlin import FinishedHm2Run, NewSitePosterior, fit_new_site
from secagg.runs.adapt.new_records import as_recorded, outcomes_of, predictors_of
from secagg.runs.run import run
from secagg.runs.simulate import simulate_sites

Tables = Mapping[Any, pd.DataFrame]

MODELS = {"hm1": FedLinHm1.name, "hm2": FedLinHm2.name, "fedavg": FedAvg.name, "ditto": FedAvg.name}
_ARGUMENTS = {"name": "model", "outcome": "outcome", "predictors": "predictors"}
_BOUNDS_READ_NOTE = (
    "Bounds and levels of columns were read from the tables. In a run they are public, so they "
    "would reveal extreme values: give `columns` for a study over real sites."
)
_BOUNDS_MARGIN = 0.1  # share of a column's range added on both sides to bounds read from tables
_MAX_LEVELS = 50
_MAX_LISTED = 5  # sites in an error
_MANY_CLIPPED_SHARE = 0.01  # share of a column's values outside its bounds that causes a note


class FedLin:
    """Linear regressions at many sites that borrow strength from each other.

    model: "hm1", "hm2", "fedavg" or "ditto"; see the methods of the job file for their settings
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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; `deep` has no effect."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> FedLin:
        """Set parameters. Raises `UsageError` for an unknown one."""
        for name, value in params.items():
            if name not in self.get_params():
                raise UsageError("FedLin", f"has no parameter {name!r}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in self.get_params().items() if v is not None)
        return f"FedLin({inner})"

    def fit_sites(self, tables: Tables) -> FedLin:
        """Fit. Raises `UsageError` as `secagg.run` does; the estimator is then unchanged.

        Sets job_, result_, own_ (each site's own result, meant only for that site), coef_ (sites x
        terms, in own units), across_sites_ and errors_ (data frames). With "hm2" also intervals_
        (sites and terms x mean, sd, low, high, in own units, at the level of the settings) and
        shared_ (the parameters that sites share: estimate, low, high).
        """
        job = self._job(tables)
        random = self._random()
        if self.protocol is None:
            result, own = simulate_sites(job, tables, random=random)
        else:
            finished = run(job, tables, random=random)
            result, own = finished.result, dict(finished.own)
        if not self.columns:
            result.summary["notes"].append(_BOUNDS_READ_NOTE)
        rows = sum(len(table) for table in tables.values())
        if missing := rows - sum(one.summary["records_here"] for one in own.values()):
            result.summary["notes"].append(
                f"{missing} of {rows} rows lack a value of a declared column and were left out."
            )
        self.job_, self.result_, self.own_ = job, result, own
        self.coef_ = _coefficients(own, str(result.summary["method"]).removeprefix("fedlin-"))
        self.across_sites_ = pd.json_normalize(result.summary["across_sites"]).set_index("term")
        self.errors_ = pd.DataFrame(result.summary["errors"]).set_index("model")
        for name in ("intervals_", "shared_"):
            vars(self).pop(name, None)  # of an earlier fit
        result.summary["notes"] += _clipped(job, tables)
        if "shared" in result.summary:
            self.intervals_ = _intervals(own)
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

    def _check_fitted(self) -> None:
        if not hasattr(self, "result_"):
            raise UsageError("FedLin", "is not fitted", "Call fit_sites first.")

    def _job(self, tables: Tables) -> Job:
        if self.model not in MODELS:
            raise UsageError("FedLin", f"no model {self.model!r}", f"Known: {', '.join(MODELS)}.")
        if len(tables) < 2:
            raise UsageError("fit_sites", "the tables of at least two sites are required")
        for key, argument in _ARGUMENTS.items():
            if key in (self.settings or {}):
                what = f"settings contain {key!r}, which is the argument {argument!r}"
                raise UsageError("FedLin", what, f"Give only FedLin({argument}=...).")
        names = None if self.predictors is None else [self.outcome, *self.predictors]
        columns = dict(self.columns or columns_of(tables, names))
        method = {"name": MODELS[self.model], "outcome": self.outcome, **(self.settings or {})}
        if self.model == "ditto":
            method.setdefault("personal", 1.0)
        if self.predictors is not None:
            method["predictors"] = list(self.predictors)
        protocol = self.protocol or "plain"
        named = {"name": protocol} if isinstance(protocol, str) else dict(protocol)
        max_rows = max(len(table) for table in tables.values())
        return parse_job(
            {
                "title": f"FedLin {self.model} of {self.outcome}",
                "sites": {"max_rows": max(max_rows, 1)},
                "columns": columns,
                "method": method,
                "protocol": named,
                "release": {"min_sites": 2, "min_records": 1},
            }
        )

    def _random(self) -> RandomBytes:
        return system_random if self.seed is None else replayable_random(self.seed)


def _clipped(job: Job, tables: Tables) -> list[str]:
    """Return a note on each column that has many values outside its bounds."""
    notes = []
    for name, column in job.columns.items():
        if isinstance(column, Continuous):
            cells = pd.concat([table[name] for table in tables.values()])
            numbers = pd.to_numeric(cells, errors="coerce")
            outside = int(((numbers < column.low) | (numbers > column.high)).sum())
            if outside > _MANY_CLIPPED_SHARE * len(cells):
                notes.append(
                    f"{outside} of {len(cells)} values of {name!r} were outside its bounds and "
                    "were replaced by the bound, which changes the result."
                )
    return notes


def columns_of(tables: Tables, names: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return declarations of the tables' columns, read from their cells.

    names: of columns, or of variables `column=level`; None for all columns of the first table

    Numeric columns get bounds a tenth of their range beyond the extremes. Other columns are
    categorical, with at most 50 levels, or binary with two. Raises `DataError` for anything else.
    """
    first = next(iter(tables.values()))
    declarations = {}
    every = [str(column) for column in first.columns]
    requested = every if names is None else names
    for name in dict.fromkeys(n if n in every else n.partition("=")[0] for n in requested):
        cells = pd.concat([_column(table, name, site) for site, table in tables.items()])
        declarations[name] = _declared(name, cells)
    return declarations


def _column(table: pd.DataFrame, name: str, site: str) -> pd.Series[Any]:
    if name not in table.columns:
        raise DataError(site, f"column {name!r} is missing")
    return table[name]


def _declared(name: str, cells: pd.Series[Any]) -> dict[str, Any]:
    if pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells):
        numbers = cells.to_numpy(np.float64)
        numbers = numbers[np.isfinite(numbers)]
        if not len(numbers) or np.ptp(numbers) == 0:
            raise DataError(f"column {name!r}", "is constant", "Leave it out of the analysis.")
        if set(np.unique(numbers)) == {0.0, 1.0}:
            return {"type": "binary"}
        margin = _BOUNDS_MARGIN * float(np.ptp(numbers))
        low, high = float(numbers.min()) - margin, float(numbers.max()) + margin
        return {"type": "continuous", "low": low, "high": high}
    texts = {str(cell).strip() for cell in cells.dropna()}
    levels = sorted(text for text in texts if text.lower() not in MISSING)
    if not 2 <= len(levels) <= _MAX_LEVELS:
        what = f"is not numeric and has {len(levels)} levels"
        raise DataError(f"column {name!r}", what, "Declare it in `columns`, or leave it out.")
    kind = "binary" if len(levels) == 2 else "categorical"
    return {"type": kind, "levels": levels}


def _coefficients(own: Mapping[str, Result], model: str) -> pd.DataFrame:
    """Return the sites' coefficients, one row a site."""
    rows = {
        site: {row["term"]: row[model] for row in result.summary["coefficients"]}
        for site, result in own.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").sort_index()


def _intervals(own: Mapping[str, Result]) -> pd.DataFrame:
    """Return the sites' posteriors, a row for each site and term."""
    frames = {
        site: pd.DataFrame(result.summary["coefficients"]).set_index("term")
        for site, result in sorted(own.items())
    }
    every = pd.concat(frames, names=["site", "term"])
    return every[["mean", "sd", "low", "high"]].astype(np.float64)
