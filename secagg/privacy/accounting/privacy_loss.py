"""Joint cost of Gaussian releases of Poisson samples, by privacy-loss distributions.

In one release, each record takes part with probability q ("rate"), independently of all others and
in secret. The noise has standard deviation 1, and a record that takes part moves the sum by mu. Let
N(m) be the normal distribution with mean m and standard deviation 1. What someone learns about a
record is bounded by how well two distributions can be told apart (Zhu, Dong & Wang 2022):

    removing a record    P = (1 - q) N(0) + q N(mu)  against  Q = N(0);    adding: Q against P   (1)

For replacing a record no such pair is known. With delta_m the exact delta of N(m) against N(0), nu
the distance of the two records' parts, a' = 1 + q (a - 1) and a = e^epsilon >= 1,

    delta(log a') <= (q (1 - q) (a - 1) delta_mu(log a) + q (1 - q + q a) delta_nu(log a)) / a   (2)

in both directions. A record that is replaced by one of another site with noise of its own is one
removed there and one added here.

A privacy-loss distribution is the law of L = log P/Q under P. Its hockey-stick divergence is

    delta(epsilon) = E max(0, 1 - e^(epsilon - L)).                                              (3)

Losses of independent releases add up, so their laws are convolved, on a grid that never lowers (3).
For (2), the density of L under Q is the second derivative of the right side as a function of a'.
Where that is negative, 0 is taken, which raises the curve. docs/math/sampled-releases.md derives
this, with figures.

Guarantees: a returned delta is at least the true one. Masses are integrals of positive functions by
Gauss-Legendre quadrature, with relative errors far below `_QUADRATURE` for each release; masses
beyond `_TAIL` standard deviations count as infinite loss. A convolution of T equal laws is a power
of their Fourier transform. Losses beyond the grid have a probability below `_OUTSIDE` (Chernoff's
bound, from the law itself), and `Composed.error` bounds what the rounding of the transforms adds:
both are added to delta.

====================================  =================================================
case                                  delta
====================================  =================================================
rate 1                                that of the Gaussian (`secagg...gaussian_dp`)
rate 0 or mu 0                        0
mu infinite                           at most 1: the chance that the record took part
====================================  =================================================

Not protected: an adversary who knows which records took part. For that one, the rate is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtr

Floats = NDArray[np.float64]
Pattern = Literal["remove", "add", "replace"]

_TAIL = 12.0  # standard deviations; beyond it a normal variable has probability 1.8e-33
_OUTSIDE = 1e-15  # probability that a sum of losses is off the grid
_QUADRATURE = 1e-12
_PER_SD = 60.0  # grid points for a standard deviation of the loss of one release
_MAX_POINTS = 2**21
_COARSE = 2048
_EPSILON_STEP = 1e-9  # relative
_UNIT = float(np.finfo(np.float64).eps)
_LEGENDRE = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = (_LEGENDRE[0] + 1) / 2, _LEGENDRE[1] / 2  # on [0, 1]
_MAX_WIDTH = 0.5  # of a cell of the quadrature, in standard deviations
_MAX_LOSS = 700.0  # e^loss is a float
_MAX_MU = 30.0  # up to here, losses above `_MAX_LOSS` have a probability below 1e-16


@dataclass(frozen=True)
class Step:
    """Equal releases. rate: q; nu: of equation (2), for the pattern "replace"."""

    pattern: Pattern
    mu: float
    rate: float
    nu: float
    count: int


@dataclass(frozen=True, eq=False)
class Composed:
    """The law of a sum of losses: masses at `losses`, at infinity, and a bound on their error."""

    losses: Floats
    masses: Floats
    infinite: float
    error: float

    @cached_property
    def _above(self) -> tuple[Floats, Floats]:
        """The masses above each loss under P and under Q, from the end."""
        under_q = self.masses * np.exp(-self.losses)
        return np.cumsum(self.masses[::-1])[::-1], np.cumsum(under_q[::-1])[::-1]

    def delta(self, epsilon: float) -> float:
        """Return (3), rounded up; epsilon: at least 0."""
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        if first == len(self.losses):
            return min(1.0, self.infinite + self.error)
        p, q = self._above
        finite = max(float(p[first]) - math.exp(epsilon) * float(q[first]), 0.0)
        return min(1.0, finite * (1 + _QUADRATURE) + self.infinite + self.error)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at which `delta` is at most this; inf if there is none."""
        if self.delta(0.0) <= delta:
            return 0.0
        high = float(self.losses[-1]) if len(self.losses) else 0.0
        if self.delta(high) > delta:
            return math.inf
        low = 0.0
        while high - low > _EPSILON_STEP * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high


