"""Who took part: areas, rates and their intervals, who is set aside, and tracing within sites."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, binomtest, norm
from sklearn.metrics import roc_auc_score
from support.runs.audited import HALF, job, tables

from secagg.audits.attacks.records.coefficient_tracing import CoefficientTracing, Guess, gains
from secagg.audits.attacks.records.membership import Membership
from secagg.audits.attacks.records.membership_finding import (
    compared,
    membership_finding,
    roc_points,
    width_by_permutation,
)
from secagg.audits.attacks.records.released_regression import Regression, fitted
from secagg.audits.attacks.records.tracing import Released, Tracing, traces
from secagg.audits.audited_run import AuditedRun, in_memory, split
from secagg.audits.contract import Attack, Finding, Truth
from secagg.audits.membership import Sites, area_under_roc, true_positive_rate
from secagg.audits.views import SeenRound, View, Who
from secagg.contracts import SiteRecords, Variable
from secagg.core.arrays import Array
from secagg.jobs.job import read_job
from secagg.jobs.privacy import Privacy
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.moments.method import STAGE

Y = Variable("y", "y", 0.0, 1.0)

# --- areas ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("decimals", [1, 6])
def test_the_area_is_that_of_scikit_learn_also_with_ties(decimals: int) -> None:
    rng = np.random.default_rng(3)
    members, others = rng.normal(0.5, 1, 40).round(decimals), rng.normal(0, 1, 25).round(decimals)
    labels = np.repeat([1, 0], [40, 25])
    expected = roc_auc_score(labels, np.concatenate([members, others]))
    assert area_under_roc(members, others).value == pytest.approx(expected)


def test_the_interval_covers_the_truth() -> None:
    """In 95 % of 400 data sets; the Monte Carlo error is 1.1 %."""
    rng, truth = np.random.default_rng(4), norm.cdf(1 / np.sqrt(2))
    inside = 0
    for _ in range(400):
        _, low, high = area_under_roc(rng.normal(1, 1, 60), rng.normal(0, 1, 50))
        inside += low <= truth <= high
    assert abs(inside / 400 - 0.95) < 4 * 0.011


def test_members_are_compared_with_others_of_their_site() -> None:
    rng = np.random.default_rng(6)
    sites = Sites(np.repeat(["a", "b", "c"], [30, 10, 7]), np.repeat(["a", "b", "d"], [5, 20, 4]))
    members = rng.normal(0, 1, 47) + 9 * (sites.members == "a")
    others = rng.normal(0, 1, 29) + 9 * (sites.others == "a")
    found, parts = area_under_roc(members, others, sites), list[tuple[float, float]]()
    for site, m, n in (("a", 30, 5), ("b", 10, 20)):
        own = members[sites.members == site], others[sites.others == site]
        area = roc_auc_score(np.repeat([1, 0], [m, n]), np.concatenate(own))
        parts.append((area, m * n / (m + n + 1)))
    areas, weights = np.transpose(parts)
    assert found.value == pytest.approx(np.average(areas, weights=weights))
    assert area_under_roc(members, others).value > found.value + 0.15
    apart = Sites(np.full(47, "a"), np.full(29, "b"))
    assert np.isnan(area_under_roc(members, others, apart).value)


@pytest.mark.statistical
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_interval_covers_the_truth_over_small_sites(shift: float) -> None:
    """Of 4 records, one of them an other, or of 20; the mix of sites differs."""
    rng, truth, inside = np.random.default_rng(6), norm.cdf(shift / np.sqrt(2)), list[bool]()
    names = np.arange(60).astype(str)
    sites = Sites(
        np.repeat(names, np.where(np.arange(60) < 40, 3, 10)),
        np.repeat(names, np.where(np.arange(60) < 40, 1, 10)),
    )
    for _ in range(200):
        level = dict(zip(names, 5 * rng.normal(size=60), strict=True))
        own, other = (np.array([level[s] for s in each]) for each in sites)
        members = own + rng.normal(shift, 1, len(own))
        found = area_under_roc(members, other + rng.normal(0, 1, len(other)), sites)
        inside.append(found.low <= truth <= found.high)
    assert np.mean(inside) > 0.95 - 3 * 0.016


def test_the_points_of_a_curve_agree_with_its_area() -> None:
    rng = np.random.default_rng(3)
    own, others = rng.normal(1, 1, 500), rng.normal(0, 1, 400)
    points = np.array(roc_points(own, others))
    assert len(points) <= 100 and points[-1].tolist() == [1.0, 1.0]
    area = np.trapezoid(points[:, 1], points[:, 0])
    assert area == pytest.approx(area_under_roc(own, others).value, abs=0.01)


def test_who_took_part_is_drawn_anew_within_sites() -> None:
    labels = Sites(np.repeat(["a", "b"], [30, 2]), np.repeat(["a", "b"], [3, 12]))
    records = [np.column_stack([np.arange(len(each)), each == "a"]) for each in labels]
    seen = list[bool]()

    def areas(own: Array, others: Array) -> Array:
        seen.extend([
            np.array_equal(own[:, 1], labels.members == "a"),
            np.array_equal(others[:, 1], labels.others == "a"),
            not np.array_equal(own[:, 0], np.arange(32)),
        ])  # fmt: skip
        return np.array([0.5])

    width_by_permutation(areas, *records, np.random.default_rng(0), labels)
    assert len(seen) > 100 and all(seen)


# --- rates ----------------------------------------------------------------------------------------


def test_the_rate_is_that_above_the_threshold() -> None:
    others, members = np.arange(100.0), np.array([98.5, 98.0, 99.5, 10.0, 97.5])
    rate = true_positive_rate(members, others, 0.01)  # one other, 99, may be above 98
    assert rate.value == 2 / 5
    assert rate.low == 0.0  # even the largest other may be exceeded by more than 1 % of the others
    assert true_positive_rate(members[3:4], others, 0.01)[:2] == (0.0, 0.0)
    assert true_positive_rate(members[2:3], others, 0.01).high == 1.0
    assert true_positive_rate(members, others[:20], 0.99).high == 1.0  # nor the smallest by 99 %


def test_the_ends_are_those_at_the_limits_of_the_threshold() -> None:
    """By Clopper and Pearson, of the false positives of order statistics and of the members."""
    rng, n, share, error = np.random.default_rng(7), 1000, 0.05, 0.0125
    members, others = rng.normal(1, 1, 300), rng.normal(0, 1, n)
    largest_first = np.sort(others)[::-1]
    above, low = np.arange(n), beta.ppf
    below = max(c for c in above if low(1 - error, c + 1, n - c) <= share)
    beyond = min(c for c in above[1:] if low(error, c, n - c + 1) >= share)
    assert below < 50 < beyond
    fewest, most = (np.sum(members > largest_first[c]) for c in (below, beyond - 1))
    found = true_positive_rate(members, others, share)
    assert found.low == pytest.approx(binomtest(fewest, 300).proportion_ci(1 - 2 * error).low)
    assert found.high == pytest.approx(binomtest(most, 300).proportion_ci(1 - 2 * error).high)


@pytest.mark.statistical
@pytest.mark.parametrize(("m", "n"), [(400, 100), (1000, 250), (4000, 1000)])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_interval_covers_the_rate_at_the_true_threshold(m: int, n: int, shift: float) -> None:
    """In 95 % of 600 data sets at least; the Monte Carlo error is 0.9 %."""
    rng, runs = np.random.default_rng(8), 600
    for share in (0.01, 0.001) if n == 1000 else (0.01,):
        truth, found = norm.sf(norm.isf(share) - shift), list[tuple[bool, bool]]()
        for _ in range(runs):
            rate = true_positive_rate(rng.normal(shift, 1, m), rng.normal(0, 1, n), share)
            assert rate.low <= rate.value <= rate.high
            found.append((rate.low <= truth <= rate.high, rate.low > 0))
        covered, informative = np.mean(found, axis=0)
        assert covered > 0.95 - 3 * 0.009
        if (n, share, shift) == (1000, 0.01, 1.0):
            assert informative > 0.9


# --- who is set aside -----------------------------------------------------------------------------


def test_small_sites_set_the_same_share_aside() -> None:
    sizes = dict.fromkeys((f"s{k}" for k in range(400)), 4) | {"large": 503, "one": 1, "none": 0}
    data = {name: pd.DataFrame({"x": np.arange(n)}) for name, n in sizes.items()}
    kept, aside = split(data, 0.2, np.random.default_rng(0))
    for name, table in data.items():
        assert sorted([*kept[name].x, *aside[name].x]) == table.x.tolist()
    small = [len(aside[f"s{k}"]) for k in range(400)]
    assert set(small) == {0, 1} and np.mean(small) == pytest.approx(0.8, abs=4 * 0.02)
    assert len(aside["large"]) in (100, 101) and len(kept["one"]) == 1
    kept, _ = split(data, 0.9, np.random.default_rng(0))
    assert min(len(table) for name, table in kept.items() if name != "none") == 1


@pytest.mark.parametrize("sites", [1, 2])
def test_persons_are_set_aside_with_all_their_rows(sites: int) -> None:
    """The first half of the persons have three rows, the others one; both sites have all names."""
    names = [*(f"p{i}" for i in np.repeat(np.arange(100), 3)), *(f"p{i}" for i in range(100, 200))]
    names[::50] = [" P7 "] * 8
    table = pd.DataFrame({"who": names, "x": 0.0}).sample(frac=1, random_state=1)
    data = {"a": table, "b": table.iloc[:300], "c": pd.DataFrame({"x": np.zeros(10)})}
    data["b"] = pd.concat([data["b"], pd.DataFrame({"who": [np.nan] * 40, "x": 0.0})])
    terms: dict[str, Any] = {"placement": "sum", "epsilon": 1.0, "delta": 1e-6, "person": "who"}
    privacy = Privacy(**terms, sites_per_person=sites)
    kept, aside = split(data, 0.25, np.random.default_rng(2), privacy)
    found = {
        name: [{str(who).strip() for who in each[name].who.dropna()} for each in (kept, aside)]
        for name in ("a", "b")
    }
    for name, (inside, outside) in found.items():
        assert not inside & outside
        everybody = len(inside | outside)
        if name == "a" or sites == 1:
            assert len(outside) == pytest.approx(0.25 * everybody, abs=6)
    shared = (found["a"][0] & found["b"][1]) | (found["a"][1] & found["b"][0])
    assert bool(shared) == (sites == 1)  # at two sites, a name may be that of two persons
    assert 0 < aside["b"].who.isna().sum() < 40
    assert len(aside["c"]) in (2, 3)  # without the column, rows; a run says what is wrong


def test_the_others_come_with_their_sites(tmp_path: Path) -> None:
    data = tables(3, 2)
    kept, aside = split(data, 0.2, np.random.default_rng(0))
    raw = job({"name": "moments"}, 2)
    truth = AuditedRun.of(in_memory(read_job(raw)), kept, aside, 0, tmp_path).truth
    assert sorted(truth.of_site) == sorted(np.repeat(["s0", "s1", "s2"], 6))
    for values, site in zip(truth.others, truth.of_site, strict=True):
        apart = np.abs(aside[site].to_numpy() - HALF * values).max(axis=1)
        assert np.min(apart) < 1e-9
    both = compared(cast("View", SimpleNamespace(sites=("s2", "s0"))), truth)
    assert both.sites.members.tolist() == ["s2"] * 24 + ["s0"] * 24
    assert set(both.sites.others) == {"s0", "s2"} and len(both.others) == 12


# --- tracing within sites -------------------------------------------------------------------------


def of_others(
    sizes: dict[str, tuple[int, int]], sites: tuple[str, ...], rng: np.random.Generator
) -> Finding:
    """Trace in moments of other records of these sites: nobody took part. Sites differ much.

    sizes: how many records took part, and how many did not
    """
    records, others, of_site, elsewhere = {}, list[Array](), list[str](), list[Array]()
    for name, (m, n) in sizes.items():
        middle = rng.normal(0, 0.3, 6)
        values, rest, new = (middle + rng.normal(0, 0.1, (k, 6)) for k in (m, n, m))
        records[name] = SiteRecords(values, 0, np.zeros(6))
        others.append(rest)
        of_site += [name] * n
        elsewhere += [new] * (name in sites)
    truth = Truth(records, np.concatenate(others), np.array(of_site))
    z = np.concatenate(elsewhere)
    z = np.column_stack([np.ones(len(z)), z])
    guess = Released(z.T @ z, float(len(z)), seed=int(rng.integers(1000)))
    return Tracing().score(guess, cast("View", SimpleNamespace(sites=sites)), truth)


@pytest.mark.attack
@pytest.mark.parametrize("sites", [("small",), ("small", "large")])
def test_a_difference_between_sites_is_not_traced(sites: tuple[str, ...]) -> None:
    """Neither in the control, with the sum of one site, nor in a run with another mix of sites."""
    rng, sizes = np.random.default_rng(9), {"small": (60, 60), "large": (120, 40)}
    found = [of_others(sizes, sites, rng) for _ in range(25)]
    assert np.mean([each.value for each in found]) == pytest.approx(0.5, abs=0.04)
    assert sum(each.low <= 0.5 <= each.high for each in found) >= 22


def two_sites(rng: np.random.Generator) -> tuple[Truth, View, Array]:
    """Return members and others with another mix of sites, and records that took no part.

    The third column is the sum of two others and a number of the site.
    """
    sizes = {"small": (60, 140), "large": (140, 60)}

    def make(n: int, level: float) -> Array:
        x = rng.normal(0, 0.3, (n, 2))
        return np.column_stack([x, x.sum(axis=1) + level + rng.normal(0, 0.2, n)])

    own, others, new = ([make(sizes[s][k], float(s == "large")) for s in sizes] for k in (0, 1, 0))
    sites = {s: SiteRecords(x, 0, np.zeros(3)) for s, x in zip(sizes, own, strict=True)}
    truth = Truth(sites, np.concatenate(others), np.repeat(["small", "large"], [140, 60]))
    result = SimpleNamespace(summary={"records": 200})
    view = SimpleNamespace(sites=("small", "large"), result=result, planned=None)
    return truth, cast("View", view), np.concatenate(new)


@pytest.mark.attack
def test_coefficients_do_not_trace_sites_that_differ() -> None:
    """Those of other records with the members' mix of sites."""
    rng, found, pooled = np.random.default_rng(12), list[Finding](), list[float]()
    for _ in range(12):
        truth, view, new = two_sites(rng)
        model = Regression("ols", GAUSSIAN, 2, (0, 1), np.zeros(2), 0.0, Y)
        b, _ = fitted(model.design(new), new[:, 2], GAUSSIAN)
        model = replace(model, slopes=b[1:], intercept=float(b[0]))
        found.append(CoefficientTracing().score(Guess([model], 0), view, truth))
        members = np.concatenate([each.values for each in truth.sites.values()])
        both = gains(model, members, truth.others, 200.0)
        pooled.append(area_under_roc(*both).value)
        assert found[-1].details["of_each"]["1_ols"][0] == found[-1].value
    values = [each.value for each in found]
    assert np.mean(values) == pytest.approx(0.5, abs=0.04)
    assert np.mean(pooled) > 0.6
    assert all(each.high - each.low < 0.25 for each in found)
    assert sum(each.low <= 0.5 <= each.high for each in found) >= 10


