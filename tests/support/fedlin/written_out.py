"""FedLin's methods written out on raw records, and jobs of them: what their tests compare with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from secagg.contracts import Result
from secagg.core.randomness import replayable_random, seeded_random
from secagg.runs.simulate import simulate_sites

Tables = Mapping[str, pd.DataFrame]
SEED = 1  # of every run: sites' coins and batches follow from it


def continuous(low: float, high: float) -> dict[str, Any]:
    """Return a column's table in a job."""
    return {"type": "continuous", "low": low, "high": high}


def fedlin_job(
    method: Mapping[str, Any], columns: Mapping[str, Any], **changed: Any
) -> dict[str, Any]:
    """Return a job of a FedLin method; its outcome is y."""
    return {
        "title": "t",
        "sites": {"max_rows": 1000},
        "columns": dict(columns),
        "release": {"min_sites": 2, "min_records": 1},
        "method": {"outcome": "y", **method},
        "protocol": {"name": "plain"},
    } | changed


def simulated(
    method: Mapping[str, Any], columns: Mapping[str, Any], tables: Mapping[str, Any]
) -> tuple[Result, dict[str, Result]]:
    """Return a run's result and the sites' own."""
    job = fedlin_job(method, columns)
    return simulate_sites(job, tables, random=replayable_random(SEED))


def told(own: Result, model: str) -> np.ndarray:
    """Return a site's intercept and slopes, in the columns' own units."""
    return np.array([row[model] for row in own.summary["coefficients"]])


def linear_tables(
    sizes: tuple[int, ...], d: int = 3, seed: int = 0, noise: float = 0.3, spread: float = 1.0
) -> dict[str, pd.DataFrame]:
    """Return sites with coefficients of their own; columns x0.., y."""
    rng = np.random.default_rng(seed)
    common, found = rng.standard_normal(d), {}
    for k, n in enumerate(sizes):
        X = rng.standard_normal((n, d)) * np.arange(1, d + 1) + k / len(sizes)
        theta = common + spread * rng.standard_normal(d)
        y = 0.5 + X @ theta + noise * rng.standard_normal(n)
        table = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)])
        found[f"s{k:03d}"] = table.assign(y=y)
    return found


def bounds(tables: Tables) -> dict[str, Any]:
    """Return public bounds beyond all records, not about 0, and other for each column."""
    every = pd.concat(list(tables.values()))
    low, high = every.min(), every.max()
    wide = 0.1 + (high - low)
    return {
        str(name): continuous(float(low[name] - wide[name]), float(high[name] + 3 * wide[name]))
        for name in every.columns
    }


@dataclass(frozen=True)
class Written:
    """Sites' regressions in the units analysed, and the way back.

    X, y: less the sites' own means, where these are the intercept; mean_x, mean_y: those
    origin, unit: of the columns, the outcome first, so that analysed = (own - origin) / unit
    """

    X: list[np.ndarray]
    y: list[np.ndarray]
    mean_x: list[np.ndarray]
    mean_y: list[float]
    origin: np.ndarray
    unit: np.ndarray
    modelled: bool

    @classmethod
    def of(cls, tables: Tables, intercept: str, scale: str) -> Written:
        """Read sites' tables: linear functions of all columns but y."""
        names = ["y", *(str(c) for c in next(iter(tables.values())).columns if c != "y")]
        sites = [table[names].to_numpy(dtype=float) for table in tables.values()]
        origin, unit = np.zeros(len(names)), np.ones(len(names))
        if scale == "pooled" and intercept == "modelled":
            every = np.concatenate(sites)
            origin, unit = every.mean(axis=0), every.std(axis=0)
        elif scale == "pooled":
            within = np.concatenate([rows - rows.mean(axis=0) for rows in sites if len(rows)])
            unit = np.sqrt(np.mean(within**2, axis=0))
        z = [(rows - origin) / unit for rows in sites]
        own = intercept == "site"
        means = [each.mean(axis=0) if own and len(each) else 0 * unit for each in z]
        z = [each - mean for each, mean in zip(z, means, strict=True)]
        modelled = intercept == "modelled"
        X = [np.column_stack([np.ones(len(e)), e[:, 1:]]) if modelled else e[:, 1:] for e in z]
        return cls(
            X, [e[:, 0] for e in z], [m[1:] for m in means], [float(m[0]) for m in means],
            origin, unit, modelled,
        )  # fmt: skip

    def back(self, theta: np.ndarray, k: int) -> np.ndarray:
        """Return a site's intercept and slopes in the columns' own units."""
        first, slopes = (theta[0], theta[1:]) if self.modelled else (0.0, theta)
        unit = slopes * self.unit[0] / self.unit[1:]
        at = self.origin[1:] + self.mean_x[k] * self.unit[1:]
        start = self.origin[0] + self.unit[0] * (self.mean_y[k] + first) - unit @ at
        return np.concatenate([[start], unit])

    @property
    def largest(self) -> float:
        """Return the most that errors of 1 in theta make of an error in own units."""
        d = self.X[0].shape[1]
        moved = [
            self.back(e, k) - self.back(0 * e, k) for e in np.eye(d) for k in range(len(self.X))
        ]
        return d * float(np.max(np.abs(moved)))

    def least(self, k: int) -> np.ndarray:
        """Return a site's least squares, the shortest where there are many."""
        return np.linalg.lstsq(self.X[k], self.y[k], rcond=1e-10)[0]

    def noise(self, own_intercept: bool) -> tuple[float, list[float]]:
        """Return the variance of residuals over all sites, and each site's drawn to it."""
        squares, freedom = [], []
        for k, X in enumerate(self.X):
            left = len(X) - (own_intercept and len(X) > 0) - np.linalg.matrix_rank(X, tol=1e-8)
            squares.append(float(np.sum((self.y[k] - X @ self.least(k)) ** 2)) * (left > 0))
            freedom.append(max(int(left), 0))
        pooled = sum(squares) / sum(freedom) if any(freedom) else float("nan")
        own = [(s + 4 * pooled) / (f + 4) if f else pooled
               for s, f in zip(squares, freedom, strict=True)]  # fmt: skip
        return pooled, own

    def eta(self, step: float) -> np.ndarray:
        """Return the sites' step sizes."""
        steepest = [np.linalg.eigvalsh(X.T @ X)[-1] if len(X) else 0.0 for X in self.X]
        return np.array([step / s if s > 1e-20 else 0.0 for s in steepest])


