"""The family of linear regression: a normal outcome with mean eta. Its fit needs moments only."""

from __future__ import annotations

import numpy as np

from secagg.contracts import Family, FisherLaw, Outcome
from secagg.core.arrays import Array


def _mean(eta: Array) -> Array:
    return eta


GAUSSIAN = Family(
    name="gaussian",
    outcome=Outcome.NUMBER,
    mean=_mean,
    log_likelihood=lambda y, eta: -((y - eta) ** 2) / 2,
    score=lambda y, eta: y - eta,
    weight=np.ones_like,
    linear=True,
    dispersed=True,
    fisher=FisherLaw(),
)
