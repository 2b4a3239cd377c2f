"""The exact minimum of a smooth function of W with an l1 penalty, for tests of graph learners."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from secagg.models.numerics.lbfgs import FinitePoint, minimise_finite


def exact_minimum(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    penalty: float,
    free: np.ndarray | None = None,
) -> FinitePoint:
    """Return it to the rounding of the objective, over the free entries, all but the diagonal."""
    free = ~np.eye(len(start), dtype=bool) if free is None else free

    def join(x: np.ndarray) -> np.ndarray:
        W = np.zeros_like(start)
        W[free] = np.subtract(*np.split(x, 2))
        return W

    def penalised(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective(join(x))
        slope = gradient[free]
        return value + penalty * float(x.sum()), np.concatenate([slope, -slope]) + penalty

    first = np.maximum(np.concatenate([start[free], -start[free]]), 0)
    found = minimise_finite(penalised, first, nonnegative=True, decrease=1e-15, slope=1e-9)
    return replace(found, x=join(found.x))
