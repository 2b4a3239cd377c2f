"""Tests of hypotheses by HM1 and HM2, against regressions of the records by statsmodels."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import f, ttest_1samp
from support.fedlin.written_out import bounds, fedlin_job, linear_tables, simulated

from secagg.contracts import State, Update
from secagg.errors import JobError, UsageError
from secagg.jobs.job import parse_job
from secagg.models.fedlin.base import FedLinModel
from secagg.models.fedlin.hypotheses.f_tests import joint_test_notes, mean_rows
from secagg.sessions.planned_job import plan_job

HM1, HM2 = {"name": "fedlin_hm1", "rounds": 3}, {"name": "fedlin_hm2", "rounds": 4, "draws": 100}
TABLES = linear_tables((12, 30, 9, 15, 2), 2, noise=0.8, spread=0.5)  # the last has no own slopes
TERMS = ("x0", "x1")


def least_squares(tables: dict[str, pd.DataFrame]) -> np.ndarray:
    """Return the slopes of sites whose records determine them."""
    found = []
    for table in tables.values():
        X = np.column_stack([np.ones(len(table)), table[list(TERMS)]])
        if len(X) >= X.shape[1]:
            found.append(np.linalg.lstsq(X, table["y"], rcond=None)[0][1:])
    return np.array(found)


@pytest.mark.parametrize("method", [HM1, HM2, {**HM2, "points": 64}])
def test_tests_are_those_of_the_records(method: dict[str, Any]) -> None:
    from statsmodels.api import OLS  # slow to import

    tables = {name: TABLES[name] for name in list(TABLES)[:4]}
    result, _ = simulated({**method, "tests": True}, bounds(tables), tables)
    found = {row["name"]: row for row in result.summary["tests"]}
    every = pd.concat([table.assign(site=name) for name, table in tables.items()])
    X, own = every[list(TERMS)].to_numpy(), pd.get_dummies(every["site"]).to_numpy(dtype=float)
    whole = OLS(every["y"].to_numpy(), np.column_stack([own, *(own * x[:, None] for x in X.T)]))
    F, p, df = whole.fit().compare_f_test(OLS(whole.endog, np.column_stack([own, X])).fit())
    row = found["sites agree on all coefficients"]
    assert (row["F"], row["p"], row["df"]) == pytest.approx((F, p, df), rel=1e-6)
    b, K = least_squares(tables), 4
    for j, term in enumerate(TERMS):
        nested = np.column_stack([own, X[:, [j]], own * X[:, [1 - j]]])
        F, p, df = whole.fit().compare_f_test(OLS(whole.endog, nested).fit())
        row = found[f"sites agree on {term}"]
        assert (row["F"], row["p"], row["df"]) == pytest.approx((F, p, df), rel=1e-6)
        t, p = ttest_1samp(b[:, j], 0)
        row = found[f"the mean of {term} is 0"]
        assert (row["F"], row["p"], row["df_error"]) == pytest.approx((t**2, p, K - 1), rel=1e-6)
    squared = K * b.mean(axis=0) @ np.linalg.solve(np.cov(b.T), b.mean(axis=0))
    row = found["all means of slopes are 0"]
    statistic = squared * (K - 2) / (2 * (K - 1))
    assert (row["F"], row["p"]) == pytest.approx((statistic, f.sf(statistic, 2, K - 2)), rel=1e-6)
    assert ("points" in result.summary) == ("points" in method)


def test_tests_change_no_other_result_and_leave_out_undetermined_sites() -> None:
    plain, own_plain = simulated(HM1, bounds(TABLES), TABLES)
    tested, own = simulated({**HM1, "tests": True}, bounds(TABLES), TABLES)
    rows = {row["name"]: row for row in tested.summary.pop("tests")}
    joint, *notes = tested.summary.pop("notes")  # four sites: the joint test has little power
    assert "joint test" in joint and notes == plain.summary.pop("notes")
    assert tested.summary == plain.summary
    assert {k: v.summary for k, v in own.items()} == {k: v.summary for k, v in own_plain.items()}
    assert rows["the mean of x0 is 0"]["df_error"] == 3
    t, _ = ttest_1samp(least_squares(TABLES)[:, 0], 0)
    assert rows["the mean of x0 is 0"]["F"] == pytest.approx(t**2, rel=1e-6)


@pytest.mark.parametrize("method", [HM1, HM2, {"name": "fedlin_full", "draws": 100}])
def test_two_sites_that_determine_slopes_show_no_sums_of_these_two(
    method: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the two would know the other's: tests of one slope are left out."""
    tables = linear_tables((12, 30, 2, 2), 2, noise=0.8, spread=0.5)
    tests = {} if method["name"] == "fedlin_full" else {"tests": True}
    sums, aggregate = list[Update](), FedLinModel.aggregate

    def recorded(self: FedLinModel, state: State, total: Update, sites: int) -> State:
        sums.append(total)
        return aggregate(self, state, total, sites)

    monkeypatch.setattr(FedLinModel, "aggregate", recorded)
    result, _ = simulated({**method, **tests}, bounds(tables), tables)
    (total,) = (one for one in sums if "weights" in one)
    for name in {"weights", "weighted", "weighted_squares", "estimates", "products"} & set(total):
        assert not total[name].any()
    (counts,) = (one for one in sums if "varying" in one)
    assert (counts["varying"].tolist(), counts["used"], counts["determined"]) == ([4, 4], 4, 2)
    rows = {row["name"]: row for row in result.summary["tests"]}
    assert rows["sites agree on all coefficients"]["p"] is not None
    assert rows["sites agree on x0"]["p"] is None


