"""A site adds its own columns to the networks of a finished run of `fedngm`.

`secagg.models.neural.ngm.stitching` describes the model. Only the run's folder is read, and the
site's records stay at the site.

Not protected: the result may contain the values of single records of this site in recognisable
form. It belongs to the site. This step adds no noise, even if the run itself had noise.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logsumexp

from secagg.contracts import PublicFacts, Result, SiteRecords
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import DataError, EvidenceError, JobError, UsageError
from secagg.evidence.run_folder import MALFORMED_ERRORS, RunFolder
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import Job, Named, parse_job
from secagg.jobs.records_to_predict import SITES
from secagg.jobs.registry import make_method
from secagg.models.neural.ngm.fitted.model import FittedNgm
from secagg.models.neural.ngm.fitted.residuals import count_residuals
from secagg.models.neural.ngm.layout import NgmLayout, edge_positions, ngm_layout
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.ngm.settings import STRONG_PENALTY
from secagg.models.neural.ngm.stitching import StitchedNetwork, own_units
from secagg.models.neural.site_graphs import site_graph
from secagg.models.neural.torch_import import require_torch
from secagg.runs.adapt.own_columns import OwnColumns
from secagg.runs.networks.finished_ngm import FinishedNgmRun

_MIN_RECORDS = 2


@dataclass(frozen=True, repr=False, eq=False)
class StitchedSite:
    """A run's networks with those of a site's own columns.

    job: the run's, with the new columns; result: in the form of a run of `fedngm`
    """

    job: Job
    session: str
    own: OwnColumns
    result: Result
    records: int
    remarks: tuple[str, ...]

    def __repr__(self) -> str:
        return f"StitchedSite({self.job.title!r}, new columns: {', '.join(self.own.columns)})"

    @property
    def model(self) -> FinishedNgmRun:
        """The model of all columns, for queries, predictions and samples."""
        return FinishedNgmRun.of(self.job, self.result)

    def arrays_file(self) -> bytes:
        """Return the networks of all columns as an NPZ file, like arrays.npz of a run."""
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **self.result.arrays)
        return file.getvalue()

    def summary(self) -> dict[str, Any]:
        """Return plain data for JSON; with the arrays, `read_stitched` restores the model."""
        return {
            "title": self.job.title,
            "session": self.session,
            "records_here": self.records,
            "into_shared": self.own.into_shared,
            "remarks": list(self.remarks),
            "logarithms": [],
            **self.result.summary,
            "job": self.job.model_dump(mode="json"),
        }

    def predictions(
        self, table: pd.DataFrame, random: RandomBytes = system_random
    ) -> dict[str, Array]:
        """Return estimates of the new columns for each record, given its other cells.

        Keys: NAME_mean and NAME_sd of a continuous column, NAME=LEVEL for a level's probability.
        Cells may be missing. Raises `DataError` for a table that does not fit.
        """
        found: dict[str, Array] = {}
        for name, answer in self.model.predict(
            table, list(self.own.columns), random=random
        ).items():
            link = "_" if list(answer.estimates) == ["mean", "sd"] else "="
            for part, values in answer.estimates.items():
                found[f"{name}{link}{part}"] = values.to_numpy()
        return found


@dataclass(frozen=True, eq=False)
class FinishedNetworks:
    """The parts of a finished run that a site with further columns needs.

    job: with the columns of the model only
    """

    job: Job
    session: str
    method: FedNgm
    shared: MaskedNetwork
    frozen: Array
    result: Result

    @classmethod
    def read(cls, run: RunFolder) -> Self:
        """Read a run's folder. Raises `UsageError` for another method or network."""
        FinishedNgmRun.read(run)  # checks method, network and arrays
        return cls.of(run.job, run.result, run.session)

    @classmethod
    def of(cls, job: Job, result: Result, session: str = "") -> Self:
        """Return the parts of a run whose result is in memory. Raises `UsageError` as `read`."""
        finished = FinishedNgmRun.of(job, result)
        names, arrays = finished.cells.names, result.arrays
        columns = {name: column for name, column in job.columns.items() if name in names}
        job = job.model_copy(update={"columns": columns, "method": _with_variables(job, names)})
        method = make_method(job.method)
        assert isinstance(method, FedNgm)
        layout, graph = ngm_layout(public_facts(job, SITES), names), arrays["graph"] != 0
        curved = arrays["curved"] != 0 if "curved" in arrays else None
        units = arrays["centre"], arrays["scale"]
        shared = MaskedNetwork(layout, method.hidden, graph, *units, curved=curved)
        return cls(job, session, method, shared, shared.blocks.join(arrays), result)

    def with_columns(self, own: OwnColumns) -> Job:
        """Return the job with a site's own columns last. Raises `JobError` for a known name."""
        for name in own.columns:
            if name in self.job.columns:
                what = "is a column of the run already"
                raise JobError(f"columns.{name}", what, "Declare new columns only.")
        columns = {**self.job.columns, **own.columns}
        names = [*self.shared.layout.names, *own.columns]
        method = _with_variables(self.job, names)
        return self.job.model_copy(update={"columns": columns, "method": method})


