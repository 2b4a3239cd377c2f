"""Sparse parameters of an acyclic graph, by a proximal Newton method that linearises h in squares.

NOTEARS on pooled moments and the coordinator of NOTEARS-ADMM both repeatedly minimise

    F(W) = f(W) + lambda |W|_1 + alpha h(W) + rho/2 h(W)^2,                                    (F)

f convex and quadratic. W is any array of parameters that defines a graph through its squares:
h(W) = tr exp(A) - d with A = P(W o W) for a linear map P without negative entries
(`GraphParameters`). P is the identity for linear graphs, the instantaneous part for time series,
and sums over hidden units for networks. The published programs give (F) to L-BFGS. It spends most
of its evaluations, each with a matrix exponential, on the kinks of |W|_1 and on learning the slope
of h.

Here h is linearised in the *squares*, not in W:

    h(V) ~ h(W) + <E, V o V - W o W>,   E = P'(exp(A)') >= 0.

This turns (F) into a convex problem in V, with the curvature of f and, in each entry, of h. For a
fixed multiplier mu of the linearised h it is f(V) + lambda |V|_1 + mu <E, V o V>, a lasso with
ridge weights, which the caller's f makes easy to solve. The right mu is the root of
mu = alpha + rho max(0, linearised h at V(mu)). V - W is then a descent direction of F: that of a
proximal Newton method (Lee, Sun and Saunders, SIAM J. Optim. 24, 2014) whose matrix is the Hessian
of f plus 2 mu diag(E) plus that of rho/2 h^2. It is positive definite where f is or E > 0. A line
search on F itself ensures that every step decreases F. If F is not finite at a trial point, the
step is halved. Entries that are zero are exactly zero. A step needs one matrix exponential. After
small changes, two or three steps are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.numerics.matrix_exponential import exponential_minus_identity

_MAX_HALVINGS = 30  # of a step
_ARMIJO = 1e-4  # a step must reach this share of the predicted decrease
_ROUNDING = 1e-15  # of F, relative


class GraphParameters(Protocol):
    """How parameters define a graph of d variables; see the module's docstring."""

    @property
    def penalty(self) -> Array:
        """Lambda for each entry, shaped like the parameters, at least 0; inf: fixed at zero."""
        ...

    def squares(self, W: Array) -> Array:
        """Return A = P(W o W), shape (d, d)."""
        ...

    def spread(self, slopes: Array) -> Array:
        """Return P'(slopes) of a (d, d) matrix, shaped like the parameters."""
        ...


