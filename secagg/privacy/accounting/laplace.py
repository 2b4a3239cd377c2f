"""The privacy loss of Laplace noise, continuous and discrete, and of any pure epsilon promise.

The loss of an outcome is the log of its probability under one of two neighbouring tables over that
under the other. Noise P(x) ~ e^(-a|x|) on the integers, on a number that a record moves by `steps`
of them, makes a loss of a (steps - 2k) with k = 0, 1, ..., steps (epsilon = a steps), where

    P(k = 0) = w,  P(k) = w (1 - e^-a) e^(-ak) in between,  P(k = steps) = w e^-epsilon,
    w = 1 / (1 + e^-a),                    and Q, of the other table, the same with k -> steps - k.

With steps = inf that is the Laplace noise on real numbers (w = 1/2). With steps = 1 it is
randomised response, the worst mechanism there is with this pure epsilon (Kairouz, Oh &
Viswanath 2015), hence the default: `Laplace(epsilon)` holds for every pure epsilon-private
mechanism. Between the two the loss is exactly the chord ("connect the dots") discretisation of the
real Laplace loss: both have delta(epsilon - 2aj) = 1 - e^(-aj).

Not protected: a query of several numbers, whose largest L1 movement `steps` counts: its loss is not
this one. Use steps = 1 there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.errors import UsageError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Laplace:
    """Discrete or real Laplace noise, or any mechanism of this pure epsilon.

    epsilon: the most one record moves the number, over the noise's scale; from 0 to inf
    steps: the most one record moves it, in units of the grid that the noise is drawn on; inf for
    noise on real numbers; 1, the worst, for anything else that is epsilon-private
    """

    epsilon: float
    steps: float = 1

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise UsageError("epsilon", f"{self.epsilon} is not a number from 0 on")
        if not (self.steps >= 1 and (self.steps == math.inf or self.steps == int(self.steps))):
            raise UsageError("steps", f"{self.steps} is neither a count from 1 on nor inf")

    @property
    def decay(self) -> float:
        """Return a, the decay of the noise per step of its grid (0 on real numbers)."""
        return self.epsilon / self.steps

    def log_moment(self, order: float) -> float:
        """Return log E_P[e^(order loss)], order > 0; Mironov 2017, table II, for real numbers."""
        a = self.decay
        b = a * (1 + 2 * order)
        if a == 0:
            inner = -math.expm1(-self.epsilon * (1 + 2 * order)) / (1 + 2 * order)
        elif b * (self.steps - 1) == 0:
            inner = 0.0
        else:
            inner = (
                math.expm1(-a) * math.exp(-b) * math.expm1(-b * (self.steps - 1)) / -math.expm1(-b)
            )
        ends = 1 + math.exp(-self.epsilon * (1 + 2 * order))
        return order * self.epsilon + math.log((ends + inner) / (1 + math.exp(-a)))

    def masses(self, edges: Floats) -> tuple[Floats, Floats]:
        """Return P and Q of a loss in each (edges[i], edges[i + 1]].

        edges: increasing, the first below -epsilon and the last above epsilon, shape (n + 1,)
        An outcome within rounding of an edge may be counted on either side of it.
        """
        a, epsilon = self.decay, self.epsilon
        weight = 1 / (1 + math.exp(-a))
        if a > 0:  # a k of the last outcome whose loss is above the edge, plus a
            k = np.ceil((self.steps - edges / a) / 2 - 1e-9)
            y = a * np.clip(k, 1, self.steps)
        else:
            y = np.clip((epsilon - edges) / 2, 0, epsilon)
        # y falls as edges rise; the integral of e^-y between two of them, without cancellation
        p = weight * np.exp(-y[1:]) * -np.expm1(-(y[:-1] - y[1:]))
        q = weight * math.exp(-a) * np.exp(y[:-1] - epsilon) * -np.expm1(-(y[:-1] - y[1:]))
        for loss, of_p, of_q in (
            (epsilon, 1.0, math.exp(-epsilon)),
            (-epsilon, math.exp(-epsilon), 1.0),
        ):
            bucket = np.searchsorted(edges, loss) - 1
            p[bucket] += weight * of_p
            q[bucket] += weight * of_q
        return p, q
