"""How well coefficients predict records that took no part in the run.

The linear predictor is a + b x. The intercept a is the result's; if it has none, or under noise too
bad a one, a shift of all predictions would hide what the slopes are worth, so both metrics ignore
shifts.

auc            for a 0/1 outcome: the share of pairs of a case and another record in which the case
               has the larger prediction; ties count half
unexplained    for another outcome: the variance of y - b x, divided by that of y; 1 is no better
               than the mean of y, and more is worse
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from secagg.core.arrays import Array


def area_under_curve(predicted: Array, case: Array) -> float | None:
    """Return the AUC (Mann-Whitney); None without a case or without another record.

    predicted, case: shape (records,); case has 0 and 1
    """
    cases = int(case.sum())
    others = len(case) - cases
    if not cases or not others:
        return None
    ranks = float(rankdata(predicted)[case == 1].sum())
    return (ranks - cases * (cases + 1) / 2) / (cases * others)


def unexplained_share(predicted: Array, outcome: Array) -> float | None:
    """Return var(outcome - predicted) / var(outcome); None if the outcome is constant."""
    spread = float(np.var(outcome))
    return float(np.var(outcome - predicted)) / spread if spread else None
