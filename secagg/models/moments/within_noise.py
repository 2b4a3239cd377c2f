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

What leaves a site from (1) is a function of the noisy sum, which the coordinator needs. With errors
d_k of site k's means, the moments contain sum_k n_k d_k d_k'. d_k is the error of the sums of u and
m_k / 2 c times that of the constants, so the expectation is about

    D = sum_k b_k (I + m_k m_k' / (2 c)^2),   b_k = g s^2 / t_k,                              (2)

with the noise's standard deviation s, t_k the noisy sum of the constants, and g from the units of
(1). D is subtracted from the moments. As d is normal, the variances of the noise grow by the sum of
the b_k^2, twice that for squares.

If t_k < 6 s, the noise hides the means of the site. Then it leaves out its records: with means that
are not its own, differences between sites would look like effects. The number of such sites leaves
them, too.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from secagg.contracts import Field, Kind, LocalTraining, PublicFacts, SiteRecords, Stage, Update
from secagg.contracts.facts import IntegerNoise
from secagg.contracts.noise import Clip, Sensitivity
from secagg.core.arrays import Array, shortened, shortened_to_grid, square, truncated
from secagg.errors import CapabilityError, JobError
from secagg.models.common.clipped_moments import upper_moments
from secagg.models.common.clipped_sums import NORM_SLACK
from secagg.models.common.noisy_moments import NoisyMoments
from secagg.models.common.site_confounding import HIDDEN, MEANS_SEEN

MEANS = "means"
BUDGET = 0.2
"""Of the means: each site has fewer records than all together."""
_LONGER, _REACH = 2.0, 1.2
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
    p = len(public.variables)
    spec = (
        Field("doubt", (p * (p + 1) // 2,), _MOST, _BITS, Kind.BOUNDED),
        Field("squares", (1,), _MOST, _BITS, Kind.BOUNDED),
        Field(HIDDEN, (1,), 1.0, 0, Kind.COUNT),
    )
    training = LocalTraining(1, p + 1, Sensitivity(1.0, 2.0), 2 * clip.grid_bits)
    sees = "how precisely sites know their own means, and how many do not"
    return Stage(MEANS, spec, 1, sees, ends_early=False, training=training, budget=BUDGET)


def own_means(
    rows: SiteRecords, clip: Clip, noise: IntegerNoise | None, variance: float
) -> tuple[Update, Array | None]:
    """Return what a site contributes, and its means; None if the noise hides them.

    noise: None without; variance: of a number
    """
    constant, p = clip.constant * _LONGER, rows.values.shape[1]
    size = _size(p, clip)
    v = shortened(np.column_stack([_LONGER * rows.constants, rows.values]) / size)
    total = truncated(v * NORM_SLACK, 2 * clip.grid_bits).sum(axis=0)
    if noise is not None:
        total = total + noise(p + 1) * 4.0**-clip.grid_bits
    if total[0] < MEANS_SEEN * math.sqrt(variance) or not total[0]:
        nothing = {"doubt": np.zeros(p * (p + 1) // 2), "squares": np.zeros(1)}
        return nothing | {HIDDEN: np.ones(1)}, None
    means = np.clip(constant * total[1:] / total[0], -_FARTHEST, _FARTHEST)
    doubt = constant * size * variance / float(total[0])
    D = doubt * (np.eye(p) + np.outer(means, means) / constant**2)
    known = {"doubt": D[np.triu_indices(p)], "squares": np.array([doubt**2]), HIDDEN: np.zeros(1)}
    return {name: np.clip(each, -_MOST, _MOST) for name, each in known.items()}, np.asarray(means)


def _size(p: int, clip: Clip) -> float:
    """Return a of (1); typical spreads are a quarter of 1."""
    longest = clip.squared_norm + (_LONGER**2 - 1) * clip.constant**2
    return math.sqrt(min(_REACH**2 * (p / 16 + (_LONGER * clip.constant) ** 2), longest))


def centred_moments(rows: SiteRecords, means: Array | None, clip: Clip) -> Array:
    """Return the moments' upper triangle of records relative to a site's means, if it has them."""
    if means is None:
        rows, means = rows.part(0, 0), np.zeros(rows.values.shape[1])
    moved = rows.values - (rows.constants / clip.constant)[:, None] * means
    whole = np.column_stack([rows.constants, moved])
    z = shortened_to_grid(shortened(whole, clip.norm), clip.squared_norm, clip.grid_bits)
    return upper_moments(z[:, 1:], z[:, 0])


def without_doubt(noisy: NoisyMoments, doubt: Array, squares: float, sites: int) -> NoisyMoments:
    """Return the moments about the sites' means themselves: (2).

    doubt: upper triangle of D; squares: sum of the b_k^2; sites: that contributed records
    """
    p = len(noisy.names)
    D = np.zeros((p + 1, p + 1))
    D[1:, 1:] = square(doubt, p)
    own = np.zeros((p + 1, p + 1))
    own[1:, 1:] = squares * (1 + np.eye(p))
    return replace(noisy, matrix=noisy.matrix - D, variance=noisy.variance + own, within=sites)
