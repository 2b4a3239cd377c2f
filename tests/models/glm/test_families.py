"""Every family of regressions: what its functions are, its bounds, and fits against statsmodels."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.methods.all_methods import SITES, job, planned_of, play, played, records
from support.methods.regressions import REGRESSIONS

from secagg.audits.attacks.records.released_regression import fitted, released_regressions
from secagg.contracts import (
    MAX_PREDICTOR,
    Family,
    Outcome,
    OutcomeRange,
    PublicFacts,
    TermBounds,
    Variable,
)
from secagg.core.arrays import Array
from secagg.core.randomness import system_random
from secagg.errors import DataError, JobError, PeerError, UsageError
from secagg.jobs.job import parse_job
from secagg.jobs.registry import METHODS, make_method
from secagg.models.common.coefficient_table import Term
from secagg.models.common.pooled_moments import CONSTANT_COLUMN_ADVICE
from secagg.models.glm.fit_summary import NO_DEVIATIONS_NOTE, caution
from secagg.models.glm.newton import check_predictors, record_weights, term_sums
from secagg.models.glm.newton_regression import NewtonRegression
from secagg.privacy.policy.answered_weights import effective_records
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job

RANGE = OutcomeRange(records=3000, low=0.25, high=60.0, offset=2.0)


def method_of(name: str) -> NewtonRegression:
    return cast(NewtonRegression, planned_of(name).method)


@pytest.fixture(params=sorted(REGRESSIONS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def family(name: str) -> Family:
    return method_of(name).family


def outcomes(family: Family, size: int, rng: np.random.Generator) -> Array:
    """Return outcomes within `RANGE`."""
    if family.outcome is Outcome.BINARY:
        return (rng.random(size) < 0.5).astype(np.float64)
    y = rng.uniform(RANGE.low, RANGE.high, size)
    return np.floor(y) if family.outcome is Outcome.COUNT else y


def pooled(name: str) -> tuple[pd.DataFrame, Array, Array | None]:
    """Return all records of the contract's case, with its design and its log exposure."""
    table = pd.concat([records(i, 40 + i) for i in range(len(SITES))], ignore_index=True)
    exposure = method_of(name).exposure_column()
    X = sm.add_constant(table[list(method_of(name).predictors)]).to_numpy()
    return table, X, None if exposure is None else np.log(table[exposure]).to_numpy()


def test_every_newton_regression_has_a_case() -> None:
    made = {
        name: make_method(planned_of(name).job.method)
        for name, (module, _) in METHODS.items()
        if module.startswith("secagg.models.glm.")
    }
    assert {n for n, each in made.items() if isinstance(each, NewtonRegression)} == set(REGRESSIONS)


