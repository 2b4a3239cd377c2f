"""What an attack on membership reports: how well its scores tell members from other people."""

from __future__ import annotations

from typing import Any

import numpy as np

from secagg.audits.contract import Finding
from secagg.audits.membership import area_under_roc, true_positive_rate
from secagg.core.arrays import Array

FEW = 20
"""Others, below which there is no estimate."""
_POINTS = 100  # of the ROC curve, for a plot
_SHARES = (0.01, 0.001)


def membership_finding(members: Array, others: Array, **details: Any) -> Finding:
    """Return the AUC, and in the details the true positive rates and the ROC curve.

    A rate is left out if its share of false positives is less than one person. An AUC whose
    interval includes 1/2 may be chance, and so is no leak.
    """
    area = area_under_roc(members, others)
    rates = {
        f"true_positive_rate_at_{share:g}": tuple(true_positive_rate(members, others, share))
        for share in _SHARES
        if share * len(others) >= 1
    }
    counts = {"members": len(members), "others": len(others)}
    return Finding(
        *area, 0.5,
        {**counts, **rates, "roc": roc_points(members, others), **details},
        bound="" if area.low > 0.5 else "the interval includes 0.5, which is a guess",
    )  # fmt: skip


def roc_points(members: Array, others: Array) -> list[list[float]]:
    """Return [false positive rate, true positive rate], increasing, at most 100 points.

    They are at false positive rates that are even on a logarithmic axis, where it is read.
    """
    n = len(others)
    counts = np.unique(np.geomspace(1, n, _POINTS - 1).round().astype(int))
    largest_first = np.sort(others)[::-1]
    found = [[0.0, float(np.mean(members > largest_first[0]))]]
    for count in counts.tolist():
        # Above this threshold are at most `count` others; ties are counted as negative.
        threshold = largest_first[count] if count < n else -np.inf
        false, true = np.mean(others > threshold), np.mean(members > threshold)
        found.append([float(false), float(true)])
    return found
