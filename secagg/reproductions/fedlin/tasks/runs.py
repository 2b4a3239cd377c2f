"""Run a FedLin method over devices' records, with every setting that cells rely on written out.

Methods have defaults for their users, which may change. Cells rely on none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from secagg.contracts import Method, Result
from secagg.core.arrays import Array
from secagg.models.fedlin.hm1 import FedLinHm1
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.reproductions.harness.simulated_runs import simulated

Flags = NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)

ROUNDS, STEPS, ALPHA = 30, 20, 0.1  # C, T and alpha of section 5
STEP_SHARE = 0.5  # of eta_k, as a share of the largest stable one
OUTCOME = "y"

PLAIN: dict[str, object] = {  # a regression in the records' own units, as in the simulations
    "outcome": OUTCOME, "predictors": None, "degree": 1, "intercept": "none", "scale": "own",
    "variance": "pooled", "noise_sd": None, "holdout": 0.0, "holdout_rows": "random",
}  # fmt: skip
HM1: dict[str, object] = {
    "name": FedLinHm1.name, "rounds": ROUNDS, "steps": STEPS, "step": STEP_SHARE, "alpha": ALPHA,
    "batch": None, "participation": 1.0, "weight": "posterior", "tolerance": 0.0,
}  # fmt: skip
HM2: dict[str, object] = {  # with the prior N(0, 1) of its example 4.1 for all logarithms
    "name": FedLinHm2.name, "rounds": 60, "participation": 1.0, "tolerance": 0.02,
    "damping": 1.0, "draws": 2000, "points": 0, "rope": 0.0, "mu_mean": 0.0, "mu_sd": 1.0,
    "log_tau_mean": 0.0, "log_tau_sd": 1.0, "log_lambda_mean": 0.0, "log_lambda_sd": 1.0,
    "log_noise_mean": 0.0, "log_noise_sd": 1.0,
}  # fmt: skip

# Public bounds of the simulations' columns; no value comes near them.
_X_BOUND, _Y_BOUND = 10.0, 1000.0


def regressions(
    method: Mapping[str, object],
    X: Sequence[Array],
    y: Sequence[Array],
    seed: int,
    variant: Callable[..., Method] | None = None,
) -> tuple[Result, dict[str, Result]]:
    """Return what a method with the settings PLAIN makes of simulated devices, in their order.

    variant: takes the method's place, with the same settings
    """
    d = X[0].shape[1]
    names = [OUTCOME, *(f"x{j + 1}" for j in range(d))]
    tables = {
        f"device {k:03d}": pd.DataFrame(np.column_stack([v, x]), columns=names)
        for k, (x, v) in enumerate(zip(X, y, strict=True))
    }
    bound = dict.fromkeys(names, _X_BOUND) | {OUTCOME: _Y_BOUND}
    columns = {
        name: {"type": "continuous", "low": -most, "high": most} for name, most in bound.items()
    }
    return simulated({**PLAIN, **method}, columns, tables, seed, variant)


def coefficients(own: Mapping[str, Result], model: str) -> Array:
    """Return the slopes (d, K) of each device by a model, "hm1" say."""
    return _slopes(own, model, np.float64)


def included(own: Mapping[str, Result]) -> Flags:
    """Return which slopes (d, K) each device's posterior includes."""
    return _slopes(own, "included", np.bool_)


def _slopes(own: Mapping[str, Result], key: str, kind: type[T]) -> NDArray[T]:
    kept = [own[name].summary["coefficients"][1:] for name in sorted(own)]  # less the intercept
    return np.array([[row[key] for row in rows] for rows in kept], dtype=kind).T
