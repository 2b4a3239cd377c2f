"""The coordinator's side: what to ask next, the estimate, and its covariance.

Columns are standardised by public guesses: x = (1, (u_j - m_j) / s_j), and the outcome likewise.
All estimates here are of these columns; an error of a coefficient is then comparable with others.

Clips. A record's t is shortened to 1, so the matrix T decides how far a record may reach before it
is weighted: T = W / R. Let k_R^2 = R^2 / E |W x|^2, and for residuals of standard deviation s, h =
k_r s. If nothing is clipped, the noise of a coefficient is u k_R k_r times its sampling error,

    u = root(p / n) sd_g,                                                                     (1)

with p coefficients, n records and sd_g the noise of a number of g. Short clips save noise and cost
bias, so they are as long as keeps the noise at `_NOISE` times the sampling error. This reads no
record but through n.

Transform. With S = E x x', the noise of g gives the coefficients the covariance S^-1 W^-1 W'^-1
S^-1 / R^2, and R^2 is proportional to E |W x|^2 = tr W S W'. The least mean square error of the
coefficients is at W = S^(-3/4): with Q = W'W, the derivative by Q is zero at S^-2 = Q S Q
(docs/math/one-step.md). Whitening, W = S^(-1/2), has more noise.

Step. J a = h g, and b = b0 + T' a, one step of Newton's method for the weighted estimating
equation sum w t clip(r, -h, h) = 0 (Mallows weights: Hampel et al. 1986, section 6.3; one-step
estimates: Bickel 1975). With noise e in g and E in J, J a = h g + h e - E a, so

    N = h^2 sd_g^2 I + sd_J^2 (tr(C) I + C),   C = E a a',                                    (2)

is the covariance of the noise, as Var((E a)_j) = sd_J^2 (|a|^2 + a_j^2). Sampling has the sandwich
J^-1 h^2 B J^-1, which holds if errors have unequal variances (Huber 1967). B is noisy, too: it is
drawn towards s^2 J / h^2, which is at least as large if variances are equal (as w^2 <= w), as far
as the noise explains the difference between them.

Combining. The earlier estimate b0 has noise of its own, N0, independent of that of the step. The
weight G = N (N0 + d^2 I + N)^-1 of b0 is the best for noise alone; d allows for its bias. What is
left is N - G N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from secagg.core.arrays import Array
from secagg.models.glm.newton import units_matrix
from secagg.models.one_step.releases import square

_CONSTANT = 0.5
"""c, in the place of 1 in the first two sums."""
_CONSTANT_OF_SITE = 1.5
"""That in a site's own first sum. The error of a mean m is that of its sum, and m / c times that of
the constant's: sites may lie far from the guesses."""

_CENTRE_REACH = 1.2
_FARTHEST = 30.0
_FAR_LESS = 0.25
"""Standard deviation relative to a guess, below which a caution names the column."""
_NOISE = 0.85
_LONGEST_REACH = 2.0
_LEAST_BIAS, _BIAS = 0.03, 0.8
"""In simulations with three columns, least squares from moments whose records reach 1 was off by a
quarter. The more columns, the less do the records' lengths differ."""
_LEAST_PRODUCT, _LARGEST_PRODUCT = 2.0, 18.0
_LEAST_EIGENVALUE = 0.08
_LONGEST_STEP, _LONGEST_START = 2.0, 3.0  # of the linear predictor, root mean square
_LEAST_RECORDS = 10.0
_LEAST_SHARE, _ERROR_OF_SHARE = 0.02, 0.2
_FLAT = 10.0  # standard deviation of the intercept a priori


def standardising(centre: Array, spread: Array, constant: float = 1.0) -> Array:
    """Return T with T (1, f) = (constant, (f_j - centre_j) / spread_j)."""
    T = np.asarray(units_matrix(centre, spread).T)
    T[0, 0] = constant
    return T


@dataclass(frozen=True)
class Centres:
    """The first sum: for guesses of means and standard deviations.

    of_site: whether a site keeps what it finds
    """

    centre: Array
    spread: Array
    of_site: bool

    @property
    def _constant(self) -> float:
        return _CONSTANT_OF_SITE if self.of_site else _CONSTANT

    @property
    def _reach(self) -> float:
        return _CENTRE_REACH * math.sqrt(len(self.centre) + self._constant**2)

    @property
    def matrix(self) -> Array:
        return standardising(self.centre, self.spread, self._constant) / self._reach

    def found(self, total: Array, sd: float) -> tuple[Array, float]:
        """Return means, and about how many records there are; sd: of the noise of a number."""
        records = max(float(total[0]) * self._reach / self._constant, _LEAST_RECORDS)
        if total[0] < 3 * sd:  # the noise hides them
            return self.centre.copy(), records
        moved = self._constant * total[1:] / total[0]
        return self.centre + self.spread * np.clip(moved, -_FARTHEST, _FARTHEST), records


