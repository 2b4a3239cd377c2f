"""Moments within sites, through whole sessions, against statsmodels with an indicator a site."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st

import secagg
from secagg.contracts import PublicFacts, SiteRecords, Variable
from secagg.errors import CapabilityError
from secagg.models.common.site_confounding import POOLED_LINEAR_NOTE
from secagg.models.common.units import centred as without_means
from secagg.models.graphs.pc_ges import PartialCorrelationTest
from secagg.models.moments.method import LEVELS_NOTE
from secagg.models.moments.within_sites import within_moments, within_spec, within_update
from secagg.models.notears_admm.linear_site import spectrum
from secagg.sessions.fixed_point import encode
from secagg.sessions.sum_plan import plan_sum

COLUMNS = {
    "x": {"type": "continuous", "low": 1000, "high": 1100},
    "y": {"type": "continuous", "low": -200, "high": 200},
    "z": {"type": "continuous", "low": -10, "high": 10},
    "ward": {"type": "categorical", "levels": ["a", "b", "c"]},
}
REGRESSION = {"outcome": "y", "predictors": ["x", "z", "ward"]}
NAMES = ["x", "z", "ward=b", "ward=c"]
SIZES = (40, 1, 90, 2, 17)


def job(analyses: Any, **changed: Any) -> dict[str, Any]:
    return {
        "title": "t",
        "sites": {"max_rows": 10_000},
        "columns": COLUMNS,
        "method": {"name": "moments", "centre": "site", "analyses": analyses},
        "protocol": {"name": "additive"},
        "release": {"min_sites": 2, "min_records": 1},
    } | changed


@pytest.fixture(scope="module")
def sites() -> dict[str, pd.DataFrame]:
    """Sites that differ in level by far more than their records do."""
    rng = np.random.default_rng(3)
    made = {}
    for i, n in enumerate(SIZES):
        level = rng.uniform(-1, 1, 3) * (30, 100, 5)
        x, z = 1050 + level[0] + rng.normal(0, 2, n), level[2] + rng.normal(0, 1, n)
        ward = rng.choice(["a", "b", "c"], n)
        y = level[1] + 0.3 * (x - 1050) + 2 * z + 1.5 * (ward == "b") + rng.normal(0, 3, n)
        made[f"s{i}"] = pd.DataFrame({"x": x, "y": y, "z": z, "ward": ward})
    return made


def table(sites: dict[str, pd.DataFrame]) -> tuple[np.ndarray, np.ndarray]:
    """Return x, y, z, ward=b, ward=c of all records, and an indicator for each site."""
    every = pd.concat(sites.values())
    columns = [every.x, every.y, every.z, every.ward == "b", every.ward == "c"]
    which = np.repeat(np.arange(len(sites)), [len(t) for t in sites.values()])
    return np.column_stack(columns).astype(float), np.eye(len(sites))[which]


@pytest.fixture(scope="module")
def run(sites: dict[str, pd.DataFrame]) -> Any:
    kinds = ({"kind": kind, **REGRESSION} for kind in ("ols", "ridge", "lasso"))
    return secagg.run(
        job([*kinds, {"kind": "describe"}, {"kind": "pc"}, {"kind": "notears"}]), sites
    )


@pytest.fixture(scope="module")
def least_squares(sites: dict[str, pd.DataFrame]) -> Any:
    records, indicators = table(sites)
    return sm.OLS(records[:, 1], np.hstack([records[:, [0, 2, 3, 4]], indicators])).fit()


def centred(sites: dict[str, pd.DataFrame]) -> np.ndarray:
    records, indicators = table(sites)
    means = np.linalg.lstsq(indicators, records, rcond=None)[0]
    return records - indicators @ means


# --- the moments ----------------------------------------------------------------------------------


def test_moments_agree_with_site_centred_records(run: Any, sites: Any) -> None:
    arrays, away = run.result.arrays, centred(sites)
    # The oracle's rounding: of records of up to 1100, so 1100 eps a difference, n of them, against
    # deviations of the size of the diagonal's roots.
    S = away.T @ away
    slack = (
        4 * 1100 * np.finfo(float).eps * np.sqrt(len(away) * np.outer(S.diagonal(), S.diagonal()))
    )
    assert np.all(np.abs(arrays["scatter"] - S) <= slack + 1e-12)
    assert arrays["n"] == sum(SIZES) and "mean" not in arrays
    summary = run.result.summary
    assert (summary["centre"], summary["n"]) == ("site", sum(SIZES))
    assert summary["degrees_of_freedom"] == sum(SIZES) - len(SIZES)
    assert [r["stage"] for r in run.facts["releases"]] == ["cohort", "moments"]  # one secure sum


def test_site_means_do_not_change_the_results(sites: Any, run: Any) -> None:
    """Other than with pooled means, whose covariance they make."""
    moved = {name: t.assign(y=t.y + 10 * i) for i, (name, t) in enumerate(sites.items())}
    other = secagg.run(job([{"kind": "describe"}]), moved).result
    np.testing.assert_allclose(
        other.arrays["scatter"], run.result.arrays["scatter"], rtol=1e-9, atol=1e-8
    )  # y of up to 200 has been rounded once more, by 200 eps
    pooled = job([{"kind": "describe"}], method={"name": "moments"})
    assert (
        secagg.run(pooled, sites).result.arrays["scatter"][1, 1]
        > 10 * other.arrays["scatter"][1, 1]
    )


def test_the_covariance_equals_that_of_notears_admm(run: Any, sites: Any) -> None:
    """The sum over sites of its S_k."""
    records, _ = table(sites)
    n, ends = len(records), np.cumsum(SIZES)[:-1]
    S = np.zeros((5, 5))
    for part in np.split(records, ends):
        Q, L = spectrum(without_means(part), n)
        S += (Q * L) @ Q.T
    root = np.sqrt(np.outer(S.diagonal(), S.diagonal()))
    # its differences, of one pass, err by 1100 eps and more against deviations of at least 0.4
    assert np.all(np.abs(run.result.arrays["scatter"] / n - S) <= 1e-11 * root)


PUBLIC = PublicFacts(
    tuple(Variable(name, name, 3.0, half) for name, half in (("a", 1.0), ("b", 0.5), ("c", 8.0))),
    ("a", "b", "c"),
    50,
    ("north", "south"),
)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 50), ends=st.booleans())
def test_no_entry_exceeds_the_number_of_records(seed: int, n: int, ends: bool) -> None:
    """Differences reach 2, the largest where records lie at both ends; sums of products n."""
    rng = np.random.default_rng(seed)
    u = rng.choice([-1.0, 1.0], (n, 3)) if ends else rng.uniform(-1, 1, (n, 3))
    update = within_update(SiteRecords(u, 0, np.zeros(3)))
    # n terms, each of differences that are rounded twice
    assert np.all(np.abs(update["moments"]) <= n * (1 + 8 * n * np.finfo(float).eps))
    public = PublicFacts(PUBLIC.variables, PUBLIC.columns, n, PUBLIC.sites)
    plan = plan_sum(within_spec(public, 60), 2)
    ring = encode(plan, update)
    assert ring is not None


def summed(*parts: np.ndarray, bits: int = 500) -> Any:
    updates = [within_update(SiteRecords(u, 0, np.zeros(3))) for u in parts]
    upper, counts = (np.sum([u[key] for u in updates], axis=0) for key in ("moments", "counts"))
    return within_moments(upper, counts, PUBLIC, len(parts) * 2.0 ** -(bits + 1))


def test_sites_with_one_record_or_none_contribute_zero() -> None:
    rng = np.random.default_rng(0)
    u, one = rng.uniform(-1, 1, (9, 3)), rng.uniform(-1, 1, (1, 3))
    alone, more = summed(u), summed(u, one, np.zeros((0, 3)), one)
    np.testing.assert_array_equal(more.scatter, alone.scatter)
    assert (alone.n, alone.within, alone.degrees_of_freedom) == (9, 1, 8)
    assert (more.n, more.within, more.degrees_of_freedom) == (
        11,
        3,
        8,
    )  # a site without records has no mean


@pytest.mark.parametrize("bits", [20, 80, 500])
def test_a_column_constant_at_every_site_is_named_as_constant(bits: int) -> None:
    """However its mean is rounded, and however far the sites differ in it."""
    rng = np.random.default_rng(1)
    parts = [rng.uniform(-1, 1, (n, 3)) for n in (7, 1000, 3)]
    for u, value in zip(parts, (0.1, -1 / 3, 0.7), strict=True):
        u[:, 1] = value
    moments = summed(*parts, bits=bits)
    assert moments.constant.tolist() == [False, True, False]
    assert not moments.scatter[1].any() and not moments.scatter[:, 1].any()


@given(seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(0, 20), min_size=1, max_size=5))
def test_rounding_errors_are_within_the_stated_bounds(seed: int, sizes: list[int]) -> None:
    """Against sums in extended precision, whose own error is 2^-11 of float64's."""
    rng = np.random.default_rng(seed)
    parts = [rng.uniform(-1, 1, 3) + 1e-5 * rng.uniform(-1, 1, (n, 3)) for n in sizes]
    parts = [np.clip(u, -1, 1) for u in parts]
    if sum(sizes) == 0:
        return
    moments = summed(*parts)
    away = [np.asarray(u, dtype=np.longdouble) for u in parts if len(u)]
    away = [u - u.mean(axis=0) for u in away]
    half = np.array([v.half_range for v in PUBLIC.variables])
    exact = sum(u.T @ u for u in away) * np.outer(half, half)
    root = np.sqrt(moments.errors * np.diagonal(moments.scatter))
    varies = ~moments.constant
    wrong = np.abs(moments.scatter - exact)[np.ix_(varies, varies)]
    assert np.all(wrong <= np.outer(root, root)[np.ix_(varies, varies)])


