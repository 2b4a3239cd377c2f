"""`secagg audit`: what changing cohorts and colluding sites tell about single sites."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.audited import attacked, job, tables

from secagg.audits.attacks.questions import cohort_differencing
from secagg.audits.attacks.questions.cohort_differencing import (
    Cohort,
    chosen,
    smallest_group,
    with_dropouts,
)
from secagg.audits.audit import Attacked, audit_job
from secagg.audits.contract import Verdict
from secagg.audits.views import Who
from secagg.privacy.policy import evaluation
from secagg.privacy.policy.differencing import exposed

MOMENTS = {"name": "moments"}
NOISE = {"placement": "sum", "epsilon": 1.0, "delta": 1e-5}


def rules(min_sites: int) -> dict[str, Any]:
    return {"release": {"min_sites": min_sites, "min_records": 5}}


def differenced(sites: int, min_sites: int, **more: Any) -> list[Attacked]:
    """Return what the coordinator and the dishonest coordinator find."""
    asked = job(MOMENTS, 2, **rules(min_sites), **more)
    return list(audit_job(asked, tables(sites, 2), attacks=["cohort_differencing"]).attacked)


# --- cohorts --------------------------------------------------------------------------------------


def test_dropouts_expose_a_site_in_three_releases_in_the_median_and_never_by_the_rule() -> None:
    """Five sites, at least three in a sum, each absent with a probability of 10 %.

    A group of fewer than three sites is exposed in two releases in the median, and one site in
    three, as in an independent demonstration.
    """
    sites, until = [f"s{i}" for i in range(5)], {2: list[int](), 3: list[int]()}
    for seed in range(100):
        for limit, found in until.items():
            rng, free = np.random.default_rng(seed), list[Cohort]()
            while not free or smallest_group(free, limit) is None:
                free.append(with_dropouts(sites, 3, rng))
            found.append(len(free))
        rng, held = np.random.default_rng(seed), list[Cohort]()
        for _ in range(12):
            cohort = with_dropouts(sites, 3, rng)
            if exposed(held, cohort, 3) is None:
                held.append(cohort)
        assert smallest_group(held, 3) is None
    assert {limit: np.median(found) for limit, found in until.items()} == {2: 3, 3: 2}


def test_the_attack_and_the_rule_agree_about_random_cohorts() -> None:
    """They are two computations: in fractions by group, and modulo a prime."""
    rng, found = np.random.default_rng(1), [0, 0]
    for _ in range(300):
        sites, k = [f"s{i}" for i in range(int(rng.integers(3, 8)))], int(rng.integers(2, 5))
        cohorts = list[Cohort]()
        for _ in range(5):
            cohort = Cohort(s for s in sites if rng.random() < 0.7)
            if len(cohort) < k:
                continue
            by_rule, by_attack = exposed(cohorts, cohort, k), smallest_group([*cohorts, cohort], k)
            assert (by_rule is None) == (by_attack is None)
            found[by_rule is not None] += 1
            if by_rule is None:
                cohorts.append(cohort)
            else:
                assert by_attack is not None and len(by_attack.sites) == len(by_rule.sites)
    assert min(found) > 100


@pytest.mark.parametrize(
    ("sites", "k", "shown"),
    [(3, 2, 1), (5, 3, 1), (9, 3, 1), (6, 4, 2), (7, 4, 1), (8, 5, 2), (9, 6, 3), (10, 6, 2)],
)
def test_no_site_knows_all_three_chosen_cohorts(sites: int, k: int, shown: int) -> None:
    """From ceil(3k/2) sites they show fewer than k sites; from 2k - 1, one."""
    names = [f"s{i}" for i in range(sites)]
    cohorts = list(chosen(names, k))
    assert all(len(cohort) >= k for cohort in cohorts)
    assert not frozenset.intersection(*cohorts)
    group = smallest_group(cohorts, k)
    assert group is not None and len(group.sites) == shown < k
    for name in names:
        assert smallest_group([c for c in cohorts if name in c], k) is None


@pytest.mark.parametrize(("sites", "k"), [(2, 2), (4, 3), (5, 4), (7, 5), (8, 6)])
def test_with_fewer_sites_each_second_cohort_is_refused_by_a_site_of_both(
    sites: int, k: int
) -> None:
    names = [f"s{i}" for i in range(sites)]
    cohorts = [Cohort(c) for size in range(k, sites + 1) for c in combinations(names, size)]
    for one, other in combinations(cohorts, 2):
        assert one & other and exposed([one], other, k) is not None


@pytest.mark.attack
def test_dropouts_do_not_expose_a_site_and_chosen_cohorts_do() -> None:
    """The sites' own ledgers do not suffice against a coordinator without one."""
    dropouts, dishonest = differenced(5, 3)
    assert dropouts.who is Who.COORDINATOR and dropouts.verdict is Verdict.NO_LEAK_FOUND
    assert dropouts.finding is not None and dropouts.finding.details["refused"] > 0
    assert dropouts.control is not None and dropouts.control.value == 1
    assert dropouts.control.details["relative_error"] < 1e-12
    assert dishonest.verdict is Verdict.LEAK and dishonest.finding is not None
    assert dishonest.finding.details["releases_until_exposed"] == 3
    assert dishonest.finding.details["relative_error"] < 1e-12


