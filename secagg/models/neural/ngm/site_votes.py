"""The graph that a site brings: recovered from its own records, or named by its experts.

Chajewska and Shrivastava (2023), section 2.1. Experts name a graph in a file of the site's own
(`secagg.jobs.expert_edges`). Its edges between columns of the model are the site's votes, in place
of those that its records would give (`secagg.models.neural.site_graphs`). In the sum nobody sees
which sites' votes are experts'. A site without a complete record has no votes, not even experts'.
"""

from __future__ import annotations

import numpy as np

from secagg.contracts import SiteRecords
from secagg.core.arrays import Array
from secagg.models.neural.graph_votes import pack
from secagg.models.neural.ngm.layout import NgmLayout, edge_positions
from secagg.models.neural.site_graphs import Recovery, site_graph


def site_votes(layout: NgmLayout, rows: SiteRecords, recovery: Recovery, alpha: float) -> Array:
    """Return a site's votes, 0 or 1 for each pair of columns. alpha: level of each test."""
    u = rows.values[:, list(layout.chosen)]
    if rows.expert_edges is None or not len(u):
        columns = [column.positions for column in layout.columns]
        return pack(site_graph(u, columns, recovery, alpha=alpha))
    inside = [pair for pair in rows.expert_edges if set(pair) <= set(layout.names)]
    return np.asarray(edge_positions(layout, inside, "edges").astype(np.float64))
