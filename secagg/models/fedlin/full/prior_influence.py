"""How far the prior of Sigma decides the intervals of means, from the draws of one run.

If only the scale A of the prior (`equal_sites`) changes to A', a draw of (mu, Sigma, r) has the
weight p(Sigma | A') / p(Sigma | A). With a integrated out (Huang and Wand 2013, equation (3)),

    p(Sigma | A) ~ |Sigma|^(-nu / 2 - d) PROD_j A^-1 (nu (Sigma^-1)_jj + A^-2)^(-(nu + d) / 2).  (1)

So the intervals under half and under twice the scale need no further run. If the weights leave too
few effective draws, nothing is said. The Monte Carlo error of a ratio of widths is that of a
bootstrap of 20 blocks of successive draws, with the choice of the term that changes most. On 1000
independent draws it was 1.3 times the standard deviation over repetitions.

Correlations. Under this prior with nu = 2 each correlation of Sigma is uniform on (-1, 1), with the
variance 1/3. What the records add is the contraction 1 - 3 var(correlation | records) (Betancourt
2018). If it is below one half, the posterior is mostly the prior, and the report leaves it out.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from secagg.core.arrays import Array
from secagg.models.fedlin.full.equal_sites import NU
from secagg.models.fedlin.full.posterior import SharedDraws
from secagg.models.fedlin.full.settings import FullSettings

_MIN_EFFECTIVE: Final = 50.0
_BLOCKS: Final = 20
_BOOTSTRAPS: Final = 100
_CONTRACTION: Final = 0.5


def prior_facts(method: FullSettings, shared: SharedDraws) -> dict[str, Any]:
    """Return the result's entry "prior": its scale, its influence, and both in a sentence.

    half, twice: the width of the intervals of means with half and twice the scale, divided by that
        in the result, of the term that changes most; None if the draws cannot tell
    half_mcse, twice_mcse: their Monte Carlo errors
    """
    A, level = method.prior_scale, method.level
    unit = "in the columns' own units"
    if method.scale == "pooled":
        outcome = "standard deviations of the outcome"
        of = outcome if method.link.linear else f"log {method.link.effect}"
        unit = f"in {of} for one standard deviation of the predictor"
    influence = "These draws do not tell how far it decides the intervals of means: run again with "
    influence += "another scale"
    found: dict[str, Any] = dict.fromkeys(("half", "half_mcse", "twice", "twice_mcse"))
    ratios = [width_ratio(shared, A, factor * A, level) for factor in (0.5, 2.0)]
    if ratios[0] is not None and ratios[1] is not None:
        found = dict(zip(found, (*ratios[0], *ratios[1]), strict=True))
        influence = (
            "Intervals of means would be {half:.2f} times as wide with half this scale, and "
            "{twice:.2f} times with twice (the mean that changes most in each case; Monte Carlo "
            "errors {half_mcse:.2g} and {twice_mcse:.2g})"
        ).format(**found)
    text = (
        f"The prior of each standard deviation between sites is half-t with {NU:.0f} degrees of "
        f"freedom and scale {A:g} ({unit}); that of correlations is uniform. {influence}. "
        "method.sd_scale sets the scale."
    )
    return {"sd_scale": A, **found, "text": text}


def told(sd: float) -> bool:
    """Return whether the records tell a correlation with this posterior standard deviation."""
    return 1 - 3 * sd**2 >= _CONTRACTION


def log_prior(Sigma: Array, scale: float) -> Array:
    """Return log of (1) at draws (n, d, d), up to terms without A."""
    d = Sigma.shape[1]
    precision = np.diagonal(np.linalg.inv(Sigma), axis1=1, axis2=2)
    tails = (NU + d) / 2 * np.log(NU * precision + scale**-2.0)
    return np.asarray(-np.sum(tails + np.log(scale), axis=1), dtype=np.float64)


def width_ratio(
    shared: SharedDraws, scale: float, other: float, level: float
) -> tuple[float, float] | None:
    """Return the width of a mean's interval with the other scale, divided by that with this one.

    Beside it: its Monte Carlo error.
    """
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
    blocks, rng = np.array_split(np.arange(len(weights)), _BLOCKS), np.random.default_rng(0)
    again = []
    for _ in range(_BOOTSTRAPS):
        drawn = np.concatenate([blocks[b] for b in rng.integers(_BLOCKS, size=_BLOCKS)])
        again.append(_largest_ratio(shared.mu[drawn], weights[drawn], level))
    return _largest_ratio(shared.mu, weights, level), float(np.std(again))


def _largest_ratio(mu: Array, weights: Array, level: float) -> float:
    """Return the width of an interval with the weights and without, of the term that differs most.

    mu: (draws, terms); weights: (draws,), not negative
    """
    equal = np.full(len(weights), 1 / len(weights))
    weights = weights / weights.sum()
    ratios = [_width(x, weights, level) / _width(x, equal, level) for x in mu.T]
    return float(max(ratios, key=lambda ratio: abs(np.log(ratio))))


def _width(values: Array, weights: Array, level: float) -> float:
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) - weights[order] / 2
    low, high = np.interp([(1 - level) / 2, (1 + level) / 2], shares, values[order])
    return float(high - low)
