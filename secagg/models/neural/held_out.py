"""How strongly to shrink a network at one site, chosen by records that the fit has not seen.

K-fold cross-validation (Stone 1974, "Cross-validatory choice and assessment of statistical
predictions"). Each record is left out once, with its fold, and its loss is taken at parameters
fitted to the other folds. The strength of least mean loss is chosen. Fits go from the strongest
penalty to the weakest, and each begins where the last one ended.

The mean loss of the strength chosen is slightly too small, because it is the least of several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from secagg.core.arrays import Array
from secagg.models.neural.gradients import record_losses
from secagg.models.neural.learner import Learner

FOLDS: Final = 5


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The losses of held-out records, shape (strengths, records), for each strength of a penalty.

    strengths: from the strongest to the weakest
    """

    strengths: tuple[float, ...]
    losses: Array

    @property
    def best(self) -> int:
        """The number of the strength with the least mean loss; the strongest of equal ones."""
        return int(np.argmin(self.losses.mean(axis=1)))

    @property
    def chosen(self) -> float:
        """The strength with the least mean loss."""
        return self.strengths[self.best]

    def gain(self) -> tuple[float, float]:
        """Return how much less the chosen strength loses per record than the strongest, and its se.

        se: the standard error over records
        """
        gains = self.losses[0] - self.losses[self.best]
        return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))


def held_out_losses(
    learner: Learner,
    start: Array,
    values: Array,
    strengths: Sequence[float],
    fit: Callable[[Array, Array, float], Array],
    rng: np.random.Generator,
) -> HeldOut:
    """Return the losses of each record, left out with its fold.

    start: the parameters with which the path of each fold begins
    values: shape (records, variables); at least 2 records
    strengths: from the strongest to the weakest
    fit: from start, records and strength to parameters
    """
    order = rng.permutation(len(values))
    losses = np.empty((len(strengths), len(values)))
    for left_out in np.array_split(order, min(FOLDS, len(values))):
        rest, theta = np.delete(values, left_out, axis=0), start
        for i, strength in enumerate(strengths):
            theta = fit(theta, rest, strength)
            losses[i, left_out] = record_losses(learner, theta, values[left_out])
    return HeldOut(tuple(strengths), losses)
