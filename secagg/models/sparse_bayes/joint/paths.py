"""Moves of the common graph and all sites' graphs together on a path: Hamiltonian steps.

Sites draw their graphs within tau of the common one, and it is drawn near theirs: drawn in turn,
with a small tau, none of them moves far. Here they move together (Yu and Meng 2011, "To center or
not to center"): theta changes, and with d_k held

    theta_kjh = theta_jh + d_kjh                                                                 (1)

changes with it at every site. d has a law that does not depend on theta. So what is left is the
prior of theta, with g integrated out of it, and the sites' likelihoods,

    log p(theta) = beta SUM_k l_k + log prior                                                    (2)

with l_k of `secagg.models.sparse_bayes.metropolis.slopes`, where m and b_k are held. A path
(Duane, Kennedy, Pendleton and Roweth 1987, "Hybrid Monte Carlo"; Neal 2011, "MCMC using Hamiltonian
dynamics", section 2.3) draws a normal momentum p and makes steps of

    p += e F(theta) / 2,   theta += e p,   p += e F(theta) / 2                                   (3)

of which each needs F, the slopes of (2), at one new place: one secure round. Its end is taken with
probability min(1, exp(H' - H)), H = log p(theta) - |p|^2 / 2. (3) keeps volumes and is its own
inverse with p turned round, for any function F of theta: so clipped and rounded slopes leave (2) as
it is. Each entry has its own size of steps, e_jh = e / root(I_jh), I_jh the mean of F_jh^2, which
is that of the curvature, -d^2 log p / d theta_jh^2. I and e are chosen in warmup only, for each
power, e so that `RATE` of all paths are taken. e varies from path to path, so that none returns to
its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.joint.common_moves import log_prior
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab

Ranks = NDArray[np.int64]

RATE = 0.7
_FIRST_SIZE = 0.2  # of e
_VARIES = 0.3  # share by which the size of steps varies
_FARTHEST = 1e3  # effect at which a path ends


def first_steps(copies: int, entries: int, records: int) -> State:
    """Return log e, (copies,), and I, (copies, entries), for each power."""
    information = np.full((copies, entries), float(records))
    return {"log_size": np.full(copies, np.log(_FIRST_SIZE)), "information": information}


def log_density(now: Common, likelihood: Array, heat: Array, prior: SpikeSlab) -> Array:
    """Return (2), (chains,); likelihood: the sum over sites of l_k."""
    return np.asarray(heat * likelihood + log_prior(now.theta, now, prior).sum(axis=-1))


def slopes(now: Common, slope: Array, heat: Array, prior: SpikeSlab) -> Array:
    """Return the slopes of (2), (chains, entries); slope: the sum over sites of l_k's."""
    narrow = prior.narrow(now.eta)
    odds = np.log(now.rho / (1 - now.rho))[..., None] + np.log(narrow / now.eta) / 2
    slab = expit(odds + now.theta**2 * (1 / narrow - 1 / now.eta) / 2)
    precision = slab / now.eta + (1 - slab) / narrow
    return np.asarray(heat[:, None] * slope - precision * now.theta)


def begin_path(now: Common, steps: State, rank: Ranks, rng: np.random.Generator) -> State:
    """Return a path before its first round, at which sites answer for its start.

    steps: as `first_steps`; rank: the number of each chain's power
    """
    varied = rng.uniform(1 - _VARIES, 1 + _VARIES, len(rank)) * np.exp(steps["log_size"])[rank]
    return {
        "step": 0,
        "theta": now.theta,
        "momentum": rng.standard_normal(now.theta.shape),
        "size": varied[:, None] / np.sqrt(steps["information"][rank]),
        "force": np.zeros(now.theta.shape),
        "start": np.zeros(len(rank)),
    }


def advance(
    path: State,
    now: Common,
    total: Mapping[str, Array],
    heat: Array,
    prior: SpikeSlab,
    *,
    steps: int,
) -> tuple[State, Array]:
    """Return the path after (3), and log min(1, exp(H' - H)), which its last round decides.

    total: sums at the path's place, of l_k "likelihood" (chains,) and its slopes "slope"
    """
    here = replace(now, theta=path["theta"])
    first, last = path["step"] == 0, path["step"] == steps
    p = path["momentum"]
    density = log_density(here, total["likelihood"], heat, prior)
    start = density - (p**2).sum(axis=1) / 2 if first else path["start"]
    share = 0.5 if first or last else 1.0
    force = slopes(here, total["slope"], heat, prior)
    p = p + share * path["size"] * force
    if last:
        gain = density - (p**2).sum(axis=1) / 2 - start
        return path, np.minimum(np.where(np.isnan(gain), -np.inf, gain), 0.0)
    theta = path["theta"] + path["size"] * p
    # a path that leads too far is not taken, and waits where it is
    far = ~np.all(np.abs(theta) < _FARTHEST, axis=1)
    theta = np.where(far[:, None], path["theta"], theta)
    start = np.where(far, np.inf, start)
    news = {"step": path["step"] + 1, "theta": theta, "momentum": p, "start": start}
    return {**path, **news, "force": force if first else path["force"]}, np.zeros(len(heat))


def adapted_steps(
    steps: State,
    rank: Ranks,
    path: State,
    chances: Array,
    number: int,
    present: Array | float = 1.0,
) -> State:
    """Return log e and I after one more path of warmup (Robbins and Monro 1951).

    chances: with which each chain's path was taken; number: of the round; present: 1 for each
        entry on a path, (chains, entries), or for all
    """
    on = np.broadcast_to(present, path["force"].shape)
    gain = (number + 1) ** -0.6
    log_size, information = steps["log_size"].copy(), steps["information"].copy()
    for at in range(len(log_size)):
        mine = rank == at
        log_size[at] += gain * (chances[mine].mean() - RATE)
        chains = on[mine].sum(axis=0)
        mean = (path["force"][mine] ** 2 * on[mine]).sum(axis=0) / np.maximum(chains, 1.0)
        information[at] += gain * np.where(chains > 0, mean - information[at], 0.0)
    return {"log_size": np.minimum(log_size, 0.5), "information": information}
