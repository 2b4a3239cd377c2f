"""Releases as Gaussian events, and the cost of any number of them together.

A ledger stores events, not epsilons. The epsilon, at any delta, is computed later from all events
together. All noise is Gaussian, and Gaussian events compose exactly
(`secagg.privacy.accounting.gaussian_dp`). The normal approximation of composed losses (the "GDP
central limit theorem") is not used: it can be a quarter too low.

====================================  =================================================
case                                  epsilon
====================================  =================================================
no events, or all of cost 0           0
delta = 0, an event with a cost       inf
delta >= 1                            0
an exact release (mu = inf)           inf, for delta < 1
delta at epsilon = inf                0
negative or not a number              `UsageError`
====================================  =================================================

Events of one data set compose even if different people received the releases. So do events of the
same people at several sites. Reading an old release again is not an event. A cap holds even if the
noise of a release was chosen after seeing earlier results (Smith & Thakurta 2022).

Not protected: a release that was never recorded as an event.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from secagg.errors import UsageError
from secagg.privacy.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise; mu is the L2 sensitivity over its standard deviation, inf without noise."""

    mu: float

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise UsageError("mu", f"{self.mu} is not a number of at least 0")


def epsilon_of(events: Iterable[Gaussian], delta: float) -> float:
    """Return the smallest epsilon of all events together at delta (0 to 1); never below it.

    Raises `UsageError` for a delta that is negative or not a number.
    """
    return gaussian_epsilon(compose(events), delta)


def delta_of(events: Iterable[Gaussian], epsilon: float) -> float:
    """Return delta of all events together at epsilon (0 to inf); never below it."""
    return gaussian_delta(compose(events), epsilon)


def curve(events: Iterable[Gaussian], deltas: Sequence[float]) -> list[tuple[float, float]]:
    """Return (delta, epsilon) of all events together for each of these deltas."""
    mu = compose(events)
    return [(delta, gaussian_epsilon(mu, delta)) for delta in deltas]


def rdp_epsilon(events: Iterable[Gaussian], delta: float) -> float:
    """Return epsilon by Renyi divergences, for information: an upper bound, not the smallest one.

    Mironov 2017, converted by proposition 12 of Canonne, Kamath & Steinke 2020. delta in (0, 1).
    The best Renyi order 1 + t has t of about root(-2 log delta) / mu.
    """
    mu = compose(events)
    if mu in (0.0, math.inf):
        return mu
    orders = np.geomspace(1e-2 / mu, 40 / mu, 200)
    return max(0.0, min(_renyi_epsilon(mu, float(t), delta) for t in orders))


def _renyi_epsilon(mu: float, t: float, delta: float) -> float:
    moment = t * (t + 1) * mu**2 / 2 - math.log1p(t) - t * math.log1p(1 / t)
    return (moment - math.log(delta)) / t


def zcdp_epsilon(events: Iterable[Gaussian], delta: float) -> float:
    """Return epsilon by concentrated privacy, for information: rho + 2 sqrt(rho log(1/delta)).

    Bun & Steinke 2016, propositions 1.3 and 1.6 (rho = mu^2/2). delta in (0, 1).
    """
    rho = compose(events) ** 2 / 2
    return rho + 2 * math.sqrt(-rho * math.log(delta))


def compose(events: Iterable[Gaussian]) -> float:
    """Return mu of all events together: the root of the sum of their squares, never below it."""
    mus = [0.0, *(event.mu for event in events)]
    mu = math.hypot(*mus)  # rounded to nearest
    return mu if mu == max(mus) else math.nextafter(mu, math.inf)


def to_data(event: Gaussian) -> dict[str, Any]:
    """Return the event as plain data. JSON has no infinity, so "inf" stands for it."""
    return {"law": "gaussian", "mu": "inf" if event.mu == math.inf else event.mu}


def from_data(data: Mapping[str, Any]) -> Gaussian:
    """Return the event that `to_data` wrote. Raises `UsageError` for anything else."""
    match data:
        case {"law": "gaussian", "mu": "inf", **rest} if not rest:
            return Gaussian(math.inf)
        case {"law": "gaussian", "mu": int() | float() as mu, **rest} if not rest:
            if not isinstance(mu, bool):
                return Gaussian(float(mu))
        case {"law": str() as law} if law != "gaussian":
            what = f"has noise of the kind {law!r}; this version reads only 'gaussian'"
            raise UsageError("ledger event", what)
    raise UsageError("ledger event", f"{dict(data)} is not an event")
