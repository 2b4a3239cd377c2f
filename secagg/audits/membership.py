"""How well scores tell members from others: area under the ROC curve, and true positive rates.

Area. The interval is that of DeLong, DeLong and Clarke-Pearson (Biometrics 1988). Sites may differ,
and a score may tell sites apart without telling who took part. So a member is compared only with
others of the same site. The areas of the sites are added up with van Elteren's weights, m n /
(m + n + 1) for m members and n others: the precisions if members and others do not differ. A site
with one member or one other has no variance within it; it gets that of this case.

True positive rate at a given share of false positives: the share of members above t, the smallest
threshold that at most this share of all other people exceeds. t is unknown, so the value takes the
threshold that at most this share of the n others exceeds. The interval covers the error of this
threshold as well. With e = 1.25 %:

Lower end. K, the number of the n others above t, is binomial with this share (or, with ties, is at
most such a number). Let c be the largest number with P(K <= c) <= e. The (c+1)th largest score of
others is below t only if at most c others are above t, so with probability e at most. Otherwise the
members above this score are no more than those above t. Their share has a lower limit by Clopper
and Pearson at error e. If there is no such c, the end is 0.

Upper end. Let c be the smallest number with P(K > c) <= e. The (c+1)th largest score is above t
only if more than c others are above t, so with probability e at most. Otherwise the members above
it are no fewer than those above t, and their share has an upper limit at error e. If there is no
such c below n, the end is 1.

The four errors add up to 5 % at most (Bonferroni), whatever the two distributions are. This holds
for independent scores. All intervals cover 95 %.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom, norm, rankdata

from secagg.core.arrays import Array

_LEVEL = 0.95


class Rate(NamedTuple):
    """A number with its interval."""

    value: float
    low: float
    high: float


class Sites(NamedTuple):
    """The site of each member, and of each other."""

    members: NDArray[np.str_]
    others: NDArray[np.str_]


def area_under_roc(members: Array, others: Array, sites: Sites | None = None) -> Rate:
    """Return the probability that a member has a larger score than an other of the same site.

    Ties count half. sites: without them, all are of one site. If no site has both members and
    others, the number is NaN.
    """
    if sites is None:
        sites = Sites(np.zeros(len(members), np.str_), np.zeros(len(others), np.str_))
    value, variance, weight = (
        np.array([
            _area(members[sites.members == site], others[sites.others == site])
            for site in np.intersect1d(sites.members, sites.others)
        ])
        .reshape(-1, 3)
        .T
    )  # fmt: skip
    if not len(value):
        return Rate(np.nan, np.nan, np.nan)
    weight = weight / np.sum(weight)
    auc = float(weight @ value)
    width = float(norm.ppf((1 + _LEVEL) / 2) * np.sqrt(weight**2 @ variance))
    return Rate(auc, max(0.0, auc - width), min(1.0, auc + width))


def _area(members: Array, others: Array) -> tuple[float, float, float]:
    """Return the area of one site, its variance, and its weight."""
    m, n = len(members), len(others)
    ranks = rankdata(np.concatenate([members, others]))
    above = (ranks[:m] - rankdata(members)) / n  # of each member: the share of others below
    below = 1 - (ranks[m:] - rankdata(others)) / m
    variance = (m + n + 1) / (12 * m * n)
    if min(m, n) > 1:
        variance = float(np.var(above, ddof=1) / m + np.var(below, ddof=1) / n)
    return float(np.mean(above)), variance, m * n / (m + n + 1)


def true_positive_rate(members: Array, others: Array, false_positives: float) -> Rate:
    """Return the share of members above the threshold for this share of false positives."""
    m, n, error = len(members), len(others), (1 - _LEVEL) / 4
    largest_first = np.sort(others)[::-1]

    def found(allowed: int) -> int:
        """Return the number of members above the threshold that so many others exceed."""
        return int(np.sum(members > largest_first[allowed]))

    counts = np.arange(n)
    sure = np.flatnonzero(binom.cdf(counts, n, false_positives) <= error)
    possible = np.flatnonzero(binom.sf(counts, n, false_positives) <= error)
    fewest = found(sure[-1]) if len(sure) else 0
    most = found(possible[0]) if len(possible) else m
    return Rate(
        found(int(np.floor(false_positives * n))) / m,
        float(beta.ppf(error, fewest, m - fewest + 1)) if fewest else 0.0,
        float(beta.ppf(1 - error, most + 1, m - most)) if most < m else 1.0,
    )
