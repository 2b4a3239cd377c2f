"""The default prior finds certain effects, and few that do not exist."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from secagg.models.sparse_bayes.regression import SparseRegression


@pytest.fixture
def selection(monkeypatch: pytest.MonkeyPatch) -> Any:
    return import_module("benchmarks.methods.sparse_selection")


@pytest.mark.parametrize(("sites", "replicates"), [(3, 40), (10, 25)])
def test_effects_of_a_pooled_t_above_5_are_found(
    selection: Any, sites: int, replicates: int
) -> None:
    design = selection.Design(sites=sites, n=40, replicates=replicates)
    shares = selection.cell(SparseRegression(outcome="y").constants(40 * sites), design, 450)
    found, _, strong = shares["pooled"]
    assert strong >= 30
    assert found >= 0.95
    false, _, null = shares["null"]
    assert false <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / null)


def test_the_papers_prior_misses_such_effects(selection: Any) -> None:
    prior = SparseRegression(outcome="y", prior="paper").constants(300)
    shares = selection.cell(prior, selection.Design(sites=3, n=100, replicates=40), 450)
    assert shares["pooled"][0] < 0.6


def test_random_effects_estimates(selection: Any) -> None:
    """With equal variances v: tau^2 is the sample variance less v, t the mean / (sd / root K)."""
    b, v = np.array([[0.0], [1.0], [5.0]]), np.full((3, 1), 0.5)
    tau2 = selection.between_sites(b, v)
    np.testing.assert_allclose(tau2, np.var(b, ddof=1) - 0.5)
    t = selection.random_effects_t(b, v, tau2)
    np.testing.assert_allclose(t, 2 / np.sqrt(np.var(b, ddof=1) / 3))
    np.testing.assert_array_equal(selection.between_sites(b / 100, v), 0)


def test_a_share_has_the_error_of_means_over_replicates(selection: Any) -> None:
    counted = np.ones((4, 2), dtype=bool)
    found = np.array([[True, True], [False, False], [True, True], [False, False]])
    p, error, total = selection.share(counted, found)
    assert (p, total) == (0.5, 8)
    assert error == pytest.approx(np.std([0, 0, 1, 1], ddof=1) / 2)
    p, error, _ = selection.share(counted, counted)
    assert p == 1
    assert error == pytest.approx(np.sqrt(7 / 8 / 8 / 8))
    assert selection.share(~counted, found)[2] == 0
