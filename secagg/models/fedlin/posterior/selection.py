"""Which predictors a site's posterior includes, and how sure that is.

Yue, Al Kontar and Estrada Gomez ("Federated data analytics: a study on linear models", 2022),
section 4.3: Bayesian penalties make no coefficient exactly 0, so a predictor is left out if the
credible interval of its coefficient covers 0. The paper's simulations use 90 % intervals.

included    the interval has quantiles (1 -+ level) / 2 of the draws, and does not cover 0
direction   the larger of P(theta > 0) and P(theta < 0); about 1/2 if the sign is uncertain
null        P(|theta| <= rope): the coefficient is in a range about 0 without practical importance

Means and interval ends have Monte Carlo errors, computed by the method of batch means (Flegal,
Haran and Jones 2008). The draws are stored in order, chain after chain. They are divided into
twenty consecutive batches, which are nearly independent. The spread between the batches gives the
Monte Carlo error of all draws together. (Effective sample sizes for some hundred numbers of a site
would take much longer.) If an end of an interval is within two Monte Carlo errors of 0, other draws
might have led to the opposite decision, and the coefficient is marked `doubtful`. If all draws
agree, a probability is reported as 0 or 1. Its precision is limited by the number of draws.
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
    """Summaries of each coefficient, all of shape (d,).

    low, high: the interval; mcse_...: Monte Carlo errors
    """

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


def select(theta: Array, level: float, rope: float = 0.0) -> Selection:
    """Summarise draws of theta (draws, d), at least 40.

    rope: half width of the range about 0 in `null`, in theta's units. At 0, `null` is 0 unless a
        coefficient is exactly 0.
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
    """Return the Monte Carlo error over all draws, from the batches' summaries (batches, d)."""
    error: Array = of_batches.std(axis=0, ddof=1) / np.sqrt(len(of_batches))
    return error
