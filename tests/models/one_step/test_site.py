"""A site's own means: nothing that leaves it, or that it keeps, is without noise."""

import math

import numpy as np
import pandas as pd
import pytest
from support.methods.one_step import job, planned_regression, rows_of, shifted

from secagg.errors import JobError, PeerError, UsageError
from secagg.evidence.feasibility.simulated_run import run_on
from secagg.jobs.job import parse_job
from secagg.models.one_step.columns import CENTRES, MOMENTS
from secagg.models.one_step.estimate import Centres
from secagg.models.one_step.releases import exact_sum
from secagg.sessions.planned_job import plan_job


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_the_first_sum_and_the_means_have_the_noise_of_the_site(family: str) -> None:
    plan = planned_regression(family, centre="site")
    rows = rows_of(plan, shifted(3, 500, np.random.default_rng(1))[0])
    exact, _ = plan.method.contribute(CENTRES, rows, {}, {}, plan.public, bytes)
    train, noise = plan.facts.train, plan.public.noise[CENTRES]
    assert train is not None and plan.plans.stages[CENTRES].training is not None
    drawn = np.array([3, -5, 7, 11]) * 2**30
    sent, memory = train(
        CENTRES, rows, {}, {}, plan.public, bytes, noise=lambda numbers: drawn[:numbers]
    )
    assert np.array_equal(sent["centres"], exact["centres"] + drawn * 2.0**-noise.fraction_bits)
    columns = plan.method._columns(plan.public)  # type: ignore[attr-defined]
    sd = math.sqrt(noise.variance) * 2.0**-noise.fraction_bits
    guesses = Centres(columns.centre, columns.spread, of_site=True)
    assert np.array_equal(memory["centre"], guesses.found(sent["centres"], sd)[0])
    assert not np.array_equal(memory["centre"], guesses.found(exact["centres"], 0.0)[0])
    # all of the noise is the site's own, whatever the number of sites
    assert noise.site_variance(3) == noise.site_variance(30) == noise.variance


def test_hostile_messages_are_refused() -> None:
    plan = planned_regression("gaussian")
    rows = rows_of(plan, shifted(3, 50, np.random.default_rng(1))[0])
    for T in (np.eye(3), np.full((4, 4), np.nan), np.full((4, 4), 1e7), [[1.0]], None):
        with pytest.raises(PeerError):
            plan.method.contribute(MOMENTS, rows, {"T": T}, {}, plan.public, bytes)


def test_a_typical_range_far_narrower_than_the_bounds_is_refused_before_any_sum() -> None:
    raw = job("gaussian")
    wide = {"low": -1e6, "high": 1e6, "typical": [0.0, 1.0]}
    raw["columns"] = raw["columns"] | {"a": raw["columns"]["a"] | wide}
    tables = dict.fromkeys(("s0", "s1", "s2"), shifted(3, 50, np.random.default_rng(1))[0])
    with pytest.raises(JobError) as refused:
        plan_job(parse_job(raw), tables)
    assert refused.value.where == "columns.a.typical" and refused.value.advice


def test_a_person_at_four_sites_has_twice_the_noise_in_means_of_sites_and_four_times_in_sums() -> (
    None
):
    """Sites' own releases are independent: root(4), where changes of one sum add up to 4."""
    person = {"person": "id", "person_pinned": True}
    alone, four = (
        planned_regression("gaussian", centre="site", **person, sites_per_person=s).public.noise
        for s in (1, 4)
    )
    for stage, factor in ((CENTRES, 2), (MOMENTS, 4)):
        ratio = four[stage].variance / alone[stage].variance
        assert math.isclose(ratio, factor**2, rel_tol=1e-3)


def test_sites_of_any_size_sum_their_means_exactly() -> None:
    """3 x 2^20 records: in float64, partial sums of multiples of 2^-32 would be rounded."""
    values = np.full((3 * 2**20, 2), 1 - 2.0**-32)
    assert exact_sum(values).tolist() == [3 * 2**20 - 3 * 2.0**-12] * 2


def test_a_constant_outcome_without_noise_is_named() -> None:
    plan = planned_regression("gaussian", noised=False)
    table = shifted(3, 500, np.random.default_rng(1))[0].assign(y=0.7)
    with pytest.raises(UsageError) as refused:
        run_on(plan, plan.public, [rows_of(plan, table)], np.random.default_rng(1))
    assert "'y'" in refused.value.what and refused.value.advice


@pytest.mark.parametrize(
    ("family", "settings", "where"),
    [
        ("gaussian", {"exposure": "a"}, "method.exposure"),
        ("poisson", {"centre": "site"}, "method.centre"),
        ("poisson", {"outcome": "b", "exposure": None}, "method.outcome"),
    ],
)
def test_settings_that_do_not_go_with_the_family_are_refused(
    family: str, settings: dict[str, str | None], where: str
) -> None:
    raw = job(family)
    raw["method"] = {k: v for k, v in (raw["method"] | settings).items() if v is not None}
    empty = pd.DataFrame(columns=list(raw["columns"]), dtype=object)
    with pytest.raises(JobError) as refused:
        plan_job(parse_job(raw), dict.fromkeys(("s0", "s1", "s2"), empty))
    assert refused.value.where == where


def test_sites_that_the_noise_hides_leave_no_difference_between_sites_in_a_slope() -> None:
    """Small sites whose levels differ in the other direction: within sites the slope is .3."""
    sizes, found, cautions = [1500, *[20] * 5], [], 0
    plan = planned_regression("gaussian", centre="site", sites=len(sizes), epsilon=2.0)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        tables = shifted(len(sizes), 1500, rng)
        rows = [rows_of(plan, t.iloc[:n]) for t, n in zip(tables, sizes, strict=True)]
        summary = run_on(plan, plan.public, rows, rng).summary
        cautions += "hides the means of 5 of 6 sites" in summary.get("caution", "")
        found.append(next(t for t in summary["terms"] if t["term"] == "a"))
    assert cautions >= 18
    covered = np.mean([t["ci_low"] <= 0.3 <= t["ci_high"] for t in found])
    assert covered >= 0.8


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_a_site_without_records_sends_zeros_and_is_counted(family: str) -> None:
    plan = planned_regression(family, centre="site", noised=False)
    rows = rows_of(plan, shifted(3, 50, np.random.default_rng(1))[0]).part(0, 0)
    with np.errstate(invalid="ignore"):
        sent, memory = plan.method.contribute(CENTRES, rows, {}, {}, plan.public, bytes)
    assert not sent["centres"].any() and not sent["doubt"].any()
    assert sent["hidden"] == 1 and memory["hidden"]
