"""A site of a FedLin method: its records in the units analysed, training and held out.

With a holdout each site parts its own records once, before anything else: a random share, or the
last ones in the order of its file, are not used for any estimate, scale or mean; at the end of the
run they tell how well predictions are. What is kept between rounds is small, whatever the number of
records: cross products, means, and how the records were parted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import State
from secagg.models.gradient_steps import Quadratic
from secagg.models.regression_layout import Layout, Level

Array = NDArray[np.float64]

Held = Literal["random", "last"]


def parted(values: Array, share: float, which: Held, seed: bytes) -> tuple[Array, Array]:
    """Return the records to learn from, and those held out: a share of them, rounded down."""
    held = int(share * len(values))
    if not held:
        return values, values[:0]
    if which == "last":
        return values[:-held], values[-held:]
    order = np.random.default_rng(int.from_bytes(seed, "little")).permutation(len(values))
    return values[np.sort(order[held:])], values[np.sort(order[:held])]


@dataclass(frozen=True)
class Site:
    """What a site keeps of its training records.

    shape: |y - X theta|^2 as a function of theta, X and y less `level`
    square: y'y; here: records; freedom: of them, less the site's own intercept
    """

    shape: Quadratic
    gram: Array
    cross: Array
    level: Level
    square: float
    here: int
    freedom: int

    @classmethod
    def of(cls, layout: Layout, values: Array, centre: Array, scale: Array) -> Site:
        """Read the training records, as carried."""
        X, y = layout.design(values, centre, scale)
        level = layout.level(X, y)
        X, y = X - level.x, y - level.y
        gram, cross = X.T @ X, X.T @ y
        taken = 1 if layout.intercept == "site" else 0
        return cls(
            Quadratic.of(gram, cross),
            gram,
            cross,
            level,
            float(y @ y),
            len(y),
            max(len(y) - taken, 0),
        )

    @property
    def left(self) -> int:
        """Degrees of freedom of the residuals of least squares."""
        return max(self.freedom - self.shape.rank, 0)

    def errors(
        self, theta: Array, layout: Layout, values: Array, centre: Array, scale: Array
    ) -> Array:
        """Return y less its prediction, for records as carried, in the units analysed."""
        X, y = layout.design(values, centre, scale)
        wrong: Array = (y - self.level.y) - (X - self.level.x) @ theta
        return wrong

    def state(self) -> State:
        """Return it as plain data."""
        return {
            "gram": self.gram,
            "cross": self.cross,
            "level_x": self.level.x,
            "level_y": self.level.y,
            "square": self.square,
            "here": self.here,
            "freedom": self.freedom,
        }

    @classmethod
    def read(cls, state: State) -> Site:
        """Return what `state` made plain."""
        gram, cross = state["gram"], state["cross"]
        level = Level(state["level_x"], state["level_y"])
        shape = Quadratic.of(gram, cross)
        return cls(shape, gram, cross, level, state["square"], state["here"], state["freedom"])
