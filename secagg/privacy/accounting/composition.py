"""The budget of a data set: the costs of releases, caps, and whether one more release fits.

The releases of one data set have a joint cost, stated as epsilon and delta: one record changes the
probability of any result by at most a factor of e^epsilon, plus delta. Such releases are called
(epsilon, delta)-private. For Gaussian noise, these numbers are exact (theorem 8 of Balle and Wang
2018, in `secagg.privacy.accounting.events`).

The actual noise is discrete, which adds to delta. Suppose that Gaussian releases are
(epsilon, delta)-private, and that the actual releases have a total variation distance of at most T
from them. Then the actual releases are (epsilon, delta + (1 + e^epsilon) T)-private, because each
probability, under either data set, differs by at most T.

A cap is an upper limit: all releases first made within its period are together
(epsilon, delta)-private under its adjacency, which states what neighbouring data sets are. A
release that is repeated with the same noise counts only once, at its first time. Costs under one
adjacency are never converted to the other. Each release states its cost under both.

==========================================  ========================================================
case                                        result
==========================================  ========================================================
total equal to the cap                      fits, up to rounding (`_ROUNDING`)
a release without noise, under any cap      does not fit; after it, nothing fits in the period
with noise after one without, `noised_only` fits, if the releases with noise alone fit
no cap                                      everything fits
several caps                                each must hold
discreteness uses up all of delta           does not fit, however small epsilon is
later releases of the job would not fit     the job's first release does not fit
==========================================  ========================================================

Not protected: a cap with a period limits the releases of each such period. Over a longer time, more
can be released. Only a cap without a period limits what all releases together reveal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from secagg.contracts.noise import Adjacency
from secagg.errors import PolicyRefusal, UsageError
from secagg.privacy.accounting.events import (
    Event,
    Gaussian,
    SampledGaussian,
    delta_of,
    epsilon_of,
    from_data,
    times,
    to_data,
    with_less_noise,
)
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu

_ROUNDING: Final = 1e-9
"""Relative tolerance on a cap's delta, so that a job may use up a cap exactly. Rounding of mu, of
sums of mu^2 and of delta changes the total by a few parts in 1e10."""

_MAX_EPSILON: Final = 100.0
"""A larger epsilon guarantees nothing useful, and e^epsilon must fit into a float."""

_MAX_DAYS: Final = 36_525.0
"""A century."""

_DELTA_SHARES: Final = (1e-3, 0.1, 0.5)
"""A cap is also checked at smaller epsilons: those at which discreteness uses these shares of
delta."""

_MAX_BISECTIONS: Final = 50
_FEW_BISECTIONS: Final = 16
"""Enough bisection steps, because epsilon is printed with three digits. With samples, each step
takes up to a tenth of a second."""


@dataclass(frozen=True)
class Cost:
    """The cost of one release, under both adjacencies.

    add_remove: the cost if neighbours differ by one record added or removed
    replace: the cost if neighbours differ by one record replaced
    distance: total variation distance between the release and a release with Gaussian noise, in
        [0, 1]
    Raises `UsageError` if `distance` is out of range.
    """

    add_remove: Event
    replace: Event
    distance: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.distance <= 1.0:
            raise UsageError("cost of a release", f"distance {self.distance} is not in [0, 1]")

    def event(self, adjacency: Adjacency) -> Event:
        return self.add_remove if adjacency is Adjacency.ADD_REMOVE else self.replace

    @property
    def is_exact(self) -> bool:
        """Whether this is the cost of a release without noise."""
        return math.isinf(self.add_remove.mu)

    def plain(self) -> dict[str, Any]:
        """Return the cost as plain data, without rounding; `of` is the inverse."""
        return {
            "add_remove": to_data(self.add_remove),
            "replace": to_data(self.replace),
            "distance": self.distance,
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Return the cost that `plain` wrote."""
        events = from_data(plain["add_remove"]), from_data(plain["replace"])
        return cls(*events, plain["distance"])


FREE = Cost(Gaussian(0.0), Gaussian(0.0))
"""The cost of what is computed from earlier releases alone."""


