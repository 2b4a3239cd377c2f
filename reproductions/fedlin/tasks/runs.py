"""Run a FedLin method over devices' records, with every setting written out.

The methods' defaults are for users and may change, so cells do not rely on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproductions.harness.simulated_runs import simulated
from secagg.contracts import Array, Method, Result

Flags = NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)

ROUNDS, STEPS, ALPHA = 30, 20, 0.1  # C, T and alpha of section 5
STEP_SHARE = 0.5  # eta_k as a share of the largest stable one
OUTCOME = "y"

PLAIN: dict[str, object] = {  # a regression in the records' own units, as in the simulations
    "outcome": OUTCOME, "predictors": None, "degree": 1, "intercept": "none", "scale": "own",
    "variance": "pooled", "noise_sd": None, "holdout": 0.0, "holdout_rows": "random",
}  # fmt: skip
HM1: dict[str, object] = {
    "name": "fedlin_hm1", "rounds": ROUNDS, "steps": STEPS, "step": STEP_SHARE, "alpha": ALPHA,
    "batch": None, "participation": 1.0, "weight": "posterior", "tolerance": 0.0,
}  # fmt: skip
HM2: dict[str, object] = {  # with the prior N(0, 1) of the paper's example 4.1 for all logarithms
    "name": "fedlin_hm2", "rounds": 60, "participation": 1.0, "tolerance": 0.02,
    "damping": 1.0, "draws": 2000, "points": 0, "rope": 0.0, "mu_mean": 0.0, "mu_sd": 1.0,
    "log_tau_mean": 0.0, "log_tau_sd": 1.0, "log_lambda_mean": 0.0, "log_lambda_sd": 1.0,
    "log_noise_mean": 0.0, "log_noise_sd": 1.0,
}  # fmt: skip

# Public bounds of the simulations' columns, far larger than any value.
_X_BOUND, _Y_BOUND = 10.0, 1000.0


def regressions(
    method: Mapping[str, object],
    X: Sequence[Array],
    y: Sequence[Array],
    seed: int,
    variant: Callable[..., Method] | None = None,
) -> tuple[Result, dict[str, Result]]:
    """Return a method's result with the settings PLAIN, and each device's result, in their order.

    variant: a subclass to run in place of the method, with the same settings
    """
    d = X[0].shape[1]
    names = [OUTCOME, *(f"x{j + 1}" for j in range(d))]
    tables = {
        f"device {k:03d}": pd.DataFrame(np.column_stack([v, x]), columns=names)
        for k, (x, v) in enumerate(zip(X, y, strict=True))
    }
    bound = dict.fromkeys(names, _X_BOUND) | {OUTCOME: _Y_BOUND}
    columns = {
        name: {"type": "continuous", "low": -high, "high": high} for name, high in bound.items()
    }
    return simulated({**PLAIN, **method}, columns, tables, seed, variant)


def coefficients(own: Mapping[str, Result], model: str) -> Array:
    """Return the slopes (d, K) of each device in a model, for example "hm1"."""
    return _slopes(own, model, np.float64)


def included(own: Mapping[str, Result]) -> Flags:
    """Return which slopes (d, K) each device's posterior includes."""
    return _slopes(own, "included", np.bool_)


def _slopes(own: Mapping[str, Result], key: str, kind: type[T]) -> NDArray[T]:
    slopes = [own[name].summary["coefficients"][1:] for name in sorted(own)]  # no intercept
    return np.array([[row[key] for row in rows] for rows in slopes], dtype=kind).T