@pytest.mark.attack
def test_chosen_cohorts_expose_two_sites_where_a_sum_needs_four() -> None:
    dropouts, dishonest = differenced(6, 4)
    assert dropouts.verdict is Verdict.NO_LEAK_FOUND
    assert dishonest.verdict is Verdict.LEAK and dishonest.finding is not None
    assert dishonest.finding.value == 2 and dishonest.finding.details["sites"] == ["s0", "s1"]
    assert dishonest.finding.details["relative_error"] < 1e-12


@pytest.mark.attack
def test_with_random_numbers_a_group_is_exposed_and_cannot_be_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cohort_differencing, "draws_random_numbers", lambda *_: True)
    _, dishonest = differenced(5, 3)
    assert dishonest.verdict is Verdict.INCONCLUSIVE and "random numbers" in dishonest.why
    assert dishonest.finding is not None and dishonest.finding.value == 1
    assert dishonest.finding.details["sites"] == ["s0"]


@pytest.mark.attack
def test_with_few_sites_no_choice_of_cohorts_exposes_one() -> None:
    for found in differenced(4, 3):
        assert found.verdict is Verdict.NO_LEAK_FOUND


def test_with_no_more_sites_than_a_sum_needs_there_is_one_cohort() -> None:
    for found in differenced(2, 2):
        assert found.verdict is Verdict.NOT_APPLICABLE and "one cohort" in found.why


@pytest.mark.attack
def test_without_the_rule_the_coordinator_exposes_a_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "exposed", lambda *_: None)
    assert [found.verdict for found in differenced(4, 3)] == [Verdict.LEAK, Verdict.LEAK]


@pytest.mark.attack
def test_noised_sums_over_chosen_cohorts_are_answered_and_do_not_show_a_site() -> None:
    _, dishonest = differenced(5, 3, privacy=NOISE, protocol="additive")
    assert dishonest.verdict is Verdict.NO_LEAK_FOUND and dishonest.finding is not None
    assert dishonest.finding.details["answered"] == 3
    assert dishonest.finding.details["relative_error"] > 0.01


# --- colluding sites ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sites", "protocol", "needed", "verdict"),
    [
        (2, "masked", 1, Verdict.LEAK),
        (4, "masked", 3, Verdict.NO_LEAK_FOUND),
        (4, "plain", 0, Verdict.LEAK),
    ],
)
def test_all_sites_but_one_expose_the_last_one(
    sites: int, protocol: str, needed: int, verdict: Verdict
) -> None:
    found = attacked(tables(sites, 2), "last_site", MOMENTS, protocol=protocol)
    assert found.verdict is verdict and found.finding is not None
    assert found.finding.value == needed
    errors = found.finding.details["errors"]
    assert set(errors) == {str(m) for m in range(1, sites)}
    assert errors[str(sites - 1)]["error"] < 1e-12
    assert all(errors[str(m)]["error"] > 0.1 for m in range(1, sites - 1))


def test_one_site_is_enough_if_the_other_sites_are_alike() -> None:
    """Half of what remains of the sum is then the contribution of each."""
    rows = pd.DataFrame({"x0": np.full(30, 1.0), "x1": np.full(30, -2.0)})
    data = tables(1, 2, rows=40) | {"s1": rows, "s2": rows}
    found = attacked(data, "last_site", MOMENTS)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value == found.finding.low == found.finding.high == 1


@pytest.mark.attack
def test_the_stated_number_of_colluding_sites_decides() -> None:
    noise, data = NOISE | {"epsilon": 8.0, "delta": 1e-4}, tables(3, 2, rows=2000, seed=5)
    for colluding, verdict in ((1, Verdict.NO_LEAK_FOUND), (2, Verdict.LEAK)):
        privacy, release = noise | {"colluding": colluding}, {"min_sites": 3, "min_records": 5}
        more = {"protocol": "additive", "privacy": privacy, "release": release}
        found = attacked(data, "last_site", MOMENTS, **more)
        assert found.verdict is verdict and found.finding is not None and found.finding.value == 2


def test_the_last_sites_share_of_the_noise_hides_few_records() -> None:
    found = attacked(tables(4, 2), "last_site", MOMENTS, protocol="additive", privacy=NOISE)
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    last = found.finding.details["errors"]["3"]
    assert found.finding.value == 4 and last["share_of_noise"] == 1 / 4
    assert 1 < last["low"] < last["error"] < last["high"]
