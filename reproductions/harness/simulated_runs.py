"""Run a method over given tables in one process, reproducibly: how cells run methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from secagg.contracts import Method, Result
from secagg.core.randomness import seeded_random
from secagg.jobs.data_sources import Data
from secagg.jobs.job import parse_job
from secagg.jobs.registry import settings_of
from secagg.runs.simulate import simulate_planned
from secagg.sessions.planned_job import plan_job

Columns = Mapping[str, Mapping[str, object]]


def simulated(
    method: Mapping[str, object],
    columns: Columns,
    data: Data,
    seed: int,
    variant: Callable[..., Method] | None = None,
) -> tuple[Result, dict[str, Result]]:
    """Return a method's result over the sites' tables, and each site's private result.

    variant: a subclass to run in place of the registered method, with the same settings and stages
    """
    job: dict[str, Any] = {
        "title": "reproduction",
        "sites": {"max_rows": max(len(table) for table in data.values())},
        "columns": columns,
        "method": method,
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1},
    }
    planned = plan_job(parse_job(job), data)
    if variant is not None:
        planned = replace(planned, method=variant(**settings_of(planned.method)))
    return simulate_planned(planned, random=seeded_random(seed.to_bytes(32, "little")))
