"""A Gibbs sampler's move along a line, for a density that has a part at each site.

A coordinator has a parameter theta, and sites have latent variables that are nearly a function of
it. Drawn in turn, theta and they hold each other back. So all of them move together along a line,
theta by a u, with a direction u that does not depend on where they are (hit and run; Chen and
Schmeiser 1993). Sites send the change of their log densities as a polynomial in a:

    c_1 a + c_2 a^2 + c_3 a^3 + c_4 a^4 + c_5 a^2,    c_2 <= 0                                   (1)

The coordinator has the sum of these polynomials. To c_1 and c_2 it adds its own prior of theta,
which may depend on which of some models holds, so model b has the log density
f_b(a) = log w_b + (1). About a point x of the line,

    f_b(x + d) = f_b(x) + c_1b(x) d + (c_2b(x) + c_5(x)) d^2 + ...,
    c_2b(x) = c_2b + 2 c_3 x + 4 c_4 x^2                                                         (2)

where c_2b(x) is what c_2b is if the sites' present state is at x. Model b and a are proposed from
the mixture of normal densities exp(f_b(0) + c_1b a + c_2b a^2), and accepted with the ratio of
Metropolis and Hastings, for which (2) gives the way back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array

TERMS = 5


def draw_along(
    terms: Array, log_weights: Array, now: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Array, NDArray[np.int64]]:
    """Return a, shape (...), and the model, whose number is `now` if the proposal was rejected.

    terms: c_1 to c_5 of (1) for each model, shape (models, ..., 5), with c_2 below 0
    log_weights: the logarithms of w_b, shape (models, ...)
    """
    start = _Proposal(terms, log_weights, np.zeros(now.shape))
    model = np.argmax(start.log_integrals + rng.gumbel(size=log_weights.shape), axis=0)
    variance = -1 / (2 * _of_model(start.square, model))
    a = variance * _of_model(start.linear, model)
    a = a + np.sqrt(variance) * rng.standard_normal(now.shape)
    end = _Proposal(terms, log_weights, a)
    gain = _of_model(end.value, model) - _of_model(start.value, now)
    gain = gain + end.log_density(-a, now) - start.log_density(a, model)
    accepted = np.log(rng.random(a.shape)) < gain
    return np.where(accepted, a, 0.0), np.where(accepted, model, now)


class _Proposal:
    """The mixture that is proposed from if the present state is at x of the line."""

    def __init__(self, terms: Array, log_weights: Array, x: Array) -> None:
        linear, square, cube, fourth, more = np.moveaxis(terms, -1, 0)
        whole = square + more
        self.value = log_weights + x * (linear + x * (whole + x * (cube + x * fourth)))
        self.linear = linear + x * (2 * whole + x * (3 * cube + x * 4 * fourth))
        self.square = square + x * (2 * cube + x * 4 * fourth)
        self.log_integrals = self.value - self.linear**2 / (4 * self.square)
        self.log_integrals = self.log_integrals + np.log(-np.pi / self.square) / 2

    def log_density(self, d: Array, model: NDArray[np.int64]) -> Array:
        """Return the log density of a step d to this model."""
        parts = (_of_model(each, model) for each in (self.value, self.linear, self.square))
        value, linear, square = parts
        found: Array = value + d * (linear + d * square)
        found = found - np.logaddexp.reduce(self.log_integrals, axis=0)
        return found


def _of_model(values: Array, model: NDArray[np.int64]) -> Array:
    found: Array = np.take_along_axis(values, model[None], axis=0)[0]
    return found


def draw_direction(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return unit vectors (..., q): one axis, or any direction, each in half of all draws."""
    any_direction = rng.standard_normal(shape)
    one = np.eye(shape[-1])[rng.integers(shape[-1], size=shape[:-1])]
    chosen = np.where(rng.random((*shape[:-1], 1)) < 0.5, one, any_direction)
    unit: Array = chosen / np.linalg.norm(chosen, axis=-1, keepdims=True)
    return unit
