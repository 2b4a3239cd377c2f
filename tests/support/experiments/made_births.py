"""A small table of made births, and how the tasks of FedNGM's tables use it."""

from typing import Any

import numpy as np
import pandas as pd

from reproductions.data.births import Births
from reproductions.fedngm.tasks.records import Study

COLUMNS: dict[str, dict[str, Any]] = {
    "weeks": {"type": "continuous", "low": 20, "high": 46},
    "weight": {"type": "continuous", "low": 0, "high": 14},
    "smoke": {"type": "binary"},
    "kind": {"type": "categorical", "levels": ["a", "b", "c"]},
}


def made_study(records: int = 400, sizes: tuple[int, int, int] = (90, 100, 200)) -> Study:
    """Return a study: weeks drive weight, and weight drives smoke and kind."""
    rng = np.random.default_rng(3)
    weeks = np.clip(rng.normal(38, 2.5, records), 21, 45)
    weight = np.clip(7 + 0.35 * (weeks - 38) + rng.normal(0, 0.8, records), 1, 13)
    smoke = (rng.random(records) < 1 / (1 + np.exp(2 * (weight - 6)))).astype(int)
    noisy = np.clip(np.round(weight - 6 + rng.normal(0, 0.7, records)), 0, 2).astype(int)
    table = pd.DataFrame(
        {"weeks": weeks, "weight": weight, "smoke": smoke, "kind": np.array(list("abc"))[noisy]}
    )
    kinds = {
        "site1": ("light", lambda t: t["weight"] < 7),
        "site2": ("late", lambda t: t["weeks"] > 39),
        "site3": ("smokers", lambda t: t["smoke"] == 1),
    }
    births = Births(table, COLUMNS, kinds)
    return Study(births, *sizes, "weeks", "weight", 453.59237, ("smoke", ("1",)), "kind")
