"""The plan's comparison of the mechanisms that could answer a job's regressions."""

import tomllib
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

from secagg.contracts import AskedRegression
from secagg.evidence.feasibility import mechanisms, simulated
from secagg.evidence.feasibility.mechanisms import compared
from secagg.evidence.feasibility.simulated import RelativeError, _exact, simulated_table
from secagg.evidence.planned_facts import feasibility_facts
from secagg.jobs.design_matrix import public_facts
from secagg.jobs.job import parse_job
from secagg.jobs.privacy import Privacy
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.glm.logistic import BINOMIAL
from secagg.models.glm.poisson import POISSON
from secagg.privacy.accounting.gaussian_dp import gaussian_mu
from secagg.sessions.planned_job import Planned, plan_sites

COLUMNS: dict[str, Any] = {
    "age": {"type": "continuous", "low": 18, "high": 110, "typical": [45, 65]},
    "dose": {"type": "continuous", "low": 0.1, "high": 100, "transform": "log",
             "typical": [1, 10]},
    "ward": {"type": "categorical", "levels": ["a", "b", "c"]},
    "visits": {"type": "count", "high": 40, "typical": [2, 10]},
    "sbp": {"type": "continuous", "low": 60, "high": 260, "typical": [115, 150]},
    "died": {"type": "binary", "typical": 0.3},
}  # fmt: skip
OLS: dict[str, Any] = {"kind": "ols", "outcome": "sbp", "predictors": ["age", "dose"]}
ONE_STEP: dict[str, Any] = {"name": "one_step", "outcome": "sbp", "predictors": ["age", "dose"]}


def planned(method: dict[str, Any], **changed: Any) -> Planned:
    privacy = {"epsilon": 1.0, "delta": 1e-5, "expected_records": 3000}
    raw = {
        "title": "t",
        "sites": {"max_rows": 1000},
        "columns": COLUMNS,
        "method": method,
        "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 20},
    }
    raw |= changed | {"privacy": privacy | changed.get("privacy", {})}
    return plan_sites(parse_job(raw), ("a", "b", "c", "d"), {})


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "FIRST_RUNS": 1, "RUNS": 4, "SPREAD_RUNS": 1, "_NORMS": (1.0,)
    }.items():  # fmt: skip
        monkeypatch.setattr(mechanisms, name, value)
    monkeypatch.setattr(simulated, "_MOST_NUMBERS", 0)
    monkeypatch.setattr(simulated, "_MANY_RECORDS", 1000)


LOGISTIC: dict[str, Any] = ONE_STEP | {"outcome": "died", "family": "binomial"}


@pytest.mark.parametrize(
    ("method", "before", "best_method"),
    [
        ({"name": "moments", "analyses": [OLS, {"kind": "describe"}]},
         {"placement": "sum", "record_norm": 1.0}, "moments"),
        (LOGISTIC | {"name": "gradient", "rounds": 20},
         {"placement": "round", "record_norm": 1.0}, "one_step"),
    ],
    ids=["moments", "gradient"],
)  # fmt: skip
def test_the_lines_to_change_give_the_job_with_the_error_that_the_table_says(
    method: dict[str, Any], before: dict[str, Any], best_method: str
) -> None:
    """And this job is then the best of the same ways."""
    found = compared(planned(method, privacy=before))
    assert found is not None and found["change"] is not None
    best, own = found["rows"][found["best"]], found["rows"][0]
    assert own["own"] and best["method"] == best_method and best["error"] < 0.6 * own["error"]
    changed = tomllib.loads("\n".join(found["change"]))
    gone = [line.removeprefix("# no ") for line in found["change"] if line.startswith("# no ")]
    kept = {key: value for key, value in before.items() if key not in gone}
    settings = changed.get("method", method)
    again = compared(planned(settings, privacy=kept | changed["privacy"]))
    assert again is not None and (again["best"], again["change"]) == (0, None)
    assert again["rows"][0] == best | {"own": True}
    kinds = {(row["method"], row["placement"]) for row in found["rows"]}
    linear = {("moments", "sum"), ("moments", "site")} if method["name"] == "moments" else set()
    assert kinds == linear | {("one_step", "round"), ("gradient", "round")}
    assert all(row["intervals"] == (row["method"] != "gradient") for row in found["rows"])


def test_within_sites_moments_and_one_step_are_compared() -> None:
    of_moments = {"name": "moments", "centre": "site", "analyses": [OLS]}
    for method in (ONE_STEP | {"centre": "site"}, of_moments):
        found = compared(planned(method))
        assert found is not None
        rows = {(row["method"], row["placement"]): row for row in found["rows"]}
        assert set(rows) == {("one_step", "round"), ("moments", "round")}
        errors = [row["error"] for row in rows.values()]
        assert max(errors) < 2 * min(errors) and all(row["intervals"] for row in rows.values())


