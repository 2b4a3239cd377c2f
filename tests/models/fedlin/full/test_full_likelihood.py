"""`fedlin_full` against exact likelihoods, REML of statsmodels, analysis of covariance."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import chi2, multivariate_normal, ttest_1samp
from scipy.stats import t as student
from support.fedlin.full_covariance import at, converged, records, restricted, statistics

from secagg.errors import PeerError
from secagg.models.fedlin.full.equal_sites import NU, EqualSites
from secagg.models.fedlin.full.hamiltonian import Target, draw_covariances
from secagg.models.fedlin.full.posterior import SharedDraws, covariances, weights_of
from secagg.models.fedlin.full.site_sums import coefficient_draws, log_likelihoods, precision
from secagg.models.fedlin.hypotheses.agreement import agreement_sums
from secagg.models.fedlin.hypotheses.f_tests import agreement_rows, mean_rows
from secagg.models.fedlin.site import Site

SIZES = (5, 40, 2, 15, 9)  # the third site has fewer records than coefficients
D = 3
SIGMA = np.array([[0.5, 0.2, -0.1], [0.2, 0.3, 0.05], [-0.1, 0.05, 0.2]])


def test_equal_sites_have_the_exact_score_and_the_exact_mean() -> None:
    """By central differences of the dense likelihood, for designs that differ much."""
    data = records(SIZES, D, 1)
    sites = [statistics(X, y, 1.0) for X, y in data]
    mu, spread = np.zeros(D), np.zeros((D, D))
    for _ in range(2):  # the second round has the mu and G of the first
        fitted, spread = at(sites, mu, spread, SIGMA)
        mu = fitted.mean
    _, slope, _ = fitted.log_density(SIGMA[None], np.ones(1))
    for i in range(D):
        for j in range(i, D):
            step = np.zeros((D, D))
            step[i, j] = step[j, i] = 1e-5
            exact = (restricted(data, SIGMA + step) - restricted(data, SIGMA - step)) / 2e-5
            assert np.sum(slope[0] * step) / 1e-5 == pytest.approx(exact, rel=1e-6, abs=1e-7)
    W = [X @ SIGMA @ X.T + np.eye(len(y)) for X, y in data]
    P = sum(X.T @ np.linalg.solve(w, X) for (X, _), w in zip(data, W, strict=True))
    h = sum(X.T @ np.linalg.solve(w, y) for (X, y), w in zip(data, W, strict=True))
    np.testing.assert_allclose(fitted.mean, np.linalg.solve(P, h), rtol=1e-10)
    np.testing.assert_allclose((SIGMA + fitted.C) / len(SIZES), np.linalg.inv(P), rtol=1e-9)


def test_with_equal_designs_the_likelihood_is_exact_everywhere() -> None:
    (X, _), rng = records((20,), D, 2)[0], np.random.default_rng(0)
    data = [(X, X @ rng.standard_normal(D) + rng.standard_normal(20)) for _ in range(4)]
    sites = [statistics(X, y, 1.0) for X, y in data]
    fitted, _ = at(sites, np.full(D, 0.3), 0.1 * np.eye(D), SIGMA)
    roots = rng.standard_normal((6, D, D))
    Sigma, mu, ratio = roots @ roots.swapaxes(1, 2), rng.standard_normal((6, D)), rng.uniform(
        0.5, 2, 6
    )  # fmt: skip
    equal = fitted.log_joint(mu, Sigma, ratio)
    exact = sum(log_likelihoods(site, mu, Sigma, ratio) for site in sites)
    np.testing.assert_allclose(equal - equal[0], exact - exact[0], rtol=1e-9)
    drawn = SharedDraws(mu, Sigma, ratio)
    np.testing.assert_allclose(weights_of(drawn, fitted, exact), np.full(6, 1 / 6), rtol=1e-8)


def test_weights_are_the_exact_likelihood_over_that_of_equal_sites() -> None:
    """The exact one by scipy's normal density of the records, for designs that differ much."""
    data, rng = records(SIZES, D, 8), np.random.default_rng(1)
    sites = [statistics(X, y, 1.0) for X, y in data]
    fitted, _ = at(sites, np.zeros(D), np.zeros((D, D)), SIGMA)
    roots = np.linalg.cholesky(SIGMA) + 0.1 * rng.standard_normal((5, D, D))
    Sigma, ratio = roots @ roots.swapaxes(1, 2), rng.uniform(0.8, 1.25, 5)
    mu = fitted.mean + 0.1 * rng.standard_normal((5, D))
    exact = [
        sum(
            multivariate_normal(X @ m, X @ S @ X.T + r * np.eye(len(y))).logpdf(y)
            + (len(y) - min(len(y), D)) / 2 * np.log(r)  # of residuals, which r's density holds
            + y @ (y - X @ np.linalg.lstsq(X, y, rcond=None)[0]) / (2 * r)
            for X, y in data
        )
        for m, S, r in zip(mu, Sigma, ratio, strict=True)
    ]
    sums = sum(log_likelihoods(site, mu, Sigma, ratio) for site in sites)
    np.testing.assert_allclose(sums - sums[0], np.array(exact) - exact[0], rtol=1e-8, atol=1e-8)
    weights = weights_of(SharedDraws(mu, Sigma, ratio), fitted, sums)
    log = np.array(exact) - fitted.log_joint(mu, Sigma, ratio)
    np.testing.assert_allclose(weights, np.exp(log - logsumexp(log)), rtol=1e-7)
    assert np.ptp(log) > 0.01


