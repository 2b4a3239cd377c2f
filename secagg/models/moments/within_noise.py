"""Moments within sites under noise: each site subtracts its own noisy means.

Records are whole ones relative to typical ranges, z = (c', u) with |z| <= R
(`secagg.contracts.noise.Clip.whole`). First a site sums, for its own use,

    v = S z / a, shortened to length 1,   S = diag(2, 1, ..., 1),                             (1)
    a^2 = 1.44 (p / 16 + 4 c^2), or R^2 + 3 c^2 if that is less: no S z is longer,

so |v| <= 1: adding a record changes the sum by at most 1, replacing one by at most 2. It adds noise
of its own to it, as large as if the sum were sent, and m = (sums of u) / (sum of constants) are its
noisy means. Then it contributes the moments of z - (0, m) c' / c, shortened to R and on the grid as
before. Given the noisy sum, m is a constant, and the sensitivity of moments does not depend on it
(Dong, Roth & Su 2022, theorem 9: adaptive composition). The whole record is weighted, so linear
equations within a site stay linear equations.

What leaves a site from (1) is one number, a function of the noisy sum: b, the sum of the errors'
variances, which the coordinator needs. With errors d_k of site k's means, the moments contain
sum_k n_k d_k d_k', whose expectation is about b I. So b is subtracted from the squares, and the
variances of the noise grow by b^2 / K (twice that for squares), as d is normal and sites are about
equally large:

    b = sum_k b_k,   b_k = n_k var(d_kj) = g s^2 / t_k,                                       (2)

with the noise's standard deviation s, t_k the noisy sum of the constants, and g from the units of
(1). For means that are not 0, d has more variance by (m / 2 c)^2, which is ignored: it is small
unless typical centres are far off. A site that finds t_k < 3 s takes the typical centres, b_k = 0:
the noise hides its means, and differences between such sites remain.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from secagg.contracts import Field, Kind, LocalTraining, PublicFacts, SiteRecords, Stage, Update
from secagg.contracts.facts import IntegerNoise
from secagg.contracts.noise import Clip, Sensitivity
from secagg.core.arrays import Array, shortened, shortened_to_grid, truncated
from secagg.errors import CapabilityError, JobError
from secagg.models.common.clipped_moments import upper_moments
from secagg.models.common.clipped_sums import NORM_SLACK
from secagg.models.common.noisy_moments import NoisyMoments

MEANS = "means"
BUDGET = 0.2
"""Of the means: each site has fewer records than all together."""
_LONGER, _REACH = 2.0, 1.2
_SEEN = 3.0  # standard deviations of the noise
_FARTHEST = 8.0
_BITS = 40
_MOST = 1e6


def means_stage(public: PublicFacts) -> Stage:
    """Return the stage of (1). Raises `JobError` or `CapabilityError` for lack of a bound."""
    clip = public.clip
    if clip is None or not clip.whole:
        raise CapabilityError(
            "method.centre",
            'centre = "site" under [privacy] needs the typical range of every column',
            "State `typical` of all columns and remove privacy.record_norm. Or use one_step, which "
            'needs neither, or centre = "pooled".',
        )
    if clip.person_square is not None:
        what = 'has no proven bound with centre = "site"'
        raise JobError("privacy.person_norm", what, "Remove it.")
    spec = (Field("doubt", (1,), _MOST, _BITS, Kind.BOUNDED),)
    training = LocalTraining(
        1, len(public.variables) + 1, Sensitivity(1.0, 2.0), 2 * clip.grid_bits
    )
    sees = "how precisely sites know their own means"
    return Stage(MEANS, spec, 1, sees, ends_early=False, training=training, budget=BUDGET)


def own_means(
    rows: SiteRecords, clip: Clip, noise: IntegerNoise | None, variance: float
) -> tuple[Update, Array]:
    """Return what a site contributes, and its means. noise: None without; variance: of a number"""
    constant, p = clip.constant * _LONGER, rows.values.shape[1]
    size = _size(p, clip)
    v = shortened(np.column_stack([_LONGER * rows.constants, rows.values]) / size)
    total = truncated(v * NORM_SLACK, 2 * clip.grid_bits).sum(axis=0)
    if noise is not None:
        total = total + noise(p + 1) * 4.0**-clip.grid_bits
    if total[0] <= _SEEN * math.sqrt(variance):
        return {"doubt": np.zeros(1)}, np.zeros(p)
    means = np.clip(constant * total[1:] / total[0], -_FARTHEST, _FARTHEST)
    doubt = constant * size * variance / float(total[0])
    return {"doubt": np.array([min(doubt, _MOST)])}, np.asarray(means)


def _size(p: int, clip: Clip) -> float:
    """Return a of (1); typical spreads are a quarter of 1."""
    longest = clip.squared_norm + (_LONGER**2 - 1) * clip.constant**2
    return math.sqrt(min(_REACH**2 * (p / 16 + (_LONGER * clip.constant) ** 2), longest))


def centred_moments(rows: SiteRecords, means: Array, clip: Clip) -> Array:
    """Return the moments' upper triangle of records relative to a site's means."""
    moved = rows.values - (rows.constants / clip.constant)[:, None] * means
    whole = np.column_stack([rows.constants, moved])
    z = shortened_to_grid(shortened(whole, clip.norm), clip.squared_norm, clip.grid_bits)
    return upper_moments(z[:, 1:], z[:, 0])


def without_doubt(noisy: NoisyMoments, doubt: float, sites: int) -> NoisyMoments:
    """Return the moments about the sites' means themselves: (2)."""
    squares = np.diag([0.0, *np.ones(len(noisy.names))])
    own = np.outer(np.diagonal(squares), np.diagonal(squares)) + squares
    return replace(
        noisy, matrix=noisy.matrix - doubt * squares,
        variance=noisy.variance + doubt**2 / sites * own, within=sites,
    )  # fmt: skip
