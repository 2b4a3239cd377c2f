"""The coordinator's optimisers: from a pooled value and gradient to the next parameters.

Each optimiser is a pair of functions on plain state, so that a run can stop after any round and go
on. The state's key "point" is where the next value and gradient are wanted; "best" is the estimate.

    "sgd"    point - rate * gradient, with heavy-ball `momentum`
    "adam"   Kingma and Ba (2015), algorithm 1, with their constants
    "lbfgs"  limited-memory BFGS (Nocedal and Wright 2006, algorithms 7.4 and 7.5)

L-BFGS needs exact values: a line search compares two of them. One round gives one value. The
search accepts a point if the value falls by at least a ten-thousandth of what the slope promises
(Armijo's condition, Nocedal and Wright 3.4). Otherwise it tries a shorter step, at the minimum of
the parabola through what is known (their 3.57), and not below a tenth of the last. A pair of
differences of positions and gradients is kept only if it has positive curvature, so the
approximated Hessian stays positive definite. If no step of a search direction lowers the value, the
search restarts from the steepest direction, and ends if that fails too: then rounding limits it.
No step changes a parameter by more than 1: values far away may be beyond the bounds of a sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final, Literal

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array

Scaling = Callable[[Array, Array], Array]
"""From parameters and a vector to the product of an inverse Hessian there and the vector."""
Optimiser = Literal["lbfgs", "adam", "sgd"]

_BETA_1, _BETA_2, _ADAM_EPSILON = 0.9, 0.999, 1e-8
_ARMIJO: Final = 1e-4
_SHORTEST: Final = 0.1  # of the last trial step
_LONGEST: Final = 0.5
_MAX_TRIALS: Final = 20  # of one line search: the last is at most 2^-20 as long as the first
_MAX_HISTORY: Final = 20  # pairs; more hardly help (Nocedal and Wright 2006, section 7.2)
_MAX_HISTORY_NUMBERS: Final = 2**23  # 64 MiB on disk and in memory
_LONGEST_MOVE: Final = 1.0  # of a parameter, in one step
NO_STEP: Final = "no step lowers the objective"
_MIN_CURVATURE: Final = 1e-12  # cosine between a pair's differences


def begin(optimiser: Optimiser, start: Array) -> State:
    """Return the first state, with the point `start`, shape (parameters,)."""
    state: State = {"point": start, "best": start, "steps": 0, "ended": ""}
    if optimiser == "adam":
        return {**state, "mean": np.zeros_like(start), "square": np.zeros_like(start)}
    if optimiser == "sgd":
        return {**state, "velocity": np.zeros_like(start)}
    pairs = np.zeros((0, len(start)))
    search = {"gradient": np.zeros_like(start), "direction": np.zeros_like(start), "length": 0.0}
    return state | search | {"value": math.inf, "trial": 0, "moves": pairs, "turns": pairs}


def advance(
    optimiser: Optimiser,
    state: State,
    value: float,
    gradient: Array,
    rate: float,
    momentum: float,
    scaling: Scaling | None = None,
) -> State:
    """Return the state after a round.

    value, gradient: of the objective at the state's point; "sgd" and "adam" do not use the value
    rate: step size of "sgd" and "adam"; momentum: of "sgd", at least 0 and below 1
    scaling: by the first inverse Hessian of "lbfgs"; None for a multiple of the identity
    """
    if optimiser == "lbfgs":
        return _lbfgs(state, value, gradient, scaling)
    steps = state["steps"] + 1
    state = {**state, "steps": steps}
    if optimiser == "sgd":
        velocity = momentum * state["velocity"] + gradient
        point = state["point"] - rate * velocity
        return {**state, "velocity": velocity, "point": point, "best": point}
    mean = _BETA_1 * state["mean"] + (1 - _BETA_1) * gradient
    square = _BETA_2 * state["square"] + (1 - _BETA_2) * gradient**2
    unbiased = np.sqrt(square / (1 - _BETA_2**steps)) + _ADAM_EPSILON
    point = state["point"] - rate * mean / (1 - _BETA_1**steps) / unbiased
    return {**state, "mean": mean, "square": square, "point": point, "best": point}


def _lbfgs(state: State, value: float, gradient: Array, scaling: Scaling | None) -> State:
    slope = float(state["gradient"] @ state["direction"])
    promised = _ARMIJO * state["length"] * slope  # at most 0; NaN values are not accepted
    if math.isinf(state["value"]) or value <= state["value"] + promised:
        return _accepted(state, value, gradient, scaling)
    trial = state["trial"] + 1
    if trial <= _MAX_TRIALS:
        length = _shorter(state["length"], value - state["value"], slope)
        point = state["best"] + length * state["direction"]
        return {**state, "trial": trial, "length": length, "point": point}
    if not len(state["moves"]):
        return {**state, "ended": NO_STEP, "point": state["best"]}
    state = {**state, "moves": state["moves"][:0], "turns": state["turns"][:0]}
    return _searching(state, state["gradient"], scaling)


def _shorter(length: float, rise: float, slope: float) -> float:
    """Return the next trial step: the minimum of a parabola, within limits."""
    curvature = rise - length * slope
    best = -slope * length**2 / (2 * curvature) if math.isfinite(curvature) else 0.0
    return min(max(best, _SHORTEST * length), _LONGEST * length)


def _accepted(state: State, value: float, gradient: Array, scaling: Scaling | None) -> State:
    move, turn = state["point"] - state["best"], gradient - state["gradient"]
    moves, turns = state["moves"], state["turns"]
    curvature = float(move @ turn)
    if curvature > _MIN_CURVATURE * float(np.linalg.norm(move) * np.linalg.norm(turn)):
        history = max(2, min(_MAX_HISTORY, _MAX_HISTORY_NUMBERS // (2 * len(move))))
        moves = np.vstack([moves, move])[-history:]
        turns = np.vstack([turns, turn])[-history:]
    state = {**state, "best": state["point"], "value": value, "gradient": gradient,
             "steps": state["steps"] + 1, "moves": moves, "turns": turns}  # fmt: skip
    return _searching(state, gradient, scaling)


def _searching(state: State, gradient: Array, scaling: Scaling | None) -> State:
    """Begin a line search from the best point."""
    at_best = None if scaling is None else partial(scaling, state["best"])
    direction = -_times_inverse_hessian(gradient, state["moves"], state["turns"], at_best)
    size, length = float(np.linalg.norm(gradient)), 1.0
    if scaling is None and not len(state["moves"]):
        # The first step has no curvature to go by: its length is at most 1.
        length = min(1.0, 1.0 / size) if size > 0 else 0.0
    furthest = length * float(np.max(np.abs(direction), initial=0.0))
    length *= min(1.0, _LONGEST_MOVE / furthest) if furthest > 0 else 1.0
    point = state["best"] + length * direction
    return {**state, "direction": direction, "length": length, "trial": 0, "point": point}


def _times_inverse_hessian(
    gradient: Array, moves: Array, turns: Array, first: Callable[[Array], Array] | None
) -> Array:
    """Return H g by the two loops of algorithm 7.4. first: multiplies by the first H"""
    result = gradient.copy()
    products = [1.0 / float(s @ y) for s, y in zip(moves, turns, strict=True)]
    shares = [0.0] * len(moves)
    for i in reversed(range(len(moves))):
        shares[i] = products[i] * float(moves[i] @ result)
        result -= shares[i] * turns[i]
    if first is not None:
        result = first(result)
    elif len(moves):
        result *= 1.0 / (products[-1] * float(turns[-1] @ turns[-1]))
    for i in range(len(moves)):
        result += moves[i] * (shares[i] - products[i] * float(turns[i] @ result))
    return result


def adam_lengths(state: State, rate: float) -> Array:
    """Return the length of Adam's last step for each parameter, per unit of its mean gradient."""
    square = state["square"] / (1 - _BETA_2 ** state["steps"])
    return np.asarray(rate / (np.sqrt(square) + _ADAM_EPSILON))