@pytest.mark.parametrize("n", [2, 12])
def test_a_sites_coefficients_are_drawn_from_their_conditional_density(n: int) -> None:
    """Of the normal regression with residual variance r, for fewer records than terms, too."""
    ((X, y),), r, count = records((n,), D, 9), 2.5, 20_000
    mu = np.array([0.3, -0.2, 0.1])
    draws, middle = coefficient_draws(
        statistics(X, y, 1.0), np.tile(mu, (count, 1)), np.tile(SIGMA, (count, 1, 1)),
        np.full(count, r), np.random.default_rng(3),
    )  # fmt: skip
    V = np.linalg.inv(np.linalg.inv(SIGMA) + X.T @ X / r)
    mean = V @ (np.linalg.solve(SIGMA, mu) + X.T @ y / r)
    sd = np.sqrt(np.diagonal(V))
    np.testing.assert_allclose(middle, mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / sd, 0, atol=4.5 / count**0.5)
    off = (np.cov(draws.T) - V) / np.outer(sd, sd)
    np.testing.assert_allclose(off, 0, atol=4.5 * (2 / count) ** 0.5)


def log_prior(Sigma: np.ndarray, scale: float) -> float:
    """Return the prior's log density with respect to |Sigma|^-((d+1)/2) dSigma."""
    d, precision = len(Sigma), np.linalg.inv(Sigma)
    tails = (NU + d) / 2 * np.log(NU * np.diagonal(precision) + scale**-2.0)
    return float(-(NU + d - 1) / 2 * np.linalg.slogdet(Sigma)[1] - np.sum(tails))


def test_rounds_end_at_the_mode_that_a_search_over_the_records_finds() -> None:
    data = records((6, 30, 2, 12, 20, 9), 2, 3)
    _, Sigma = converged([statistics(X, y, 1.0) for X, y in data], 2, 0.5)

    def missing(at: np.ndarray) -> float:
        L = np.array([[np.exp(at[0]), 0.0], [at[1], np.exp(at[2])]])
        return -restricted(data, L @ L.T) - log_prior(L @ L.T, 0.5)

    best = minimize(missing, np.zeros(3), method="BFGS", options={"gtol": 1e-8})
    L = np.array([[np.exp(best.x[0]), 0.0], [best.x[1], np.exp(best.x[2])]])
    np.testing.assert_allclose(Sigma, L @ L.T, atol=1e-5)  # of differences in BFGS


@pytest.mark.oracle
def test_without_a_prior_rounds_end_at_the_reml_estimates_of_a_mixed_model() -> None:
    """MixedLM estimates the error variance as well; given its value, both maximise the same."""
    from statsmodels.regression.mixed_linear_model import MixedLM  # slow to import

    data = records(tuple(range(5, 35)), 2, 4)
    X, y = np.concatenate([x for x, _ in data]), np.concatenate([t for _, t in data])
    groups = np.repeat(np.arange(30), [len(t) for _, t in data])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = MixedLM(y, X, groups, exog_re=X).fit(reml=True, method="bfgs", gtol=1e-8)
    sites = [statistics(x, t, float(other.scale)) for x, t in data]
    fitted, Sigma = converged(sites, 2, None)
    np.testing.assert_allclose(Sigma, np.asarray(other.cov_re), rtol=2e-4)  # of its optimiser
    np.testing.assert_allclose(fitted.mean, np.asarray(other.fe_params), rtol=1e-4)


