"""The graph of the pooled records, and which further columns networks read.

Both come from one secure sum of moments: the number of records, sums and cross products of the
encoded variables (indicators for levels).

The graph is recovered as a site would recover its own (`secagg.models.neural.site_graphs`), but
from all records. So no site's graph is voted on, and nothing depends on how records are split.

The inputs. A graph and good predictions are two aims. A graph with few false edges drops weak
dependences, and predictions lose by each; a graph that predicts best has many false edges
(Meinshausen and Buehlmann, Annals of Statistics 2006, proposition 1). So the networks can read more
than the graph's neighbours: also each column that AIC keeps in the linear model of all columns.
With Wilks' Lambda of two columns given all others
(`secagg.models.neural.association_tests`) of p and q variables, AIC keeps the pair if

    -n log Lambda > 2 p q.                                                                       (1)

Here Rao's F is compared with its quantile of the level at which a chi-squared of p q degrees of
freedom exceeds 2 p q (.157 for one), which equals (1) for many records and is stricter for few. To
choose by AIC is asymptotically to choose by leave-one-out likelihood (Stone, JRSS B 1977). It needs
no sum beyond the moments; sums over held-out parts of the records would tell more of them
(docs/adr/034-edges-and-inputs.md). Columns beyond the graph enter as linear terms only: their
dependences are weak, so little of a curve could be seen, and its weights would add variance.
"""

from __future__ import annotations

from typing import Final, Literal

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
Inputs = Literal["neighbours", "aic", "all"]
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

    def kept_by_aic(self) -> Graph:
        """Return the pairs of columns that (1) keeps, shape (columns, columns)."""
        d = self.layout.d
        if self.n < MIN_RECORDS or len(self.varying) < 2:
            return np.zeros((d, d), dtype=np.bool_)
        return graph_of_correlations(self.R, self.n, self.owner, self.rarity, d, "aic", 0.0)
