"""Gaussian and Laplace releases together: delta and epsilon between certified bounds.

The privacy loss of several releases is the sum of theirs (Koskela, Jalko & Honkela 2020), and with
L the loss of the Laplace releases and delta_mu that of all the Gaussian ones, exact by
`secagg.privacy.gaussian`,

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

    lost * E_P[e^(order L)] * e^(B - order epsilon)     where delta_mu(x) <= e^(B - order x),     (2)

which is added to the one delta and taken from the other.
Lattices get finer until the bounds meet to 1e-4, or the work is too much.

Both P against Q and Q against P are covered: the losses of both kinds of noise are symmetric.

Not protected: nothing here is subsampled, and adaptively chosen *parameters* of later releases are
not allowed for (Rogers et al. 2016): they have to be fixed, or a budget for all set, beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from secagg.privacy.gaussian import Floats, gaussian_delta, gaussian_deltas, gaussian_epsilon
from secagg.privacy.laplace import Laplace

_UNIT = float(np.finfo(np.float64).eps)
_PARTS = (60, 240, 960, 3840)  # of the heaviest epsilon; multiples of 60 hold its simple fractions
_WORK = 1 << 22  # most lattice points to transform, over all laws
_CLOSE = 1e-4  # relative distance of the bounds that is good enough
_OUTSIDE = 1e-13  # tilted mass that the transform may fold over
_LARGEST = 300.0  # losses whose exponentials and their squares are numbers


@dataclass(frozen=True)
class Composed:
    """All releases together: mu of the Gaussian ones, and how often each Laplace one was made."""

    mu: float
    laplaces: Mapping[Laplace, int]

    def pure(self) -> float:
        """Return the sum of the Laplace releases' epsilons, never below it."""
        total = math.fsum(law.epsilon * count for law, count in self.laplaces.items())
        return math.nextafter(total, math.inf) if total else 0.0

    def log_bound(self, order: float) -> float:
        """Return B with delta(epsilon) <= exp(B - order epsilon); order > 0."""
        laplaces = sum(n * law.log_moment(order) for law, n in self.laplaces.items())
        return laplaces + log_bound_of_gaussian(self.mu, order)

    def orders(self) -> Floats:
        """Return orders of moments among which the best one for a tail is."""
        spread = math.sqrt(self.mu**2 + sum(n * x.epsilon**2 for x, n in self.laplaces.items()))
        return np.geomspace(1e-2, 40, 120) / spread


def log_bound_of_gaussian(mu: float, order: float) -> float:
    """Return B with delta_mu(x) <= exp(B - order x) for every x, negative too.

    For (1 - e^-y)_+ <= c e^(order y) with c at the y that makes it tight (Canonne, Kamath & Steinke
    2020, proposition 12), and the Gaussian loss has log E_P[e^(order G)] = order (order + 1) mu^2/2.
    """
    return order * (order + 1) * mu**2 / 2 - math.log1p(order) - order * math.log1p(1 / order)


def epsilon_bounds(composed: Composed, delta: float) -> tuple[float, float]:
    """Return (low, high) around the least epsilon at delta; delta in (0, 1), mu finite."""
    low = gaussian_epsilon(composed.mu, delta)  # leave out the Laplace releases
    high = low + composed.pure()  # basic composition
    if not _lattice_helps(composed):
        return low, high
    order = min(composed.orders(), key=lambda t: (composed.log_bound(t) - math.log(delta)) / t)
    for step in _steps(composed):
        above, below = (_Lattice(composed, float(order), step, side) for side in (True, False))
        high = _highest(above.delta, delta, low, high)
        low = _lowest(below.delta, delta, low, high)
        if high - low <= _CLOSE * high:
            break
    return low, high


def delta_bounds(composed: Composed, epsilon: float) -> tuple[float, float]:
    """Return (low, high) around delta at a finite epsilon from 0 on; mu finite."""
    low = gaussian_delta(composed.mu, epsilon)  # leave out the Laplace releases
    high = gaussian_delta(composed.mu, max(0.0, epsilon - composed.pure()))
    high = 1.0 if epsilon < composed.pure() else high  # basic composition
    if not _lattice_helps(composed):
        return low, high
    order = min(composed.orders(), key=lambda t: composed.log_bound(t) - t * epsilon)
    for step in _steps(composed):
        above, below = (_Lattice(composed, float(order), step, side) for side in (True, False))
        low, high = max(low, below.delta(epsilon)), min(high, above.delta(epsilon))
        if high - low <= _CLOSE * high:
            break
    return low, high


