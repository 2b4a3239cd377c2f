"""Gaussian and Laplace releases together: delta and epsilon between certified bounds.

The privacy loss of several releases is the sum of theirs (Koskela, Jalko & Honkela 2020), and with
L the loss of the Laplace releases and delta_mu that of all the Gaussian ones, exact by
`secagg.privacy.accounting.gaussian_dp`,

    delta(epsilon) = E_P[delta_mu(epsilon - L)].                                            (1)

So only L, which is bounded, is put on a lattice of losses `step` apart, twice over:

* *Pessimistic*: an outcome between two lattice points is split between them so that P and Q keep
  their mass ("connect the dots", Doroshenko et al. 2022). The true release is a function of this
  one, which knows more: delta is never below the truth.
* *Optimistic*: epsilon is rounded down to the lattice (Laplace noise of a smaller epsilon is the
  noise it has plus more, Laplace or none by a biased coin), then outcomes nearest to a lattice
  point are told apart no longer, and the log of their P over their Q is rounded down: never above
  the truth.

Sums of L come by fast Fourier transform of the masses tilted by e^(order L) and divided by
E[e^(order L)] (exponential tilting, the Chernoff change of measure), which puts the accuracy where
epsilon is. What is computed wrongly or left out, of a tilted mass `lost`, moves (1) by at most

    lost * E_P[e^(order L)] * e^(B - order epsilon),    where delta_mu(x) <= e^(B - order x)    (2)

which is added to the one delta and taken from the other.
Lattices get finer until the bounds meet to 1e-4, or the work is too much.

Both P against Q and Q against P are covered: the losses of both kinds of noise are symmetric.

Not protected: nothing here is subsampled; for noise chosen after earlier results see `events`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from secagg.privacy.accounting.gaussian_dp import (
    Floats,
    gaussian_delta,
    gaussian_deltas,
    gaussian_epsilon,
)
from secagg.privacy.accounting.laplace import Laplace

_UNIT = float(np.finfo(np.float64).eps)
_PARTS = (60, 240, 960, 3840)  # of the heaviest epsilon; multiples of 60 hold its simple fractions
_WORK = 1 << 21  # most lattice points to transform, over all laws
_CLOSE = 1e-4  # relative distance of the bounds that is good enough
_NOISE = 1e-15  # weights below are mostly the transforms' rounding, and dropped
_OUTSIDE = 1e-13  # tilted mass that the transform may fold over
_LARGEST = 300.0  # losses whose exponentials and their squares are numbers
_FUZZ = 1e-9  # steps, or shares of a loss, within which a loss counts as on a lattice point


@dataclass(frozen=True)
class Composed:
    """All releases together: mu of the Gaussian ones, and how often each Laplace one was made."""

    mu: float
    laplaces: Counter[Laplace]

    def pure(self) -> float:
        """Return the sum of the Laplace releases' epsilons, never below it."""
        total = math.fsum(law.epsilon * count for law, count in self.laplaces.items())
        return math.nextafter(total, math.inf) if total else 0.0

    def log_bound(self, order: float) -> float:
        """Return B with delta(epsilon) <= exp(B - order epsilon); order > 0."""
        laplaces = sum(n * law.log_moment(order) for law, n in self.laplaces.items())
        return laplaces + log_bound_of_gaussian(self.mu, order)

    def epsilon_bound(self, order: float, delta: float) -> float:
        """Return the epsilon at delta that follows from the moment of one order > 0."""
        return (self.log_bound(order) - math.log(delta)) / order

    def sizes(self) -> list[float]:
        """Return the size of the loss of each kind of release, up to a small factor."""
        kinds = [count**0.5 * law.epsilon for law, count in self.laplaces.items()]
        return [size for size in (self.mu, *kinds) if size > 0]

    def orders(self) -> Floats:
        """Return orders of moments, the best one for any delta from 1e-300 on near one of them.

        About root(-2 log delta) over the size of the losses that make up the tail. Moments have to
        keep digits: the order times the largest loss is at most 1e5.
        """
        sizes = self.sizes()
        highest = min(40 / min(sizes), 1e5 / max(self.pure(), *sizes))
        return np.geomspace(1e-2 / math.hypot(*sizes), highest, 200)


def log_bound_of_gaussian(mu: float, order: float) -> float:
    """Return B with delta_mu(x) <= exp(B - order x) for every x, negative too.

    For (1 - e^-y)_+ <= c e^(order y), with c from the y that makes it tight (Canonne, Kamath &
    Steinke 2020, proposition 12), and the Gaussian loss G has
    log E_P[e^(order G)] = order (order + 1) mu^2 / 2.
    """
    return order * (order + 1) * mu**2 / 2 - math.log1p(order) - order * math.log1p(1 / order)


