"""A finished run of `torch_module`: the trained module, and predictions in the columns' own units.

    run = FinishedModuleRun.read(RunFolder.open_finished("runs/weights"))
    run.predict(records)

Everything here is computed from the run's released result alone, so it reveals nothing more about
the records, and under differential privacy it uses no budget. It needs torch, and the package with
the module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from secagg.contracts import PublicFacts, Result
from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.evidence.integrity import checked_result
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.columns import Continuous, Number
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import Job
from secagg.jobs.records_to_predict import SITES, in_own_units
from secagg.jobs.registry import make_method
from secagg.models.neural.module_learner import ModuleLearner
from secagg.models.neural.torch_import import require_torch
from secagg.models.neural.torch_module import TorchModule

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, repr=False, eq=False)
class FinishedModuleRun:
    """The module of a finished run, and the declarations of its columns.

    arrays: the parameters, by name
    """

    job: Job
    public: PublicFacts
    learner: ModuleLearner
    arrays: Mapping[str, Array]

    @classmethod
    def of(cls, job: Job, result: Result) -> FinishedModuleRun:
        """Return the run of a result in memory. Raises `UsageError` for another method."""
        method = make_method(job.method)
        if not isinstance(method, TorchModule):
            what = f"is a run of {job.method.name!r}"
            raise UsageError("the run", what, f"Give one of {TorchModule.name!r}.")
        require_torch(method.name)
        public = public_facts(job, SITES)
        learner = method.learner(public)
        return cls(job, public, learner, result.arrays)

    @classmethod
    def read(cls, run: RunFolder) -> FinishedModuleRun:
        """Read a run's folder. Raises `UsageError` for another method, `EvidenceError`."""
        job, result = checked_result(run)
        with run.well_formed("result"):
            return cls.of(job, result)

    def __repr__(self) -> str:
        return f"FinishedModuleRun({self.job.title!r}, parameters: {self.learner.blocks.size})"

    @property
    def module(self) -> nn.Module:
        """A copy of the trained module, in float64.

        It reads variables and returns outputs as `torch_module` documents.
        """
        return self.learner.trained(self.arrays)

    @property
    def levels(self) -> tuple[str, ...]:
        """The outcome's levels; none for a continuous outcome."""
        column = self.job.columns[self._outcome]
        return () if isinstance(column, Number) else tuple(column.levels)

    def predict(self, table: pd.DataFrame) -> pd.Series:
        """Return each record's predicted outcome, or its likeliest level.

        If the job takes the outcome's logarithm, this is exp of the predicted logarithm.
        Raises `DataError` for records that lack a predictor, or a table that does not fit.
        """
        outputs = self._outputs(table)
        if self.levels:
            names = np.array(self.levels, dtype=object)
            return pd.Series(names[outputs.argmax(axis=1)], table.index, name=self._outcome)
        variable = self.public.variables[self.learner.outcome[0]]
        found = variable.midpoint + variable.half_range * outputs[:, 0]
        column = self.job.columns[self._outcome]
        if isinstance(column, Continuous) and column.transform == "log":
            found = np.exp(found)
        return pd.Series(found, table.index, name=self._outcome)

    def predict_proba(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return each level's probability. Raises as `predict`; `UsageError` without levels."""
        if not self.levels:
            what = f"column {self._outcome!r} is continuous"
            raise UsageError("predict_proba", what, "Use predict.")
        outputs = self._outputs(table)
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        shares = powers / powers.sum(axis=1, keepdims=True)
        return pd.DataFrame(shares, table.index, list(self.levels))

    @property
    def _outcome(self) -> str:
        return self.public.variables[self.learner.outcome[0]].column

    def _outputs(self, table: pd.DataFrame) -> Array:
        read = list(self.learner.predictors)
        variables = [self.public.variables[i] for i in read]
        own = in_own_units(self.job, variables, table, "a predictor")
        scaled = np.zeros((len(own), len(self.public.variables)))
        middle = np.array([variable.midpoint for variable in variables])
        scaled[:, read] = (own - middle) / np.array([v.half_range for v in variables])
        return self.learner.outputs_for(self.arrays, scaled)
