"""A site's likelihood of alternative graphs: what it sends for moves that all sites make together.

With constants m and scales b integrated out, the likelihood of a graph to the power beta is, by (3)
of `secagg.models.sparse_bayes.laplace_graph` and up to constants,

    beta (n - 1) log det A + SUM_j log Z_j,  Z_j = INTEGRAL (b_s + S_j(m))^-q dm                 (1)

with q = `ErrorLaw.shape`; normal errors have (b_s + S_j)^-q without the integral. The prior of b_j,
as a density of log b_j, has the power beta too, or q would not be above 1 for every beta.

An alternative differs from the present graph in the rows of some of q pairs of columns. All 2^q
sets of pairs are alternatives, so that the coordinator can choose every pair on its own: rows have
their own Z_j, and only the determinant couples them. Alternative a has pair i if bit i of a is 1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.numerics.laplace_location import Locations
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw, is_stable

MAX_PAIRS = 5
_LARGEST_LOG = 745.0  # of a float above 0, in size


def pairs_of(p: int, number: int) -> NDArray[np.int64]:
    """Return the pairs of columns (pairs, 2) of a round, the smaller first.

    No column is in two pairs. They do not depend on data, and all parties know them.
    """
    count = min(p // 2, MAX_PAIRS)
    chosen = np.random.default_rng([p, number]).permutation(p)[: 2 * count]
    return np.sort(chosen.reshape(count, 2), axis=1)


def subsets(pairs: int) -> NDArray[np.bool_]:
    """Return which pairs each alternative has, (2^pairs, pairs)."""
    found: NDArray[np.bool_] = (np.arange(2**pairs)[:, None] >> np.arange(pairs)) % 2 == 1
    return found


def largest_score(p: int, rows: int, prior: NoisePrior) -> float:
    """Return a bound of (1) at a site of at most `rows` records.

    log det A and log(b_s + S_j) are logarithms of floats; (1) has p of the latter, each at most
    rows + a_s times, with two more for the width of a piece and for q - 1.
    """
    return 2 * (rows + prior.shape + 2) * p * _LARGEST_LOG


def log_evidence(
    errors: Array, rows: NDArray[np.int64], prior: NoisePrior, law: ErrorLaw, heats: Array
) -> list[Array]:
    """Return log Z_j (chains, rows) at each heat, of errors with m = 0, (chains, rows, n).

    rows: the column whose errors each row has
    """
    laws = [replace(law, heat=heat) for heat in heats.T]
    every = (len(errors), 1 + rows.max())
    shapes = [np.broadcast_to(at.shape(prior), every)[:, rows] for at in laws]
    if law.degree == 1 and law.records:
        pieces = Locations(errors, prior.scale)
        return [pieces.log_integral(q) for q in shapes]
    return [-q * np.log(prior.scale + law.size(errors)) for q in shapes]


def score_alternatives(
    Y: Array,
    graph: Array,
    other: Array,
    pairs: NDArray[np.int64],
    heats: Array,
    prior: NoisePrior,
    law: ErrorLaw,
    least: float,
) -> Array:
    """Return (1) of all alternatives at each of the chain's heats, (chains, heats, 2^pairs).

    Y: (p, n) or (chains, p, n); graph, other: (chains, p, p), the rows of `other` that are in no
        pair are not read; heats: (chains, heats); least: the score of a graph that has no
        likelihood, as its spectral radius is 1 or above
    """
    chains, p, _ = graph.shape
    sets, rows, unit = subsets(len(pairs)), pairs.ravel(), np.eye(p)
    A = np.concatenate([unit - graph, (unit - other)[:, rows]], axis=1)
    errors, every = A @ Y, np.append(np.arange(p), rows)
    made = np.repeat(graph[None], len(sets), axis=0)
    for taken, each in zip(sets, made, strict=True):
        changed = pairs[taken].ravel()
        each[:, changed] = other[:, changed]
    stable = is_stable(made)
    volume = np.linalg.slogdet(unit - made)[1]
    scores = np.empty((chains, heats.shape[1], len(sets)))
    for i, (heat, Z) in enumerate(
        zip(heats.T, log_evidence(errors, every, prior, law, heats), strict=True)
    ):
        gains = (Z[:, p:] - Z[:, rows]).reshape(chains, len(pairs), 2).sum(axis=-1)
        score = heat * law.contrasts * volume + Z[:, :p].sum(axis=-1) + sets @ gains.T
        scores[:, i] = np.where(stable, score, least).T
    return scores
