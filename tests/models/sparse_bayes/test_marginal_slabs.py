"""Draws of spike or slab with theta integrated out, against enumeration of all choices."""

import numpy as np

from secagg.models.sparse_bayes.marginal_slabs import draw_slabs

Q, CASES = 4, 50


def log_evidence(P: np.ndarray, r: np.ndarray, e: np.ndarray) -> float:
    """Return log INT exp(r theta - theta P theta / 2) N(theta; 0, diag(e)) d theta."""
    total = P + np.diag(1 / e)
    return (
        float(r @ np.linalg.solve(total, r) - np.linalg.slogdet(total)[1] - np.sum(np.log(e))) / 2
    )


def test_probabilities_of_the_slab_agree_with_integrals() -> None:
    rng = np.random.default_rng(3)
    root = rng.standard_normal((CASES, 6, Q))
    P = 20 * np.swapaxes(root, 1, 2) @ root
    r = 15 * rng.standard_normal((CASES, Q))
    g, rho = np.round(rng.random((CASES, Q))), rng.random(CASES)
    slab, spike = np.full((CASES, Q), 0.7), np.full((CASES, Q), 1e-3)
    drawn, inclusion = draw_slabs(g, rho, P, r, slab, spike, rng)
    for i in range(CASES):
        now = g[i].copy()
        for j in range(Q):
            both = []
            for choice in (0.0, 1.0):
                now[j] = choice
                both.append(log_evidence(P[i], r[i], np.where(now > 0, slab[i], spike[i])))
            odds = rho[i] / (1 - rho[i]) * np.exp(both[1] - both[0])
            np.testing.assert_allclose(inclusion[i, j], odds / (1 + odds), rtol=1e-8)
            now[j] = drawn[i, j]
    assert 0.1 < drawn.mean() < 0.9