def test_jobs_for_several_outcomes_have_the_budget_of_one_release() -> None:
    """Their mu^2 add up to that of the job, with 1e-9 for the search of epsilon."""
    outcomes = ("sbp", "visits")
    analyses = [{"kind": "ols", "outcome": y, "predictors": ["age", "dose"]} for y in outcomes]
    found = compared(planned({"name": "moments", "analyses": analyses}))
    assert found is not None
    for row in found["rows"]:
        jobs = 1 if row["method"] == "moments" else 2
        total = jobs * gaussian_mu(row["epsilon"], 1e-5) ** 2
        assert row["jobs"] == jobs and total == pytest.approx(gaussian_mu(1.0, 1e-5) ** 2, 1e-9)


def test_only_ways_that_can_be_planned_are_compared() -> None:
    """Under `plain` the noise is at the sites; a logistic regression is not answered by moments."""
    moments = {"name": "moments", "analyses": [OLS]}
    alone = planned(
        moments, protocol={"name": "plain"}, privacy={"placement": "site", "record_norm": 1.0}
    )
    found = compared(alone)
    assert found is not None and {row["placement"] for row in found["rows"]} == {"site"}
    logistic = compared(planned(LOGISTIC))
    assert logistic is not None
    assert {row["method"] for row in logistic["rows"]} == {"one_step", "gradient"}


def test_nothing_is_compared_without_another_way_or_without_a_guess_of_the_records() -> None:
    assert compared(planned(LOGISTIC | {"centre": "site"})) is None
    assert compared(planned({"name": "moments"})) is None
    assert compared(planned(ONE_STEP, privacy={"expected_records": None})) is None


@pytest.mark.parametrize("outcome", ["sbp", "died"])
def test_simulated_records_are_as_assumed(outcome: str) -> None:
    """20,000 records: correlations and shares have errors of at most .007; 5 of them."""
    job = planned(ONE_STEP).job
    columns, count = job.columns, 20_000
    public = public_facts(job.model_copy(update={"privacy": Privacy()}), ("a", "b"))
    family = GAUSSIAN if outcome == "sbp" else BINOMIAL
    asked = AskedRegression(outcome, ("age", "dose"), family)
    table = simulated_table(columns, public, asked, count, 1.0, np.random.default_rng(5))
    log_dose = np.log(table["dose"])
    assert np.corrcoef(table["age"], log_dose)[0, 1] == pytest.approx(0.3, abs=0.035)
    assert table["age"].mean() == pytest.approx(55, abs=0.4)
    assert log_dose.std() == pytest.approx(np.log(10) / 2, rel=0.03)
    shares = table["ward"].value_counts(normalize=True)
    assert list(shares[["a", "b", "c"]]) == pytest.approx([1 / 3] * 3, abs=0.01)
    assert (table["visits"] == table["visits"].round()).all()
    X = sm.add_constant(np.column_stack([table["age"], log_dose]).astype(float))
    if outcome == "sbp":
        fit = sm.OLS(table["sbp"], X).fit()
        assert fit.rsquared == pytest.approx(0.2, abs=0.03)
        y = table["sbp"].to_numpy()
    else:
        y = (table["died"] == "1").to_numpy().astype(float)
        fit = sm.Logit(y, X).fit(disp=0)
        signal = np.var(X @ fit.params)  # of 1.2 by the latent share; its error is .05
        assert signal / (signal + np.pi**2 / 3) == pytest.approx(0.2, abs=0.03)
    slopes, errors = _exact(X, y, family)
    np.testing.assert_allclose(slopes, fit.params[1:], rtol=1e-6)
    np.testing.assert_allclose(errors, fit.bse[1:], rtol=1e-4)


@pytest.mark.parametrize(
    ("method", "privacy"),
    [
        (ONE_STEP, {"expected_records": 1}),
        (ONE_STEP | {"predictors": ["age", "ward=b"]}, {"expected_records": 10**6, "delta": 1e-8}),
        ({"name": "moments", "analyses": [OLS | {"outcome": "ward=c"}]}, {}),
        ({"name": "moments", "analyses": [OLS]},
         {"person": "id", "records_per_person": 3, "person_norm": 1.0, "adjacency": "replace"}),
    ],
    ids=["one record", "many records", "an indicator as outcome", "persons"],
)  # fmt: skip
def test_every_job_that_can_be_planned_can_be_compared(
    method: dict[str, Any], privacy: dict[str, Any]
) -> None:
    found = compared(planned(method, privacy=privacy))
    assert found is not None and len(found["rows"]) >= 4
    assert all(0 < row["error"] < 1e3 for row in found["rows"])


