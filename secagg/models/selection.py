"""Which predictors a site's posterior includes, and how sure that is.

Yue, Al Kontar and Estrada Gomez ("Federated data analytics: a study on linear models", 2022),
section 4.3: Bayesian penalties make no coefficient exactly 0, so a predictor is left out if the
credible interval of its coefficient covers 0. The paper's simulations take intervals of 90 %.

included    the interval has quantiles (1 -+ level) / 2 of the draws, and does not cover 0
direction   the larger of P(theta > 0) and P(theta < 0): 1/2 if the sign is open
null        P(|theta| <= rope), of a range about 0 that makes no difference in practice

Each has its Monte Carlo error (`secagg.models.posterior`). Draws are in the order in which they
were drawn, chain after chain: what is known of their dependence is from their order. Where an
interval ends within two errors of 0, other draws may as well have decided otherwise: `doubtful`. A
probability of which all draws agree has an error of 0, and is as close to 0 or 1 as draws are
many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.models.posterior import Posterior, summarise

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Selection:
    """posterior: mean, sd, interval and errors, shape (d,); all else of that shape."""

    posterior: Posterior
    included: Flags
    doubtful: Flags
    direction: Array
    direction_error: Array
    null: Array
    null_error: Array


def select(theta: Array, level: float = 0.9, rope: float = 0.0) -> Selection:
    """Return what draws of theta (draws, d) say of each coefficient; at least 4 draws.

    rope: of the null interval, in theta's units; at 0, and no coefficient exactly 0, null is 0
    """
    draws = theta[:, None]
    posterior = summarise(draws, level)
    positive, null = (
        summarise(part.astype(np.float64)) for part in (draws > 0, np.abs(draws) <= rope)
    )
    near = (np.abs(posterior.low) < 2 * posterior.mcse_low) | (
        np.abs(posterior.high) < 2 * posterior.mcse_high
    )
    return Selection(
        posterior,
        included=(posterior.low > 0) | (posterior.high < 0),
        doubtful=near,
        direction=np.maximum(positive.mean, 1 - positive.mean),
        direction_error=positive.mcse_mean,
        null=null.mean,
        null_error=null.mcse_mean,
    )
