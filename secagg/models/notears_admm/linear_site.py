"""A site of linear NOTEARS-ADMM: problem (4) of Ng and Zhang (AISTATS 2022) in closed form.

A site's records enter through S_k = X'X / n alone, X its centred records, n the number of records
of all sites. With x = (y, z), y the d variables now and z their lagged values (none for a static
graph), S_k is (q, q) and B_k, W and beta_k are (q, d); J is the first d columns of the identity:

    minimise  1/2 tr((J - B)' S_k (J - B)) + <beta_k, B - W> + rho2/2 |B - W|_F^2              (4)

whose solution B = (S_k + rho2 I)^-1 (rho2 W - beta_k + S_k J) is equation (10) for J = I. Only
V_k = beta_k + rho2 (B_k - W) = S_k (J - B_k) leaves the site, and summed
(`secagg.models.notears_admm.coordinator`). With S_k = Q L Q', L the r positive eigenvalues, r <=
min(n_k - 1, q):

    V_k = Q [L / (L + rho2)] (rho2 (Q'J - Q'W) + Q'beta_k),                                   (10')
    Q'beta_k after (7) = Q'V_k + rho2 (Q'W - Q'W'),   W' the next W.                           (7')

No other part of beta_k is needed, because parts orthogonal to Q have no effect on V_k. So one
eigendecomposition is enough for all rounds. A round needs two products with Q for any rho2, and
neither time nor memory depends on the number of records. (10') has no differences of large numbers,
even at rho2 = 1e16. All functions also accept stacks of sites, shape (..., q, r).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array


def spectrum(X: Array, n: int) -> tuple[Array, Array]:
    """Return Q, shape (q, r), and L, shape (r,), of X'X / n; r = min(records, q).

    X: (records, q), centred; n: records of all sites, at least 1
    """
    records, q = X.shape
    if records < q:  # S would be larger than X
        _, singular, rows = np.linalg.svd(X / np.sqrt(n), full_matrices=False)
        return np.ascontiguousarray(rows.T), singular**2
    eigenvalues, Q = np.linalg.eigh(X.T @ X / n)
    return Q, np.maximum(eigenvalues, 0)  # rounding can leave -1e-17


def begin_site(Q: Array, L: Array, d: int) -> State:
    """Return a site's memory before the first round: beta = 0, and W = 0 for the round before."""
    shape = (*L.shape, d)
    return {
        "Q": Q,
        "L": L,
        "beta": np.zeros(shape),  # Q'beta
        "V": np.zeros(shape),  # Q'V
        "W": np.zeros(shape),  # Q'W
        "rho2": 0.0,
    }


def answer(site: State, W: Array, rho2: float) -> tuple[Array, State]:
    """Return V_k and the memory after a round: (7') for the round before, then (10').

    W: (q, d), finite; rho2: above 0
    """
    Q, L = site["Q"], site["L"][..., None]
    transposed = np.swapaxes(Q, -1, -2)
    projected = transposed @ W
    # In the first round the previous rho2 is 0, so beta is 0.
    beta = site["V"] + site["rho2"] * (site["W"] - projected)
    goal = transposed[..., : W.shape[1]]  # Q'J
    V = L / (L + rho2) * (rho2 * (goal - projected) + beta)
    return Q @ V, {**site, "beta": beta, "V": V, "W": projected, "rho2": rho2}


def stack(spectra: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return the sites' Q and L as two arrays, padded with eigenvalues of zero."""
    ranks = [len(L) for _, L in spectra]
    q = spectra[0][0].shape[0]
    Q, L = np.zeros((len(spectra), q, max(ranks))), np.zeros((len(spectra), max(ranks)))
    for k, (vectors, values) in enumerate(spectra):
        Q[k, :, : ranks[k]], L[k, : ranks[k]] = vectors, values
    return Q, L