def test_the_lines_of_several_jobs_fit_into_the_budget_and_names_are_toml() -> None:
    """The written epsilon is rounded down, and a column may have quotes in its name."""
    columns = COLUMNS | {'the "dose"': COLUMNS["age"], "died": {"type": "binary"}}
    analyses = [OLS | {"outcome": y, "predictors": ['the "dose"']} for y in ("sbp", "visits")]
    found = compared(planned({"name": "moments", "analyses": analyses}, columns=columns))
    assert found is not None and found["change"] is not None
    changed = tomllib.loads("\n".join(found["change"]))
    assert changed["method"]["predictors"] == ['the "dose"']
    mu = gaussian_mu(changed["privacy"]["epsilon"], 1e-5)
    assert 0.98 < 2 * mu**2 / gaussian_mu(1.0, 1e-5) ** 2 <= 1


def test_the_exposure_is_in_the_counts_and_in_the_fit_without_noise() -> None:
    """Without it, plans said about 40 % at any epsilon."""
    columns = COLUMNS | {
        "years": {"type": "continuous", "low": 0.1, "high": 10, "typical": [1, 3.5]}
    }
    method = ONE_STEP | {"outcome": "visits", "family": "poisson", "exposure": "years"}
    found = prospect_of(planned(method, columns=columns, privacy={"epsilon": 8.0}))
    assert found["error"] < 0.15 and found["error"] < 2 * found["sampling"]
    asked = AskedRegression("visits", ("age", "dose"), POISSON, exposure="years")
    job = planned(method, columns=columns).job
    public = public_facts(job.model_copy(update={"privacy": Privacy()}), ("a", "b"))
    table = simulated_table(job.columns, public, asked, 20_000, 1.0, np.random.default_rng(5))
    X = sm.add_constant(np.column_stack([table["age"], np.log(table["dose"])]).astype(float))
    y, offset = table["visits"].to_numpy(float), np.log(table["years"].to_numpy())
    X = np.asarray(X)
    fit = sm.GLM(y, X, sm.families.Poisson(), offset=offset).fit()
    slopes, _ = _exact(X, y, POISSON, offset)
    np.testing.assert_allclose(slopes, fit.params[1:], rtol=1e-6)
    assert fit.pearson_chi2 / fit.df_resid == pytest.approx(1.0, abs=0.05)


def prospect_of(plan: Planned) -> dict[str, Any]:
    found = feasibility_facts(plan)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("method", "changed", "named"),
    [
        ({"name": "moments", "analyses": [OLS]}, {}, []),
        ({"name": "moments", "analyses": [OLS]}, {"visits": COLUMNS["visits"] | {"typical": None}},
         ["visits"]),
        (ONE_STEP, {"visits": COLUMNS["visits"] | {"typical": None}, "died": {"type": "binary"}},
         ["visits", "died"]),
        (LOGISTIC, {"visits": COLUMNS["visits"] | {"typical": None}}, []),  # not by moments
    ],
)  # fmt: skip
def test_columns_whose_typical_range_moments_lacks_are_named(
    method: dict[str, Any], changed: dict[str, Any], named: list[str]
) -> None:
    """No regression here uses them."""
    found = compared(planned(method, columns=COLUMNS | changed))
    assert found is not None
    assert [name for name in COLUMNS if f"`{name}`" in found["hint"]] == named


def test_a_verdict_is_by_the_figures_that_are_shown() -> None:
    for error, verdict in ((0.1649, "green"), (0.1651, "amber")):
        found = RelativeError(error, 0.0, 0.1551, None)
        assert found.verdict.value == verdict, error


@pytest.mark.parametrize(("worst", "kept"), [(0.14, True), (0.16, False)])
@pytest.mark.parametrize("guess", ["if_narrow", "if_wide"])
def test_a_job_is_kept_unless_wrong_guesses_cost_it_1_5_times_as_much(
    worst: float, kept: bool, guess: str
) -> None:
    """Both ways have the same error and intervals; the other one has .1 whatever the guesses."""
    own = planned(ONE_STEP)
    ways = mechanisms._ways(own, own.facts.asked)
    ways = [ways[0], next(way for way in ways if way.kind[0] == "moments")]
    errors = [RelativeError(0.1, 0.01, 0.05, 1.2)] * 2
    rows = [mechanisms._row(way, 1, errors[0], 0.1, 0.1) for way in ways]
    rows[0][guess] = worst
    verdict = mechanisms._verdict(ways, errors, rows)
    assert verdict["best"] == (0 if kept else 1)


def test_the_verdict_is_that_of_the_table() -> None:
    plan = planned({"name": "moments", "analyses": [OLS]}, privacy={"epsilon": 4.0})
    table, judged = compared(plan), prospect_of(plan)
    assert table is not None and table["rows"][0]["verdict"] == judged["verdict"]
