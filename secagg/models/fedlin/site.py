"""A site of a FedLin method: its records in the units analysed, training and held out.

With a holdout, each site first splits its records, once for the whole run. The held-out records are
a random share, or the last records of the file. They are not used for any estimate, scale or mean.
At the end of the run they measure the prediction errors. Between rounds a site stores cross
products, least squares, means, and the seed of the split. Their size does not depend on the number
of records.

Units of columns may differ by many powers of ten, and bounds may be far from 0. So least squares
and the rank are computed from the records instead of cross products, with columns scaled to length
1. If a column is constant at a site up to rounding, its slope at that site is not estimated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from secagg.contracts import State, Update
from secagg.core.arrays import Array
from secagg.models.fedlin.design import INTERCEPT, Layout, Level
from secagg.models.fedlin.gradient_steps import Quadratic

HoldoutRule = Literal["random", "last"]

_MIN_ROUNDING_STEPS = 8.0  # smallest root mean square of a column, in units of its rounding
_MIN_SINGULAR_VALUE = 1e-10  # relative to the largest, with columns of length 1
_MAX_NOISE_RATIO = 64.0  # smallest singular value, in units of the columns' rounding


def split_holdout(
    values: Array, share: float, which: HoldoutRule, seed: bytes
) -> tuple[Array, Array]:
    """Return the training records and the held-out records: `share` of all, rounded down.

    A site with two or more records holds out at least one. Otherwise a single large site might be
    the only one with held-out records, and the sum of errors would be that site's.
    """
    held_out = max(int(share * len(values)), 1) if share and len(values) > 1 else 0
    if not held_out:
        return values, values[:0]
    if which == "last":
        return values[:-held_out], values[-held_out:]
    order = np.random.default_rng(int.from_bytes(seed, "little")).permutation(len(values))
    return values[np.sort(order[held_out:])], values[np.sort(order[:held_out])]


def varying_predictors(layout: Layout, values: Array) -> Array:
    """Return 1 for each predictor that varies at a site beyond its rounding, else 0.

    values: the training records, as stored
    """
    u = values[:, 1:]
    if not len(u):
        return np.zeros(u.shape[1])
    first = int(layout.terms[0] == INTERCEPT)
    rounding = layout.rounding(np.zeros(1 + u.shape[1]), np.ones(1 + u.shape[1]))[first:]
    return np.array(u.std(axis=0) > _MIN_ROUNDING_STEPS * rounding[: u.shape[1]], dtype=np.float64)


def least_squares(X: Array, y: Array, rounding: Array) -> tuple[Array, int]:
    """Return the least squares estimate and the rank of X.

    If there are many solutions, the estimate is the one with the smallest norm.

    X: (n, d), may have columns of zeros; rounding (d,): rounding error of a number in each column
    """
    theta = np.zeros(X.shape[1])
    used = np.any(X != 0, axis=0)
    if not used.any():
        return theta, 0
    size = np.sqrt(np.mean(X[:, used] ** 2, axis=0))
    # R of a QR decomposition has the same least squares, however many records there are.
    _, R = np.linalg.qr(np.column_stack([X[:, used] / size, y]))
    left, values, right = np.linalg.svd(R[:, :-1])
    least = max(_MIN_SINGULAR_VALUE, _MAX_NOISE_RATIO * float(np.max(rounding[used] / size)))
    rank = int(np.sum(values > least * values[0]))
    found = right[:rank].T @ ((left[:, :rank].T @ R[:, -1]) / values[:rank]) / size
    if rank < len(size):  # subtract the part that changes no prediction
        free, _ = np.linalg.qr(right[rank:].T / size[:, None])
        found = found - free @ (free.T @ found)
    theta[used] = found
    return theta, rank


@dataclass(frozen=True)
class Site:
    """The statistics of a site's training records that the site stores.

    shape: |y - X theta|^2 as a function of theta; `level` was subtracted from X and y
    square: y'y; records: their number; freedom: this number, or one less if the site has its own
        intercept
    separate: the site's own least squares, as from `least_squares`; rank: of X
    """

    shape: Quadratic
    gram: Array
    cross: Array
    level: Level
    square: float
    records: int
    freedom: int
    separate: Array
    rank: int

    @classmethod
    def of(cls, layout: Layout, values: Array, centre: Array, scale: Array) -> Site:
        """Compute the statistics from the training records, as stored."""
        X, y = layout.design(values, centre, scale)
        level = layout.level(X, y)
        X, y = X - level.x, y - level.y
        rounding = layout.rounding(centre, scale)
        if layout.intercept == "site" and len(y):
            X = np.where(np.sqrt(np.mean(X**2, axis=0)) > _MIN_ROUNDING_STEPS * rounding, X, 0.0)
        gram, cross = X.T @ X, X.T @ y
        intercepts = 1 if layout.intercept == "site" else 0
        return cls(
            Quadratic.of(gram, cross),
            gram,
            cross,
            level,
            float(y @ y),
            len(y),
            max(len(y) - intercepts, 0),
            *least_squares(X, y, rounding),
        )

    @property
    def left(self) -> int:
        """Degrees of freedom of the residuals of least squares."""
        return max(self.freedom - self.rank, 0)

    def counts(self) -> Update:
        """Return whether the records determine a coefficient, and whether they determine all."""
        found = {"used": self.rank > 0, "determined": self.rank == len(self.cross)}
        return {name: np.array([float(yes)]) for name, yes in found.items()}

    def noise(
        self, pooled: float, layout: Layout, values: Array, centre: Array, scale: Array
    ) -> float:
        """Return the site's own noise variance, shrunk to the pooled one as if by 4 more records.

        values: the training records, as carried
        """
        if not self.left:
            return pooled
        wrong = self.errors(self.separate, layout, values, centre, scale)
        return float((wrong @ wrong + 4 * pooled) / (self.left + 4))

    def near(self, theta: Array, weight: float) -> Array:
        """Return the minimiser v of |y - X v|^2 + weight |v - theta|^2; weight above 0."""
        A = self.gram + weight * np.eye(len(theta))
        size = np.sqrt(np.diagonal(A))
        return (
            np.linalg.solve(A / np.outer(size, size), (self.cross + weight * theta) / size) / size
        )

    def errors(
        self,
        theta: Array,
        layout: Layout,
        values: Array,
        centre: Array,
        scale: Array,
        mean: Callable[[Array], Array] | None = None,
    ) -> Array:
        """Return y minus its prediction, for records as stored, in the units analysed.

        mean: from linear predictors to predictions; None if they are the same
        """
        X, y = layout.design(values, centre, scale)
        eta = (X - self.level.x) @ theta
        return (y - self.level.y) - (eta if mean is None else mean(eta))

    def state(self) -> State:
        """Return the statistics as plain data."""
        return {
            "gram": self.gram,
            "cross": self.cross,
            "level_x": self.level.x,
            "level_y": self.level.y,
            "square": self.square,
            "here": self.records,
            "freedom": self.freedom,
            "separate": self.separate,
            "rank": self.rank,
        }

    @classmethod
    def read(cls, state: State) -> Site:
        """Return the site of a stored state."""
        gram, cross = state["gram"], state["cross"]
        level = Level(state["level_x"], state["level_y"])
        return cls(
            Quadratic.of(gram, cross),
            gram,
            cross,
            level,
            state["square"],
            state["here"],
            state["freedom"],
            state["separate"],
            state["rank"],
        )