@lru_cache(maxsize=64)
def composed(steps: tuple[Step, ...], gaussian_mu: float) -> Composed:
    """Return the law of the total loss. gaussian_mu: joint mu of releases of all records."""
    if max(gaussian_mu, *(max(step.mu, step.nu) for step in steps)) > _MAX_MU:
        return Composed(np.zeros(0), np.zeros(0), 1.0, 0.0)  # no bound that a float holds
    laws = [(_law(step), step.count) for step in steps]
    if gaussian_mu > 0:
        whole = Step("remove", gaussian_mu, 1.0, 0.0, 1)
        laws.append((_law(whole), 1))
    spacing = min(law.sd for law, _ in laws) / _PER_SD
    total_sd = math.sqrt(sum(count * law.sd**2 for law, count in laws))
    spacing = max(spacing, 80 * total_sd / _MAX_POINTS)
    # A law of almost constant loss may have a long tail. A coarser grid only rounds up more.
    spacing = max(spacing, *(law.width / _MAX_POINTS for law, _ in laws))
    while True:
        grids = [(law.on_grid(spacing), count) for law, count in laws]
        low, high = _range(grids)
        points = next_fast_len(math.ceil((high - low) / spacing) + 1, real=True)
        if points <= _MAX_POINTS:
            return _convolved(grids, spacing, low, points)
        spacing *= 1.1 * points / _MAX_POINTS


