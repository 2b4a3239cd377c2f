"""The records of a cell: linear Gaussian graphs with as many edges as variables, over sites.

As in section 6 of Ng and Zhang (AISTATS 2022), weights are between 0.5 and 2 in size and all errors
have variance 1, so that the directions can be identified from the records in their own units
(Peters and Buehlmann, Biometrika 2014). Both sides of the comparison know each column's standard
deviation in the population, as a hospital knows the plausible range of a laboratory value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.experiments.runner.types import Settings
from secagg.experiments.simulated_graphs import (
    edge_weights,
    erdos_renyi_dag,
    linear_gaussian_rows,
    split_rows,
)

DOMAIN = 1708  # keeps these seeds apart from those of other experiments


@dataclass(frozen=True, eq=False)
class Records:
    """truth: (d, d) bool, [i, j] for i -> j; sites: (n_p, d) each

    scale: (d,), standard deviations in the population
    """

    truth: NDArray[np.bool_]
    sites: list[NDArray[np.float64]]
    scale: NDArray[np.float64]


def records_of(settings: Settings) -> Records:
    """Return the records for a cell's settings: d, sites, each (records of a site), seed."""
    d, sites, each = (int(settings[name]) for name in ("d", "sites", "each"))
    rng = np.random.default_rng(np.random.SeedSequence([DOMAIN, d, int(settings["seed"])]))
    truth = erdos_renyi_dag(d, d, rng)
    W = edge_weights(truth, rng)
    effects = np.linalg.inv(np.eye(d) - W)  # x = e (I - W)^-1
    rows = linear_gaussian_rows(W, sites * each, rng)
    return Records(truth, split_rows(rows, sites), np.sqrt((effects**2).sum(axis=0)))
