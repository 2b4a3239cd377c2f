"""The simulated records of FedLin's section 5.1, and an additional case of low rank.

Yue, Al Kontar and Estrada Gomez (2022). Theta (d, K) has rows N(0, Omega), and device k has
y_k = X_k theta_k + noise. What the paper does not state, and our choices:

    X       standard normal, as stated in section 5.2
    noise   "0.05", "0.1": a setting of the cell, as a standard deviation
    Omega   "positive definite by clusterGeneration", without settings: according to its manual,
            that package's default has random orthogonal eigenvectors and eigenvalues uniform
            between 1 and 10; we draw from the same distribution
    V       (not in the paper) Omega = A A' with A (K, 2) standard normal: all coefficients have
            two common sources, so devices with few records can learn much from others
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from secagg.contracts import Array

TESTED = 1000  # test points per device
RANK = 2  # of Omega in case V
SMALLEST, LARGEST = 1.0, 10.0  # eigenvalues of Omega in cases II to IV


@dataclass(frozen=True)
class Case:
    """d: coefficients; records: per device; judged: the number of leading devices scored"""

    d: int
    records: tuple[int, ...]
    judged: int


CASES = {
    "I": Case(5, (20, 200), 1),
    "II": Case(8, (40,) * 30 + (275,) * 70, 30),
    "III": Case(8, (20,) * 100, 100),
    "IV": Case(8, (200,) * 100, 100),
    "V": Case(8, (20,) * 100, 100),
}


@dataclass(frozen=True)
class Simulated:
    """Devices' records X, y, and true coefficients theta (d, K)

    test: test points (n, d) of each scored device (the first ones); test_noise: noise for their
    targets
    """

    theta: Array
    X: list[Array]
    y: list[Array]
    test: list[Array]
    test_noise: list[Array]


@dataclass(frozen=True)
class Drawn(Simulated):
    """One draw of a case. root (K, r): Omega = root root'"""

    root: Array


def draw(name: str, noise: float, seed: int) -> Drawn:
    """Return a case's records, with noise of this standard deviation.

    For a given seed, only the size of the noise depends on `noise`.
    """
    case = CASES[name]
    rng = np.random.default_rng([list(CASES).index(name), seed])
    root = _root(name, rng)
    theta = rng.standard_normal((case.d, root.shape[1])) @ root.T
    drawn = simulate(theta, case.records, noise, (TESTED,) * case.judged, rng)
    return Drawn(**vars(drawn), root=root)


def simulate(
    theta: Array,
    records: Sequence[int],
    noise: float,
    tested: Sequence[int],
    rng: np.random.Generator,
) -> Simulated:
    """Return records of devices with coefficients theta (d, K) and standard normal predictors."""
    d = len(theta)
    X = [rng.standard_normal((n, d)) for n in records]
    y = [x @ t + noise * rng.standard_normal(len(x)) for x, t in zip(X, theta.T, strict=True)]
    test = [rng.standard_normal((n, d)) for n in tested]
    test_noise = [noise * rng.standard_normal(n) for n in tested]
    return Simulated(theta, X, y, test, test_noise)


def errors(drawn: Simulated, estimate: Array) -> dict[str, float]:
    """Return the A-RMSE of coefficients (d, K): the mean of the scored devices' root mean squared
    errors, "free" for noise-free targets and "noisy" for noisy ones.
    """
    devices = list(zip(drawn.test, (estimate - drawn.theta).T, drawn.test_noise, strict=False))
    return {
        "free": float(np.mean([_root_mean_square(x @ wrong) for x, wrong, _ in devices])),
        "noisy": float(np.mean([_root_mean_square(x @ wrong - e) for x, wrong, e in devices])),
    }


def _root(name: str, rng: np.random.Generator) -> Array:
    devices = len(CASES[name].records)
    if name == "I":
        return np.linalg.cholesky(np.array([[1.0, 0.7], [0.7, 1.0]]))
    if name == "V":
        return rng.standard_normal((devices, RANK))
    # With these signs, the columns of Q are uniform over all directions for any LAPACK convention.
    Q, R = np.linalg.qr(rng.standard_normal((devices, devices)))
    directions = Q * np.sign(np.diag(R))
    return np.asarray(directions * np.sqrt(rng.uniform(SMALLEST, LARGEST, devices)))


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
