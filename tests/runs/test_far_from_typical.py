"""Noise once at the site, and typical ranges that are far from the records."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.jobs import raw_job

import secagg
from secagg.contracts.noise import SITE_MOMENTS
from secagg.core.randomness import replayable_random, seeded_random
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.models.common.clipped_moments import FAR_AWAY, largest_values
from secagg.sessions.planned_job import Planned, plan_job
from secagg.sessions.site_moments import draw_site_moments

SITES = ("a", "b", "c", "d")
METHODS: tuple[dict[str, Any], ...] = (
    {"name": "fedavg", "outcome": "y", "predictors": ["x"], "rounds": 3},
    {"name": "fedlin_hm2", "outcome": "y", "predictors": ["x"], "rounds": 3, "scale": "pooled"},
    {"name": "local_graphs"},
)


def table(seed: int, rows: int = 1000) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    return pd.DataFrame({"x": x, "y": 0.4 * x + rng.normal(size=rows)})


def raw(away: float, method: dict[str, Any], placement: str = "site") -> dict[str, Any]:
    """Return a job with a typical range of `x` that is so many standard deviations off."""
    x = {"type": "continuous", "low": -50, "high": 50, "typical": [-1 - away, 1 - away]}
    y = {"type": "continuous", "low": -10, "high": 10, "typical": [-1.1, 1.1]}
    terms = {"placement": placement, "epsilon": 8.0, "delta": 1e-5, "expected_records": 4000}
    return raw_job(
        columns={"x": x, "y": y}, method=method, privacy=terms, sites={"max_rows": 10_000},
        protocol={"name": "masked"},
    )  # fmt: skip


def planned(away: float) -> Planned:
    return plan_job(parse_job(raw(away, METHODS[0])), {site: table(0, 1) for site in SITES})


@pytest.mark.parametrize("away", [0.0, 6.0, 10.0])
def test_records_of_a_method_have_the_moments_however_far_they_are(away: float) -> None:
    """With hardly any noise. Values relative to typical ranges may exceed 1; those of the records
    are the weighted means of the site's, in own units."""
    plan, records = planned(away), table(1, 20_000)
    rows = read_rows(plan.job.columns, records, plan.public, "a")
    little = replace(plan.public.noise[SITE_MOMENTS], variance=1)
    public = replace(plan.public, noise={SITE_MOMENTS: little})
    drawn = draw_site_moments([rows], public, replayable_random(3))
    values = drawn.repaired.values
    weights = (rows.constants / 0.1875) ** 2
    for name, column, variable in zip("xy", values.T, public.variables, strict=True):
        own = variable.midpoint + variable.half_range * column
        mean = np.average(records[name], weights=weights)
        # the sum of weights is rounded up, which moves mean and square by this share
        error = 2 / weights.sum() + 1e-3
        assert own.mean() == pytest.approx(mean, abs=(1 + away) * error)
        square = np.average((records[name] - mean) ** 2, weights=weights)
        assert own.var() == pytest.approx(square, abs=(1 + away**2) * error)


def test_the_largest_mean_square_is_attained_and_never_exceeded() -> None:
    public = planned(8.0).public
    clip = public.clip
    assert clip is not None
    x = public.variables[0]
    assert x.max_abs == pytest.approx((50 + 8) / 4)  # of the bounds, from the typical centre
    rng = np.random.default_rng(4)
    for size in (0.05, 0.5, 3.0):
        z = np.column_stack([np.full(500, clip.constant), size * rng.normal(size=(500, 2))])
        z *= np.minimum(1, clip.norm / np.linalg.norm(z, axis=1))[:, None]
        weights = float((z[:, 0] ** 2).sum()) / clip.constant**2
        squares = (z[:, 1:] ** 2).sum(axis=0) / weights
        assert np.all(squares <= largest_values(public.variables, clip, weights, 500.0) ** 2)
    u = 1.8  # one record that differs in one column alone
    weight = clip.squared_norm / (clip.constant**2 + u**2)
    found = largest_values(public.variables, clip, 500 * weight, 500.0)
    assert found[0] == pytest.approx(u)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method["name"]))
@pytest.mark.parametrize(("away", "told"), [(0.0, 0), (9.0, 1)])
def test_all_methods_on_site_moments_have_the_caution_once(
    method: dict[str, Any], away: float, told: int
) -> None:
    tables = {site: table(i) for i, site in enumerate(SITES)}
    found = secagg.run(raw(away, method), tables, random=seeded_random(bytes(32))).result
    assert str(found.summary).count(FAR_AWAY) == told
    assert found.summary.get("caution", "").count(FAR_AWAY) == told
