"""A site adds its own columns to the networks of a finished run of `fedngm` or `fedngr`.

`secagg.models.neural.ngm.site_fits.stitching` describes the model. Only the run's folder is read,
and the site's records stay at the site.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logsumexp

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes, system_random
from secagg.errors import JobError
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.records_to_predict import SITES
from secagg.models.neural.ngm.fitted.model import FittedNgm
from secagg.models.neural.ngm.fitted.residuals import count_residuals
from secagg.models.neural.ngm.layout import NgmLayout, edge_positions, ngm_layout
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.settings import STRONG_PENALTY, WEAK_PENALTY
from secagg.models.neural.ngm.site_fits.stitching import StitchedNetwork, own_units
from secagg.models.neural.site_graphs import site_graph
from secagg.models.neural.torch_import import require_torch
from secagg.runs.adapt.finished_networks import FinishedNetworks, records_here
from secagg.runs.adapt.own_columns import OwnColumns
from secagg.runs.adapt.site_networks import SiteNetworks

_MIN_RECORDS: Final = 2


def stitch(
    run: FinishedNetworks,
    table: pd.DataFrame,
    own: OwnColumns,
    *,
    penalty: float | None = None,
    random: RandomBytes = system_random,
) -> SiteNetworks:
    """Return the run's networks with those of the site's own columns.

    table: like a site's file, with the columns of the model and the site's own
    penalty: precision of the prior on the added hidden layers; None for that of the run's job or,
        if it sets none, for the default that `fedngm` has for such edges
    random: for the first weights of hidden layers
    Raises `DataError` for a table that does not fit, `JobError` for columns or edges that do not.
    """
    require_torch(run.method.name)
    job = run.with_columns(own.columns)
    public = public_facts(job, SITES)
    layout = ngm_layout(public, [*run.shared.layout.names, *own.columns])
    rows = records_here(job, public, table, _MIN_RECORDS)
    u, p = rows.values[:, list(layout.chosen)], run.shared.layout.variables
    graph = _graph(layout, run.shared, own, u)
    centre, scale = own_units(u[:, p:])
    network = StitchedNetwork(
        run.shared, run.theta, layout, graph,
        np.concatenate([run.shared.centre, centre]), np.concatenate([run.shared.scale, scale]),
        own.into_shared,
    )  # fmt: skip
    seed = int.from_bytes(random(8), "little")
    linear = run.method.linear_penalty
    if penalty is None:
        penalty = run.method.penalty
    if penalty is None:
        penalty = STRONG_PENALTY if own.edges == "all" else WEAK_PENALTY
    theta = network.fit(rows.values, penalty, linear, seed)
    arrays: dict[str, NDArray[Any]] = {
        **network.as_one(theta), "graph": graph.astype(np.uint8),
        "centre": network.centre, "scale": network.scale,
    }  # fmt: skip
    arrays |= _residuals(run, network, FittedNgm.of(layout, public, arrays), u)
    summary = _summary(run, network, FittedNgm.of(layout, public, arrays), u)
    details = {"into_shared": own.into_shared, "penalty": penalty}
    return SiteNetworks(
        job, run.session, Result(summary, arrays), tuple(own.columns), len(u), rows.remarks, details
    )


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


def _residuals(
    run: FinishedNetworks, network: StitchedNetwork, model: FittedNgm, u: Array
) -> dict[str, Array]:
    """Return counts of residuals, if the run has them: its own where outputs did not change."""
    if "residuals" not in run.arrays:
        return {}
    continuous, z = network.layout.continuous, ((u - network.centre) * network.scale).T
    outputs = model.outputs(z)[continuous]
    counts = count_residuals(z[continuous], outputs, model.sd)
    changed = np.any(network.added.graph[network.layout.column_of[continuous]], axis=1)
    for i, before in enumerate(run.arrays["residuals"]):
        if not changed[i]:
            counts[i] = before
    return {"residuals": counts}


def _summary(
    run: FinishedNetworks, network: StitchedNetwork, model: FittedNgm, u: Array
) -> dict[str, Any]:
    """Return what a run's summary has, and how well each new column is predicted."""
    layout, old = network.layout, [dict(edge) for edge in run.edges]
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
        "notes": list(run.notes),
        "run": {"converged": run.converged, "notes": list(run.notes)},
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
