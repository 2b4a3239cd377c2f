"""The demo's jobs on the real records: the pooled fit, and the same bits under every protocol."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import secagg

EXAMPLE = Path(__file__).parents[2] / "examples" / "heart-disease"
PROTOCOLS = ("plain", "additive", "paillier")


def pooled(columns):
    tables = [pd.read_csv(path) for path in sorted((EXAMPLE / "data").glob("*.csv"))]
    assert sum(map(len, tables)) == 920
    return pd.concat(tables)[columns].dropna()


@pytest.fixture(scope="module", params=["logistic", "linear"])
def folders(request, tmp_path_factory):
    out = tmp_path_factory.mktemp(request.param)
    for name in PROTOCOLS:
        secagg.run(
            EXAMPLE / f"{request.param}.toml",
            out=out / name,
            overrides={"protocol": f'{{ name = "{name}" }}', "simulation.site_alone": "false"},
        )
    return out


def test_arrays_are_the_same_bytes_under_every_protocol(folders):
    first, *others = ((folders / name / "arrays.npz").read_bytes() for name in PROTOCOLS)
    assert all(other == first for other in others)


def test_results_have_the_same_text_under_every_protocol(folders):
    first, *others = ((folders / name / "result.json").read_text() for name in PROTOCOLS)
    assert all(other == first for other in others)


def test_logistic_equals_the_pooled_fit():
    run = secagg.run(EXAMPLE / "logistic.toml")
    numeric = ["age", "rest_bp", "max_heart_rate", "exercise_angina", "st_depression"]
    table = pooled([*numeric, "sex", "chest_pain", "disease"])
    design = pd.DataFrame({"(intercept)": 1.0, "sex=male": table.sex == "male"})
    for level in ("non-anginal", "atypical angina", "typical angina"):
        design[f"chest_pain={level}"] = table.chest_pain == level
    design[numeric] = table[numeric]
    terms = run.result.summary["terms"]
    design = design[[term["term"] for term in terms]].astype(float)
    oracle = sm.Logit(table.disease.to_numpy(), design.to_numpy()).fit(disp=0, tol=1e-13)
    assert run.result.summary["records"] == len(table)
    # The bar is 1e-6; Newton's last step and fixed point leave less than 1e-9 (measured).
    np.testing.assert_allclose([t["estimate"] for t in terms], oracle.params, atol=1e-8)
    np.testing.assert_allclose([t["std_error"] for t in terms], oracle.bse, atol=1e-8)


def test_linear_equals_the_pooled_fit():
    run = secagg.run(EXAMPLE / "linear.toml")
    fit = next(a for a in run.result.summary["analyses"] if a["method"] == "ols")
    columns = ["age", "rest_bp", "exercise_angina", "st_depression", "disease"]
    table = pooled([*columns, "sex", "max_heart_rate"])
    table["sex=male"] = (table.sex == "male").astype(float)
    table["(intercept)"] = 1.0
    names = [term["term"] for term in fit["terms"]]
    oracle = sm.OLS(table.max_heart_rate, table[names].astype(float)).fit()
    np.testing.assert_allclose([t["estimate"] for t in fit["terms"]], oracle.params, rtol=1e-7)
    np.testing.assert_allclose([t["std_error"] for t in fit["terms"]], oracle.bse, rtol=1e-7)


def test_two_hospitals_alone_have_no_fit():
    alone = secagg.run(EXAMPLE / "logistic.toml").result.summary["simulation"]["site_alone"]
    no_fit = {name for name, fit in alone.items() if not fit.get("converged")}
    assert no_fit == {"switzerland", "va_long_beach"}


def test_the_slope_within_hospitals_is_the_one_in_the_readme():
    """Least squares with an indicator of each hospital; README.md and moments.md quote it."""
    run = secagg.run(EXAMPLE / "linear.toml", overrides={"method.centre": '"site"'})
    terms = {term["term"]: term for term in run.result.summary["analyses"][1]["terms"]}
    found = [terms["st_depression"][key] for key in ("estimate", "ci_low", "ci_high")]
    numeric = ["age", "rest_bp", "exercise_angina", "st_depression", "disease"]
    tables = [
        pd.read_csv(path).assign(site=path.stem)
        for path in sorted((EXAMPLE / "data").glob("*.csv"))
    ]
    every = pd.concat(tables)[[*numeric, "sex", "max_heart_rate", "site"]].dropna()
    design = every[numeric].assign(male=every.sex == "male")
    design = pd.concat([design, pd.get_dummies(every.site)], axis=1)
    oracle = sm.OLS(every.max_heart_rate.to_numpy(), design.astype(float)).fit()
    low, high = oracle.conf_int().loc["st_depression"]
    np.testing.assert_allclose(found, [oracle.params["st_depression"], low, high], atol=1e-8)
    estimate, *interval = (f"{number:.2f}" for number in found)
    readme = (EXAMPLE.parents[1] / "README.md").read_text(encoding="utf-8")
    assert f"is {estimate} ({' to '.join(interval)})" in readme
