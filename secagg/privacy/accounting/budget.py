"""What a data set may still give away: caps, costs, and whether one more release fits.

Follows Balle and Wang 2018 (theorem 8, by `secagg.privacy.accounting.events`) for the cost of
Gaussian releases composed, and the definition of total variation for what their discreteness adds:
releases that are within distance T (all together) of ones that are (epsilon, delta)-private are
(epsilon, delta + (1 + e^epsilon) T)-private, because either of the two data sets' chances may be
off by T.

A cap says that everything which was first released within its period, composed, is (epsilon,
delta)-private under its adjacency; an answer repeated with its first noise counts where it was
first given. The two adjacencies are never converted into one another: each release states its
cost under both.

==========================================  ========================================================
case                                        outcome
==========================================  ========================================================
total equal to the cap                      fits, to the last bits of a float (`_ROUNDING`)
an exact release (mu = inf) under any cap   does not fit, and nothing fits after it in that period
no cap                                      everything fits
several caps                                each must hold
discreteness uses up all of delta           does not fit, however small epsilon is
rest of the job does not fit                its first release does not fit
==========================================  ========================================================

Not protected: a cap with a period bounds what leaves in any such period, not what leaves in all;
only a cap without one bounds what an outsider who keeps everything can learn.
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
    Gaussian,
    delta_of,
    epsilon_of,
    from_data,
    to_data,
)
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu

_ROUNDING: Final = 1e-9
"""A job may plan to use up a cap exactly. Its mu, their squares summed and the formula for delta
are each rounded, by parts in 1e10 of delta; by so much, relatively, a total may pass it."""

_MAX_EPSILON: Final = 100.0
"""Caps above it promise nothing to anybody, and e^epsilon must be a float."""

_MAX_DAYS: Final = 36_525.0
"""A century: longer is for ever."""

_PARTS: Final = (1e-3, 0.1, 0.5)
"""Of delta: where discreteness takes so much, a cap's epsilon may be looked at as a smaller one."""

_ROUND_UP_FACTOR: Final = 1 + 2**-50
"""Two products and a root are each off by at most 2**-53, relatively."""

_MAX_BISECTIONS: Final = 50
"""Of the bracket in which the affordable mu lies; its printed epsilon has three digits."""


