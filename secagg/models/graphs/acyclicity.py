"""Parts that NOTEARS and GOLEM share: the acyclicity function, a sparse minimiser, a threshold.

h(W) = tr exp(W o W) - p >= 0 is zero exactly for the weighted adjacency matrix of a DAG (Zheng,
Aragam, Ravikumar and Xing, "DAGs with NO TEARS", NeurIPS 2018, theorem 1).

This module avoids two failures of the published programs.

* exp(W o W) overflows at a long trial step of the line search: see `secagg.models.numerics.lbfgs`.
* Two variables may be interchangeable, such as any two standardised variables that are related to
  no others. The objective is then symmetric in W_ij and W_ji. A gradient method that starts from
  zero keeps W_ij = W_ji. With this restriction, the graph is acyclic only if both weights are zero.
  So even the strongest correlation in the data would give no edge, and h would indicate success.
  `break_ties` multiplies each weight by a fixed factor within 1 +- 1/1000, once the weights are no
  longer zero. The search then finds a true minimum nearby. Which of two equally good directions it
  finds is arbitrary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.numerics.lbfgs import FinitePoint, minimise_finite
from secagg.models.numerics.matrix_exponential import exponential_minus_identity

Objective = Callable[[Array], tuple[float, Array]]


def acyclicity(W: Array) -> tuple[float, Array]:
    """Return h(W) and its gradient exp(W o W)' o 2W; both may be inf or NaN for large W.

    h has a relative error of a few units in the last place, even near zero, unless only long cycles
    remain. A cycle of k edges of weight w adds w^(2k) / (k - 1)!. For w = 0.3 that is 2.5e-7 at
    k = 5 and 1e-16 at k = 10, and truncation may drop it
    (`secagg.models.numerics.matrix_exponential`). A small h, even h = 0, therefore does not exclude
    a cycle of edges of 0.3. To test for cycles, apply `is_acyclic` to the edges over a threshold.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        exponential = exponential_minus_identity(W * W)
        h = float(np.trace(exponential))
        slopes = exponential.T
        np.fill_diagonal(slopes, slopes.diagonal() + 1)
        return h, slopes * 2 * W


def minimise_sparse(
    objective: Objective,
    start: Array,
    penalty: float | Array,
    zero: NDArray[np.bool_] | None = None,
) -> FinitePoint:
    """Minimise objective(W) + sum penalty |W_ij| over W with a zero diagonal, by L-BFGS-B.

    penalty: one, or (p, p); zero: further entries that are fixed at zero

    W = W+ - W-, both nonnegative, makes the penalty linear and the problem smooth with bounds, as
    in the program of Zheng and others. Return a point whose x is W and whose value contains the
    penalty.

    objective: returns the value and the gradient, shape (p, p)
    """
    free = ~np.eye(len(start), dtype=bool)
    if zero is not None:
        free &= ~zero

    cost = np.tile(penalty[free], 2) if isinstance(penalty, np.ndarray) else penalty

    def join(x: Array) -> Array:
        W = np.zeros_like(start)
        positive, negative = np.split(x, 2)
        W[free] = positive - negative
        return W

    def penalised(x: Array) -> tuple[float, Array]:
        value, gradient = objective(join(x))
        slope = gradient[free]
        linear = float(cost @ x) if isinstance(cost, np.ndarray) else cost * float(x.sum())
        return value + linear, np.concatenate([slope, -slope]) + cost

    minimum = minimise_finite(
        penalised,
        np.concatenate([np.maximum(start[free], 0), np.maximum(-start[free], 0)]),
        nonnegative=True,
    )
    return replace(minimum, x=join(minimum.x))


def break_ties(W: Array) -> Array:
    """Return W with each entry changed by up to 1/1000 of its size, always in the same way."""
    return W * (1 + 1e-3 * np.random.default_rng(0).uniform(-1, 1, W.shape))


def is_acyclic(adjacency: NDArray[np.bool_]) -> bool:
    """Return whether the directed graph has no cycle."""
    graph = nx.from_numpy_array(adjacency, create_using=nx.DiGraph)
    return bool(nx.is_directed_acyclic_graph(graph))


def acyclic_edges(W: Array, threshold: float) -> tuple[NDArray[np.bool_], float]:
    """Return the edges |W_ij| > t, and t: the smallest value >= `threshold` that leaves no cycle.

    Raising t drops the weakest edges first, as the authors of GOLEM do.
    """
    size = np.abs(W)
    levels = [threshold, *np.unique(size[size > threshold]).tolist()]
    # Dropping edges creates no cycle, so once a level leaves none, no higher level does.
    level = levels[bisect_left(levels, True, key=lambda t: is_acyclic(size > t))]
    return size > level, level


def eliminate(
    directed: NDArray[np.bool_], evidence: Callable[[int, list[int]], Array], least: float
) -> NDArray[np.bool_]:
    """Return the edges of a DAG whose evidence exceeds `least`, by backward elimination.

    evidence: of a variable's causes, given the variable and them
    """
    kept = directed.copy()
    for y in range(len(kept)):
        while causes := np.flatnonzero(kept[:, y]).tolist():
            found = evidence(y, causes)
            if found.min() > least:
                break
            kept[causes[int(found.argmin())], y] = False
    return kept


def between_variables(W: Array) -> Array:
    """Return W with zeros for effects of variables on themselves."""
    return np.where(np.eye(len(W), dtype=bool), 0, W)


def largest_weight(W: Array, names: Sequence[str], threshold: str) -> str:
    """Return a note that names the largest weight of a graph without edges.

    threshold: the one in force, in words
    """
    i, j = divmod(int(np.argmax(np.abs(between_variables(W)))), len(W))
    return (
        f"no weight exceeds the {threshold}; the largest in size is {W[i, j]:.3g} "
        f"({names[i]} -> {names[j]})"
    )


RAISED_BY_NOISE: Final = (
    "The noise of differential privacy sets this penalty, so a smaller method.penalty changes "
    "nothing. A larger epsilon or more records would lower it"
)


def no_edge_note(W: Array, names: Sequence[str], threshold: float, *, raised: bool = False) -> str:
    """Return a note on why a learner's graph has no edge.

    raised: whether noise raised its penalty
    """
    if np.any(between_variables(W)):
        return f"no edge: {largest_weight(W, names, f'threshold {threshold:g}')}"
    if raised:
        return f"no edge: the penalty sets all weights to zero. {RAISED_BY_NOISE}"
    return "no edge: the penalty sets all weights to zero; lower it"


def failure_advice(*, standardised: bool) -> str:
    advice = "raise the penalty or allow more rounds."
    return advice.capitalize() if standardised else f"Standardise the variables, {advice}"


def graph_over_threshold(
    W: Array,
    threshold: float,
    failure: str | None,
    advice: str = "",
) -> tuple[NDArray[np.bool_], float, tuple[str, ...]]:
    """Return a fit's edges, the threshold applied and the notes on both.

    failure: why the optimiser failed, or None; advice: how to avoid the failure
    After a failure, cycles stay in the graph: without them a diverged fit would look like a sparse
    DAG.
    """
    if failure is not None:
        note = f"not converged ({failure}): do not rely on this graph. {advice}"
        return np.abs(W) > threshold, threshold, (note.rstrip(),)
    edges, applied = acyclic_edges(W, threshold)
    if applied == threshold:
        return edges, applied, ()
    return edges, applied, (f"threshold raised from {threshold:g} to {applied:.4g}: a cycle",)
