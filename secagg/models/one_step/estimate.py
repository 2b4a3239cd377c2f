"""The coordinator's side: what to ask next, the estimate, and its covariance.

Columns are standardised by public guesses: x = (1, (u_j - m_j) / s_j), and the outcome likewise.
All estimates here are of these columns; an error of a coefficient is then comparable with others.

Transform. With S = E x x', the noise of g gives the coefficients the covariance S^-1 W^-1 W'^-1
S^-1 / R^2, and R^2 is proportional to E |W x|^2 = tr W S W'. The least mean square error of the
coefficients is at W = S^(-3/4): with Q = W'W, the derivative by Q is zero at S^-2 = Q S Q
(docs/math/one-step.md). Whitening, W = S^(-1/2), has more noise.

First estimate. Noise may hide directions in which the columns hardly vary, so eigenvalues of the
noisy moments M are raised to the spectral norm of noise, M + D. Then b0 = (M + D)^-1 c has the mean
H b with H = (M + D)^-1 M, and its posterior mean under a normal prior of b is used.

Step. J a = h g, and b = b0 + T' a, one step of Newton's method for the weighted estimating equation
sum v clip(r, -h / |v|, h / |v|) = 0 (Hampel et al. 1986, section 6.3; one-step estimates: Bickel
1975). With noise e in g and E in J, J a = h g + h e - E a, so

    N = h^2 sd_g^2 I + sd_J^2 (tr(C) I + C),   C = E a a',                                    (1)

is the covariance of the noise, as Var((E a)_j) = sd_J^2 (|a|^2 + a_j^2). J is about n T S T' (with
Fisher weights in S, `secagg.models.one_step.starts`), and S is often less noisy than J: J is drawn
towards a multiple of T S T' as far as the noise explains the difference. The noise of S has a part
like that of J in (1); as S is of shortened records, the step is taken to leave `_MISFIT` of the
error of b0.

Sampling has the sandwich J^-1 h^2 B J^-1, which holds if errors have unequal variances (Huber
1967). B is noisy, too: it is drawn towards a multiple of J in the same way.

Combining. The earlier estimate b0 has noise of its own, N0, independent of that of the step. The
weight G = N (N0 + d^2 I + N)^-1 of b0 is the best for noise alone; d allows for its bias. What is
left is N - G N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from secagg.core.arrays import Array, square
from secagg.models.glm.newton import units_matrix

_CONSTANT = 0.5
"""c, in the place of 1 in the first two sums."""
_CONSTANT_OF_SITE = 1.5
"""That in a site's own first sum. The error of a mean m is that of its sum, and m / c times that of
the constant's: sites may lie far from the guesses."""

