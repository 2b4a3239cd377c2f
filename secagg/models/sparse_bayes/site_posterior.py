"""A site's own posterior, from sums of its draws. Neither draws nor sums leave the site.

Writing all draws of a long run to disk in every round would take too long. Sums over rounds are
enough for means, standard deviations and, with batch means, Monte Carlo errors (Flegal, Haran and
Jones 2008, "Markov chain Monte Carlo: can we trust the third significant figure?", section 3.2).
Each chain's draws are split into `BATCHES` batches of consecutive rounds. The means of long batches
are nearly independent, and

    mcse(mean)^2 = variance of the batches' means / number of batches                            (1)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array

BATCHES = 10  # of each chain


def begin_sums(shapes: Mapping[str, tuple[int, ...]]) -> State:
    """Return sums of no draws; shapes: (chains, ...) of each quantity."""
    return {
        name: {
            "draws": np.zeros(BATCHES),
            "sum": np.zeros((BATCHES, *shape)),
            "square": np.zeros((BATCHES, *shape)),
        }
        for name, shape in shapes.items()
    }


def add_draw(sums: State, draw: Mapping[str, Array], at: int, of: int) -> State:
    """Return the sums with the draws of all chains in round `at` of `of` rounds, counted from 0."""
    batch = at * BATCHES // of
    updated: State = {}
    for name, old in sums.items():
        updated[name] = {key: values.copy() for key, values in old.items()}
        updated[name]["draws"][batch] += 1
        updated[name]["sum"][batch] += draw[name]
        updated[name]["square"][batch] += draw[name] ** 2
    return updated


def own_posterior(sums: State) -> dict[str, Array]:
    """Return "mean", "sd" and "mcse" of a quantity over all chains and batches."""
    draws, chains = sums["draws"], sums["sum"].shape[1]
    count = draws.sum() * chains
    mean = sums["sum"].sum(axis=(0, 1)) / count
    variance = sums["square"].sum(axis=(0, 1)) / count - mean**2
    used = draws > 0
    means = sums["sum"][used] / draws[used].reshape(-1, *[1] * (sums["sum"].ndim - 1))
    batches = means.shape[0] * chains
    error = means.reshape(batches, *mean.shape).std(axis=0, ddof=1 if batches > 1 else 0)
    sd = np.sqrt(np.maximum(variance, 0.0))  # below 0 by rounding only
    return {"mean": mean, "sd": sd, "mcse": error / np.sqrt(batches)}