# --- the analyses ---------------------------------------------------------------------------------


def test_ols_equals_least_squares_with_site_indicators(run: Any, least_squares: Any) -> None:
    fit, oracle = run.result.summary["analyses"][0], least_squares
    assert [term["term"] for term in fit["terms"]] == NAMES  # and no intercept
    estimates, errors, p, low = (
        np.array([term[key] for term in fit["terms"]])
        for key in ("estimate", "std_error", "p_value", "ci_low")
    )
    # The oracle solves with columns of 1000 and deviations of 2: 500^2 eps of a slope, n summed.
    np.testing.assert_allclose(estimates, oracle.params[:4], rtol=1e-8)
    np.testing.assert_allclose(errors, oracle.bse[:4], rtol=1e-8)
    np.testing.assert_allclose(p, oracle.pvalues[:4], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(low, oracle.conf_int()[:4, 0], rtol=1e-7)
    assert fit["residual_dof"] == oracle.df_resid == sum(SIZES) - len(SIZES) - 4
    f = oracle.f_test(np.eye(4, len(oracle.params)))
    assert fit["f_statistic"] == pytest.approx(float(f.fvalue), rel=1e-7)
    assert fit["f_p_value"] == pytest.approx(float(f.pvalue), rel=1e-6)
    for key, value in (("log_likelihood", oracle.llf), ("aic", oracle.aic), ("bic", oracle.bic)):
        assert fit[key] == pytest.approx(value, rel=1e-9), key
    assert any("own means" in note for note in fit["notes"])


def test_r_squared_refers_to_variation_within_sites(
    run: Any, least_squares: Any, sites: Any
) -> None:
    fit, within = run.result.summary["analyses"][0], centred(sites)[:, 1]
    unexplained = least_squares.ssr / (within @ within)
    assert fit["r_squared"] == pytest.approx(1 - unexplained, rel=1e-9)
    dof = sum(SIZES) - len(SIZES)
    assert fit["adjusted_r_squared"] == pytest.approx(1 - unexplained * dof / (dof - 4), rel=1e-9)


def test_ridge_and_lasso_do_not_penalise_site_means(run: Any, sites: Any) -> None:
    """Against the normal equations, and the optimality conditions, of the centred records."""
    _, ridge, lasso, *_ = run.result.summary["analyses"]
    away = centred(sites)
    Z, y = away[:, [0, 2, 3, 4]], away[:, 1]
    n, sd = len(away), np.sqrt((Z**2).mean(axis=0))
    scaled = Z / sd
    hat = scaled @ np.linalg.solve(scaled.T @ scaled + n * ridge["penalty"] * np.eye(4), scaled.T)
    slopes = np.linalg.lstsq(Z, hat @ y, rcond=None)[0]
    # As above: the oracle's differences err by 1100 eps.
    np.testing.assert_allclose([t["estimate"] for t in ridge["terms"]], slopes, rtol=1e-8)
    assert ridge["effective_dof"] == pytest.approx(len(SIZES) + np.trace(hat), rel=1e-9)
    sigma = np.sqrt(np.sum((y - hat @ y) ** 2) / (n - ridge["effective_dof"]))
    assert ridge["residual_std_error"] == pytest.approx(sigma, rel=1e-8)
    found = np.array([t["estimate"] for t in lasso["terms"]])
    rest = y - Z @ found
    slope = scaled.T @ rest / n / np.sqrt((y**2).mean())
    assert np.all(np.abs(slope) <= lasso["penalty"] * (1 + 1e-6))
    nonzero = found != 0
    np.testing.assert_allclose(
        slope[nonzero], lasso["penalty"] * np.sign(found[nonzero]), rtol=1e-6
    )  # the descent's tolerance, `kkt_violation`
    deviance = n * (np.log(2 * np.pi * np.mean(rest**2)) + 1)
    bic = deviance + np.log(n) * (len(SIZES) + nonzero.sum())
    assert lasso["bic"] == pytest.approx(bic, rel=1e-9)
    assert [t["term"] for t in lasso["terms"]] == NAMES


def test_the_description_has_within_site_deviations_and_no_means(run: Any, sites: Any) -> None:
    described, away = run.result.summary["analyses"][3], centred(sites)
    assert [c["mean"] for c in described["columns"]] == [None] * 5
    sd = np.sqrt((away**2).sum(axis=0) / (sum(SIZES) - len(SIZES)))
    np.testing.assert_allclose([c["sd"] for c in described["columns"]], sd, rtol=1e-9)
    np.testing.assert_allclose(described["correlation"], np.corrcoef(away.T), atol=1e-9)


def test_pc_tests_condition_on_the_sites() -> None:
    """Its p value is that of a partial correlation given the sites' indicators, too."""
    rng = np.random.default_rng(2)
    parts = [rng.normal(size=(n, 3)) / 10 + rng.uniform(-0.5, 0.5, 3) for n in (6, 9, 5)]
    moments = summed(*parts)
    every = np.vstack(parts)
    sites = np.repeat(np.eye(3)[:, 1:], (6, 9, 5), axis=0)  # the first is the reference
    together = np.asarray(np.corrcoef(np.hstack([every, sites]).T))
    given_sites = PartialCorrelationTest(together, len(every))(0, 1, [2, 3, 4])
    ours = PartialCorrelationTest(moments.correlation, moments.degrees_of_freedom + 1)(0, 1, [2])
    assert ours == pytest.approx(given_sites, rel=1e-9)  # 1 / (smallest eigenvalue) times eps


def test_differences_between_sites_cause_no_edges() -> None:
    """Three unrelated columns, at sites that differ in all of them together."""
    rng = np.random.default_rng(4)
    parts = {
        f"s{k}": dict(zip("abc", (rng.normal(size=(60, 3)) + 3 * k).T, strict=True))
        for k in range(4)
    }
    columns = {name: {"type": "continuous", "low": -20, "high": 20} for name in "abc"}
    edges = {}
    for centre in ("site", "pooled"):
        kinds = [{"kind": kind} for kind in ("notears", "pc", "describe")]
        method = {"name": "moments", "centre": centre, "analyses": kinds}
        run = secagg.run(job([], columns=columns, method=method), parts)
        graph, *others = run.result.summary["analyses"]
        edges[centre] = len(graph["edges"])
        warned = [LEVELS_NOTE in shown["notes"] for shown in (graph, others[0])]
        assert warned == [centre == "pooled"] * 2
        assert LEVELS_NOTE not in others[1].get("notes", ())
    assert edges["site"] == 0 < edges["pooled"]


@pytest.mark.parametrize("kind", ["ols", "ridge", "lasso"])
def test_a_pooled_regression_says_that_sites_may_differ(kind: str) -> None:
    """Two unrelated columns at sites that differ in both: the pooled slope is near 1."""
    rng = np.random.default_rng(5)
    parts = {
        f"s{k}": dict(zip("ab", (rng.normal(size=(60, 2)) + 5 * k).T, strict=True))
        for k in range(3)
    }
    columns = {name: {"type": "continuous", "low": -30, "high": 30} for name in "ab"}
    slopes = {}
    for centre in ("site", "pooled"):
        analyses = [{"kind": kind, "outcome": "a", "predictors": ["b"]}, {"kind": "describe"}]
        method = {"name": "moments", "centre": centre, "analyses": analyses}
        run = secagg.run(job([], columns=columns, method=method), parts)
        fit, described = run.result.summary["analyses"]
        assert (POOLED_LINEAR_NOTE in fit["notes"]) == (centre == "pooled")
        assert POOLED_LINEAR_NOTE not in described.get("notes", ())
        slopes[centre] = fit["terms"][-1]["estimate"]
    # Within sites: 4.5 standard errors of 1 / root(180). Pooled: 50 / 3 of a variance of 53 / 3.
    assert abs(slopes["site"]) < 4.5 / np.sqrt(180)
    assert slopes["pooled"] > 0.8


# --- what cannot be -------------------------------------------------------------------------------


def test_one_record_at_every_site_is_reported_as_no_variation() -> None:
    sites = {f"s{k}": {"x": [1001.0 + k], "y": [float(k)], "z": [0.1 * k]} for k in range(9)}
    columns = {name: COLUMNS[name] for name in "xyz"}
    ols = {"kind": "ols", "outcome": "y", "predictors": ["x"]}
    expected = job([ols, {"kind": "notears"}, {"kind": "describe"}], columns=columns)
    regression, graph, described = secagg.run(expected, sites).result.summary["analyses"]
    assert "failed" in regression
    assert "within any site" in graph["failed"]
    assert [c["sd"] for c in described["columns"]] == [None] * 3


def test_differential_privacy_is_refused_with_the_reason(sites: Any) -> None:
    privacy = {"placement": "sum", "epsilon": 1.0, "delta": 1e-6}
    expected = job(
        [{"kind": "describe"}], privacy=privacy, release={"min_sites": 3, "min_records": 1}
    )
    with pytest.raises(CapabilityError) as raised:
        secagg.run(expected, sites)
    assert raised.value.where == "method.centre"
