"""The distribution of one column given all others: its moments, its density, and draws from it.

A column with levels has probabilities proportional to exp(output), output 0 for the first level. A
continuous column is its output plus a residual, clipped to the public bounds
(`secagg.models.neural.ngm.fitted.residuals`). Moments are in the column's own unit, and so of
exp(value) if the job takes the logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.model import FittedNgm, States
from secagg.models.neural.ngm.fitted.residuals import ENDS, NORMAL_SHARES, group_of

_NORMAL = float(np.log(2 * np.pi) / 2)
_FAR = 40.0  # standard deviations; beyond it, the normal density is 0 in floating point


@dataclass(frozen=True, eq=False)
class Conditional:
    """A column given all others.

    number: of the column
    logarithm: whether the unit of the analysis is the logarithm of the column's own unit
    """

    model: FittedNgm
    number: int
    logarithm: bool = False

    @property
    def levels(self) -> int:
        """Number of levels; 0 for a continuous column."""
        return self.model.levels[self.number]

    @property
    def variable(self) -> int:
        return self.model.layout.columns[self.number].positions[0]

    @property
    def _continuous(self) -> int:
        return self.model.number_among_continuous[self.number]

    @property
    def sd(self) -> Array:
        """The residual sd of a continuous column, in units of z: one, or one for each state."""
        return np.asarray(self.model.sd[self._continuous])

    def outputs(self, states: States) -> Array:
        """Return the outputs, shape (variables of the column, states)."""
        return self.model.networks[self.number](states.z)

    def log_probabilities(self, outputs: Array) -> Array:
        """Return logarithms of the levels' probabilities, shape (levels, states)."""
        logits = np.vstack([np.zeros(outputs.shape[1]), outputs])
        logits -= logits.max(axis=0)
        return np.asarray(logits - np.log(np.sum(np.exp(logits), axis=0)))

    def draw(
        self,
        states: States,
        rng: np.random.Generator,
        free: NDArray[np.bool_] | None = None,
        shift: Array | None = None,
    ) -> Array:
        """Replace the column's value by a draw where it is free (None: everywhere).

        shift: added to the outputs of a column with levels, shape (variables of the column,)
        Return the outputs, with the shift.
        """
        outputs = self.outputs(states)
        if shift is not None:
            outputs = outputs + shift[:, None]
        uniform = rng.random((outputs.shape[1],))
        if self.levels:
            below = np.cumsum(np.exp(self.log_probabilities(outputs)), axis=0)[:-1]
            self.set_level(states, np.sum(uniform >= below, axis=0), free)
        elif self.model.residuals is None:
            self.set_value(states, outputs[0] + self.sd * ndtri(uniform), free)
        else:
            drawn = self.model.residuals.draws(self._continuous, outputs[0], self.sd, uniform)
            self.set_value(states, drawn, free)
        return outputs

    def set_level(
        self, states: States, level: NDArray[np.intp], free: NDArray[np.bool_] | None = None
    ) -> None:
        """Set the level of each state where it is free."""
        if free is not None:
            level = np.where(free, level, states.level[self.number])
        states.level[self.number] = level
        at = list(self.model.layout.columns[self.number].positions)
        states.z[at] = self.model.z_of_levels[self.number][:, level]

    def set_value(self, states: States, z: Array, free: NDArray[np.bool_] | None = None) -> None:
        """Set the value of each state where it is free, clipped to the public bounds."""
        v = self.variable
        z = np.clip(z, self.model.low[v], self.model.high[v])
        states.z[v] = z if free is None else np.where(free, z, states.z[v])

    def own(self, z: Array) -> Array:
        """Return values in the column's own unit."""
        x = self.model.origins[self.variable] + self.model.slopes[self.variable] * z
        return np.exp(x) if self.logarithm else np.asarray(x)

    def moments(self, outputs: Array) -> tuple[Array, Array]:
        """Return the means of the value and of its square, in own units, for each state."""
        model, v, o, sd = self.model, self.variable, outputs[0], self.sd[..., None]
        if model.scale[v] == 0:
            constant = self.own(np.zeros(len(o)))
            return constant, constant**2
        # Bins of e = (z - o) / sd, in each of which e is normal, with a weight.
        edges, weights = np.array([-_FAR, _FAR]), np.ones((1, 1))
        if model.residuals is not None:
            edges = np.clip(ENDS, -_FAR, _FAR)
            weights = (model.residuals.shares[self._continuous] / NORMAL_SHARES)[group_of(o)]
        below, above = ((end - o[:, None]) / sd for end in (model.low[v], model.high[v]))
        a, b = (np.clip(e, below, above) for e in (edges[:-1], edges[1:]))
        at_low = np.maximum(ndtr(np.minimum(edges[1:], below)) - ndtr(edges[:-1]), 0)
        at_high = np.maximum(ndtr(edges[1:]) - ndtr(np.maximum(edges[:-1], above)), 0)
        centre, slope = model.origins[v] + model.slopes[v] * o[:, None], model.slopes[v] * sd
        low, high = self.own(np.array([model.low[v], model.high[v]]))
        first, second = (_log_moments if self.logarithm else _moments)(centre, slope, a, b)
        first, second = (
            first + at_low * low + at_high * high,
            (second + at_low * low**2 + at_high * high**2),
        )
        return np.sum(weights * first, axis=1), np.sum(weights * second, axis=1)

    def log_density(self, states: States, outputs: Array) -> Array:
        """Return the logarithm of each state's probability, or of its density per unit of z."""
        if self.levels:
            logs = self.log_probabilities(outputs)
            return np.asarray(logs[states.level[self.number], np.arange(outputs.shape[1])])
        z, o, sd = states.z[self.variable], outputs[0], self.sd
        if self.model.residuals is None:
            return np.asarray(-((z - o) ** 2) / (2 * sd * sd) - np.log(sd) - _NORMAL)
        return self.model.residuals.log_density(self._continuous, o, sd, z)


def _moments(centre: Array, slope: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Return the integrals of x and x^2 over e from a to b; x = centre + slope e, e normal."""
    at_a, at_b = (np.exp(-t * t / 2 - _NORMAL) for t in (a, b))
    zero, one = ndtr(b) - ndtr(a), at_a - at_b
    two = zero + a * at_a - b * at_b
    return (
        centre * zero + slope * one,
        centre**2 * zero + 2 * centre * slope * one + slope**2 * two,
    )


def _log_moments(centre: Array, slope: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Return the integrals of exp(x) and exp(2 x), as `_moments`."""
    first, second = (
        np.exp(power * centre + (power * slope) ** 2 / 2)
        * (ndtr(b - power * slope) - ndtr(a - power * slope))
        for power in (1, 2)
    )
    return first, second
