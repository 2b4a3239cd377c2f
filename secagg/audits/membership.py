"""How well scores tell members from others: area under the ROC curve, and true positive rates.

AUC with the interval of DeLong, DeLong and Clarke-Pearson (Biometrics 1988). The true positive rate
is that at the smallest threshold which at most a given share of the others exceeds; its interval is
Clopper and Pearson's, for this threshold. All intervals cover 95 %.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import beta, norm, rankdata

from secagg.core.arrays import Array

_LEVEL = 0.95


class Rate(NamedTuple):
    """A number with its interval."""

    value: float
    low: float
    high: float


def area_under_roc(members: Array, others: Array) -> Rate:
    """Return the probability that a member has the larger score; ties count half."""
    m, n = len(members), len(others)
    ranks = rankdata(np.concatenate([members, others]))
    above = (ranks[:m] - rankdata(members)) / n  # of each member: the share of others below
    below = 1 - (ranks[m:] - rankdata(others)) / m
    auc = float(np.mean(above))
    variance = np.var(above, ddof=1) / m + np.var(below, ddof=1) / n
    width = float(norm.ppf((1 + _LEVEL) / 2) * np.sqrt(variance))
    return Rate(auc, max(0.0, auc - width), min(1.0, auc + width))


def true_positive_rate(members: Array, others: Array, false_positives: float) -> Rate:
    """Return the share of members above the threshold for this share of false positives."""
    allowed = int(np.floor(false_positives * len(others)))
    threshold = np.sort(others)[::-1][allowed]
    found, m = int(np.sum(members > threshold)), len(members)
    tail = (1 - _LEVEL) / 2
    low = float(beta.ppf(tail, found, m - found + 1)) if found else 0.0
    high = float(beta.ppf(1 - tail, found + 1, m - found)) if found < m else 1.0
    return Rate(found / m, low, high)
