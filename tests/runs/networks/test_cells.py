"""Cells of a model's columns in and out."""

import numpy as np
import pandas as pd
import pytest
from support.methods.fitted_ngms import ngm_job

from secagg.errors import DataError, SecaggError, UsageError
from secagg.jobs.job import parse_job
from secagg.runs.networks.cells import ModelCells

CELLS = ModelCells(parse_job(ngm_job()).columns)


def test_cells_come_back_as_they_went_in() -> None:
    table = pd.DataFrame({"y": [0.5, 7.0, 1.0], "x": ["1.5", "-3", 0], "g": [2, "none", "mild"]})
    values = CELLS.read(table, "t")
    np.testing.assert_allclose(values[:, 2], np.log([0.5, 7, 1]))
    written = CELLS.written(values)
    assert list(written.columns) == ["x", "g", "y"] and list(written["g"]) == ["2", "none", "mild"]
    np.testing.assert_allclose(written[["x", "y"]], [[1.5, 0.5], [-3, 7], [0, 1]])


def test_missing_cells_and_columns_are_unknown() -> None:
    table = pd.DataFrame({"x": [None, "NA", 1], "g": ["?", "mild", None], "other": [1, 2, 3]})
    known = ~np.isnan(CELLS.read(table, "t"))
    np.testing.assert_array_equal(known, np.array([[0, 0, 0], [0, 1, 0], [1, 0, 0]]) > 0)


def test_one_record_and_what_was_clipped() -> None:
    values, clipped = CELLS.read_one({"x": "55", "g": "2"})
    np.testing.assert_array_equal(values, [10, 2, np.nan])
    assert clipped == ["x"]


def test_values_are_rounded_to_recorded_decimals() -> None:
    written = CELLS.written(np.array([[1.234, 0, np.log(3.456)]]), {"x": 1, "y": 0})
    assert list(written.iloc[0]) == [1.2, "none", 3.0]


@pytest.mark.parametrize(
    ("given", "error", "where"),
    [
        ({"weigth": 1}, UsageError, "given"),
        ({"g": "severe"}, DataError, "given, g"),
        ({"x": "many"}, DataError, "given, x"),
        ({"x": float("nan")}, DataError, "given, x"),
        ({"x": "inf"}, DataError, "given, x"),
        ({"g": ""}, DataError, "given, g"),
    ],
)
def test_bad_cells_are_refused(
    given: dict[str, object], error: type[SecaggError], where: str
) -> None:
    with pytest.raises(error) as caught:
        CELLS.read_one(given)
    assert caught.value.where == where


def test_bad_tables_are_refused() -> None:
    for table in (
        pd.DataFrame({"other": [1]}),
        pd.DataFrame([[1, 2]], columns=["x", "x"]),
        pd.DataFrame({"x": [1, "one"]}),
    ):
        with pytest.raises(DataError):
            CELLS.read(table, "t")


@pytest.mark.parametrize("decimals", [{"g": 1}, {"z": 1}])
def test_decimals_of_other_than_continuous_columns_are_refused(decimals: dict[str, int]) -> None:
    with pytest.raises(UsageError) as caught:
        CELLS.written(np.zeros((1, 3)), decimals)
    assert caught.value.where == "decimals"


@pytest.mark.parametrize("names", [[], ["x", "x"], ["X"]])
def test_bad_lists_of_columns_are_refused(names: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        CELLS.numbers(names, "of")
    assert caught.value.where == "of"
