"""A site's likelihood of a graph, given constants and scales, and its slopes.

With m and b_k held, the logarithm of (3) of `secagg.models.sparse_bayes.laplace_graph` is, up to
constants and for a graph whose spectral radius is below 1,

    l = nu log det A - SUM_j S_j / b_j^r,   S_j = SUM_i |e_ij|^r / r                             (1)
    dl / dtheta_jh = -nu (A^-1)_hj + SUM_i sign(e_ij) |e_ij|^(r - 1) Y_ih / b_j^r                (2)

with e = A Y - m and r, nu of `ErrorLaw`. At a power beta both are multiplied by beta; the prior of
b_j has no theta. Steps that use (2) are right with any function of the graph in its place
(`secagg.models.sparse_bayes.joint.paths`), so it is clipped, and has no determinant where a graph
has no likelihood.
"""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array
from secagg.models.numerics.gaussian_draws import MIN_GAMMA, clip_variance
from secagg.models.numerics.laplace_location import Locations
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw, is_stable


def draw_location_and_scale(
    Y: Array, graph: Array, prior: NoisePrior, law: ErrorLaw, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return a draw of m and b_k given the graph, (chains, p) each; m is 0 for normal errors.

    These are (4) and (6) of `laplace_graph`. Normal errors have their constants integrated out.
    Y: (chains, p, n); graph: (chains, p, p)
    """
    errors = Y - graph @ Y
    q = np.broadcast_to(law.shape(prior), errors.shape[:2])
    m = np.zeros(errors.shape[:2])
    if law.degree == 1 and law.records:
        m = Locations(errors, prior.scale).draw(q, rng.random((2, *m.shape)))
    gamma = np.maximum(rng.standard_gamma(q), MIN_GAMMA)
    scale = law.row_powers * (prior.scale + law.size(errors - m[..., None]))
    return m, clip_variance(scale / gamma) ** (1 / law.degree)


def log_likelihood_and_slopes(
    Y: Array, graph: Array, m: Array, b: Array, law: ErrorLaw, *, least: float, steepest: float
) -> tuple[Array, Array]:
    """Return (1) of each chain, (chains,), and (2), (chains, p, p), at the power 1.

    least: (1) of a graph that has no likelihood; steepest: (2) is clipped at this size
    """
    A = np.eye(graph.shape[-1]) - graph
    # the coordinator multiplies all by beta
    errors, s = A @ Y - m[..., None], b**law.degree / (law.row_powers / law.powers[:, None])
    stable = is_stable(graph)
    A = np.where(stable[:, None, None], A, np.eye(graph.shape[-1]))
    found = law.contrasts * np.linalg.slogdet(A)[1] - (law.size(errors) / s).sum(axis=-1)
    pull = np.sign(errors) if law.degree == 1 else errors
    slopes = pull @ np.swapaxes(Y, 1, 2) / s[..., None]
    slopes -= law.contrasts * np.swapaxes(np.linalg.inv(A), 1, 2)
    found = np.where(stable, np.maximum(found, least), least)
    return found, np.clip(slopes, -steepest, steepest)
