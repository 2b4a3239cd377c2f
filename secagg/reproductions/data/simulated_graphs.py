"""Random graphs and records made from them: the simulations of Ng and Zhang (AISTATS 2022), 6.

The graphs are Erdos-Renyi with as many edges as variables ("ER1"). Weights and linear Gaussian
records follow Zheng, Aragam, Ravikumar and Xing (NeurIPS 2018), records of multilayer perceptrons
Zheng, Dan, Aragam, Ravikumar and Xing (AISTATS 2020), time series Pamfil, Sriwattanaworachai,
Desai, Pilgerstorfer, Georgatzis, Beaumont and Aragam (AISTATS 2020, "DYNOTEARS").

Graphs and weights have [i, j] for i -> j throughout, and a row of records is one record. Whatever
is random is drawn from the `numpy.random.Generator` that is passed in: equal generators give equal
results. Nothing here is secret, and nothing of it belongs in a federated run.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_lyapunov
from scipy.special import expit

from secagg.errors import UsageError

Matrix = NDArray[np.float64]
Graph = NDArray[np.bool_]

EDGE = (0.5, 2.0)  # least and largest |weight| of an edge, and of the perceptrons' connections
LAGGED = (0.3, 0.5)  # of an edge from the time step before
HIDDEN = 100  # sigmoid units of each perceptron
MAX_DRAWS = 1000  # of a time series' model, until one is stationary


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


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """A structural vector autoregression, x_t = W'x_t + A_1'x_t-1 + ... + A_p'x_t-p + e_t.

    e_t is standard normal, independent over variables and time.
    W: (d, d), within a time step, acyclic; A: (p, d, d), A[k - 1] from k steps before, p >= 1
    """

    W: Matrix
    A: Matrix

    def companion(self) -> tuple[Matrix, Matrix]:
        """Return F and G of s_t = F s_t-1 + G e_t, where s_t stacks x_t, ..., x_t-p+1.

        F: (p d, p d), its first d rows (I - W)'^-1 A_k'; G: (p d, d), first (I - W)'^-1, then 0
        """
        p, d = self.A.shape[:2]
        F, G = np.eye(p * d, k=-d), np.zeros((p * d, d))
        G[:d] = np.linalg.inv(np.eye(d) - self.W).T
        F[:d] = G[:d] @ self.A.reshape(p * d, d).T
        return F, G

    @property
    def radius(self) -> float:
        """Largest |eigenvalue| of F: the process is stationary where it is below 1."""
        return float(np.max(np.abs(np.linalg.eigvals(self.companion()[0]))))

    def rows(self, n: int, rng: Generator) -> Matrix:
        """Return n windows (n, d (1 + p)), each x_t, x_t-1, ..., x_t-p of a process of its own.

        The past of each is drawn from the stationary distribution itself, whose covariance solves
        C = F C F' + G G' (Hamilton 1994, section 10.2): there is nothing to burn in.
        Raises `UsageError` where the process is not stationary.
        """
        if self.radius >= 1:
            raise UsageError("simulation", f"the process is not stationary (radius {self.radius})")
        F, G = self.companion()
        d = len(self.W)
        covariance = solve_discrete_lyapunov(F, G @ G.T)
        past = rng.multivariate_normal(np.zeros(len(F)), covariance, n, method="cholesky")
        present = past @ F[:d].T + rng.standard_normal((n, d)) @ G[:d].T
        return np.hstack([present, past])


def time_series(
    d: int,
    lags: int,
    rng: Generator,
    *,
    edges: int,
    lagged_edges: int,
    decay: float = 1.5,
    most: float = 0.95,
) -> TimeSeries:
    """Return a random stationary `TimeSeries` over d variables, as DYNOTEARS simulates them.

    edges: within a time step, as `erdos_renyi_dag` and `edge_weights` make them
    lagged_edges: for each of the `lags` steps back, so many of the d^2 pairs, each variable with
        itself included; their weights are uniform on [-0.5 a, -0.3 a] and [0.3 a, 0.5 a], where
        a = decay^-(k - 1) for k steps back
    decay: at least 1; most: largest radius, below 1: close to 1 a few directions dominate the data
    A process whose radius is larger is drawn again as a whole. With d edges and d lagged edges for
    each step that is one draw in two at d = 10, nine in ten at d = 50; with more edges, nearly all.
    Raises `UsageError` for what cannot be, or where no draw out of 1000 is stationary.
    """
    if lags < 1 or not 0 <= lagged_edges <= d * d or not decay >= 1 or not 0 < most < 1:
        raise UsageError("simulation", "lags, lagged_edges, decay or most is out of range")
    for _ in range(MAX_DRAWS):
        W = edge_weights(erdos_renyi_dag(d, edges, rng), rng)
        A = np.zeros((lags, d * d))
        for k in range(lags):
            chosen = rng.choice(d * d, lagged_edges, replace=False)
            A[k, chosen] = _signed_uniform((lagged_edges,), LAGGED, rng) * decay**-k
        model = TimeSeries(W, A.reshape(lags, d, d))
        if model.radius <= most:
            return model
    raise UsageError(
        "simulation",
        f"none of {MAX_DRAWS} processes drawn is stationary (radius at most {most})",
        "Take fewer edges or lags, or a larger decay.",
    )


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
