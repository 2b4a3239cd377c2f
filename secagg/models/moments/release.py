"""What is made of the sum of moments: moments in own units, and what to say of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts, RecordCount, State
from secagg.contracts.noise import Noise
from secagg.models.common.clipped_moments import FAR_AWAY, far_away
from secagg.models.common.noisy_moments import NoisyMoments, noisy_moments, repaired
from secagg.models.common.pooled_moments import Moments
from secagg.models.common.site_confounding import HIDDEN, without_hidden
from secagg.models.moments.within_noise import without_doubt


def noisy_release(
    state: State, public: PublicFacts, noise: Noise, counted: RecordCount
) -> tuple[Moments, dict[str, Any]]:
    """Return the repaired moments, with the release, and what to say about them."""
    assert public.clip is not None
    noisy, variance = noisy_sum(state, public, noise, counted)
    quality: dict[str, Any] = {"n_error": noisy.records_error, "noise_sd": math.sqrt(variance)}
    if public.clip.whole:
        n = max(noisy.counted, 1.0)
        quality["n_error"] = math.sqrt(counted.variance)
        quality["weights"] = float(noisy.matrix[0, 0]) / n
        hidden = round(float(state[HIDDEN][0])) if HIDDEN in state else 0
        if hidden:
            quality["caution"] = without_hidden(hidden, state["sites"])
        elif far_away(float(noisy.matrix[0, 0]), noisy.counted, noisy.records_error):
            quality["caution"] = FAR_AWAY
    if "doubt" in state:
        squares = float(state["squares"][0])
        noisy = without_doubt(noisy, state["doubt"], squares, state["sites"] - hidden)
        quality |= {"centre": "site"}
    repair = repaired(noisy)
    upper = repair.matrix[np.triu_indices(len(repair.matrix))]
    moments = replace(pooled_moments(upper, public, 0.0), noisy=noisy, within=noisy.within)
    return moments, quality | {"repair": repair.note()}


def noisy_sum(
    state: State, public: PublicFacts, noise: Noise, counted: RecordCount
) -> tuple[NoisyMoments, float]:
    """Return the noisy moments, and the variance of the noise off the diagonal."""
    assert public.clip is not None
    # an upper bound if sites dropped out after the set of sites was fixed
    variance = noise.sum_variance(state["sites"], noise.site_variance(state["sites"]))
    constant = public.clip.constant
    if (
        HIDDEN in state and state[HIDDEN].any()
    ):  # some records are left out: no more are known of than their weights
        most = min(counted.records, float(state["upper"][0]) / constant**2)
        counted = RecordCount(max(most, 1.0), counted.variance + 2 * variance / constant**4)
    return noisy_moments(state["upper"], public, variance, counted, constant), variance


def pooled_moments(upper: NDArray[np.float64], public: PublicFacts, step_error: float) -> Moments:
    """Return the moments in the columns' own units from M's upper triangle in scaled units.

    step_error: bound on the fixed-point error of any entry of M: sites x half a step

    Centring is done in scaled units, about the middle of the public bounds, where the sums are
    small. Rounding errors are propagated: an entry M_jk is a float64 sum of n products, so its
    error is at most n eps root(M_jj M_kk) plus `step_error`, with eps the precision of float64.
    Subtracting s_j s_k / n, whose terms are no larger, at most quadruples both parts. A column that
    varies less than this error is treated as constant: its rows of the scatter are set to 0.
    """
    p = len(public.variables)
    M = np.zeros((p + 1, p + 1))
    M[np.triu_indices(p + 1)] = upper
    n, sums = round(float(M[0, 0])), M[0, 1:]
    products = M[1:, 1:] + np.triu(M[1:, 1:], 1).T
    centred = products - np.outer(sums, sums) / n
    uncertain = 4 * (step_error + n * np.finfo(np.float64).eps * np.diagonal(products))
    varies = np.diagonal(centred) > 2 * uncertain
    centred[~varies] = 0.0
    centred[:, ~varies] = 0.0
    errors = np.where(varies, uncertain / np.where(varies, np.diagonal(centred), 1.0), 0.0)
    middle = np.array([v.midpoint for v in public.variables])
    half = np.array([v.half_range for v in public.variables])
    names, columns = zip(*((v.name, v.column) for v in public.variables), strict=True)
    scatter = centred * half[:, None] * half[None, :]
    return Moments(names, n, middle + half * sums / n, scatter, errors, columns=columns)
