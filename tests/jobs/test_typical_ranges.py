"""Whole records relative to typical ranges: no more of them than the limit, whatever is asked."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist
from support.runs.jobs import raw_job

from secagg.contracts import PublicFacts
from secagg.contracts.noise import Sensitivity
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.jobs.design_matrix import public_facts, read_rows
from secagg.jobs.job import Job, parse_job
from secagg.jobs.typical_ranges import reach
from secagg.models.common.clipped_moments import (
    counted_moments_sensitivity,
    moments_sensitivity,
    records_moments,
)
from secagg.sessions.planned_job import plan_job
from secagg.sessions.session_ledgers import query_digest

MOST = 3  # records of a person
DESIGNS = 400


def job_of(columns: dict[str, Any], **privacy: Any) -> Job:
    privacy = {"placement": "sum", "epsilon": 1.0, "delta": 1e-5} | privacy
    return parse_job(raw_job(columns=columns, method={"name": "moments"}, privacy=privacy))


def number(low: float, high: float, *typical: float) -> dict[str, Any]:
    return {"type": "continuous", "low": low, "high": high, "typical": list(typical)}


PLAIN = {"x": number(-10, 10, -1, 1), "y": number(0, 100, 40, 60)}


def design(rng: np.random.Generator, limit: bool) -> Job:
    """Return a job with one to five columns whose typical ranges are of all sizes and places."""
    columns: dict[str, Any] = {}
    for j in range(rng.integers(1, 6)):
        if rng.random() < 0.3:
            columns[f"c{j}"] = {"type": "binary", "typical": float(rng.uniform(0.001, 0.999))}
            continue
        width = float(20 * 10 ** rng.uniform(-3.5, 0))
        low = float(rng.uniform(-10, 10 - width))
        columns[f"c{j}"] = number(-10, 10, low, low + width)
    expected = int(10 ** rng.uniform(1, 7))
    person = {"person": "who", "records_per_person": MOST} if limit else {}
    if limit and rng.random() < 0.7:
        person["person_norm"] = float(10 ** rng.uniform(-2, -0.7))
    return job_of(columns, expected_records=expected, **person)


def cells(job: Job, rng: np.random.Generator, count: int) -> pd.DataFrame:
    """Return records at the ends of the bounds and of the typical ranges, and in between."""
    found = {}
    for name, column in job.columns.items():
        if column.type == "binary":
            found[name] = rng.integers(0, 2, count).astype(float)
            continue
        low, high = column.typical
        near = rng.normal((low + high) / 2, (high - low) / 2, count)
        choices = [near, np.full(count, -10.0), np.full(count, 10.0), rng.uniform(-10, 10, count)]
        found[name] = np.choose(rng.integers(0, 4, count), choices).clip(-10, 10)
    return pd.DataFrame(found)


def parts_of(job: Job, public: PublicFacts, persons: list[pd.DataFrame], weights: Array) -> Array:
    """Return what each person's records add to n and M, in units of the noise."""
    table = pd.concat([each.assign(who=f"p{i}") for i, each in enumerate(persons)])
    read = read_rows(job.columns, table, public, "s", job.privacy.person, MOST)
    found, start = list[Array](), 0
    for each in persons:
        part = read.part(start, start + len(each))
        start += len(each)
        moments = records_moments(part, public.clip)
        n = [float(len(each))] * (len(weights) - len(moments))
        found.append(np.array([*n, *moments]) / np.sqrt(weights))
    return np.array(found)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("persons", [False, True])