@dataclass(frozen=True)
class Clips:
    """k_R and k_r."""

    record: float
    residual: float

    @property
    def moments(self) -> float:
        """How far a record may reach in the sum of moments, relative to the guesses."""
        return min(max(0.8 * self.record, 1.0), _LONGEST_REACH)

    @classmethod
    def of(cls, size: int, records: float, sd_g: float) -> Clips:
        """Return the clips of (1); size: p."""
        unit = math.sqrt(size / records) * sd_g
        product = min(max(_NOISE / max(unit, 1e-9), _LEAST_PRODUCT), _LARGEST_PRODUCT)
        record = math.sqrt(product / 2)
        return cls(record, 2 * record)


def binary_clip(size: int, records: float, sd_g: float, variance: float) -> float:
    """Return k_R for an outcome of this variance, whose residuals are not clipped."""
    unit = math.sqrt(size / (records * variance)) * sd_g
    return min(max(_NOISE / max(unit, 1e-9), 1.0), 3.0)


@dataclass(frozen=True)
class Estimate:
    """Coefficients of standardised columns, and covariances.

    b: shape (p,); sampling, noise: the two parts of its covariance
    """

    b: Array
    sampling: Array
    noise: Array


@dataclass(frozen=True)
class First:
    """Least squares from the noisy moments.

    estimate: without a sampling part; S: E x x'; residual: standard deviation
    bias: d: records are shortened by all their columns, the outcome included
    moments: of x and the outcome; hidden: what the noise may add to one, two standard deviations
    """

    estimate: Estimate
    S: Array
    residual: float
    bias: float
    moments: Array
    hidden: float

    def residual_at(self, b: Array) -> float:
        """Return the standard deviation of residuals at other coefficients, at least the least."""
        v = np.array([*-b, 1.0])
        return max(math.sqrt(max(float(v @ self.moments @ v), 0.0)), self.residual)

    def narrow(self) -> list[int]:
        """Return the predictors that vary far less than was guessed, by their place."""
        variances = np.diagonal(self.S)[1:] - self.S[0, 1:] ** 2
        return np.flatnonzero(variances + self.hidden < _FAR_LESS**2).tolist()


def moments_map(centre: Array, spread: Array, reach: float) -> Array:
    """Return T of the sum of moments; reach: `Clips.moments`."""
    return standardising(centre, spread, _CONSTANT) / (
        reach * math.sqrt(len(centre) + _CONSTANT**2)
    )


def least_squares(total: Array, sd: float, size: int, reach: float) -> First:
    """total: the sum; sd: of its noise off the diagonal; size: of its matrix, with the outcome."""
    unit = 1 / (reach * math.sqrt(size - 1 + _CONSTANT**2))
    M = _at_least(square(total, size), 2 * sd * math.sqrt(size))
    scale = np.array([1 / _CONSTANT, *np.ones(size - 1)]) / unit
    moments = M * np.outer(scale, scale)
    records = moments[0, 0]
    A, c, yy = moments[:-1, :-1] / records, moments[:-1, -1] / records, moments[-1, -1] / records
    b = np.linalg.solve(A, c)
    residual = math.sqrt(max(yy - c @ b, 1e-4 * yy))
    seen = b / scale[:-1] / unit  # coefficients of T f
    noise = sd**2 * ((1 + seen @ seen) * np.eye(size - 1) + np.outer(seen, seen))
    inverse = np.linalg.inv(M[:-1, :-1])
    back = np.diag(scale[:-1] * unit)
    N = back @ inverse @ noise @ inverse @ back
    size_of_slopes = math.sqrt(float(np.mean(b[1:] ** 2)))
    bias = _LEAST_BIAS + _BIAS * (_LONGEST_REACH - reach) / (size - 1) * size_of_slopes
    hidden = 2 * math.sqrt(2) * sd / unit**2 / records
    first = Estimate(b, np.zeros_like(N), N)
    return First(first, A, residual, bias, moments / records, hidden)


