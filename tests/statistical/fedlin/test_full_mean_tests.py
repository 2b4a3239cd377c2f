"""Tests of `fedlin_full` that means over sites are 0: how often they reject what is true.

With equal designs they are exact (tests/models/fedlin/full); these sites have 8 to 80 records.
"""

import numpy as np
import pytest
from support.fedlin.full_covariance import converged, statistics

from secagg.models.fedlin.hypotheses.f_tests import mean_rows

SETS, D = 300, 2


def p_values(K: int, sd: float, rng: np.random.Generator) -> list[float]:
    """Return the p of both means, then of each, for coefficients with mean 0."""
    root = sd * np.linalg.cholesky(np.array([[1.0, 0.5], [0.5, 1.0]]))
    sites = []
    for _ in range(K):
        X = rng.standard_normal((int(np.exp(rng.uniform(np.log(8), np.log(80)))), D))
        y = X @ root @ rng.standard_normal(D) + rng.standard_normal(len(X))
        sites.append(statistics(X, y, 1.0))
    fitted, _ = converged(sites, D, 1.0, rounds=8)
    return [row["p"] for row in mean_rows(("a", "b"), fitted.sites, fitted.mean, fitted.wide)]


@pytest.mark.parametrize(("K", "sd"), [(4, 0.5), (10, 0.0)])
def test_true_hypotheses_are_rejected_at_most_a_little_more_often_than_stated(
    K: int, sd: float
) -> None:
    """At level 0.05, at most 0.07 and 4.5 standard errors of a rate of 0.07."""
    rng = np.random.default_rng([K, 1])
    rates = np.mean(np.array([p_values(K, sd, rng) for _ in range(SETS)]) < 0.05, axis=0)
    assert np.all(rates < 0.07 + 4.5 * np.sqrt(0.07 * 0.93 / SETS))
    assert np.all(rates > 0.05 - 4.5 * np.sqrt(0.05 * 0.95 / SETS) - 0.01)
