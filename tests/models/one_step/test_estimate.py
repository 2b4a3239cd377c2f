"""One step without noise beside statsmodels, and the covariance of the noise by simulation."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from support.methods.one_step import OUTCOMES, planned_regression, rows_of

from secagg.core.arrays import Array
from secagg.evidence.feasibility.simulated_run import run_on
from secagg.models.one_step.estimate import Centres, Estimate, Scores, step
from secagg.models.one_step.releases import upper


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


@pytest.mark.parametrize("seen", [True, False])
def test_the_covariance_of_the_noise(seen: bool) -> None:
    """(1) of `estimate` is of first order: noise is a fifth of the curvature. 4000 draws, so that
    a variance is known to 2.2 %; the term of second order is about 4 %.

    seen: whether J has little noise, and what it is drawn to is wrong; or the other way round
    """
    rng = np.random.default_rng(3)
    size, h, sd_usual = 3, 0.5, 0.6
    sds = (3.0, 2.0 if seen else 3.0, 0.0)
    root = rng.normal(size=(size, 40))
    J = root @ root.T
    T = rng.normal(size=(size, size))
    away, B = 0.3 * np.eye(size), upper(0.01 * J)
    before = Estimate(np.zeros(size), np.zeros((size, size)), away)

    def noise(sd: float) -> Array:
        E = sd * rng.normal(size=(size, size))
        return np.triu(E, 1) + np.triu(E, 1).T + np.sqrt(2) * np.diag(np.diagonal(E))

    moved = []
    for _ in range(4000):
        a = np.linalg.solve(T.T, rng.multivariate_normal(np.zeros(size), away))
        g = J @ a / h + sds[0] * rng.normal(size=size)
        usual = 1e4 * np.diag([1.0, 0.0, 0.0]) if seen else J + T @ noise(sd_usual) @ T.T
        sums = {"g": g, "J": upper(J + noise(sds[1])), "B": B}
        scores = Scores(sums, sds, T, h, 1e-4, usual, sd_usual)
        made = step(scores, before, 0.0, 0.01 * np.eye(size))
        moved.append(made.b - T.T @ a)
    exact = {"g": np.zeros(size), "J": upper(J), "B": B}
    usual = usual if seen else J
    made = step(Scores(exact, sds, T, h, 1e-4, usual, sd_usual), before, 0.0, np.eye(size))
    misfit = 0.0 if seen else 0.1**2 * 0.3  # here J is exactly what it is drawn to
    found = np.cov(np.array(moved).T)
    assert np.allclose(np.diagonal(found), np.diagonal(made.noise) - misfit, rtol=0.15)


def test_the_noise_of_a_mean() -> None:
    """4000 draws: a standard deviation has an error of 1.1 %."""
    first = Centres(np.array([0.1, 0.4]), np.array([0.2, 0.5]), True)
    total = first.matrix @ np.array([900.0, 900 * 0.3, 900 * 0.02])
    noise, sd = np.random.default_rng(4).normal(size=(4000, 3)), 5.0
    found = [first.found(total + sd * each, sd)[0][1] for each in noise]
    mean, _ = first.found(total, sd)
    assert mean == pytest.approx([0.3, 0.02])
    assert first.error(total, sd, mean, 1) == pytest.approx(np.std(found), rel=0.05)