@dataclass(frozen=True)
class Cap:
    """An upper limit for the releases of a data set within a period, as epsilon and delta.

    epsilon: above 0, at most 100
    delta: above 0, below 1
    days: length of the period, above 0, at most 36525 (a century); None for all time
    noised_only: whether only earlier releases with noise count; other rules limit exact ones
    Raises `UsageError` if a number is out of range.
    """

    epsilon: float
    delta: float
    days: float | None = None
    adjacency: Adjacency = Adjacency.REPLACE
    noised_only: bool = False

    def __post_init__(self) -> None:
        for name, value, allowed, range_ in (
            ("epsilon", self.epsilon, 0.0 < self.epsilon <= _MAX_EPSILON, "above 0, at most 100"),
            ("delta", self.delta, 0.0 < self.delta < 1.0, "above 0 and below 1"),
            ("days", self.days, self.days is None or 0.0 < self.days <= _MAX_DAYS,
             "above 0, at most 36525"),
        ):  # fmt: skip
            if not allowed:
                raise UsageError("budget cap", f"{name} must be {range_}, not {value:g}")

    def words(self) -> str:
        period = "for ever" if self.days is None else f"in {self.days:g} days"
        size = f"epsilon {self.epsilon:g} at delta {self.delta:g}"
        only = ", jobs with noise" if self.noised_only else ""
        return f"{size} {period} ({self.adjacency.value}{only})"

    def plain(self) -> dict[str, Any]:
        """Return the cap as plain data; `of` restores it."""
        return asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        return cls(**{**plain, "adjacency": Adjacency(plain["adjacency"])})

    def counted(self, costs: Counter[Cost]) -> Counter[Cost]:
        """Return those of these earlier releases that count under the cap."""
        if not self.noised_only:
            return costs
        return Counter({cost: count for cost, count in costs.items() if not cost.is_exact})

    def holds(self, costs: Counter[Cost]) -> bool:
        """Return whether releases stay within the cap. costs: how often each cost was paid."""
        return self.allows(_events(costs, self.adjacency), _distance(costs))

    def allows(self, events: Sequence[Event], distance: float) -> bool:
        """Return whether releases stay within the cap.

        events: the releases, as if their noise were Gaussian, under the cap's adjacency
        distance: total variation distance of all releases from these events
        """
        # The cap also holds if a smaller epsilon holds, where discreteness uses less of delta.
        epsilons = {self.epsilon}
        if distance:
            smaller = (math.log(max(p * self.delta / distance - 1.0, 1.0)) for p in _DELTA_SHARES)
            epsilons |= {min(self.epsilon, epsilon) for epsilon in smaller}
        return any(
            delta_of(events, epsilon) + (1.0 + math.exp(epsilon)) * distance
            <= self.delta * (1.0 + _ROUNDING)  # False for NaN
            for epsilon in epsilons
        )


def spent_epsilon(costs: Counter[Cost], adjacency: Adjacency, delta: float) -> float:
    """Return the joint epsilon of releases at `delta`, as if their noise were Gaussian."""
    return epsilon_of(_events(costs, adjacency), delta)


def affordable(cap: Cap, spent: Counter[Cost], distance: float, delta: float) -> float:
    """Return the largest epsilon, at `delta`, that one more job may use under the cap.

    Return 0 if no job fits.

    spent: how often each cost was paid
    distance: total variation distance of the job's releases from releases with Gaussian noise
    """
    distance += _distance(spent)
    events = _events(spent, cap.adjacency)
    mu = _largest(
        gaussian_mu(cap.epsilon, cap.delta),
        lambda mu: cap.allows([*events, Gaussian(mu)], distance),
        _bisections(events),
    )
    return gaussian_epsilon(mu, delta) if mu > 0.0 else 0.0


def _largest(high: float, fits: Callable[[float], bool], steps: int = _MAX_BISECTIONS) -> float:
    """Return the largest number below `high` that fits, by bisection; 0 for none."""
    low = 0.0
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _bisections(events: Sequence[Event]) -> int:
    sampled = any(isinstance(event, SampledGaussian) for event in events)
    return _FEW_BISECTIONS if sampled else _MAX_BISECTIONS


