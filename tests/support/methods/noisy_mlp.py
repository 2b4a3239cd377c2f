"""Small jobs of `notears_mlp_admm` with noise in every round, and their tables."""

from typing import Any

import numpy as np
import pandas as pd

SMALL = {"hidden": 2, "rounds": 4}
COLUMNS = {
    "x": {"type": "continuous", "low": -5, "high": 5},
    "y": {"type": "continuous", "low": -6, "high": 10},
    "case": {"type": "binary"},
}


def tables(rows: int = 30, seed: int = 0) -> dict[str, pd.DataFrame]:
    """x -> y, not linear; case apart."""
    rng, found = np.random.default_rng([seed, 8]), {}
    for k in range(3):
        x = np.clip(rng.normal(size=rows), -5, 5)
        y = np.clip(3 * np.sin(1.5 * x) + 1 + 0.5 * rng.normal(size=rows), -6, 10)
        found[f"s{k}"] = pd.DataFrame({"x": x, "y": y, "case": rng.integers(0, 2, rows)})
    return found


def job(
    protocol: str = "masked",
    epsilon: float = 8.0,
    privacy: dict[str, Any] | None = None,
    **method: Any,
) -> dict[str, Any]:
    settings = {"placement": "round", "epsilon": epsilon, "delta": 1e-6, **(privacy or {})}
    return {
        "title": "t",
        "sites": {"max_rows": 3000},
        "columns": COLUMNS,
        "method": {"name": "notears_mlp_admm", **SMALL, **method},
        "protocol": {"name": protocol},
        "release": {"min_sites": 3, "min_records": 20},
        "privacy": settings,
    }
