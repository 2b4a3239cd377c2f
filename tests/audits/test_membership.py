"""Areas under ROC curves and true positive rates, against scikit-learn, scipy and coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score

from secagg.audits.membership import area_under_roc, true_positive_rate


@pytest.mark.parametrize("decimals", [1, 6])
def test_the_area_is_that_of_scikit_learn_also_with_ties(decimals: int) -> None:
    rng = np.random.default_rng(3)
    members, others = rng.normal(0.5, 1, 40).round(decimals), rng.normal(0, 1, 25).round(decimals)
    labels = np.repeat([1, 0], [40, 25])
    expected = roc_auc_score(labels, np.concatenate([members, others]))
    assert area_under_roc(members, others).value == pytest.approx(expected)


def test_the_interval_covers_the_truth() -> None:
    """In 95 % of 400 data sets; the Monte Carlo error is 1.1 %."""
    rng, truth = np.random.default_rng(4), norm.cdf(1 / np.sqrt(2))
    inside = 0
    for _ in range(400):
        _, low, high = area_under_roc(rng.normal(1, 1, 60), rng.normal(0, 1, 50))
        inside += low <= truth <= high
    assert abs(inside / 400 - 0.95) < 4 * 0.011


def test_the_rate_is_that_above_the_threshold_with_clopper_pearson() -> None:
    others, members = np.arange(100.0), np.array([98.5, 98.0, 99.5, 10.0, 97.5])
    rate = true_positive_rate(members, others, 0.01)  # one other, 99, may be above 98
    interval = binomtest(2, 5).proportion_ci()
    assert rate == pytest.approx((2 / 5, interval.low, interval.high))
    none = true_positive_rate(members[3:4], others, 0.01)
    assert (none.value, none.low) == (0.0, 0.0) and none.high < 1
    assert true_positive_rate(members[2:3], others, 0.01).high == 1.0
