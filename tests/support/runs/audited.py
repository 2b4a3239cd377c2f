"""Simulated sites and jobs to audit."""

from typing import Any

import numpy as np
import pandas as pd

from secagg.audits.audit import Attacked, audit_job
from secagg.audits.catalogue import make_attacks

HALF = 4.0


def tables(sites: int, d: int, rows: int = 30, seed: int = 3) -> dict[str, pd.DataFrame]:
    rng, found = np.random.default_rng(seed), {}
    for k in range(sites):
        values = rng.normal(size=(rows, d)) @ rng.normal(size=(d, d)) * 0.3
        found[f"s{k}"] = pd.DataFrame(values, columns=[f"x{j}" for j in range(d)]).clip(-HALF, HALF)
    return found


def job(method: dict[str, Any], d: int, protocol: str = "masked", **more: Any) -> dict[str, Any]:
    column = {"type": "continuous", "low": -HALF, "high": HALF}
    return {
        "title": "Audited",
        "sites": {"max_rows": 2000},
        "columns": {f"x{j}": column for j in range(d)},
        "method": method,
        "protocol": {"name": protocol},
        "release": {"min_sites": 2, "min_records": 5},
    } | more


def attacked(data: dict[str, pd.DataFrame], name: str, *args: Any, **more: Any) -> Attacked:
    """Run one attack on the first of its views."""
    (attack,), d = make_attacks([name]), len(data["s0"].columns)
    audit = audit_job(job(*args, d=d, **more), data, attacks=[name], views=attack.views[:1])
    (found,) = audit.attacked
    return found
