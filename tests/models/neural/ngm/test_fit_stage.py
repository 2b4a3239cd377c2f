"""What the result shows of the counts of the last sum: nothing of fewer than five records."""

import numpy as np
import pytest
from support.methods.fitted_ngms import linear_arrays, model_of

from secagg.models.neural.ngm.fit_stage import MIN_SHOWN, TENTHS, calibration, shown
from secagg.models.neural.ngm.fitted.residuals import SHAPE

COLUMNS = {"x": 0, "g": 2}


def test_a_tenth_is_shown_if_neither_having_nor_lacking_the_level_is_rare() -> None:
    zeros = np.zeros((2, 2))
    model = model_of(COLUMNS, linear_arrays(COLUMNS, "x-g", zeros, np.zeros(2), [1.0]))
    predicted, observed = np.zeros((1, TENTHS)), np.zeros((1, TENTHS))
    predicted[0, :6] = 4, 10, 9, 10, 10, 100
    observed[0, :6] = 2, 5, 5, 4, 6, 0  # only the second has five with and five without
    (row,) = calibration(model, predicted, observed)
    assert row["tenths"] == [{"probability": 1.5 / TENTHS, "records": 10, "share": 0.5}]


def test_small_counts_are_set_to_0_and_residuals_merged() -> None:
    residuals = np.zeros((1, *SHAPE))
    residuals[0, 2, 8], residuals[0, 3, 9] = 20, MIN_SHOWN - 1
    counts = np.array([[0.0, MIN_SHOWN - 1, MIN_SHOWN]])
    found = shown({"residuals": residuals, "predicted": counts, "observed": counts})
    np.testing.assert_array_equal(found["predicted"], [[0, 0, MIN_SHOWN]])
    np.testing.assert_array_equal(found["observed"], [[0, 0, MIN_SHOWN]])
    assert found["residuals"].sum() == pytest.approx(24)  # no record is lost
    assert np.all(found["residuals"] > 0)  # and no cell shows where four stood alone
