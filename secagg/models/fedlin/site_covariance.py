"""HM1 of FedLin from secure sums: sites' coefficients shrunk by a covariance between sites.

Yue, Al Kontar and Estrada Gomez ("Federated data analytics: a study on linear models", 2022),
section 3. As printed the server needs all sites' coefficients Theta. Here it needs two sums. Site k
keeps v_k, its own history of past rounds, and with c = (1 - alpha)^t and b_k = c + a_k

    Omega <- (1 - alpha) Omega + (alpha / d) Theta'Theta,  Omega = I at first                    (1)
    Theta_new = Theta (Omega + D)^-1 Omega,  D = diag(a_1 .. a_K)                                (2)

is, column by column,

    theta_k - r_k (theta_k - M v_k),  r_k = a_k / b_k,  M = S (I + G)^-1,                        (3)
    S = SUM theta_k v_k' / b_k (d x m)   and   G = SUM v_k v_k' / b_k (m x m).                   (4)

A site sends its terms of (4), the server sends M, and each site applies (3). The server also sends
the eigenvectors U of G's largest eigenvalues. Each site replaces v_k by U v_k, so that its length m
stays K + d.

What the transcript determines. The sums of one round do not determine the coefficients of any site.
The sums of two rounds determine those of every site, because the next G contains the same products
with other weights: see (5) in the derivation.

docs/math/hm1-site-covariance.md derives all of this.
"""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array


def history_length(d: int, sites: int, rounds: int) -> int:
    """Return m, the smallest length of v_k that loses no information.

    The rank of V'V is at most K; it is also at most d for each round.
    """
    return d * rounds if d * rounds < sites + d else sites + d


def parts(theta: Array, v: Array, b: float) -> tuple[Array, Array]:
    """Return a site's terms of S and of G in (4); theta (d,), v (m,), b > 0."""
    return np.outer(theta, v) / b, np.outer(v, v) / b


def shrinkage(S: Array, G: Array) -> tuple[Array, Array]:
    """Return M (d, m) of (3), and U (m - d, m); U v_k leaves d entries for the next round."""
    d, m = S.shape
    M = np.linalg.solve(G + np.eye(m), S.T).T
    _, vectors = np.linalg.eigh(G)
    return np.asarray(M, dtype=np.float64), np.ascontiguousarray(vectors[:, d:].T)


def shrunk(theta: Array, v: Array, M: Array, r: float) -> Array:
    """Return a site's coefficients after (3)."""
    return theta - r * (theta - M @ v)


def remembered(v: Array, theta: Array, U: Array, alpha: float) -> Array:
    """Return the next v_k: U v and this round's coefficients, with the weights of (1)."""
    return np.concatenate([np.sqrt(1 - alpha) * (U @ v), np.sqrt(alpha / len(theta)) * theta])
