"""Where expectation propagation of FedLin's example 4.1 ends if moments are exact: plain numpy.

Of one site's tilted density, log tau is on a grid of Gauss-Hermite for the cavity, and given that
all is normal: theta ~ N(a, B), B = V + diag(tau), where the cavity has mu | log tau ~ N(a, V). A
cavity as vague as the first rounds' is too wide for such a grid. So rounds begin near their end,
with K equal factors of a density that is given; where they end does not depend on it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Site = tuple[Array, Array]
"""X'X and X'y over the noise's variance."""


def fixed_point(
    sites: Sequence[Site], prior: tuple[float, float], start: tuple[Array, Array],
    nodes: int, tolerance: float = 1e-4, most: int = 200,
) -> tuple[Array, Array]:  # fmt: skip
    """Return mean and sd of q(mu, log tau); mu ~ N(0, 1), log tau ~ N(prior).

    start: means and sds; tolerance: of q from where it goes, in its sds
    """
    d, K = len(sites[0][1]), len(sites)
    m, s = prior
    Q = np.diag(np.repeat([1.0, s**-2], d))
    p = (Q @ np.repeat([0.0, m], d), Q)
    Q = np.diag(start[1] ** -2)
    q = (Q @ start[0], Q)
    own, far = [((q[0] - p[0]) / K, (q[1] - p[1]) / K)] * K, np.inf
    grid, weight = _grid(d, nodes)
    for number in range(most):
        delta = min(0.5, 1.25**number / K)  # K changes at once overshoot
        steps = []
        for site, (r, P) in zip(sites, own, strict=True):
            cavity = (q[0] - r, q[1] - P)
            mean, cov = _tilted(site, *_moments(*cavity), grid, weight)
            Q = np.linalg.inv(cov)
            Q = (Q + Q.T) / 2
            steps.append((delta * (Q @ mean - cavity[0] - r), delta * (Q - cavity[1] - P)))
        own = [(r + a, P + b) for (r, P), (a, b) in zip(own, steps, strict=True)]
        before, after = (
            _moments(*q),
            (q[0] + sum(a for a, _ in steps), q[1] + sum(b for _, b in steps)),
        )
        q = (np.asarray(after[0]), np.asarray(after[1]))
        mean, cov = _moments(*q)
        sd, old = np.sqrt(np.diagonal(cov)), np.sqrt(np.diagonal(before[1]))
        far = max(np.max(np.abs(mean - before[0]) / sd), np.max(np.abs(np.log(sd / old)))) / delta
        if far < tolerance:
            return mean, sd
    raise RuntimeError(f"after {most} rounds q is still {far:.2g} away")


def _moments(r: Array, Q: Array) -> tuple[Array, Array]:
    cov = np.linalg.inv(Q)
    return cov @ r, (cov + cov.T) / 2


def _grid(d: int, nodes: int) -> tuple[Array, Array]:
    """Points (n, d) and logarithms of their weights (n,), for N(0, I)."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    points = np.stack(np.meshgrid(*[x] * d, indexing="ij"), -1).reshape(-1, d)
    weights = np.stack(np.meshgrid(*[w] * d, indexing="ij"), -1).reshape(-1, d)
    kept = np.prod(weights, axis=1) > 1e-25 * np.prod(weights, axis=1).max()
    return points[kept], np.sum(np.log(weights[kept]), axis=1)


def _tilted(site: Site, mean: Array, cov: Array, grid: Array, weight: Array) -> tuple[Array, Array]:
    G, c = site
    d = len(c)
    log_tau = mean[d:] + grid @ np.linalg.cholesky(cov[d:, d:]).T
    A = cov[:d, d:] @ np.linalg.inv(cov[d:, d:])
    a, V = mean[:d] + (log_tau - mean[d:]) @ A.T, cov[:d, :d] - A @ cov[d:, :d]
    B = V + np.exp(log_tau)[:, :, None] * np.eye(d)
    S = np.linalg.solve(np.eye(d) + B @ G, B)  # covariance of theta, given the records
    off = c - a @ G
    moved = np.einsum("nij,nj->ni", S, off)
    log = weight - np.linalg.slogdet(np.eye(d) + B @ G)[1] / 2 + np.sum(off * moved, axis=1) / 2
    log += a @ c - np.einsum("ni,ij,nj->n", a, G, a) / 2
    w = np.exp(log - log.max())
    w /= w.sum()
    gain = V @ np.linalg.inv(B)
    phi = np.hstack([a + np.einsum("nij,nj->ni", gain, moved), log_tau])
    found = w @ phi
    spread = ((phi - found) * w[:, None]).T @ (phi - found)
    spread[:d, :d] += V - np.einsum("n,nij,njk,nlk->il", w, gain, B - S, gain, optimize=True)
    return found, spread
