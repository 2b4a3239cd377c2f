"""Logistic regression by Newton's method: sums over records, and functions of the sums.

Follows McCullagh & Nelder, *Generalized Linear Models* (1989), section 4.4, and Boyd &
Vandenberghe, *Convex Optimization* (2004), sections 9.2 and 9.5. Records i have a row x_i (with a
leading 1) and an outcome y_i in {0, 1}; eta_i = x_i'beta, mu_i = 1 / (1 + exp(-eta_i)):

    l(beta) = sum_i y_i eta_i - log(1 + exp(eta_i))      (1)
    g(beta) = sum_i (y_i - mu_i) x_i                     (2)
    H(beta) = sum_i mu_i (1 - mu_i) x_i x_i'             (3)  (the negative Hessian of l)
    d = H^-1 g,    decrement = root of g'd               (4)

(1) to (3) are sums over records, so adding the sites' sums gives the pooled sums. Columns are
scaled to [-1, 1] by their declared bounds, u = (x - mid) / half. So bounds of the sums are known
before any data is read. This file sends no messages. The method that releases such sums describes
what an observer can infer from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, eigh, solve_triangular
from scipy.special import expit

from secagg.errors import DataError, UsageError
from secagg.models.common.coefficient_table import INTERCEPT, PerSD, Term, per_sd, tested_terms
from secagg.models.common.pooled_moments import CONSTANT_COLUMN_ADVICE, constant_column
from secagg.models.numerics.cholesky import TOLERANCE, factor
from secagg.models.numerics.precision import ROUNDING

Vector = NDArray[np.float64]

LOG_LIKELIHOOD_FLOOR = -64.0  # for one record: a probability of 1.6e-28
SUFFICIENT_INCREASE = 1e-4  # Armijo's constant; values in (0, 1/2) converge (Boyd, section 9.2)
DECREMENT_TOLERANCE = 5e-5  # in standard errors; below root(TOLERANCE) / 2, see `diverging`
MAX_LINEAR_PREDICTOR = 100.0
"""Limit of sum |beta_j|, and so of every |x'beta|, that sites answer in a logistic regression. Fits
of scaled columns are far below it (four hospitals: 13). At larger ones all records but a few
have a weight of 0 or 1, so a coordinator could step over the records one by one."""
_MAX_BETA_NORM = 1e300  # limit of sum |beta_j|: keeps every x'beta finite


def logistic_sums(X: Vector, y: Vector, beta: Vector) -> tuple[float, Vector, Vector]:
    """Return one site's terms of (1), (2) and (3) at beta.

    X: shape (n, p), first column 1, every |x_ij| <= 1; y: shape (n,), 0 or 1; beta: shape (p,)
    Returns (log-likelihood, gradient (p,), Hessian (p, p), exactly symmetric). n may be 0.

    A record's log-likelihood below -64 is replaced by -64. The log-likelihood is used only to
    decide whether a step is halved. In a reasonable fit, no observed outcome has a probability as
    small as exp(-64), so this limit has no effect.

    In float arithmetic, not only in real numbers,

        -64 n <= log-likelihood <= 0,    |gradient_j| <= n,    |Hessian_jk| <= n / 4.

    Proof. Rounding is monotone, so a sum or product whose exact value is at most a representable b
    is still at most b when rounded. Each record's term is bounded: the floored log-likelihood by
    64; |y - mu| by 1, as expit returns values in [0, 1], and times |x_ij| <= 1 by 1; the weight
    mu (1 - mu) is clipped to 1/4, so root(weight) x_ij is at most 1/2, and a product of two of
    these at most 1/4. Any partial sum of m terms bounded by b, in any order and with or without
    fused multiply-adds, is a rounded sum of two partial sums of m_1 and m_2 terms, so by induction
    at most m_1 b + m_2 b = m b; and m, m / 4, 64 m are representable for every m < 2^53.

    Raises DataError if X or y is outside these ranges, UsageError if beta is not finite.
    """
    if not np.all(np.abs(X) <= 1):
        raise DataError("logistic regression", "a scaled predictor lies outside [-1, 1]")
    if not np.all(X[:, 0] == 1):
        raise DataError("logistic regression", "the first column is not 1 throughout")
    if not np.all((y == 0) | (y == 1)):
        raise DataError("logistic regression", "the outcome has values other than 0 and 1")
    if not np.sum(np.abs(beta)) <= _MAX_BETA_NORM:
        raise UsageError("logistic regression", "the coefficients are not finite")
    eta = X @ beta
    per_record = -np.logaddexp(0.0, np.where(y == 1, -eta, eta))
    log_likelihood = float(np.sum(np.maximum(per_record, LOG_LIKELIHOOD_FLOOR)))
    gradient = X.T @ (y - expit(eta))
    # expit(-eta), not 1 - expit(eta), which loses all digits for large eta. The clip makes the
    # bound independent of the rounding of the platform's exp.
    weight = np.minimum(expit(eta) * expit(-eta), 0.25)
    half = np.sqrt(weight)[:, None] * X
    return log_likelihood, gradient, half.T @ half


def record_weights(X: Vector, y: Vector, beta: Vector) -> tuple[Vector, Vector]:
    """Return the records' weights in the Hessian and in the gradient: mu (1 - mu) and |y - mu|.

    Arguments as for `logistic_sums`. If predictors separate the outcomes, both kinds concentrate on
    the few records nearest to the border while |beta| grows. The sums then show these records.
    """
    eta = X @ beta
    return expit(eta) * expit(-eta), expit(np.where(y == 1, -eta, eta))


def newton_direction(
    gradient: Vector, hessian: Vector, names: Sequence[str], tolerance: float = TOLERANCE
) -> Vector:
    """Return d = H^-1 g of (4), shape (p,), by Cholesky with unit diagonal.

    names: the p columns, the intercept first
    tolerance: see `secagg.models.numerics.cholesky.factor`. The default suits beta = 0, where
        H = X'X / 4: it refuses collinear columns. Later, a loss of rank means separation, which
        `diverging` detects from the direction; then pass ROUNDING, which only requires one correct
        digit of the direction. If the entries have an absolute error e (fixed point), neither may
        be below about p e / (smallest diagonal entry).
    Raises UsageError that names the column most collinear with those before it.
    """
    lower, root = _unit_factor(hessian, names, tolerance)
    return np.asarray(cho_solve((lower, True), gradient / root)) / root


def newton_decrement(gradient: Vector, direction: Vector) -> float:
    """Return the root of g'd, at least 0: the length of d in the metric of H.

    Half its square estimates the remaining gain in log-likelihood. By Cauchy and Schwarz |d_j| <=
    decrement x (standard error of beta_j): it bounds every coefficient's step in standard errors,
    whatever the columns' units.
    """
    return math.sqrt(max(float(gradient @ direction), 0.0))


def converged(decrement: float, tolerance: float = DECREMENT_TOLERANCE) -> bool:
    """Return whether the next full step is the last: it moves no coefficient beyond the tolerance.

    tolerance: in standard errors. Newton's method converges quadratically, so after that step the
        error is about tolerance squared.

    Standard errors from the Hessian before the step are off by a factor of at most exp(+-s / 2),
    s = sum |d_j|: no eta changes by more than s, and
    |d log(mu (1 - mu)) / d eta| = |1 - 2 mu| <= 1. One more round makes them more precise.

    With errors of e in the gradient's entries, the decrement stays above about
    e / root(smallest eigenvalue of H), and a smaller tolerance is never met.
    """
    return decrement <= tolerance


def accept_step(
    before: float, after: float, decrement: float, step: float, slack: float = 0.0
) -> bool:
    """Return whether beta + step d raises the log-likelihood enough. If not, halve the step.

    before, after: log-likelihood at beta and at beta + step d; step in (0, 1]
    slack: error of their difference in addition to float rounding (fixed point), at least 0
    """
    rounding = ROUNDING * abs(before)
    return after >= before + SUFFICIENT_INCREASE * step * decrement**2 - slack - rounding


def diverging(
    direction: Vector,
    hessian: Vector,
    null_hessian: Vector,
    names: Sequence[str],
    tolerance: float = DECREMENT_TOLERANCE,
) -> tuple[str, ...]:
    """Return the coefficients whose estimates diverge to infinity, () if there are none.

    If some v separates the outcomes, completely or quasi-completely (margins m_i = +-x_i'v >= 0
    on the side of y_i, not all 0), the likelihood has no maximum (Albert & Anderson 1984). Every
    round adds about 1 to the separated records' |eta|, and the information on v vanishes: its
    share a = v'Hv / v'H_0 v falls to 0, with H_0 = X'X / 4 the Hessian at beta = 0. Divergence is
    reported if the smallest share over all v is at most 4 tolerance^2. Then, for `tolerance` as in
    `converged`,

        converged and not diverging  =>  the data are not separated.

    Proof. Let e_i = |y_i - mu_i| and scale v so that v'H_0 v = 1, so sum m_i^2 = 4 and m_i <= 2.
    By Cauchy and Schwarz decrement^2 >= (g'v)^2 / v'Hv = (sum m e)^2 / sum m^2 e (1 - e)
    >= (sum m^2 e / 2)^2 / sum m^2 e = sum m^2 e / 4 >= v'Hv / 4 = a / 4.

    The converse does not hold. If the data are almost separated, a finite estimate is reported as
    divergent too. Examples are one event in a group of 4 / (4 tolerance^2) = 4 x 10^8 records, or
    an overlap of some 10^-4 of the range. The standard error of such an estimate would have lost
    half its digits.

    direction: d at this beta, shape (p,), which shows which coefficients move
    hessian, null_hessian: at this beta and at 0, shape (p, p), the intercept first
    """
    root = _diagonal_root(null_hessian, names)
    scale = np.outer(root, root)
    shares = eigh(hessian / scale, null_hessian / scale, eigvals_only=True)
    if shares[0] > 4 * tolerance**2:
        return ()
    # slopes come first: a slope on a column that is not centred also moves the intercept
    slopes = np.abs(direction[1:])
    if slopes.size == 0 or np.max(slopes) < 0.1 * abs(direction[0]):
        return (INTERCEPT,)
    return tuple(
        name for name, slope in zip(names[1:], slopes, strict=True) if slope >= 0.1 * np.max(slopes)
    )


def units_matrix(mid: Vector, half: Vector) -> Vector:
    """Return T with beta_original = T beta_scaled and cov_original = T cov_scaled T'.

    mid, half: shape (p - 1,), half > 0, of u_j = (x_j - mid_j) / half_j. Returns shape (p, p):
    slopes are divided by half_j, and sum_j beta_j mid_j / half_j is subtracted from the intercept.
    """
    T = np.diag(np.concatenate(([1.0], 1 / half)))
    T[0, 1:] = -mid / half
    return T


def covariance(
    hessian: Vector, transform: Vector, names: Sequence[str], tolerance: float = TOLERANCE
) -> Vector:
    """Return T H^-1 T', the estimates' covariance in original units, shape (p, p).

    hessian: at the estimate; transform: T of `units_matrix`; errors as in `newton_direction`
    """
    lower, root = _unit_factor(hessian, names, tolerance)
    # with A = T D^-1 L'^-1, D the roots, the result is AA': its diagonal has sums of squares
    A = solve_triangular(lower, (transform / root).T, lower=True).T
    return A @ A.T


@dataclass(frozen=True, kw_only=True)
class OddsPerSD(PerSD):
    """Log odds for one standard deviation of a predictor, and the odds ratio: their exponential."""

    odds_ratio: float
    odds_low: float | None
    odds_high: float | None


@dataclass(frozen=True, kw_only=True)
class OddsTerm(Term):
    """A term on the log-odds scale, and its exponential: the odds ratio per unit of the column.

    For the intercept it is the odds if every column is 0. A number beyond the float range becomes
    infinite. The ends are None if there is no interval.
    """

    odds_ratio: float
    odds_low: float | None
    odds_high: float | None


def inference(
    beta: Vector,
    hessian: Vector,
    transform: Vector,
    names: Sequence[str],
    level: float = 0.95,
    tolerance: float = TOLERANCE,
    deviations: Sequence[float] | None = None,
) -> tuple[OddsTerm, ...]:
    """Return Wald z tests, intervals and odds ratios in the columns' original units.

    beta, hessian: the estimate on scaled columns, shape (p,), and (3) there, shape (p, p)
    transform: T of `units_matrix`, shape (p, p); names: p terms, the intercept first
    level: of the intervals, in (0, 1)
    deviations: the predictors' standard deviations, in their own units, if they are known
    Raises UsageError for a singular Hessian or a level out of range.
    """
    errors = np.sqrt(np.diagonal(covariance(hessian, transform, names, tolerance)))
    terms = tested_terms(names, transform @ beta, errors, level)
    return tuple(map(with_odds, terms if deviations is None else per_sd(terms, deviations)))


def with_odds(term: Term) -> OddsTerm:
    """Return the term with its odds ratio, and those of its interval's ends if there is one."""
    scaled = term.per_sd
    if scaled is not None:
        scaled = OddsPerSD(**vars(scaled), **_ratios(scaled))
    return OddsTerm(**(vars(term) | {"per_sd": scaled}), **_ratios(term))


def _ratios(term: Term | PerSD) -> Mapping[str, Any]:
    low, high = (None if end is None else _odds(end) for end in (term.ci_low, term.ci_high))
    return {"odds_ratio": _odds(term.estimate), "odds_low": low, "odds_high": high}


def _odds(log_odds: float) -> float:
    try:
        return math.exp(log_odds)
    except OverflowError:
        return math.inf


def _unit_factor(hessian: Vector, names: Sequence[str], tolerance: float) -> tuple[Vector, Vector]:
    """Return (L, root) with hessian = diag(root) L L' diag(root).

    A column that depends on the intercept alone is named as a constant one.
    """
    root = _diagonal_root(hessian, names)
    correlation = hessian / root[:, None] / root[None, :]
    if names[0] == INTERCEPT:
        for name, entry in zip(names[1:], correlation[0, 1:], strict=True):
            if 0 <= 1 - entry**2 < tolerance:
                raise UsageError("analysis", constant_column(name), CONSTANT_COLUMN_ADVICE)
    return factor(correlation, names, tolerance), root


def _diagonal_root(hessian: Vector, names: Sequence[str]) -> Vector:
    """Return the roots of the Hessian's diagonal, shape (p,), all positive."""
    diagonal = np.diagonal(hessian)
    if not np.all(diagonal > 0):
        name = names[int(np.argmin(diagonal))]
        if names[0] == INTERCEPT != name and diagonal[0] > 0:  # 0 in all records
            raise UsageError("analysis", constant_column(name), CONSTANT_COLUMN_ADVICE)
        what = f"the records have no information on column {name!r}"
        raise UsageError("logistic regression", what, "Leave it out.")
    return np.sqrt(diagonal)
