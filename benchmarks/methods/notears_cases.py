"""Simulated clients for the NOTEARS-ADMM benchmarks: the sizes of the paper's figures 1 and 2."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.experiments.simulated_graphs import (
    edge_weights,
    erdos_renyi_dag,
    linear_gaussian_rows,
    mlp_rows,
    split_rows,
)
from secagg.models.graphs.metrics import compare_graphs

Matrix = NDArray[np.float64]

THRESHOLD = 0.3


@dataclass(frozen=True)
class Case:
    """d variables, ER1; n records, over K clients; linear, or of perceptrons."""

    d: int
    n: int
    K: int
    seed: int = 0
    nonlinear: bool = False

    def simulate(self) -> tuple[NDArray[np.bool_], list[Matrix]]:
        """Return the true graph and the clients' rows."""
        rng = np.random.default_rng(self.seed)
        graph = erdos_renyi_dag(self.d, self.d, rng)
        if self.nonlinear:
            rows = mlp_rows(graph, self.n, rng)
        else:
            rows = linear_gaussian_rows(edge_weights(graph, rng), self.n, rng)
        return graph, split_rows(rows, self.K)

    def __str__(self) -> str:
        return f"d {self.d}, n {self.n}, K {self.K}"


def distance(W: Matrix, truth: NDArray[np.bool_]) -> int | str:
    """Return the structural Hamming distance of the edges above the threshold.

    Edges from variables to themselves are left where a run was cut short, or its h overflowed.
    """
    edges = np.abs(W) > THRESHOLD
    return "loops" if np.any(np.diagonal(edges)) else compare_graphs(edges, truth).shd


def asked(what: str, *, nonlinear: bool = False) -> Case:
    """Return the case that the command line asks for."""
    parser = argparse.ArgumentParser(description=what)
    for option, usual in (("-d", 20), ("-n", 256), ("-K", 8), ("--seed", 0)):
        parser.add_argument(option, type=int, default=usual)
    options = parser.parse_args()
    return Case(options.d, options.n, options.K, options.seed, nonlinear)
