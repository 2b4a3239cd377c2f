"""Simulated records for experiments: their truth is known, and reading them costs no privacy.

Each run of seed s draws a truth and records of it. All columns of the job are continuous. A column
has mean 0 and standard deviation 1 before it is moved into its bounds: the bounds are then five
standard deviations away, so that clipping is rare.

regression  predictors with correlations of 0.3; the slopes of the first half are normal with
            standard deviation 0.4, the others are zero; at each site they differ by normal numbers
            with standard deviation `spread`; the errors are normal with standard deviation 1
graph       a random acyclic graph with exactly `edges` edges (`simulated_graphs`), weights between
            0.3 and 0.8 in absolute value, and normal errors such that each column has variance 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.experiments.simulated_graphs import Graph, erdos_renyi_dag
from secagg.jobs.columns import Continuous
from secagg.jobs.job import Job

_REACH = 5.0
"""Standard deviations from the middle of a column's bounds to either end."""
_CORRELATION, _SLOPE = 0.3, 0.4
_WEIGHTS = (0.3, 0.8)
_SIGNAL = 0.8
"""The largest share of a column's variance that its causes explain."""


@dataclass(frozen=True)
class Simulated:
    """slopes: of each predictor, in own units; edges: causes and effects. One of them is empty."""

    tables: dict[str, pd.DataFrame]
    test: dict[str, pd.DataFrame]
    slopes: dict[str, float]
    edges: tuple[tuple[str, str], ...] = ()


def simulate_regression(
    job: Job, outcome: str, sites: int, each: int, spread: float, seed: int
) -> Simulated:
    """Return `sites` tables of `each` records, and as many others to test predictions."""
    rng, scale = np.random.default_rng(seed), _scales(job)
    if outcome not in scale:
        raise UsageError("records.simulate", f"the job has no outcome {outcome!r} to simulate")
    names = [name for name in scale if name != outcome]
    p = len(names)
    root = np.linalg.cholesky(_CORRELATION + (1 - _CORRELATION) * np.eye(p))
    slopes = rng.normal(0, _SLOPE, p) * (np.arange(p) < math.ceil(p / 2))
    total = math.sqrt(1 + slopes @ root @ root.T @ slopes)  # of the outcome

    def records(rows: int) -> pd.DataFrame:
        own = slopes + spread * rng.normal(size=p)
        X = rng.normal(size=(rows, p)) @ root.T
        y = (X @ own + rng.normal(size=rows)) / total
        return _placed(job, [*names, outcome], np.column_stack([X, y]))

    tables = {f"site_{i}": records(each) for i in range(1, sites + 1)}
    test = {f"site_{i}": records(each) for i in range(1, sites + 1)}
    found = {
        name: float(b / total * scale[outcome] / scale[name])
        for name, b in zip(names, slopes, strict=True)
    }
    return Simulated(tables, test, found)


def simulate_graph(
    job: Job, sites: int, each: int, edges: int, seed: int, *, causes_first: bool = False
) -> Simulated:
    """Return `sites` tables of `each` records of a random graph.

    edges: 0 for one a column; causes_first: in the order of the job's columns
    """
    rng, names = np.random.default_rng(seed), list(_scales(job))
    truth = erdos_renyi_dag(len(names), edges or len(names), rng)
    if causes_first:
        order = _causes_first(truth)
        truth = truth[np.ix_(order, order)]
    signs = rng.choice([-1.0, 1.0], truth.shape)
    weights = np.where(truth, rng.uniform(*_WEIGHTS, truth.shape) * signs, 0.0)
    X = np.zeros((sites * each, len(names)))
    for j in _causes_first(truth):
        signal = X @ weights[:, j]
        signal *= min(1.0, math.sqrt(_SIGNAL / max(float(signal.var()), 1e-9)))
        X[:, j] = signal + math.sqrt(1 - float(signal.var())) * rng.normal(size=len(X))
    tables = {
        f"site_{i + 1}": _placed(job, names, part) for i, part in enumerate(np.split(X, sites))
    }
    pairs = tuple((names[i], names[j]) for i, j in np.argwhere(truth))
    return Simulated(tables, {}, {}, pairs)


def _causes_first(truth: Graph) -> list[int]:
    left, found = list(range(len(truth))), list[int]()
    while left:
        j = next(j for j in left if not truth[left, j].any())
        found.append(j)
        left.remove(j)
    return found


def _scales(job: Job) -> dict[str, float]:
    """Return the standard deviation of each column. Raises `UsageError` for other columns."""
    found = dict[str, float]()
    for name, column in job.columns.items():
        if not isinstance(column, Continuous) or column.transform != "none":
            what = f"column {name!r} is not continuous, or is transformed"
            raise UsageError("records.simulate", what, "Simulate jobs of continuous columns.")
        found[name] = (column.high - column.low) / 2 / _REACH
    return found


def _placed(job: Job, names: Sequence[str], values: Array) -> pd.DataFrame:
    """Return the values in own units, within the bounds."""
    scale, columns = _scales(job), dict[str, Array]()
    for name, x in zip(names, values.T, strict=True):
        column = job.columns[name]
        assert isinstance(column, Continuous)
        middle = (column.low + column.high) / 2
        columns[name] = np.clip(middle + scale[name] * x, column.low, column.high)
    return pd.DataFrame({name: columns[name] for name in job.columns})