@dataclass(frozen=True)
class LinearGraph:
    """A linear graph, whose W is the weighted adjacency matrix; a `GraphParameters`.

    W has the shape (d (1 + lags), d).
    penalties: lambda of instantaneous and of lagged coefficients, at least 0
    zero_diagonal: fix W_ii at 0, as NOTEARS on pooled data does; the paper leaves that to h
    at_least: a smallest lambda, one or of W's shape; inf: the entry is fixed at zero
    """

    d: int
    lags: int = 0
    penalties: tuple[float, float] = (0.01, 0.01)
    zero_diagonal: bool = False
    at_least: Array | float = field(default=0.0, compare=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.d * (1 + self.lags), self.d

    @property
    def penalty(self) -> Array:
        """Lambda for each entry of W; inf for an entry that is fixed at zero."""
        return self._penalty

    @cached_property  # which type checkers do not take for the protocol's property
    def _penalty(self) -> Array:
        instantaneous, lagged = self.penalties
        penalty = np.full(self.shape, lagged, dtype=np.float64)
        penalty[: self.d] = instantaneous
        penalty = np.maximum(penalty, self.at_least)
        if self.zero_diagonal:
            np.fill_diagonal(penalty[: self.d], np.inf)
        return penalty

    @property
    def raised(self) -> bool:
        """Whether `at_least` raises a penalty of effects between variables at one step."""
        smallest = np.broadcast_to(self.at_least, self.shape)[: self.d]
        counted = ~np.eye(self.d, dtype=bool) & np.isfinite(smallest)
        return bool(np.any(smallest[counted] > self.penalties[0]))

    def without(self, forbidden: NDArray[np.bool_]) -> LinearGraph:
        """Return the graph without these entries, shaped like W."""
        return replace(self, at_least=np.where(forbidden, np.inf, self.at_least))

    def lagged(self, W: Array) -> Array:
        """Return the lagged coefficients of W, or of an array of its shape, (lags, d, d)."""
        return W[self.d :].reshape(self.lags, self.d, self.d)

    def squares(self, W: Array) -> Array:
        instantaneous = W[: self.d]
        return instantaneous * instantaneous

    def spread(self, slopes: Array) -> Array:
        """Return the slopes in W's first block, zeros in the lagged blocks."""
        if self.lags == 0:
            return slopes
        return np.concatenate([slopes, np.zeros((self.d * self.lags, self.d))])


@dataclass(frozen=True)
class Multipliers:
    """alpha: of h, at least 0; rho: of h^2 / 2, above 0."""

    alpha: float
    rho: float


class Fit(Protocol):
    """The quadratic f and its convex subproblems."""

    def value(self, W: Array) -> tuple[float, Array]:
        """Return f and its gradient."""
        ...

    def solve(self, W: Array, E: Array, rest: float, multipliers: Multipliers) -> Array:
        """Return V from the linearisation at W, zero where the penalty is inf.

        rest: h(W) - <E, W o W>, so that the linearised h is rest + <E, V o V>
        """
        ...


@dataclass(frozen=True, eq=False)
class Step:
    """The end of a minimisation.

    W: the point reached; h: its value; finite: False if no finite step could be made, and then
    W is the start; evaluations: of the exponential
    """

    W: Array
    h: float
    finite: bool
    evaluations: int


def graph_constraint(graph: GraphParameters, W: Array) -> tuple[float, Array]:
    """Return h(W) and E = P'(exp(A)'); both may be inf or NaN. The gradient of h is 2 W o E."""
    with np.errstate(over="ignore", invalid="ignore"):
        exponential = exponential_minus_identity(graph.squares(W))
        h = float(np.trace(exponential))
        np.fill_diagonal(exponential, exponential.diagonal() + 1)
        return h, graph.spread(exponential.T)


def penalties(graph: GraphParameters) -> tuple[NDArray[np.bool_], Array]:
    """Return which entries are fixed at zero, and lambda for all others (0 for fixed ones)."""
    fixed = np.isinf(graph.penalty)
    return fixed, np.where(fixed, 0, graph.penalty)


def descend(
    graph: GraphParameters,
    fit: Fit,
    start: Array,
    multipliers: Multipliers,
    *,
    steps: int,
    tolerance: float,
) -> Step:
    """Minimise (F) from `start`.

    steps: largest number of steps; tolerance: stop when no entry changes by more than this
    """
    alpha, rho = multipliers.alpha, multipliers.rho
    fixed, penalty = penalties(graph)

    def evaluate(W: Array) -> tuple[float, float, Array, Array]:
        """Return F, h, E and the gradient of F's smooth part."""
        h, E = graph_constraint(graph, W)
        with np.errstate(over="ignore", invalid="ignore"):
            value, slope = fit.value(W)
            value += float(np.vdot(penalty, np.abs(W))) + (alpha + 0.5 * rho * h) * h
            return value, h, E, slope + 2 * (alpha + rho * h) * W * E

    W = np.where(fixed, 0, start)
    value, h, E, slope = evaluate(W)
    evaluations = 1
    if not (np.isfinite(value) and np.all(np.isfinite(slope))):
        return Step(W, h, False, evaluations)
    for _ in range(steps):
        V = fit.solve(W, E, h - float(np.vdot(E, W * W)), multipliers)
        direction = V - W
        predicted = float(np.vdot(slope, direction) + np.vdot(penalty, np.abs(V) - np.abs(W)))
        length, finite = 1.0, False
        for _ in range(_MAX_HALVINGS):
            trial = W + length * direction
            candidate = evaluate(trial)
            evaluations += 1
            finite = finite or bool(np.isfinite(candidate[0]))
            max_value = value + _ARMIJO * length * min(predicted, 0) + _ROUNDING * abs(value)
            if candidate[0] <= max_value and np.all(np.isfinite(candidate[3])):
                break
            length /= 2
        else:  # no step decreases F: W is a minimum up to rounding, if any trial was finite
            return Step(W, h, finite, evaluations)
        W, (value, h, E, slope) = trial, candidate
        if length * float(np.max(np.abs(direction))) <= tolerance:
            break
    return Step(W, h, True, evaluations)