def epsilon_bounds(composed: Composed, delta: float) -> tuple[float, float]:
    """Return (low, high) around the least epsilon at delta; delta in (0, 1), mu finite."""
    low = gaussian_epsilon(composed.mu, delta)  # leave out the Laplace releases
    high = low + composed.pure()  # basic composition
    if not _lattice_helps(composed):
        return low, high
    order = float(min(composed.orders(), key=lambda t: composed.epsilon_bound(t, delta)))
    for step in _steps(composed):
        above, below = (_Lattice(composed, order, step, side) for side in (True, False))
        high = _highest(above.delta, delta, low, high)
        low = _lowest(below.delta, delta, low, high)
        if high - low <= _CLOSE * high:
            break
    return low, high


def delta_bounds(composed: Composed, epsilon: float) -> tuple[float, float]:
    """Return (low, high) around delta at a finite epsilon from 0 on; mu finite."""
    low = gaussian_delta(composed.mu, epsilon)  # leave out the Laplace releases
    rest = math.nextafter(epsilon - composed.pure(), -math.inf)
    high = gaussian_delta(composed.mu, rest) if rest >= 0 else 1.0  # basic composition
    if not _lattice_helps(composed):
        return low, high
    order = float(min(composed.orders(), key=lambda t: composed.log_bound(t) - t * epsilon))
    for step in _steps(composed):
        above, below = (_Lattice(composed, order, step, side) for side in (True, False))
        low, high = max(low, below.delta(epsilon)), min(high, above.delta(epsilon))
        if high - low <= _CLOSE * high:
            break
    return low, high


class _Lattice:
    """The sum of the Laplace losses on a lattice, tilted; with the Gaussian ones, see (1)."""

    def __init__(self, composed: Composed, order: float, step: float, pessimistic: bool) -> None:
        self.mu, self.order, self.sign = composed.mu, order, 1 if pessimistic else -1
        place = _pessimistic if pessimistic else _optimistic
        laws = [(place(law, step), count) for law, count in composed.laplaces.items()]
        whole = 1 + sum(count * (len(masses) - 1) for masses, count in laws)
        size = _window(laws, whole)
        spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
        mean = self.log_moment = 0.0
        for masses, count in laws:
            points = np.arange(len(masses)) - len(masses) // 2
            with np.errstate(divide="ignore"):  # of points without mass
                logs = np.log(masses) + order * step * points
            log_moment = float(np.logaddexp.reduce(logs))
            tilted = np.exp(logs - log_moment)
            folded = np.zeros(size)
            folded[points] = tilted  # negative points wrap around, as the transform wants
            spectrum *= np.fft.rfft(folded) ** count
            mean += count * float(tilted @ points)
            self.log_moment += count * log_moment
        middle = 0 if size >= whole else round(mean)
        points = middle - size // 2 + np.arange(size)
        weights = np.fft.irfft(spectrum, size)[points % size]
        kept = weights > _NOISE
        self.losses = _floats(step * points[kept])
        # Far from epsilon, rounding errors of weights grow beyond any mass: none is above 1.
        untilt = np.minimum(self.log_moment - order * self.losses, 2 * _LARGEST)
        self.masses = np.minimum(weights[kept] * np.exp(untilt), 1.0)
        # Transforms err by less than 8 units times log2(size) in the 2-norm (Higham 2002, theorem
        # 24.2), one for each release and one back; root(size) turns that into the 1-norm. Placing
        # errs by the units of e^-loss over `step`, as it takes differences of a bucket's P and Q.
        largest = 1 + max(law.epsilon for law in composed.laplaces)
        releases = composed.laplaces.total()
        transforms = 8 * math.log2(size) * math.sqrt(size)
        rounding = (releases + 1) * _UNIT * (transforms + 8 * largest / step)
        self.lost = 2 * _OUTSIDE + size * _NOISE + rounding
        # What is within rounding of an edge may be counted on the wrong side of it.
        self.slack = releases * largest * _FUZZ * (step + 1e-5) + _FUZZ * composed.pure()

    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon, on the safe side of this lattice."""
        epsilon -= self.sign * self.slack
        deltas = gaussian_deltas(self.mu, _floats(epsilon - self.losses))
        total = float(self.masses @ deltas) * (1 + self.sign * 1e-9)  # theirs is below 1e-10
        bound = log_bound_of_gaussian(self.mu, self.order)
        exponent = self.log_moment + bound - self.order * epsilon
        return min(1.0, total + self.sign * self.lost * math.exp(min(exponent, _LARGEST)))


def _pessimistic(law: Laplace, step: float) -> Floats:
    """Return P of losses -m step, ..., m step that say more than this law's; shape (2m + 1,)."""
    m = math.ceil(law.epsilon / step) + 1
    points = _floats(step * np.arange(-m, m + 1))
    p, q = law.masses(points)
    # p = down + up and q = down / e^x + up / e^(x + step), for the lattice point x below
    up = np.clip((p - q * np.exp(points[:-1])) / -math.expm1(-step), 0, p)
    return _floats(np.append(p - up, 0.0) + np.append(0.0, up))