@pytest.mark.parametrize("attack", [Tracing(), CoefficientTracing()])
def test_attacks_draw_anew_within_sites(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[Sites]()

    def width(*args: Any) -> Array:
        given.append(args[4])
        return np.zeros(2)[: 1 if isinstance(attack, Tracing) else 2]

    monkeypatch.setattr(f"{type(attack).__module__}.width_by_permutation", width)
    truth, view, new = two_sites(np.random.default_rng(14))
    z = np.column_stack([np.ones(len(new)), new])
    model = Regression("ols", GAUSSIAN, 2, (0, 1), np.ones(2), 0.0, Y)
    is_tracing = isinstance(attack, Tracing)
    attack.score(Released(z.T @ z, 200.0) if is_tracing else Guess([model], 0), view, truth)
    ((members, others),) = given
    assert members.tolist() == ["small"] * 60 + ["large"] * 140
    assert others.tolist() == truth.of_site.tolist()


def test_losses_do_not_trace_sites_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """The losses of a network that was trained on other records."""
    rng, module = np.random.default_rng(13), "secagg.audits.attacks.records.membership."
    monkeypatch.setattr(module + "training_work", lambda *_: 0.0)
    monkeypatch.setattr(module + "trained_on", lambda *_: None)
    monkeypatch.setattr(
        module + "losses",
        lambda planned, result, x: 10 - x[:, 2] * (result is not None) + rng.normal(0, 0.1, len(x)),
    )
    truth, view, _ = two_sites(rng)
    found = Membership().score(0, view, truth)
    for each in found.details["of_each"].values():
        assert each[0] == pytest.approx(0.5, abs=0.1)
    assert found.value == found.details["of_each"]["lira"][0]


def test_the_planted_leak_is_found_with_few_others_of_its_site_and_not_with_one() -> None:
    rng, found = np.random.default_rng(10), list[float]()
    for n in (20, 1):
        values = rng.normal(0, 0.3, (30, 12))
        z = np.column_stack([np.ones(30), values])
        others = np.concatenate([rng.normal(0, 0.3, (n, 12)), rng.normal(0.5, 0.1, (200, 12))])
        of_site = np.repeat(["s0", "s1"], [n, 200])
        truth = Truth({"s0": SiteRecords(values, 0, np.zeros(12))}, others, of_site)
        view = cast("View", SimpleNamespace(sites=("s0",)))
        finding = Tracing().score(Released(z.T @ z, 30.0), view, truth)
        if n == 1:
            assert "of the site" in finding.why_not
        else:
            found += [finding.value, finding.low]
            assert finding.details["others"] == 20
    assert found[0] > 0.7 and found[1] > 0.5


def test_the_planted_leak_is_the_sum_of_the_smallest_site() -> None:
    parts = {f"s{k}": {"moments": np.full(6, float(n))} for k, n in enumerate((40, 30, 50))}
    seen = SeenRound(STAGE, {}, {"moments": np.full(6, 120.0)}, parts)
    view = View(Who.COORDINATOR, cast("Any", None), tuple(parts), (seen,), cast("Any", None))
    planted = Tracing().control(view)
    assert planted.sites == ("s1",) and planted.rounds[0].total["moments"][0] == 30


def test_numbers_with_much_noise_count_less() -> None:
    """Two in three columns vary little, so that the noise hides them."""
    rng, known, ignored = np.random.default_rng(11), list[float](), list[float]()
    for _ in range(10):
        spread = np.repeat([1.0, 0.2], [10, 20])
        own, others = (rng.normal(0, 0.3, (n, 30)) * spread for n in (100, 400))
        z = np.column_stack([np.ones(100), own])
        noise = rng.normal(size=(31, 31)) * 0.3
        M = z.T @ z + (noise + noise.T) / 2**0.5
        for variance, areas in ((0.09, known), (0.0, ignored)):
            released = Released(M, 100.0, noise=variance)
            areas.append(area_under_roc(*traces(released, own, others)).value)
    assert np.mean(known) > 0.67 and np.mean(known) > np.mean(ignored) + 0.05


def test_the_noise_of_a_run_is_known_to_the_attack(tmp_path: Path) -> None:
    privacy = {"placement": "sum", "epsilon": 1.0, "delta": 1e-5}
    raw = in_memory(read_job(job({"name": "moments"}, 2, privacy=privacy)))
    run = AuditedRun.of(raw, *split(tables(3, 2), 0.2, np.random.default_rng(0)), 0, tmp_path)
    found = Tracing().run(run.view, np.random.default_rng(0))
    noise = run.view.planned.public.noise[STAGE]
    assert found.noise == noise.sum_variance(3, noise.site_variance(3)) > 0 and found.c == 0.5


def test_an_area_of_scores_with_sites_has_its_interval_in_a_finding() -> None:
    sites = Sites(np.repeat(["a", "b"], [50, 5]), np.repeat(["a", "b"], [5, 50]))
    own, others = (10.0 * (each == "a") + np.tile([0.0, 1.0, 2.0, 3.0, 4.0], 11) for each in sites)
    assert membership_finding(own, others).value > 0.9
    assert membership_finding(own, others, 0.0, sites).value == 0.5
