"""The networks of a finished run of `fedngm` or `fedngr`, which a site fits or adds to.

Of `fedngr` they are those of its refit. Only the run's folder is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import pandas as pd
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, Result, SiteRecords
from secagg.core.arrays import Array
from secagg.errors import DataError, JobError
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.columns import Column
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import Job
from secagg.jobs.records_to_predict import SITES
from secagg.jobs.registry import Named, make_method
from secagg.models.neural.ngm.layout import ngm_layout
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.ngm.revealer import FedNgr
from secagg.runs.networks.finished_ngm import FinishedNgmRun, networks_of


@dataclass(frozen=True, eq=False)
class FinishedNetworks:
    """The parts of a finished run that a site needs to fit its networks, or to add to them.

    job: with the columns of the model only; its method is `fedngm`, with the settings of the
        method that fitted the networks
    shared, theta: the networks, and their parameters
    arrays: the networks, the graph, the units and, if counted, the residuals
    """

    job: Job
    session: str
    method: FedNgm
    shared: MaskedNetwork
    theta: Array
    arrays: Mapping[str, NDArray[Any]]
    edges: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    converged: bool

    @classmethod
    def read(cls, run: RunFolder) -> Self:
        """Read a run's folder. Raises `UsageError` for another method or network."""
        FinishedNgmRun.read(run)  # checks method, network and arrays
        return cls.of(run.job, run.result, run.session)

    @classmethod
    def of(cls, job: Job, result: Result, session: str = "") -> Self:
        """Return the parts of a run whose result is in memory. Raises `UsageError` as `read`."""
        finished, fitted = FinishedNgmRun.of(job, result), make_method(job.method)
        assert isinstance(fitted, FedNgm | FedNgr)  # or `FinishedNgmRun` would have raised
        arrays, method = networks_of(fitted, result), replace(finished.networks, variables=None)
        names = finished.cells.names
        columns = {name: column for name, column in job.columns.items() if name in names}
        job = _with_columns(job, method, columns, names)
        layout, graph = ngm_layout(public_facts(job, SITES), names), arrays["graph"] != 0
        curved = arrays["curved"] != 0 if "curved" in arrays else None
        units = arrays["centre"], arrays["scale"]
        shared = MaskedNetwork(layout, method.hidden, graph, *units, curved=curved)
        theta = shared.blocks.join({name: arrays[name] for name in shared.blocks.slices})
        return cls(job, session, method, shared, theta, arrays, finished.edges, finished.notes,
                   finished.converged)  # fmt: skip

    def with_columns(self, own: Mapping[str, Column]) -> Job:
        """Return the job with a site's own columns last. Raises `JobError` for a known name."""
        for name in own:
            if name in self.job.columns:
                what = "is a column of the run already"
                raise JobError(f"columns.{name}", what, "Declare new columns only.")
        names = [*self.shared.layout.names, *own]
        return _with_columns(self.job, self.method, {**self.job.columns, **own}, names)


def _with_columns(job: Job, method: FedNgm, columns: Mapping[str, Column], names: list[str]) -> Job:
    """Return the job with these columns, of which the model has those named, in this order."""
    default = asdict(FedNgm())
    settings = {k: v for k, v in asdict(method).items() if v != default[k]}
    named = Named(name=method.name, **{**settings, "variables": names})
    return job.model_copy(
        update={"columns": dict(columns), "method": named, "partial": {}, "public": None}
    )


def records_here(job: Job, public: PublicFacts, table: pd.DataFrame, smallest: int) -> SiteRecords:
    """Return a site's complete records, scaled, and not shortened as for a run with noise.

    Raises `DataError` for a table that does not fit, and for fewer than `smallest` records.
    """
    public = replace(public, clip=None, max_rows=max(public.max_rows, len(table)))
    rows = read_rows(job.columns, table, public, "the new site")
    if len(rows.values) < smallest:
        what = f"has {len(rows.values)} complete records, and at least {smallest} are required"
        raise DataError("the new site", what)
    return rows
