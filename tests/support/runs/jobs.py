"""A small job over three sites, as plain data, as tables and as files."""

import copy
from pathlib import Path
from typing import Any

import numpy as np

from secagg.jobs.job import Job, parse_job

COLUMNS: dict[str, dict[str, Any]] = {
    "age": {"type": "continuous", "low": 0, "high": 100, "unit": "years"},
    "sex": {"type": "binary", "levels": ["female", "male"]},
    "grade": {"type": "categorical", "levels": ["low", "mid", "high"]},
}
SITES = ("north", "south", "west")
TOML = """
title = "A small job"

[sites]
folder = "data"
max_rows = 100

[columns]
age = { type = "continuous", low = 0, high = 100, unit = "years" }
sex = { type = "binary", levels = ["female", "male"] }
grade = { type = "categorical", levels = ["low", "mid", "high"] }

[method]
name = "moments"

[protocol]
name = "plain"

[release]
min_sites = 3
min_records = 2
"""

RULES = """
min_sites = 2
min_records = 2
min_level_records = 1
min_cell_records = 1
min_level_sites = 1
max_leverage = 1.0
protocols = ["any"]
[budget]
period_epsilon = 100
period_delta = 1e-3
exact_jobs = "by_rules"
"""
"""A site's own policy that asks for no more than the small job's rules."""


def raw_job(**changed: Any) -> dict[str, Any]:
    """Return the job as plain data, with top-level keys replaced."""
    raw = {
        "title": "A small job",
        "sites": {"max_rows": 100},
        "columns": copy.deepcopy(COLUMNS),
        "method": {"name": "moments"},
        "protocol": {"name": "plain"},
        "release": {"min_sites": 3, "min_records": 2},
    }
    return raw | changed


def small_job(**changed: Any) -> Job:
    """Return the job, validated."""
    return parse_job(raw_job(**changed))


def table(seed: int, rows: int = 12) -> dict[str, np.ndarray]:
    """Return one site's columns. No level is rare, so no record has a large leverage."""
    rng = np.random.default_rng(seed)
    return {
        "age": np.round(rng.uniform(20, 90, rows), 1),
        "sex": rng.permutation(np.resize(["female", "male"], rows)),
        "grade": rng.permutation(np.resize(["low", "mid", "high"], rows)),
    }


def tables(rows: int = 12) -> dict[str, dict[str, np.ndarray]]:
    """Return the columns of every site."""
    return {site: table(i, rows) for i, site in enumerate(SITES)}


def as_csv(columns: dict[str, np.ndarray]) -> str:
    """Return columns as CSV text."""
    lines = [",".join(columns)]
    lines += [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines) + "\n"


def write_job(folder: Path, text: str = TOML) -> Path:
    """Write the job file and its sites' CSV files into `folder`; return the job's path."""
    data = folder / "data"
    data.mkdir(parents=True)
    for site, columns in tables().items():
        (data / f"{site}.csv").write_text(as_csv(columns), encoding="utf-8")
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path
