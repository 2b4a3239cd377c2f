"""A torch module over sites, as an estimator in the style of scikit-learn.

    model = FedModule(torch.nn.Linear(2, 1), outcome="score").fit_sites({"north": t, "south": t})
    model.predict(new_records)
    model.module_                            # the trained module

It writes a job of the method `torch_module` and runs it (`secagg.runs.estimators.base`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from secagg.errors import UsageError
from secagg.jobs.job import Job
from secagg.models.neural.passed_modules import PassedModule
from secagg.models.neural.torch_import import require_torch
from secagg.models.neural.torch_module import TorchModule
from secagg.runs.estimators.base import Estimator
from secagg.runs.estimators.tables import Tables, clipped_values, incomplete_rows, left_out
from secagg.runs.networks.finished_module import FinishedModuleRun

if TYPE_CHECKING:
    from torch import nn

_ARGUMENTS = ("module", "outcome", "predictors")


class FedModule(Estimator):
    """A network that predicts one column from others.

    module: a torch.nn.Module, which is copied and not changed; a function
        `factory(inputs, outputs, **module_settings)` that returns one; its path
        `package.module:factory`; or None for a multilayer perceptron. What a module receives and
        returns: the documentation of the method `torch_module`
    outcome: the column to predict
    predictors: columns; None for all others
    columns: as in a job's [columns]; None reads them from the tables, with a note in the result
    protocol: for instance "masked", or a table as in a job's [protocol]; None simulates
    settings: of the method, as in a job's [method], except those that are arguments here
    seed: None draws from the operating system; a number makes the result reproducible
    """

    def __init__(
        self,
        module: nn.Module | Callable[..., nn.Module] | str | None = None,
        *,
        outcome: str = "y",
        predictors: tuple[str, ...] | None = None,
        columns: Mapping[str, Any] | None = None,
        protocol: str | Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> None:
        self.module = module
        self.outcome = outcome
        self.predictors = predictors
        self.columns = columns
        self.protocol = protocol
        self.settings = settings
        self.seed = seed

    def fit_sites(self, tables: Tables) -> FedModule:
        """Fit. Raises `UsageError` as `secagg.run` does; the estimator is then unchanged.

        Sets job_, result_, run_ (a `FinishedModuleRun`) and module_ (the trained module, in
        float64; it reads and returns scaled values).
        """
        require_torch(TorchModule.name)
        passed = None
        if self.module is not None and not isinstance(self.module, str):
            passed = PassedModule(self.module)  # its name is found while it exists
        job = self._job(tables, passed.name if passed else self.module)
        result, _ = self._fit(job, tables)
        run = FinishedModuleRun.of(job, result)
        rows = sum(len(table) for table in tables.values())
        result.summary["notes"] += left_out(incomplete_rows(job, tables), rows)
        result.summary["notes"] += clipped_values(job, tables)
        self.job_, self.result_, self.run_, self.module_ = job, result, run, run.module
        return self

    def predict(self, table: pd.DataFrame) -> pd.Series:
        """Return each record's predicted outcome, or its likeliest level.

        Raises `DataError` for records that lack a predictor, or a table that does not fit.
        """
        self._check_fitted()
        return self.run_.predict(table)

    def predict_proba(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return each level's probability. Raises as `predict`; `UsageError` without levels."""
        self._check_fitted()
        return self.run_.predict_proba(table)

    def _job(self, tables: Tables, module: Any) -> Job:
        for key in _ARGUMENTS:
            if key in (self.settings or {}):
                what = f"settings contain {key!r}"
                raise UsageError("FedModule", what, f"Give only FedModule({key}=...).")
        method = {"name": TorchModule.name, "outcome": self.outcome, **(self.settings or {})}
        if module is not None:
            method["module"] = module
        names = None
        if self.predictors is not None:
            method["predictors"] = list(self.predictors)
            names = [self.outcome, *self.predictors]
        return self._job_of(tables, f"FedModule of {self.outcome}", method, names)
