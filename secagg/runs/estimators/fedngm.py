"""A federated neural graphical model as an estimator in the style of scikit-learn.

    model = FedNGM(settings={"votes": 2}).fit_sites({"north": table, "south": table})
    model.graph_                                   # of networkx, with votes
    model.predict(records, ["weight", "habit"])    # also for records with missing cells
    model.sample(1000)

It writes a job and runs it (`secagg.runs.estimators.base`). Only this needs torch. If columns are
not declared, bounds and levels are read from the tables (`secagg.runs.estimators.tables`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.jobs.job import Job
from secagg.models.neural.ngm.method import FedNgm
from secagg.runs.estimators.base import Estimator
from secagg.runs.estimators.tables import Tables, clipped_values, incomplete_rows, left_out
from secagg.runs.networks.finished_ngm import FinishedNgmRun


class FedNGM(Estimator):
    """A graph of columns, and a neural network for each column given its neighbours.

    variables: the columns of the model; None for all
    columns: as in a job's [columns]; None reads them from the tables, with a note in the result
    protocol: for instance "masked", or a table as in a job's [protocol]; None simulates
    settings: of the method, as in a job's [method], except those that are arguments here
    seed: None draws from the operating system; a number makes results, predictions and samples
        reproducible
    """

    def __init__(
        self,
        *,
        variables: tuple[str, ...] | None = None,
        columns: Mapping[str, Any] | None = None,
        protocol: str | Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> None:
        self.variables = variables
        self.columns = columns
        self.protocol = protocol
        self.settings = settings
        self.seed = seed

    def fit_sites(self, tables: Tables) -> FedNGM:
        """Fit. Raises `UsageError` as `secagg.run` does; the estimator is then unchanged.

        Sets job_, result_, run_ (a `FinishedNgmRun`: more kinds of queries) and graph_ (of
        networkx; an edge has its votes, if sites have voted).
        """
        job = self._job(tables)
        result, _ = self._fit(job, tables)
        rows = sum(len(table) for table in tables.values())
        result.summary["notes"] += left_out(incomplete_rows(job, tables), rows)
        result.summary["notes"] += clipped_values(job, tables)
        run = FinishedNgmRun.of(job, result)
        self.job_, self.result_, self.run_, self.graph_ = job, result, run, run.graph
        return self

    def predict(self, table: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
        """Return for each record the means of continuous targets, the likeliest levels of others.

        Other cells than the targets' may be missing; `run_.predict` gives Monte Carlo errors too.
        Raises `DataError` for cells that cannot be read, `UsageError` for unknown columns.
        """
        self._check_fitted()
        found = self.run_.predict(table, targets, random=self._random())
        columns = {
            name: one.estimates.idxmax(axis=1) if self._has_levels(name) else one.estimates["mean"]
            for name, one in found.items()
        }
        return pd.DataFrame(columns, index=table.index)

    def predict_proba(self, table: pd.DataFrame, target: str) -> pd.DataFrame:
        """Return the probability of each level of a target, for each record.

        Raises as `predict`, and `UsageError` for a continuous target.
        """
        self._check_fitted()
        found = self.run_.predict(table, [target], random=self._random())
        if not self._has_levels(target):
            advice = "Use predict, or run_.predict for mean and sd."
            raise UsageError("predict_proba", f"column {target!r} is continuous", advice)
        return found[target].estimates

    def sample(self, n: int, decimals: Mapping[str, int] | None = None) -> pd.DataFrame:
        """Return n records of the model; decimals: to which continuous columns are rounded."""
        self._check_fitted()
        return self.run_.sample(n, decimals=decimals, random=self._random())

    def score_samples(self, table: pd.DataFrame) -> Array:
        """Return each record's log pseudo-likelihood, as `run_.log_pseudo_likelihood`."""
        self._check_fitted()
        return self.run_.log_pseudo_likelihood(table)

    def _has_levels(self, name: str) -> bool:
        cells = self.run_.cells
        return bool(cells.levels(cells.number(name, "targets")))

    def _job(self, tables: Tables) -> Job:
        for key in ("name", "variables"):
            if key in (self.settings or {}):
                what = f"settings contain {key!r}"
                advice = "Give only FedNGM(variables=...)." if key == "variables" else ""
                raise UsageError("FedNGM", what, advice)
        names = None if self.variables is None else list(self.variables)
        method: dict[str, Any] = {"name": FedNgm.name, **(self.settings or {})}
        if names is not None:
            method["variables"] = names
        return self._job_of(tables, "FedNGM", method, names)