def test_the_sampler_has_the_gradient_of_its_density() -> None:
    data = records(SIZES, D, 5)
    fitted, _ = at([statistics(X, y, 1.0) for X, y in data], np.zeros(D), np.eye(D), SIGMA)
    for freedom in (0.0, 30.0):
        target = Target(fitted, 0.7, freedom)
        place = target.first(SIGMA, 4, np.random.default_rng(1))
        _, slope = target.log_density(place)
        for i, step in enumerate(1e-6 * np.eye(target.size)):
            ends = target.log_density(place + step)[0], target.log_density(place - step)[0]
            np.testing.assert_allclose(
                (ends[0] - ends[1]) / 2e-6, slope[:, i], rtol=1e-5, atol=1e-6
            )
        far = np.full((1, target.size), 1e3)
        assert target.log_density(far)[0] == -np.inf


@pytest.mark.oracle
def test_without_information_draws_are_from_the_prior() -> None:
    """Of the sds (half-t), a correlation (uniform) and r (f / chi-squared), by their ranks.

    K = 1 and S = 0 leave the prior. Of 16 chains, each has a mean rank of its own; their spread
    gives the standard error. A wrong acceptance, step or density shifts the mean or the variance.
    """
    nothing = EqualSites(1, np.zeros(2), np.eye(2), np.zeros((2, 2)))
    drawn = draw_covariances(Target(nothing, 0.7, 12.0), np.eye(2), 600, np.random.default_rng(2))
    sd = np.sqrt(np.diagonal(drawn.Sigma, axis1=2, axis2=3))
    correlation = drawn.Sigma[:, :, 0, 1] / np.prod(sd, axis=2)
    shares = {
        "first sd": 2 * student.cdf(sd[:, :, 0] / 0.7, NU) - 1,
        "second sd": 2 * student.cdf(sd[:, :, 1] / 0.7, NU) - 1,
        "correlation": (1 + correlation) / 2,
        "r": chi2.sf(12 / drawn.ratio, 12),
    }
    for name, share in shares.items():
        for power in (share, (share - 0.5) ** 2):
            each = power.mean(axis=0)
            error = each.std(ddof=1) / np.sqrt(len(each))
            exact = 0.5 if power is share else 1 / 12
            assert abs(each.mean() - exact) < 4.5 * error, name
            assert error < 0.02
    assert 0.6 < drawn.acceptance < 0.95  # adapted to 0.8


def test_a_matrix_that_is_singular_in_float64_does_not_spoil_the_others() -> None:
    fitted = EqualSites(4, np.zeros(2), np.eye(2), np.eye(2))
    usable = np.eye(2)
    both, _, _ = fitted.log_density(np.array([usable, np.full((2, 2), 1e20)]), np.ones(2))
    alone, _, _ = fitted.log_density(usable[None], np.ones(1))
    assert both[0] == alone[0] and not np.isfinite(both[1])


def site_of(X: np.ndarray, y: np.ndarray) -> Site:
    X, y = X - X.mean(axis=0), y - y.mean()
    gram, cross = X.T @ X, X.T @ y
    least, _, rank, _ = np.linalg.lstsq(X, y, rcond=1e-10)
    state = {"gram": gram, "cross": cross, "level_x": np.zeros(len(cross)), "level_y": 0.0,
             "square": float(y @ y), "here": len(y), "freedom": len(y) - 1, "separate": least,
             "rank": int(rank)}  # fmt: skip
    return Site.read(state)


