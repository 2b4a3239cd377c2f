"""The graph of the pooled records, and whether networks read its neighbours or all columns.

Both come from one secure sum of moments: the number of records, sums and cross products of the
encoded variables (indicators for levels).

The graph is recovered as a site would recover its own (`secagg.models.neural.site_graphs`), but
from all records. So no site's graph is voted on, and nothing depends on how records are split.

The inputs. A graph and good predictions are two aims. The graph that is right with few errors drops
weak dependences, and each dropped column costs accuracy; the graph that predicts best has many
edges that are not there (Meinshausen and Buehlmann, Annals of Statistics 2006, section 3). So the
networks need not read the graph's neighbours only: `inputs = "best"` compares these with all other
columns by the expected log-likelihood of new records. For linear predictions it is a function of
the same moments. For column c with q variables, and k - 1 variables that it reads,

    AICc = n (log det Sigma_c + q) + n (2 k q + q (q + 1)) / (n - k - q - 1)                     (1)

(Bedrick and Tsai, Biometrics 1994), where Sigma_c is the residual covariance of c's variables;
infinite if the last divisor is not positive. AICc is summed over columns, as the loss is. Choosing
by AIC is asymptotically choosing by leave-one-out likelihood (Stone, JRSS B 1977), and needs no sum
over a part of the records: sums of held-out fifths would tell more (docs/adr/034). As elsewhere,
(n R + I) / (n + 1) stands in place of the correlation matrix R: the prior of precision 1.

Assumes: levels are judged by the likelihood of normal variables, and dependences by their linear
part. What networks gain by curves is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Field, Kind, Update
from secagg.core.arrays import Array
from secagg.models.common.clipped_moments import upper_moments
from secagg.models.common.units import SQUARES_BITS
from secagg.models.neural.association_tests import rarity_of_share
from secagg.models.neural.graph_votes import vote_level
from secagg.models.neural.ngm.layout import NgmLayout
from secagg.models.neural.ngm.standardisation import MIN_VARIANCE
from secagg.models.neural.site_graphs import MIN_RECORDS, Recovery, graph_of_correlations

MOMENTS: Final = "moments"
Inputs = Literal["neighbours", "all", "best"]
Graph = NDArray[np.bool_]


def moments_field(variables: int, rows: float) -> Field:
    """Declare the sum. |z_j z_k| <= 1, so no entry is above a site's largest number of records."""
    m = variables + 1
    return Field(MOMENTS, (m * (m + 1) // 2,), rows, SQUARES_BITS, Kind.PSD)


def moments_sum(u: Array) -> Update:
    """Return a site's part. u: the model's variables, scaled, shape (records, variables)."""
    return {MOMENTS: upper_moments(u, 1.0)}


class PooledRecords:
    """The number of all records, and the means and correlations of their variables."""

    def __init__(self, upper: Array, layout: NgmLayout) -> None:
        m = layout.variables + 1
        M = np.zeros((m, m))
        M[np.triu_indices(m)] = upper
        M = M + np.triu(M, 1).T
        self.layout, self.n = layout, round(float(M[0, 0]))
        self.sums: Update = {"sums": M[0, 1:], "squares": np.diagonal(M)[1:]}
        mean = M[0, 1:] / self.n
        covariance = M[1:, 1:] / self.n - np.outer(mean, mean)
        self.varying = np.flatnonzero(np.diagonal(covariance) > MIN_VARIANCE)
        self.owner = layout.column_of[self.varying]
        deviation = np.sqrt(np.diagonal(covariance)[self.varying])
        R = covariance[np.ix_(self.varying, self.varying)] / np.outer(deviation, deviation)
        self.R: Array = np.clip(R, -1.0, 1.0)
        np.fill_diagonal(self.R, 1.0)
        indicators = np.setdiff1d(np.arange(layout.variables), layout.continuous)
        share = np.full(layout.variables, np.nan)
        share[indicators] = (1 + mean[indicators]) / 2  # an indicator is -1 or 1
        self.rarity = rarity_of_share(share[self.varying])

    def graph(self, recovery: Recovery, false_edges: float) -> Graph:
        """Return the graph, shape (columns, columns).

        false_edges: as for `vote_level`, of which one voter decides
        """
        d = self.layout.d
        if self.n < MIN_RECORDS or len(self.varying) < 2:
            return np.zeros((d, d), dtype=np.bool_)
        alpha = vote_level(len(self.layout.pairs[0]), 1, 1, false_edges)
        return graph_of_correlations(self.R, self.n, self.owner, self.rarity, d, recovery, alpha)

    def information_criterion(self, graph: Graph) -> float:
        """Return the sum of (1) over columns, for networks that read a graph's neighbours."""
        n, total = self.n, 0.0
        lifted = (n * self.R + np.eye(len(self.R))) / (n + 1)
        for column in range(self.layout.d):
            own = np.flatnonzero(self.owner == column)
            read = np.flatnonzero(graph[column][self.owner])
            q, k = len(own), len(read) + 1
            if not q:  # constant
                continue
            if n <= k + q + 1:
                return math.inf
            cross = lifted[np.ix_(read, own)]
            explained = cross.T @ np.linalg.solve(lifted[np.ix_(read, read)], cross)
            _, log_det = np.linalg.slogdet(lifted[np.ix_(own, own)] - explained)
            total += n * (log_det + q) + n * (2 * k * q + q * (q + 1)) / (n - k - q - 1)
        return total


def read_columns(
    graph: Graph, inputs: Inputs, pooled: PooledRecords | None
) -> tuple[Graph, dict[str, Any]]:
    """Return which columns each column's network reads, (d, d), and what the result says of it.

    graph: the one found; pooled: with inputs = "best"
    """
    every = ~np.eye(len(graph), dtype=np.bool_)
    if inputs == "neighbours":
        return graph, {}
    if inputs == "all" or pooled is None:
        return every, {"inputs": "all"}
    criteria = {
        name: pooled.information_criterion(read)
        for name, read in (("neighbours", graph), ("all", every))
    }
    chosen = "all" if criteria["all"] < criteria["neighbours"] else "neighbours"
    finite = {name: value if math.isfinite(value) else None for name, value in criteria.items()}
    return every if chosen == "all" else graph, {"inputs": chosen, "aicc": finite}


def inputs_note(inputs: Mapping[str, Any]) -> list[str]:
    """Return sentences on what `read_columns` says."""
    if not inputs:
        return []
    which, says = "the graph's neighbours", "so predictions and queries assume the graph"
    if inputs["inputs"] == "all":
        which, says = "all other columns", "so predictions and queries do not assume the graph"
    why = ", which predicts better by AICc" if "aicc" in inputs else ""
    return [f"Each network reads {which}{why}, {says}."]
