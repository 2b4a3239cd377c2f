"""Cells of FedLin's table 2: HM2 with a lasso between devices, and each device's least squares.

Yue, Al Kontar and Estrada Gomez (2022), section 5.2: every device has the same coefficients, some
of them 0, and standard normal predictors. A coefficient is included where its interval of 90 % does
not cover 0: the credible one of the device's own posterior, and for least squares Student's. The
noise, "0.05" for the paper, is a cell's own setting, a standard deviation. Hyper-parameters are not
in the paper: log lambda and log sigma^2 are N(0, 1), as its example 4.1 has them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from secagg.reproductions.fedlin.tasks.centralised import least_squares
from secagg.reproductions.fedlin.tasks.runs import HM2, coefficients, included, regressions
from secagg.reproductions.fedlin.tasks.simulated_cases import Simulated, errors, simulate
from secagg.reproductions.harness.types import CONVERGED, Settings

Flags = NDArray[np.bool_]

LEVEL = 0.9


@dataclass(frozen=True)
class Case:
    """theta: of every device; records: of each device; tested: points at each"""

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
    covering = least_intervals(drawn)
    return {
        "hm2": errors(drawn, coefficients(own, "hm2"))
        | rates(included(own), true)
        | {CONVERGED: float(result.summary.get("converged", True))},
        "least": errors(drawn, least_squares(drawn.X, drawn.y))
        | rates(covering, true)
        | {CONVERGED: 1.0},
    }


def draw(name: str, noise: float, seed: int) -> Simulated:
    """Return a case's records; every device is scored."""
    case = CASES[name]
    rng = np.random.default_rng([list(CASES).index(name), seed])
    theta = np.repeat(np.array(case.theta)[:, None], len(case.records), axis=1)
    return simulate(theta, case.records, noise, (case.tested,) * len(case.records), rng)


def least_intervals(drawn: Simulated) -> Flags:
    """Return which coefficients (d, K) Student's intervals of least squares find not to be 0."""
    found: list[Flags] = []
    theta = least_squares(drawn.X, drawn.y)
    for X, y, here in zip(drawn.X, drawn.y, theta.T, strict=True):
        left = len(y) - len(here)
        variance = np.sum((y - X @ here) ** 2) / left
        error = np.sqrt(variance * np.diag(np.linalg.inv(X.T @ X)))
        found.append(np.abs(here) > stdtrit(left, (1 + LEVEL) / 2) * error)
    return np.array(found).T


def rates(chosen: Flags, true: Flags) -> dict[str, float]:
    """Return the shares of true effects, and of none, that are included, over all devices."""
    return {"correct": float(chosen[true].mean()), "false": float(chosen[~true].mean())}
