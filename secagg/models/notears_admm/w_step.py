"""The coordinator's step of NOTEARS-ADMM: problem (5) of Ng and Zhang (AISTATS 2022).

With C the mean over sites of B_k + beta_k / rho2, problem (5) is, up to a constant,

    minimise  lambda |W|_1 + alpha h(W) + rho1/2 h(W)^2 + kappa/2 |W - C|_F^2,   kappa = K rho2. (5)

`subgradient_step` is the paper's: L-BFGS with SciPy's settings, and sign(W) as the slope of the l1
term (appendix B). `proximal_step` solves the same problem by
`secagg.models.graphs.proximal_newton`. Its convex problems have a closed form here; for a
multiplier mu each entry is separate:

    V(mu) = soft(kappa C, lambda) / (kappa + 2 mu E),   soft(c, l) = sign(c) max(|c| - l, 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg.core.arrays import Array
from secagg.models.graphs.proximal_newton import (
    GraphParameters,
    Multipliers,
    Step,
    descend,
    graph_constraint,
    penalties,
)
from secagg.models.numerics.lbfgs import minimise_finite

PROXIMAL_STEPS = 20  # in one call
STEP_TOLERANCE = 1e-6  # the steps end when no entry changes by more than this


@dataclass(frozen=True)
class Pull:
    """The last term of (5); target: C, shaped like W; strength: kappa > 0."""

    target: Array
    strength: float

    def value(self, W: Array) -> tuple[float, Array]:
        """Return the term and its gradient."""
        away = W - self.target
        return 0.5 * self.strength * float(np.vdot(away, away)), self.strength * away


@dataclass(frozen=True)
class ScaledPull:
    """A pull with a strength of its own for each entry, all above 0."""

    target: Array
    strength: Array

    def value(self, W: Array) -> tuple[float, Array]:
        slope = self.strength * (W - self.target)
        return 0.5 * float(np.vdot(slope, W - self.target)), slope


def subgradient_step(
    graph: GraphParameters, start: Array, pull: Pull | ScaledPull, multipliers: Multipliers
) -> Step:
    """Solve (5) from a finite start, as the paper does."""
    fixed, penalty = penalties(graph)

    def objective(x: Array) -> tuple[float, Array]:
        W = x.reshape(start.shape)
        h, E = graph_constraint(graph, W)
        value, slope = pull.value(W)
        value += float(np.vdot(penalty, np.abs(W)))
        value += (multipliers.alpha + 0.5 * multipliers.rho * h) * h
        slope += penalty * np.sign(W) + 2 * (multipliers.alpha + multipliers.rho * h) * W * E
        slope[fixed] = 0
        return value, slope.ravel()

    minimum = minimise_finite(objective, np.where(fixed, 0, start).ravel())
    W = minimum.x.reshape(start.shape)
    return Step(W, graph_constraint(graph, W)[0], minimum.finite, minimum.evaluations)


def proximal_step(
    graph: GraphParameters, start: Array, pull: Pull | ScaledPull, multipliers: Multipliers
) -> Step:
    """Solve (5) from a finite start, in at most PROXIMAL_STEPS steps."""
    # |C| - inf is -inf where an entry is fixed at zero.
    excess_size = np.abs(pull.target) - graph.penalty / pull.strength
    soft = np.copysign(np.maximum(excess_size, 0), pull.target)  # soft(kappa C, lambda) / kappa
    fit = _Shrunk(pull, soft)
    return descend(graph, fit, start, multipliers, steps=PROXIMAL_STEPS, tolerance=STEP_TOLERANCE)


@dataclass(frozen=True)
class _Shrunk:
    """The `Fit` of (5); soft: soft(C, lambda / kappa)."""

    pull: Pull | ScaledPull
    soft: Array

    def value(self, W: Array) -> tuple[float, Array]:
        return self.pull.value(W)

    def solve(self, W: Array, E: Array, rest: float, multipliers: Multipliers) -> Array:
        """Return V(mu) for the root of f(mu) = mu - alpha - rho (rest + <E, V(mu)^2>).

        f is increasing and concave, so Newton's method from the left, mu = alpha, rises to the
        root. If f(alpha) >= 0, the linearised h there is not positive, and mu = alpha.
        """
        alpha, rho = multipliers.alpha, multipliers.rho
        ridge = 2 / self.pull.strength * E
        squares = E * self.soft * self.soft
        mu = alpha
        for _ in range(100):
            shrink = 1 / (1 + mu * ridge)
            terms = squares * shrink * shrink
            excess = mu - alpha - rho * (rest + float(terms.sum()))
            if excess >= 0:
                break
            slope = 1 + 2 * rho * float(np.vdot(terms, ridge * shrink))
            mu -= excess / slope
            if -excess <= 1e-9 * mu * slope:
                break
        return self.soft / (1 + mu * ridge)