_CENTRE_REACH = 1.2
_FARTHEST = 30.0
_FAR_LESS = 0.4
"""Standard deviation relative to a guess, below which a caution names the column."""
_LONGEST_REACH = 2.0
_LEAST_BIAS, _BIAS = 0.03, 0.8
"""In simulations with three columns, least squares from moments whose records reach 1 was off by a
quarter. The more columns, the less do the records' lengths differ."""
_MISFIT, _MISFIT_OF_ONE = 0.07, 0.2
"""In simulations and on real records, S of shortened records was off by up to a tenth, but with one
predictor by a fifth: the fewer columns, the more do the records' lengths differ."""
_LEAST_EIGENVALUE = 0.08
_LONGEST_STEP = 2.0  # of the linear predictor, root mean square
_LEAST_RECORDS = 10.0
_FLAT = 10.0


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

    def error(self, total: Array, sd: float, found: Array, j: int) -> float:
        """Return the standard deviation of the noise of mean j that `found` returned."""
        away = float((found[j] - self.centre[j]) / self.spread[j])
        return float(self.spread[j]) * math.sqrt(self.errors(total, sd, np.array([away]))[0, 0])

    def errors(self, total: Array, sd: float, away: Array) -> Array:
        """Return the covariance of the noise of means so far from their guesses; both are in
        guessed standard deviations.
        """
        unit = sd / max(float(total[0]), sd, 1e-9)
        own = self._constant**2 * np.eye(len(away))
        return np.asarray(unit**2 * (own + np.outer(away, away)))


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

    estimate: without a sampling part; H: its mean is H b
    S: E x x'; S_sd: of the noise of a number of it; residual: standard deviation
    bias: d: records are shortened by all their columns, the outcome included
    moments: of x and the outcome
    """

    estimate: Estimate
    H: Array
    S: Array
    S_sd: float
    residual: float
    bias: float
    moments: Array

    def residual_at(self, b: Array) -> float:
        """Return the standard deviation of residuals at other coefficients, at least the least."""
        v = np.array([*-b, 1.0])
        return max(math.sqrt(max(float(v @ self.moments @ v), 0.0)), self.residual)

    def narrow(self, said: Array) -> list[int]:
        """Return the predictors that vary far less than the job says, by their place.

        said: standard deviations by the job; 0 for a column of which it says nothing
        """
        variances = np.diagonal(self.S)[1:] - self.S[0, 1:] ** 2
        least = (_FAR_LESS * said) ** 2
        return np.flatnonzero(variances + math.sqrt(2) * self.S_sd < least).tolist()


def moments_map(centre: Array, spread: Array, reach: float) -> Array:
    """Return T of the sum of moments; reach: `Limits.moments`."""
    return standardising(centre, spread, _CONSTANT) / (
        reach * math.sqrt(len(centre) + _CONSTANT**2)
    )


def least_squares(total: Array, sd: float, size: int, reach: float) -> First:
    """total: the sum; sd: of its noise off the diagonal; size: of its matrix, with the outcome."""
    unit = 1 / (reach * math.sqrt(size - 1 + _CONSTANT**2))
    noisy = square(total, size)
    M = _at_least(noisy, 2 * sd * math.sqrt(size))
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
    H = back @ inverse @ noisy[:-1, :-1] @ np.linalg.inv(back)
    size_of_slopes = math.sqrt(float(np.mean(b[1:] ** 2)))
    bias = _LEAST_BIAS + _BIAS * (_LONGEST_REACH - reach) / (size - 1) * size_of_slopes
    S_sd = sd / unit**2 / records
    first = Estimate(b, np.zeros_like(N), N)
    return First(first, H, A, S_sd, residual, bias, moments / records)


def transform(S: Array, record: float) -> Array:
    """Return W / R for x with E x x' = S."""
    values, basis = np.linalg.eigh(S)
    W = (basis * np.maximum(values, _LEAST_EIGENVALUE) ** -0.75) @ basis.T
    return np.asarray(W / (record * math.sqrt(np.trace(W @ S @ W))))


@dataclass(frozen=True)
class Scores:
    """The noisy sums of scores.

    sums: g, J and B; sds: standard deviations of their noise, off the diagonals
    T: W / R; h: the limit of residuals at |t| = 1
    variance: of the residuals, if they have equal variances
    usual: what J is drawn to: n T S T', or with Fisher weights in S
    sd_usual: n times the noise of a number of S
    """

    sums: dict[str, Array]
    sds: tuple[float, float, float]
    T: Array
    h: float
    variance: float
    usual: Array
    sd_usual: float


def step(scores: Scores, before: Estimate, bias: float, S: Array) -> Estimate:
    """Return b0 + T' a. before: b0; bias: d; S: E x x'."""
    T, h, size = scores.T, scores.h, len(scores.T)
    sd_g, sd_J, sd_B = scores.sds
    J, trust, multiple = _drawn(square(scores.sums["J"], size), scores.usual, sd_J)
    out = np.linalg.solve(J, T).T
    away = before.noise + bias**2 * np.eye(size)
    root = np.linalg.inv(T.T)
    C = root @ away @ root.T
    N = (h * sd_g) ** 2 * np.eye(size) + (trust * sd_J) ** 2 * _spread(C)
    N += ((1 - trust) * multiple * scores.sd_usual) ** 2 * T @ _spread(away) @ T.T
    misfit = max(_MISFIT, _MISFIT_OF_ONE / (size - 1))
    noise = out @ N @ out.T + (misfit * (1 - trust)) ** 2 * away
    moved = out @ (h * scores.sums["g"])
    length = math.sqrt(max(float(moved @ S @ moved), 0.0))
    moved *= min(1.0, _LONGEST_STEP / length) if length else 1.0
    B, _, _ = _drawn(square(scores.sums["B"], size), scores.variance / h**2 * J, sd_B)
    return Estimate(before.b + moved, h**2 * out @ B @ out.T, noise)