def test_score_and_weight_are_the_derivatives_of_the_log_likelihood(family: Family) -> None:
    rng, step = np.random.default_rng(0), 1e-3
    y, eta = outcomes(family, 500, rng), rng.uniform(-3, 3, 500)
    up, middle, down = (family.log_likelihood(y, eta + s) for s in (step, 0.0, -step))
    score = family.score(y, eta)
    np.testing.assert_allclose(score, (up - down) / (2 * step), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(family.score_sizes(y, eta), np.abs(score), rtol=1e-12)
    curvature = -(up - 2 * middle + down) / step**2
    if not family.dispersed:  # the link is canonical: observed and expected weights are equal
        np.testing.assert_allclose(family.weight(eta), curvature, rtol=1e-4, atol=1e-5)
    at_mean = family.score(family.mean(eta), eta)
    np.testing.assert_allclose(at_mean, 0.0, atol=1e-12)


eta_values = st.one_of(st.sampled_from([0.0, 800.0, -800.0, 1e299]), st.floats(-120, 120))


@settings(deadline=None, max_examples=60)
@given(data=st.data(), n=st.integers(1, 30), p=st.integers(1, 3))
@pytest.mark.parametrize("name", sorted(REGRESSIONS))
def test_the_public_bounds_hold_to_the_last_bit(
    name: str, data: st.DataObject, n: int, p: int
) -> None:
    family = method_of(name).family
    assert family.bounds is not None
    bounds = family.bounds(RANGE)
    X = data.draw(arrays(float, (n, p), elements=st.floats(-1, 1)))
    X[:, 0] = 1.0
    y = outcomes(family, n, np.random.default_rng(data.draw(st.integers(0, 9))))
    beta = data.draw(arrays(float, p, elements=eta_values))
    with np.errstate(over="ignore", invalid="ignore"):
        log_likelihood, gradient, hessian = term_sums(family, bounds, X, y, beta)
    small = np.abs(X @ beta) <= MAX_PREDICTOR  # a site refuses all others
    if small.all():
        assert abs(log_likelihood) <= bounds.log_likelihood * n
        assert np.all(np.abs(gradient) <= bounds.score * n)
        assert np.all(np.abs(hessian) <= bounds.weight * n)
    for each in (bounds.log_likelihood, bounds.score, bounds.weight):
        assert np.frexp(each)[0] == 0.5  # a power of two
    assert np.frexp(np.sqrt(bounds.weight))[0] == 0.5


def test_a_family_with_wrong_bounds_exceeds_none_of_them(family: Family) -> None:
    rng, bounds = (
        np.random.default_rng(4),
        TermBounds(log_likelihood=0.5, score=0.25, weight=1 / 16),
    )
    X = np.column_stack([np.ones(40), rng.uniform(-1, 1, 40)])
    log_likelihood, gradient, hessian = term_sums(
        family, bounds, X, outcomes(family, 40, rng), np.array([1.0, 1.0])
    )
    assert abs(log_likelihood) <= 20 and np.all(np.abs(gradient) <= 10)
    assert np.all(np.abs(hessian) <= 2.5)


def test_a_fit_equals_the_pooled_fit_of_statsmodels(name: str) -> None:
    method = method_of(name)
    table, X, offset = pooled(name)
    model = sm.GLM(
        table[method.outcome].to_numpy(), X, family=REGRESSIONS[name].oracle(sm), offset=offset
    )
    oracle = model.fit(tol=1e-13, maxiter=200)
    result = played(name).result
    summary, family = result.summary, method.family
    assert summary["converged"] and summary["n"] == len(table)
    np.testing.assert_allclose(result.arrays["coefficients"], oracle.params, atol=1e-8)
    unit = oracle.cov_params() / oracle.scale
    dispersion = summary.get("dispersion", 1.0)
    np.testing.assert_allclose(result.arrays["covariance"], dispersion * unit, rtol=1e-6)
    if family.dispersed:
        assert summary["deviance"] == pytest.approx(oracle.deviance, rel=1e-8)
        assert summary["null_deviance"] == pytest.approx(oracle.null_deviance, rel=1e-8)
        assert dispersion == pytest.approx(oracle.deviance / oracle.df_resid, rel=1e-8)
    else:
        assert summary["log_likelihood"] == pytest.approx(oracle.llf, abs=1e-8)
        assert summary["null_log_likelihood"] == pytest.approx(oracle.llnull, abs=1e-6)
        assert summary["events"] == table[method.outcome].sum()
        p_values = [term["p_value"] for term in summary["terms"]]
        np.testing.assert_allclose(p_values, oracle.pvalues, atol=1e-8)
    low, high = oracle.conf_int().T
    if not family.dispersed and family.effect:
        for part, expected in (("ratio", oracle.params), ("low", low), ("high", high)):
            found = [term[f"{family.effect}_{part}"] for term in summary["terms"]]
            np.testing.assert_allclose(found, np.exp(expected), rtol=1e-6)


def test_an_audit_reads_back_the_released_regression(name: str) -> None:
    """Its linear predictor and estimate are those of the pooled records."""
    play_, planned = played(name), planned_of(name)
    view = type("View", (), {"planned": planned, "result": play_.result})
    (released,) = released_regressions(cast(Any, view))
    values = np.concatenate([rows.values for rows in play_.rows])
    _, X, offset = pooled(name)
    eta = X @ play_.result.arrays["coefficients"] + (0.0 if offset is None else offset)
    assert released.intercept is not None
    np.testing.assert_allclose(released.linear(values) + released.intercept, eta, atol=1e-7)
    again, _ = fitted(
        released.design(values), released.outcomes(values), released.family, released.offset(values)
    )
    np.testing.assert_allclose(again, [released.intercept, *released.slopes], rtol=0.01)


@pytest.mark.parametrize("trial", [np.array([101.0, 0.0]), np.array([0.0, -600.0])])
def test_a_site_refuses_coefficients_that_no_fit_has(name: str, trial: Array) -> None:
    play_ = played(name)
    with pytest.raises(PeerError) as refused:
        play_.method.contribute(
            "newton", play_.rows[0], {"trial": trial}, {}, play_.public, system_random
        )
    assert refused.value.where == "coefficients"


def test_weights_are_those_of_the_hessian_and_the_gradient(family: Family) -> None:
    rng = np.random.default_rng(3)
    assert family.bounds is not None
    X = np.column_stack([np.ones(50), rng.uniform(-1, 1, 50)])
    y, beta, bounds = outcomes(family, 50, rng), np.array([0.3, 0.8]), family.bounds(RANGE)
    offset = rng.uniform(-1, 1, 50)
    of_hessian, of_gradient = record_weights(family, bounds, X, y, beta, offset)
    *_, hessian = term_sums(family, bounds, X, y, beta, offset)
    np.testing.assert_allclose((of_hessian[:, None] * X).T @ X, hessian, rtol=1e-12)
    alone = [
        abs(term_sums(family, bounds, X[[i]], y[[i]], beta, offset[[i]])[1][0]) for i in range(50)
    ]
    np.testing.assert_allclose(of_gradient, alone, rtol=1e-9)


# --- counts and exposures ------------------------------------------------------------------------

POISSON = {"outcome": "count", "predictors": ["x"]}
TABLES = {site: records(i, 40 + i) for i, site in enumerate(SITES)}


def poisson(
    tables: dict[str, pd.DataFrame] = TABLES, high: int = 60, **method: Any
) -> dict[str, Any]:
    asked = job("poisson")
    asked["columns"] |= {"extra": {"type": "binary"}, "count": {"type": "count", "high": high}}
    asked["method"] = {"name": "poisson", **POISSON, **method}
    filled = {site: table.assign(**{"extra": 0, **table}) for site, table in tables.items()}
    planned = plan_job(parse_job(asked), filled)
    rows = [read_records(planned, planned.sources[site]) for site in SITES]
    return dict(play(planned, rows).result.summary)


def with_counts(counts: Any) -> dict[str, pd.DataFrame]:
    return {site: table.assign(count=counts(table)) for site, table in TABLES.items()}


def test_a_level_without_events_is_named_as_separating() -> None:
    half = {
        site: table.assign(extra=np.arange(len(table)) % 2, count=table["count"])
        for site, table in TABLES.items()
    }
    for table in half.values():
        table.loc[table.extra == 1, "count"] = 0
    summary = poisson(half, predictors=["x", "extra"])
    assert summary["status"] == "separated" and summary["notes"][0].endswith("by extra.")


def test_one_huge_count_among_zeros_is_not_a_constant_predictor() -> None:
    """It has all the weight, so nothing else counts; but the predictor varies."""
    half = {site: table.assign(extra=np.arange(len(table)) % 2) for site, table in TABLES.items()}
    for table in half.values():
        table["count"] = 0
    half[SITES[0]].loc[0, "count"] = 10**9
    with pytest.raises(UsageError) as caught:
        poisson(half, high=10**9, predictors=["x", "extra"])
    assert caught.value.advice not in ("", CONSTANT_COLUMN_ADVICE)
    assert "does not vary" not in caught.value.what


def test_counts_that_are_all_zero_have_no_estimate() -> None:
    summary = poisson(with_counts(lambda table: 0))
    assert (summary["status"], summary["events"]) == ("separated", 0)
    early = poisson(max_rounds=1)
    assert (early["status"], early["rounds"]) == ("out of rounds", 1)


def test_very_uneven_counts_converge() -> None:
    """A whole step from the mean would give one record a mean of e^120, which sites refuse."""
    tables = with_counts(lambda table: (np.arange(len(table)) == 1) * 1)
    tables["north"]["extra"] = (np.arange(len(tables["north"])) == 0) * 1
    tables["north"].loc[0, "count"] = 60
    summary = poisson(tables, predictors=["extra"])
    assert summary["converged"] and summary["events"] == 63
    assert summary["terms"][1]["rate_ratio"] == pytest.approx(60 * 122 / 3, rel=1e-6)
    steep = poisson(with_counts(lambda table: np.clip(np.rint(np.exp(2 * table.x)), 0, 60)))
    assert steep["converged"] and steep["rounds"] < 20


def test_weights_of_a_dishonest_trial_are_those_of_few_records() -> None:
    play_ = played("poisson")
    method = cast(NewtonRegression, play_.method)
    honest, chosen = (
        min(
            effective_records(each)
            for each in method.record_weights(play_.rows[0], {"trial": trial}, play_.public)
        )
        for trial in (play_.rounds[-1].message["trial"], np.array([0.0, 60.0]))
    )
    assert honest > 11 and chosen < 3


def test_exposures_on_both_scales_give_the_same_rates() -> None:
    asked = job("poisson")
    asked["columns"]["time"] |= {"transform": "log"}
    planned = plan_job(parse_job(asked), TABLES)
    rows = [read_records(planned, planned.sources[site]) for site in SITES]
    logged, plain = play(planned, rows).result, played("poisson").result
    for key in ("coefficients", "covariance"):
        np.testing.assert_allclose(logged.arrays[key], plain.arrays[key], rtol=1e-9)
    assert "per_sd" in plain.summary["terms"][1]
    assert plain.summary["terms"][1]["per_sd"] is None  # the first Hessian has weights
    assert plain.summary["notes"][-1] == NO_DEVIATIONS_NOTE
    unexposed, levels = poisson(), poisson(exposure="time", predictors=["case"])
    assert unexposed["terms"][1]["per_sd"] is not None
    for summary in (unexposed, levels):  # a level never has a standard deviation
        assert NO_DEVIATIONS_NOTE not in summary["notes"]


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"exposure": "z"}, "method.exposure"),  # from -6
        ({"exposure": "case"}, "method.exposure"),
        ({"exposure": "count"}, "method.exposure"),
        ({"exposure": "nothing"}, "method.exposure"),
        ({"outcome": "case"}, "method.outcome"),
        ({"outcome": "z"}, "method.outcome"),
    ],
)
def test_unsuitable_settings_are_refused(changed: dict[str, Any], where: str) -> None:
    with pytest.raises(JobError) as refused:
        poisson(**changed)
    assert refused.value.where == where


