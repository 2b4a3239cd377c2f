"""From the weights of NOTEARS or GOLEM to edges: a threshold, or least squares on the causes found.

NOTEARS and GOLEM shrink weights, so a small weight may belong to a clear effect. Let y be a
variable of a DAG, K its causes, R the correlation matrix and n the number of records. Least squares
has the slopes b and, with l = R_yy - R_yK b the variance that they leave, their variances

    b = R_KK^-1 R_Ky,    var b_k = (R_KK^-1)_kk l / (n - |K| - 1),    t_k^2 = b_k^2 / var b_k.   (1)

Without k, twice the log-likelihood is lower by

    n log(1 + t_k^2 / (n - |K| - 1)).                                                       (2)

`supported`: backward elimination. While (2) of y's weakest cause is at most

    log n + 4 gamma log p,                                                                  (3)

it is removed, and the others are tested again. (3) is what an edge costs in the extended BIC
(Foygel and Drton, NeurIPS 2010) with gamma = 1/2. With noise in the moments, b_k^2 / var b_k with
the variance of noise and chance (`secagg.models.common.noisy_partials`) takes the place of (2).

Not covered: t and the score take the causes as given, although the same records chose them; so t is
too large on average. If the graph has a wrong direction, its right extra edges are dependences,
which no test removes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.common.checks import require_number
from secagg.models.common.noisy_partials import NoisyPartials
from secagg.models.graphs.acyclicity import (
    between_variables,
    eliminate,
    failure_advice,
    graph_over_threshold,
    no_edge_note,
)
from secagg.models.graphs.inputs import GraphInput
from secagg.models.numerics.ebic_graph import EBIC_GAMMA

Adjacency = NDArray[np.bool_]
Threshold = float | Literal["ebic"]
"""Of |W_ij|; or `"ebic"`: the edges that `supported` keeps."""
PAPERS_THRESHOLD = 0.3
CLEAR = 3.0
"""The result counts dropped edges with a larger |t|."""


def require_threshold(threshold: Threshold | None) -> None:
    """Raise `UsageError` for a number below 0."""
    if threshold is not None and threshold != "ebic":
        require_number("threshold", threshold, low=0)


def threshold_of(threshold: Threshold | None, *, standardised: bool, noised: bool) -> Threshold:
    """Return the default for None: "ebic" for exact moments in own units, else 0.3, the paper's.

    In simulations in own units, "ebic" had at most half a wrong edge more of strong effects, and
    many fewer of weak ones. In standardised columns, whose directions are hardly identified, it had
    more of strong ones (docs/math/measured-methods.md), and under noise it was no better.
    """
    if threshold is None:
        return PAPERS_THRESHOLD if standardised or noised else "ebic"
    return threshold


def heaviest_dag(W: Array) -> Adjacency:
    """Return W's entries, the largest first, without those that would close a cycle."""
    kept, reach = np.zeros(W.shape, dtype=np.bool_), np.eye(len(W), dtype=np.bool_)
    for place in np.argsort(-np.abs(W), axis=None, kind="stable"):
        i, j = divmod(int(place), len(W))
        if W[i, j] == 0:
            break
        if not reach[j, i]:
            kept[i, j] = True
            reach |= np.outer(reach[:, i], reach[j])
    return kept


