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
eta below the smallest eigenvalue of Omega, which is about c and vanishes; the implicit one,

    Theta <- Theta Omega (Omega + a I)^-1,  a = 2 eta sigma^2 T,                                 (2)

is stable for every Omega >= 0. With b = c + a its column k is, by Woodbury,

    theta_k - r (theta_k - M v_k),  r = a / b,  M = S (b I + G)^-1,                              (3)

where S = Theta V' and G = V V'. So a site sends its parts of the sums over sites of

    S = SUM theta_k v_k' (d x m)   and   Q = SUM theta_k theta_k' (d x d),                       (4)

the server sends M and r, and each site applies (3) with its own v_k. What (1) adds to V V' the
server knows from S, Q, M and G alone, since the new Theta is (1 - r) Theta + r M V.

What the transcript determines: the sums (4) of every round, and no column of Theta. A site alone in
the roster, or all others known, is what the sums then show, as with any sum.
Not protected: Q is the sites' coefficients' second moment, exactly, in every round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Covariance:
    """What the server keeps of Omega = c I + V'V: c, and G = V V' (m x m)."""

    c: float
    G: Array

    @classmethod
    def first(cls) -> Covariance:
        """Return Omega = I."""
        return cls(1.0, np.zeros((0, 0)))


def shrinkage(omega: Covariance, S: Array, a: float) -> tuple[Array, float]:
    """Return M (d x m) and r of (3), what the server sends; a >= 0."""
    b = omega.c + a
    solved = np.linalg.solve(omega.G + b * np.eye(len(omega.G)), S.T).T
    return np.asarray(solved, dtype=np.float64), a / b


def smoothed(omega: Covariance, S: Array, Q: Array, M: Array, r: float, alpha: float) -> Covariance:
    """Return (1), for the Theta that (3) leaves; 0 < alpha < 1. V has d more rows then."""
    cross = (1 - r) * S.T + r * omega.G @ M.T  # V Theta'
    both = r * (1 - r) * S @ M.T
    square = (1 - r) ** 2 * Q + both + both.T + r**2 * M @ omega.G @ M.T  # Theta Theta'
    old, new = 1 - alpha, alpha / len(Q)
    G = np.block(
        [[old * omega.G, np.sqrt(old * new) * cross], [np.sqrt(old * new) * cross.T, new * square]]
    )
    return Covariance(old * omega.c, G)


def shrunk(theta: Array, v: Array, M: Array, r: float) -> Array:
    """Return a site's coefficients after (3); theta (d,), v (m,)."""
    return theta - r * (theta - M @ v)


def remembered(v: Array, theta: Array, alpha: float) -> Array:
    """Return a site's column of V with this round's coefficients, as (1) weighs them."""
    return np.concatenate([np.sqrt(1 - alpha) * v, np.sqrt(alpha / len(theta)) * theta])


def gradient_steps(gram: Array, cross: Array, theta: Array, eta: float, steps: int) -> Array:
    """Return theta after full-batch steps theta + 2 eta (X'y - X'X theta), in closed form.

    gram: X'X (d, d); cross: X'y (d,). In the basis of X'X's eigenvectors each coordinate goes
    its own way, theta_i <- (1 - 2 eta w_i) theta_i + 2 eta z_i; where w_i = 0 it gains 2 eta z_i a
    step, and z_i = 0 there but for rounding. eta is to be below 1 / max w.
    """
    w, U = np.linalg.eigh(gram)
    factor = 1 - 2 * eta * w
    power = factor**steps
    total = np.where(
        np.abs(1 - factor) > 0, (1 - power) / np.where(w != 0, 2 * eta * w, 1.0), steps
    )
    z = U.T @ cross
    moved: Array = U @ (power * (U.T @ theta) + 2 * eta * total * z)
    return moved