def public(low: float, high: float, largest: float = 60.0, rows: int = 100) -> PublicFacts:
    middle, half = (low + high) / 2, (high - low) / 2
    variables = (
        Variable("x", "x", 0.0, 1.0),
        Variable("count", "count", largest / 2, largest / 2, count=True),
        Variable("time", "time", middle, half),
    )
    return PublicFacts(variables, tuple(v.name for v in variables), rows, SITES)


def test_the_smallest_null_weight_is_that_of_the_smallest_exposure() -> None:
    """It decides when an estimate is said to diverge: `diverging`."""
    method = cast(NewtonRegression, planned_of("poisson").method)
    state = method.initial_state(public(1.0, 9.0))
    assert state["null_weight"] == pytest.approx(1 / 3)
    assert (
        planned_of("logistic").method.initial_state(played("logistic").public)["null_weight"]
        == 0.25
    )


def test_bounds_grow_with_records_counts_and_exposures() -> None:
    method = cast(NewtonRegression, planned_of("poisson").method)
    bounds = method.bounds(public(1.0, 2.0))
    assert 8192 * 300 * 60 <= bounds.score < 4 * 8192 * 300 * 60
    assert method.bounds(public(1.0, 2.0, rows=1600)).score > bounds.score
    assert method.bounds(public(1.0, 2.0, largest=960.0)).score > bounds.score
    assert method.bounds(public(1e-4, 1e4)).score >= 1e4  # a factor of 10^8 is allowed
    with pytest.raises(JobError) as refused:
        method.bounds(public(1e-5, 1e4))
    assert refused.value.where == "method.exposure"
    with pytest.raises(JobError) as refused:
        method.bounds(public(1.0, 2.0, largest=1e9, rows=10**9))
    assert refused.value.where == "sites.max_rows"


