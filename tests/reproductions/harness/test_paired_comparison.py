"""Verdicts on what a paper says: against scipy's t tests, and against hand computation."""

import numpy as np
import pytest
from scipy import stats

from reproductions.harness.figures import Comparison, Entries, Entry, Place, PublishedValue
from reproductions.harness.paired_comparison import (
    LEVEL,
    MIN_RUNS,
    Verdict,
    check,
    compare,
    interval,
)

A, B = Place("panel", 2, "a"), Place("panel", 2, "b")
A_BELOW_B = Comparison("shd", A, B)


def entry(values: list[float] | dict[int, float]) -> Entry:
    given = values if isinstance(values, dict) else dict(enumerate(values))
    return Entry({"shd": given, "converged": dict.fromkeys(given, 1.0)}, {}, 0)


def between(differences: list[float]) -> Entries:
    """Return entries whose difference b - a is this, seed by seed."""
    return {A: entry([float(5 * i) for i in range(len(differences))]),
            B: entry([5 * i + d for i, d in enumerate(differences)])}  # fmt: skip


@pytest.mark.parametrize("n", [2, 6, 30])
def test_intervals_agree_with_the_paired_t_test(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((2, n))
    expected = stats.ttest_rel(b, a).confidence_interval(LEVEL)
    found = compare({A: entry(a.tolist()), B: entry(b.tolist())}, A_BELOW_B).interval
    assert found is not None and found.mean == pytest.approx((b - a).mean(), rel=1e-12)
    # Differences of order one and a t quantile that both take from the same library, to some digits
    # of it: far below what would change a verdict.
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_an_unpaired_interval_agrees_with_a_hand_calculation() -> None:
    """1, 2, 6: s = root 7; t of 2 degrees at 0.975 is 4.302653 (tables); root(7 (1/3 + 1/6))."""
    found = interval([1.0, 2.0, 6.0], 6)
    assert found is not None
    assert (found.mean, found.high - found.mean) == pytest.approx(
        (3, 4.302653 * 3.5**0.5), rel=1e-6
    )
    assert interval([1.0]) is None and interval([]) is None


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        ([1.0] * MIN_RUNS, Verdict.AS_STATED),  # no spread at all
        ([1.0, 2.0, 3.0, 1.0, 2.0, 3.0], Verdict.AS_STATED),  # 2 with standard error 0.37, t = 2.57
        ([0.0, 1.0, 4.0, 0.0, 1.0, -1.0], Verdict.UNDECIDED),  # 0.83 with 0.70
        ([0.0, 0.0, 1.0, 1.0, 2.0, 3.0], Verdict.UNDECIDED),  # 1.17 with 0.48: 2.4 of them
        ([0.0] * MIN_RUNS, Verdict.NOT_AS_STATED),
        ([0.5, -1.0, 0.0, 0.5, -1.0, 0.0], Verdict.UNDECIDED),
        ([-1.0, -2.0, -3.0, -1.0, -2.0, -3.0], Verdict.NOT_AS_STATED),
        ([1.0] * (MIN_RUNS - 1), Verdict.UNDECIDED),  # too few runs, whatever they say
        ([-1.0] * (MIN_RUNS - 1), Verdict.UNDECIDED),
        ([1.0], Verdict.UNDECIDED),
    ],
)
def test_each_verdict_is_given_for_its_interval(difference: list[float], verdict: Verdict) -> None:
    found = compare(between(difference), A_BELOW_B)
    assert (found.verdict, found.runs) == (verdict, len(difference))