class _Lattice:
    """The sum of the Laplace losses on a lattice, tilted; with the Gaussian ones, see (1)."""

    def __init__(self, composed: Composed, order: float, step: float, pessimistic: bool) -> None:
        self.mu, self.order, self.pessimistic = composed.mu, order, pessimistic
        self.log_moment = 0.0
        laws = [(_place(law, step, pessimistic), n) for law, n in composed.laplaces.items()]
        whole = 1 + sum(count * (len(masses) - 1) for masses, count in laws)
        size = _window(laws, whole)
        spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
        mean = 0.0
        for masses, count in laws:
            points = np.arange(len(masses)) - len(masses) // 2
            with np.errstate(divide="ignore"):
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
        kept = weights > _UNIT
        self.losses = step * points[kept]
        self.masses = weights[kept] * np.exp(self.log_moment - order * self.losses)
        # Transforms err by less than 8 units times log2(size) in the 2-norm (Higham 2002, theorem
        # 24.2), one for each release and one back; root(size) turns that into the 1-norm. Placing
        # errs by a few units over `step`, as it takes differences of a bucket's P and Q.
        releases = sum(composed.laplaces.values())
        rounding = (releases + 1) * _UNIT * (8 * math.log2(size) * math.sqrt(size) + 4 / step)
        self.lost = 2 * _OUTSIDE + size * _UNIT + rounding
        self.slack = 1e-9 * step * releases

    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon, on the safe side of this lattice."""
        sign = 1 if self.pessimistic else -1
        if not self.pessimistic:  # ratios within 1e-9 steps of the lattice counted as on it
            epsilon += self.slack
        deltas = gaussian_deltas(self.mu, epsilon - self.losses)
        total = float(self.masses @ deltas) * (1 + sign * 1e-9)  # the error of `gaussian_deltas`
        bound = log_bound_of_gaussian(self.mu, self.order)
        exponent = self.log_moment + bound - self.order * epsilon
        return min(1.0, total + sign * self.lost * math.exp(min(exponent, _LARGEST)))


def _place(law: Laplace, step: float, pessimistic: bool) -> Floats:
    """Return P of the losses -m step, ..., m step that stand for this law's; shape (2m + 1,)."""
    if pessimistic:
        m = math.ceil(law.epsilon / step) + 1
        points = step * np.arange(-m, m + 1)
        p, q = law.masses(points)
        # p = down + up and q = down / e^x + up / e^(x + step), for the lattice point x below
        up = np.clip((p - q * np.exp(points[:-1])) / -math.expm1(-step), 0, p)
        return np.append(p - up, 0.0) + np.append(0.0, up)
    m = math.floor(law.epsilon / step + 1e-9)
    smaller = Laplace(m * step, law.steps)
    # The two ends hold most of the mass: each stays alone, on its own side of an edge.
    ends = step * (np.array([-m, m]) - 1e-9)
    p, q = smaller.masses(np.union1d(step * (np.arange(-m - 1, m + 1) + 0.5), ends))
    some = p > 0
    places = np.floor(np.log(p[some] / q[some]) / step + 1e-9).astype(np.int64) + m
    return np.bincount(places, p[some], 2 * m + 1)


def _window(laws: list[tuple[Floats, int]], whole: int) -> int:
    """Return a number of lattice points around the mean that holds all but `_OUTSIDE` of the sum.

    By Hoeffding's inequality, which knows of each law only its range, so tilting does not matter.
    whole: lattice points from the least sum to the largest; a window need not be longer
    """
    square = sum(count * (len(masses) // 2) ** 2 for masses, count in laws)
    reach = math.sqrt(2 * math.log(2 / _OUTSIDE) * square)
    return 1 << math.ceil(math.log2(min(whole, 2 * reach) + 2))


def _lattice_helps(composed: Composed) -> bool:
    return composed.pure() > 0 and all(law.epsilon <= _LARGEST for law in composed.laplaces)


def _steps(composed: Composed) -> list[float]:
    """Return the distances of the lattices to try, the coarsest whatever it costs."""
    heaviest = max(composed.laplaces, key=lambda law: composed.laplaces[law] * law.epsilon**2)
    spread = math.sqrt(sum(n * law.epsilon**2 for law, n in composed.laplaces.items()))
    steps = []
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
