"""Means, paired differences and the recommendation, against scipy and published tables."""

import math

import numpy as np
import pytest
from scipy import stats

from secagg.experiments.statistics import (
    Mean,
    PointResult,
    fewest_runs,
    paired_difference,
    recommendation,
    tolerance_factor,
    upper_limit,
)
from secagg.experiments.sweep import Goal


def result(values: list[float], failed: int = 0) -> PointResult:
    found = dict(enumerate(values))
    return PointResult({"error": found}, {100 + i: "why" for i in range(failed)}, 0, {})


def test_the_interval_of_a_mean_is_students() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    mean = Mean.of(values)
    assert (mean.value, mean.low, mean.high, mean.runs) == pytest.approx((3.75, low, high, 4))
    assert math.isnan(Mean.of([1.0]).low)


def test_differences_are_paired_by_seed() -> None:
    one, other = result([1.0, 5.0, 9.0]), PointResult({"error": {1: 4.0, 2: 7.0}}, {}, 0, {})
    found = paired_difference(one, other, "error")
    assert found is not None and (found.value, found.runs) == (1.5, 2)
    assert paired_difference(one, other, "shd") is None


@pytest.mark.parametrize(
    # Odeh and Owen, Tables for Normal Tolerance Limits (1980), confidence 0.90, coverage 0.90
    ("n", "k"), [(5, 2.742), (10, 2.066), (20, 1.765), (50, 1.559)],
)  # fmt: skip
def test_tolerance_factors_are_those_of_published_tables(n: int, k: float) -> None:
    assert tolerance_factor(n, 0.9) == pytest.approx(k, abs=1.5e-3)


def test_a_limit_of_zeros_and_ties_holds_for_any_distribution() -> None:
    assert upper_limit([0.0] * 21, 0.9) == upper_limit([2.0, 2.0], 0.9) == math.inf
    assert upper_limit([0.0] * 22, 0.9) == 0.0
    assert upper_limit([0.0] * 21 + [7.0], 0.9) == 7.0
    values = [float(i // 2) for i in range(50)]  # Bin(50, 0.9) < 49 has probability 0.966
    assert upper_limit(values, 0.9) == sorted(values)[48]
    assert stats.binom.cdf(48, 50, 0.9) >= 0.9 > stats.binom.cdf(47, 50, 0.9)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_value_that_is_no_number_has_no_limit(bad: float) -> None:
    assert upper_limit([0.1, 0.2, bad], 0.9) == math.inf


def test_a_run_without_the_value_does_not_reach_the_goal() -> None:
    point = PointResult({"error": {1: 0.1, 2: 0.11}}, {}, 0, {1: 1.0, 2: 1.0, 3: 1.0})
    assert recommendation("a", {1: point}, goal(5.0)).epsilon is None


def test_other_axes_than_epsilon_have_no_places_between_points() -> None:
    along = curve({0: 1.6, 4: 0.1})
    assert recommendation("a", along, goal(0.5), between=False).epsilon == 4


def goal(below: float) -> Goal:
    return Goal(metric="error", below=below, share=0.9)


def test_a_share_of_which_more_is_better_has_a_lower_limit() -> None:
    along = {x: PointResult({"auc": {1: a, 2: a + 0.01}}, {}, 0, {1: 1.0, 2: 1.0})
             for x, a in ((1, 0.5), (4, 0.9))}  # fmt: skip
    found = recommendation("a", along, Goal(metric="auc", above=0.6, share=0.5))
    losses = [upper_limit([0.1, 0.09], 0.5), upper_limit([0.5, 0.49], 0.5)]
    assert found.limits == pytest.approx({1: 1 - losses[1], 4: 1 - losses[0]})
    assert found.epsilon is not None and 1 < found.epsilon < 4
    nothing = recommendation("a", along, Goal(metric="auc", above=0.95, share=0.5))
    assert nothing.epsilon is None


def test_a_limit_of_equal_values_needs_so_many_runs() -> None:
    for share in (0.5, 0.9, 0.95):
        n = fewest_runs(share)
        assert upper_limit([0.2] * n, share) == 0.2 and upper_limit([0.2] * (n - 1), share) > 1
    assert fewest_runs(0.9) == 22


def test_runs_that_reach_the_goal_are_counted() -> None:
    along = {1: PointResult({"error": {1: 0.1, 2: 0.6}}, {}, 0, {1: 1.0, 2: 1.0})}
    assert recommendation("a", along, goal(0.5)).reached == {1: 1}


def curve(limits: dict[float, float]) -> dict[float, PointResult]:
    """Return points whose tolerance limit is given: two values around it."""
    k, found = tolerance_factor(2, 0.9), {}
    for epsilon, limit in limits.items():
        d = 1e-3  # of the logarithms: mean m, deviation sqrt(2) d
        middle = math.log(limit) - k * math.sqrt(2) * d
        found[epsilon] = result([math.exp(middle - d), math.exp(middle + d)])
    return found


def recommended(limits: dict[float, float], below: float) -> float | None:
    return recommendation("a", curve(limits), goal(below)).epsilon


def test_the_smallest_epsilon_lies_on_a_line_between_two_points_and_is_rounded_up() -> None:
    # log 0.4 is half way between log 1.6 and log 0.1, so epsilon is the geometric mean of 1 and 4
    assert recommended({1: 1.6, 4: 0.1}, 0.4) == pytest.approx(2.0)
    assert recommended({1: 1.6, 4: 0.1}, 0.39) == 2.1
    found = recommendation("a", curve({1: 1.6, 4: 0.1}), goal(0.4))
    assert found.limits == pytest.approx({1: 1.6, 4: 0.1})


def test_no_epsilon_is_recommended_above_a_point_that_misses_the_goal() -> None:
    assert recommended({1: 0.1, 2: 0.9, 4: 0.1}, 0.5) == pytest.approx(2.5, abs=0.1)
    assert recommended({1: 0.9, 2: 0.8, 4: 0.7}, 0.5) is None
    assert recommended({1: 0.1, 2: 0.2}, 0.5) == 1


def test_a_point_with_a_failed_run_does_not_reach_the_goal() -> None:
    along = curve({1: 0.1, 2: 0.1, 4: 0.1})
    along[2] = result([0.1, 0.1], failed=1)
    assert recommendation("a", along, goal(0.5)).epsilon == 4
