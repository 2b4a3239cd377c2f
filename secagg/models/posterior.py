"""What chains of draws say, and how far to believe it.

Vehtari, Gelman, Simpson, Carpenter and Bürkner ("Rank-normalization, folding, and localization: an
improved R-hat", Bayesian Analysis 2021), as computed by the library arviz-stats. Every number that
is reported has its Monte Carlo error: what it would change by if the chains were run again.

mean, sd         of the posterior; mcse_mean, mcse_sd their Monte Carlo errors
low, high        quantiles (1 -+ level) / 2; mcse_low, mcse_high
r_hat            rank-normalised split R-hat, the larger of bulk's and the folded one
ess_bulk, ess_tail  effective sample sizes, of all chains together

A quantity whose draws are all equal has neither: its r_hat and ess are NaN, its errors 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from arviz_stats.base.array import array_stats
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST_R_HAT = 1.01
LEAST_ESS = 100  # for each chain, in the paper above


@dataclass(frozen=True)
class Posterior:
    """Summaries of one kind of quantity; all arrays have its shape."""

    mean: Array
    sd: Array
    low: Array
    high: Array
    mcse_mean: Array
    mcse_sd: Array
    mcse_low: Array
    mcse_high: Array
    r_hat: Array
    ess_bulk: Array
    ess_tail: Array


def summarise(draws: Array, level: float = 0.95) -> Posterior:
    """Summarise draws of shape (draws, chains, ...): at least 4 draws of each chain."""
    tails = ((1 - level) / 2, (1 + level) / 2)
    low, high = np.quantile(draws, tails, axis=(0, 1))

    def computed(statistic: str, **options: Any) -> Array:
        function = getattr(array_stats, statistic)  # the library has no types
        return np.asarray(function(draws, chain_axis=1, draw_axis=0, **options))

    def error(method: str, **options: Any) -> Array:
        found = computed("mcse", method=method, **options)
        return np.where(np.isfinite(found), found, 0.0)

    return Posterior(
        mean=draws.mean(axis=(0, 1)),
        sd=draws.std(axis=(0, 1), ddof=1),
        low=low,
        high=high,
        mcse_mean=error("mean"),
        mcse_sd=error("sd"),
        mcse_low=error("quantile", prob=tails[0]),
        mcse_high=error("quantile", prob=tails[1]),
        r_hat=computed("rhat", method="rank"),
        ess_bulk=computed("ess", method="bulk"),
        ess_tail=computed("ess", method="tail", prob=tails),
    )


def complaints(found: Mapping[str, Posterior], chains: int, names: Sequence[str]) -> list[str]:
    """Return a sentence for each kind of quantity that was not sampled well, worst entry named.

    names: of the entries along the last axis
    """
    notes = []
    for kind, posterior in found.items():
        r_hat = np.nan_to_num(posterior.r_hat, nan=1.0)
        if np.max(r_hat) > MOST_R_HAT:
            worst = np.unravel_index(np.argmax(r_hat), r_hat.shape)
            notes.append(
                f"Chains disagree about {kind}: R-hat is {np.max(r_hat):.3f} for "
                f"{names[int(worst[-1])]!r}, and at most {MOST_R_HAT} where they mix. "
                "More rounds are needed (method.rounds)."
            )
        least = np.fmin(posterior.ess_bulk, posterior.ess_tail)
        if np.nanmin(least) < LEAST_ESS * chains:
            worst = np.unravel_index(np.nanargmin(least), least.shape)
            notes.append(
                f"Few independent draws of {kind}: the effective sample size is "
                f"{np.nanmin(least):.0f} for {names[int(worst[-1])]!r}, and {LEAST_ESS * chains} "
                "are wanted. Monte Carlo errors are beside every number."
            )
    return notes
