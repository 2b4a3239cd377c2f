"""One step without noise beside statsmodels, and the covariance of the noise by simulation."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from support.methods.one_step import OUTCOMES, planned_regression, rows_of

from secagg.evidence.feasibility.simulated import run_on
from secagg.models.one_step.estimate import Estimate, Scores, step
from secagg.models.one_step.releases import square, upper


def uniform(count: int, seed: int) -> pd.DataFrame:
    """Return records none of which is shortened, with errors of unequal variance."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1.5, 1.5, (2, count))
    y = 0.4 * a - 0.3 * b + (0.3 + 0.3 * np.abs(a)) * rng.uniform(-1.7, 1.7, count)
    p = 1 / (1 + np.exp(-(0.8 * a - 0.5 * b + 0.2)))
    case, years = (rng.random(count) < p).astype(int), rng.uniform(0.5, 2.0, count)
    visits = rng.poisson(years * np.exp(0.7 + 0.3 * a - 0.2 * b) * rng.gamma(4.0, 0.25, count))
    columns = {"a": a, "b": b, "y": y, "case": case, "visits": visits, "years": years}
    return pd.DataFrame(columns)


TOLERANCES = {"gaussian": 2e-4, "binomial": 2e-3, "poisson": 2e-3}


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_without_noise_it_is_the_regression_with_robust_errors(family: str) -> None:
    """Records lie on a grid of 2^-16 of 5 units; two Newton steps leave the square of an error."""
    table = uniform(4000, 1)
    plan = planned_regression(family, noised=False)
    result = run_on(plan, plan.public, [rows_of(plan, table)], np.random.default_rng(0))
    X = sm.add_constant(table[["a", "b"]].to_numpy())
    law = getattr(sm.families, family.capitalize())()
    offset = np.log(table["years"]) if family == "poisson" else None
    fit = sm.GLM(table[OUTCOMES[family]], X, family=law, offset=offset).fit(cov_type="HC0")
    terms = result.summary["terms"]
    estimates, errors = ([t[key] for t in terms] for key in ("estimate", "std_error"))
    assert np.allclose(estimates, fit.params, atol=TOLERANCES[family])
    assert np.allclose(errors, fit.bse, rtol=0.01)


def test_the_covariance_of_the_noise() -> None:
    """(2) of `estimate` is of first order: noise is a fifth of the curvature. 4000 draws, so that
    a variance is known to 2.2 %; the term of second order is about 4 %.
    """
    rng = np.random.default_rng(3)
    size, sds, h = 3, (3.0, 2.0, 0.0), 0.5
    root = rng.normal(size=(size, 40))
    J = root @ root.T
    T = rng.normal(size=(size, size))
    away = 0.3 * np.eye(size)
    before = Estimate(np.zeros(size), np.zeros((size, size)), away)
    moved, expected = [], None
    for _ in range(4000):
        a = np.linalg.solve(T.T, rng.multivariate_normal(np.zeros(size), away))
        E = rng.normal(size=size * (size + 1) // 2) * sds[1]
        E = square(E, size) + np.diag(rng.normal(size=size)) * 0
        E[np.diag_indices(size)] *= np.sqrt(2)
        g = J @ a / h + sds[0] * rng.normal(size=size)
        sums = {"g": g, "J": upper(J + E), "B": upper(0.01 * J)}
        made, _ = step(Scores(sums, sds, T, h, 1e-4), before, 0.0, 0.01 * np.eye(size))
        moved.append(made.b - T.T @ a)
    exact, _ = step(
        Scores({"g": np.zeros(size), "J": upper(J), "B": upper(0.01 * J)}, sds, T, h, 1e-4),
        before, 0.0, np.eye(size),
    )  # fmt: skip
    expected = exact.noise
    found = np.cov(np.array(moved).T)
    assert np.allclose(np.diagonal(found), np.diagonal(expected), rtol=0.15)
