"""`secagg audit`: what changing cohorts and colluding sites tell about single sites."""

from fractions import Fraction
from itertools import combinations
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.audited import attacked, job, tables

from secagg.audits.attacks.questions import cohort_differencing, last_site
from secagg.audits.attacks.questions.cohort_differencing import (
    Cohort,
    CohortDifferencing,
    chosen,
    null_space,
    smallest_group,
    unions,
    with_dropouts,
)
from secagg.audits.audit import Attacked, audit_job
from secagg.audits.audited_run import AuditedRun
from secagg.audits.contract import Verdict
from secagg.audits.views import Who
from secagg.jobs.job import parse_job
from secagg.privacy.policy import job_rules, release_rules
from secagg.privacy.policy.differencing import exposed
from secagg.sessions.planned_job import plan_job

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
            while not free or smallest_group(free, limit).exposed is None:
                free.append(with_dropouts(sites, 3, rng))
            found.append(len(free))
        rng, held = np.random.default_rng(seed), list[Cohort]()
        for _ in range(12):
            cohort = with_dropouts(sites, 3, rng)
            if exposed(held, cohort, 3) is None:
                held.append(cohort)
        assert smallest_group(held, 3) == (None, None)
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
            by_rule, search = exposed(cohorts, cohort, k), smallest_group([*cohorts, cohort], k)
            by_attack = search.exposed
            assert search.searched is None
            assert (by_rule is None) == (by_attack is None)
            found[by_rule is not None] += 1
            if by_rule is None:
                cohorts.append(cohort)
            else:
                assert by_attack is not None and len(by_attack.sites) == len(by_rule.sites)
    assert min(found) > 100


@pytest.mark.parametrize(
    ("sites", "k", "shown"),
    [(3, 2, 1), (5, 3, 1), (9, 3, 1), (6, 4, 2), (7, 4, 1), (8, 5, 2), (9, 6, 3), (10, 6, 2),
     (20, 13, 6), (150, 100, 50)],
)  # fmt: skip
def test_no_site_knows_all_three_chosen_cohorts(sites: int, k: int, shown: int) -> None:
    """From ceil(3k/2) sites they show fewer than k sites; from 2k - 1, one."""
    names = [f"s{i}" for i in range(sites)]
    cohorts = list(chosen(names, k))
    assert all(len(cohort) >= k for cohort in cohorts)
    assert not frozenset.intersection(*cohorts)
    group = smallest_group(cohorts, k).exposed
    assert group is not None and len(group.sites) == shown < k
    for name in names:
        assert smallest_group([c for c in cohorts if name in c], k) == (None, None)


def test_blocks_of_sites_show_what_single_sites_show() -> None:
    """Equation (1), written out for each set of sites."""
    rng, shown = np.random.default_rng(2), 0
    for _ in range(200):
        sites = [f"s{i}" for i in range(6)]
        cohorts = [Cohort(s for s in sites if rng.random() < 0.7) for _ in range(3)]
        found, limit = smallest_group(cohorts, 4).exposed, None
        for size in (1, 2, 3):
            for group in combinations(sites, size):
                rows = [[Fraction(s in c) for c in cohorts] for s in sites if s not in group]
                if limit is None and any(
                    sum(w for w, c in zip(y, cohorts, strict=True) if s in c)
                    for y in null_space(rows, 3)
                    for s in group
                ):
                    limit = size
        assert (found is None) == (limit is None)
        if found is not None:
            assert len(found.sites) == limit
            total = {
                s: sum(w for w, c in zip(found.weights, cohorts, strict=True) if s in c)
                for s in sites
            }
            assert {s for s, weight in total.items() if weight} == set(found.sites)
            shown += 1
    assert 50 < shown < 200


def test_unions_come_by_size_and_once() -> None:
    sizes = [1, 1, 2, 5]
    every = [g for n in range(1, 5) for g in combinations(range(4), n)]
    found = list(unions(sizes))
    assert sorted(group for _, group in found) == sorted(every)
    assert [size for size, _ in found] == sorted(sum(sizes[i] for i in g) for g in every)


