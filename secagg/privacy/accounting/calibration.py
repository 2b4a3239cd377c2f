"""From (epsilon, delta) to the noise of each stage, and what it then guarantees.

Every noised sum is a Gaussian mechanism on integers: with a record's largest L2 effect Delta and
noise of standard deviation sigma on every number, its cost is mu = Delta / sigma, and the releases
of a run compose to mu^2 = sum of mu_i^2, exactly (`secagg.privacy.accounting.gaussian_dp`). So a
budget of (epsilon, delta) is a budget of mu^2, of which the count of records takes `count_share`
and the method's rounds equal parts.

Guarantees
    * With at most `colluding` sites sharing what they know, the coordinator among them, everything
      that the run releases is (epsilon, delta)-differentially private for one unit: a record, or
      all records of a person within the caps.
    * Each variance is rounded up to whole squared steps, each mu is computed from it and rounded
      up; the discreteness of the noise is paid from a reserved part of delta (`discretised`).

=========================================  =====================================================
case                                       outcome
=========================================  =====================================================
min_sites not above `colluding`            refused: no site is sure to add noise that is unknown
protocol shows the coordinator all         only placement `site`
several rounds                             only placement `round`
a stage whose records may move it freely   refused: no noise is enough
delta not below 1 / number of records      refused: it would allow publishing a random record
person with m records at s sites           Delta times m s (times m root(s) where sites noise alone)
placement `site`, more than `colluding`    as promised: each site's own noise suffices
placement `sum`, all but one collude       the remaining site's share alone: see `if_more_collude`
=========================================  =====================================================

Not protected: which sites take part, that a site refuses for want of records, what is declared in
the job, sizes and times of messages, and a site that leaves out its noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from secagg.contracts import Stage
from secagg.contracts.noise import Adjacency, Noise, Placement
from secagg.errors import CapabilityError, JobError
from secagg.privacy.accounting.budget import Cost
from secagg.privacy.accounting.discretisation import distance
from secagg.privacy.accounting.events import Gaussian
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.sampling.batched_gaussian import MAX_VARIANCE
from secagg.privacy.sampling.sampler import sample_error

EXACT = Cost(Gaussian(math.inf), Gaussian(math.inf))
"""What a release without noise costs."""

_MIN_MU = 1e-200  # below it, variances are beyond any number a float holds
_MAX_BISECTIONS = 50
_MAX_EPSILON = 700.0  # e^epsilon is still a float
_DELTA_RESERVE = 1e-3
"""Share of delta kept for the discreteness of the noise."""


@dataclass(frozen=True)
class Mechanism:
    """One noised release, made up to `rounds` times.

    add, replace: mu of one release for the unit, under either adjacency
    numbers: how many numbers are noised
    distance: from a Gaussian mechanism, in total variation, as noise is discrete; of all releases
        that the unit moves at once, which in placement `site` are those of several sites
    """

    noise: Noise
    rounds: int
    add: float
    replace: float
    numbers: int
    distance: float

    def mu(self, adjacency: Adjacency) -> float:
        """Return the cost of one release."""
        return self.add if adjacency is Adjacency.ADD_REMOVE else self.replace

    def cost(self) -> Cost:
        """Return the cost of one release, for a ledger."""
        return Cost(Gaussian(self.add), Gaussian(self.replace), self.distance)


@dataclass(frozen=True)
class Calibrated:
    """The mechanisms of a run, by stage, and what they add up to."""

    terms: Terms
    mechanisms: Mapping[str, Mechanism]
    """the first is that of the count of records"""

    def mu(self, adjacency: Adjacency | None = None) -> float:
        """Return the cost of all releases of the run, under the job's adjacency or another."""
        chosen = adjacency or self.terms.adjacency
        return math.sqrt(sum(m.rounds * m.mu(chosen) ** 2 for m in self.mechanisms.values()))

    def remainder(self, epsilon: float) -> float:
        """Return what the discreteness of all noise adds to delta at this epsilon."""
        return (1 + math.exp(epsilon)) * self._distance()

    def epsilon(self, delta: float) -> float:
        """Return epsilon of the whole run at `delta`, the discreteness included."""
        return epsilon_at(self.mu(), delta, self._distance())

    def _distance(self) -> float:
        return sum(m.rounds * m.distance for m in self.mechanisms.values())

    def if_more_collude(self, sites: int, withstands: int) -> list[tuple[int, float]]:
        """Return (colluding sites, epsilon at the job's delta), up to all but one of `sites`.

        Their noise does not count. Where they are more than the protocol withstands they see single
        contributions, and only that site's own share protects its records. In placement `site`
        nothing changes.
        """
        if self.terms.placement is Placement.SITE:
            return []
        rows: list[tuple[int, float]] = []
        for colluding in range(sites):
            unknown = sites - colluding if colluding <= withstands else 1
            square = sum(
                m.rounds * m.mu(self.terms.adjacency) ** 2 * m.noise.variance
                / (unknown * m.noise.site_variance(m.noise.min_sites if i == 0 else sites))
                for i, m in enumerate(self.mechanisms.values())
            )  # fmt: skip
            epsilon = epsilon_at(math.sqrt(square), self.terms.delta, self._distance())
            rows.append((colluding, epsilon))
        return rows


