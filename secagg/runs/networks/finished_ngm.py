"""A finished run of `fedngm` or `fedngr`: probabilities, predictions, modes, samples; own units.

Everything here is computed from the run's released result alone, so it reveals nothing more about
the records, and under differential privacy it uses no budget. It needs no torch.

    run = FinishedNgmRun.read(RunFolder.open_finished("runs/births"))
    run.query({"mage": 30, "habit": "smoker"}, ["weight", "premie"])

How probabilities are computed, and what they mean if the networks contradict each other:
`secagg.models.neural.ngm.fitted.sampling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import DataError, UsageError
from secagg.evidence.integrity import checked_result
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import Job
from secagg.jobs.registry import make_method
from secagg.models.common.posterior_summary import chains_agree
from secagg.models.common.shrinkage import shrunk_note
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.intervals import (
    LEVEL,
    mean_interval,
    probability_interval,
    sampling_errors,
)
from secagg.models.neural.ngm.fitted.model import FittedNgm
from secagg.models.neural.ngm.fitted.modes import column_mode, joint_mode, log_pseudo_likelihood
from secagg.models.neural.ngm.fitted.queries import Answer, predict, query
from secagg.models.neural.ngm.fitted.replicates import Replicates
from secagg.models.neural.ngm.fitted.sampling import Effort, shifts, start, sweep
from secagg.models.neural.ngm.layout import ngm_layout
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.ngm.revealer import ASK_THE_REFIT, FedNgr, refitted
from secagg.models.neural.torch_module import TorchModule
from secagg.runs.networks.cells import ModelCells
from secagg.runs.networks.sampling_error import note_on_ending, replicates, why_no_interval

if TYPE_CHECKING:
    import networkx as nx

QUERY_EFFORT = Effort(chains=40, warm_up=200, sweeps=1000)
PREDICT_EFFORT = Effort(chains=40, warm_up=50, sweeps=50)
SAMPLE_SWEEPS = 100
RESTARTS = 64
_SITES = ("a", "b")  # names for `public_facts`; they do not affect the result
_MAX_SAMPLES = 20_000  # that advance together


@dataclass(frozen=True)
class Prediction:
    """Estimates of one column for many records, and their Monte Carlo standard errors.

    Both tables have the columns mean and sd, or one column of probabilities for each level.
    """

    estimates: pd.DataFrame
    errors: pd.DataFrame


@dataclass(frozen=True, repr=False, eq=False)
class FinishedNgmRun:
    """The model of a finished run, and the declarations of its columns.

    networks: the method that fitted the model's networks
    records: number of records; 0 if queries have no intervals
    no_interval: why they have none, as a clause; "" if they have
    converged: False if the networks' training ended before, as the first note says
    """

    job: Job
    model: FittedNgm
    cells: ModelCells
    edges: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    networks: FedNgm
    records: int
    no_interval: str
    converged: bool = True

    @classmethod
    def of(cls, job: Job, result: Result) -> FinishedNgmRun:
        """Return the run of a result in memory. Raises `UsageError` for another method."""
        method = make_method(job.method)
        if not isinstance(method, FedNgm | FedNgr):
            what, advice = f"is a run of {job.method.name!r}", "Give one of 'fedngm' or 'fedngr'."
            if isinstance(method, TorchModule):
                advice += " In Python, FinishedModuleRun predicts from this run."
            raise UsageError("the run", what, advice)
        arrays = networks_of(method, result)
        public = public_facts(job, _SITES)
        layout = ngm_layout(public, method.variables)
        model = FittedNgm.of(layout, public, arrays)
        cells = ModelCells({name: job.columns[name] for name in layout.names})
        summary = result.summary
        networks = method if isinstance(method, FedNgm) else method.networks
        why = why_no_interval(networks, model, public, summary)
        records = 0 if why else int(summary["records"])
        edges, notes = tuple(summary["edges"]), tuple(map(str, summary["notes"]))
        if isinstance(method, FedNgr):  # that path norms are shrunk does not matter to a query
            notes = tuple(n for n in notes if n != shrunk_note("path norms", ASK_THE_REFIT))
        ended = summary.get("refit_status" if isinstance(method, FedNgr) else "status")
        if "converged" not in summary and (note := note_on_ending(ended)):
            notes = (note, *notes)
        of_run: Mapping[str, Any] = summary.get("run", summary)  # of a site's networks
        converged = bool(of_run.get("converged", True))
        return cls(job, model, cells, edges, notes, networks, records, why, converged)

    @classmethod
    def read(cls, run: RunFolder) -> FinishedNgmRun:
        """Read a run's folder. Raises `UsageError` for another method, `EvidenceError`."""
        job, result = checked_result(run)
        with run.well_formed("result"):
            return cls.of(job, result)

    def __repr__(self) -> str:
        return f"FinishedNgmRun({self.job.title!r}, columns: {len(self.cells.columns)})"

    @cached_property
    def conditionals(self) -> list[Conditional]:
        """Each column given all others."""
        return [
            Conditional(self.model, i, self.cells.logarithm(i)) for i in range(self.model.layout.d)
        ]

    @cached_property
    def shifts(self) -> dict[int, Array]:
        """Shifts of outputs with which samples have the pooled shares of levels."""
        return shifts(self.conditionals, np.random.default_rng(0))

    @cached_property
    def replicates(self) -> Replicates:
        """Replicates of the networks, for intervals."""
        return replicates(self.conditionals, self.networks, self.records, self.shifts)

    @property
    def graph(self) -> nx.Graph:
        """The columns and edges; an edge has its votes or its path norm, if there are any."""
        import networkx as nx  # noqa: PLC0415  # a query does not need it

        found = nx.Graph()
        found.add_nodes_from(self.cells.names)
        for edge in self.edges:
            found.add_edge(*edge["between"], **{k: v for k, v in edge.items() if k != "between"})
        return found

    def query(
        self,
        given: Mapping[str, Any],
        of: Sequence[str],
        *,
        effort: Effort = QUERY_EFFORT,
        random: RandomBytes = system_random,
    ) -> dict[str, Any]:
        """Return what is probable in a record of which some cells are given, as data for JSON.

        of: the columns to tell about. Raises `UsageError`, `DataError` as `ModelCells.read_one`.
        """
        values, clipped = self.cells.read_one(given)
        targets = self.cells.numbers(of, "of")
        for target in targets:
            if not np.isnan(values[target]):
                raise UsageError("of", f"column {self.cells.names[target]!r} is given")
        answers = self._answers(values, targets, effort, random)
        errors: dict[int, Array] = {}
        if not self.no_interval:
            shifted = self._shifts_for(values)
            rng = _rng(random)
            errors = sampling_errors(
                self.conditionals, self.replicates, values, targets, rng, shifted
            )
        return {
            "title": self.job.title,
            "given": self._cells_of(values),
            "clipped": clipped,
            "columns": [self._shown(answer, errors.get(answer.number)) for answer in answers],
            "interval": {"level": LEVEL, "unavailable": self.no_interval or None},
            "run": self._of_run,
        }

    @property
    def _of_run(self) -> dict[str, Any]:
        return {"converged": self.converged, "notes": list(self.notes)}

    def _shifts_for(self, values: Array) -> dict[int, Array] | None:
        return self.shifts if np.all(np.isnan(values)) else None

    def _answers(
        self, values: Array, targets: list[int], effort: Effort, random: RandomBytes
    ) -> list[Answer]:
        shifted = self._shifts_for(values)
        return query(self.conditionals, values, targets, effort, _rng(random), shifted)

    def _cells_of(self, values: Array) -> dict[str, float | str]:
        known = np.flatnonzero(~np.isnan(values))
        return {self.cells.names[i]: self.cells.cell(int(i), values[i]) for i in known}

    def _shown(self, answer: Answer, errors: Array | None) -> dict[str, Any]:
        name = self.cells.names[answer.number]
        mode = column_mode(self.conditionals[answer.number], answer)
        found: dict[str, Any] = {"column": name, "mode": self.cells.cell(answer.number, mode)}
        if answer.probabilities is None:
            keys = ("mean", "mean_error", "sd", "sd_error")
            found |= {key: float(getattr(answer, key)[0]) for key in keys}
            if errors is not None:
                found["mean_interval"] = mean_interval(found["mean"], float(errors[0]))
        else:
            assert answer.probabilities_error is not None
            shares = answer.probabilities[0], answer.probabilities_error[0]
            levels = zip(
                self.cells.levels(answer.number), *map(np.ndarray.tolist, shares), strict=True
            )
            found["levels"] = [{"level": n, "probability": p, "error": e} for n, p, e in levels]
            for level, error in zip(
                found["levels"], [] if errors is None else errors, strict=False
            ):
                level["interval"] = probability_interval(level["probability"], float(error))
        exact = answer.r_hat is None
        agree = exact or chains_agree(answer.r_hat)
        return found | {
            "exact": exact, "r_hat": answer.r_hat, "ess": answer.ess, "chains_agree": agree
        }  # fmt: skip

    def most_probable(
        self,
        given: Mapping[str, Any],
        *,
        how: Literal["jointly", "each"] = "jointly",
        random: RandomBytes = system_random,
    ) -> dict[str, Any]:
        """Return the most probable values of all other columns (MAP), with those given.

        how: "jointly": the most probable record; "each": the most probable value of each column
        """
        values, clipped = self.cells.read_one(given)
        found = {"title": self.job.title, "given": self._cells_of(values), "clipped": clipped}
        found["run"] = self._of_run
        if how == "jointly":
            mode = joint_mode(self.conditionals, values, RESTARTS, _rng(random))
            return found | {"values": self._cells_of(mode.values), "reached": mode.reached}
        unknown = [int(i) for i in np.flatnonzero(np.isnan(values))]
        for answer in self._answers(values, unknown, QUERY_EFFORT, random):
            values[answer.number] = column_mode(self.conditionals[answer.number], answer)
        return found | {"values": self._cells_of(values)}

    def predict(
        self,
        table: pd.DataFrame,
        targets: Sequence[str],
        *,
        effort: Effort = PREDICT_EFFORT,
        random: RandomBytes = system_random,
    ) -> dict[str, Prediction]:
        """Return estimates of the targets for each record, given its other cells.

        Cells may be missing, and the targets' own cells are not used.
        Raises `DataError` for cells that cannot be read, `UsageError` for unknown columns.
        """
        numbers = self.cells.numbers(targets, "targets")
        values = self.cells.read(table, "the table to predict")
        answers = predict(self.conditionals, values, numbers, effort, _rng(random))
        return {n: self._prediction(a, table.index) for n, a in zip(targets, answers, strict=True)}

    def _prediction(self, answer: Answer, index: pd.Index[Any]) -> Prediction:
        if answer.probabilities is None:
            estimates = np.column_stack([answer.mean, answer.sd])  # type: ignore[list-item]
            errors = np.column_stack([answer.mean_error, answer.sd_error])  # type: ignore[list-item]
            names = ["mean", "sd"]
        else:
            assert answer.probabilities_error is not None
            estimates, errors = answer.probabilities, answer.probabilities_error
            names = list(self.cells.levels(answer.number))
        return Prediction(*(pd.DataFrame(t, index, columns=names) for t in (estimates, errors)))

    def sample(
        self,
        n: int,
        *,
        decimals: Mapping[str, int] | None = None,
        sweeps: int = SAMPLE_SWEEPS,
        random: RandomBytes = system_random,
    ) -> pd.DataFrame:
        """Return n independent records of the model, in own units, with names of levels.

        decimals: for some continuous columns, the number of decimals to which they are recorded.
            The model does not know it: without it, all continuous columns are real numbers
        sweeps: of the chain that ends at each record, at least 1
        """
        for name, number in {"n": n, "sweeps": sweeps}.items():
            if number < 1:
                raise UsageError("sample", f"{name} = {number} is less than 1")
        rng, parts = _rng(random), []
        for begin in range(0, n, _MAX_SAMPLES):
            unknown = np.full((min(_MAX_SAMPLES, n - begin), self.model.layout.d), np.nan)
            states = self.model.states_of(unknown)
            start(self.conditionals, states, rng)
            for _ in range(sweeps):
                sweep(self.conditionals, states, rng, shifted=self.shifts)
            parts.append(self.model.values_of(states))
        return self.cells.written(np.concatenate(parts), decimals)

    def log_pseudo_likelihood(self, table: pd.DataFrame) -> Array:
        """Return each record's sum of log densities of a column given all others, in own units.

        Raises `DataError` for incomplete records, and as `predict`.
        """
        values = self.cells.read(table, "the table")
        if missing := int(np.isnan(values).any(axis=1).sum()):
            what = f"{missing} records lack a value"
            raise DataError("the table", what, "Leave them out.")
        return log_pseudo_likelihood(self.conditionals, values)


def networks_of(method: FedNgm | FedNgr, result: Result) -> Mapping[str, NDArray[Any]]:
    """Return the arrays of the networks that estimate. Raises `UsageError` if there are none."""
    edges = "edges = the pairs that the run found"
    if isinstance(method, FedNgr):
        found = refitted(result.arrays)
        if not found:
            what = "has no refit: the penalties shrink the network that found the graph"
            advice = f"Run 'fedngr' with refit = true, or 'fedngm' with {edges}."
            raise UsageError("the run", what, advice)
        return found
    if method.network != "masked":
        what = f"has network = {method.network!r}, whose outputs copy the column that they predict"
        advice = f"Run 'fedngm' with network = \"masked\" and {edges}."
        raise UsageError("the run", what, advice)
    return result.arrays


def _rng(random: RandomBytes) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(random(16), "little"))
