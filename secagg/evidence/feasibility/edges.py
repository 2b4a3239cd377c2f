"""Predict, before any record is read, whether the edges of a graph will be found under noise.

The assumptions are those of `secagg.privacy.expected_error`. `weight_error` is the standard
deviation that the noise gives the weight of an edge between two columns that are related to no
other, in units of standardised columns; it is formula (1) of `secagg.models.graphs.noise_size`,
averaged over all pairs. An edge is found if the noisy correlation is beyond

    e = lambda + t,    lambda = max(penalty, root(2 log d) weight_error),
                       t = max(threshold, z root(weight_error^2 + 1 / n) - lambda)              (1)

with the z of that module. So about half of the edges of the weight e are missed, or more: noise and
chance move half of the correlations below e, and in a vote more than half of the sites have to find
the edge. In simulations, 12 to 62 % of the edges of the weight e were found, which depends on the
learner, and 53 to 97 % of those of 1.3 e. So the plan says that an edge is likely to be found from
L = 1.3 e on. Without noise it is L_0. Green: L is at most a tenth larger than L_0. Amber: L is at
most 0.5, a large effect (Cohen 1988). Red: it is larger.

Not covered: the bias of clipping, and that an edge of the right size may have the wrong direction.
docs/math/graphs-under-noise.md has the simulations, which were of ten columns at four sites.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from secagg.contracts import EdgeRule
from secagg.models.graphs.noise_size import quantile, single_level, universal, vote_level
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from secagg.privacy.expected_error import (
    Assumptions,
    PlannedNoise,
    Verdict,
    means,
    sum_variance,
    two_digits,
    variances,
)

LIKELY = 1.3
"""L / e. At it more than half of the edges were found by every learner."""
GREEN_GROWTH = 1.1
LARGE_EFFECT = 0.5


@dataclass(frozen=True)
class GraphFeasibility:
    """The verdict, and the smallest numbers that would not be red.

    weight_error: see above; smallest_edge, without_noise: L and L_0; if_narrow: L if continuous
        variables have half the assumed standard deviation; None if there are none
    majority: in a vote, the number of sites that have to find an edge, and that of all sites
    least_epsilon, least_records: the smallest ones at which the verdict is not red
    """

    verdict: Verdict
    weight_error: float
    smallest_edge: float
    without_noise: float
    if_narrow: float | None
    majority: tuple[int, int] | None
    least_epsilon: float
    least_records: int

    def words(self) -> str:
        """Return one line for the plan."""
        by = "" if self.majority is None else " by {} of {} sites".format(*self.majority)
        start = f"an edge is likely to be found{by} if its weight is about"
        if self.smallest_edge >= 1:  # only several strong causes together allow such a weight
            start = f"hardly any edge is likely to be found{by}: its weight would have to be about"
        line = (
            f"{self.verdict.value}: {start} {self.smallest_edge:.2f} standard deviations or more "
            f"({self.without_noise:.2f} without noise); the noise moves a weight by "
            f"{self.weight_error:.2g}"
        )
        if self.verdict is Verdict.GREEN:
            return line
        weight = max(LARGE_EFFECT, GREEN_GROWTH * self.without_noise)
        line += f"; edges of {weight:.2g} standard deviations are likely to be found with "
        line += f"epsilon {two_digits(self.least_epsilon)}"
        if self.verdict is Verdict.RED:
            line += f", or {two_digits(self.least_records)} records"
        return line

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and the line from `words`, as plain data."""
        return {**asdict(self), "verdict": self.verdict.value, "words": self.words()}


def graph_feasibility(
    assumed: Assumptions, planned: PlannedNoise, rule: EdgeRule
) -> GraphFeasibility:
    """Return the verdict about a graph; planned: noise once in moments, at sites or in the sum."""
    mu = math.sqrt(planned.share) * gaussian_mu(planned.epsilon, planned.delta)
    n, error = float(assumed.records), _weight_error(assumed, planned, mu, rule)
    smallest = _Edge(assumed, planned.sites, rule).smallest
    found, exact = smallest(error, n), smallest(0.0, n)
    narrow = None
    if assumed.guessed:
        half = replace(assumed, spread=assumed.spread / 2)
        narrow = smallest(_weight_error(half, planned, mu, rule), n)
    limit = max(LARGE_EFFECT, GREEN_GROWTH * exact)
    share = _largest(lambda x: smallest(x * error, n) <= limit)  # of the noise
    fewer = _largest(lambda x: smallest(x * error, n / x) <= limit)  # both errors grow
    verdict = Verdict.AMBER if found <= limit else Verdict.RED
    return GraphFeasibility(
        verdict=Verdict.GREEN if found <= GREEN_GROWTH * exact else verdict,
        weight_error=error,
        smallest_edge=found,
        without_noise=exact,
        if_narrow=narrow,
        majority=(planned.sites // 2 + 1, planned.sites) if rule.vote else None,
        least_epsilon=gaussian_epsilon(mu / share / math.sqrt(planned.share), planned.delta),
        least_records=math.ceil(n / fewer),
    )


@dataclass(frozen=True)
class _Edge:
    """L, and what it depends on beside the noise and the number of records."""

    assumed: Assumptions
    sites: int
    rule: EdgeRule

    def smallest(self, weight_error: float, records: float) -> float:
        """Return L."""
        rule, d = self.rule, self.assumed.continuous + self.assumed.indicators
        level = rule.level or single_level(d)
        if rule.level_of_vote or (rule.level is None and not rule.pooled):
            level = vote_level(d, [self.sites], level)
        z = quantile(level)
        own = records if rule.pooled else records / self.sites
        both = z * math.sqrt(weight_error**2 + 1 / own)
        least = universal(d) / math.sqrt(own) if rule.penalty is None else rule.penalty
        penalty = max(least, universal(d) * weight_error)
        return LIKELY * (penalty + max(rule.threshold, both - penalty))


def _weight_error(assumed: Assumptions, planned: PlannedNoise, mu: float, rule: EdgeRule) -> float:
    """Return the weight error: the root of the mean variance over pairs."""
    spreads, squared_means = np.array(variances(assumed)), np.array(means(assumed))
    by_means = 1 + (squared_means[:, None] + squared_means) / planned.constant**2
    relative = (by_means / np.outer(spreads, spreads))[np.triu_indices(len(spreads), 1)].mean()
    records, noisy = float(assumed.records), sum_variance(planned)
    if not rule.pooled:
        records, noisy = records / planned.sites, 1.0
    return planned.sensitivity / mu * math.sqrt(float(relative) * noisy) / records


def _largest(holds: Callable[[float], bool]) -> float:
    """Return the largest x from 1e-12 to 1e12 for which a condition holds, true for smaller x."""
    low, high = -12.0, 12.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(10.0**middle) else (low, middle)
    return math.pow(10.0, low)