@dataclass(frozen=True)
class Cost:
    """What one release costs: an event for each adjacency, and how far off they are.

    distance: total variation between the release and what the events describe; in [0, 1]
    Raises `UsageError` for anything else.
    """

    add_remove: Gaussian
    replace: Gaussian
    distance: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.distance <= 1.0:
            raise UsageError("cost of a release", f"distance {self.distance} is not in [0, 1]")

    def event(self, adjacency: Adjacency) -> Gaussian:
        """Return the event under one adjacency."""
        return self.add_remove if adjacency is Adjacency.ADD_REMOVE else self.replace

    def plain(self) -> dict[str, Any]:
        """Return it as plain data that `of` reads again, to the last bit."""
        return {
            "add_remove": to_data(self.add_remove),
            "replace": to_data(self.replace),
            "distance": self.distance,
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Return what `plain` wrote."""
        events = from_data(plain["add_remove"]), from_data(plain["replace"])
        return cls(*events, plain["distance"])


@dataclass(frozen=True)
class Cap:
    """Most that a data set may give away within `days` (None: for ever).

    epsilon: above 0, at most 100; delta: above 0, below 1; days: above 0, at most a century
    Raises `UsageError` for anything else.
    """

    epsilon: float
    delta: float
    days: float | None = None
    adjacency: Adjacency = Adjacency.REPLACE

    def __post_init__(self) -> None:
        for name, value, allowed, range_ in (
            ("epsilon", self.epsilon, 0.0 < self.epsilon <= _MAX_EPSILON, "above 0, at most 100"),
            ("delta", self.delta, 0.0 < self.delta < 1.0, "above 0 and below 1"),
            ("days", self.days, self.days is None or 0.0 < self.days <= _MAX_DAYS,
             "above 0, at most 36525"),
        ):  # fmt: skip
            if not allowed:
                raise UsageError("budget cap", f"{name} {value:g} cannot be", f"It is {range_}.")

    def words(self) -> str:
        """Return the cap as a reader wants it."""
        period = "for ever" if self.days is None else f"in {self.days:g} days"
        size = f"epsilon {self.epsilon:g} at delta {self.delta:g}"
        return f"{size} {period} ({self.adjacency.value})"

    def plain(self) -> dict[str, Any]:
        """Return it as plain data that `of` reads again."""
        return asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Return what `plain` wrote."""
        return cls(**{**plain, "adjacency": Adjacency(plain["adjacency"])})

    def holds(self, costs: Counter[Cost]) -> bool:
        """Say whether releases that cost this, each so often, keep to the cap together."""
        return self.allows(_events(costs, self.adjacency), _distance(costs))

    def allows(self, events: Sequence[Gaussian], distance: float) -> bool:
        """Say so for events under the cap's adjacency, which releases are `distance` away from."""
        # What holds at a smaller epsilon holds here; there, discreteness takes less of delta.
        tried = {self.epsilon}
        if distance:
            smaller = (math.log(max(p * self.delta / distance - 1.0, 1.0)) for p in _PARTS)
            tried |= {min(self.epsilon, at) for at in smaller}
        return any(
            delta_of(events, at) + (1.0 + math.exp(at)) * distance
            <= self.delta * (1.0 + _ROUNDING)  # so NaN is not allowed
            for at in tried
        )


def spent_epsilon(costs: Counter[Cost], adjacency: Adjacency, delta: float) -> float:
    """Return the epsilon at `delta` of all these releases together, discreteness left aside."""
    return epsilon_of(_events(costs, adjacency), delta)


def affordable(cap: Cap, spent: Counter[Cost], distance: float, delta: float) -> float:
    """Return the largest epsilon at `delta` that one more Gaussian job may claim; 0 for none.

    distance: of that job's releases, in total variation
    """
    distance += _distance(spent)
    events = _events(spent, cap.adjacency)
    low, high = 0.0, gaussian_mu(cap.epsilon, cap.delta)
    for _ in range(_MAX_BISECTIONS):
        middle = (low + high) / 2
        fits = cap.allows([*events, Gaussian(middle)], distance)
        low, high = (middle, high) if fits else (low, middle)
    return gaussian_epsilon(low, delta) if low > 0.0 else 0.0


def check_caps(
    where: str,
    caps: Sequence[Cap],
    spent_under: Callable[[Cap], Counter[Cost]],
    wanted: Counter[Cost],
    delta: float,
    adjacency: Adjacency | None,
) -> None:
    """Raise `PolicyRefusal`, with what would be affordable, unless `wanted` fits under every cap.

    spent_under: returns how often each cost was paid within a cap's period
    delta, adjacency: of the job that asks; 0 and None for one without noise
    """
    all_spent = [(cap, spent_under(cap)) for cap in caps]
    broken = [(cap, spent) for cap, spent in all_spent if not cap.holds(spent + wanted)]
    if not broken:
        return
    distance = _distance(wanted)
    each = [(affordable(c, spent, distance, delta or c.delta), c, spent) for c, spent in broken]
    least, cap, spent = min(each, key=lambda found: found[0])
    if adjacency is None:
        terms = f"epsilon {rounded_down(least)} at delta {cap.delta:g} ({cap.adjacency.value})"
        advice = f"Exact sums fit under no cap; with noise, what is left suffices for {terms}."
    else:
        least = _scaled(all_spent, wanted, delta, adjacency)
        terms = f"privacy.epsilon {rounded_down(least)} at delta {delta:g} ({adjacency.value})"
        advice = f"What is left suffices for {terms}."
    exact = any(math.isinf(c.event(cap.adjacency).mu) for c in spent)
    nothing = "Nothing is left"
    nothing += ", since exact sums were released: no noise makes up for that." if exact else "."
    total = spent_epsilon(spent + wanted, cap.adjacency, cap.delta)
    would = "no finite epsilon" if math.isinf(total) else f"epsilon {total:.3g}"
    if total <= cap.epsilon:
        would += " but for the noise's being discrete, which takes more than is left of delta"
    raise PolicyRefusal(
        where,
        f"with this job it would have given away {would}, and its cap is {cap.words()}",
        advice if least > 0.0 else nothing,
    )


def _scaled(
    spent: Sequence[tuple[Cap, Counter[Cost]]],
    wanted: Counter[Cost],
    delta: float,
    adjacency: Adjacency,
) -> float:
    """Return the largest epsilon with which the same job would fit under all caps; 0 for none.

    A job's noise is sized by its epsilon alone: with noise 1/f times as wide, mu is f times as
    large in all its releases and under both adjacencies.
    """
    mus = {k: math.sqrt(math.fsum(e.mu**2 for e in _events(wanted, k))) for k in Adjacency}
    before = [
        (cap, _events(costs, cap.adjacency), _distance(costs + wanted)) for cap, costs in spent
    ]
    low, high = 0.0, 1.0
    for _ in range(_MAX_BISECTIONS):
        f = (low + high) / 2
        fits = all(
            cap.allows([*known, Gaussian(f * mus[cap.adjacency])], distance)
            for cap, known, distance in before
        )
        low, high = (f, high) if fits else (low, f)
    return gaussian_epsilon(low * mus[adjacency], delta) if low > 0.0 else 0.0


def _events(costs: Counter[Cost], adjacency: Adjacency) -> list[Gaussian]:
    """Return few events that are together what all these releases are, and never less.

    n Gaussian ones with the same mu are one with mu root(n); `_ROUND_UP_FACTOR` covers the rounding
    of both.
    """
    events: list[Gaussian] = []
    for cost, often in costs.items():
        event = cost.event(adjacency)
        if often > 1:
            events.append(Gaussian(event.mu * math.sqrt(often) * _ROUND_UP_FACTOR))
        else:
            events += [event] * often
    return events


def _distance(costs: Counter[Cost]) -> float:
    return math.fsum(often * cost.distance for cost, often in costs.items())


def rounded_down(epsilon: float) -> str:
    """Return three digits, rounded down: what is printed as affordable must be."""
    if epsilon <= 0.0:
        return "0"
    scale = 10.0 ** (2 - math.floor(math.log10(epsilon)))
    return f"{math.floor(epsilon * scale) / scale:.3g}"
