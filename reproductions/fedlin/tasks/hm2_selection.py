"""Cells of FedLin's table 2: HM2 with a lasso between devices, and each device's least squares.

Yue, Al Kontar and Estrada Gomez (2022), section 5.2: every device has the same coefficients, some
of them 0, and standard normal predictors. A coefficient is included if its 90 % interval does not
cover 0: the credible interval of the device's own posterior or, for least squares, Student's. The
noise ("0.05" in the paper) is a setting of the cell, a standard deviation. The paper does not state
the hyper-parameters here; log lambda and log sigma^2 are N(0, 1), as in its example 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from reproductions.fedlin.tasks.centralised import least_squares
from reproductions.fedlin.tasks.runs import HM2, coefficients, included, regressions
from reproductions.fedlin.tasks.simulated_cases import Simulated, errors, simulate
from secagg.contracts import Array
from secagg.experiments.runner.types import CONVERGED, Settings

Flags = NDArray[np.bool_]

LEVEL = 0.9


@dataclass(frozen=True)
class Case:
    """theta: coefficients of every device; records: per device; tested: test points per device"""

    theta: tuple[float, ...]
    records: tuple[int, ...]
    tested: int


_LASSO_EFFECTS = (3.0, 1.5, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0)
CASES = {
    "I": Case(_LASSO_EFFECTS, (100,) * 10, 1000),
    "II": Case(_LASSO_EFFECTS, (20,) * 2 + (200,) * 8, 1000),
    "III": Case((3.0,) * 10 + (0.0,) * 10 + (3.0,) * 10, (40,) * 20, 400),
}


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return A-RMSE and inclusion rates of "hm2" and "least".

    Settings: case, noise, prior, seed.
    """
    name, seed = str(settings["case"]), int(settings["seed"])
    drawn = draw(name, float(settings["noise"]), seed)
    method = {**HM2, "prior": settings["prior"], "level": LEVEL}
    result, own = regressions(method, drawn.X, drawn.y, seed)
    true = drawn.theta != 0
    least = least_intervals(drawn)
    return {
        "hm2": errors(drawn, coefficients(own, "hm2"))
        | rates(included(own), true)
        | {CONVERGED: float(result.summary.get("converged", True))},
        "least": errors(drawn, least_squares(drawn.X, drawn.y))
        | rates(least, true)
        | {CONVERGED: 1.0},
    }


def draw(name: str, noise: float, seed: int) -> Simulated:
    """Return a case's records; every device is scored."""
    case = CASES[name]
    rng = np.random.default_rng([list(CASES).index(name), seed])
    theta = np.repeat(np.array(case.theta)[:, None], len(case.records), axis=1)
    return simulate(theta, case.records, noise, (case.tested,) * len(case.records), rng)


def least_intervals(drawn: Simulated) -> Flags:
    """Return for which coefficients (d, K) Student's interval of least squares excludes 0."""
    by_device: list[Flags] = []
    for X, y in zip(drawn.X, drawn.y, strict=True):
        beta, reach = student(X, y)
        by_device.append(np.abs(beta) > reach)
    return np.array(by_device).T


def student(X: Array, y: Array) -> tuple[Array, Array]:
    """Return least squares of one device, and half the width of their intervals (d,)."""
    beta = least_squares([X], [y])[:, 0]
    freedom = len(y) - len(beta)
    variance = np.sum((y - X @ beta) ** 2) / freedom
    error = np.sqrt(variance * np.diag(np.linalg.inv(X.T @ X)))
    return beta, stdtrit(freedom, (1 + LEVEL) / 2) * error


def rates(included: Flags, true: Flags) -> dict[str, float]:
    """Return the proportions of true effects and of zero effects included, over all devices."""
    return {"correct": float(included[true].mean()), "false": float(included[~true].mean())}
