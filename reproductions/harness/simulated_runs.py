"""Run a method over given tables in one process, reproducibly: how cells run methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from secagg.contracts import Method, Result
from secagg.core.randomness import replayable_random
from secagg.runs.simulate import simulate_sites

Columns = Mapping[str, Mapping[str, object]]


def job_of(
    method: Mapping[str, object], columns: Columns, tables: Mapping[str, pd.DataFrame]
) -> dict[str, Any]:
    """Return the job that runs a method over the sites' tables."""
    return {
        "title": "reproduction",
        "sites": {"max_rows": max(len(table) for table in tables.values())},
        "columns": columns,
        "method": method,
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1},
    }


def simulated(
    method: Mapping[str, object],
    columns: Columns,
    tables: Mapping[str, pd.DataFrame],
    seed: int,
    variant: Callable[..., Method] | None = None,
) -> tuple[Result, dict[str, Result]]:
    """Return a method's result over the sites' tables, and each site's private result.

    variant: a subclass to run in place of the registered method, with the same settings
    """
    job = job_of(method, columns, tables)
    return simulate_sites(job, tables, random=replayable_random(seed), variant=variant)
