"""The default prior finds certain effects, and few that do not exist."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from support.checkout import ROOT

from secagg.models.sparse_bayes.regression import SparseRegression


@pytest.fixture
def selection(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("sparse_selection")


@pytest.mark.parametrize("sites", [3, 5, 10])
def test_effects_of_a_pooled_t_above_5_are_found(selection: Any, sites: int) -> None:
    found = selection.cell(
        SparseRegression(outcome="y").constants(40 * sites), sites, 40, 6.0, 0.0, 40, 450
    )
    assert found["strong"] >= 50
    assert found["found"] / found["strong"] >= 0.95  # the page says 100 %
    error = np.sqrt(0.05 * 0.95 / found["null"])
    assert found["false"] / found["null"] <= 0.05 + 2 * error


def test_the_papers_prior_misses_such_effects(selection: Any) -> None:
    method = SparseRegression(outcome="y", prior="paper")
    found = selection.cell(method.constants(300), 3, 100, 6.0, 0.0, 40, 450)
    assert found["found"] / found["strong"] < 0.6
