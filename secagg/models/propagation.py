"""Federated expectation propagation with normal densities: a site's step, and the coordinator's.

Yue, Al Kontar and Estrada Gomez (2022), section 4.2 and Algorithm 3; Vehtari and others (JMLR
2020), "Expectation propagation as a way of life". q = p(phi) times the sites' q_k, all in natural
parameters (`secagg.models.natural_normal`). In a round, all sites at once,

    cavity      q / q_k                                                                          (3)
    tilted      moments of f_k times the cavity: `secagg.models.hierarchy`                       (4)
    new q_k     normal density of these moments / cavity                                    (5), (6)
    change      delta (new q_k - old q_k)                                                        (7)

and q moves by the sum of changes.

Damping. K changes made at once, each for its own cavity, overshoot: near q they add up to some K
times what one should be, as long as cavities are vague. delta = min(1/2, 1.25^c / K) in round c
begins with what is safe whatever the sites say, and is at 1/2, where rounds converge as 2^-c, as
soon as cavities tell enough. (The paper's "learning rate" appears in none of its updates: this is
it.)

What a site adds to its own q_k is the change as it is sent, rounded to the fixed point: if q_k were
the unrounded one, q would no longer be the product of the q_k, and cavities would drift.

Guards. A site whose cavity is no density, or whose moments cannot be had, sits the round out. If
the new q is no density, the coordinator takes the round back: sites are told so with the next
message, take back their last change, exactly, and all changes are half as large from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.models.hierarchy import Hierarchy, Statistics
from secagg.models.natural_normal import Natural

Array = NDArray[np.float64]

_MOST_DAMPED, _GROWTH = 0.5, 1.25


@dataclass(frozen=True)
class Change:
    """What a site sends: its change of q_k, on the grid of the fixed point.

    error (p,): Monte Carlo error of the tilted means, in tilted standard deviations
    sat_out: whether its moments could not be had
    """

    step: Natural
    error: Array
    sat_out: bool


def damping(done: int, sites: int, share: float) -> float:
    """Return delta after so many rounds; share: what is left of it after rounds taken back."""
    return share * float(min(_MOST_DAMPED, _GROWTH ** min(done, 1000) / sites))


def no_change(size: int, *, sat_out: bool = False) -> Change:
    """Return the change of a site that does not take part."""
    zero = Natural(np.zeros(size), np.zeros((size, size)))
    return Change(zero, np.zeros(size), sat_out)


def site_change(
    hierarchy: Hierarchy,
    site: Statistics,
    q: Natural,
    own: Natural,
    delta: float,
    bits: int,
    rng: np.random.Generator,
) -> Change:
    """Return a site's change for q; own: its q_k; bits: of the grid, 2^-bits."""
    size = len(q.r)
    if site.records == 0:
        return no_change(size)
    cavity = q - own
    if not cavity.proper:
        return no_change(size, sat_out=True)
    try:
        tilted = hierarchy.tilted(site, cavity, rng)
        wanted = Natural.of(tilted.mean, tilted.cov) - cavity
    except np.linalg.LinAlgError:
        return no_change(size, sat_out=True)
    step = (wanted - own).times(delta)
    if not (np.all(np.isfinite(step.r)) and np.all(np.isfinite(step.Q))):
        return no_change(size, sat_out=True)
    grid = 2.0**bits
    rounded = Natural(np.round(step.r * grid) / grid, np.round(step.Q * grid) / grid)
    return Change(rounded, tilted.error / np.sqrt(np.diagonal(tilted.cov)), sat_out=False)


def moved(before: Natural, after: Natural) -> float:
    """Return how far q moved: the largest change of a mean in sds, or of a log sd."""
    (m0, C0), (m1, C1) = before.moments(), after.moments()
    s0, s1 = np.sqrt(np.diagonal(C0)), np.sqrt(np.diagonal(C1))
    return float(max(np.max(np.abs(m1 - m0) / s1), np.max(np.abs(np.log(s1 / s0)))))