@dataclass(frozen=True, eq=False)
class Support:
    """The moments of a graph's variables.

    matrix: covariance or correlation of full rank, (p, p); records: n; noisy: the same with noise
    """

    matrix: Array
    records: int
    noisy: NoisyPartials | None = None

    def slopes(self, y: int, causes: list[int]) -> tuple[Array, Array]:
        """Return y's slopes on at least one variable and their variances, in units of `matrix`."""
        root = np.sqrt(np.diagonal(self.matrix))
        unit = root[y] / root[causes]
        if self.noisy is not None:
            slopes, variances = self.noisy.slopes(y, causes)
        else:
            R = self.matrix / root / root[:, None]
            inverse = np.linalg.inv(R[np.ix_(causes, causes)])
            slopes = inverse @ R[causes, y]
            left = R[y, y] - R[causes, y] @ slopes
            variances = np.diagonal(inverse) * left / (self.records - len(causes) - 1)  # (1)
        return slopes * unit, variances * unit**2

    def evidence(self, y: int, causes: list[int]) -> Array:
        """Return (2) of y's causes."""
        slopes, variances = self.slopes(y, causes)
        squares: Array = slopes**2 / variances
        if self.noisy is None:
            squares = self.records * np.log1p(squares / (self.records - len(causes) - 1))
        return squares

    def supported(self, directed: Adjacency) -> Adjacency:
        """Return the edges of a DAG that the extended BIC keeps."""
        cost = math.log(self.records) + 4 * EBIC_GAMMA * math.log(len(directed))  # (3)
        return eliminate(directed, self.evidence, cost)

    def dropped(self, W: Array, kept: Adjacency, names: tuple[str, ...]) -> dict[str, Any]:
        """Return what least squares say of the weights that are not among the edges of a DAG.

        Each is tested beside the kept causes of its effect. Weights that would close a cycle are
        left out. edges: how many; clear: how many have |t| > `CLEAR`; largest: by weight; if there
        is one
        """
        reach = kept | np.eye(len(W), dtype=np.bool_)
        for _ in range(len(W).bit_length()):  # paths of up to 1, 2, 4, ... edges
            reach = reach | (reach @ reach)
        edges: list[dict[str, Any]] = []
        for i, j in np.argwhere((W != 0) & ~kept & ~reach.T).tolist():
            slopes, variances = self.slopes(j, [i, *np.flatnonzero(kept[:, j]).tolist()])
            estimate, error = float(slopes[0]), math.sqrt(variances[0])
            edges.append({
                "from": names[i], "to": names[j], "weight": float(W[i, j]), "estimate": estimate,
                "std_error": error, "t": estimate / error,
            })  # fmt: skip
        found: dict[str, Any] = {"edges": len(edges)}
        found["clear"] = sum(abs(edge["t"]) > CLEAR for edge in edges)
        if edges:
            found["largest"] = max(edges, key=lambda edge: abs(edge["weight"]))
        return found


@dataclass(frozen=True, eq=False)
class ChosenEdges:
    """directed: (p, p); threshold: as applied, 0 for "ebic"; notes, noise, dropped: of the fit"""

    directed: NDArray[np.bool_]
    threshold: float
    notes: tuple[str, ...]
    noise: dict[str, Any] | None = None
    dropped: dict[str, Any] | None = None


def chosen_edges(
    W: Array,
    data: GraphInput,
    threshold: Threshold,
    *,
    penalty: float,
    in_force: Array | float,
    standardised: bool,
    failure: str | None = None,
) -> ChosenEdges:
    """Return the edges of a fit.

    penalty: the job's; in_force: of each entry; failure: why the optimiser failed, or None. After a
    failure, the edges are those over the threshold, including cycles.
    Raises `UsageError` for "ebic" on a singular matrix.
    """
    by_score = threshold == "ebic"
    number = 0.0 if threshold == "ebic" else threshold
    support = None
    if data.full_rank:
        partials = None if data.noise is None else data.noise.partials
        support = Support(data.matrix, data.effective_n, partials)
    elif by_score:
        data.require_full_rank('threshold = "ebic"')
    W = between_variables(W)
    directed, applied, notes = graph_over_threshold(
        W, number, failure, failure_advice(standardised=standardised)
    )
    if by_score and failure is None:
        assert support is not None
        directed, applied, notes = support.supported(heaviest_dag(W)), 0.0, ()
    if failure is None and not np.any(directed):
        raised = bool(np.any(in_force > penalty))
        if by_score and np.any(W):
            notes += ("no edge: the extended BIC keeps none",)
        else:
            notes += (no_edge_note(W, data.names, number, raised=raised),)
    below, noise, dropped = np.where(directed, 0, W), None, None
    if data.noise is not None:
        directed, noise, told = data.noise.judged(directed, penalty, np.asarray(in_force))
        notes += (told,)
    if failure is None and support is not None:
        dropped = support.dropped(below, directed, data.names)
        if dropped["clear"] and not by_score:
            notes += (_dropped_note(dropped, number, standardised=standardised),)
    return ChosenEdges(directed, applied, notes, noise, dropped)


def _dropped_note(dropped: dict[str, Any], threshold: float, *, standardised: bool) -> str:
    largest = dropped["largest"]
    unit = "standard deviations" if standardised else "the columns' own units"
    return (
        f"Edges dropped by the threshold of {threshold:g} (in {unit}): {dropped['edges']}. Of "
        f"these, {dropped['clear']} with |t| above {CLEAR:g} beside the causes found. The largest: "
        f"{largest['from']} -> {largest['to']}, {largest['weight']:.3g} (by least squares "
        f"{largest['estimate']:.3g}, standard error {largest['std_error']:.2g}, which ignores that "
        'the graph was chosen). A smaller threshold keeps more; threshold = "ebic" keeps those '
        "that the extended BIC supports."
    )