def combined(before: Estimate, made: Estimate, bias: float) -> Estimate:
    """Return the best weighted mean of b0 and the estimate after a step. bias: d."""
    away = before.noise + bias**2 * np.eye(len(before.b))
    G = made.noise @ np.linalg.inv(away + made.noise)
    b = made.b - G @ (made.b - before.b)
    return Estimate(b, made.sampling, made.noise - G @ made.noise)


def without_doubt(found: Estimate, S: Array, V: Array, sites: int) -> Estimate:
    """Return the estimate without what errors of sites' own means do to it: (1) of
    `secagg.models.one_step.site`.

    S: E x x', errors included; V: of errors at so many sites, which are taken to be equally large.
    At most half of what a direction varies is taken for errors.
    """
    own, seen = V[:-1, :-1], S[1:, 1:] - np.outer(S[0, 1:], S[0, 1:])
    seen = _at_least(seen, _LEAST_EIGENVALUE)
    inverse = np.linalg.inv(_at_least(seen - own, 0.5 * float(np.linalg.eigvalsh(seen)[0])))
    A = np.eye(len(S))
    A[1:, 1:] = inverse @ seen
    b = A @ found.b
    b[1:] -= inverse @ V[:-1, -1]
    uncertain = np.zeros_like(S)
    uncertain[1:, 1:] = inverse @ own @ inverse * float(b[1:] @ own @ b[1:]) / sites
    noise = A @ found.noise @ A.T + uncertain
    return Estimate(b, A @ found.sampling @ A.T, noise)


def _spread(C: Array) -> Array:
    """Return the covariance of E a, with C = E a a' and noise of variance 1 in E."""
    return np.asarray(np.trace(C) * np.eye(len(C)) + C)


def _drawn(seen: Array, usual: Array, sd: float) -> tuple[Array, float, float]:
    """Return what is seen, drawn towards a multiple of the usual as far as noise explains the
    difference, the weight of what is seen, and the multiple: as near to 1 as the noise allows.

    sd: of the noise off the diagonal
    """
    size = len(seen)
    total, hidden = float(np.trace(seen)), 2 * sd * math.sqrt(2 * size)
    likely = float(np.trace(usual))
    multiple = min(max(likely, total - hidden), max(total + hidden, 0.1 * likely)) / likely
    usual = multiple * usual
    apart = float(((seen - usual) ** 2).sum())
    noise = sd**2 * size * (size + 1)
    surely = noise * (1 + 4 / math.sqrt(size * (size + 1)))  # and two standard deviations of it
    trust = max(apart - surely, 0.0) / apart if apart else 0.0
    least = 0.25 * float(np.linalg.eigvalsh(usual)[0])
    return _at_least(usual + trust * (seen - usual), least), trust, multiple


def _at_least(matrix: Array, least: float) -> Array:
    """Return the nearest matrix whose eigenvalues are at least `least`."""
    values, basis = np.linalg.eigh(matrix)
    return np.asarray((basis * np.maximum(values, least)) @ basis.T)


def shrunk(estimate: Estimate, prior: Array, bias: float, H: Array) -> Estimate:
    """Return the posterior mean and covariance of b, if the estimate has the mean H b.

    Where noise is larger than any plausible slope, a step from the estimate would go far astray.

    prior: standard deviations of the coefficients, whose mean is 0
    """
    likely, P = estimate.noise + bias**2 * np.eye(len(estimate.b)), np.diag(prior**2)
    K = P @ H.T @ np.linalg.inv(H @ P @ H.T + likely)
    return Estimate(K @ estimate.b, estimate.sampling, P - K @ H @ P)
