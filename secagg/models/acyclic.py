"""What NOTEARS and GOLEM share: the acyclicity function, a sparse minimiser, a threshold.

h(W) = tr exp(W o W) - p >= 0, zero exactly for the weighted adjacency of a DAG (Zheng, Aragam,
Ravikumar and Xing, "DAGs with NO TEARS", NeurIPS 2018, theorem 1).

Two failures of the published programs are guarded against here.

* exp(W o W) overflows at a long trial step of the line search, and from then on every number is
  NaN. Here such a trial is a failed step: the minimiser starts again from the last accepted
  point, with fresh curvature and therefore a first step of length one, then 0.1 and less. Where
  all fail it says so; it never hands on a point at which the objective is not finite.
* Two variables that look alike (any two standardised variables, if nothing else is related to
  them) make the objective symmetric in W_ij and W_ji. Started from zero, a gradient method stays
  on the symmetric ridge, where acyclicity can only be had by shrinking both weights to zero: the
  strongest correlation in the data would give no edge, and h would report success. `break_ties`
  moves the solution off the ridge by a fixed per mille, so that a true minimum next to it
  is found. Which of two equally good directions it finds is then arbitrary, as it must be.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import OptimizeResult, minimize

Matrix = NDArray[np.float64]
Objective = Callable[[Matrix], tuple[float, Matrix]]

# Where L-BFGS-B stops: relative decrease of the objective, largest slope.
USUAL = (2.2e-9, 1e-5)  # SciPy's
EXACT = (1e-15, 1e-9)  # the rounding of the objective
RESTARTS = 50  # after failed steps
SHORTER = 0.1  # the first step of a restart where the one before got nowhere,
SHORTEST = 1e-3  # down to this: the gain of a much shorter step would look like convergence


def acyclicity(W: Matrix) -> tuple[float, Matrix]:
    """Return h(W) and its gradient exp(W o W)' o 2W; both may be inf or NaN for large W."""
    with np.errstate(over="ignore", invalid="ignore"):
        exponential = np.asarray(expm(W * W), dtype=np.float64)
        return float(np.trace(exponential)) - len(W), exponential.T * 2 * W


@dataclass(frozen=True, eq=False)
class Minimum:
    """W: the last accepted point; value: the objective there with its penalty; finite: False if
    no finite step could be made from W; evaluations: of the objective.
    """

    W: Matrix
    value: float
    finite: bool
    evaluations: int


class _NonFiniteStepError(Exception):
    """A trial point at which the objective or its gradient is not finite."""


def minimise_sparse(
    objective: Objective,
    start: Matrix,
    penalty: float,
    *,
    free: NDArray[np.bool_] | None = None,
    exact: bool = False,
) -> Minimum:
    """Minimise objective(W) + penalty * sum |W_ij| over the free entries of W by L-BFGS-B.

    W = W+ - W-, both nonnegative, makes the penalty linear and the problem smooth with bounds, as
    in the program of Zheng et al. objective returns the value and the gradient, (p, p).
    free: (p, p), the entries that may differ from zero; None for all but the diagonal
    exact: stop at EXACT instead of at USUAL
    """
    if free is None:
        free = ~np.eye(len(start), dtype=bool)
    evaluations = 0

    def join(x: Matrix) -> Matrix:
        W = np.zeros_like(start)
        positive, negative = np.split(x, 2)
        W[free] = positive - negative
        return W

    def penalised(x: Matrix) -> tuple[float, Matrix]:
        nonlocal evaluations
        evaluations += 1
        with np.errstate(all="ignore"):  # what overflows is not finite, and tested next
            value, gradient = objective(join(x))
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            raise _NonFiniteStepError
        slope = gradient[free]
        return value + penalty * float(x.sum()), np.concatenate([slope, -slope]) + penalty

    accepted = np.concatenate([np.maximum(start[free], 0), np.maximum(-start[free], 0)])
    value = np.inf
    length = 1.0  # of a run's first step: L-BFGS-B makes it one in the variable it is given

    def scaled(y: Matrix) -> tuple[float, Matrix]:
        penalised_value, slope = penalised(length * y)
        return penalised_value, length * slope

    def accept(intermediate_result: OptimizeResult) -> None:
        nonlocal accepted, value
        accepted, value = length * intermediate_result.x, float(intermediate_result.fun)

    decrease, slope_tolerance = EXACT if exact else USUAL
    for _ in range(RESTARTS):
        before = accepted
        try:
            result = minimize(
                scaled,
                accepted / length,
                jac=True,
                method="L-BFGS-B",
                bounds=[(0, None)] * len(accepted),
                callback=accept,
                options={"ftol": decrease, "gtol": slope_tolerance * length},
            )
        except _NonFiniteStepError:
            if accepted is before:
                length *= SHORTER
                if length < SHORTEST:
                    break
            continue
        return Minimum(join(length * result.x), float(result.fun), True, evaluations)
    return Minimum(join(accepted), value, False, evaluations)


def break_ties(W: Matrix) -> Matrix:
    """Return W with each entry changed by up to 1/1000 of itself, always in the same way."""
    return W * (1 + 1e-3 * np.random.default_rng(0).uniform(-1, 1, W.shape))


def is_acyclic(adjacency: NDArray[np.bool_]) -> bool:
    """Tell whether the directed graph has no cycle."""
    graph = nx.from_numpy_array(adjacency, create_using=nx.DiGraph)
    return bool(nx.is_directed_acyclic_graph(graph))


def acyclic_edges(W: Matrix, threshold: float) -> tuple[NDArray[np.bool_], float]:
    """Return the edges |W_ij| > t and t: `threshold`, or the least above it that leaves no cycle.

    Raising t drops the weakest edges first, as the authors of GOLEM do.
    """
    size = np.abs(W)
    levels = [threshold, *np.unique(size[size > threshold]).tolist()]
    # Dropping edges makes no cycle: the levels leave cycles up to some level and none from there.
    level = levels[bisect_left(levels, True, key=lambda t: is_acyclic(size > t))]
    return size > level, level


def graph_over_threshold(
    W: Matrix, threshold: float, failure: str | None
) -> tuple[NDArray[np.bool_], float, tuple[str, ...]]:
    """Return a fit's edges, the threshold applied and the notes on both.

    failure: why the optimiser failed, or None. After a failure cycles are left in: cleaning them
    away would make a diverged fit look like a sparse DAG.
    """
    if failure is not None:
        advice = "Standardise the variables or raise the penalty."
        note = f"not converged ({failure}): do not rely on this graph. {advice}"
        return np.abs(W) > threshold, threshold, (note,)
    edges, applied = acyclic_edges(W, threshold)
    if applied == threshold:
        return edges, applied, ()
    return edges, applied, (f"threshold raised from {threshold:g} to {applied:.4g}: a cycle",)
