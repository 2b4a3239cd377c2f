"""Rounds of federated expectation propagation in memory: sites' steps, sums, what is taken of them.

A coordinator and sites as a run has them, without messages, sums in secret or limits of range.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.models.fedlin.hierarchies.base import Hierarchy, SufficientStatistics
from secagg.models.fedlin.posterior.expectation_propagation import (
    damping_factor,
    next_damping_limit,
    site_change,
    step_norm,
)
from secagg.models.numerics.natural_gaussian import Natural

Array = NDArray[np.float64]

BITS = 40


@dataclass(frozen=True)
class Ended:
    """q and its factors; far: of q from its end; shares: taken; strained: how often a site was."""

    q: Natural
    factors: list[Natural]
    rounds: int
    far: float
    shares: list[float]
    strained: int


def run(
    hierarchy: Hierarchy,
    sites: Sequence[SufficientStatistics],
    tolerance: float,
    most: int = 80,
    seed: int = 0,
    bits: int = BITS,
) -> Ended:
    """Run until q is within the tolerance of where it goes, in posterior sds."""
    q = hierarchy.prior(len(sites[0].cross))
    factors = [q.times(0.0) for _ in sites]
    largest, far, strained, shares = 1.0, np.inf, 0, list[float]()
    for _ in range(most):
        changes = [
            site_change(hierarchy, site, q, own, bits, np.random.default_rng((seed, k)))
            for k, (site, own) in enumerate(zip(sites, factors, strict=True))
        ]
        total = q.times(0.0)
        for change in changes:
            total = total + change.step
        share = damping_factor(q, total, largest)
        factors = [
            own + change.step.times(share) for own, change in zip(factors, changes, strict=True)
        ]
        after, before = q + total.times(share), far
        far, q = step_norm(q, after) / share, after
        largest = next_damping_limit(largest, share, far, before)
        shares.append(share)
        out = sum(change.strained for change in changes)
        strained += out
        if far <= tolerance and not out:
            break
    return Ended(q, factors, len(shares), far, shares, strained)


def one_term(
    z: float, v: float, centre: Array, C: Array, power: float = 1.0, points: int = 4001
) -> tuple[Array, Array]:
    """Return moments of (mu, l) ~ N(centre, C) given z ~ N(mu, exp(l) + v): l on a grid.

    power: of that likelihood, |t|^(-c / 2) exp(-c (z - mu)^2 / (2 t))
    """
    m, a = centre
    sd = np.sqrt(C[1, 1])
    l = np.linspace(a - 12 * sd, a + 12 * sd, points)  # noqa: E741
    at = m + C[0, 1] / C[1, 1] * (l - a)
    V = C[0, 0] - C[0, 1] ** 2 / C[1, 1]
    variance = np.exp(l) + v
    t = variance / power
    log = -((l - a) ** 2) / (2 * C[1, 1]) - np.log(t + V) / 2 - (z - at) ** 2 / (2 * (t + V))
    log = log - power * np.log(variance) / 2 + np.log(t) / 2
    w = np.exp(log - log.max())
    w /= w.sum()
    given = (at / V + z / t) / (1 / V + 1 / t)
    both = np.array([given, l])
    mean = both @ w
    cov = (both - mean[:, None]) * w @ (both - mean[:, None]).T
    cov[0, 0] += w @ (1 / (1 / V + 1 / t))
    return mean, cov
