"""What a FedLin result says about its numbers under noise once at the site."""

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import secagg
from secagg.contracts.noise import SITE_MOMENTS
from secagg.core.arrays import Array
from secagg.jobs.job import parse_job
from secagg.models.common.clipped_moments import CONSTANT
from secagg.models.common.noisy_moments import NoisyMoments, repaired
from secagg.privacy.accounting.gaussian_dp import gaussian_mu
from secagg.sessions.planned_job import plan_job

SITES, HALF = "abcd", 6.0


def tables(records: int = 150) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(2)
    found = {}
    for site in SITES:
        x = rng.normal(size=(records, 2))
        y = 3 + x @ [0.5, -0.5] + 0.5 * rng.normal(size=records)
        found[site] = pd.DataFrame({"y": y, "u": x[:, 0], "v": x[:, 1]})
    return found


def raw(method: dict[str, Any], epsilon: float | None) -> dict[str, Any]:
    column = {"type": "continuous", "low": -5, "high": 5}
    job: dict[str, Any] = {
        "title": "t",
        "sites": {"max_rows": 5000},
        "columns": {"y": {"type": "continuous", "low": -3, "high": 9}, "u": column, "v": column},
        "method": {"outcome": "y", **method},
        "protocol": {"name": "plain"},
        "release": {"min_sites": 3, "min_records": 5},
    }
    if epsilon is not None:
        job["privacy"] = {
            "placement": "site", "epsilon": epsilon, "delta": 1e-5, "record_norm": 1.0,
        }  # fmt: skip
    return job


def summary(method: dict[str, Any], epsilon: float | None, records: int = 150) -> dict[str, Any]:
    return dict(secagg.run(raw(method, epsilon), tables(records)).result.summary)


HM1 = {"name": "fedlin_hm1", "rounds": 3}
FEDAVG = {"name": "fedavg", "rounds": 3}


def test_no_error_can_be_below_the_least_one_which_agrees_with_its_formula() -> None:
    """e = h root(K f / n), f by hand: the root mean square of the noise's eigenvalues."""
    found = summary(HM1, 1.0)
    noise = plan_job(parse_job(raw(HM1, 1.0)), tables()).public.noise[SITE_MOMENTS]
    count, first, second, *_ = (
        noise.variance * w * 4.0**-noise.fraction_bits for w in noise.weights
    )
    assert first == 2 * second  # twice as much on the diagonal
    m, constant = 4, 0.5
    both = 1 / (1 / count + constant**4 / first) * constant**4
    floor = math.sqrt((both + (m - 1) * first + m * (m - 1) * second) / m)
    least = HALF * math.sqrt(4 * floor / found["training_records"])
    assert found["noise"]["least_error"] == pytest.approx(least, rel=1e-9)
    errors = [row["training_rmse"] for row in found["errors"]]
    assert min(errors) > least * (1 - 1e-6)
    assert min(errors) < 1.5 * least  # with so much noise, the repair decides
    expected = [row["model"] for row in found["errors"] if row["training_rmse"] < 1.5 * least]
    assert found["noise"]["unreliable"] == expected


def test_with_little_noise_no_error_is_unreliable_and_all_are_those_of_the_records() -> None:
    noisy, exact = summary(HM1, 16.0, 3000), summary(HM1, None, 3000)
    assert noisy["noise"]["unreliable"] == [] and "noise" not in exact
    for row, other in zip(noisy["errors"], exact["errors"], strict=True):
        assert row["training_rmse"] == pytest.approx(other["training_rmse"], rel=0.1)


def test_estimates_that_know_the_noise_ignore_it_or_are_common_are_told_apart() -> None:
    known = {"name": "fedlin_hm2", "rounds": 2, "draws": 100}
    told = [
        summary(method, 8.0)["noise"]["across_sites"]
        for method in (known, {**known, "prior": "ridge"}, FEDAVG, {**FEDAVG, "personal": 1.0})
    ]
    assert len(set(told)) == 3 and told[1] == told[3]


def compared(
    rng: np.random.Generator, n: int, epsilon: float, p: int, half: float, sd: float
) -> tuple[float, float]:
    """Return the error of least squares over four noisy sites, in units of e and of the records'.

    half: half widths of all bounds, in standard deviations of the predictors; sd: of the errors
    """
    noise = (CONSTANT**2 + 1.44) / math.sqrt(2) / gaussian_mu(epsilon, 1e-5)
    variance = noise**2 * (1 + np.eye(p + 2))
    variance[0, 1:] = variance[1:, 0] = (noise / CONSTANT) ** 2
    variance[0, 0] = 1.0
    names, scale = tuple(map(str, range(p + 1))), np.array([1 / CONSTANT, *np.ones(p + 1)])
    totals = np.zeros(3)
    for _ in range(4):
        mixed = 0.3 * rng.normal(size=(p, p)) + np.eye(p)
        x = rng.normal(size=(n, p)) @ mixed / np.linalg.norm(mixed, axis=0)
        y = 0.3 * x.sum(axis=1) + sd * rng.normal(size=n)
        z = np.column_stack([np.ones(n), y / half, x / half])
        E = np.triu(rng.normal(size=variance.shape) * np.sqrt(variance))
        nothing, M = np.zeros(p + 1), z.T @ z
        noisy = NoisyMoments(names, nothing, nothing + 1, M + E + np.triu(E, 1).T, variance, scale)
        repair = repaired(noisy)
        totals += [residual(repair.matrix), residual(M), repair.floor]
    return math.sqrt(totals[0] / totals[2]), math.sqrt(totals[0] / totals[1])


def residual(M: Array) -> float:
    """Return the sum of squares that least squares with an intercept leave; y is the second row."""
    others = [0, *range(2, len(M))]
    cross = M[others, 1]
    return float(M[1, 1] - cross @ np.linalg.solve(M[np.ix_(others, others)], cross))


@pytest.mark.statistical
def test_errors_above_1_5_times_the_least_one_are_nearly_those_of_the_records() -> None:
    """180 settings, of which each is the mean of eight draws."""
    rng = np.random.default_rng(1)
    settings = itertools.product((100, 400, 1500), (16, 4, 2, 1, 0.5), (2, 5, 10), (3, 5), (0.5, 1))
    found = np.array([
        np.mean([compared(rng, n, eps, p, half, sd) for _ in range(8)], axis=0)
        for n, eps, p, half, sd in settings
    ])  # fmt: skip
    in_least, in_records = found.T
    assert in_least.min() >= 1
    far = np.abs(in_records - 1)
    assert far[in_least > 1.5].max() < 0.2 and far[in_least > 2].max() < 0.06
    assert in_records[in_least < 1.1].min() > 1.4