@pytest.mark.parametrize("method", [HM1, HM2])
def test_collinear_predictors_cost_one_degree_of_freedom(method: dict[str, Any]) -> None:
    """Without the second, the test that sites agree is the same."""
    tables = {name: table[["x0", "y"]] for name, table in list(TABLES.items())[:4]}
    found = []
    for factors in ((), (300.0,)):
        wider = {n: t.assign(**{f"z{f}": f * t["x0"] for f in factors}) for n, t in tables.items()}
        result, _ = simulated({**method, "tests": True}, bounds(wider), wider)
        row = result.summary["tests"][0]
        found.append((row["F"], row["df"], row["df_error"], row["p"]))
    assert found[0][1] == 3 and found[1] == pytest.approx(found[0], rel=1e-6)


@pytest.mark.parametrize("intercept", ["site", "modelled"])
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("method", [{**HM1, "tests": True}, {"name": "fedlin_full", "draws": 100}])
def test_a_predictor_that_varies_at_fewer_than_three_sites_ends_the_run_before_other_sums(
    method: dict[str, Any], at: int, intercept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entries of X'X and X'y would be those of one or two sites. The other one varies."""
    tables = linear_tables((12, 30, 15, 20), 2, noise=0.8, spread=0.5)
    for table in list(tables.values())[at:]:
        table["x1"] = 0.1
    aggregate, stages = FedLinModel.aggregate, list[str]()

    def recorded(self: FedLinModel, state: State, total: Update, sites: int) -> State:
        stages.append(state["status"])
        return aggregate(self, state, total, sites)

    monkeypatch.setattr(FedLinModel, "aggregate", recorded)
    with pytest.raises(UsageError, match=f"'x1' varies at only {at} of the sites"):
        simulated({**method, "intercept": intercept}, bounds(tables), tables)
    assert stages == ["records"]


@pytest.mark.parametrize(
    ("method", "where"),
    [({**HM1, "variance": "site"}, "method.tests"), ({**HM2, "prior": "ridge"}, "method.tests"),
     (HM1, "sites")],
)  # fmt: skip
def test_jobs_whose_tests_are_not_valid_are_refused(method: dict[str, Any], where: str) -> None:
    tables = dict(list(TABLES.items())[: 2 if where == "sites" else 4])
    with pytest.raises(JobError) as refused:
        plan_job(parse_job(fedlin_job({**method, "tests": True}, bounds(tables))), tables)
    assert refused.value.where == where


@pytest.mark.parametrize(("K", "q"), [(4, 2), (5, 2), (9, 6)])
def test_the_power_that_a_note_states_is_that_of_simulated_tests(K: int, q: int) -> None:
    """Means two standard deviations from 0; 4.5 standard errors of 3000 tests, and rounding."""
    rng, sets, terms = np.random.default_rng([K, q]), 3000, tuple("abcdef"[:q])
    mu = 2 * np.eye(q)[0]
    rejected = 0
    for _ in range(sets):
        b = mu + rng.standard_normal((K, q))
        rejected += mean_rows(terms, K, b.mean(axis=0), np.cov(b.T))[0]["p"] < 0.05
    (note,) = joint_test_notes(("intercept", *terms), K, [])
    (stated,) = [int(word) for word in note.split("rejects in ")[1].split() if word.isdigit()]
    error = 4.5 * (0.25 / sets) ** 0.5 + 0.005
    assert abs(rejected / sets - stated / 100) < error


def test_a_joint_test_without_power_is_left_out_and_a_good_one_needs_no_note() -> None:
    """With one degree of freedom, the critical value is 200."""
    names = [row["name"] for row in mean_rows(("a", "b"), 3, np.ones(2), np.eye(2))]
    assert names == ["the mean of a is 0", "the mean of b is 0"]
    assert len(joint_test_notes(("a", "b"), 3, [])) == 1
    assert joint_test_notes(("a", "b"), 6, []) == [] == joint_test_notes(("intercept", "a"), 3, [])
    rejects, accepts = (
        mean_rows(("a", "b"), 4, 50 * np.ones(2), np.eye(2)),
        mean_rows(("a", "b"), 4, np.ones(2), np.eye(2)),
    )
    assert joint_test_notes(("a", "b"), 4, rejects) == []
    assert len(joint_test_notes(("a", "b"), 4, accepts)) == 1
