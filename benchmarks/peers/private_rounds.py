"""Noisy gradient rounds over secure sums, with typical ranges and the mean of the late iterates.

Bassily, Smith and Thakurta (2014), with all records in every round: no sampling, so it needs no
trusted curator, and its noise is that of secagg's sums (five sites, one may collude: 5 / 4 of the
variance). Polyak and Juditsky (1992): the noise of the mean of T late iterates is about that of one
Newton step with T times the budget of a round, without a noisy matrix of curvature. It says how
much error `one_step` has for its few rounds and its intervals; it has none.

A record's gradient is shortened to `clip`. Not protected: anything. This is for benchmarks.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from secagg.privacy.accounting.gaussian_dp import gaussian_mu

Floats = NDArray[np.float64]

SITES, COLLUDING = 5, 1


def gradient_rounds(
    z: Floats, y: Floats, family: str, epsilon: float, delta: float, rng: np.random.Generator, *,
    rounds: int, clip: float, rate: float,
) -> Floats:  # fmt: skip
    """Return the slopes, shape (p,). y: 0 or 1 for logistic regression."""
    X = np.column_stack([np.ones(len(z)), z])
    lengths = np.sqrt((X**2).sum(axis=1))
    sd = clip * math.sqrt(rounds * SITES / (SITES - COLLUDING)) / gaussian_mu(epsilon, delta)
    b, total = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for turn in range(rounds):
        eta = X @ b
        r = y - (eta if family == "gaussian" else expit(eta))
        r = r * np.minimum(1.0, clip / np.maximum(np.abs(r) * lengths, 1e-12))
        b = b + rate / len(y) * (X.T @ r + sd * rng.normal(size=len(b)))
        total += b if turn >= rounds // 2 else 0.0
    return np.asarray(total[1:] / (rounds - rounds // 2))
