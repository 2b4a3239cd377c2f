"""Windows of series under differential privacy: how far one event moves a site's moments."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from support.methods.time_series import time_series

import secagg
from secagg.audits.epsilon.lower_bound import bound_epsilon
from secagg.contracts.noise import SITE_MOMENTS
from secagg.core.randomness import replayable_random, seeded_random
from secagg.errors import CapabilityError, JobError
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.models.common.clipped_moments import CONSTANT, upper_moments
from secagg.privacy.accounting.calibration import Mechanism
from secagg.sessions.planned_job import Planned, plan_job
from secagg.sessions.session_ledgers import query_digest
from secagg.sessions.site_moments import draw_site_moments

SITES = ("a", "b", "c")
NAMES = ("x", "y")
LAGS = ("", "lagged_")  # of the arrays


def columns(lags: int) -> list[str]:
    return [*NAMES, *(f"{name}_{lag}" for lag in range(1, lags + 1) for name in NAMES)]


def windows(series: NDArray[np.float64], lags: int) -> pd.DataFrame:
    """Return the windows of a series, shape (steps, 2); one with a missing event is left out."""
    steps = len(series)
    found = np.hstack([series[lags - lag : steps - lag] for lag in range(lags + 1)])
    return pd.DataFrame(found[~np.isnan(found).any(axis=1)], columns=columns(lags))


def job(lags: int, with_lags: bool = True, **privacy: Any) -> dict[str, Any]:
    given = [[f"{name}_{lag}" for name in NAMES] for lag in range(1, lags + 1)]
    real = {"type": "continuous", "low": -4, "high": 4}
    variant = {"standardise": "common", "lags": given, "variables": NAMES} if with_lags else {}
    return {
        "title": "Windows",
        "sites": {"max_rows": 9000},
        "columns": dict.fromkeys(columns(lags), real),
        "method": {"name": "notears_admm", "rounds": 5, **variant},
        "protocol": {"name": "plain"},
        "release": {"min_sites": 3, "min_records": 2},
        "privacy": {"placement": "site", "epsilon": 4.0, "delta": 1e-6, **privacy},
    }


def planned(lags: int, with_lags: bool = True, **privacy: Any) -> Planned:
    empty = dict.fromkeys(SITES, windows(np.zeros((lags + 2, 2)), lags))
    return plan_job(parse_job(job(lags, with_lags, **privacy)), empty)


def drawn(plan: Planned) -> Mechanism:
    assert plan.private is not None
    return plan.private.mechanisms[SITE_MOMENTS]


def scaled_moments(plan: Planned, series: NDArray[np.float64], lags: int) -> NDArray[np.float64]:
    """Return n and M of a site, divided by the standard deviations of their noise."""
    table = windows(series, lags)
    rows = read_rows(plan.job.columns, table, plan.public, "a").values
    noise = drawn(plan).noise
    sigma = (
        np.sqrt(noise.variance * np.array(noise.weights, dtype=float)) * 2.0**-noise.fraction_bits
    )
    return np.array([len(rows), *upper_moments(rows, CONSTANT)]) / sigma


@pytest.mark.parametrize("lags", [1, 2, 4])
@pytest.mark.parametrize("norm", [0.6, 1.5])
def test_no_event_moves_the_moments_by_more_than_the_noise_allows(lags: int, norm: float) -> None:
    """An event is missing, so that its windows are left out, or has any other values.

    If all events of a series are equal and windows have full norm, the bound is attained.
    """
    plan, rng = planned(lags, record_norm=norm), np.random.default_rng(lags)
    at = 2 * lags + 1
    for trial in range(40):
        series = rng.normal(size=(4 * lags + 3, 2)) * 10.0 ** rng.uniform(-1, 1)
        series = np.repeat(series[:1], len(series), axis=0) if trial % 2 else series
        without, other = series.copy(), series.copy()
        without[at] = np.nan
        other[at] = rng.choice([-1.0, 0.0, 1.0, 4.0], 2) * series[at]
        before, missing, changed = (
            scaled_moments(plan, each, lags) for each in (series, without, other)
        )
        assert np.linalg.norm(before - missing) <= drawn(plan).add * (1 + 1e-12)
        assert np.linalg.norm(before - changed) <= drawn(plan).replace * (1 + 1e-12)
    constant = np.full((4 * lags + 3, 2), 4.0)
    gap = constant.copy()
    gap[at] = np.nan
    moved = np.linalg.norm(scaled_moments(plan, constant, lags) - scaled_moments(plan, gap, lags))
    assert moved == pytest.approx(drawn(plan).add, rel=1e-4)


@pytest.mark.parametrize("lags", [1, 3])
def test_the_unit_is_an_event_or_a_series(lags: int) -> None:
    """The noise for an event is that for a person with as many records as a window has steps."""
    record, event = planned(lags, with_lags=False), planned(lags)
    pinned = {"person": "id", "person_pinned": True}
    series = planned(lags, records_per_person=30, **pinned)
    same = planned(lags, with_lags=False, records_per_person=lags + 1, **pinned)
    units = [each.private.terms.unit for each in (record, event, series) if each.private]
    assert units == ["record", "event", "person"]
    sd = [drawn(each).noise.variance ** 0.5 for each in (record, event, series, same)]
    assert sd == pytest.approx([sd[0] * many for many in (1, lags + 1, 30, lags + 1)], rel=1e-9)


def test_draws_for_events_and_for_records_have_different_keys() -> None:
    """A draw for series serves windows and other methods alike."""

    def key(with_lags: bool, **privacy: Any) -> bytes:
        plan = planned(1, with_lags, **privacy)
        return query_digest(plan.job, plan.facts, plan.private)

    assert key(with_lags=True) != key(with_lags=False)
    person = {"person": "id", "records_per_person": 9}
    assert key(with_lags=True, **person) == key(with_lags=False, **person)


@pytest.mark.parametrize("placement", ["sum", "round"])
def test_noise_in_sums_is_refused(placement: str) -> None:
    with pytest.raises(CapabilityError):
        planned(1, placement=placement)


def test_a_column_that_is_in_no_window_is_refused() -> None:
    """x_2 has the values of x two steps before: an event would be in one more record."""
    raw = job(2)
    raw["method"]["lags"] = raw["method"]["lags"][:1]
    empty = dict.fromkeys(SITES, windows(np.zeros((4, 2)), 2))
    with pytest.raises(JobError) as caught:
        plan_job(parse_job(raw), empty)
    assert caught.value.where == "columns"
    raw["privacy"] |= {"person": "id", "records_per_person": 30}  # a series has all its events
    plan_job(parse_job(raw), empty)


def test_a_whole_job_with_lags_scores_every_edge() -> None:
    made = time_series(2, 1, np.random.default_rng(3), edges=1, lagged_edges=2)
    data = {
        site: pd.DataFrame(made.rows(3000, np.random.default_rng(i)), columns=columns(1))
        for i, site in enumerate(SITES)
    }
    raw = job(1, epsilon=8.0)
    raw["method"] |= {"rounds": 60, "threshold": 0.0}
    result = secagg.run(raw, data, random=replayable_random(1)).result
    errors = np.concatenate([result.arrays[f"{a}weight_error"].reshape(2, 2) for a in LAGS])
    edges = [*result.summary["edges"], *result.summary["lagged_edges"]]
    causes = columns(1)
    assert edges and {e["lag"] for e in result.summary["lagged_edges"]} == {1}
    for edge in edges:
        error = errors[causes.index(edge["from"]), NAMES.index(edge["to"])]
        assert edge["times_noise"] == pytest.approx(abs(edge["weight"]) / error)
    assert result.summary["noise"].keys() >= {"penalty", "lag_penalty", "threshold"}


@pytest.mark.oracle
def test_the_lagged_graph_differs_from_that_without_noise_by_the_noise_alone() -> None:
    """No value is clipped. Slopes move by S^-1 (D e - D b): S covariances, D the noise in them.

    e: of the outcome, b: the slopes. The noise is independent, on the diagonal with twice the
    variance. Tolerance: 5 standard deviations. The inverse of all columns of S is a larger one.
    """
    made = time_series(2, 1, np.random.default_rng(3), edges=1, lagged_edges=2)
    values = [made.rows(9000, np.random.default_rng(i)) for i in range(3)]
    data = {
        site: pd.DataFrame(each, columns=columns(1))
        for site, each in zip(SITES, values, strict=True)
    }
    exact = {**job(1), "privacy": {}}
    exact["method"] = job(1)["method"] | {"rounds": 300}
    noised = {**exact, "privacy": job(1, epsilon=8.0)["privacy"]}
    one, other = (
        secagg.run(raw, data, random=replayable_random(1)).result for raw in (exact, noised)
    )
    noise = drawn(plan_job(parse_job(noised), data)).noise
    of_sum = 3 * noise.variance * noise.weights[2] * 4.0**-noise.fraction_bits
    half = 4.0  # of the bounds
    inverse = np.linalg.inv(np.cov(np.concatenate(values), rowvar=False) / half**2)
    slopes = np.concatenate([one.arrays["weights"], *one.arrays["lagged_weights"]])
    squares = 1 + (slopes**2).sum(axis=0).max()
    error = 5 * np.linalg.norm(inverse, axis=0).max() * np.sqrt(2 * of_sum * squares) / 27000
    assert error < 0.29  # below the smallest effect
    in_force = [other.summary["noise"][name]["in_force"] for name in ("penalty", "lag_penalty")]
    assert in_force == [[0.01, 0.01], [0.01, 0.01]]  # not raised, so it explains no difference
    for name in ("weights", "lagged_weights"):
        assert other.arrays[name] == pytest.approx(one.arrays[name], abs=error)


@pytest.mark.statistical
def test_a_draw_tells_nearly_as_much_of_an_event_as_is_charged_and_not_more() -> None:
    """Of a series whose events are equal, one is missing: between 0.9 and 1 of the claim."""
    plan, constant = planned(1, epsilon=1.0), np.full((9, 2), 4.0)
    gap = constant.copy()
    gap[4] = np.nan

    def released(series: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = read_rows(plan.job.columns, windows(series, 1), plan.public, "a")
        draws = (
            draw_site_moments([rows], plan.public, seeded_random(i.to_bytes(32, "little")))
            for i in range(18_000)
        )
        return np.array([upper_of(each.noisy.matrix) for each in draws])

    assert plan.private is not None
    delta = plan.private.terms.delta
    found = bound_epsilon(released(constant), released(gap), 1.0, delta, 0.01)
    print(f"epsilon 1: at least {found.epsilon_low:.3f}, at most {found.epsilon_high:.3f}")
    assert 0.9 < found.epsilon_low <= 1.0


def upper_of(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = matrix[np.triu_indices(len(matrix))]
    return found
