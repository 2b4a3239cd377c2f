"""Federated expectation propagation with normal densities: a site's step, and the coordinator's.

Yue, Al Kontar and Estrada Gomez (2022), section 4.2 and Algorithm 3; Vehtari and others (JMLR
2020), "Expectation propagation as a way of life". q is p(phi) times the product of all q_k, where
the normal density q_k approximates site k's likelihood of phi. All densities are in natural
parameters (`secagg.models.numerics.natural_gaussian`). In each round every site computes

    cavity      q / q_k                                                                          (3)
    tilted      moments of f_k times the cavity: `secagg.models.fedlin.hierarchies.base`
              (4) new q_k     normal density of these moments / cavity
                   (5), (6)
    change      new q_k / old q_k

and the coordinator multiplies q by the product of all changes (7), which is a sum in natural
parameters. It may apply only a share of this sum. Its next message states the share.

The coordinator applies the largest share 2^-j for which no variance of q, in any direction, changes
more than tenfold. With few sites, a cavity may not be a proper density. Then power expectation
propagation (Minka 2004) removes only a part of q_k. If this fails too, the site is counted as
strained.

In some tens of rounds, a dishonest coordinator obtains X'X and X'y of a few sites. An honest
coordinator could have sent the same messages (the attack `hm2_invented`), so no check refuses
them.
docs/math/hm2-shared-posterior.md explains the share, the powers and the attack.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import (
    Hierarchy,
    SufficientStatistics,
    usable_powers,
)
from secagg.models.numerics.natural_gaussian import Natural

_MAX_VARIANCE_RATIO = 10.0  # largest factor by which a variance may change in a round
_MIN_DAMPING_LIMIT = 0.125
_CAVITY_POWERS = (1.0, 0.5, 0.25, 0.125, 0.0)  # parts of q_k to remove, tried in this order


@dataclass(frozen=True)
class Change:
    """A site's contribution: the full change of q_k, rounded to the fixed-point grid.

    error (p,): Monte Carlo error of the tilted means, in tilted standard deviations
    strained: whether the site had no proper cavity for its moments, or could not compute moments
    """

    step: Natural
    error: Array
    strained: bool


def no_change(size: int, *, strained: bool = False) -> Change:
    """Return the change of a site that does not take part."""
    zero = Natural(np.zeros(size), np.zeros((size, size)))
    return Change(zero, np.zeros(size), strained)


def site_change(
    hierarchy: Hierarchy,
    site: SufficientStatistics,
    q: Natural,
    own: Natural,
    bits: int,
    rng: np.random.Generator,
) -> Change:
    """Return a site's change.

    q: a proper density; own: the site's q_k; bits: the change is rounded to multiples of 2^-bits
    """
    size = len(q.r)
    if site.records == 0:
        return no_change(size)
    out, cavity = next(
        ((out, left) for out in _CAVITY_POWERS if (left := q - own.times(out)).proper), (0.0, q)
    )
    power = out if out in usable_powers(hierarchy, site) else 1.0
    try:
        tilted = hierarchy.tilted(replace(site, power=power), cavity, rng)
        step = (Natural.of(tilted.mean, tilted.cov) - cavity).times(1 / power) - own
    except np.linalg.LinAlgError:
        return no_change(size, strained=True)
    if not (np.all(np.isfinite(step.r)) and np.all(np.isfinite(step.Q))):
        return no_change(size, strained=True)
    grid = 2.0**bits
    rounded = Natural(np.round(step.r * grid) / grid, np.round(step.Q * grid) / grid)
    error = tilted.error / np.sqrt(np.diagonal(tilted.cov)) / power
    return Change(rounded, error, strained=out != power)


def damping_factor(q: Natural, total: Natural, most: float) -> float:
    """Return the largest share most / 2^j for which no variance changes more than tenfold."""
    changes = eigh(total.Q, q.Q, eigvals_only=True)  # of the precision, relative to q's
    share = most
    while not (
        1 + share * changes[0] >= 1 / _MAX_VARIANCE_RATIO
        and 1 + share * changes[-1] <= _MAX_VARIANCE_RATIO
    ):
        share /= 2
    return share


def next_damping_limit(most: float, share: float, step: float, before: float | None) -> float:
    """Return the upper limit of the share in the next round.

    The limit is halved, down to a minimum, if the whole limit was applied and q moved further than
    in the round before, but by at most 1.

    most, share: the limit and the share in this round
    step, before: `step_norm` of this round and of the one before it
    """
    circles = before is not None and share == most and before < step <= 1
    return max(most / 2, _MIN_DAMPING_LIMIT) if circles and most > _MIN_DAMPING_LIMIT else most


def step_norm(before: Natural, after: Natural) -> float:
    """Return how far q moved: the largest change of a mean in sds, or of a log sd."""
    (m0, C0), (m1, C1) = before.moments(), after.moments()
    s0, s1 = np.sqrt(np.diagonal(C0)), np.sqrt(np.diagonal(C1))
    return float(max(np.max(np.abs(m1 - m0) / s1), np.max(np.abs(np.log(s1 / s0)))))
