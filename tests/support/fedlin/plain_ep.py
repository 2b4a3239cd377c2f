"""Expectation propagation as it is defined, without rounds, messages or fixed point numbers."""

from collections.abc import Sequence

import numpy as np

from secagg.models.fedlin.hierarchies.base import Hierarchy, SufficientStatistics
from secagg.models.numerics.natural_gaussian import Natural


def propagate(
    hierarchy: Hierarchy,
    sites: Sequence[SufficientStatistics],
    rounds: int,
    share: float,
    rng: np.random.Generator,
) -> Natural:
    """Return q(phi) after some rounds, in each of which all sites move by `share` of a step."""
    prior = hierarchy.prior(len(sites[0].cross))
    factors = [prior.times(0.0) for _ in sites]
    whole = prior
    for _ in range(rounds):
        moved = []
        for site, factor in zip(sites, factors, strict=True):
            cavity = whole - factor
            found = hierarchy.tilted(site, cavity, rng)
            moved.append(
                factor + (Natural.of(found.mean, found.cov) - cavity - factor).times(share)
            )
        factors, whole = moved, prior
        for factor in factors:
            whole = whole + factor
    return whole