def totals(data: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    sites = [site_of(X, y) for X, y in data]
    enough = np.array([float(len(sites))])
    each = [agreement_sums(site, enough) for site in sites]
    return {name: sum(one[name] for one in each) for name in each[0]}


def test_sites_agree_by_the_f_test_of_an_analysis_of_covariance() -> None:
    """statsmodels fits the nested regressions to the records, with an intercept of each site."""
    from statsmodels.api import OLS  # slow to import

    data = records((12, 30, 9, 15), 2, 6, spread=0.3)
    X = np.concatenate([x for x, _ in data])
    y, site = np.concatenate([t for _, t in data]), np.repeat(range(4), [len(t) for _, t in data])
    own = np.eye(4)[site]
    whole = OLS(y, np.column_stack([own, *(own * X[:, [j]] for j in range(2))])).fit()
    nested = {
        "all coefficients": np.column_stack([own, X]),
        "a": np.column_stack([own, X[:, 0], own * X[:, [1]]]),
        "b": np.column_stack([own, own * X[:, [0]], X[:, 1]]),
    }
    rows = agreement_rows(("a", "b"), totals(data), whole.scale, known=False)
    for row, (name, columns) in zip(rows, nested.items(), strict=True):
        F, p, df = whole.compare_f_test(OLS(y, columns).fit())
        assert row["name"] == f"sites agree on {name}"
        assert (row["F"], row["p"]) == pytest.approx((F, p), rel=1e-8)
        assert (row["df"], row["df_error"]) == (df, whole.df_resid)
    known = agreement_rows(("a", "b"), totals(data), 1.0, known=True)
    assert known[0]["df_error"] is None and known[0]["p"] != pytest.approx(rows[0]["p"], rel=1e-3)


def test_a_site_with_too_few_records_is_left_out_of_tests_of_one_coefficient() -> None:
    data = records((12, 2, 9, 15), 2, 6)
    total = totals(data)
    assert total["determined"] == 3 and total["rank"] == 7
    rows = agreement_rows(("a", "b"), total, 1.0, known=False)
    assert [row["df"] for row in rows] == [5, 2, 2]


def test_means_are_tested_by_students_and_hotellings_tests_of_equal_sites() -> None:
    """With equal designs, these are the tests of the sites' own least squares."""
    rng, K = np.random.default_rng(3), 7
    (X, _) = records((20,), 2, 7)[0]
    b = rng.standard_normal((K, 2)) + 0.5
    sites = [statistics(X, X @ each + rng.standard_normal(20), 1.0) for each in b]
    fitted, _ = at(sites, np.zeros(2), np.eye(2), 0.4 * np.eye(2))
    own = np.array([np.linalg.solve(site.gram, site.cross) for site in sites])
    joint, *each = mean_rows(("a", "b"), fitted.sites, fitted.mean, fitted.wide)
    for j, row in enumerate(each):
        t, p = ttest_1samp(own[:, j], 0)
        assert (row["F"], row["p"]) == pytest.approx((t**2, p), rel=1e-8)
    m, S = own.mean(axis=0), np.cov(own.T)
    squared = K * m @ np.linalg.solve(S, m)
    assert joint["F"] == pytest.approx(squared * (K - 2) / (2 * (K - 1)), rel=1e-8)
    assert (joint["df"], joint["df_error"]) == (2, K - 2)
    assert [row["df_error"] for row in mean_rows(("a", "b"), 2, fitted.mean, fitted.S)] == [
        1,
        1,
    ]  # no joint test


def test_a_matrix_that_is_no_covariance_is_refused() -> None:
    with pytest.raises(PeerError):
        covariances(np.array([[1.0, 2.0, 1.0]]), 2)
    row = np.array([[0.0, 0.0, 1.0, 0.5, 1.0, -1.0]])
    with pytest.raises(PeerError):
        SharedDraws.read(row, 2)


def test_a_covariance_that_rounding_made_negative_singles_out_no_site() -> None:
    """An eigenvalue of minus C_kjj would be a pole of A_k, and its site's terms the whole sum."""
    X, y = records((200,), 2, 5)[0]
    site = statistics(X, y, 1.0)
    own = np.linalg.inv(site.gram)[0, 0]
    Sigma = np.diag([-own * (1 + 1e-6), 1e10 * own])
    (read,) = covariances(Sigma[np.triu_indices(2)][None], 2)  # no larger than rounding
    A, slope = precision(site, read)
    assert np.all(np.linalg.eigvalsh(site.gram - A) > -1e-6 * np.max(site.gram))
    assert np.all(np.linalg.eigvalsh(A) > -1e-6 * np.max(site.gram))
    assert np.max(np.abs(slope)) <= 2 * np.max(np.abs(site.cross))
    mu, Sigmas = np.zeros((2, 2)), np.array([read, np.diag([0.0, read[1, 1]])])
    level = log_likelihoods(site, mu, Sigmas, np.ones(2))
    assert level[0] == pytest.approx(level[1], rel=1e-3)
    rng = np.random.default_rng(0)
    theta, mean = coefficient_draws(site, mu[:1], Sigmas[:1], np.ones(1), rng)
    assert abs(theta[0, 0]) < 10 > abs(mean[0])


def test_a_site_answers_a_covariance_of_any_size() -> None:
    """I + R Sigma R' may be singular in float64."""
    X, y = records((200,), 2, 5)[0]
    for size in 10.0 ** np.arange(15, 30):
        A, _ = precision(statistics(X, y, 1.0), size * np.outer([1, 0.3], [1, 0.3]))
        assert np.all(np.isfinite(A))