def _optimistic(law: Laplace, step: float) -> Floats:
    """Return P of losses -m step, ..., m step that say less than this law's; shape (2m + 1,)."""
    m = math.floor(law.epsilon / step + _FUZZ)
    # The two ends hold most of the mass: each stays alone, on its own side of an edge.
    ends = step * (np.array([-m, m]) - _FUZZ)
    edges = np.union1d(step * (np.arange(-m - 1, m + 1) + 0.5), ends)
    p, q = Laplace(m * step, law.steps).masses(_floats(edges))
    some = p > 0
    places = np.floor(np.log(p[some] / q[some]) / step + _FUZZ + 1e-14 / step) + m
    return _floats(np.bincount(np.clip(places, 0, 2 * m).astype(np.int64), p[some], 2 * m + 1))


def _window(laws: list[tuple[Floats, int]], whole: int) -> int:
    """Return a number of lattice points around the mean that holds all but `_OUTSIDE` of the sum.

    By Hoeffding's inequality, which knows of each law only its range, so tilting does not matter.
    whole: lattice points from the least sum to the largest; a window need not be longer
    """
    square = sum(count * (len(masses) // 2) ** 2 for masses, count in laws)
    reach = math.sqrt(2 * math.log(2 / _OUTSIDE) * square)
    return 1 << math.ceil(math.log2(min(whole, 2 * reach) + 2))


def _lattice_helps(composed: Composed) -> bool:
    sizes = [composed.mu, *(law.epsilon for law in composed.laplaces)]
    return len(sizes) > 1 and max(sizes) <= _LARGEST


def _steps(composed: Composed) -> list[float]:
    """Return the distances of the lattices to try, the coarsest whatever it costs."""
    heaviest = max(composed.laplaces, key=lambda law: composed.laplaces[law] * law.epsilon**2)
    spread = math.sqrt(sum(n * law.epsilon**2 for law, n in composed.laplaces.items()))
    steps: list[float] = []
    for parts in _PARTS:
        step = heaviest.epsilon / parts
        work = 15 * spread / step * (len(composed.laplaces) + 1)  # 15: as in `_window`
        if steps and work > _WORK:
            break
        steps.append(step)
    return steps


def _highest(delta_at: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """Return an epsilon in [low, high] with delta_at <= delta, near the least; else `high`."""
    if delta_at(low) <= delta or delta_at(high) >= delta:
        return low if delta_at(low) <= delta else high
    root = _root(delta_at, delta, low, high)
    push = 1e-10 * high
    while delta_at(root) > delta:
        root, push = root + push, 2 * push
    return min(root, high)


def _lowest(delta_at: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """Return an epsilon in [low, high] with delta_at >= delta, near the largest; else `low`.

    delta_at falls only around `high`: far below it the tilt is wrong and the error (2) is large.
    """
    gap = 1e-6 * high
    while delta_at(high - gap) < delta:
        gap *= 4
        if high - gap <= low:
            return low
    root = _root(delta_at, delta, high - gap, high)
    push = 1e-10 * high
    while delta_at(root) < delta:
        root, push = root - push, 2 * push
    return max(root, low)


def _root(delta_at: Callable[[float], float], delta: float, low: float, high: float) -> float:
    def excess(epsilon: float) -> float:
        return math.log(max(delta_at(epsilon), math.ulp(0.0)) / delta)

    if excess(low) * excess(high) >= 0:
        return low
    return float(brentq(excess, low, high, xtol=1e-10 * high, rtol=1e-12))


def _floats(values: NDArray[Any]) -> Floats:
    return np.asarray(values, dtype=np.float64)