def stitch(
    run: FinishedNetworks,
    table: pd.DataFrame,
    own: OwnColumns,
    *,
    random: RandomBytes = system_random,
) -> StitchedSite:
    """Return the run's networks with those of the site's own columns.

    table: like a site's file, with the columns of the model and the site's own
    random: for the first weights of hidden layers
    Raises `DataError` for a table that does not fit, `JobError` for columns or edges that do not.
    """
    require_torch(run.method.name)
    job = run.with_columns(own)
    public = public_facts(job, SITES)
    layout = ngm_layout(public, [*run.shared.layout.names, *own.columns])
    rows = _records(job, public, table)
    u, p = rows.values[:, list(layout.chosen)], run.shared.layout.variables
    graph = _graph(layout, run.shared, own, u)
    centre, scale = own_units(u[:, p:])
    network = StitchedNetwork(
        run.shared, run.frozen, layout, graph,
        np.concatenate([run.shared.centre, centre]), np.concatenate([run.shared.scale, scale]),
        own.into_shared,
    )  # fmt: skip
    method = run.method
    seed = int.from_bytes(random(8), "little")
    penalty = STRONG_PENALTY if method.penalty is None else method.penalty  # few records
    theta = network.fit(rows.values, penalty, method.linear_penalty, seed)
    arrays: dict[str, NDArray[Any]] = {
        **network.as_one(theta), "graph": graph.astype(np.uint8),
        "centre": network.centre, "scale": network.scale,
    }  # fmt: skip
    arrays |= _residuals(run, network, FittedNgm.of(layout, public, arrays), u)
    summary = _summary(run, network, FittedNgm.of(layout, public, arrays), u)
    result = Result(summary, arrays)
    return StitchedSite(job, run.session, own, result, len(u), rows.remarks)


def _with_variables(job: Job, names: list[str]) -> Named:
    """Return the job's method with these columns."""
    return Named(name=job.method.name, **{**job.method.settings, "variables": names})


def _graph(
    layout: NgmLayout, shared: MaskedNetwork, own: OwnColumns, u: Array
) -> NDArray[np.bool_]:
    """Return the edges of the run and the new ones, shape (columns, columns)."""
    d = shared.layout.d
    graph = ~np.eye(layout.d, dtype=np.bool_)
    if own.edges == "site":
        columns = [column.positions for column in layout.columns]
        graph = site_graph(u, columns, "partial_correlation")
    elif own.edges != "all":
        for one, other in own.edges:
            if one not in own.columns and other not in own.columns:
                what = f"the edge {one!r} - {other!r} has no new column"
                raise JobError("edges", what, "The run decides on edges between its own columns.")
        graph = layout.graph(edge_positions(layout, own.edges, "edges"))
    graph[:d, :d] = shared.graph
    return graph