def transform(S: Array, record: float) -> Array:
    """Return W / R for x with E x x' = S."""
    values, basis = np.linalg.eigh(S)
    W = (basis * np.maximum(values, _LEAST_EIGENVALUE) ** -0.75) @ basis.T
    return np.asarray(W / (record * math.sqrt(np.trace(W @ S @ W))))


@dataclass(frozen=True)
class Scores:
    """The noisy sums of scores.

    sums: g, J and B; sds: standard deviations of their noise, off the diagonals
    T: W / R; h: the limit of residuals, 1 for a 0/1 outcome
    variance: of the residuals, if they have equal variances; 1 if J has the weights p (1 - p)
    """

    sums: dict[str, Array]
    sds: tuple[float, float, float]
    T: Array
    h: float
    variance: float


def step(scores: Scores, before: Estimate, bias: float, S: Array) -> tuple[Estimate, Estimate]:
    """Return b0 + T' a, and this combined with b0. before: b0; bias: d; S: E x x'."""
    T, h, size = scores.T, scores.h, len(scores.T)
    sd_g, sd_J, sd_B = scores.sds
    J = _at_least(square(scores.sums["J"], size), 2 * sd_J * math.sqrt(size))
    out = np.linalg.solve(J, T).T
    away = before.noise + bias**2 * np.eye(size)
    root = np.linalg.inv(T.T)
    C = root @ away @ root.T
    N = (h * sd_g) ** 2 * np.eye(size) + sd_J**2 * (np.trace(C) * np.eye(size) + C)
    moved = out @ (h * scores.sums["g"])
    length = math.sqrt(max(float(moved @ S @ moved), 0.0))
    moved *= min(1.0, _LONGEST_STEP / length) if length else 1.0
    meat = h**2 * _meat(square(scores.sums["B"], size), scores.variance / h**2 * J, sd_B)
    made = Estimate(before.b + moved, out @ meat @ out.T, out @ N @ out.T)
    G = made.noise @ np.linalg.inv(away + made.noise)
    return made, Estimate(made.b - G @ moved, made.sampling, made.noise - G @ made.noise)


def _meat(B: Array, usual: Array, sd: float) -> Array:
    """Return B, drawn towards the usual one as far as noise explains the difference."""
    size = len(B)
    apart = float(((B - usual) ** 2).sum())
    noise = sd**2 * size * (size + 1)
    surely = noise * (1 + 4 / math.sqrt(size * (size + 1)))  # and two standard deviations of it
    trust = max(apart - surely, 0.0) / apart if apart else 0.0
    least = 0.25 * float(np.linalg.eigvalsh(usual)[0])
    return _at_least(usual + trust * (B - usual), least)


def _at_least(matrix: Array, least: float) -> Array:
    """Return the nearest matrix whose eigenvalues are at least `least`."""
    values, basis = np.linalg.eigh(matrix)
    return np.asarray((basis * np.maximum(values, least)) @ basis.T)


def log_odds(first: First, share: float, unit: float, *, centred: bool) -> Estimate:
    """Return a start for log odds, from least squares of a 0/1 outcome.

    The slopes are those of a linear discriminant: least squares over the residual variance.

    share: of ones; unit: of the standardised outcome
    centred: whether each site has a log odds of its own, beside the intercept
    """
    share = min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE)
    scale = unit / max((unit * first.residual) ** 2, _LEAST_SHARE)
    slopes = scale * first.estimate.b[1:]
    length = math.sqrt(max(float(slopes @ first.S[1:, 1:] @ slopes), 0.0))
    slopes *= min(1.0, _LONGEST_START / length) if length else 1.0
    intercept = 0.0 if centred else math.log(share / (1 - share))
    intercept -= float(slopes @ first.S[0, 1:])
    noise = scale**2 * first.estimate.noise
    noise[0], noise[:, 0] = 0.0, 0.0  # the intercept is that of the share
    noise[0, 0] = _ERROR_OF_SHARE**2
    return Estimate(np.array([intercept, *slopes]), np.zeros_like(noise), noise)


def shrunk(estimate: Estimate, prior: float, bias: float) -> Estimate:
    """Return the mean and covariance given normal slopes of this standard deviation a priori.

    Where noise is larger than any plausible slope, a step from there would go far astray.
    """
    likely = estimate.noise + bias**2 * np.eye(len(estimate.b))
    P = np.diag([_FLAT**2, *np.full(len(likely) - 1, prior**2)])
    K = P @ np.linalg.inv(P + likely)
    return Estimate(K @ estimate.b, estimate.sampling, P - K @ P)
