"""Which predictors a site's posterior includes, and how sure that is.

Yue, Al Kontar and Estrada Gomez ("Federated data analytics: a study on linear models", 2022),
section 4.3: Bayesian penalties make no coefficient exactly 0, so a predictor is left out if the
credible interval of its coefficient covers 0. The paper's simulations take intervals of 90 %.

included    the interval has quantiles (1 -+ level) / 2 of the draws, and does not cover 0
direction   the larger of P(theta > 0) and P(theta < 0): 1/2 if the sign is open
null        P(|theta| <= rope), of a range about 0 that makes no difference in practice

Means and ends have Monte Carlo errors, by batches (Flegal, Haran and Jones 2008): draws are in the
order in which they were drawn, chain after chain, so that twenty runs of them are nearly
independent, and what differs between these tells the error of all. (A site has some hundred numbers
to tell; an effective sample size of each would take much longer.) Where an interval
ends within two errors of 0, other draws may as well have decided otherwise: `doubtful`. A
probability of which all draws agree is as close to 0 or 1 as draws are many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array

Flags = NDArray[np.bool_]

_BATCHES = 20


@dataclass(frozen=True)
class Selection:
    """All of shape (d,); low, high: the interval; mcse_: Monte Carlo errors."""

    mean: Array
    sd: Array
    low: Array
    high: Array
    mcse_mean: Array
    mcse_low: Array
    mcse_high: Array
    included: Flags
    doubtful: Flags
    direction: Array
    null: Array


def select(theta: Array, level: float = 0.9, rope: float = 0.0) -> Selection:
    """Return what draws of theta (draws, d) say of each coefficient; at least 40 draws.

    rope: of the null interval, in theta's units; at 0, and no coefficient exactly 0, null is 0
    """
    ends = (1 - level) / 2, (1 + level) / 2
    low, high = np.quantile(theta, ends, axis=0)
    each = len(theta) // _BATCHES
    batches = theta[: each * _BATCHES].reshape(_BATCHES, each, -1)
    lows, highs = np.quantile(batches, ends, axis=1)
    mcse_low, mcse_high = _error(lows), _error(highs)
    positive, null = theta > 0, np.abs(theta) <= rope
    share = positive.mean(axis=0)
    return Selection(
        mean=theta.mean(axis=0),
        sd=theta.std(axis=0, ddof=1),
        low=low,
        high=high,
        mcse_mean=_error(batches.mean(axis=1)),
        mcse_low=mcse_low,
        mcse_high=mcse_high,
        included=(low > 0) | (high < 0),
        doubtful=(np.abs(low) < 2 * mcse_low) | (np.abs(high) < 2 * mcse_high),
        direction=np.maximum(share, 1 - share),
        null=null.mean(axis=0),
    )


def _error(of_batches: Array) -> Array:
    """Return the error of what all draws say, from what each batch says (batches, d)."""
    error: Array = of_batches.std(axis=0, ddof=1) / np.sqrt(len(of_batches))
    return error
