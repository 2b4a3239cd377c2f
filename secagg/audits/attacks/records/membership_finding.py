"""What an attack on membership reports: how well its scores tell members from other people.

Members are compared with others of the same site (`secagg.audits.membership`), because a score may
tell sites apart without telling who took part. The true positive rates and the curve are of all
sites together. This compares like with like, because the same share is set aside at every site.

Scores that compare with reference records share the error of these, so the interval of the area is
too short: under the null, that the result does not depend on who took part, it covers 84 to 93 %.
But then all records of a site are exchangeable. So `width_by_permutation` draws anew who took part
at each site, and returns the 95 % quantile of the distance between the area and 1/2: the interval
with this half width has 1/2 with probability at least 95 %, whatever the scores are, and however
sites differ (Phipson and Smyth 2010). Not covered: persons with several records at a site, which
are not exchangeable one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from secagg.audits.contract import Finding, Truth
from secagg.audits.membership import Sites, area_under_roc, true_positive_rate
from secagg.audits.views import View
from secagg.core.arrays import Array

FEW = 100
"""Reference records, below which there is no estimate."""
_DRAWS = 59  # of who took part
_COVERED = 57  # of 60, the draws and the run: 95 %
_POINTS = 100  # of the ROC curve, for a plot
RATES = {"tpr_at_1pct": 0.01, "tpr_at_01pct": 0.001}
"""The true positive rates in the details, where there are enough other people, and the share of
false positives of each, which is what a guess finds."""


class Compared(NamedTuple):
    """Records that took part, others, and their sites."""

    members: Array
    others: Array
    sites: Sites


def compared(view: View, truth: Truth) -> Compared:
    """Return the records of the view's sites."""
    values = [truth.sites[site].values for site in view.sites]
    of_members = np.repeat(view.sites, [len(each) for each in values])
    here = np.isin(truth.of_site, view.sites)
    sites = Sites(of_members, truth.of_site[here])
    return Compared(np.concatenate(values), truth.others[here], sites)


def width_by_permutation(
    areas: Callable[[Array, Array], Array],
    members: Array,
    others: Array,
    rng: np.random.Generator,
    sites: Sites | None = None,
) -> Array:
    """Return half the width of an interval for each area under a ROC curve.

    areas: returns them for records that took part, and others; members, others: records
    sites: of these records; without them, all are of one site
    """
    records, n, found = np.concatenate([members, others]), len(members), list[Array]()
    of_each = np.zeros(len(records), np.str_) if sites is None else np.concatenate(sites)
    groups = [np.flatnonzero(of_each == site) for site in np.unique(of_each)]
    drawn = np.arange(len(records))
    for _ in range(_DRAWS):
        for group in groups:
            drawn[group] = rng.permutation(group)
        found.append(np.abs(areas(records[drawn[:n]], records[drawn[n:]]) - 0.5))
    return np.asarray(np.sort(found, axis=0)[_COVERED - 1])


def membership_finding(
    members: Array,
    others: Array,
    width: float = 0.0,
    sites: Sites | None = None,
    **details: Any,
) -> Finding:
    """Return the AUC, and in the details the true positive rates and the ROC curve.

    width: the least half width of the AUC's interval
    sites: of the scores; without them, all are of one site
    A rate is left out if its share of false positives is less than one person. An AUC whose
    interval includes 1/2 may be chance, and so is no leak.
    """
    auc, low, high = area_under_roc(members, others, sites)
    low, high = min(low, max(0.0, auc - width)), max(high, min(1.0, auc + width))
    rates = {
        name: tuple(true_positive_rate(members, others, share))
        for name, share in RATES.items()
        if share * len(others) >= 1
    }
    counts = {"members": len(members), "others": len(others)}
    return Finding(
        value=auc,
        low=low,
        high=high,
        baseline=0.5,
        details={**counts, **rates, "roc": roc_points(members, others), **details},
        bound="" if low > 0.5 else "the interval includes 0.5, which is a guess",
    )


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
