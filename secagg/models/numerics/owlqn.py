"""Smooth function plus weighted l1 norm, minimised orthant by orthant (OWL-QN).

    minimise  F(x) = f(x) + sum_i l_i |x_i|,   l_i >= 0

by the method of Andrew and Gao ("Scalable training of L1-regularized log-linear models", ICML
2007). Within an orthant F is smooth, so a quasi-Newton step is projected onto the orthant that
steepest descent points into. Entries that reach zero are exactly zero.

For a network's many weights this replaces the split into W+ - W- that
`secagg.models.graphs.acyclicity` uses for small matrices, with half the variables.

A trial point at which F is not finite is a failed step, as in `secagg.models.numerics.lbfgs`.

The search gets f and its gradient at its trial point, and returns its next state (`begin_search`,
`told`). So each value may come from one process or from a round of sums over
sites, and a search can be stopped and resumed between two evaluations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import State
from secagg.models.numerics.lbfgs import FinitePoint

Vector = NDArray[np.float64]

_MEMORY = 10  # pairs of steps and changes of slope
_MAX_HALVINGS = 40  # of a step: the last one is as small as the rounding of x
_MAX_FIRST_STEP = 1e3  # of a first step, 1-norm: a limit for a curvature near zero
_ARMIJO = 1e-4  # a step must reach this share of the predicted decrease
_MIN_CURVATURE = 1e-10  # smallest relative curvature of a pair


@dataclass(frozen=True)
class Stopping:
    """When a search ends.

    decrease, slope: at this relative decrease of F, or this largest slope
    curvature: of f, if known, for the first step; None for a step of length one at most
    The search also ends if no step decreases F beyond rounding.
    """

    decrease: float
    slope: float
    max_iterations: int = 15_000
    curvature: float | None = None


def minimise_orthantwise(
    objective: Callable[[Vector], tuple[float, Vector]],
    start: Vector,
    penalty: Vector,
    stopping: Stopping,
) -> FinitePoint:
    """Minimise F from `start`.

    objective: returns f and its gradient; may overflow
    penalty: l, shaped like x
    finite is False if F is not finite at the start, or at every trial of the last step.
    """
    search, evaluations = begin_search(start), 0
    while not search["done"]:
        evaluations += 1
        with np.errstate(all="ignore"):  # overflow gives values that are not finite, tested next
            value, gradient = objective(search["trial"])
        search = told(search, value, gradient, penalty, stopping)
    return FinitePoint(search["x"], search["value"], search["finite"], evaluations)


def begin_search(start: Vector) -> State:
    """Return a search whose first trial point is `start`."""
    return {
        "done": False, "finite": False, "trial": start, "x": start, "value": np.inf,
        "steps": [], "changes": [], "iterations": 0, "started": False,
    }  # fmt: skip


def told(
    search: State, value: float, gradient: Vector, penalty: Vector, stopping: Stopping
) -> State:
    """Return the search after f and its gradient at `trial`.

    `x` and `value` are the last accepted point and F there; `trial` is the next point to evaluate,
    unless `done`. `finite` is then as in `minimise_orthantwise`.
    """
    trial = search["trial"]
    with np.errstate(all="ignore"):
        if np.isfinite(value) and np.all(np.isfinite(gradient)):
            value += float(penalty @ np.abs(trial))
        else:
            value = np.inf
    if not search["started"]:
        search = {**search, "started": True, "x": trial, "value": value, "gradient": gradient}
        return _after(search, penalty, stopping) if np.isfinite(value) else _ended(search)
    search = {**search, "finite": search["finite"] or bool(np.isfinite(value))}
    x = search["x"]
    if value <= search["value"] - _ARMIJO * float(search["downhill"] @ (trial - x)):
        pairs = _with_pair(search, trial - x, gradient - search["gradient"])
        gained = search["value"] - value
        search = {**search, **pairs, "x": trial, "value": value, "gradient": gradient}
        if gained <= stopping.decrease * max(abs(value), 1.0):
            return _ended(search, finite=True)
        return _after(search, penalty, stopping)
    length = search["length"] / 2
    search = {**search, "length": length, "halvings": search["halvings"] + 1}
    if search["halvings"] < _MAX_HALVINGS:
        return _at(search, penalty)
    if search["steps"]:
        return _after({**search, "steps": [], "changes": []}, penalty, stopping)
    return _ended(search)


def _ended(search: State, *, finite: bool | None = None) -> State:
    return {**search, "done": True, "finite": search["finite"] if finite is None else finite}


def _after(search: State, penalty: Vector, stopping: Stopping) -> State:
    """Return the search with a new direction from x, and its first trial point."""
    x, gradient = search["x"], search["gradient"]
    downhill = _steepest(x, gradient, penalty)
    small = np.max(np.abs(downhill)) <= stopping.slope
    if small or search["iterations"] == stopping.max_iterations:
        return _ended(search, finite=True)
    direction = _newton(search, downhill)
    direction[(penalty > 0) & (direction * downhill <= 0)] = 0
    length, curvature = 1.0, stopping.curvature
    if not search["steps"]:
        norm = float(np.sum(np.abs(downhill)))
        length = 1 / max(curvature, norm / _MAX_FIRST_STEP) if curvature else 1 / max(1.0, norm)
    search = {
        **search, "downhill": downhill, "direction": direction, "length": length, "halvings": 0,
        "finite": False, "iterations": search["iterations"] + 1,
    }  # fmt: skip
    return _at(search, penalty)


def _at(search: State, penalty: Vector) -> State:
    """Return the search with the trial point of its step length."""
    x, downhill = search["x"], search["downhill"]
    orthant = np.where(x != 0, np.sign(x), np.sign(downhill))
    trial = x + search["length"] * search["direction"]
    trial[(penalty > 0) & (trial * orthant < 0)] = 0
    return {**search, "trial": trial}


def _steepest(x: Vector, gradient: Vector, penalty: Vector) -> Vector:
    """Return the direction of steepest descent of F: minus its smallest subgradient."""
    kinks = -np.sign(gradient) * np.maximum(np.abs(gradient) - penalty, 0)
    return np.where(x == 0, kinks, -gradient - penalty * np.sign(x))


def _with_pair(search: State, s: Vector, y: Vector) -> State:
    """Return the last steps s and changes y of the gradient of f, which define the Hessian."""
    steps, changes = search["steps"], search["changes"]
    if float(s @ y) > _MIN_CURVATURE * float(y @ y):
        steps, changes = [*steps, s][-_MEMORY:], [*changes, y][-_MEMORY:]
    return {"steps": steps, "changes": changes}


def _newton(search: State, downhill: Vector) -> Vector:
    """Return the inverse Hessian times a vector, by the two loops of L-BFGS (a new array)."""
    q, shares = downhill.copy(), []
    pairs = list(zip(search["steps"], search["changes"], strict=True))
    for s, y in reversed(pairs):
        share = float(s @ q) / float(s @ y)
        shares.append(share)
        q -= share * y
    if pairs:
        s, y = pairs[-1]
        q *= float(s @ y) / float(y @ y)
    for (s, y), share in zip(pairs, reversed(shares), strict=True):
        q += (share - float(y @ q) / float(s @ y)) * s
    return q
