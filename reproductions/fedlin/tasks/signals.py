"""Cells of FedLin's table 4: degradation signals, predicted from their first 60 %.

Yue, Al Kontar and Estrada Gomez (2022), section 6.2. Device k has one signal, modelled as a
polynomial of time. Its first 60 % of records are for training, and the last 40 % are predicted.
Public bounds and pooled training statistics scale time and signal. A signal's own extremes are
never used, since they may lie in the last 40 %.

Degree, alpha and lambda are chosen by validation *within* the training part, on a fifth of it:
drawn at random as in the paper ("random"), or its end ("last"), which resembles the final
prediction task. The chosen model is then fitted to the full training part. Step sizes are not
chosen: each device has its own (`fedlin_hm1`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reproductions.data import fedlin
from reproductions.fedlin.tasks import local_only
from reproductions.fedlin.tasks.runs import HM1, STEP_SHARE, STEPS
from reproductions.harness.simulated_runs import simulated
from secagg.contracts import Array, Result
from secagg.experiments.runner.types import CONVERGED, Settings

TESTED, VALIDATED = 0.4, 0.2
ROUNDS = 100  # C of section 6.2
DEGREES = (1, 2, 3, 4)
ALPHAS = (0.1, 0.5, 0.9)
PAPER_ALPHA = 0.9
LAMBDAS = (0.01, 0.1, 1.0, 10.0)

SENSORS = {  # of the engines, with wide public bounds
    2: (600.0, 700.0),
    3: (1500.0, 1700.0),
    7: (500.0, 600.0),
    8: (2300.0, 2500.0),
}
CAPACITY = (0.0, 2.5)  # Ah; the rated capacity is 2
CYCLES = {"batteries": (0.0, 200.0), "engines": (0.0, 400.0)}

POLYNOMIAL: dict[str, object] = {
    "predictors": ["cycle"], "intercept": "modelled", "scale": "pooled", "variance": "pooled",
    "noise_sd": None,
}  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """A method with one choice of degree, alpha and lambda.

    model: its name among the predictions; empty for separate steps, which have no settings
    """

    model: str
    degree: int
    settings: Mapping[str, object]


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return each method's A-RMSE ("error", in the signal's unit) and chosen "degree".

    "less" is the mean over devices of the difference between its error and that of least squares,
    "less_error" the standard error of that mean.

    Settings: data ("batteries", or "engines" with folder, sensor and the file's digest), validation
    ("random" or "last"), seed.
    """
    kind, seed = str(settings["data"]), int(settings["seed"])
    if kind == "batteries":
        tables, bounds = fedlin.batteries(), CAPACITY
    else:
        sensor = int(settings["sensor"])
        tables = fedlin.engines(Path(str(settings["folder"])), sensor)
        bounds = SENSORS[sensor]
    outcome = next(iter(tables.values())).columns[0]
    columns = {
        name: {"type": "continuous", "low": low, "high": high}
        for name, (low, high) in ((outcome, bounds), ("cycle", CYCLES[kind]))
    }
    training = {name: part[: len(part) - int(TESTED * len(part))] for name, part in tables.items()}
    validation = _validation(training, str(settings["validation"]), seed)

    def by_method(each: Candidate, parts: fedlin.Tables, share: float) -> Array:
        method = {**each.settings, "outcome": outcome, "holdout": share, "holdout_rows": "last"}
        _, own = simulated(method, columns, parts, seed)
        return np.array([_held_out_error(own[name], each.model) for name in sorted(own)])

    def by_steps(each: Candidate, parts: fedlin.Tables, share: float) -> Array:
        bounds = CYCLES[kind]
        return local_only.stepped_errors(
            parts, share, bounds, each.degree, STEP_SHARE, STEPS * ROUNDS
        )

    errors, degrees = dict[str, Array](), dict[str, float]()
    for name, candidates in _candidates().items():
        evaluate = by_steps if name == "separate-steps" else by_method
        validated = [evaluate(each, validation, VALIDATED).mean() for each in candidates]
        best = candidates[int(np.argmin(validated))]
        errors[name] = evaluate(best, tables, TESTED)
        degrees[name] = float(best.degree)
    errors["last"] = local_only.last_errors(tables, TESTED)
    return {
        name: {
            "error": float(each.mean()),
            "less": float(np.mean(each - errors["separate"])),
            "less_error": float(np.std(each - errors["separate"], ddof=1) / np.sqrt(len(each))),
            CONVERGED: 1.0,
        }
        | ({"degree": degrees[name]} if name in degrees else {})
        for name, each in errors.items()
    }


def _validation(training: fedlin.Tables, rule: str, seed: int) -> fedlin.Tables:
    """Return the training records, ordered so that the last ones are for validation."""
    if rule == "last":
        return training
    rng = np.random.default_rng(seed)
    return {name: training[name].iloc[rng.permutation(len(training[name]))] for name in training}


def _held_out_error(own: Result, model: str) -> float:
    [row] = [row for row in own.summary["errors"] if row["model"] == model]
    return float(row["held_rmse"])


def _candidates() -> dict[str, list[Candidate]]:
    """Return the candidates of each method."""
    hm1 = {**HM1, "rounds": ROUNDS, "alpha": PAPER_ALPHA}

    def over_degrees(model: str, *choices: Mapping[str, object]) -> list[Candidate]:
        return [
            Candidate(model, degree, {**POLYNOMIAL, "degree": degree, **each})
            for degree in DEGREES
            for each in choices
        ]

    return {
        "hm1": over_degrees("hm1", hm1),
        "hm1-alpha": over_degrees("hm1", *({**hm1, "alpha": alpha} for alpha in ALPHAS)),
        "separate": over_degrees("site_ols", _fedavg(None, 1)),
        "separate-steps": over_degrees("", {}),
        "fedavg": over_degrees("fedavg", _fedavg(None, ROUNDS)),
        "ditto": over_degrees("ditto", *(_fedavg(each, ROUNDS) for each in LAMBDAS)),
    }


def _fedavg(personal: float | None, rounds: int) -> dict[str, object]:
    """Return FedAvg's settings; devices have equal weights, as in the paper."""
    return {
        "name": "fedavg", "rounds": rounds, "steps": STEPS, "step": STEP_SHARE, "batch": None,
        "participation": 1.0, "tolerance": 0.0, "weights": "equal", "personal": personal,
    }  # fmt: skip
