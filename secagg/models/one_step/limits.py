"""How far a record may reach in the sums of scores: limits from counts and noise alone.

A record's g is limited to length 1, so the matrix T and the unit h of residuals decide how much is
cut: T = W / R, and what is limited is |W x| |r|, to R h. Let k_R^2 = R^2 / E |W x|^2, and for
residuals of standard deviation s, h = k_r s. If nothing is cut, the noise of a coefficient is
u k_R k_r times its sampling error,

    u = root(p / n) sd_g,                                                                     (1)

with p coefficients, n records and sd_g the noise of a number of g. A short limit saves noise and
costs bias, so at first it is as long as keeps the noise at `_NOISE` times the sampling error. With
families that are not linear it is shorter, as the mean of what is left is subtracted. This mean is
right if the family and the linear predictor are; otherwise bias remains, and counts beside a
sampling error that falls with n. Of independent normal |W x| and |r|, the product has a tail that
falls as e^-k, so half the logarithm of n in k = k_R k_r keeps the bias in proportion.

This limit reads no record but through n. The tails of real records are heavier than those of normal
ones, by very different factors. So a noisy histogram of the lengths |W x| |r| / (R h) follows. With
N(l) records above l, a limit f times as long cuts at most

    E(f) = integral of N from f to infinity                                                   (2)

off the sum g, in units of the first limit, and noise has the length root(p) f sd_g. The limit is
the one of least E(f)^2 + p f^2 sd_g^2: bias against variance, as Amin et al. (2019) choose how many
records a user may add. Counts fall as lengths rise (isotonic regression), and tails within two
standard deviations of noise count as empty. N(1) does not count: if records are normal, some
are above the first limit, on either side.

A longer limit is shared by R and h: with a longer R, fewer records far from the middle weigh less,
and J has more noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from secagg.core.arrays import Array

_NOISE, _NOISE_OF_OTHERS = 1.0, 0.5
_LEAST_PRODUCT, _LARGEST_PRODUCT = 2.0, 30.0
_FEW_RECORDS = 1000.0
_SHORTEST, _LONGEST = 1.5, 4.0  # of k_r, and of k_R at first
_LONGEST_OF_MOMENTS = 2.0
_HIDDEN = 2.0


@dataclass(frozen=True)
class Limits:
    """k_R and k_r."""

    record: float
    residual: float

    @property
    def moments(self) -> float:
        """How far a record may reach in the sum of moments, relative to the guesses."""
        return min(max(math.sqrt(0.32 * self.record * self.residual), 1.0), _LONGEST_OF_MOMENTS)

    @classmethod
    def of(cls, size: int, records: float, sd_g: float, *, linear: bool) -> Limits:
        """Return the limits of (1); size: p; linear: whether the family is."""
        unit = max(math.sqrt(size / records) * sd_g, 1e-9)
        if linear:
            product = _NOISE / unit
        else:
            least = math.log(max(records, 1.0) / _FEW_RECORDS) / 2 + _LEAST_PRODUCT
            product = max(_NOISE_OF_OTHERS / unit, min(least, _NOISE / unit))
        product = min(max(product, _LEAST_PRODUCT), _LARGEST_PRODUCT)
        residual = max(_SHORTEST, product / _LONGEST)
        return cls(product / residual, residual)


def longer(counts: Array, sd: float, size: int, sd_g: float) -> float:
    """Return the best f of (2), at least 1.

    counts: by length (`secagg.models.one_step.releases.lengths`); sd: of their noise; size: p
    """
    above = counts[len(counts) // 2 + 1 :]  # from 2 to 4, from 4 to 8, ...
    above = np.maximum(isotonic_regression(above, increasing=False).x, 0.0)
    tails = np.cumsum(above[::-1])[::-1]
    hidden = _HIDDEN * sd * np.sqrt(np.arange(len(tails), 0, -1))
    seen = int(np.cumprod(tails > hidden).sum())
    if not seen:
        return 1.0
    tails = np.array([tails[0], *tails[:seen], tails[seen - 1] / 2])  # N at 1, 2, 4, ...
    f = 2.0 ** (np.arange(4 * seen + 5) / 4)
    at = np.exp(np.interp(np.log(f), math.log(2) * np.arange(seen + 2), np.log(tails)))
    cut = np.cumsum((at * np.diff(f, append=f[-1]))[::-1])[::-1]
    return float(f[np.argmin(cut**2 + size * (f * sd_g) ** 2)])
