"""A small layout of a neural graphical model with every kind of column, and records for it."""

import numpy as np

from secagg.core.arrays import Array
from secagg.models.neural.ngm.layout import ModelColumn, NgmLayout

COLUMNS = {"x": 1, "y": 1, "colour": 2, "case": 1, "z": 1}
"""Number of variables of each column; x, y and z are continuous."""


def mixed_layout(columns: dict[str, int] = COLUMNS) -> NgmLayout:
    found, start = [], 0
    for name, variables in columns.items():
        positions = tuple(range(start, start + variables))
        found.append(ModelColumn(name, positions, name not in "xyz"))
        start += variables
    return NgmLayout(tuple(found), tuple(range(start)))


def mixed_records(n: int, seed: int = 0) -> Array:
    """Return scaled records: x drives y, z, colour and case; an indicator is -0.5 or 0.5."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.3, n)
    y, z = (0.6 * x + rng.normal(0, 0.2, n) for _ in range(2))
    level = np.argmax(rng.gumbel(size=(n, 3)) + np.outer(x, [0, 4, -4]), axis=1)
    case = rng.random(n) < 1 / (1 + np.exp(-5 * x))
    indicators = np.column_stack([level == 1, level == 2, case]) - 0.5
    return np.clip(np.column_stack([x, y, indicators, z]), -1, 1)


def random_graph(d: int, rng: np.random.Generator) -> Array:
    upper = np.triu(rng.random((d, d)) < 0.5, k=1)
    return np.asarray(upper | upper.T)