class Drawn:
    """What sites draw in the rounds of a run: a coin each, then batches."""

    def __init__(self, sites: int, before: int) -> None:
        """before: rounds of other stages, in which sites draw as well"""
        random = replayable_random(SEED)
        self.own = [seeded_random(random(32)) for _ in range(sites)]
        for own in self.own:
            own(16 * before)

    def round(self) -> list[np.random.Generator]:
        """Return the sites' generators in the next round."""
        return [np.random.default_rng(int.from_bytes(own(16), "little")) for own in self.own]


def steps_from(
    X: np.ndarray,
    y: np.ndarray,
    theta: np.ndarray,
    eta: float,
    steps: int,
    rng: np.random.Generator,
    batch: int | None = None,
) -> np.ndarray:
    """Return theta after gradient steps."""
    for _ in range(steps):
        if batch is None or batch >= len(X):
            theta = theta + 2 * eta * X.T @ (y - X @ theta)
            continue
        rows = rng.choice(len(X), batch, replace=False)
        gradient = X[rows].T @ (y[rows] - X[rows] @ theta)
        theta = theta + 2 * eta * gradient * (len(X) / batch)
    return theta


@dataclass(frozen=True)
class Dense:
    """HM1 as the paper has it. Theta (K, d), Omega (K, K).

    condition: the largest of I + G in (3), which sums have to be solved with
    """

    Theta: np.ndarray
    Omega: np.ndarray
    condition: float


def _answer(X: np.ndarray, eta: float, steps: int) -> float:
    """Return tr((I - (I - 2 eta X'X)^T) (X'X)^-1) / d, as the geometric series that it is."""
    d = X.shape[1]
    power, total = np.eye(d), np.zeros((d, d))
    for _ in range(steps):
        total, power = total + 2 * eta * power, power @ (np.eye(d) - 2 * eta * X.T @ X)
    return float(np.trace(total)) / d


def dense_hm1(
    written: Written,
    noise: np.ndarray,
    *,
    alpha: float = 0.1,
    rounds: int = 30,
    steps: int = 20,
    step: float = 0.5,
    weight: str = "posterior",
    batch: int | None = None,
    participation: float = 1.0,
    before: int = 2,
    disturbed: float = 0.0,
) -> Dense:
    """Algorithm 1 with Theta and Omega in the open; noise: variance at each site.

    disturbed: deviation of normal errors that are added to Theta in each round
    """
    errors = np.random.default_rng(0)
    K, d = len(written.X), written.X[0].shape[1]
    eta, drawn = written.eta(step), Drawn(K, before)
    if weight == "posterior":
        a = noise * np.array([_answer(X, e, steps) for X, e in zip(written.X, eta, strict=True)])
    else:
        a = 2 * eta * noise * steps
    Theta, Omega, condition = np.zeros((K, d)), np.eye(K), 1.0
    for c in range(rounds):
        moved, active = Theta.copy(), np.zeros(K, dtype=bool)
        for k, rng in enumerate(drawn.round()):
            active[k] = rng.random() < participation
            if active[k]:
                args = (written.X[k], written.y[k], Theta[k], eta[k], steps, rng, batch)
                moved[k] = steps_from(*args)
        shrunk = Omega @ np.linalg.solve(Omega + np.diag(a), moved)
        b = (1 - alpha) ** c + a
        root = np.sqrt(np.where(b > 0, b, 1))
        G = (Omega - (1 - alpha) ** c * np.eye(K)) / np.outer(root, root)
        condition = max(condition, 1 + float(np.linalg.norm(G, 2)))
        Theta = np.where(active[:, None], shrunk, moved)
        Theta = Theta + disturbed * errors.standard_normal((K, d))
        Omega = (1 - alpha) * Omega + alpha / d * Theta @ Theta.T
    return Dense(Theta, Omega, condition)


def dense_and_error(written: Written, noise: np.ndarray, **settings: Any) -> tuple[Dense, float]:
    """Return HM1, and how far a run by sums may be from it, in the units analysed.

    In a round floats lose to rounding what I + G has for a condition, of m = K + d numbers, and
    sums are in steps of 2^-56, a sixteenth of that; by how much later rounds multiply such errors
    is measured.
    """
    dense = dense_hm1(written, noise, **settings)
    K, d = dense.Theta.shape
    disturbed = dense_hm1(written, noise, **settings, disturbed=1e-8).Theta
    grows = max(float(np.abs(disturbed - dense.Theta).max()) / 1e-8, 1.0)
    rounding = float(np.finfo(np.float64).eps) * dense.condition * (K + d)
    return dense, 4 * grows * rounding * float(np.abs(dense.Theta).max())
