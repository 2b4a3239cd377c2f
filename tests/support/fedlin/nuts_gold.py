"""HM2 on real records beside NUTS's posteriors, oracles/fedlin_gold.json.

benchmarks/methods/fedlin_tables.py prints both as tables.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.runs.checkout import ROOT

from reproductions.data import fedlin
from secagg.core.randomness import replayable_random
from secagg.runs.simulate import simulate_sites

Array = NDArray[np.float64]

GOLD: dict[str, Any] = json.loads((ROOT / "tests" / "oracles" / "fedlin_gold.json").read_text())
DRAWS, POINTS, SEED = 4000, 1024, 1


@dataclass(frozen=True)
class Beside:
    """How far means are apart, in NUTS's sds, and sds, as logarithms of their ratios; both with
    their Monte Carlo errors, NUTS's and ours. mean, sd: ours
    """

    mean: Array
    sd: Array
    apart: Array
    error: Array
    wider: Array
    error_of_wider: Array

    @classmethod
    def of(cls, mean: Array, sd: Array, error: Array, many: float, told: dict[str, Any]) -> Beside:
        """error: of our mean; many: our draws, or infinity; told: NUTS's"""
        theirs = {name: np.array(values) for name, values in told.items()}
        scale = theirs["sd"]
        return cls(
            mean,
            sd,
            (mean - theirs["mean"]) / scale,
            np.hypot(error, theirs["error_of_mean"]) / scale,
            np.log(sd / scale),
            # Draws have heavier tails than normal ones: up to a kurtosis of 5, 1 / many holds.
            np.hypot(many**-0.5, theirs["error_of_sd"] / scale),
        )


@dataclass(frozen=True)
class Compared:
    """phi: shape (2 d,); sites: (sites, 1 + slopes); noise: its sd, in the units analysed"""

    phi: Beside
    sites: Beside
    noise: float
    rounds: int
    seconds: float


def job(name: str, **changed: object) -> dict[str, Any]:
    """Return the job of a case."""
    case = GOLD["cases"][name]
    columns: list[str] = case["columns"]
    centre, spread = case["prior"]
    return {
        "title": name,
        "sites": {"max_rows": 200},
        "columns": {c: {"type": "continuous", "low": -5.0, "high": 5.0} for c in columns},
        "release": {"min_sites": 2, "min_records": 1},
        "method": {
            "name": "fedlin_hm2", "outcome": columns[0], "intercept": "modelled",
            "log_tau_mean": centre, "log_tau_sd": spread, "draws": DRAWS, **changed,
        },
        "protocol": {"name": "plain"},
    }  # fmt: skip


def compared(name: str, **changed: object) -> Compared:
    """Run HM2 on the records of a case, and set it beside NUTS; changed: settings."""
    case, began = GOLD["cases"][name], time.process_time()
    tables = {
        site: table[case["columns"]] for site, table in getattr(fedlin, case["data"])().items()
    }
    result, own = simulate_sites(job(name, **changed), tables, random=replayable_random(SEED))
    seconds = time.process_time() - began
    assert result.summary["converged"]
    assert [row["component"] for row in result.summary["shared"]] == case["components"]
    mean, cov = result.arrays["shared_mean"], result.arrays["shared_covariance"]
    sd, points = np.sqrt(np.diagonal(cov)), result.summary.get("points")
    error, many = (points["error"] * sd, points["effective"]) if points else (0 * sd, np.inf)
    phi = Beside.of(mean, sd, error, many, case["phi"])
    rows = [own[site].summary["coefficients"] for site in case["sites"]]
    found = {key: np.array([[row[key] for row in each] for each in rows]) for key in ("mean", "sd")}
    # Draws are independent, but of candidates: their error is a little larger than 1 / sqrt(DRAWS).
    error = 1.15 * found["sd"] / np.sqrt(DRAWS)
    sites = Beside.of(found["mean"], found["sd"], error, DRAWS, case["theta"])
    noise = float(result.summary["noise_sd"] / result.summary["outcome_deviation"])
    return Compared(phi, sites, noise, int(result.summary["rounds"]), seconds)
