"""Federated expectation propagation with normal densities: a site's step, and the coordinator's.

Yue, Al Kontar and Estrada Gomez (2022), section 4.2 and Algorithm 3; Vehtari and others (JMLR
2020), "Expectation propagation as a way of life". q = p(phi) times the sites' q_k, all in natural
parameters (`secagg.models.numerics.natural_gaussian`). In a round, all sites at once,

    cavity      q / q_k                                                                          (3)
    tilted      moments of f_k times the cavity: `secagg.models.fedlin.hierarchies.base`
              (4) new q_k     normal density of these moments / cavity
                   (5), (6)
    change      new q_k / old q_k

and q moves by the sum of changes (7), or by a share of it.

The share. K changes made at once, each for its own cavity, overshoot where cavities are vague: near
q they add up to some K times what one should be, and q may be no density at all. The coordinator
sees that, once it has the sum: it takes the largest share 2^-j for which no variance of q, in any
direction, changes more than tenfold, and says with the next message what it took. Until then a site
keeps its change pending. So no round is ever taken back, and where cavities tell enough, changes
are made whole. Whole changes of weak data under vague priors can circle; where q has come within a
standard deviation of where it goes and then moves away, the largest share is halved, to 1/8 at the
least. (The paper's "learning rate" appears in none of its updates: this is it.)

A site's change is rounded as it is sent before it is kept, or q would no longer be the product of
the q_k. Few sites may leave no density when one's q_k is taken out: it was found in the others'
presence. Then a share c of q_k is taken out, 1/2, 1/4 or 1/8, and (4) to (6) are of f_k^c and
q_k^c: power expectation propagation (Minka 2004), in which every record counts once as before.
Where a hierarchy has not the moments of f_k^c, f_k stands in its place, which counts some twice;
and a site whose moments cannot be had sends no change. These two are counted, and q has not arrived
while there are any.

A coordinator that departs. Where q is close about a point, changes add up to derivatives of
SUM log f_k there, of prior "normal" SUM (A_k^-1 + T)^-1 with A_k = X'X / sigma^2, T = diag(tau);
at enough points T these are solved for every A_k. `tests/attacks/test_fedlin.py` has X'X
and X'y of three sites with two coefficients to four digits in 23 rounds, of five with three in 41,
by making up sums and going on from them as (7) and the share say. So sites do not check whether the
first q is the prior, or the share what the tenfold rule has for (q' - q) / share: that test's
messages would pass, and what it costs is the first eleven of these rounds, in which q closes in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import Hierarchy, SufficientStatistics
from secagg.models.numerics.natural_gaussian import Natural

_MAX_VARIANCE_RATIO = 10.0  # by how much a variance may change in a round
_MIN_DAMPING_LIMIT = 0.125
_CAVITY_POWERS = (1.0, 0.5, 0.25, 0.125, 0.0)  # of a site's own factor, to get a cavity


@dataclass(frozen=True)
class Change:
    """What a site sends: the whole change of q_k, on the grid of the fixed point.

    error (p,): Monte Carlo error of the tilted means, in tilted standard deviations
    strained: whether it had no proper cavity for what its moments are of, or no moments
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
    """Return a site's change for q, a density; own: its q_k; bits: of the grid, 2^-bits."""
    size = len(q.r)
    if site.records == 0:
        return no_change(size)
    out, cavity = next(
        ((out, left) for out in _CAVITY_POWERS if (left := q - own.times(out)).proper), (0.0, q)
    )
    power = out if out in hierarchy.powers else 1.0
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
    """Return the largest most / 2^j for which no variance changes more than tenfold."""
    changes = eigh(total.Q, q.Q, eigvals_only=True)  # of the precision, in units of q's
    share = most
    while not (
        1 + share * changes[0] >= 1 / _MAX_VARIANCE_RATIO
        and 1 + share * changes[-1] <= _MAX_VARIANCE_RATIO
    ):
        share /= 2
    return share


def next_damping_limit(most: float, share: float, far: float, before: float | None) -> float:
    """Return the largest share of the next round; far: of this one, before: of the last."""
    circles = before is not None and share == most and before < far <= 1
    return max(most / 2, _MIN_DAMPING_LIMIT) if circles and most > _MIN_DAMPING_LIMIT else most


def step_norm(before: Natural, after: Natural) -> float:
    """Return how far q moved: the largest change of a mean in sds, or of a log sd."""
    (m0, C0), (m1, C1) = before.moments(), after.moments()
    s0, s1 = np.sqrt(np.diagonal(C0)), np.sqrt(np.diagonal(C1))
    return float(max(np.max(np.abs(m1 - m0) / s1), np.max(np.abs(np.log(s1 / s0)))))
