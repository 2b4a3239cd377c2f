"""A method over tables at hand, as cells run it: the same whenever it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.contracts import Result
from secagg.core.randomness import expanded
from secagg.jobs.data_sources import Data
from secagg.runs.simulate import simulate_sites

Columns = Mapping[str, Mapping[str, object]]


def simulated(
    method: Mapping[str, object], columns: Columns, data: Data, seed: int
) -> tuple[Result, dict[str, Result]]:
    """Return a method's result over these sites' tables, and what each site keeps to itself."""
    job: dict[str, Any] = {
        "title": "reproduction",
        "sites": {"max_rows": max(len(table) for table in data.values())},
        "columns": columns,
        "method": method,
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1},
    }
    return simulate_sites(job, data, random=expanded(seed.to_bytes(32, "little")))