def _records(job: Job, public: PublicFacts, table: pd.DataFrame) -> SiteRecords:
    """Return the site's complete records, scaled, and not shortened as for a run with noise."""
    public = replace(public, clip=None, max_rows=max(public.max_rows, len(table)))
    rows = read_rows(job.columns, table, public, "the new site")
    if len(rows.values) < _MIN_RECORDS:
        what = f"has {len(rows.values)} complete records, and at least {_MIN_RECORDS} are required"
        raise DataError("the new site", what)
    return rows


def _residuals(
    run: FinishedNetworks, network: StitchedNetwork, model: FittedNgm, u: Array
) -> dict[str, Array]:
    """Return counts of residuals, if the run has them: its own where outputs did not change."""
    if "residuals" not in run.result.arrays:
        return {}
    continuous, z = network.layout.continuous, ((u - network.centre) * network.scale).T
    outputs = model.outputs(z)[continuous]
    counts = count_residuals(z[continuous], outputs, model.sd)
    changed = np.any(network.added.graph[network.layout.column_of[continuous]], axis=1)
    for i, before in enumerate(run.result.arrays["residuals"]):
        if not changed[i]:
            counts[i] = before
    return {"residuals": counts}


def _summary(
    run: FinishedNetworks, network: StitchedNetwork, model: FittedNgm, u: Array
) -> dict[str, Any]:
    """Return what a run's summary has, and how well each new column is predicted."""
    layout, old = network.layout, list(run.result.summary["edges"])
    names = layout.names
    new = [
        {"between": [names[i], names[j]]}
        for i, j in zip(*layout.pairs, strict=True)
        if network.graph[i, j] and j >= run.shared.layout.d
    ]
    outputs = model.outputs(((u - network.centre) * network.scale).T)
    rows = []
    for number in range(run.shared.layout.d, layout.d):
        column = layout.columns[number]
        reads = [names[i] for i in np.flatnonzero(network.graph[number])]
        explained = _explained(model, number, outputs, u)
        rows.append({"column": column.name, "reads": reads, "explained": explained})
    return {
        "method": run.method.name,
        "names": list(names),
        "edges": [*old, *new],
        "new_columns": rows,
        "parameters": int(np.sum(network.free)),
        "notes": list(run.result.summary["notes"]),
    }


def _explained(model: FittedNgm, number: int, outputs: Array, u: Array) -> float | None:
    """Return R^2, or McFadden's pseudo-R^2 for levels, in the records fitted; None if constant."""
    positions = list(model.layout.columns[number].positions)
    if not model.layout.columns[number].indicator:
        z = (u[:, positions[0]] - model.centre[positions[0]]) * model.scale[positions[0]]
        total = float(np.sum(z**2))
        return 1 - float(np.sum((z - outputs[positions[0]]) ** 2)) / total if total > 0 else None
    on = u[:, positions] > 0
    level = np.where(on.any(axis=1), on.argmax(axis=1) + 1, 0)
    shares = np.bincount(level, minlength=len(positions) + 1) / len(level)
    if np.max(shares) == 1:
        return None
    logits = np.vstack([np.zeros(len(u)), outputs[positions]])
    found = np.sum(logits[level, np.arange(len(u))] - logsumexp(logits, axis=0))
    return 1 - float(found / np.sum(np.log(shares[level])))


def read_stitched(path: str | Path) -> FinishedNgmRun:
    """Return the model that `secagg adapt --out` wrote: JSON, and arrays in an NPZ file beside it.

    Raises `EvidenceError` if a file is missing or malformed.
    """
    path = Path(path)
    try:
        summary = json.loads(path.read_bytes())
        with path.with_suffix(".npz").open("rb") as file, np.load(file) as arrays:
            return FinishedNgmRun.of(parse_job(summary["job"]), Result(summary, dict(arrays)))
    except OSError as error:
        raise EvidenceError(str(path), f"cannot be read ({error.strerror})") from None
    except (UsageError, *MALFORMED_ERRORS) as error:
        raise EvidenceError(str(path), "is malformed") from error