def test_a_search_that_is_cut_off_says_up_to_which_size_it_went(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sites = [f"s{i}" for i in range(8)]
    cohorts = [Cohort(sites), Cohort(sites[:2] + sites[4:]), Cohort(sites[1:5])]
    assert smallest_group(cohorts, 3).exposed is not None
    monkeypatch.setattr(cohort_differencing, "_MAX_GROUPS", 0)
    assert smallest_group(cohorts, 3) == (None, 1)


def test_dropouts_are_drawn_where_nearly_every_draw_is_too_small() -> None:
    """All 200 sites are there with a probability of 7e-10, and one is absent with 2e-8."""
    sites, rng = [f"s{i}" for i in range(200)], np.random.default_rng(0)
    sizes = [len(with_dropouts(sites, 199, rng)) for _ in range(2000)]
    assert set(sizes) == {199, 200}
    # 200 x 0.1 / 0.9 = 22 times as many
    assert np.mean(np.array(sizes) == 199) == pytest.approx(22.2 / 23.2, abs=0.015)


def test_dropouts_have_the_law_of_draws_until_enough_are_there() -> None:
    sites, rng = [f"s{i}" for i in range(6)], np.random.default_rng(0)
    drawn = [with_dropouts(sites, 4, rng) for _ in range(4000)]
    every = [c for c in np.random.default_rng(1).random((40_000, 6)) >= 0.1 if c.sum() >= 4]
    for size in (4, 5, 6):
        share = np.mean([len(c) == size for c in drawn])
        assert share == pytest.approx(np.mean([c.sum() == size for c in every]), abs=0.03)
    absent = [np.mean([s not in c for c in drawn]) for s in sites]
    assert absent == pytest.approx([np.mean(absent)] * 6, abs=0.025)


def test_many_sites_are_searched_in_seconds() -> None:
    sites, rng = [f"s{i}" for i in range(200)], np.random.default_rng(0)
    cohorts = [with_dropouts(sites, 3, rng) for _ in range(7)]
    began = perf_counter()
    assert smallest_group(cohorts, 3).searched is None
    assert perf_counter() - began < 20


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
    assert dropouts.control is not None and dropouts.control.value in (1, 2)
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
def test_chosen_cohorts_expose_six_of_twenty_sites() -> None:
    """Sets of six of twenty sites are too many to try one by one."""
    dropouts, dishonest = differenced(20, 13)
    assert dropouts.verdict is Verdict.NO_LEAK_FOUND
    assert dishonest.verdict is Verdict.LEAK and dishonest.finding is not None
    assert dishonest.finding.value == 6
    assert dishonest.finding.details["sites"] == [f"s{i}" for i in (0, 1, 10, 11, 12, 13)]


@pytest.mark.attack
def test_an_incomplete_search_that_finds_nothing_is_inconclusive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cohort_differencing, "_MAX_GROUPS", 0)
    dropouts, found = differenced(5, 3)
    assert dropouts.verdict is Verdict.INCONCLUSIVE
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.why == "groups of more than 0 sites were not searched"


@pytest.mark.attack
def test_the_control_forgets_ledgers_and_nothing_else() -> None:
    """With four sites of which a sum needs three, only cohorts of three and four are asked."""
    dropouts, dishonest = differenced(4, 3)
    for found in (dropouts, dishonest):
        assert found.control is not None and found.control.value >= 1
    assert dishonest.control is not None  # with `min_sites = 2` it would need three cohorts
    assert dishonest.control.details["releases_until_exposed"] == 2


def test_only_a_sum_that_is_right_up_to_rounding_counts(tmp_path: Path) -> None:
    asked, data = parse_job(job(MOMENTS, 2, **rules(3))), tables(5, 2)
    run = AuditedRun.of(asked, data, {s: t.head(0) for s, t in data.items()}, 0, tmp_path)
    attack = CohortDifferencing()
    with run.seen_by(Who.DISHONEST, 1) as view:
        guess = attack.run(view, np.random.default_rng(0))
    assert attack.score(guess, view, run.truth).value == 1
    wrong = guess._replace(sums=(guess.sums[0] + 1e-12, *guess.sums[1:]))
    assert attack.score(wrong, view, run.truth).value == 0


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
    """Neither at the sites nor in the coordinator's ledger."""
    for module in (job_rules, release_rules):
        monkeypatch.setattr(module, "exposed", lambda *_: None)
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
    release = {"min_sites": 2, "min_records": 5, "min_level_sites": 1}
    found = attacked(data, "last_site", MOMENTS, release=release)
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


def test_noise_of_remaining_sites_is_drawn_by_the_number_of_all_sites(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of four sites adds a third of the variance, because one may collude, and not all."""
    real, drawn = last_site.sample_weighted, list[int]()
    planned = plan_job(parse_job(job(MOMENTS, 2, privacy=NOISE)), tables(4, 2))
    noise = planned.public.noise["moments"]
    assert noise.min_sites == 2 and noise.colluding == 1

    def watched(variance: int, *args: Any) -> Any:
        drawn.append(variance)
        return real(variance, *args)

    monkeypatch.setattr(last_site, "sample_weighted", watched)
    attacked(tables(4, 2), "last_site", MOMENTS, privacy=NOISE)
    assert drawn and set(drawn) == {-(-noise.variance // 3)}


@pytest.mark.attack
def test_a_coordinator_that_keeps_its_ledger_learns_of_no_group() -> None:
    """Three cohorts of three sites would show single sites; no site's own ledger sees all three."""
    for seed in range(8):
        audit = audit_job(
            job({"name": "moments"}, 2), tables(3, 2), attacks=["cohort_differencing"],
            views=[Who.COORDINATOR], seed=seed,
        )  # fmt: skip
        (found,) = audit.attacked
        assert found.verdict is not Verdict.LEAK
