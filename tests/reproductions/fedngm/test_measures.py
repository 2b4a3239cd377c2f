"""The measures of FedNGM's tables against scikit-learn, and by hand."""

import numpy as np
import pytest
from sklearn import metrics

from reproductions.fedngm.published import TABLE_3, TABLE_4
from reproductions.fedngm.tasks.measures import (
    area_under_roc,
    average_precision,
    errors,
    precision_and_recall,
)


def test_errors_are_correct_by_hand() -> None:
    mae, rmse = errors(np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, -1.0]))
    assert mae == pytest.approx(7 / 3) and rmse == pytest.approx(np.sqrt(25 / 3))


@pytest.mark.parametrize("decimals", [0, 1, 9])
@pytest.mark.parametrize("share", [0.02, 0.5])
def test_areas_agree_with_scikit_learn(decimals: int, share: float) -> None:
    """decimals: the fewer, the more ties"""
    rng = np.random.default_rng(decimals)
    positive = rng.random(300) < share
    score = np.round(rng.normal(size=300) + positive, decimals)
    assert area_under_roc(positive, score) == pytest.approx(
        metrics.roc_auc_score(positive, score), rel=1e-12
    )
    assert average_precision(positive, score) == pytest.approx(
        metrics.average_precision_score(positive, score), rel=1e-12
    )


def test_areas_need_both_kinds_of_records() -> None:
    score = np.array([0.1, 0.2])
    assert area_under_roc(np.array([True, True]), score) is None
    assert area_under_roc(np.array([False, False]), score) is None
    assert average_precision(np.array([False, False]), score) is None
    assert average_precision(np.array([True, True]), score) == 1
    # Equal scores say nothing: one half, and the share of the event.
    same, event = np.zeros(4), np.array([True, False, False, False])
    assert area_under_roc(event, same) == 0.5 and average_precision(event, same) == 0.25


def test_precision_and_recall_agree_with_scikit_learn() -> None:
    """Level 4 has no record, level 3 is never predicted."""
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 4, 200), rng.choice([0, 1, 2, 4], 200)
    found = precision_and_recall(truth, predicted, 5)
    for average in ("micro", "macro"):
        for name, score in (
            ("precision", metrics.precision_score), ("recall", metrics.recall_score)
        ):  # fmt: skip
            expected = score(truth, predicted, average=average, labels=range(5), zero_division=0)
            assert found[f"{average}_{name}"] == pytest.approx(expected, rel=1e-12)


def test_macro_precision_is_correct_by_hand() -> None:
    """Of two predictions of level 0, one is right; the one of level 1 is; level 2 has none."""
    found = precision_and_recall(np.array([0, 2, 1]), np.array([0, 0, 1]), 3)
    assert found["macro_precision"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert found["macro_recall"] == pytest.approx((1 + 1 + 0) / 3)
    assert found["micro_precision"] == found["micro_recall"] == pytest.approx(2 / 3)


def test_the_papers_macro_averages_of_clients_are_those_of_a_constant_with_two_levels() -> None:
    """The page says so: with twelve levels, "alive" for everybody has a macro recall of 1/12."""
    truth = np.zeros(10_000, dtype=np.intp)
    truth[:52] = np.arange(52) % 11 + 1  # majority class frequency 0.9948
    alive = np.zeros_like(truth)
    twelve = precision_and_recall(truth, alive, 12)
    two = precision_and_recall(np.minimum(truth, 1), alive, 2)
    assert twelve["macro_recall"] == pytest.approx(1 / 12)
    assert (two["macro_precision"], two["macro_recall"]) == (0.4974, 0.5)
    own = [row[-2:] for name, row in [*TABLE_3.items(), *TABLE_4.items()] if "global" not in name]
    assert len(own) == 6
    for precision, recall in own:
        assert abs(precision - 0.4974) < 0.0015 and recall == 0.5
