"""Smooth function plus weighted l1 norm, minimised orthant by orthant (OWL-QN).

    minimise  F(x) = f(x) + sum_i l_i |x_i|,   l_i >= 0

by the method of Andrew and Gao ("Scalable training of L1-regularized log-linear models", ICML
2007). Within an orthant F is smooth, so a quasi-Newton step is projected onto the orthant that
steepest descent points into. Entries that reach zero are exactly zero.

For a network's many weights this replaces the split into W+ - W- that
`secagg.models.graphs.acyclicity` uses for small matrices, with half the variables.

A trial point at which F is not finite is a failed step, as in `secagg.models.numerics.lbfgs`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from secagg.models.numerics.lbfgs import FinitePoint

Vector = NDArray[np.float64]

_MEMORY = 10  # pairs of steps and changes of slope
_MAX_HALVINGS = 40  # of a step: the last one is as small as the rounding of x
_MAX_FIRST_STEP = 1e3  # of a first step, 1-norm: a limit for a curvature near zero
_ARMIJO = 1e-4  # a step must reach this share of the predicted decrease
_MIN_CURVATURE = 1e-10  # smallest relative curvature of a pair


def minimise_orthantwise(
    objective: Callable[[Vector], tuple[float, Vector]],
    start: Vector,
    penalty: Vector,
    *,
    decrease: float,
    slope: float,
    max_iterations: int = 15_000,
    curvature: float | None = None,
) -> FinitePoint:
    """Minimise F from `start`.

    objective: returns f and its gradient; may overflow
    penalty: l, shaped like x
    decrease, slope: stop at this relative decrease of F or this largest slope
    curvature: of f, if known, for the first step; None for a step of length one at most
    The search also ends if no step decreases F beyond rounding. finite is False if F is not finite
    at the start, or at every trial of the last step.
    """
    evaluations = 0

    def evaluate(x: Vector) -> tuple[float, Vector]:
        nonlocal evaluations
        evaluations += 1
        with np.errstate(all="ignore"):  # overflow gives values that are not finite, tested next
            value, gradient = objective(x)
            if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
                return np.inf, gradient
            return value + float(penalty @ np.abs(x)), gradient

    x, pairs = start, _Pairs()
    value, gradient = evaluate(x)
    if not np.isfinite(value):
        return FinitePoint(x, value, False, evaluations)
    for _ in range(max_iterations):
        downhill = _steepest(x, gradient, penalty)
        if np.max(np.abs(downhill)) <= slope:
            break
        direction = pairs.newton(downhill)
        direction[(penalty > 0) & (direction * downhill <= 0)] = 0
        orthant = np.where(x != 0, np.sign(x), np.sign(downhill))
        length = 1.0
        if not pairs:
            norm = float(np.sum(np.abs(downhill)))
            length = 1 / max(curvature, norm / _MAX_FIRST_STEP) if curvature else 1 / max(1.0, norm)
        seen_finite = False
        for _ in range(_MAX_HALVINGS):
            trial = x + length * direction
            trial[(penalty > 0) & (trial * orthant < 0)] = 0
            trial_value, trial_gradient = evaluate(trial)
            seen_finite |= bool(np.isfinite(trial_value))
            if trial_value <= value - _ARMIJO * float(downhill @ (trial - x)):
                break
            length /= 2
        else:
            if pairs:
                pairs = _Pairs()
                continue
            return FinitePoint(x, value, seen_finite, evaluations)
        pairs.add(trial - x, trial_gradient - gradient)
        gained = value - trial_value
        x, value, gradient = trial, trial_value, trial_gradient
        if gained <= decrease * max(abs(value), 1.0):
            break
    return FinitePoint(x, value, True, evaluations)


def _steepest(x: Vector, gradient: Vector, penalty: Vector) -> Vector:
    """Return the direction of steepest descent of F: minus its smallest subgradient."""
    kinks = -np.sign(gradient) * np.maximum(np.abs(gradient) - penalty, 0)
    return np.where(x == 0, kinks, -gradient - penalty * np.sign(x))


class _Pairs:
    """The last steps s and changes y of the gradient of f, which define the inverse Hessian."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[Vector, Vector, float]] = deque(maxlen=_MEMORY)

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, s: Vector, y: Vector) -> None:
        curvature, square = float(s @ y), float(y @ y)
        if curvature > _MIN_CURVATURE * square:
            self._pairs.append((s, y, curvature))

    def newton(self, downhill: Vector) -> Vector:
        """Return the inverse Hessian times a vector, by the two loops of L-BFGS (a new array)."""
        q, shares = downhill.copy(), []
        for s, y, curvature in reversed(self._pairs):
            share = float(s @ q) / curvature
            shares.append(share)
            q -= share * y
        if self._pairs:
            _, y, curvature = self._pairs[-1]
            q *= curvature / float(y @ y)
        for (s, y, curvature), share in zip(self._pairs, reversed(shares), strict=True):
            q += (share - float(y @ q) / curvature) * s
        return q
