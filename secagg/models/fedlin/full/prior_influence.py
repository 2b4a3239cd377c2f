"""How far the prior of Sigma decides the intervals of means, from the draws of one run.

If only the scale A of the prior (`equal_sites`) changes to A', a draw of (mu, Sigma, r) has the
weight p(Sigma | A') / p(Sigma | A). With a integrated out (Huang and Wand 2013, equation (3)),

    p(Sigma | A) ~ |Sigma|^(-nu / 2 - d) PROD_j A^-1 (nu (Sigma^-1)_jj + A^-2)^(-(nu + d) / 2).  (1)

So the intervals under half and under twice the scale need no further run. If the weights leave too
few effective draws, nothing is said.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from secagg.core.arrays import Array
from secagg.models.fedlin.full.equal_sites import NU
from secagg.models.fedlin.full.posterior import SharedDraws
from secagg.models.fedlin.full.settings import FullSettings

_MIN_EFFECTIVE: Final = 50.0


def prior_facts(method: FullSettings, shared: SharedDraws) -> dict[str, Any]:
    """Return the result's entry "prior": its scale, its influence, and both in a sentence.

    half, twice: the width of the intervals of means with half and twice the scale, divided by that
        in the result, of the term that changes most; None if the draws cannot tell
    """
    A, level = method.prior_scale, method.level
    half, twice = (width_ratio(shared, A, factor * A, level) for factor in (0.5, 2.0))
    unit = "in the columns' own units"
    if method.scale == "pooled":
        outcome = "standard deviations of the outcome"
        of = outcome if method.link.linear else f"log {method.link.effect}"
        unit = f"in {of} for one standard deviation of the predictor"
    influence = "These draws do not tell how far it decides the intervals of means: run again with "
    influence += "another scale"
    if half is not None and twice is not None:
        influence = (
            f"Intervals of means would be about {half:.2g} times as wide with half this scale, and "
            f"about {twice:.2g} times with twice (the mean that changes most in each case)"
        )
    text = (
        f"The prior of each standard deviation between sites is half-t with {NU:.0f} degrees of "
        f"freedom and scale {A:g} ({unit}); that of correlations is uniform. {influence}. "
        "method.sd_scale sets the scale."
    )
    return {"sd_scale": A, "half": half, "twice": twice, "text": text}


def log_prior(Sigma: Array, scale: float) -> Array:
    """Return log of (1) at draws (n, d, d), up to terms without A."""
    d = Sigma.shape[1]
    precision = np.diagonal(np.linalg.inv(Sigma), axis1=1, axis2=2)
    tails = (NU + d) / 2 * np.log(NU * precision + scale**-2.0)
    return np.asarray(-np.sum(tails + np.log(scale), axis=1), dtype=np.float64)


def width_ratio(shared: SharedDraws, scale: float, other: float, level: float) -> float | None:
    """Return the width of a mean's interval with the other scale, divided by that with this one."""
    try:
        log = log_prior(shared.Sigma, other) - log_prior(shared.Sigma, scale)
    except np.linalg.LinAlgError:  # a draw that is singular in float64
        return None
    weights = np.exp(log - np.max(log))
    weights /= weights.sum()
    # draws that were resampled with `points` may be equal
    _, places = np.unique(shared.mu, axis=0, return_inverse=True)
    distinct = np.bincount(places.ravel(), weights)
    if 1 / (distinct @ distinct) < _MIN_EFFECTIVE:
        return None
    equal = np.full(len(weights), 1 / len(weights))
    ratios = [_width(x, weights, level) / _width(x, equal, level) for x in shared.mu.T]
    return float(max(ratios, key=lambda ratio: abs(np.log(ratio))))


def _width(values: Array, weights: Array, level: float) -> float:
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) - weights[order] / 2
    low, high = np.interp([(1 - level) / 2, (1 + level) / 2], shares, values[order])
    return float(high - low)
