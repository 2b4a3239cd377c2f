"""Federated logistic regression through whole sessions, against statsmodels on pooled records."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import secagg
from secagg.errors import JobError, UsageError
from secagg.models.common.coefficient_table import INTERCEPT
from secagg.models.common.pooled_moments import CONSTANT_COLUMN_ADVICE
from secagg.models.common.site_confounding import POOLED_ROUNDS_NOTE

COLUMNS = {
    "age": {"type": "continuous", "low": 0, "high": 120},
    "dose": {"type": "continuous", "low": -5, "high": 5},
    "ward": {"type": "categorical", "levels": ["a", "b", "c"]},
    "ill": {"type": "binary"},
}


def job(**changes):
    return {
        "title": "t",
        "sites": {"max_rows": 10_000},
        "columns": COLUMNS,
        "method": {"name": "logistic", "outcome": "ill", "predictors": ["age", "dose", "ward"]},
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1},
        **changes,
    }


def records(n, seed, prevalence=0.0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.normal(60, 12, n).clip(0, 120).round(1),
            "dose": rng.normal(0, 1, n).clip(-5, 5),
            "ward": rng.choice(["a", "b", "c"], n),
        }
    )
    eta = prevalence + 0.04 * (table.age - 60) + 0.8 * table.dose - 0.5 * (table.ward == "b")
    table["ill"] = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
    return table


def pooled_fit(sites):
    pooled = pd.concat(sites.values()).dropna()
    design = np.column_stack(
        [np.ones(len(pooled)), pooled.age, pooled.dose, pooled.ward == "b", pooled.ward == "c"]
    ).astype(float)
    return sm.Logit(pooled.ill.to_numpy(), design).fit(disp=0, tol=1e-13)


# Newton's last step leaves an error of about (1e-4)^2 standard errors; fixed point adds K 2^-37 to
# each derivative, times H^-1 (below 10 here): together below 1e-8 in any coefficient.
TOLERANCE = 1e-8


@pytest.mark.parametrize("protocol", ["plain", "additive", "paillier"])
def test_a_run_equals_the_pooled_fit(protocol):
    sites = {f"s{i}": records(60 + 40 * i, i, prevalence=i - 1.5) for i in range(4)}
    sites["s1"].loc[3, "dose"] = np.nan
    run = secagg.run(job(protocol={"name": protocol}), sites)
    oracle = pooled_fit(sites)
    summary, arrays = run.result.summary, run.result.arrays
    assert summary["converged"]
    assert summary["n"] == summary["records"] == oracle.nobs
    assert summary["incomplete_records"] == 1
    np.testing.assert_allclose(arrays["coefficients"], oracle.params, atol=TOLERANCE)
    np.testing.assert_allclose(arrays["covariance"], oracle.cov_params(), atol=TOLERANCE)
    assert summary["log_likelihood"] == pytest.approx(oracle.llf, abs=1e-8)
    # statsmodels fits the null model by a search that stops early; ours is its closed form.
    assert summary["null_log_likelihood"] == pytest.approx(oracle.llnull, abs=1e-6)
    assert summary["lr_p_value"] == pytest.approx(oracle.llr_pvalue, rel=1e-6)
    assert summary["events"] == sum(table.ill[table.dose.notna()].sum() for table in sites.values())
    terms = summary["terms"]
    np.testing.assert_allclose([t["p_value"] for t in terms], oracle.pvalues, atol=1e-7)
    low, high = oracle.conf_int().T
    np.testing.assert_allclose([t["odds_low"] for t in terms], np.exp(low), rtol=1e-6)
    np.testing.assert_allclose([t["odds_high"] for t in terms], np.exp(high), rtol=1e-6)


def test_odds_ratios_per_standard_deviation_come_from_the_first_sum():
    sites = {f"s{i}": records(60 + 40 * i, i) for i in range(3)}
    run = secagg.run(job(protocol={"name": "plain"}), sites)
    intercept, *slopes = run.result.summary["terms"]
    assert intercept["per_sd"] is None
    slopes, indicators = slopes[:2], slopes[2:]  # an indicator's deviation gives the level's count
    assert len(indicators) == 2 and all(term["per_sd"] is None for term in indicators)
    deviations = pooled_fit(sites).model.exog.std(axis=0, ddof=1)[1:3]
    for term, sd in zip(slopes, deviations, strict=True):
        scale = term["per_sd"]
        assert scale["sd"] == pytest.approx(sd, rel=1e-9)
        assert scale["odds_ratio"] == pytest.approx(term["odds_ratio"] ** sd, rel=1e-7)
        assert scale["odds_low"] == pytest.approx(term["odds_low"] ** sd, rel=1e-7)
        assert scale["odds_high"] == pytest.approx(term["odds_high"] ** sd, rel=1e-7)


def test_a_nearly_separating_predictor_is_named():
    sites = {f"s{i}": records(80, i) for i in range(3)}
    plain = secagg.run(job(), sites).result.summary
    assert plain["notes"] == [POOLED_ROUNDS_NOTE] and "caution" not in plain
    for i, table in enumerate(sites.values()):
        noise = np.random.default_rng(100 + i).normal(0, 0.2, len(table))
        table["ill"] = (table.dose + noise > 0).astype(int)
    summary = secagg.run(job(), sites).result.summary
    assert summary["converged"]
    assert summary["notes"] == [summary["caution"], POOLED_ROUNDS_NOTE]
    assert "dose" in summary["caution"] and "age" not in summary["caution"]


def test_one_site_alone_has_no_note_on_differences_between_sites():
    sites = {f"s{i}": records(80, i) for i in range(3)}
    alone = secagg.run(job(simulation={"site_alone": True}), sites).result.summary["simulation"]
    assert [own["notes"] for own in alone["site_alone"].values()] == [[], [], []]


def test_separation_is_reported():
    sites = {f"s{i}": records(80, i) for i in range(3)}
    for table in sites.values():
        table.loc[table.ward == "c", "ill"] = 0
    summary = secagg.run(job(), sites).result.summary
    assert not summary["converged"]
    assert summary["status"] == "separated"
    assert "ward=c" in summary["notes"][0]


@pytest.mark.parametrize("age", [60.0, 70.0])  # 60: the middle of its bounds
def test_a_constant_column_is_named_as_one(age):
    sites = {f"s{i}": records(80, i).assign(age=age) for i in range(3)}
    with pytest.raises(UsageError) as caught:
        secagg.run(job(), sites)
    assert "'age'" in caught.value.what and INTERCEPT not in caught.value.what
    assert caught.value.advice == CONSTANT_COLUMN_ADVICE


def test_a_constant_outcome_is_named_as_one():
    sites = {f"s{i}": records(80, i).assign(ill=1) for i in range(3)}
    summary = secagg.run(job(), sites).result.summary
    assert summary["status"] == "separated"
    assert INTERCEPT not in summary["notes"][0]
    assert POOLED_ROUNDS_NOTE not in summary["notes"]  # there is nothing to interpret


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ({"outcome": "age"}, "method.outcome"),
        ({"outcome": "ward"}, "method.outcome"),
        ({"outcome": "sick"}, "method.outcome"),
        ({"predictors": ["age", "ill"]}, "method.predictors"),
        ({"predictors": ["age", "age"]}, "method.predictors"),
        ({"predictors": []}, "method.predictors"),
        ({"level": 1.5}, "method.level"),
        ({"tolerence": 1}, "method"),
    ],
)
def test_unsuitable_settings_are_refused(method, where):
    expected = job(method={**job()["method"], **method})
    with pytest.raises((JobError, UsageError)) as raised:
        secagg.run(expected, {"a": records(20, 0), "b": records(20, 1)})
    assert raised.value.where == where


def test_reaching_the_last_round_is_reported():
    sites = {f"s{i}": records(80, i) for i in range(3)}
    summary = secagg.run(job(method={**job()["method"], "max_rounds": 2}), sites).result.summary
    assert not summary["converged"]
    assert "did not converge" in summary["notes"][0]
