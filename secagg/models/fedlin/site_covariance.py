"""HM1 of FedLin from secure sums: sites' coefficients shrunk by a covariance between sites.

Yue, Al Kontar and Estrada Gomez ("Federated data analytics: a study on linear models", 2022),
section 3. Theta = (theta_1 .. theta_K) is d x K, one column a site, with prior MN(0, I, Omega) and
Omega K x K. In each round of Algorithm 1 sites take gradient steps of their own, Theta is shrunk,
and the server smooths

    Omega <- (1 - alpha) Omega + (alpha / d) Theta'Theta,  Omega = I at first                    (1)

As printed the server needs Theta itself, for Theta'Theta, which shows it every site's coefficients.
It does not need it. By (1) Omega = c I + V'V, where c = (1 - alpha)^t and V (m x K) has the Thetas
of past rounds as blocks of rows, each times the root of its weight: column v_k is site k's own
history, and stays there. The paper's explicit step Theta - 2 eta Theta Omega^-1 is stable only for
eta below the smallest eigenvalue of Omega, which is about c and vanishes. The implicit step

    Theta <- Theta - Theta_new Omega^-1 D,  so  Theta_new = Theta (Omega + D)^-1 Omega           (2)

with D = diag(a_1 .. a_K), a_k >= 0, is stable for every Omega >= 0. (The paper's is D = 2 eta I; a
site whose T steps of size eta_k follow the gradient of its sum of squares needs
a_k = 2 eta_k sigma_k^2 T for (1)'s prior to have its weight.) With b_k = c + a_k, Woodbury gives
column k of (2) as

    theta_k - r_k (theta_k - M v_k),  r_k = a_k / b_k,  M = S (I + G)^-1,                        (3)
    S = SUM theta_k v_k' / b_k (d x m)   and   G = SUM v_k v_k' / b_k (m x m).                   (4)

So a site sends its parts of (4), the server sends M, and each site applies (3) with its own v_k. c
everybody knows.

m would grow by d in every round. But V has K columns, so rank at most K, and V'V does not change
when V is multiplied by an orthogonal matrix. The eigenvectors U (m - d, m) of G's largest
eigenvalues span V's columns as soon as m - d >= K: the server sends U, sites keep U v_k, and m
stays at K + d, at no loss. (To drop old rounds' blocks once their weight is negligible would keep
hundreds of rows for alpha = 0.1.)

What the transcript determines. One round's sums (4): no column of Theta. Were all b_k equal, they
would be unchanged if all columns were mixed by one orthogonal K x K matrix. Two rounds' sums: every
column. G has U's image of one round's products again in the next, with other weights,

    U G U' = SUM h_k h_k' / (c + a_k)  and  SUM h_k h_k' / ((1 - alpha) c + a_k),  h_k = U v_k,  (5)

of which the second is the first rows and columns of the next G, over 1 - alpha. Where the h_k are
independent (from round K / d on) and no two a_k are equal, generalised eigenvectors x_k of (5) are
orthogonal to all h_j but one: they separate the sites in all further sums, and eigenvalues are
(c + a_k) / ((1 - alpha) c + a_k), hence a_k. It is the price of an a_k of each site's own: with one
for all, (5) would be the same sum twice. How exactly it works out depends on how different
histories and a_k are; nothing in the method keeps them alike.
"""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array


def history_length(d: int, sites: int, rounds: int) -> int:
    """Return m, at which nothing of V'V is lost: rank at most K, or of one block a round."""
    return d * rounds if d * rounds < sites + d else sites + d


def parts(theta: Array, v: Array, b: float) -> tuple[Array, Array]:
    """Return a site's part of S and of G in (4); theta (d,), v (m,), b > 0."""
    return np.outer(theta, v) / b, np.outer(v, v) / b


def shrinkage(S: Array, G: Array) -> tuple[Array, Array]:
    """Return M (d, m) of (3), and U (m - d, m) that leaves room for the next block."""
    d, m = S.shape
    M = np.linalg.solve(G + np.eye(m), S.T).T
    _, vectors = np.linalg.eigh(G)
    return np.asarray(M, dtype=np.float64), np.ascontiguousarray(vectors[:, d:].T)


def shrunk(theta: Array, v: Array, M: Array, r: float) -> Array:
    """Return a site's coefficients after (3)."""
    return theta - r * (theta - M @ v)


def remembered(v: Array, theta: Array, U: Array, alpha: float) -> Array:
    """Return a site's column of V with this round's coefficients, as (1) weighs them."""
    return np.concatenate([np.sqrt(1 - alpha) * (U @ v), np.sqrt(alpha / len(theta)) * theta])
