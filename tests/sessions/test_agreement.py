"""What the parties agree on is the same on every computer; anything else changes it."""

import csv
from pathlib import Path
from typing import Any

import pytest

from secagg.jobs.job import Job, parse_job
from secagg.sessions.planned_job import agreement, plan_job
from secagg.sessions.session_ledgers import job_digest

BASE: dict[str, Any] = {
    "title": "t",
    "sites": {"max_rows": 100},
    "columns": {"x": {"type": "continuous", "low": 0, "high": 1}},
    "method": {"name": "moments"},
    "release": {"min_sites": 2, "min_records": 5},
}


def job(folder: Path, **changes: Any) -> Job:
    """Return the job over the sites a and b in this folder, with changed tables."""
    for site in "ab":
        folder.mkdir(exist_ok=True)
        with (folder / f"{site}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["x"], *([i / 10] for i in range(10))])
    raw = {**BASE, **changes}
    return parse_job(raw | {"sites": {**raw["sites"], "folder": str(folder)}})


def table(path: Path) -> Job:
    with path.open("w", newline="") as file:
        rows = [["x", "where"], *([i / 10, "ab"[i % 2]] for i in range(10))]
        csv.writer(file).writerows(rows)
    sites = {"max_rows": 100, "table": str(path), "site_column": "where"}
    return parse_job({**BASE, "sites": sites})


def test_folders_and_engine_are_not_agreed(tmp_path: Path) -> None:
    one = job(tmp_path / "one")
    others = [
        job(tmp_path / "two"),
        job(tmp_path / "one", sites={"max_rows": 100, "ledgers": str(tmp_path / "elsewhere")}),
        job(tmp_path / "one", engine={"name": "processes", "deadline": 5}),
        table(tmp_path / "both.csv"),
    ]
    for other in others:
        assert other.local != one.local
        assert agreement(plan_job(other)) == agreement(plan_job(one))
        assert job_digest(other) == job_digest(one)


@pytest.mark.parametrize(
    "changes",
    [
        {"title": "another"},
        {"sites": {"max_rows": 101}},
        {"sites": {"max_rows": 100, "names": ["a", "b"]}},
        {"columns": {"x": {"type": "continuous", "low": 0, "high": 2}}},
        {"method": {"name": "moments", "fraction_bits": 60}},
        {"protocol": {"name": "masked"}},
        {"release": {"min_sites": 2, "min_records": 6}},
        {"privacy": {"placement": "site", "epsilon": 1, "delta": 1e-5, "record_norm": 1}},
        {"simulation": {"site_alone": True}},
    ],
)
def test_everything_else_is(tmp_path: Path, changes: dict[str, Any]) -> None:
    one, other = job(tmp_path / "one"), job(tmp_path / "one", **changes)
    assert agreement(plan_job(one)) != agreement(plan_job(other))
    assert job_digest(one) != job_digest(other)


def test_job_is_its_agreed_and_its_local_part(tmp_path: Path) -> None:
    one = job(tmp_path / "one", engine={"name": "processes"})
    sites = one.agreed["sites"] | one.local["sites"]
    assert Job.model_validate({**one.agreed, **one.local, "sites": sites}) == one
