"""Cells of FedLin's table 3: schools or counties as devices, 40 % of each one's records held out.

Yue, Al Kontar and Estrada Gomez (2022), section 6.1, on public records, or on the paper's own file
("students"). The seed draws the records that are held out. The unit of errors is the outcome's
standard deviation within devices in the training records.

All results come from the package's methods. "Centralised" is HM2 with all records at one device
(and a second device without records, since the method needs two): the Bayesian lasso or ridge of
the pooled records. Ditto's lambda is 1 and HM1's alpha 0.1; neither is chosen by validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from reproductions.data import fedlin
from reproductions.fedlin.tasks.runs import HM1, HM2, STEP_SHARE, STEPS, included
from reproductions.harness.simulated_runs import simulated
from secagg.contracts import Result
from secagg.experiments.runner.types import CONVERGED, Settings

TESTED = 0.4
_OTHERS = {"site_ols": "separate", "mean_only": "nothing"}
"""Names in the tables for the predictions that come with a method's own."""
ROUNDS = 100
LAMBDA = 1.0
LEVEL = 0.9
NEAR_PRIOR = {"log_tau_mean": -3.0, "log_tau_sd": 2.0}  # prior "near": devices may be nearly equal


@dataclass(frozen=True)
class Source:
    """outcome: column; intercept: as in a job; low, high: public bounds of every column"""

    outcome: str
    intercept: str
    low: float
    high: float


SOURCES = {
    "tests": Source("arithmet", "site", -400.0, 400.0),
    "exams": Source("score", "modelled", -5.0, 5.0),
    "radon": Source("radon", "modelled", -5.0, 5.0),
    "students": Source(fedlin.GRADE, "site", -100.0, 100.0),
}


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the A-RMSE of "METHOD" and of the predictions that come with it.

    HM2 also gives the number of predictors "included": the mean over devices, and those of the
    "first" and "second" device.

    Settings: data (for "students" with folder and digest), method, seed. method: "hm1", "ditto"
    (which comes with "fedavg"), "hm2-PRIOR" (PRIOR "near" is a normal prior), or
    "hm2-PRIOR-pooled" with all records at one device.
    """
    kind, name, seed = str(settings["data"]), str(settings["method"]), int(settings["seed"])
    source = SOURCES[kind]
    tables, share = _shuffled(_tables(kind, str(settings.get("folder", ""))), seed), TESTED
    unit = _deviation(tables, source.outcome)
    if name.endswith("-pooled"):
        tables, share = _pooled(tables)
    columns = {
        column: {"type": "continuous", "low": source.low, "high": source.high}
        for column in next(iter(tables.values())).columns
    }
    method = {
        **_method(name.removesuffix("-pooled")), "outcome": source.outcome, "predictors": None,
        "degree": 1, "intercept": source.intercept, "scale": "pooled", "variance": "pooled",
        "noise_sd": None, "holdout": share, "holdout_rows": "last",
    }  # fmt: skip
    result, own = simulated(method, columns, tables, seed)
    converged = {CONVERGED: float(result.summary.get("converged", True))}
    errors = {
        _OTHERS.get(str(row["model"]), str(row["model"])): row["mean_site_rmse"] / unit
        for row in result.summary["errors"]
    }
    own_error = {"error": errors.pop(name.partition("-")[0])}
    counts = _counts(own) if name.startswith("hm2") else {}
    others = {other: {"error": error, CONVERGED: 1.0} for other, error in errors.items()}
    return {name: own_error | counts | converged} | others


def _method(name: str) -> dict[str, object]:
    if name == "hm1":
        return dict(HM1)
    if name == "ditto":
        return {
            "name": "fedavg", "rounds": ROUNDS, "steps": STEPS, "step": STEP_SHARE, "batch":
            None, "participation": 1.0, "tolerance": 0.0, "weights": "records", "personal": LAMBDA,
        }  # fmt: skip
    prior = name.removeprefix("hm2-")
    if prior == "near":
        return {**HM2, **NEAR_PRIOR, "prior": "normal", "level": LEVEL}
    return {**HM2, "prior": prior, "level": LEVEL}


def _tables(kind: str, folder: str) -> fedlin.Tables:
    match kind:
        case "tests":
            return fedlin.tests()
        case "exams":
            return fedlin.exams()
        case "radon":
            return fedlin.radon()
        case _:
            return fedlin.students(Path(folder))


def _shuffled(tables: fedlin.Tables, seed: int) -> fedlin.Tables:
    """Return each device's records in random order; the last ones are held out."""
    rng = np.random.default_rng(seed)
    return {name: part.iloc[rng.permutation(len(part))] for name, part in tables.items()}


def _training_size(part: pd.DataFrame) -> int:
    return len(part) - int(TESTED * len(part))


def _deviation(tables: fedlin.Tables, outcome: str) -> float:
    """Return the outcome's standard deviation within devices in the training records."""
    parts = [part[outcome].to_numpy()[: _training_size(part)] for part in tables.values()]
    return float(np.sqrt(np.mean(np.concatenate([part - part.mean() for part in parts]) ** 2)))


def _pooled(tables: fedlin.Tables) -> tuple[fedlin.Tables, float]:
    """Return a device with all records (held-out last) and an empty one; and the held-out share."""
    training = [part.iloc[: _training_size(part)] for part in tables.values()]
    held_out = [part.iloc[_training_size(part) :] for part in tables.values()]
    pooled = pd.concat(training + held_out)
    share = (sum(map(len, held_out)) + 0.5) / len(pooled)  # 0.5 because the product is rounded down
    return {"all": pooled, "none": pooled.iloc[:0]}, share


def _counts(own: Mapping[str, Result]) -> dict[str, float]:
    """Return the numbers of predictors included, over devices with records."""
    devices = {name: each for name, each in own.items() if each.summary["records_here"]}
    counts = included(devices).sum(axis=0).astype(np.float64).tolist()
    by_device = dict(zip(("first", "second"), counts, strict=False)) if len(devices) <= 2 else {}
    return {"included": float(np.mean(counts))} | by_device