def test_no_design_moves_the_moments_by_more_than_the_claim_and_some_by_as_much(
    persons: bool, counted: bool
) -> None:
    """Through the site's own reading, on the grid: records and persons, added and replaced."""
    rng = np.random.default_rng([persons, counted])
    most = {"add": 0.0, "replace": 0.0}
    for _ in range(DESIGNS // 4):
        job = design(rng, persons)
        public, p = public_facts(job, ("a", "b")), len(job.columns)
        assert public.clip is not None and public.clip.whole
        claim: Sensitivity = moments_sensitivity(public.clip, p)
        if counted:
            claim = counted_moments_sensitivity(public.clip, p, 0.05)
        weights, size = np.array(claim.weights, dtype=float), MOST if persons else 1
        tables = [cells(job, rng, int(rng.integers(1, size + 1))) for _ in range(6)]
        tables += [pd.concat([each.head(1)] * size) for each in tables[:3]]
        parts = parts_of(job, public, tables, weights)
        add = float(np.linalg.norm(parts, axis=1).max()) / size
        pair = float(pdist(parts).max()) / size
        assert add <= claim.add and pair <= claim.replace
        most["add"] = max(most["add"], add / claim.add)
        most["replace"] = max(most["replace"], pair / claim.replace)
    assert most["add"] > 0.99
    assert most["replace"] > (0.99 if counted else 0.95)


def test_records_are_shortened_with_their_constant() -> None:
    """The weight of (c, (x - m) / s) is min(1, R^2 / |.|^2), so linear equations stay."""
    job = job_of(PLAIN, expected_records=1000)
    public, k = public_facts(job, ("a", "b")), reach(job)
    x = np.array([0.0, 0.5, -3.0, 10.0])
    read = read_rows(job.columns, pd.DataFrame({"x": x, "y": 50 + 10 * x}), public, "s")
    f = np.column_stack([np.full(4, 0.75), x, x.clip(-5, 5)])
    limit = k * math.sqrt(2 + 0.75**2)
    expected = f * np.minimum(1, limit / np.linalg.norm(f, axis=1))[:, None] / 4
    whole = np.column_stack([read.constants, read.values])
    assert np.abs(whole - expected).max() < 2.0**-15
    assert np.linalg.norm(whole, axis=1).max() <= limit / 4


def test_a_rare_level_is_not_shortened_away() -> None:
    share = {"type": "binary", "typical": 0.001}
    public = public_facts(job_of({"x": PLAIN["x"], "rare": share}), ("a", "b"))
    one = (1 - public.variables[1].midpoint) / public.variables[1].half_range
    assert 0 < one < 1 and public.variables[1].midpoint == pytest.approx(0.001)


@pytest.mark.parametrize(
    "change",
    [
        {"columns": {**PLAIN, "z": {"type": "continuous", "low": 0, "high": 1}}},
        {"columns": {"g": {"type": "categorical", "levels": ["a", "b", "c"]}}},
        {"record_norm": 1.0},
        {
            "method": {
                "name": "gradient",
                "outcome": "y",
                "predictors": ["x"],
                "family": "gaussian",
            },
            "placement": "round",
        },
    ],
)
def test_without_all_typical_ranges_records_are_relative_to_bounds(change: dict[str, Any]) -> None:
    columns, method = change.pop("columns", PLAIN), change.pop("method", {"name": "moments"})
    privacy = {"placement": "sum", "epsilon": 1.0, "delta": 1e-5} | change
    job = parse_job(raw_job(columns=columns, method=method, privacy=privacy))
    public = public_facts(job, ("a", "b"))
    assert reach(job) is None and not public.clip.whole
    assert not any(variable.relative for variable in public.variables)


def test_a_typical_range_that_is_too_narrow_is_an_error() -> None:
    with pytest.raises(JobError) as caught:
        public_facts(job_of({"x": number(-10, 10, 0, 1e-4)}), ("a", "b"))
    assert caught.value.where == "columns.x.typical"


def test_noise_of_one_limit_is_never_used_with_another() -> None:
    """The site's key of a draw depends on all that the limit depends on."""
    tables = {s: pd.DataFrame({"x": [0.0], "y": [50.0]}) for s in "abc"}
    keys, limits = set(), set()
    for expected in (None, 3000, 90_000):
        job = job_of(PLAIN, placement="site", expected_records=expected)
        planned = plan_job(job, tables)
        keys.add(query_digest(job, planned.facts, planned.private))
        limits.add(planned.public.clip.squared_norm)
    assert len(limits) == len(keys) == 3


def test_the_reach_grows_with_the_records_and_falls_with_what_is_protected() -> None:
    """Formula (2): noise in proportion to the sampling error, within limits."""
    of = lambda **privacy: reach(job_of(PLAIN, **{"expected_records": 9000} | privacy))  # noqa: E731
    assert (
        of(epsilon=0.02, expected_records=900) == 1.0
        and of(epsilon=4.0, expected_records=90_000) == 3.0
    )
    assert 1.0 < of(adjacency="replace") <= of() < of(epsilon=2.0) < 3.0
    assert of(placement="site") < of()
    pinned = {"person": "who", "person_pinned": True}
    assert of(**pinned) == of() >= of(person="who") >= of(**pinned, records_per_person=4)
    assert of() > of(**pinned, records_per_person=4)
