"""A site's own graph, recovered from its own records; or that of the pooled records, from moments.

Chajewska and Shrivastava (2023), section 2.1: each site recovers an undirected graph of its columns
by a method of its choice, and the graphs are merged. Three recoveries, all from the n records'
correlation matrix alone, so they need no more than the pooled moments either. A column may have
several variables (the indicators of its levels); two columns are joined if any two of their
variables are.

partial_correlation  For each pair of columns, a test at level alpha that they are not associated
                     given all others (`secagg.models.neural.association_tests`).
                     `secagg.models.neural.graph_votes.vote_level` gives the alpha at which the
                     merged graph has an expected number of false edges.
graphical_lasso      The graph of smallest extended BIC on the graphical lasso's path
                     (`secagg.models.numerics.ebic_graph`).
pc                   PC (`secagg.models.graphs.pc_ges`), each test at level alpha; then the moral
                     graph: arrows become edges, and the parents of a common child are joined.

The tests and the likelihood are those of normal variables. For indicators, the graph is that of the
linear partial correlations. Two columns that are independent given the others can have a partial
correlation if the others' effects are not linear. Which level of a column has no indicator makes
no difference to partial_correlation; to the other two it can.

What protects privacy. Nothing in this module does. The graph is a function of the site's records,
and the change of one record can change every edge: a record far from the others can make or break
any number of correlations. So the L2 sensitivity of a site's votes is the root of the number of
pairs, and noise that hides one record hides the graph too. With differential privacy, take the
edges from an expert, or recover one graph from noisy pooled moments.

==============================  ====================================================================
a site's records                its graph
==============================  ====================================================================
fewer than 3                    no edges
a constant variable             the graph of the others; a column with no other variable has no edge
a variable that others          partial_correlation, pc: the variable is joined to those that
determine linearly              determine it (the first in order are kept), and not tested
as many variables as records    partial_correlation: no edges, because no test has a degree of
                                freedom. pc: small conditioning sets still have
values that are not finite      `UsageError`
==============================  ====================================================================

With the graphical lasso, (n R + I) / (n + 1) stands in place of R: one more record's worth of
evidence that nothing is correlated, without which the likelihood is unbounded for singular R.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from secagg.errors import UsageError
from secagg.models.common.checks import require_number
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.inputs import RANK_TOLERANCE
from secagg.models.graphs.pc_ges import pc, require_causal_learn
from secagg.models.graphs.pdag import moral_graph
from secagg.models.neural.association_tests import associated, kept_by_aic, rarity_of
from secagg.models.numerics.ebic_graph import ebic_graph
from secagg.models.numerics.precision import ROUNDING

Matrix = NDArray[np.float64]
Graph = NDArray[np.bool_]
Recovery = Literal["partial_correlation", "graphical_lasso", "pc"]

MIN_RECORDS = 3
_MIN_POSITIVE = float(np.finfo(np.float64).tiny)


def site_graph(
    values: Matrix,
    columns: Sequence[Sequence[int]],
    recovery: Recovery,
    *,
    alpha: float = 0.05,
) -> Graph:
    """Return a site's graph: shape (columns, columns), symmetric, no diagonal.

    values: complete records, shape (records, variables)
    columns: the positions of each column's variables
    alpha: level of each test of partial_correlation and pc, above 0 and below 1
    Deterministic; depends on these records alone. Raises `UsageError` on values that are not
    finite, on alpha out of range, and for pc without causal-learn.
    """
    require_number("alpha", alpha, low=_MIN_POSITIVE, below=1)
    if not np.all(np.isfinite(values)):
        raise UsageError("graph", "the records have values that are not finite")
    column_of = np.full(values.shape[1], -1)
    for number, positions in enumerate(columns):
        column_of[list(positions)] = number
    spread = np.ptp(values, axis=0) if len(values) else np.zeros(values.shape[1])
    size = np.max(np.abs(values), axis=0, initial=0.0)
    varying = np.flatnonzero((spread > ROUNDING * size) & (column_of >= 0))
    d = len(columns)
    if len(values) < MIN_RECORDS or len(varying) < 2:
        return np.zeros((d, d), dtype=np.bool_)
    R = _correlation(values[:, varying] / spread[varying])
    rarity = rarity_of(values[:, varying])
    return graph_of_correlations(R, len(values), column_of[varying], rarity, d, recovery, alpha)


def graph_of_correlations(
    R: Matrix,
    n: int,
    owner: NDArray[np.int_],
    rarity: Matrix,
    d: int,
    recovery: Recovery | Literal["aic"],
    alpha: float,
) -> Graph:
    """Return the graph of n records with these correlations: shape (d, d), as `site_graph` does.

    recovery: also "aic", which keeps more pairs (`kept_by_aic`) and needs no alpha

    R: correlation matrix of the variables that vary; owner, rarity: the column of each, and the
        share of its rarer value (`secagg.models.neural.association_tests`)
    """
    if recovery == "graphical_lasso":
        joined = ebic_graph(R, n, owner)
    else:
        kept, joined = _independent(R, n)
        if recovery == "pc":
            within = _pc_pairs(R[np.ix_(kept, kept)], n, alpha)
        elif recovery == "aic":
            within = kept_by_aic(R[np.ix_(kept, kept)], n, owner[kept])
        else:
            within = associated(R[np.ix_(kept, kept)], n, owner[kept], rarity[kept], alpha)
        joined[np.ix_(kept, kept)] |= within
    found = np.zeros((d, d), dtype=np.bool_)
    rows, others = np.nonzero(joined)
    found[owner[rows], owner[others]] = True
    np.fill_diagonal(found, False)
    return np.asarray(found | found.T)


def _correlation(values: Matrix) -> Matrix:
    centred = values - values.mean(axis=0)
    centred /= np.sqrt(np.mean(centred**2, axis=0))
    R = centred.T @ centred / len(values)
    R = (R + R.T) / 2
    np.fill_diagonal(R, 1.0)
    return np.asarray(np.clip(R, -1.0, 1.0))


def _independent(R: Matrix, n: int) -> tuple[NDArray[np.intp], Graph]:
    """Return the variables that those before them do not determine, and the edges of the others.

    A variable is determined if at most `RANK_TOLERANCE` of its variance is unexplained. It is
    joined to those of the kept ones without which more would be. If no degree of freedom remains,
    such relations say nothing: then all are kept, and there is no edge.
    """
    joined = np.zeros(R.shape, dtype=np.bool_)
    kept: list[int] = []
    for j in range(len(R)):
        if not kept:
            kept.append(j)
            continue
        block = R[np.ix_(kept, kept)]
        slopes = np.linalg.solve(block, R[kept, j])
        if 1 - float(R[kept, j] @ slopes) > RANK_TOLERANCE:
            kept.append(j)
            continue
        own_share = slopes**2 / np.diagonal(np.linalg.inv(block))
        joined[j, np.array(kept)[own_share > RANK_TOLERANCE]] = True
    if len(kept) >= n - 1:
        return np.arange(len(R)), np.zeros(R.shape, dtype=np.bool_)
    return np.array(kept, dtype=np.intp), joined


def _pc_pairs(R: Matrix, n: int, alpha: float) -> Graph:
    """Return the moral graph of PC's equivalence class; no edges if PC cannot run."""
    if len(R) < 2 or n <= MIN_RECORDS:
        return np.zeros(R.shape, dtype=np.bool_)
    require_causal_learn("method.recovery")
    names = tuple(str(i) for i in range(len(R)))
    moments = Moments(names, n, np.zeros(len(R)), n * R)
    try:
        fit = pc(moments, alpha=alpha)
    except UsageError:  # of a test: variables that determine each other among few records
        return np.zeros(R.shape, dtype=np.bool_)
    return moral_graph(fit.directed, fit.undirected)
