"""Plans of one-step regressions, and simulated records for them."""

from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import SiteRecords
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.sessions.planned_job import Planned, plan_job

COLUMNS: dict[str, Any] = {
    **{c: {"type": "continuous", "low": -5, "high": 5, "typical": [-1, 1]} for c in "aby"},
    "case": {"type": "binary", "typical": 0.45},
    "visits": {"type": "count", "high": 200, "typical": [0, 5]},
    "years": {"type": "continuous", "low": 0.2, "high": 5, "typical": [0.5, 2.0]},
}
OUTCOMES = {"gaussian": "y", "binomial": "case", "poisson": "visits"}


def job(
    family: str, *, noised: bool = True, epsilon: float = 1.0, centre: str = "pooled",
    protocol: str = "masked", **privacy: Any,
) -> dict[str, Any]:  # fmt: skip
    outcome = OUTCOMES[family]
    found: dict[str, Any] = {
        "title": "One step",
        "sites": {"max_rows": 5000},
        "columns": {name: COLUMNS[name] for name in ("a", "b", outcome)},
        "method": {"name": "one_step", "family": family, "outcome": outcome,
                   "predictors": ["a", "b"], "centre": centre},
        "protocol": {"name": protocol},
        "release": {"min_sites": 3, "min_records": 10},
    }  # fmt: skip
    if family == "poisson":
        found["columns"]["years"] = COLUMNS["years"]
        found["method"]["exposure"] = "years"
    if noised:
        terms = {"placement": "round", "epsilon": epsilon, "delta": 1e-5}
        found["privacy"] = {**terms, "expected_records": 1500, **privacy}
    return found


def planned_regression(family: str, sites: int = 3, **settings: Any) -> Planned:
    return planned_job(job(family, **settings), sites)


def planned_job(raw: dict[str, Any], sites: int = 3) -> Planned:
    empty = pd.DataFrame(columns=["a", "b", *OUTCOMES.values(), "years"], dtype=object)
    return plan_job(parse_job(raw), {f"s{k}": empty for k in range(sites)})


def rows_of(planned: Planned, table: pd.DataFrame) -> SiteRecords:
    return read_rows(planned.job.columns, table, planned.public, "s0")


def shifted(sites: int, count: int, rng: np.random.Generator) -> list[pd.DataFrame]:
    """Return sites at which outcome and a predictor have other levels: the slopes within sites are
    .3 and -.2 (log odds .6 and -.4), and that of all records together has the other sign."""
    found = []
    for k in range(sites):
        level = 3.2 * (k / (sites - 1) - 0.5)
        a, b = rng.normal(size=count) + level, rng.normal(size=count)
        y = 0.3 * a - 0.2 * b - 0.8 * level + rng.normal(size=count)
        p = 1 / (1 + np.exp(-(0.6 * a - 0.4 * b - 1.2 * level)))
        table = pd.DataFrame({"a": a, "b": b, "y": y}).clip(-5, 5)
        found.append(table.assign(case=(rng.random(count) < p).astype(int)))
    return found
