"""Repair of noisy moments: never indefinite, as near as can be, and honest about how much."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2
from support.methods.short_chains import short_chains

import secagg
from secagg.contracts import PublicFacts, RecordCount, Variable
from secagg.core.randomness import replayable_random
from secagg.errors import UsageError
from secagg.models.common.noisy_moments import NOISE_NOTE, NoisyMoments, noisy_moments, repaired
from secagg.privacy.accounting.gaussian_dp import gaussian_mu

__all__ = ["short_chains"]  # a fixture


def symmetric(rng, shape, deviation):
    noise = np.triu(rng.normal(0, deviation, shape))
    return noise + np.swapaxes(np.triu(noise, 1), -1, -2)


def released(matrix, variance):
    p = len(matrix) - 1
    names = tuple(f"x{j}" for j in range(p))
    variances = np.full(matrix.shape, variance)
    return NoisyMoments(names, np.zeros(p), np.ones(p), matrix, variances, np.ones(p + 1))


def test_the_upper_triangle_is_read_row_by_row():
    public = PublicFacts(
        (Variable("a", "a", 5, 2), Variable("b", "b", -1, 3)), ("a", "b"), 9, ("s",)
    )
    noisy = noisy_moments(np.array([9.0, 1, 2, 3, 4, 5]), public, 0.25, RecordCount(12.0, 0.25))
    assert noisy.matrix.tolist() == [[11, 1, 2], [1, 3, 4], [2, 4, 5]]  # 12 weighs twice as much
    assert noisy.variance.tolist() == [[1 / 6, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    assert noisy.scale.tolist() == [1, 1, 1]
    assert (noisy.records, noisy.records_error) == (11, math.sqrt(1 / 6))
    assert (noisy.midpoint.tolist(), noisy.half_range.tolist()) == ([5, -1], [2, 3])


def test_a_release_with_another_constant_is_rescaled_to_one():
    """z = (c, u) with c = 1/2: the count is four times the number released, sums are twice."""
    public = PublicFacts((Variable("a", "a", 5, 2),), ("a",), 9, ("s",))
    noisy = noisy_moments(np.array([9.0, 1, 3]), public, 0.25, RecordCount(20.0, 8.0), 0.5)
    assert noisy.matrix.tolist() == [[(36 + 20) / 2, 2], [2, 3]]  # both with a variance of 8
    assert noisy.variance.tolist() == [[4, 0.25 * 4], [0.25 * 4, 0.5]]
    assert noisy.scale.tolist() == [2, 1]
    assert noisy.even_variance.tolist() == [[0.25, 0.25], [0.25, 0.5]]
    exact = noisy_moments(np.array([9.0, 1, 3]), public, 0.25, RecordCount(20.0, 0.0), 0.5)
    assert (exact.matrix[0, 0], exact.variance[0, 0]) == (20, 0)


def test_select_keeps_the_constant_and_orders_the_rest():
    rng = np.random.default_rng(0)
    matrix, variance = symmetric(rng, (4, 4), 1), symmetric(rng, (4, 4), 1) ** 2
    scale = np.array([2.0, 1, 3, 4])
    half = np.arange(3.0) + 1
    noisy = NoisyMoments(("a", "b", "c"), np.arange(3.0), half, matrix, variance, scale)
    chosen = noisy.select(["c", "a"])
    rows = np.ix_([0, 3, 1], [0, 3, 1])
    np.testing.assert_array_equal(chosen.matrix, matrix[rows])
    np.testing.assert_array_equal(chosen.variance, variance[rows])
    assert (chosen.midpoint.tolist(), chosen.half_range.tolist()) == ([2, 0], [3, 1])
    assert chosen.scale.tolist() == [2, 4, 1]
    with pytest.raises(UsageError, match="'d'"):
        noisy.select(["d"])


def test_the_floor_is_the_root_mean_square_eigenvalue_of_the_noise():
    rng = np.random.default_rng(1)
    draws = np.linalg.eigvalsh(symmetric(rng, (4000, 8, 8), 3.0))
    # 4000 draws of |E|^2 / 8, each with a relative deviation of about root(2 / 36)
    expected = released(np.eye(8), 9.0).eigenvalue_noise
    assert expected == pytest.approx(3 * np.sqrt(8))
    assert np.mean(draws**2) == pytest.approx(expected**2, rel=5 * np.sqrt(2 / 36 / 4000))


def test_repair_is_the_nearest_matrix_above_the_floor():
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    eigenvalues = np.array([-7.0, 0.5, 3.0, 40, 200])
    matrix = (basis * eigenvalues) @ basis.T
    matrix[0, 0] = np.ceil(matrix[0, 0])  # a whole number of records, so that none is rounded up
    repair = repaired(released(matrix, 1.0))
    before = np.linalg.eigvalsh(matrix)
    floor = np.sqrt(5)
    lifted = np.maximum(before, floor) - before
    assert repair.raised == np.sum(before < floor) == 2
    assert repair.smallest == pytest.approx(before[0])
    # no matrix with that floor is nearer in the Frobenius norm (Higham 1988, theorem 2.1)
    assert repair.relative_change == pytest.approx(np.linalg.norm(lifted) / 5)
    assert repair.matrix[0, 0] == np.ceil(repair.matrix[0, 0])
    assert np.linalg.eigvalsh(repair.matrix)[0] >= floor * (1 - 1e-12)
    assert "2 of 5" in repair.note()


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_repaired_moments_are_those_of_a_possible_table(scale):
    rng = np.random.default_rng(3)
    for _ in range(50):
        repair = repaired(released(symmetric(rng, (9, 9), scale), scale**2))
        n = repair.matrix[0, 0]
        assert n >= 1 and n == int(n)
        np.linalg.cholesky(repair.matrix)
        centred = repair.matrix[1:, 1:] - np.outer(repair.matrix[0, 1:], repair.matrix[0, 1:]) / n
        np.linalg.cholesky(centred)


def test_moments_of_many_records_are_not_repaired():
    rng = np.random.default_rng(4)
    z = np.column_stack([np.ones(5000), rng.uniform(-1, 1, (5000, 3))])
    noisy = released(z.T @ z, 4.0)
    repair = repaired(noisy)
    assert (repair.raised, repair.relative_change) == (0, 0)
    np.testing.assert_array_equal(repair.matrix, noisy.matrix)


def test_repair_lowers_the_error_of_coefficients_under_large_noise():
    """Mean squared error of coefficients: the floor against none, 200 releases."""
    rng = np.random.default_rng(5)
    theta, plain, floored = np.array([0.1, 0.3, -0.2, 0.2, 0.0, 0.1]), [], []
    for _ in range(200):
        x = np.column_stack([np.ones(300), rng.normal(0, 0.3, (300, 5))])
        table = np.column_stack([x, x @ theta + rng.normal(0, 0.2, 300)])
        matrix = table.T @ table + symmetric(rng, (7, 7), 6.0)
        for kept, of in ((plain, matrix), (floored, repaired(released(matrix, 36.0)).matrix)):
            kept.append(np.sum((np.linalg.solve(of[:-1, :-1], of[:-1, -1]) - theta) ** 2))
    assert np.median(floored) < np.median(plain)
    assert np.mean(floored) < np.mean(plain)


def private_job(analyses, epsilon):
    bounded = {"type": "continuous", "low": -30, "high": 30}
    return {
        "title": "t",
        "sites": {"max_rows": 1000},
        "columns": dict.fromkeys(("a", "b", "c", "y"), bounded),
        "method": {"name": "moments", "analyses": analyses},
        "protocol": {"name": "additive"},
        "release": {"min_sites": 2, "min_records": 1},
        "privacy": {"placement": "sum", "epsilon": epsilon, "delta": 1e-6},
    }


ANALYSES = [
    {"kind": "ols", "outcome": "y", "predictors": ["a", "b", "c"], "level": 0.9},
    {"kind": "describe"},
    {"kind": "ridge", "outcome": "y", "predictors": ["a", "b", "c"]},
    {"kind": "lasso", "outcome": "y", "predictors": ["a", "b", "c"]},
    {"kind": "notears"},
    {"kind": "golem"},
]


def counted_job(analysis, epsilon):
    """Two numbers a record and R^2 = 3/2, so that either release says about as much of n."""
    bounded = {"type": "continuous", "low": -30, "high": 30}
    job = private_job([analysis], epsilon)
    job["columns"] = {"a": bounded, "y": bounded}
    job["privacy"] |= {"record_norm": math.sqrt(1.5)}
    return job


def few_records(sites, each):
    return {f"s{k}": pd.DataFrame(np.zeros((each, 2)), columns=["a", "y"]) for k in range(sites)}


@pytest.mark.statistical
def test_the_record_count_combines_both_releases_optimally():
    """Four sites, of which the first sum may lose two, and one may collude.

    In units of 1 / mu^2: the count moves by 1, has a twentieth of the budget, and its noise is
    sized for 2 sites of which 1 tells; M[0, 0] moves by less, c^2, but has the noise of the whole
    matrix, twice that off the diagonal, whose sensitivity is (c^2 + R^2) / root(2), c = 1/2.
    """
    runs, mu = 16, gaussian_mu(1.0, 1e-6)
    count = 4 / (2 - 1) / (0.05 * mu**2)
    entry = 4 / (4 - 1) * 2 * (1.75 / math.sqrt(2)) ** 2 / (0.95 * mu**2) / 0.5**4
    combined = 1 / (1 / count + 1 / entry)
    assert combined < 0.55 * min(count, entry)
    errors = []
    for seed in range(runs):
        job, random = counted_job({"kind": "describe"}, 1.0), replayable_random(seed)
        found = secagg.run(job, few_records(4, 250), random=random).result.summary
        errors.append(found["n"] - 1000)
    # a thousandth of delta is kept for the discreteness of the noise
    assert found["n_error"] == pytest.approx(math.sqrt(combined), rel=1e-3)
    # a sum of squared normal numbers: outside of this once in a thousand times
    least, most = chi2.ppf([0.0005, 0.9995], runs)
    assert least < np.sum(np.square(errors)) / combined < most


def test_the_record_count_has_the_stated_variance():
    """Noise of both releases drawn 5 000 times: neither alone is as exact, nor their mean."""
    draws, rng = 5_000, np.random.default_rng(7)
    public = PublicFacts((Variable("a", "a", 5, 2),), ("a",), 9, ("s",))
    stated = noisy_moments(np.zeros(3), public, 0.25, RecordCount(0.0, 3.0), 0.5).variance[0, 0]
    own, other = rng.normal(0, math.sqrt(0.5), draws), rng.normal(0, math.sqrt(3.0), draws)
    errors = [
        noisy_moments(
            np.array([900 / 4 + a, 0, 0]), public, 0.25, RecordCount(900 + b, 3.0), 0.5
        ).matrix[0, 0] - 900
        for a, b in zip(own, other, strict=True)
    ]  # fmt: skip
    slack = 5 * math.sqrt(2 / draws)  # of a mean square of normal numbers, relative
    assert np.mean(np.square(errors)) == pytest.approx(stated, rel=slack)
    assert np.mean(np.square((4 * own + other) / 2)) > stated * (1 + 2 * slack)
    assert stated == pytest.approx(1 / (1 / 8 + 1 / 3), rel=1e-14)


@pytest.mark.usefixtures("short_chains")
def test_a_failed_analysis_states_the_released_negative_record_count():
    """Four records and a noise of about 100: half of all runs find none."""
    seen = set()
    for seed in (1, 2):
        job = counted_job({"kind": "ols", "outcome": "y", "predictors": ["a"]}, 0.1)
        found = secagg.run(job, few_records(2, 2), random=replayable_random(seed)).result
        (fit,) = found.summary["analyses"]
        released = found.arrays["released"][0, 0]
        assert found.summary["n"] == max(1, round(released)) and found.summary["n_error"] > 50
        if released < 2.5:
            assert f" {round(released)} " in fit["failed"]
        else:
            assert fit["n"] == round(released) >= 3
        seen.add("failed" in fit)
    assert seen == {True, False}


@pytest.mark.usefixtures("short_chains")
@pytest.mark.parametrize("epsilon", [0.2, 10.0])
def test_a_private_job_gives_a_result_under_any_noise(epsilon):
    # At epsilon 0.2 the floor is near 180, the variables' eigenvalues near 70; at 10, 5 and 40.
    # There the number of records, 600, has a noise of about 100.
    rng = np.random.default_rng(6)
    sites = {}
    for name in ("north", "south", "west"):
        x = rng.normal(0, 10, (200, 3))
        y = x @ [0.5, -0.5, 0] + rng.normal(0, 10, 200)
        sites[name] = pd.DataFrame(np.column_stack([x, y]), columns=["a", "b", "c", "y"])
    random = replayable_random(1)
    result = secagg.run(private_job(ANALYSES, epsilon), sites, random=random).result
    first, *others = result.summary["analyses"]
    assert not [of["failed"] for of in (first, *others) if "failed" in of]
    assert NOISE_NOTE not in first["notes"] and first["widened"] > 1
    own_notes = ("describe", "ols", "notears", "golem-nv")  # these know the noise
    assert all(NOISE_NOTE in of["notes"] for of in others if of["method"] not in own_notes)
    for graph in others[-2:]:  # what the noise did, in numbers and in words
        raised, errors = graph["noise"]["penalty"]["in_force"], graph["noise"]["weight_error"]
        assert raised[1] == pytest.approx(np.sqrt(2 * np.log(4)) * errors[1]) or epsilon > 1
        assert any("one standard deviation" in note for note in graph["notes"])
        assert not graph["edges"] or epsilon > 1
    assert ("raised" in result.summary["repair"]) == (epsilon == 0.2)
    assert result.summary["noise_sd"] > 0 and result.arrays["released"].shape == (5, 5)
    assert all(np.isfinite([t["ci_low"], t["ci_high"]]).all() for t in first["terms"])