def test_only_runs_of_both_methods_are_compared() -> None:
    """b - a at seeds 1 and 2: 2 and 4. t of 1 degree at 0.975 is 12.706205 (tables)."""
    entries = {A: entry({0: 9.0, 1: 1.0, 2: 2.0}), B: entry({1: 3.0, 2: 6.0, 3: 0.0})}
    found = compare(entries, A_BELOW_B)
    assert found.runs == 2 and found.interval is not None
    low, high = 3 - 12.706205, 3 + 12.706205  # s / root 2 = 1
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high), rel=1e-6)


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ([5.0, 7.0], Verdict.AS_STATED),
        ([1.0, 1.0], Verdict.NOT_AS_STATED),
        ([3.0, 1.0], Verdict.UNDECIDED),
    ],
)
def test_growth_of_a_difference_is_tested_by_a_paired_t_test(
    after: list[float], verdict: Verdict
) -> None:
    """Against scipy's paired t test of the two differences, of which the first is 1, 2, 1, 2..."""
    rng = np.random.default_rng(1)
    n, before, after = 30, [1.0, 2.0] * 15, after * 15
    C, D = Place("panel", 4, "a"), Place("panel", 4, "b")
    a, c = rng.standard_normal((2, n))
    entries = {
        A: entry(a.tolist()),
        B: entry((a + before).tolist()),
        C: entry(c.tolist()),
        # A run more, which has nothing to be compared with.
        D: entry([*(c + after).tolist(), 100.0]),
    }
    grows = Comparison("shd", C, D, by_more_than=A_BELOW_B)
    found = compare(entries, grows)
    expected = stats.ttest_rel(after, before).confidence_interval(LEVEL)
    assert (found.verdict, found.runs) == (verdict, n) and found.interval is not None
    # As above.
    ends = found.interval.low, found.interval.high
    assert ends == pytest.approx((expected.low, expected.high), rel=1e-9)
    without = {place: entry for place, entry in entries.items() if place != A}
    found = compare(without, grows)
    assert (found.verdict, found.runs, found.absent) == (Verdict.NOT_RUN, 0, (A,))


@pytest.mark.parametrize("absent", [None, Entry({"converged": {}}, {0: "It failed"}, 0)])
def test_omitted_and_failed_methods_are_not_judged(absent: Entry | None) -> None:
    entries = {A: entry([1.0] * 30)} | ({} if absent is None else {B: absent})
    found = compare(entries, A_BELOW_B)
    assert (found.verdict, found.runs, found.interval) == (Verdict.NOT_RUN, 0, None)
    assert found.absent == (B,)
    assert check(entries, PublishedValue("shd", B, 1.0, 30, 1)).verdict is Verdict.NOT_RUN


def test_a_quantity_missing_in_all_runs_gives_no_verdict() -> None:
    """As the FDR of graphs without edges: the method ran."""
    entries = {A: entry([1.0] * 30), B: entry([1.0] * 30)}
    found = compare(entries, Comparison("fdr", A, B))
    assert (found.verdict, found.runs, found.absent) == (Verdict.UNDECIDED, 0, ())


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (1.5, Verdict.AS_STATED),
        (2.35, Verdict.AS_STATED),
        (2.36, Verdict.NOT_AS_STATED),
        (-0.3, Verdict.NOT_AS_STATED),
    ],
)
def test_a_published_number_is_compared_within_its_rounding(value: float, verdict: Verdict) -> None:
    """0 and 3 fifteen times each: s = 1.526; 1.5 +- 2.045 s root(2/30) = 1.5 +- 0.806.

    A number printed to one decimal may be 0.05 from what it stands for: up to 2.356 is expected.
    """
    found = check({A: entry([0.0, 3.0] * 15)}, PublishedValue("shd", A, value, 30, 1))
    assert found.verdict is verdict
    s = 1.5 * (30 / 29) ** 0.5
    half = 2.045230 * s * (2 / 30) ** 0.5 + 0.05  # t of 29 degrees at 0.975, tables; rounding
    assert found.interval is not None
    ends = found.interval.low, found.interval.high
    assert ends == pytest.approx((1.5 - half, 1.5 + half), rel=1e-6)


def test_few_runs_give_no_verdict_on_a_published_number() -> None:
    found = check({A: entry([0.0] * (MIN_RUNS - 1))}, PublishedValue("shd", A, 5.0, 30, 1))
    assert (found.verdict, found.runs) == (Verdict.UNDECIDED, MIN_RUNS - 1)
