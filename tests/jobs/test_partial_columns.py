"""Columns that only some sites have: what a job may say of them, and that no sum has them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from secagg.errors import JobError
from secagg.jobs.job import parse_job
from secagg.jobs.partial_columns import columns_here
from secagg.sessions.planned_job import plan_job

NUMBER = {"type": "continuous", "low": 0, "high": 10}
TABLES = {
    name: pd.DataFrame({"x": np.arange(6.0), "y": np.arange(6.0) % 3}) for name in ("a", "b", "c")
}


def job(partial: dict[str, Any], **method: Any) -> dict[str, Any]:
    return {
        "title": "Lacking",
        "sites": {"max_rows": 20},
        "columns": {"x": NUMBER, "y": NUMBER},
        "partial": partial,
        "method": {"name": "moments", **method},
        "release": {"min_sites": 2, "min_records": 1},
    }


def of(*sites: str) -> dict[str, Any]:
    return {"column": NUMBER, "sites": list(sites)}


def test_no_sum_has_them_and_sites_that_lack_them_take_part() -> None:
    tables = TABLES | {"a": TABLES["a"].assign(z=1.0)}
    with_z = plan_job(parse_job(job({"z": of("a")})), tables)
    without = plan_job(parse_job(job({})), tables)
    assert with_z.public == without.public
    assert {n: s.spec for n, s in with_z.plans.stages.items()} == {
        n: s.spec for n, s in without.plans.stages.items()
    }


def test_the_parties_agree_on_them_and_a_job_without_is_as_before() -> None:
    agreed = parse_job(job({"z": of("a")})).agreed
    assert agreed["partial"]["z"]["sites"] == ["a"]
    assert parse_job(agreed).agreed == agreed
    assert "partial" not in parse_job(job({})).agreed


def test_a_site_finds_those_that_its_table_has() -> None:
    parsed = parse_job(job({"z": of("a"), "w": of("a", "b")}))
    assert list(columns_here(parsed, ["x", "y", "z"])) == ["z"]
    with pytest.raises(JobError) as caught:
        columns_here(parsed, ["x", "y"])
    assert caught.value.where == "partial"


@pytest.mark.parametrize(
    ("partial", "method", "where"),
    [
        ({"x": of("a")}, {}, "partial.x"),
        ({"z": of("d")}, {}, "partial.z.sites"),
        ({"z": of("a", "b", "c")}, {}, "partial.z"),
        ({"z": of("a")}, {"variables": ["x", "z"]}, "method"),
        ({"z": of("a")}, {"analyses": [{"kind": "ols", "outcome": "z"}]}, "method"),
    ],
)
def test_what_a_job_cannot_say(partial: dict[str, Any], method: dict[str, Any], where: str) -> None:
    with pytest.raises(JobError) as caught:
        plan_job(parse_job(job(partial, **method)), TABLES)
    assert caught.value.where == where and caught.value.advice


def test_a_column_of_no_site_is_refused() -> None:
    with pytest.raises(JobError):
        parse_job(job({"z": of()}))
