"""L-BFGS-B that never accepts a point at which its objective is not finite.

In the published programs, exp(W o W) overflows at a long trial step of the line search, and from
then on every number is NaN. Here such a trial is a failed step. The minimiser then restarts from
the last accepted point and discards its curvature estimate. The first step after a restart has
length one, then 0.1 and less. If all restarts fail, the result says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, OptimizeResult, minimize

Vector = NDArray[np.float64]

RESTARTS = 50  # after failed steps
FIRST_STEP_AFTER_RESTART = 0.1  # shortens the first step if the last restart accepted no point
MIN_FIRST_STEP = 1e-3  # the gain of a much shorter first step would look like convergence


@dataclass(frozen=True, eq=False)
class FinitePoint:
    """The end of a search.

    x: the last accepted point; value: the objective there (inf if no point was accepted); finite:
    False if no finite step could be made from x; evaluations: of the objective
    """

    x: Vector
    value: float
    finite: bool
    evaluations: int


class _NonFiniteStepError(Exception):
    """A trial point at which the objective or its gradient is not finite."""


def minimise_finite(
    objective: Callable[[Vector], tuple[float, Vector]],
    start: Vector,
    *,
    nonnegative: bool = False,
    decrease: float = 2.2e-9,
    slope: float = 1e-5,
) -> FinitePoint:
    """Minimise a function of a vector from a finite start.

    objective: returns value and gradient; may overflow
    nonnegative: keep all entries at or above zero
    decrease, slope: stop at this relative decrease of the objective or this largest slope; the
        defaults are SciPy's
    """
    accepted, value = start, np.inf
    evaluations = 0
    length = 1.0  # of a restart's first step, which L-BFGS-B makes 1 in the scaled variable

    def scaled(y: Vector) -> tuple[float, Vector]:
        nonlocal evaluations
        evaluations += 1
        with np.errstate(all="ignore"):  # overflow gives values that are not finite, tested next
            at, gradient = objective(length * y)
        if not (np.isfinite(at) and np.all(np.isfinite(gradient))):
            raise _NonFiniteStepError
        return at, length * gradient

    def accept(intermediate_result: OptimizeResult) -> None:
        nonlocal accepted, value
        accepted, value = length * intermediate_result.x, float(intermediate_result.fun)

    for _ in range(RESTARTS):
        before = accepted
        try:
            result = minimize(
                scaled,
                accepted / length,
                jac=True,
                method="L-BFGS-B",
                bounds=Bounds(0, np.inf) if nonnegative else None,
                callback=accept,
                options={"ftol": decrease, "gtol": slope * length},
            )
        except _NonFiniteStepError:
            if accepted is before:
                length *= FIRST_STEP_AFTER_RESTART
                if length < MIN_FIRST_STEP:
                    break
            continue
        return FinitePoint(length * result.x, float(result.fun), True, evaluations)
    return FinitePoint(accepted, value, False, evaluations)