def check_caps(
    where: str,
    caps: Sequence[Cap],
    spent_under: Callable[[Cap], Counter[Cost]],
    requested: Counter[Cost],
    delta: float,
    adjacency: Adjacency | None,
) -> None:
    """Raise `PolicyRefusal` if the requested releases exceed a cap. The text says what would fit.

    where: name of the data set or file, for the text
    spent_under: returns how often each cost was paid within a cap's period
    requested: how often each cost would be paid
    delta, adjacency: those of the requesting job; 0 and None for a job without noise
    """
    if all(cost == FREE for cost in requested):  # also if a cap was lowered below what is spent
        return
    all_spent = [(cap, spent_under(cap)) for cap in caps]
    broken = [(cap, spent) for cap, spent in all_spent if not cap.holds(spent + requested)]
    if not broken:
        return
    distance = _distance(requested)
    each = [(affordable(c, spent, distance, delta or c.delta), c, spent) for c, spent in broken]
    largest, cap, spent = min(each, key=lambda candidate: candidate[0])
    if adjacency is None:
        terms = f"epsilon {rounded_down(largest)} at delta {cap.delta:g} ({cap.adjacency.value})"
        advice = f"Exact sums fit under no cap. With noise, at most {terms} fits."
    else:
        largest = _scaled(all_spent, requested, delta, adjacency)
        terms = f"privacy.epsilon {rounded_down(largest)} at delta {delta:g} ({adjacency.value})"
        advice = f"At most {terms} fits."
    exact = any(math.isinf(c.event(cap.adjacency).mu) for c in spent)
    nothing = "No budget is left"
    nothing += ": exact sums were released, and noise cannot make up for that." if exact else "."
    total = spent_epsilon(spent + requested, cap.adjacency, cap.delta)
    would = "no finite epsilon" if math.isinf(total) else f"epsilon {total:.3g}"
    if total <= cap.epsilon:
        would += " plus discreteness of the noise, which needs more delta than is left"
    raise PolicyRefusal(
        where,
        f"the total with this job would be {would}; its cap is {cap.words()}",
        advice if largest > 0.0 else nothing,
    )


def _scaled(
    spent: Sequence[tuple[Cap, Counter[Cost]]],
    requested: Counter[Cost],
    delta: float,
    adjacency: Adjacency,
) -> float:
    """Return the largest epsilon with which the same job would fit under all caps.

    Return 0 if no epsilon fits. If everything else in the job stays the same, its epsilon alone
    determines the size of its noise. With f times smaller noise, mu is f times larger, in all
    releases of the job and under both adjacencies.
    """
    asked = {k: _events(requested, k) for k in Adjacency}
    before = [
        (cap, _events(costs, cap.adjacency), _distance(costs + requested)) for cap, costs in spent
    ]
    every = [event for events in asked.values() for event in events]
    every += [event for _, events, _ in before for event in events]
    factor = _largest(1.0, lambda f: all(
        cap.allows([*events, *(with_less_noise(e, f) for e in asked[cap.adjacency])], distance)
        for cap, events, distance in before
    ), _bisections(every))  # fmt: skip
    if not factor > 0.0:
        return 0.0
    return epsilon_of([with_less_noise(e, factor) for e in asked[adjacency]], delta)


def _events(costs: Counter[Cost], adjacency: Adjacency) -> list[Event]:
    """Return a short list of events with the joint cost of all these releases, or slightly more."""
    return [times(cost.event(adjacency), count) for cost, count in costs.items() if count > 0]


def _distance(costs: Counter[Cost]) -> float:
    return math.fsum(count * cost.distance for cost, count in costs.items())


def rounded_down(epsilon: float) -> str:
    """Write an epsilon with three digits, rounded down, so that the printed epsilon fits too."""
    if epsilon <= 0.0:
        return "0"
    scale = 10.0 ** (2 - math.floor(math.log10(epsilon)))
    return f"{math.floor(epsilon * scale) / scale:.3g}"
