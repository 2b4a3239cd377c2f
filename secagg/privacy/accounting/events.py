"""Releases as events, apart from what they cost; and the cost of any number of them together.

A ledger stores events and no epsilons: which epsilon they make, at which delta, is a question for
later, asked of all of them together. Gaussian events compose exactly (`gaussian`); as soon as there
is a Laplace event, the number is the upper end of a bracket whose ends are within 1e-4 of each
other (`loss_distribution`), or as near as affordable. Never the normal approximation of composed
losses (the "GDP central limit theorem"), which may be a quarter too low.

====================================  =================================================
case                                  epsilon
====================================  =================================================
no events, or all of cost 0           0
delta = 0, only Laplace events        the sum of their epsilons
delta = 0, a Gaussian event           inf
delta >= 1                            0
an exact release (mu or eps inf)      inf, below delta = 1
delta at epsilon = inf                0
negative or not a number              `UsageError`
====================================  =================================================

Events of one data set add up whoever got the releases; events of the same people at several sites
too. A release read again is no event.

Not protected: what was released and not written down as an event. And with Laplace events among
them, releases whose *noise* was chosen after looking at earlier results: the sums here presume that
only the queries were. (For Gaussian events alone a cap holds then too: Smith & Thakurta 2022.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.errors import UsageError
from secagg.privacy.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon
from secagg.privacy.accounting.laplace import Laplace
from secagg.privacy.accounting.privacy_loss import Composed, delta_bounds, epsilon_bounds

__all__ = [
    "Event",
    "Gaussian",
    "Laplace",
    "compose",
    "curve",
    "delta_of",
    "epsilon_bracket",
    "epsilon_of",
    "from_data",
    "rdp_epsilon",
    "to_data",
    "zcdp_epsilon",
]


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise; mu is the L2 sensitivity over its standard deviation, inf without noise."""

    mu: float

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise UsageError("mu", f"{self.mu} is not a number from 0 on")


Event = Gaussian | Laplace


def epsilon_of(events: Iterable[Event], delta: float) -> float:
    """Return the least epsilon that all events together keep at delta (0 to 1); never below it."""
    return epsilon_bracket(events, delta)[1]


def epsilon_bracket(events: Iterable[Event], delta: float) -> tuple[float, float]:
    """Return (low, high): the least epsilon of all events together lies between them.

    With one kind of event at delta = 0, or Gaussian events alone, they are equal. Raises
    `UsageError` for a delta that is negative or not a number.
    """
    composed = compose(events)
    pure = composed.pure()
    if 0 < delta < 1 and pure > 0 and composed.mu < math.inf:
        return epsilon_bounds(composed, delta)
    epsilon = gaussian_epsilon(composed.mu, delta) + (pure if delta == 0 else 0.0)
    return epsilon, epsilon


def delta_of(events: Iterable[Event], epsilon: float) -> float:
    """Return delta of all events together at epsilon (0 to inf); never below it."""
    composed = compose(events)
    if composed.pure() > 0 and max(composed.mu, epsilon) < math.inf and epsilon >= 0:
        return delta_bounds(composed, epsilon)[1]
    return gaussian_delta(composed.mu, epsilon)


def curve(events: Iterable[Event], deltas: Sequence[float]) -> list[tuple[float, float]]:
    """Return (delta, epsilon) of all events together for each of these deltas."""
    listed = list(events)
    return [(delta, epsilon_of(listed, delta)) for delta in deltas]


def rdp_epsilon(events: Iterable[Event], delta: float) -> float:
    """Return epsilon by Renyi divergences, for information: an upper bound, not the least one.

    Mironov 2017; turned into epsilon by proposition 12 of Canonne, Kamath & Steinke 2020. delta in
    (0, 1); Renyi orders alpha = 1 + t.
    """
    composed = compose(events)
    if composed.mu == math.inf:
        return math.inf
    if composed.mu == composed.pure() == 0:
        return 0.0
    return max(0.0, min(composed.epsilon_bound(float(t), delta) for t in composed.orders()))


def zcdp_epsilon(events: Iterable[Event], delta: float) -> float:
    """Return epsilon by concentrated privacy, for information: rho + 2 sqrt(rho log(1/delta)).

    Bun & Steinke 2016, propositions 1.3 (rho = mu^2/2), 1.4 (epsilon^2/2). delta in (0, 1).
    """
    composed = compose(events)
    rho = composed.mu**2 / 2
    rho += math.fsum(law.epsilon**2 / 2 * n for law, n in composed.laplaces.items())
    return rho + 2 * math.sqrt(-rho * math.log(delta))


def compose(events: Iterable[Event]) -> Composed:
    """Return what all events together are: one mu, and how often each Laplace law was used."""
    mus = [0.0]
    laplaces: Counter[Laplace] = Counter()
    for event in events:
        if isinstance(event, Gaussian):
            mus.append(event.mu)
        elif event.epsilon == math.inf:
            mus.append(math.inf)
        elif event.epsilon > 0:
            laplaces[event] += 1
    # hypot rounds to nearest; a step up keeps mu from falling below the root of the squares' sum.
    mu = math.hypot(*mus)
    return Composed(mu if mu == max(mus) else math.nextafter(mu, math.inf), laplaces)


def to_data(event: Event) -> dict[str, Any]:
    """Return the event as plain data for JSON, which knows no infinity: "inf" stands for it."""
    if isinstance(event, Gaussian):
        return {"law": "gaussian", "mu": _plain(event.mu)}
    return {"law": "laplace", "epsilon": _plain(event.epsilon), "steps": _plain(event.steps)}


def from_data(data: Mapping[str, Any]) -> Event:
    """Return the event that `to_data` wrote. Raises `UsageError` for anything else."""
    match data:
        case {"law": "gaussian", "mu": mu, **rest} if not rest:
            return Gaussian(_number("mu", mu))
        case {"law": "laplace", "epsilon": epsilon, "steps": steps, **rest} if not rest:
            return Laplace(_number("epsilon", epsilon), _number("steps", steps))
    raise UsageError("event", f"{dict(data)} is no event of a ledger")


def _plain(value: float) -> float | str:
    return "inf" if value == math.inf else value


def _number(name: str, value: object) -> float:
    if value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(name, f"{value!r} is not a number")
    return float(value)
