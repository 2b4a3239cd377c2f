"""Random graphs and records: the simulations of Ng and Zhang (AISTATS 2022), section 6.

The graphs are Erdos-Renyi with as many edges as variables ("ER1"). Weights and linear Gaussian
records follow Zheng, Aragam, Ravikumar and Xing (NeurIPS 2018). Records of multilayer perceptrons
follow Zheng, Dan, Aragam, Ravikumar and Xing (AISTATS 2020).

In all graphs and weights, [i, j] stands for i -> j. Each row is one record. All random numbers come
from the `numpy.random.Generator` argument, so equal generators give equal results. These functions
are for simulations only; no federated run uses them.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import expit

from secagg.errors import UsageError

Matrix = NDArray[np.float64]
Graph = NDArray[np.bool_]

EDGE = (0.5, 2.0)  # smallest and largest |weight| of an edge or a perceptron's connection
HIDDEN = 100  # sigmoid units of each perceptron


def erdos_renyi_dag(d: int, edges: int, rng: Generator) -> Graph:
    """Return a random directed acyclic graph over d variables, bool (d, d).

    A uniformly random set of exactly `edges` of the d (d - 1) / 2 pairs is connected. A random
    order of the variables gives the directions. The number of edges is fixed, not binomial: the
    paper has "number of edges equal to the number of variables", and Zheng et al. also draw from
    G(d, m). No run is then easier because it has fewer edges.
    Raises `UsageError` for d below 1, or for more edges than pairs.
    """
    pairs = np.argwhere(np.triu(np.ones((max(d, 0),) * 2, dtype=np.bool_), 1))
    if d < 1 or not 0 <= edges <= len(pairs):
        what = f"no acyclic graph over {d} variables has {edges} edges"
        raise UsageError("simulation", what)
    order = rng.permutation(d)
    earlier, later = order[pairs[rng.choice(len(pairs), edges, replace=False)]].T
    graph = np.zeros((d, d), dtype=np.bool_)
    graph[earlier, later] = True
    return graph


def edge_weights(graph: Graph, rng: Generator) -> Matrix:
    """Return (d, d) weights, uniform on [-2, -0.5] and [0.5, 2] where there is an edge, else 0."""
    return graph * _signed_uniform(graph.shape, EDGE, rng)


def linear_gaussian_rows(W: Matrix, n: int, rng: Generator) -> Matrix:
    """Return n independent records (n, d) of x = W'x + e with standard normal e.

    W: weights of an acyclic graph. Raises `UsageError` if the graph has a cycle.
    """
    rows = rng.standard_normal((n, len(W)))
    for j in _causes_first(W != 0):
        rows[:, j] += rows @ W[:, j]  # all causes of j are complete; other columns have weight 0
    return rows


def mlp_rows(graph: Graph, n: int, rng: Generator) -> Matrix:
    """Return n records (n, d) of x_j = V_j' sigmoid(U_j' x_parents) + e_j, e_j standard normal.

    Each call draws new U_j (parents, 100) and V_j (100,) from the distribution of `edge_weights`.
    There are no biases. A variable without parents equals its noise.
    Raises `UsageError` if the graph has a cycle.
    """
    rows = rng.standard_normal((n, len(graph)))
    for j in _causes_first(graph):
        parents = np.flatnonzero(graph[:, j])
        if len(parents):
            inner = _signed_uniform((len(parents), HIDDEN), EDGE, rng)
            outer = _signed_uniform((HIDDEN,), EDGE, rng)
            rows[:, j] += expit(rows[:, parents] @ inner) @ outer
    return rows


def split_rows(rows: Matrix, sites: int) -> list[Matrix]:
    """Return `sites` consecutive parts of the rows, of floor(n / sites) rows each.

    As in the paper, where each of K = 10 sites has floor(0.3 d) of n = 3 d records. Remaining rows
    are dropped, so that all sites have the same size; the paper's settings leave no remainder.
    Raises `UsageError` if a site would have no row.
    """
    if not 1 <= sites <= len(rows):
        raise UsageError("simulation", f"{len(rows)} rows cannot be split over {sites} sites")
    each = len(rows) // sites
    return [rows[k * each : (k + 1) * each] for k in range(sites)]


def _signed_uniform(shape: tuple[int, ...], size: tuple[float, float], rng: Generator) -> Matrix:
    """Return numbers whose absolute value is uniform between `size`, with random signs."""
    absolute = rng.uniform(*size, shape)
    signs = rng.choice(np.array([-1.0, 1.0]), shape)
    return np.asarray(np.copysign(absolute, signs), dtype=np.float64)


def _causes_first(graph: Graph) -> list[int]:
    """Return the variables in an order in which causes come before their effects."""
    try:
        return list(nx.topological_sort(nx.from_numpy_array(graph, create_using=nx.DiGraph)))
    except nx.NetworkXUnfeasible:
        raise UsageError("simulation", "the graph must not have a cycle") from None
