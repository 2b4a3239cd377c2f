"""Random graphs and records made from them: the simulations of Ng and Zhang (AISTATS 2022), 6.

The graphs are Erdos-Renyi with as many edges as variables ("ER1"). Weights and linear Gaussian
records follow Zheng, Aragam, Ravikumar and Xing (NeurIPS 2018), records of multilayer perceptrons
Zheng, Dan, Aragam, Ravikumar and Xing (AISTATS 2020).

Graphs and weights have [i, j] for i -> j throughout, and a row of records is one record. Whatever
is random is drawn from the `numpy.random.Generator` that is passed in: equal generators give equal
results. Nothing here is secret, and nothing of it belongs in a federated run.
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

EDGE = (0.5, 2.0)  # least and largest |weight| of an edge, and of the perceptrons' connections
HIDDEN = 100  # sigmoid units of each perceptron


def erdos_renyi_dag(d: int, edges: int, rng: Generator) -> Graph:
    """Return a random directed acyclic graph over d variables, bool (d, d).

    Exactly `edges` of the d (d - 1) / 2 pairs, all sets of them equally likely, are connected, and
    directed by a random order of the variables. The number is fixed, and not the mean of a binomial
    one: the paper has "number of edges equal to the number of variables", and Zheng et al. draw
    from G(d, m) too, so that no run is easier than another for having fewer edges.
    Raises `UsageError` for d below 1, or for more edges than pairs.
    """
    pairs = np.argwhere(np.triu(np.ones((max(d, 0),) * 2, dtype=np.bool_), 1))
    if d < 1 or not 0 <= edges <= len(pairs):
        raise UsageError("simulation", f"there is no acyclic graph of {edges} edges over {d}")
    order = rng.permutation(d)
    earlier, later = order[pairs[rng.choice(len(pairs), edges, replace=False)]].T
    graph = np.zeros((d, d), dtype=np.bool_)
    graph[earlier, later] = True
    return graph


def edge_weights(graph: Graph, rng: Generator) -> Matrix:
    """Return (d, d) weights, uniform on [-2, -0.5] and [0.5, 2] where there is an edge, else 0."""
    return graph * _signed_uniform(graph.shape, EDGE, rng)


def linear_gaussian_rows(W: Matrix, n: int, rng: Generator) -> Matrix:
    """Return n records (n, d) of x = W'x + e with standard normal e, independent of one another.

    W: weights of an acyclic graph. Raises `UsageError` for one with a cycle.
    """
    rows = rng.standard_normal((n, len(W)))
    for j in _causes_first(W != 0):
        rows[:, j] += rows @ W[:, j]  # its causes are complete; what is not has weight 0
    return rows


def mlp_rows(graph: Graph, n: int, rng: Generator) -> Matrix:
    """Return n records (n, d) of x_j = V_j' sigmoid(U_j' x_parents) + e_j, e_j standard normal.

    U_j (parents, 100) and V_j (100,) are drawn here, afresh on each call, as `edge_weights` are;
    there are no biases, and a variable without parents is its noise.
    Raises `UsageError` for a graph with a cycle.
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

    As in the paper, where each of K = 10 sites has floor(0.3 d) of n = 3 d records. What is left
    over is dropped, so that sites are of one size; in the paper's own settings nothing is.
    Raises `UsageError` where a site would have no row.
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
        raise UsageError("simulation", "the graph has a cycle, which no records follow") from None
