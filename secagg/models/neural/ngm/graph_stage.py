"""The first sum of a neural graphical model, and what follows from it: edges, inputs and units.

The sites sum their moments, or their votes for edges with sums and squares, as the settings say.
The coordinator chooses the graph, which columns networks read, and means and standard deviations.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from secagg.contracts import Field, Kind, SiteRecords, Stage, State, Update
from secagg.models.common.units import records_in
from secagg.models.neural.graph_votes import merge, shown, vote_level
from secagg.models.neural.ngm.layout import NgmLayout, edge_positions
from secagg.models.neural.ngm.pooled_graph import (
    MOMENTS,
    PooledRecords,
    moments_field,
    moments_sum,
)
from secagg.models.neural.ngm.settings import NgmSettings
from secagg.models.neural.ngm.site_votes import site_votes
from secagg.models.neural.ngm.standardisation import (
    centre_and_scale,
    standardisation_fields,
    standardisation_sums,
)

GRAPH: Final = "graph"
INPUTS_NOTE: Final = (
    "Networks also read, as linear terms, columns that the graph does not join "
    "(`linear_inputs`): they improve predictions, but are no edges. So predictions and queries do "
    "not assume the independences of the graph."
)


def graph_stage(settings: NgmSettings, layout: NgmLayout, rows: float) -> Stage:
    """Declare the sum. rows: the largest number of records at a site."""
    spec = [Field("records", (1,), rows, 0, Kind.COUNT)]
    sees = "the number of records"
    if settings.sums_moments:
        spec.append(moments_field(layout.variables, rows))
        sees += ", sums and cross products of all variables"
    elif settings.standardise:
        spec += standardisation_fields(layout.variables, rows)
        sees += ", each variable's sum and sum of squares"
    if settings.edges == "votes":
        spec.append(Field("votes", (len(layout.pairs[0]),), 1.0, 0, Kind.COUNT))
        sees += ", and for each pair of columns the number of sites with this edge"
    return Stage(GRAPH, tuple(spec), 1, sees)


def graph_sums(settings: NgmSettings, layout: NgmLayout, rows: SiteRecords, sites: int) -> Update:
    """Return a site's part."""
    u = rows.values[:, list(layout.chosen)]
    update = {"records": np.array([float(len(u))])}
    if settings.sums_moments:
        update |= moments_sum(u)
    elif settings.standardise:
        update |= standardisation_sums(u)
    if settings.edges == "votes":
        pairs, votes = len(layout.pairs[0]), settings.votes
        alpha = vote_level(pairs, sites, votes, settings.false_edges)
        update["votes"] = site_votes(layout, rows, settings.recovery, alpha)
    return update


def after_graph(
    settings: NgmSettings, layout: NgmLayout, total: Update
) -> tuple[State, State, int | None]:
    """Return what is found, what sites are told, and the number of records.

    total: the sum; empty if there is none because of noise
    found: votes and edges, shape (pairs,)
    told: the columns that each network reads ("graph"), those of them that have curves if these are
        fewer ("curved"), centre and scale
    """
    records = records_in(total) if total else None
    pooled = PooledRecords(total[MOMENTS], layout) if MOMENTS in total else None
    centre, scale = np.zeros(layout.variables), np.ones(layout.variables)
    if records is not None and settings.standardise:
        centre, scale = centre_and_scale(pooled.sums if pooled else total, records)
    votes = total["votes"] if settings.edges == "votes" else np.zeros(len(layout.pairs[0]))
    if pooled and settings.edges == "pooled":
        edges = pooled.graph(settings.recovery, settings.false_edges)[layout.pairs]
    elif settings.edges == "votes":
        edges = merge(votes, settings.votes)
    elif isinstance(settings.edges, str):
        edges = np.ones(len(votes), dtype=np.bool_)
    else:
        edges = edge_positions(layout, settings.edges, "method.edges")
    graph = layout.graph(edges)
    told: State = {"graph": graph.astype(np.uint8), "centre": centre, "scale": scale}
    if settings.reads != "neighbours":
        by_aic = pooled is not None and settings.reads == "aic"
        more = pooled.kept_by_aic() if pooled and by_aic else ~np.eye(layout.d, dtype=np.bool_)
        told |= {"graph": (graph | more).astype(np.uint8), "curved": graph.astype(np.uint8)}
    found = {"votes": votes, "edges": edges.astype(np.uint8)}
    return found, told, records


def listed_edges(
    settings: NgmSettings, layout: NgmLayout, state: State, min_sites: int
) -> list[dict[str, Any]]:
    """Return the edges for a result, with votes that may be shown."""
    found = state.get("edges", state["facts"]["graph"][layout.pairs])
    counts = shown(state["votes"], min_sites)
    return [
        {
            "between": [layout.names[i], layout.names[j]],
            **({} if settings.edges != "votes" else {"votes": count}),
        }
        for i, j, edge, count in zip(*layout.pairs, found, counts, strict=True)
        if edge
    ]


def linear_inputs(layout: NgmLayout, facts: State) -> list[list[str]]:
    """Return the pairs of columns whose networks read each other although they have no edge."""
    beyond = facts["graph"] > facts["curved"]
    return [[layout.names[i], layout.names[j]] for i, j in np.argwhere(np.triu(beyond))]
