"""Small simulated jobs of every method, to be audited."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

REGRESSION = {"outcome": "z", "predictors": ["x", "y"]}
BINARY = {"outcome": "case", "predictors": ["x", "y"]}
GRAPH = {"variables": ["x", "y", "z"]}
CHAINS = {"rounds": 40, "warmup": 10, "chains": 4}
METHODS: dict[str, dict[str, Any]] = {
    "moments": {"analyses": [{"kind": "ols", **REGRESSION}]},
    "tables": {"columns": [["case", "group"], ["late"]]},
    "logistic": BINARY,
    "poisson": {"outcome": "count", "predictors": ["x", "y"]},
    "one_step": REGRESSION,
    "gradient": {**BINARY, "family": "binomial", "rounds": 20},
    "notears_admm": GRAPH,
    "notears_mlp_admm": {"variables": ["x", "y"], "hidden": 2, "rounds": 12, "seed": 3},
    "local_graphs": {"learner": "notears", **GRAPH},
    "sparse_regression": {**REGRESSION, **CHAINS},
    "sparse_markov": {**GRAPH, **CHAINS},
    "sparse_directed": {"variables": ["x", "y"], **CHAINS, "rounds": 8, "warmup": 2},
    "fedavg": {**REGRESSION, "rounds": 30},
    "fedlin_hm1": REGRESSION,
    "fedlin_hm2": REGRESSION,
    "fedlin_full": {**REGRESSION, "draws": 100},
    "fedlin_full, binomial": {  # `identified_share` runs the method twice for each record's value
        "outcome": "case",
        "predictors": ["x"],
        "rounds": 5,
        "name": "fedlin_full",
        "family": "binomial",
        "intercept": "modelled",
        "draws": 100,
    },
    "torch_module": {**BINARY, "module_settings": {"hidden": [3]}, "rounds": 30},
    "fedngm": {"hidden": [2], "rounds": 30},
    "fedngr": {"hidden": [3], "rounds": 30, "refit_rounds": 30},
}
"""Settings, over the columns of `tables`."""


def tables(sites: int, rows: int = 60, seed: int = 7) -> dict[str, pd.DataFrame]:
    """Return the sites' records: x -> y -> z, with strengths that differ, and other columns."""
    found = {}
    for k in range(sites):
        rng = np.random.default_rng([seed, k])
        x = rng.normal(rng.normal(scale=0.3), rng.uniform(0.7, 1.3), size=rows)
        y = rng.uniform(0.4, 1.2) * x + rng.normal(scale=0.6, size=rows)
        z = rng.uniform(-1.2, -0.4) * y + rng.normal(scale=0.6, size=rows)
        case = (rng.random(rows) < 1 / (1 + np.exp(-x))).astype(int)
        table = pd.DataFrame({"x": x, "y": y, "z": z}).clip(-6, 6)
        count = rng.poisson(np.exp(0.5 + 0.5 * table["x"]))
        group, late = rng.choice(["a", "b", "c"], rows), rng.integers(0, 2, rows)
        found[f"site_{k + 1}"] = table.assign(case=case, count=count, group=group, late=late)
    return found


def job(method: str, protocol: str = "masked", **more: Any) -> dict[str, Any]:
    """Return a job of a method; more: other parts of the job."""
    reals = {c: {"type": "continuous", "low": -6, "high": 6} for c in ("x", "y", "z")}
    columns: dict[str, Any] = {"case": {"type": "binary"}}
    if method == "poisson":
        columns["count"] = {"type": "count", "high": 60}
    if method == "tables":
        columns["group"] = {"type": "categorical", "levels": ["a", "b", "c"]}
        columns["late"] = {"type": "binary"}
    return {
        "title": method,
        "sites": {"max_rows": 1000},
        "columns": {**reals, **columns},
        "method": {"name": method, **METHODS[method]},
        "protocol": {"name": protocol},
        "release": {"min_sites": 3, "min_records": 10},
    } | more
