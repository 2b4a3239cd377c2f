"""A site's inputs in a round of a FedLin method, and the range check of its contributions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from secagg.contracts import Update
from secagg.core.arrays import Array
from secagg.errors import DataError
from secagg.models.fedlin.design import Layout
from secagg.models.fedlin.hierarchies.noisy_likelihood import NoisyRegression

FRACTION_BITS = 56
FIELD_BOUND = 2.0**40
"""Bound and fraction bits of fields without a natural bound. Beyond it, a method diverges."""


@dataclass(frozen=True)
class Round:
    """A site's inputs in a round after the first two stages.

    stage: its name; sent: the round's own arrays, from the coordinator
    noise: the variance, in the units analysed; records: of all sites
    values: its training records, as carried
    noisy: its regression, under noise once at the site, if the method knows this noise
    """

    layout: Layout
    stage: str
    sent: Mapping[str, Array]
    centre: Array
    scale: Array
    noise: float
    values: Array
    records: int
    rng: np.random.Generator
    noisy: NoisyRegression | None = None


def within_range(update: Update, most: float = FIELD_BOUND) -> Update:
    """Return the contribution unchanged. Raises `DataError` if a value exceeds `most`."""
    for values in update.values():
        if not np.all(np.abs(values) <= most):
            raise DataError(
                "fit",
                "this site's coefficients have left the range that can be sent: the method "
                "diverges, or its units or noise are extreme",
                "Take method.scale = 'pooled'; of HM1 and FedAvg a smaller method.step.",
            )
    return update
