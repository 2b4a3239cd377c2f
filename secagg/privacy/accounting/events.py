"""The joint cost of several releases, each described as an event.

An event is one release with Gaussian noise, described by its mu: the L2 sensitivity divided by the
standard deviation of the noise; or several releases of Poisson samples of the records. Ledgers
store events. From all events together, epsilon can be computed later, for any delta. The joint cost
of Gaussian events is exact (`secagg.privacy.accounting.gaussian_dp`). That of samples is an upper
bound, up to a few parts in 10^4 (`secagg.privacy.accounting.privacy_loss`). The normal
approximation known as the "GDP central limit theorem" is not used, because it can give an epsilon
that is a quarter too low.

====================================  =================================================
case                                  epsilon
====================================  =================================================
no events, or all of cost 0           0
delta = 0, an event with a cost       inf
delta >= 1                            0
an exact release (mu = inf)           inf, for delta < 1
a sample with rate 1                  as the release of all records
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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from secagg.errors import UsageError
from secagg.privacy.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon
from secagg.privacy.accounting.privacy_loss import Composed, Pattern, Step, composed

_SAMPLED = "sampled_gaussian"
_ROUND_UP_FACTOR = 1 + 2**-50
"""Covers two products and a root, each with a relative error of at most 2**-53."""


@dataclass(frozen=True)
class Gaussian:
    """A release with Gaussian noise.

    mu: L2 sensitivity divided by the standard deviation of the noise; infinite without noise
    """

    mu: float

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise UsageError("mu", f"{self.mu} is not a number of at least 0")


@dataclass(frozen=True)
class SampledGaussian:
    """Releases with Gaussian noise, in each of which a record takes part with a probability.

    mu: as for `Gaussian`, if all records took part and one is added or removed
    rate: the probability, above 0 and below 1; nobody outside the site knows who took part
    steps: number of such releases, at least 1
    nu: as mu, if one record is replaced by another; 0 for neighbours with one record more or less
    elsewhere: whether the other record may be at another site, with noise of its own
    """

    mu: float
    rate: float
    steps: int = 1
    nu: float = 0.0
    elsewhere: bool = False

    def __post_init__(self) -> None:
        if not (self.mu >= 0 and self.nu >= 0):
            raise UsageError("mu", f"{self.mu} or {self.nu} is not a number of at least 0")
        if not 0 < self.rate < 1:
            raise UsageError("rate", f"{self.rate} is not above 0 and below 1")
        if self.steps < 1:
            raise UsageError("steps", f"{self.steps} is not at least 1")


Event = Gaussian | SampledGaussian


def sampled_event(
    mu: float, rate: float, steps: int, nu: float = 0.0, *, elsewhere: bool = False
) -> Event:
    """Return the event of `steps` releases; with rate 1, one Gaussian event of the same cost.

    nu: 0 for neighbours with one record more or less
    """
    if rate < 1 and mu > 0:
        return SampledGaussian(mu, rate, steps, nu, elsewhere)
    return times(Gaussian(nu or mu), steps)


def times(event: Event, count: int) -> Event:
    """Return one event that costs as much as `count` such events, or slightly more."""
    if isinstance(event, SampledGaussian):
        return replace(event, steps=event.steps * count)
    if count == 1:
        return event
    return Gaussian(event.mu * math.sqrt(count) * _ROUND_UP_FACTOR)


def with_less_noise(event: Event, factor: float) -> Event:
    """Return the event if the noise were smaller by this factor."""
    if isinstance(event, SampledGaussian):
        return replace(event, mu=event.mu * factor, nu=event.nu * factor)
    return Gaussian(event.mu * factor)


def epsilon_of(events: Iterable[Event], delta: float) -> float:
    """Return the smallest epsilon of all events together at this delta, rounded up.

    delta: 0 to 1
    Raises `UsageError` for a delta that is negative or not a number.
    """
    mu, sampled = _split(events)
    least = gaussian_epsilon(mu, delta)
    if not sampled or least == math.inf or delta >= 1:
        return least
    laws = _laws(mu, sampled)
    return max(law.epsilon(delta) for law in laws)


def delta_of(events: Iterable[Event], epsilon: float) -> float:
    """Return delta of all events together at this epsilon (0 to infinity), rounded up."""
    mu, sampled = _split(events)
    if not sampled or math.inf in (mu, epsilon):
        return gaussian_delta(mu, epsilon)
    if not epsilon >= 0:
        raise UsageError("epsilon", f"{epsilon} is not a number of at least 0")
    return max(law.delta(epsilon) for law in _laws(mu, sampled))


def curve(events: Iterable[Event], deltas: Sequence[float]) -> list[tuple[float, float]]:
    """Return (delta, epsilon) of all events together for each of these deltas."""
    listed = list(events)
    return [(delta, epsilon_of(listed, delta)) for delta in deltas]


def _split(events: Iterable[Event]) -> tuple[float, list[SampledGaussian]]:
    """Return the joint mu of the Gaussian events, and the others, equal ones as one."""
    gaussians: list[Gaussian] = []
    steps: Counter[SampledGaussian] = Counter()
    for event in events:
        if isinstance(event, Gaussian):
            gaussians.append(event)
        elif event.mu == math.inf:  # the sample may hold the record
            gaussians.append(Gaussian(math.inf))
        else:
            steps[replace(event, steps=1)] += event.steps
    return compose(gaussians), [replace(event, steps=n) for event, n in steps.items()]


def _laws(mu: float, sampled: Sequence[SampledGaussian]) -> list[Composed]:
    """Return the laws of the total loss, one of which is that of the record in question."""
    if not any(event.nu for event in sampled):
        patterns: list[tuple[Pattern, ...]] = [("remove",), ("add",)]
    elif any(event.elsewhere for event in sampled):
        patterns = [("replace",), ("remove", "add")]
    else:
        patterns = [("replace",)]
    return [
        composed(
            tuple(
                Step(
                    each, event.mu, event.rate, event.nu if each == "replace" else 0.0, event.steps
                )
                for event in sampled
                for each in pattern
            ),
            mu,
        )
        for pattern in patterns
    ]


def rdp_epsilon(events: Iterable[Event], delta: float) -> float:
    """Return an upper bound on epsilon, by Renyi divergences; for information only.

    Infinite if there are samples, for which this bound is not computed here.

    The bound is larger than `epsilon_of`. Source: Mironov 2017, converted by proposition 12 of
    Canonne, Kamath & Steinke 2020. The best Renyi order is 1 + t with t about
    root(-2 log delta) / mu.

    delta: above 0, below 1
    """
    mu, sampled = _split(events)
    if sampled or mu in (0.0, math.inf):
        return math.inf if sampled else mu
    orders = np.geomspace(1e-2 / mu, 40 / mu, 200)
    return max(0.0, min(_renyi_epsilon(mu, float(t), delta) for t in orders))


def _renyi_epsilon(mu: float, t: float, delta: float) -> float:
    moment = t * (t + 1) * mu**2 / 2 - math.log1p(t) - t * math.log1p(1 / t)
    return (moment - math.log(delta)) / t


def zcdp_epsilon(events: Iterable[Event], delta: float) -> float:
    """Return an upper bound on epsilon, by concentrated differential privacy; for information only.

    Infinite if there are samples, for which this bound is not computed here.

    The bound is rho + 2 sqrt(rho log(1/delta)) with rho = mu^2/2 (Bun & Steinke 2016, propositions
    1.3 and 1.6).

    delta: above 0, below 1
    """
    mu, sampled = _split(events)
    if sampled:
        return math.inf
    rho = mu**2 / 2
    return rho + 2 * math.sqrt(-rho * math.log(delta))


def compose(events: Iterable[Gaussian]) -> float:
    """Return mu of all events together: the root of the sum of their mu^2, rounded up."""
    mus = [0.0, *(event.mu for event in events)]
    mu = math.hypot(*mus)  # rounded to nearest
    return mu if mu == max(mus) else math.nextafter(mu, math.inf)


def to_data(event: Event) -> dict[str, Any]:
    """Return the event as plain data. An infinite mu becomes "inf", as JSON has no infinity."""
    if isinstance(event, SampledGaussian):
        return {"law": _SAMPLED, **asdict(event)}
    return {"law": "gaussian", "mu": "inf" if event.mu == math.inf else event.mu}


def from_data(data: Mapping[str, Any]) -> Event:
    """Return the event that `to_data` wrote. Raises `UsageError` for anything else."""
    match data:
        case {"law": law, **rest} if law == _SAMPLED:
            return _sampled_from(rest)
        case {"law": "gaussian", "mu": "inf", **rest} if not rest:
            return Gaussian(math.inf)
        case {"law": "gaussian", "mu": int() | float() as mu, **rest} if not rest:
            if not isinstance(mu, bool):
                return Gaussian(float(mu))
        case {"law": str() as law} if law != "gaussian":
            what = f"has noise of the kind {law!r}, which this version does not read"
            raise UsageError("ledger event", what)
    raise UsageError("ledger event", f"{dict(data)} is not an event")


def _sampled_from(data: Mapping[str, Any]) -> SampledGaussian:
    kinds = {"mu": (int, float), "rate": (int, float), "steps": (int,), "nu": (int, float),
             "elsewhere": (bool,)}  # fmt: skip
    if data.keys() == kinds.keys() and all(
        isinstance(data[name], kind) and (kind == (bool,) or not isinstance(data[name], bool))
        for name, kind in kinds.items()
    ):
        return SampledGaussian(**data)
    raise UsageError("ledger event", f"{dict(data)} is not an event")