@dataclass(frozen=True, eq=False)
class _Grid:
    """One law on the grid of multiples of a spacing: masses from the multiple `first`."""

    first: int
    masses: Floats
    infinite: float
    spacing: float

    @cached_property
    def _coarse(self) -> tuple[Floats, Floats, Floats]:
        """Return few masses that stand for all, with the smallest and largest loss of each."""
        every = max(1, len(self.masses) // _COARSE)
        starts = np.arange(0, len(self.masses), every)
        masses: Floats = np.add.reduceat(self.masses, starts)
        low = np.asarray((self.first + starts) * self.spacing, dtype=np.float64)
        return masses, low, low + (every - 1) * self.spacing

    def log_moment(self, t: float) -> float:
        """Return an upper bound on log E exp(t L), for finite L."""
        masses, low, high = self._coarse
        possible = masses > 0
        masses, exponents = masses[possible], t * (high if t > 0 else low)[possible]
        largest = float(np.max(exponents))
        return largest + math.log(float(masses @ np.exp(exponents - largest)))


def _range(grids: Sequence[tuple[_Grid, int]]) -> tuple[float, float]:
    """Return losses that the sum is outside of with a probability below `_OUTSIDE`."""
    low = sum(count * grid.first for grid, count in grids) * grids[0][0].spacing
    high = sum(
        count * (grid.first + len(grid.masses) - 1) for grid, count in grids
    ) * grids[0][0].spacing  # fmt: skip
    rest = math.log(2 / _OUTSIDE)
    for t in np.geomspace(0.05, 500, 40):
        up, down = (
            (sum(count * grid.log_moment(s * t) for grid, count in grids) + rest) / t
            for s in (1.0, -1.0)
        )
        high, low = min(high, up), max(low, -down)
    return low, high


def _convolved(
    grids: Sequence[tuple[_Grid, int]], spacing: float, low: float, points: int
) -> Composed:
    total = np.ones(points // 2 + 1, dtype=np.complex128)
    start, finite, count_all = 0, 1.0, 0
    for grid, count in grids:
        wrapped = np.zeros(points)
        np.add.at(wrapped, np.arange(len(grid.masses)) % points, grid.masses)
        total *= rfft(wrapped) ** count
        start += count * grid.first
        finite *= (1 - grid.infinite) ** count
        count_all += count
    masses = np.maximum(irfft(total, points), 0.0)
    first = math.floor(low / spacing)
    masses = np.roll(masses, (start - first) % points)
    losses = np.asarray((first + np.arange(points)) * spacing, dtype=np.float64)
    # A transform of n numbers errs by log2(n) units in root mean square, relative to their norm,
    # which is at most 1 (four times that here). A product of T factors errs by T times as much,
    # times the other factors: at most |total|^(1 - 1/T) if they are equal.
    units = 4 * _UNIT * math.log2(points)
    others = np.abs(total) ** (1 - 1 / count_all)
    error = units * count_all * 2 * float(np.sum(others))
    error += units * points * float(np.linalg.norm(masses))
    infinite = 1 - finite + float(masses[losses > _MAX_LOSS].sum())
    keep = (losses >= 0) & (losses <= _MAX_LOSS)
    outside = 2 * _OUTSIDE
    return Composed(losses[keep], masses[keep], infinite, error + outside)


@dataclass(frozen=True, eq=False)
class _Law:
    """The law of one release's loss.

    ends: function from losses to the coordinate x, in which the law has densities
    densities: functions of x, under P and under Q; x: lower and upper end of the coordinate
    """

    loss: Callable[[Floats], Floats]
    inverse: Callable[[Floats], Floats]
    p: Callable[[Floats], Floats]
    q: Callable[[Floats], Floats]
    ends: tuple[float, float]
    symmetric: bool
    tail: float

    @cached_property
    def sd(self) -> float:
        """The standard deviation of the loss under P, roughly."""
        x = np.linspace(*self.ends, 4001)
        weight = self.p(x)
        loss = self.loss(x)
        if self.symmetric:  # the other half has losses of the opposite sign
            return math.sqrt(float(np.trapezoid(weight * loss**2 * (1 + np.exp(-loss)), x)))
        mean = np.trapezoid(weight * loss, x) / np.trapezoid(weight, x)
        return math.sqrt(float(np.trapezoid(weight * (loss - mean) ** 2, x)))

    @cached_property
    def width(self) -> float:
        """The distance between the smallest and the largest loss."""
        return float(np.ptp(self.loss(np.array(self.ends))))

    def on_grid(self, spacing: float) -> _Grid:
        """Return the law with each mass split onto the two grid points around it."""
        bounds = np.sort(self.loss(np.array(self.ends)))
        first, last = math.floor(bounds[0] / spacing), math.ceil(bounds[1] / spacing)
        points = np.arange(first, max(last, first + 1) + 1) * spacing
        edges = np.clip(self.inverse(points), *self.ends)
        p, q = _integrals(self.p, edges), _integrals(self.q, edges)
        # a + b = p and a e^-lower + b e^-upper = q, for the masses a and b at both ends of a cell
        relative = p - q * np.exp(points[:-1])  # p (1 - E e^(lower - L))
        upper = np.clip(relative / -math.expm1(-spacing), 0.0, p)
        masses = np.zeros(len(points))
        masses[:-1] += p - upper
        masses[1:] += upper
        if not self.symmetric:
            return _Grid(first, masses, self.tail, spacing)
        return _mirrored(first, masses, self.tail, spacing)


def _mirrored(first: int, masses: Floats, tail: float, spacing: float) -> _Grid:
    """Return the law whose two directions are equal, given its masses at losses above 0.

    The mass at -loss is e^-loss times that at loss. What is missing to 1 has loss 0.
    """
    above = np.zeros(first + len(masses))
    above[first:] = masses
    above[0] = 0.0
    below = above * np.exp(-np.arange(len(above)) * spacing)
    both = np.concatenate([below[:0:-1], above])
    both[len(above) - 1] = max(1.0 - tail - both.sum(), 0.0)
    return _Grid(-(len(above) - 1), both, tail, spacing)


def _integrals(density: Callable[[Floats], Floats], edges: Floats) -> Floats:
    """Return the integral of a density between each two neighbouring edges."""
    low, width = np.minimum(edges[:-1], edges[1:]), np.abs(np.diff(edges))
    total = width * (density(low[:, None] + width[:, None] * _NODES) @ _WEIGHTS)
    for cell in np.flatnonzero(width > _MAX_WIDTH):  # few: those near the smallest loss
        parts = math.ceil(width[cell] / _MAX_WIDTH)
        part = width[cell] / parts
        x = low[cell] + part * (np.arange(parts)[:, None] + _NODES)
        total[cell] = part * float(np.sum(density(x) @ _WEIGHTS))
    return total


def _law(step: Step) -> _Law:
    mu, q, tail = step.mu, step.rate, float(ndtr(-_TAIL))

    def normal(x: Floats) -> Floats:
        return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    def mixture(x: Floats) -> Floats:
        return (1 - q) * normal(x) + q * normal(x - mu)

    def loss(x: Floats) -> Floats:
        ratio = np.clip(mu * x - mu * mu / 2, -_MAX_LOSS, _MAX_LOSS)
        if q == 1:  # where log1p would be infinite
            return np.asarray(ratio)
        return np.log1p(q * np.expm1(ratio))

    def inverse(losses: Floats) -> Floats:
        ratio = (np.expm1(losses) + q) / q
        with np.errstate(divide="ignore", invalid="ignore"):
            log = losses if q == 1 else np.log(ratio)
            x = (log + mu * mu / 2) / mu
        return np.where((ratio > 0) | (q == 1), x, -math.inf)

    if step.pattern == "replace":
        return _replacing(mu, step.nu, q, tail)
    ends = (-_TAIL, _TAIL + mu)
    if step.pattern == "remove":
        return _Law(loss, inverse, mixture, normal, ends, False, tail)
    return _Law(lambda x: -loss(x), lambda e: inverse(-e), normal, mixture, ends, False, tail)


def _replacing(mu: float, nu: float, q: float, tail: float) -> _Law:
    """Return the law of (2) above 0, in the coordinate x = log a."""

    def curve(distance: float, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Return delta of N(distance), and its derivatives by a."""
        a, b = x / distance - distance / 2, x / distance + distance / 2
        value = ndtr(-a) - np.exp(x) * ndtr(-b)
        second = np.exp(-b * b / 2 - x) / (math.sqrt(2 * math.pi) * distance)
        return value, -ndtr(-b), second

    def under_q(x: Floats) -> Floats:
        """Return the second derivative of (2) by a', times da'/dx = q e^x."""
        a = np.exp(x)
        near, near_slope, near_bend = curve(mu, x)
        far, far_slope, far_bend = curve(nu, x)
        bend = 2 * q * (1 - q) * ((far - near) / a - (far_slope - near_slope)) / a**2
        bend += q * (1 - q) * (1 - 1 / a) * near_bend + q * ((1 - q) / a + q) * far_bend
        return np.asarray(np.maximum(bend, 0.0) * a / q)

    def loss(x: Floats) -> Floats:
        return np.log1p(q * np.expm1(x))

    def inverse(losses: Floats) -> Floats:
        return np.log1p(np.expm1(np.maximum(losses, 0.0)) / q)

    widest = max(mu, nu)
    end = min(widest * (_TAIL + widest / 2), _MAX_LOSS)
    return _Law(
        loss, inverse, lambda x: under_q(x) * np.exp(loss(x)), under_q, (0.0, end), True, tail
    )
