"""What devices of FedLin's table 4 can do without any other: their own steps, and the last value.

Units are those of the method: the signal less its pooled mean over the devices' training records,
in pooled standard deviations; time from 0 to 1 over its public bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from secagg.core.arrays import Array
from secagg.models.fedlin.gradient_steps import Quadratic


def stepped_errors(
    tables: Mapping[str, pd.DataFrame],
    share: float,
    bounds: tuple[float, float],
    degree: int,
    step: float,
    steps: int,
) -> Array:
    """Return each device's error at its last records, after so many gradient steps from 0.

    tables: signal, then time; share: of the records that are predicted; bounds: of time
    step: of the largest stable rate
    """
    low, high = bounds
    learned, after = _parted(tables, share)
    signals = np.concatenate([part[:, 0] for part in learned])
    mean, sd = signals.mean(), signals.std()

    def design(part: Array) -> tuple[Array, Array]:
        time = (part[:, 1] - low) / (high - low)
        return time[:, None] ** np.arange(degree + 1), (part[:, 0] - mean) / sd

    found: list[float] = []
    for here, there in zip(learned, after, strict=True):
        X, y = design(here)
        shape = Quadratic.of(X.T @ X, X.T @ y)
        theta = shape.stepped(np.zeros(degree + 1), step / shape.steepest, steps)
        X, y = design(there)
        found.append(float(sd * np.sqrt(np.mean((y - X @ theta) ** 2))))
    return np.array(found)


def last_errors(tables: Mapping[str, pd.DataFrame], share: float) -> Array:
    """Return each device's error of its last signal learned from, taken for all that follow."""
    pairs = zip(*_parted(tables, share), strict=True)
    return np.array([np.sqrt(np.mean((after[:, 0] - here[-1, 0]) ** 2)) for here, after in pairs])


def _parted(tables: Mapping[str, pd.DataFrame], share: float) -> tuple[list[Array], list[Array]]:
    parts = [tables[name].to_numpy(np.float64) for name in sorted(tables)]
    held = [int(share * len(part)) for part in parts]
    ends = [len(part) - many for part, many in zip(parts, held, strict=True)]
    return (
        [part[:end] for part, end in zip(parts, ends, strict=True)],
        [part[end:] for part, end in zip(parts, ends, strict=True)],
    )
