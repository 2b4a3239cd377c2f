"""Random time series for tests, as Pamfil et al. (AISTATS 2020, "DYNOTEARS") simulate them.

Pamfil, Sriwattanaworachai, Desai, Pilgerstorfer, Georgatzis, Beaumont and Aragam.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.linalg import solve_discrete_lyapunov

from secagg.core.arrays import Array as Matrix
from secagg.experiments.simulated_graphs import edge_weights, erdos_renyi_dag


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
        """
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
    """
    while True:
        W = edge_weights(erdos_renyi_dag(d, edges, rng), rng)
        A = np.zeros((lags, d * d))
        for k in range(lags):
            chosen = rng.choice(d * d, lagged_edges, replace=False)
            A[k, chosen] = _lagged_weights(lagged_edges, rng) * decay**-k
        model = TimeSeries(W, A.reshape(lags, d, d))
        if model.radius <= most:
            return model


def _lagged_weights(edges: int, rng: Generator) -> Matrix:
    size = rng.uniform(0.3, 0.5, edges)
    return np.copysign(size, rng.choice(np.array([-1.0, 1.0]), edges))
