"""A site's own means: nothing that leaves it, or that it keeps, is without noise."""

import math

import numpy as np
import pytest
from support.methods.one_step import job, planned_regression, rows_of, shifted

from secagg.errors import JobError, PeerError
from secagg.jobs.job import parse_job
from secagg.models.one_step.columns import CENTRES, MOMENTS
from secagg.models.one_step.estimate import Centres
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
