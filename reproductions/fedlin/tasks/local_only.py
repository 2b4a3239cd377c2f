"""Predictions for FedLin's table 4 from one device's records only: own steps, and the last value.

Units are those of the method: the signal minus its pooled mean over the devices' training records,
in pooled standard deviations; time from 0 to 1 over its public bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from secagg.contracts import Array
from secagg.models.fedlin.gradient_steps import Quadratic


def stepped_errors(
    tables: Mapping[str, pd.DataFrame],
    share: float,
    bounds: tuple[float, float],
    degree: int,
    step: float,
    steps: int,
) -> Array:
    """Return each device's error at its last records, after `steps` gradient steps from 0.

    tables: signal, then time; share: proportion of records that are predicted; bounds: of time
    step: as a share of the largest stable rate
    """
    low, high = bounds
    training, held_out = _split(tables, share)
    signals = np.concatenate([part[:, 0] for part in training])
    mean, sd = signals.mean(), signals.std()

    def design(part: Array) -> tuple[Array, Array]:
        time = (part[:, 1] - low) / (high - low)
        return time[:, None] ** np.arange(degree + 1), (part[:, 0] - mean) / sd

    errors: list[float] = []
    for train, test in zip(training, held_out, strict=True):
        X, y = design(train)
        loss = Quadratic.of(X.T @ X, X.T @ y)
        theta = loss.stepped(np.zeros(degree + 1), step / loss.steepest, steps)
        X, y = design(test)
        errors.append(float(sd * np.sqrt(np.mean((y - X @ theta) ** 2))))
    return np.array(errors)


def last_errors(tables: Mapping[str, pd.DataFrame], share: float) -> Array:
    """Return each device's error when its last training signal predicts all later ones."""
    pairs = zip(*_split(tables, share), strict=True)
    return np.array([np.sqrt(np.mean((test[:, 0] - train[-1, 0]) ** 2)) for train, test in pairs])


def _split(tables: Mapping[str, pd.DataFrame], share: float) -> tuple[list[Array], list[Array]]:
    parts = [tables[name].to_numpy(np.float64) for name in sorted(tables)]
    ends = [len(part) - int(share * len(part)) for part in parts]
    return (
        [part[:end] for part, end in zip(parts, ends, strict=True)],
        [part[end:] for part, end in zip(parts, ends, strict=True)],
    )
