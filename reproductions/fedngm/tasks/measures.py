"""The measures of FedNGM's tables 2 to 4.

Chajewska and Shrivastava (2023), section 3.3. What the paper does not say, and our choices:

    AUPR       average precision: the sum over thresholds of precision times the gain in recall
    classes    macro averages are over all declared levels of a column, also those without records

As in the paper, the recall of a level without records is 0, and so is the precision of a level that
is never predicted. Each record has one level, so micro-averaged precision and recall are both the
share of records with the right level.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from secagg.contracts import Array

Levels = NDArray[np.intp]


def errors(truth: Array, predicted: Array) -> tuple[float, float]:
    """Return the mean absolute error and the root mean squared error."""
    wrong = predicted - truth
    return float(np.mean(np.abs(wrong))), float(np.sqrt(np.mean(wrong**2)))


def area_under_roc(positive: NDArray[np.bool_], score: Array) -> float | None:
    """Return the area under the ROC curve; ties count half. None without both kinds of records."""
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return None
    above = rankdata(score)[positive].sum() - ones * (ones + 1) / 2
    return float(above / (ones * zeros))


def average_precision(positive: NDArray[np.bool_], score: Array) -> float | None:
    """Return the average precision; None without positive records."""
    ones = int(positive.sum())
    if not ones:
        return None
    order = np.argsort(-score, kind="stable")
    last_of_ties = np.append(np.diff(score[order]) != 0, True)
    true = np.cumsum(positive[order])[last_of_ties]
    chosen = np.flatnonzero(last_of_ties) + 1
    gains = np.diff(true, prepend=0) / ones
    return float(np.sum(gains * true / chosen))


def precision_and_recall(truth: Levels, predicted: Levels, levels: int) -> dict[str, float]:
    """Return micro- and macro-averaged precision and recall."""
    right = np.bincount(truth[truth == predicted], minlength=levels)
    labels = np.bincount(truth, minlength=levels)
    predictions = np.bincount(predicted, minlength=levels)
    micro = float(right.sum() / len(truth))
    return {
        "micro_precision": micro,
        "micro_recall": micro,
        "macro_precision": float(np.mean(right / np.maximum(predictions, 1))),
        "macro_recall": float(np.mean(right / np.maximum(labels, 1))),
    }
