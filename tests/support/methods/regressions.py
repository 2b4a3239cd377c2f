"""Every regression by Newton's method: settings, the columns it wants, and its oracle.

All tests of a family are parametrised by `REGRESSIONS`, and the contract tests by the settings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Regression:
    """A method with settings over the columns x, y, z, case and `COLUMNS`.

    oracle: from statsmodels.api to its family
    """

    settings: dict[str, Any]
    oracle: Callable[[Any], Any]


REGRESSIONS = {
    "logistic": Regression(
        {"outcome": "case", "predictors": ["x"]}, lambda sm: sm.families.Binomial()
    ),
    "poisson": Regression(
        {"outcome": "count", "predictors": ["x"], "exposure": "time"},
        lambda sm: sm.families.Poisson(),
    ),
}
COLUMNS: dict[str, dict[str, Any]] = {
    "count": {"type": "count", "high": 60},
    "time": {"type": "continuous", "low": 0.25, "high": 8.0, "unit": "years"},
    "cost": {"type": "continuous", "low": 0.001, "high": 400.0, "unit": "EUR"},
}
"""Declarations of further outcomes and of an exposure. A job declares those that it names."""


def columns_of(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the declarations of `COLUMNS` that a method's settings name."""
    named = {name for value in settings.values() if isinstance(value, str) for name in [value]}
    return {name: column for name, column in COLUMNS.items() if name in named}


def with_outcomes(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return a table with `COLUMNS`, whose means are exp(0.3 + x / 2)."""
    rng = np.random.default_rng([11, seed])
    mean = np.exp(0.3 + 0.5 * table["x"].to_numpy())
    time = rng.uniform(0.5, 4, len(table))
    made = {"count": rng.poisson(mean * time), "time": time, "cost": rng.gamma(2, mean / 2)}
    return table.assign(**made)
