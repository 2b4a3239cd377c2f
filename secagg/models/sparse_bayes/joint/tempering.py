"""Parallel tempering: copies of a chain in which the records count less (Geyer 1991).

Copy l of a chain has the likelihood to the power beta_l, 1 = beta_0 > beta_1 > ... at every site;
all else of the model is the same. Only copies at beta = 1 are recorded. Copies with small beta pass
between graphs that explain the records about equally well, which a chain at beta = 1 cannot leave.
After a round neighbours exchange their powers, with the probability of Metropolis and Hastings

    min(1, exp(L_i(beta_j) + L_j(beta_i) - L_i(beta_i) - L_j(beta_j)))                           (1)

where L_i(beta) is the sum over sites of (1) of `secagg.models.sparse_bayes.metropolis.alternatives`
at copy i's graphs. A round exchanges copies 0 and 1, 2 and 3, ..., the next one 1 and 2, 3 and 4,
..., so that powers pass through the ladder in one direction for long (Syed, Bouchard-Cote,
Deligiannidis and Doucet 2022, "Non-reversible parallel tempering").

The powers are chosen in warmup only, so that all neighbours exchange equally often, with
probability `RATE`: log(beta_l / beta_l+1) moves up if they exchange more often, and down if less
(Miasojedow, Moulines and Vihola 2013, "An adaptive parallel tempering algorithm").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array

Indices = NDArray[np.int64]

RATE = 0.3
MIN_HEAT = 0.01
_FIRST_RATIO = 0.85  # of neighbouring powers


def first_heats(chains: int, copies: int) -> Array:
    """Return beta of all copies of all chains, (chains * copies,)."""
    ratio = max(_FIRST_RATIO, MIN_HEAT ** (1 / copies))
    return np.tile(ratio ** np.arange(copies), chains)


def ranks(heats: Array, chains: int) -> Indices:
    """Return l of each copy, (chains, copies); heats: (chains * copies,)."""
    order = np.argsort(-heats.reshape(chains, -1), axis=1)
    return np.argsort(order, axis=1)


def of_rank(heats: Array, chains: int) -> Indices:
    """Return the position of copy l of each chain among all copies, (chains, copies)."""
    order = np.argsort(-heats.reshape(chains, -1), axis=1)
    found: Indices = order + np.arange(chains)[:, None] * order.shape[1]
    return found


def rows_by_power(heats: Array, chains: int, sites: int) -> Indices:
    """Return, for the copies of one site after another's, the row of what each power has."""
    rank = ranks(heats, chains)
    own = np.arange(len(rank))[:, None] * rank.shape[1] + rank
    found: Indices = (np.arange(sites)[:, None] * len(heats) + own.ravel()).ravel()
    return found


def partners(heats: Array, chains: int, number: int) -> Indices:
    """Return the position of the copy that each may exchange with in a round; its own if none."""
    rank = ranks(heats, chains)
    mate = rank + np.where(rank % 2 == number % 2, 1, -1)
    mate = np.where((mate >= 0) & (mate < rank.shape[1]), mate, rank)
    position: Indices = np.take_along_axis(of_rank(heats, chains), mate, axis=1).ravel()
    return position


def exchanged(
    heats: Array,
    chains: int,
    number: int,
    own: Array,
    others: Array,
    rng: np.random.Generator,
    *,
    warmup: bool,
) -> Array:
    """Return the powers after exchanges; in warmup adapted ones.

    own: L_i(beta_i) of each copy; others: L_i at the partner's power, (copies,)
    """
    mates, rank = partners(heats, chains, number), ranks(heats, chains).ravel()
    gain = others + others[mates] - own - own[mates]
    first = np.minimum(np.arange(len(heats)), mates)  # both read one uniform
    taken = np.log1p(-rng.random(len(heats)))[first] < gain
    found = np.where(taken, heats[mates], heats)
    if not warmup:
        return found
    lower = rank < rank[mates]
    rates = np.exp(np.minimum(gain, 0.0))
    ladder = heats[of_rank(heats, chains)[0]]
    steps = -np.diff(np.log(ladder))
    for at in np.unique(rank[lower]):
        rate = rates[lower & (rank == at)].mean()
        steps[at] *= np.exp((number + 1) ** -0.6 * (rate - RATE))
    steps *= min(1.0, -np.log(MIN_HEAT) / max(steps.sum(), 1.0))
    ladder = np.exp(-np.concatenate([[0.0], np.cumsum(steps)]))
    adapted: Array = ladder[ranks(found, chains).ravel()]
    return adapted
