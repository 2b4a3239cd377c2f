"""The coordinator's step of NOTEARS-ADMM: problem (5) of Ng and Zhang (AISTATS 2022).

With C the mean over sites of B_k + beta_k / rho2, problem (5) is, up to a constant,

    minimise  lambda |W|_1 + alpha h(W) + rho1/2 h(W)^2 + kappa/2 |W - C|_F^2,   kappa = K rho2  (5)

W may be any array of parameters that makes a graph through its squares: h(W) = tr exp(A) - d with
A = P(W o W) for a linear map P without negative entries (`Graphed`). One P serves linear graphs
(the identity), time series (the instantaneous part) and networks (sums over hidden units).

`subgradient_step` is the paper's: L-BFGS with SciPy's settings, sign(W) for the slope of the l1
term (appendix B). Most of its evaluations go into that term's kinks.

`proximal_step` solves the same problem. h is linearised in the *squares*, not in W:

    h(V) ~ h(W) + <E, V o V - W o W>,   E = P'(exp(A)') >= 0.

For a fixed multiplier mu = alpha + rho1 h of the linearised h, (5) splits into one problem for each
entry, with solution

    V(mu) = soft(kappa C, lambda) / (kappa + 2 mu E),   soft(c, l) = sign(c) max(|c| - l, 0),

and mu is the root of mu = alpha + rho1 max(0, h(W) + <E, V(mu)^2 - W^2>), whose right side falls
with mu: one number, found by Newton's method. Then V - W is a descent direction of (5): it is the
step of a proximal Newton method (Lee, Sun and Saunders, SIAM J. Optim. 24, 2014) whose matrix,
kappa I + 2 mu diag(E) + rho1 grad h grad h' with curvature of the squares, is positive definite
(Lagrange duality trades the rank-one term for mu). A line search on (5) itself makes every step one
down. A trial that is not finite is a failed one: the step is halved. Each step costs one
exponential, zeros are exact, and warm starts need two or three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.models.exponential import exponential_minus_identity
from secagg.models.finite_steps import minimise_finite

Array = NDArray[np.float64]

PROXIMAL_STEPS = 20  # in one call
SETTLED = 1e-6  # largest change of an entry, at which the steps end
_HALVINGS = 30  # of a step
_ARMIJO = 1e-4  # share of the predicted decrease that a step must reach
_ROUNDING = 1e-15  # of the objective, relative


class Graphed(Protocol):
    """How parameters make a graph of d variables; see the module's docstring."""

    @property
    def penalty(self) -> Array:
        """Lambda for each entry, shaped like the parameters, at least 0; inf: held at zero."""
        ...

    def squares(self, W: Array) -> Array:
        """Return A = P(W o W), shape (d, d)."""
        ...

    def spread(self, slopes: Array) -> Array:
        """Return P'(slopes) of a (d, d) matrix, shaped like the parameters."""
        ...


@dataclass(frozen=True)
class Pull:
    """What of (5) changes from round to round.

    target: C, shaped like the parameters; strength: kappa = K rho2 > 0
    alpha: at least 0; rho1: above 0
    """

    target: Array
    strength: float
    alpha: float
    rho1: float


@dataclass(frozen=True, eq=False)
class Step:
    """W: the point reached; h: there; finite: False if no finite step could be made and W is the
    start; evaluations: of the exponential.
    """

    W: Array
    h: float
    finite: bool
    evaluations: int


def graph_constraint(graphed: Graphed, W: Array) -> tuple[float, Array]:
    """Return h(W) and E = P'(exp(A)'); both may be inf or NaN. The gradient of h is 2 W o E."""
    with np.errstate(over="ignore", invalid="ignore"):
        exponential = exponential_minus_identity(graphed.squares(W))
        h = float(np.trace(exponential))
        np.fill_diagonal(exponential, exponential.diagonal() + 1)
        return h, graphed.spread(exponential.T)


