"""The joint cost of several releases, each described as an event.

An event is one release with Gaussian noise, described by its mu: the L2 sensitivity divided by the
standard deviation of the noise. Ledgers store events. From all events together, epsilon can be
computed later, for any delta. The joint cost of Gaussian events is exact
(`secagg.privacy.accounting.gaussian_dp`). The normal approximation known as the "GDP central limit
theorem" is not used, because it can give an epsilon that is a quarter too low.

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

The joint cost counts all events of one data set, even if different people received the releases. If
the same people have records at several sites, the events of these sites count together. Reading an
old release again is not an event. A cap holds even if the noise of a release was chosen after
seeing earlier results (Smith & Thakurta 2022).

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
    """A release with Gaussian noise.

    mu: L2 sensitivity divided by the standard deviation of the noise; infinite without noise
    """

    mu: float

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise UsageError("mu", f"{self.mu} is not a number of at least 0")


def epsilon_of(events: Iterable[Gaussian], delta: float) -> float:
    """Return the smallest epsilon of all events together at this delta, rounded up.

    delta: 0 to 1
    Raises `UsageError` for a delta that is negative or not a number.
    """
    return gaussian_epsilon(compose(events), delta)


def delta_of(events: Iterable[Gaussian], epsilon: float) -> float:
    """Return delta of all events together at this epsilon (0 to infinity), rounded up."""
    return gaussian_delta(compose(events), epsilon)


def curve(events: Iterable[Gaussian], deltas: Sequence[float]) -> list[tuple[float, float]]:
    """Return (delta, epsilon) of all events together for each of these deltas."""
    mu = compose(events)
    return [(delta, gaussian_epsilon(mu, delta)) for delta in deltas]


def rdp_epsilon(events: Iterable[Gaussian], delta: float) -> float:
    """Return an upper bound on epsilon, by Renyi divergences; for information only.

    The bound is larger than `epsilon_of`. Source: Mironov 2017, converted by proposition 12 of
    Canonne, Kamath & Steinke 2020. The best Renyi order is 1 + t with t about
    root(-2 log delta) / mu.

    delta: above 0, below 1
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
    """Return an upper bound on epsilon, by concentrated differential privacy; for information only.

    The bound is rho + 2 sqrt(rho log(1/delta)) with rho = mu^2/2 (Bun & Steinke 2016, propositions
    1.3 and 1.6).

    delta: above 0, below 1
    """
    rho = compose(events) ** 2 / 2
    return rho + 2 * math.sqrt(-rho * math.log(delta))


def compose(events: Iterable[Gaussian]) -> float:
    """Return mu of all events together: the root of the sum of their mu^2, rounded up."""
    mus = [0.0, *(event.mu for event in events)]
    mu = math.hypot(*mus)  # rounded to nearest
    return mu if mu == max(mus) else math.nextafter(mu, math.inf)


def to_data(event: Gaussian) -> dict[str, Any]:
    """Return the event as plain data. An infinite mu becomes "inf", as JSON has no infinity."""
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