@pytest.mark.parametrize("cell", [-1, 2.5, "many", float("inf")])
def test_a_cell_that_is_no_count_is_an_error(cell: Any) -> None:
    tables = with_counts(lambda table: table["count"].astype(object))
    tables["north"].loc[7, "count"] = cell
    with pytest.raises(DataError) as refused:
        poisson(tables)
    assert "count" in refused.value.where and "8" in refused.value.where


def test_counts_above_the_bound_are_set_to_it_and_missing_ones_left_out() -> None:
    tables = with_counts(lambda table: table["count"].astype(object))
    tables["north"].loc[[3, 4], "count"] = [1000, ""]
    summary = poisson(tables)
    expected = pd.concat([table["count"] for table in TABLES.values()]).sum()
    lost = TABLES["north"].loc[[3, 4], "count"].sum()
    assert summary["events"] == expected - lost + 60
    assert summary["n"] == sum(map(len, TABLES.values())) - 1


def test_counts_are_whole_numbers() -> None:
    family = method_of("poisson").family
    assert family.bounds is not None
    with pytest.raises(DataError):
        term_sums(family, family.bounds(RANGE), np.ones((1, 1)), np.array([0.5]), np.zeros(1))


def test_a_note_is_about_the_outcome_that_the_family_has() -> None:
    binary, counts = (
        " ".join(played(name).result.summary["notes"]) for name in ("logistic", "poisson")
    )
    assert "0/1 outcome" in binary and "0/1 outcome" not in counts
    assert "variance" in counts  # what its standard errors assume


@pytest.mark.parametrize("eta", [-3.1, 2.1, math.nan, -101.0])
def test_a_site_refuses_predictors_at_which_terms_are_clipped(eta: float) -> None:
    bounds = TermBounds(log_likelihood=1.0, score=1.0, weight=1.0, predictor=2.0)
    check_predictors(np.array([-3.1, 2.0]), bounds)
    with pytest.raises(PeerError):
        check_predictors(np.array([0.0, eta]), replace(bounds, least_predictor=-3.0))


def test_a_caution_speaks_of_separation_only_where_outcomes_can_be_separated(
    family: Family,
) -> None:
    term = cast(Term, SimpleNamespace(term="dose", per_sd=SimpleNamespace(estimate=6.0)))
    separable = caution("converged", [term], family)["caution"]
    measured = caution("converged", [term], replace(family, outcome=Outcome.NUMBER))["caution"]
    assert "dose" in separable and "separated" in separable and "likelihood ratio" in separable
    assert "dose" in measured and "separated" not in measured and "likelihood" not in measured