def epsilon_at(mu: float, delta: float, distance: float) -> float:
    """Return epsilon at `delta` of releases that cost mu together; infinite where there is none.

    distance: of all of them from Gaussian ones, in total variation; of delta it takes
        (1 + e^epsilon) distance, which grows with the epsilon that is to be found
    """
    epsilon = gaussian_epsilon(mu, delta)
    for _ in range(_MAX_BISECTIONS):
        left = delta - (1 + math.exp(epsilon)) * distance if epsilon < _MAX_EPSILON else 0.0
        if left <= 0:
            return math.inf
        following = gaussian_epsilon(mu, left)
        if following <= epsilon * (1 + 1e-12):
            return following
        epsilon = following
    return math.inf


def calibrate(
    terms: Terms, stages: Sequence[Stage], least: int, expected: int, hides: bool
) -> Calibrated:
    """Return the noise of each stage; the first is the count of records.

    least: fewest sites that a sum may cover (release.min_sites)
    expected: at least so many records are expected
    hides: whether the protocol hides contributions from the coordinator
    Raises `JobError` or `CapabilityError` for what cannot be promised.
    """
    counting, *method = stages
    _check(terms, method, least, expected, hides)
    mu = gaussian_mu(terms.epsilon, terms.delta * (1 - _DELTA_RESERVE))
    if mu <= _MIN_MU:
        what = f"{terms.delta:g} is too small to be reckoned with"
        raise JobError("privacy.delta", what, "A common choice is a tenth of 1 / records.")
    rounds = sum(stage.max_rounds for stage in method)
    parts = {counting.name: terms.count_share * mu**2}
    parts |= {stage.name: (1 - terms.count_share) * mu**2 / rounds for stage in method}
    mechanisms = {s.name: _mechanism(terms, s, math.sqrt(parts[s.name]), least) for s in stages}
    calibrated = Calibrated(terms, mechanisms)
    if calibrated.remainder(terms.epsilon) > _DELTA_RESERVE * terms.delta:
        raise JobError(
            "privacy.delta", f"is too small for noise on this grid at epsilon {terms.epsilon:g}",
            "Lower epsilon, or raise delta.",
        )  # fmt: skip
    return calibrated


def _check(terms: Terms, method: Sequence[Stage], least: int, expected: int, hides: bool) -> None:
    free = [stage for stage in method if stage.sensitivity is None]
    if free:
        worst = max(free, key=lambda stage: stage.max_rounds)  # a count beside it is not the cause
        building = "its rounds build on one another, and " if worst.max_rounds > 1 else ""
        raise CapabilityError(
            "privacy.placement",
            f"stage {worst.name!r} has no bound on what one record changes: {building}no noise is "
            "sure to hide it",
            "Noise goes with moments ('sum' or 'site'), whose analyses include linear regression "
            "and graphs, notears among them, and with gradient ('round'): for logistic regression "
            "take family = 'binomial'.",
        )
    once = sum(stage.max_rounds for stage in method) == 1
    if once and terms.placement is Placement.ROUND:
        raise CapabilityError(
            "privacy.placement", "'round' is for several rounds, and this method has one release",
            "Take 'sum', or 'site'; or method gradient, which has several rounds.",
        )  # fmt: skip
    if not once and terms.placement is not Placement.ROUND:
        raise CapabilityError(
            "privacy.placement",
            f"{terms.placement.value!r} is for one release, and this method has several rounds",
            "Take 'round'.",
        )
    if terms.placement is not Placement.SITE:
        if not hides:
            raise CapabilityError(
                "privacy.placement",
                "this protocol shows the coordinator each contribution with its share of noise "
                "only",
                "Take placement 'site', or another protocol.",
            )
        if least <= terms.colluding:
            raise JobError(
                "privacy.colluding",
                f"{terms.colluding} of the {least} sites that a sum may cover would leave no noise",
                "Lower it, or raise release.min_sites.",
            )
    if terms.delta * expected >= 1:
        raise JobError(
            "privacy.delta",
            f"is not below 1 / {expected}: so large a delta allows publishing a record",
            "A common choice is a tenth of 1 / records, or less.",
        )


def _mechanism(terms: Terms, stage: Stage, mu: float, least: int) -> Mechanism:
    assert stage.sensitivity is not None
    bits = stage.spec[0].fraction_bits
    add, replace = (terms.group() * t for t in (stage.sensitivity.add, stage.sensitivity.replace))
    if terms.placement is Placement.SITE:  # the other record may be another site's
        replace = max(replace, math.sqrt(2) * add)
    moved = add if terms.adjacency is Adjacency.ADD_REMOVE else replace
    variance = math.ceil((Fraction(moved) * 2**bits / Fraction(mu)) ** 2)
    weights = stage.sensitivity.weights
    noise = Noise(terms.placement, variance, bits, terms.colluding, least, weights)
    sigma = math.sqrt(variance) * 2.0**-bits
    if noise.site_variance(least) * max(weights, default=1) > MAX_VARIANCE:
        raise JobError("privacy.epsilon", "takes more noise than 64 bits hold", "Raise it.")
    costs = [math.nextafter(math.nextafter(t / sigma, math.inf), math.inf) for t in (add, replace)]
    numbers = sum(field.size for field in stage.spec)
    shares, moves = least - terms.colluding, 1
    if terms.placement is Placement.SITE:  # a unit and the one in its place, each at all its sites
        shares, moves = 1, 2 * terms.sites
    off = moves * numbers * distance(math.sqrt(variance), shares, sample_error(numbers))
    return Mechanism(noise, stage.max_rounds, costs[0], costs[1], numbers, off)
