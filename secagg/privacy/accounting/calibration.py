"""Compute the noise of each stage from epsilon and delta, and the guarantee of that noise.

A stage is a kind of round, and epsilon and delta are the guarantee that the job requests for
everything that the run releases.

A unit is what is protected: one record, all records of one person, or all records (windows of a
series) that contain one event. Delta is the L2 sensitivity of a sum: the largest change, in L2
norm, that one unit can cause. sigma is the standard deviation of the noise that is added to every
number of the sum. The release costs mu = Delta / sigma. The joint cost of all releases of a run is
the root of the sum of their mu^2, exactly (`secagg.privacy.accounting.gaussian_dp`). So epsilon and
delta determine a budget of mu^2. The count of records gets the share `count_share` of this budget,
and the method's rounds get parts of the rest in proportion to `Stage.budget`.

Samples. In a stage with a sampling rate q below 1, a round is private for two reasons: its noise,
and that nobody outside a site knows which records took part. A site that trains alone makes several
such steps in one round. The joint cost then has no formula (`secagg.privacy.accounting.events`).
The count of records gets the same noise as without samples; all steps have equal mu, the largest at
which epsilon and delta hold, found by bisection. A stage in which sites get no records costs
nothing.

Guarantees
    * If at most `colluding` sites share their knowledge with each other and the coordinator, all
      releases of the run together are (epsilon, delta)-differentially private for one unit. If the
      unit is a person, this holds for persons with at most the declared numbers of records and
      sites.
    * Each variance is rounded up to a whole number of squared steps, and each mu computed from it
      is rounded up. The noise is discrete and not Gaussian, and a reserved part of delta covers the
      difference (`secagg.privacy.accounting.discretisation`).

=========================================  =====================================================
case                                       result
=========================================  =====================================================
min_sites not above `colluding`            refused: the colluding sites might know all the noise
coordinator sees each contribution         only placement `site` is allowed
several rounds                             only placement `round` is allowed
a site's own steps beside sums             the site adds all noise of these itself
a stage without a bounded sensitivity      refused: no amount of noise is enough
delta not below 1 / number of records      refused: it would allow publishing a random record
discreteness needs too much of delta       refused; the error names the largest epsilon (20 to 25)
person with m records at s sites           Delta is multiplied by m s (`site`: by m root(s))
person by a column that the job chooses    Delta as `Sensitivity.of_chosen_persons` says
event in the m windows that contain it      as a person with m records at one site
the same, with a sampling rate below 1     refused: each record is drawn on its own
placement `site`, more than `colluding`    same guarantee: each site's own noise is enough
placement `sum`, all but one site collude  only the noise of this site counts: `if_more_collude`
=========================================  =====================================================

Not protected: which sites take part; what the job declares; sizes and times of messages. A site
that leaves out its noise breaks the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from fractions import Fraction

from secagg.contracts import Stage
from secagg.contracts.noise import Adjacency, Noise, Placement, Placements
from secagg.errors import JobError
from secagg.privacy.accounting.composition import FREE, Cost, rounded_down
from secagg.privacy.accounting.discretisation import distance
from secagg.privacy.accounting.events import (
    Event,
    Gaussian,
    delta_of,
    epsilon_of,
    sampled_event,
    times,
    with_less_noise,
)
from secagg.privacy.accounting.gaussian_dp import gaussian_mu
from secagg.privacy.accounting.requirements import (
    NOT_DECLARED,
    check_terms,
    rate_of,
    sensitivity_of,
    steps_of,
)
from secagg.privacy.accounting.terms import Terms
from secagg.privacy.sampling.batched_gaussian import MAX_VARIANCE
from secagg.privacy.sampling.sampler import sample_error

EXACT = Cost(Gaussian(math.inf), Gaussian(math.inf))
"""The cost of a release without noise."""

_MIN_MU = 1e-200  # for a smaller mu, variances are too large for a float
_MAX_ITERATIONS = 50
_MAX_EPSILON = 700.0  # e^epsilon still fits into a float
_DELTA_RESERVE = 1e-3
"""Share of delta reserved for the discreteness of the noise."""
_EPSILON_MARGIN = 1e-3  # below the largest epsilon, which errors name; mu may be known to 1e-3
_STEP_PRECISION = 1.001  # of the mu of a sampled step
_MAX_STEP_MU = 1e3  # a step with less noise protects nobody who takes part


@dataclass(frozen=True)
class Mechanism:
    """A kind of release with noise, which is made up to `rounds` times.

    noise: place and variance of the noise
    add, replace: mu of one release, for one unit, under the two adjacencies
    numbers: how many numbers get noise
    distance: total variation distance between the release and a release with Gaussian noise. In
        placement `site`, the total for all sites that hold records of the unit
    rate: probability with which each record takes part
    steps: number of noisy sums in one release: above 1 if a site trains alone. `add`, `replace` and
        `numbers` are those of one of them
    """

    noise: Noise
    rounds: int
    add: float
    replace: float
    numbers: int
    distance: float
    rate: float = 1.0
    steps: int = 1

    def mu(self, adjacency: Adjacency) -> float:
        """Return mu of one release under this adjacency."""
        return self.add if adjacency is Adjacency.ADD_REMOVE else self.replace

    def event(self, adjacency: Adjacency) -> Event:
        if self.steps == 1 and self.rate == 1:
            return Gaussian(self.mu(adjacency))
        nu = self.replace if adjacency is Adjacency.REPLACE else 0.0
        elsewhere = self.noise.placement is Placement.SITE and nu > 0
        return sampled_event(self.add, self.rate, self.steps, nu, elsewhere=elsewhere)

    def cost(self) -> Cost:
        add, replace = (self.event(each) for each in (Adjacency.ADD_REMOVE, Adjacency.REPLACE))
        return Cost(add, replace, self.distance)


@dataclass(frozen=True)
class Calibrated:
    """The mechanisms of a run, by stage, and their total cost."""

    terms: Terms
    mechanisms: Mapping[str, Mechanism]
    """by stage; the first is the count of records, if it is released by itself"""

    @property
    def sampled(self) -> bool:
        """Whether a record takes part in some releases by chance."""
        return any(m.rate < 1 for m in self.mechanisms.values())

    def mu(self, adjacency: Adjacency | None = None) -> float | None:
        """Return mu of all releases of the run together; None with samples, which have none.

        adjacency: None for the adjacency of the job
        """
        if self.sampled:
            return None
        chosen = adjacency or self.terms.adjacency
        return math.sqrt(
            sum(m.rounds * m.steps * m.mu(chosen) ** 2 for m in self.mechanisms.values())
        )

    def events(self, adjacency: Adjacency | None = None) -> list[Event]:
        """Return the events of the whole run, equal ones as one."""
        chosen = adjacency or self.terms.adjacency
        mu = self.mu(chosen)
        if mu is not None:
            return [Gaussian(mu)]
        return [times(m.event(chosen), m.rounds) for m in self.mechanisms.values()]

    def cost(self, stage: str) -> Cost:
        """Return the cost of one release of a stage; nothing if it reads no records."""
        return self.mechanisms[stage].cost() if stage in self.mechanisms else FREE

    def remainder(self, epsilon: float) -> float:
        """Return the delta that the discreteness of all noise adds at this epsilon."""
        return (1 + math.exp(epsilon)) * self.distance

    def epsilon(self, delta: float) -> float:
        """Return epsilon of the whole run at `delta`. This includes the discreteness of noise."""
        return epsilon_at(self.events(), delta, self.distance)

    @property
    def distance(self) -> float:
        """The total variation distance of the whole run from a run with Gaussian noise."""
        return sum(m.rounds * m.distance for m in self.mechanisms.values())

    def if_more_collude(self, sites: int, withstands: int) -> list[tuple[int, float]]:
        """Return how epsilon depends on the number of colluding sites.

        Each row is (number of colluding sites, epsilon at the job's delta). The number goes from 0
        to `sites` - 1. The noise of colluding sites does not count. If more sites collude than the
        protocol withstands, they see single contributions, and only a site's own share of the noise
        protects its records. The list is empty in placement `site`, where collusion changes
        nothing.

        sites: number of sites in the run
        withstands: number of colluding sites from which the protocol hides contributions
        """
        if self.terms.placement is Placement.SITE:
            return []
        rows: list[tuple[int, float]] = []
        for colluding in range(sites):
            unknown = sites - colluding if colluding <= withstands else 1
            events = [
                with_less_noise(
                    times(m.event(self.terms.adjacency), m.rounds),
                    math.sqrt(
                        m.noise.variance
                        / (unknown * m.noise.site_variance(m.noise.min_sites if i == 0 else sites))
                    )
                    if m.noise.placement is not Placement.SITE  # all of it is the site's own
                    else 1.0,
                )
                for i, m in enumerate(self.mechanisms.values())
            ]
            epsilon = epsilon_at(events, self.terms.delta, self.distance)
            rows.append((colluding, epsilon))
        return rows


def epsilon_at(events: Sequence[Event], delta: float, distance: float) -> float:
    """Return epsilon at `delta` of releases with these events; infinite if no epsilon holds.

    distance: total variation distance of all releases from releases with Gaussian noise. It uses
        up (1 + e^epsilon) distance of delta, so epsilon is found by iteration
    """
    epsilon = epsilon_of(events, delta)
    for _ in range(_MAX_ITERATIONS):
        rest = delta - (1 + math.exp(epsilon)) * distance if epsilon < _MAX_EPSILON else 0.0
        if rest <= 0:
            return math.inf
        following = epsilon_of(events, rest)
        if following <= epsilon * (1 + 1e-12):
            return following
        epsilon = following
    return math.inf


def calibrate(
    terms: Terms,
    stages: Sequence[Stage],
    min_sites: int,
    expected_records: int,
    hides: bool,
    placements: Placements = NOT_DECLARED,
) -> Calibrated:
    """Return the noise of each stage.

    terms: the requested guarantee
    stages: the count of records, then the stages of the method; or one alone, which gets all of the
        budget
    min_sites: the smallest number of sites in a sum (release.min_sites)
    expected_records: at least this many records are expected
    hides: whether the protocol hides contributions from the coordinator
    placements: those of the method, for the advice of errors
    Raises `JobError` or `CapabilityError` if the guarantee is impossible.
    """
    counting = stages[:1] if len(stages) > 1 else ()
    method = [stage for stage in stages[len(counting) :] if stage.reads_records]
    check_terms(terms, method, min_sites, expected_records, hides, placements)
    calibrated = _calibrated(terms, counting, method, min_sites)
    if calibrated.remainder(terms.epsilon) > _DELTA_RESERVE * terms.delta:
        raise _too_large(terms, calibrated, lambda t: _calibrated(t, counting, method, min_sites))
    return calibrated


def _calibrated(
    terms: Terms, counting: Sequence[Stage], method: Sequence[Stage], min_sites: int
) -> Calibrated:
    """Return the noise of each stage, without looking at its discreteness."""
    mu = gaussian_mu(terms.epsilon, terms.delta * (1 - _DELTA_RESERVE))
    if mu <= _MIN_MU:
        what = f"{terms.delta:g} is too small"
        raise JobError("privacy.delta", what, "A common choice is a tenth of 1 / records.")
    parts = sum(stage.budget * stage.max_rounds * steps_of(stage) for stage in method)
    share = terms.count_share if counting else 0.0
    of_count = math.sqrt(share * mu**2)
    each = math.sqrt((1 - share) * mu**2 / parts)
    if any(rate_of(stage) < 1 for stage in method):
        each = _largest_mu(terms, method, of_count, each)
    mus = [of_count for _ in counting] + [each * math.sqrt(stage.budget) for stage in method]
    mechanisms = {
        stage.name: _mechanism(terms, stage, own, min_sites)
        for stage, own in zip((*counting, *method), mus, strict=True)
    }
    return Calibrated(terms, mechanisms)


def _too_large(
    terms: Terms, calibrated: Calibrated, again: Callable[[Terms], Calibrated]
) -> JobError:
    """Return the error for an epsilon at which discreteness needs more delta than is reserved.

    Discreteness adds (1 + e^epsilon) T to delta, where T is the distance from Gaussian noise. T
    grows with epsilon, because there is less noise. So if epsilon is the solution for the T of
    some x, then it is below the largest epsilon for an x above it, and above it for an x below it.

    calibrated: the noise at the requested epsilon
    again: returns the noise for other terms
    """
    reserved = _DELTA_RESERVE * terms.delta

    def solution(made: Calibrated) -> float:
        return math.log(max(reserved / made.distance - 1, 1e-300))

    largest = solution(calibrated)
    for _ in range(2):
        if largest > 0:
            largest = solution(again(changed(terms, epsilon=largest)))
    largest *= 1 - _EPSILON_MARGIN
    if largest <= 0:
        what = f"{terms.delta:g} is too small for noise on this grid, at every epsilon"
        return JobError("privacy.delta", what, "Raise it.")
    return JobError(
        "privacy.epsilon",
        f"{terms.epsilon:g} is too large: noise consists of whole steps of a grid, and the part of "
        f"delta that this needs grows as e^epsilon, beyond a thousandth of {terms.delta:g}",
        f"At most {rounded_down(largest)} is possible for this job.",
    )  # fmt: skip


def _largest_mu(terms: Terms, method: Sequence[Stage], counting: float, low: float) -> float:
    """Return the largest mu of a noisy sum with budget 1 at which the run is private enough.

    counting: mu of the count of records
    low: mu that is small enough even if all records took part
    """

    def private(mu: float) -> bool:
        events: list[Event] = [Gaussian(counting)]
        for stage in method:
            moved = sensitivity_of(stage)
            assert moved is not None
            steps = steps_of(stage) * stage.max_rounds
            own = mu * math.sqrt(stage.budget)
            add, nu = own, 0.0
            if terms.adjacency is Adjacency.REPLACE:
                nu, add = own, own * moved.add / moved.replace
            elsewhere = terms.placement is Placement.SITE and nu > 0
            events.append(sampled_event(add, rate_of(stage), steps, nu, elsewhere=elsewhere))
        return delta_of(events, terms.epsilon) <= terms.delta * (1 - _DELTA_RESERVE)

    high = 2 * low
    while private(high) and high < _MAX_STEP_MU:
        low, high = high, 2 * high
    while high > low * _STEP_PRECISION:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if private(middle) else (low, middle)
    return low


def _mechanism(terms: Terms, stage: Stage, mu: float, min_sites: int) -> Mechanism:
    moved, training, rate = sensitivity_of(stage), stage.training, rate_of(stage)
    assert moved is not None
    bits = stage.spec[0].fraction_bits if training is None else training.fraction_bits
    placement = terms.placement if training is None else Placement.SITE  # beside sums, or alone
    add, replace = (terms.group(placement) * t for t in (moved.add, moved.replace))
    if placement is Placement.SITE and rate == 1:
        replace = max(replace, math.sqrt(2) * add)  # the replacing record may be at another site
    sensitivity = add if terms.adjacency is Adjacency.ADD_REMOVE else replace
    variance = math.ceil((Fraction(sensitivity) * 2**bits / Fraction(mu)) ** 2)
    weights = moved.weights
    noise = Noise(placement, variance, bits, terms.colluding, min_sites, weights)
    sigma = math.sqrt(variance) * 2.0**-bits
    if noise.site_variance(min_sites) * max(weights, default=1) > MAX_VARIANCE:
        raise JobError("privacy.epsilon", "needs noise beyond 64 bits", "Raise it.")
    costs = [math.nextafter(math.nextafter(t / sigma, math.inf), math.inf) for t in (add, replace)]
    numbers = sum(field.size for field in stage.spec) if training is None else training.numbers
    shares, affected = min_sites - terms.colluding, 1
    if placement is Placement.SITE:  # a unit and its replacement, each at all its sites
        shares, affected = 1, 2 * terms.sites
    each = distance(math.sqrt(variance), shares, sample_error(numbers))
    total = affected * numbers * steps_of(stage) * each
    add, replace = costs
    return Mechanism(
        noise, stage.max_rounds, add, replace, numbers, total, rate, steps_of(stage)
    )  # fmt: skip