def subgradient_step(graphed: Graphed, start: Array, pull: Pull) -> Step:
    """Solve (5) from a finite start as the paper does."""
    held = np.isinf(graphed.penalty)
    penalty = np.where(held, 0, graphed.penalty)

    def objective(x: Array) -> tuple[float, Array]:
        W = x.reshape(start.shape)
        h, E = graph_constraint(graphed, W)
        away = W - pull.target
        value = float(
            np.vdot(penalty, np.abs(W))
            + (pull.alpha + 0.5 * pull.rho1 * h) * h
            + 0.5 * pull.strength * np.vdot(away, away)
        )
        multiplier = pull.alpha + pull.rho1 * h
        gradient = penalty * np.sign(W) + 2 * multiplier * W * E + pull.strength * away
        return value, np.where(held, 0, gradient).ravel()

    found = minimise_finite(objective, np.where(held, 0, start).ravel())
    W = found.x.reshape(start.shape)
    return Step(W, graph_constraint(graphed, W)[0], found.finite, found.evaluations)


def proximal_step(graphed: Graphed, start: Array, pull: Pull) -> Step:
    """Solve (5) from a finite start by at most PROXIMAL_STEPS proximal Newton steps."""
    evaluations = 1
    held = np.isinf(graphed.penalty)
    penalty = np.where(held, 0, graphed.penalty)
    over = np.where(held, 0, np.abs(pull.target) - graphed.penalty / pull.strength)
    soft = np.copysign(np.maximum(over, 0), pull.target)  # soft(kappa C, lambda) / kappa

    def value_at(W: Array, h: float) -> float:
        away = W - pull.target
        with np.errstate(over="ignore"):
            return float(
                np.vdot(penalty, np.abs(W))
                + (pull.alpha + 0.5 * pull.rho1 * h) * h
                + 0.5 * pull.strength * np.vdot(away, away)
            )

    W = np.where(held, 0, start)
    h, E = graph_constraint(graphed, W)
    value = value_at(W, h)
    if not np.isfinite(value):
        return Step(W, h, False, evaluations)
    for _ in range(PROXIMAL_STEPS):
        squares = W * W
        multiplier = _multiplier(soft * soft, E, h - float(np.vdot(E, squares)), pull)
        direction = soft / (1 + 2 * multiplier / pull.strength * E) - W
        slope = 2 * (pull.alpha + pull.rho1 * h) * W * E + pull.strength * (W - pull.target)
        descent = float(
            np.vdot(slope, direction) + np.vdot(penalty, np.abs(W + direction) - np.abs(W))
        )
        length = 1.0
        for _ in range(_HALVINGS):
            trial = W + length * direction
            trial_h, trial_E = graph_constraint(graphed, trial)
            evaluations += 1
            trial_value = value_at(trial, trial_h)
            allowed = value + _ARMIJO * length * min(descent, 0) + _ROUNDING * abs(value)
            if np.all(np.isfinite(trial_E)) and trial_value <= allowed:
                break
            length /= 2
        else:
            break  # no step is down: W is a minimum as far as rounding can tell
        moved = length * float(np.max(np.abs(direction)))
        W, h, E, value = trial, trial_h, trial_E, trial_value
        if moved <= SETTLED:
            break
    return Step(W, h, True, evaluations)


def _multiplier(soft_squares: Array, E: Array, rest: float, pull: Pull) -> float:
    """Return the root mu >= alpha of mu = alpha + rho1 max(0, rest + <E, V(mu)^2>).

    f(mu) = mu - alpha - rho1 (rest + <E, V(mu)^2>) is increasing and concave, so that Newton's
    method from the left, mu = alpha, rises to the root, as long as f is negative there.
    """
    mu = pull.alpha
    for _ in range(100):
        shrink = 1 / (1 + 2 * mu / pull.strength * E)
        terms = E * soft_squares * shrink * shrink
        predicted = rest + float(terms.sum())
        excess = mu - pull.alpha - pull.rho1 * predicted
        if excess >= 0:
            return mu
        slope = 1 + 4 * pull.rho1 / pull.strength * float(np.vdot(terms, E * shrink))
        step = -excess / slope
        mu += step
        if step <= 1e-9 * mu:
            return mu
    return mu
