"""The data of a cell: a true graph and records, determined by figure, size and seed.

They do not depend on the method or the number of sites. As in the paper, all methods see the same
records for a seed, and the same n records are split over K sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reproductions.data import sachs
from secagg.experiments.runner.types import Settings
from secagg.experiments.simulated_graphs import (
    edge_weights,
    erdos_renyi_dag,
    linear_gaussian_rows,
    mlp_rows,
)
from secagg.models.common.pooled_moments import Moments


@dataclass(frozen=True, eq=False)
class Data:
    """truth: (d, d) bool, [i, j] for i -> j; rows: (n, d), float64"""

    truth: NDArray[np.bool_]
    rows: NDArray[np.float64]


def data_of(settings: Settings) -> Data:
    """Return the data for a cell's settings.

    data: "linear" or "mlp" (with figure, d, n, seed): a graph with as many edges as variables, and
        records of that model; "raw", "standardised" or "log" (with figure, n, seed): n cells of
        Sachs et al., drawn without replacement, as raw values, scaled to mean 0 and standard
        deviation 1 over these n, or as logarithms
    """
    kind, n = str(settings["data"]), int(settings["n"])
    figure, seed = int(settings["figure"]), int(settings["seed"])
    if kind in ("linear", "mlp"):
        d = int(settings["d"])
        rng = np.random.default_rng(np.random.SeedSequence([figure, d, seed]))
        truth = erdos_renyi_dag(d, d, rng)
        if kind == "mlp":
            return Data(truth, mlp_rows(truth, n, rng))
        return Data(truth, linear_gaussian_rows(edge_weights(truth, rng), n, rng))
    # All scalings use the same cells.
    rng = np.random.default_rng(np.random.SeedSequence([figure, seed]))
    drawn = sachs.intensities()[rng.choice(sachs.CELLS, n, replace=False)]
    if kind == "log":
        drawn = np.log(drawn)
    elif kind == "standardised":
        drawn = (drawn - drawn.mean(axis=0)) / drawn.std(axis=0)
    return Data(sachs.consensus(), drawn)


def moments_of(rows: NDArray[np.float64]) -> Moments:
    """Return the moments of these rows, equal to those of one exact secure sum over their sites."""
    centred = rows - rows.mean(axis=0)
    names = tuple(f"x{j}" for j in range(rows.shape[1]))
    return Moments(names, len(rows), rows.mean(axis=0), centred.T @ centred)
