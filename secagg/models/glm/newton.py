"""Newton's method for any family of regressions: sums over records, and functions of the sums.

Follows McCullagh & Nelder, *Generalized Linear Models* (1989), section 2.5, and Boyd &
Vandenberghe, *Convex Optimization* (2004), sections 9.2 and 9.5. Records i have a row x_i (with a
leading 1), an outcome y_i and maybe a known offset o_i; eta_i = x_i'beta + o_i. The family
(`secagg.contracts.Family`) has the log-likelihood l(y, eta), its derivative s and the Fisher
weight w:

    l(beta) = sum_i l(y_i, eta_i)             (1)
    g(beta) = sum_i s(y_i, eta_i) x_i         (2)
    H(beta) = sum_i w(eta_i) x_i x_i'         (3)
    d = H^-1 g,    decrement = root of g'd    (4)

(1) to (3) are sums over records, so adding the sites' sums gives the pooled sums. Columns are
scaled to [-1, 1] by their declared bounds, u = (x - mid) / half. So bounds of the sums are known
before any data is read. This file sends no messages. The method that releases such sums describes
what an observer can infer from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_solve, eigh, solve_triangular

from secagg.contracts import MAX_PREDICTOR, Family, Outcome, TermBounds
from secagg.core.arrays import Array
from secagg.errors import DataError, PeerError, UsageError
from secagg.models.common.coefficient_table import INTERCEPT, Term, per_sd, tested_terms
from secagg.models.common.pooled_moments import constant_column_error
from secagg.models.numerics.cholesky import TOLERANCE, factor
from secagg.models.numerics.precision import ROUNDING

SUFFICIENT_INCREASE = 1e-4  # Armijo's constant; values in (0, 1/2) converge (Boyd, section 9.2)
DECREMENT_TOLERANCE = 5e-5  # in standard errors; below root(TOLERANCE) / 2, see `diverging`
_CONCENTRATED = (
    "the search for estimates cannot go on: a few records have nearly all the weight, so the "
    "others no longer count"
)
_CONCENTRATED_ADVICE = (
    "Look for outcomes far larger than all others (typing errors, codes for missing values), and "
    "for levels of a predictor without any event."
)
_MAX_BETA_NORM = 1e300  # limit of sum |beta_j|: keeps every x'beta finite


def term_sums(
    family: Family, bounds: TermBounds, X: Array, y: Array, beta: Array, offset: Array | None = None
) -> tuple[float, Array, Array]:
    """Return one site's terms of (1), (2) and (3) at beta.

    X: shape (n, p), first column 1, every |x_ij| <= 1; y: shape (n,); beta: shape (p,)
    offset: shape (n,); None for none
    Returns (log-likelihood, gradient (p,), Hessian (p, p), exactly symmetric). n may be 0.

    In float arithmetic, not only in real numbers, and for the family's bounds L, S and W (all
    powers of two),

        |log-likelihood| <= L n,    |gradient_j| <= S n,    |Hessian_jk| <= W n.

    Proof. Rounding is monotone, so a sum or product whose exact value is at most a representable b
    is still at most b when rounded. Each record's term is bounded: the log-likelihood is clipped to
    L; the score to S, and times |x_ij| <= 1 it is at most S; the weight to W = 4^k, so
    root(weight) x_ij is at most 2^k, and a product of two of these at most W. Any partial sum of m
    terms bounded by b, in any order and with or without fused multiply-adds, is a rounded sum of
    two partial sums of m_1 and m_2 terms, so by induction at most m_1 b + m_2 b = m b; and m b is
    representable for every power of two b and m < 2^53.

    Each family shows beside its bounds that clipping has no effect on a fit.

    Raises DataError if X or y is outside these ranges, UsageError if beta is not finite.
    """
    _check(family, X, y, beta)
    eta = predictors(bounds, X, beta, offset)
    limit = bounds.log_likelihood
    log_likelihood = float(np.sum(np.clip(family.log_likelihood(y, eta), -limit, limit)))
    gradient = X.T @ np.clip(family.score(y, eta), -bounds.score, bounds.score)
    half = np.sqrt(np.minimum(family.weight(eta), bounds.weight))[:, None] * X
    return log_likelihood, gradient, half.T @ half


def predictors(bounds: TermBounds, X: Array, beta: Array, offset: Array | None = None) -> Array:
    """Return eta of each record, at most that of the bounds. Arguments as for `term_sums`."""
    eta = X @ beta if offset is None else X @ beta + offset
    return np.clip(eta, bounds.least_predictor, bounds.predictor)


def record_weights(
    family: Family, bounds: TermBounds, X: Array, y: Array, beta: Array, offset: Array | None = None
) -> tuple[Array, Array]:
    """Return the records' weights in the Hessian and in the gradient: w and |s|.

    Arguments as for `term_sums`. If estimates diverge, both kinds concentrate on a few records
    while |beta| grows: in logistic regression on those nearest to the border between the outcomes.
    The sums then show these records.
    """
    eta = predictors(bounds, X, beta, offset)
    return family.weight(eta), family.score_sizes(y, eta)


def check_predictors(eta: Array, bounds: TermBounds | None = None) -> None:
    """Raise `PeerError` if a record's linear predictor, eta, is out of range.

    bounds: of the family. Beyond their range of eta, terms stay constant. A coordinator could
        choose coefficients that put all records but one there, and read that one from the
        difference of two sums
    """
    least = -MAX_PREDICTOR if bounds is None else max(-MAX_PREDICTOR, bounds.least_predictor)
    most = MAX_PREDICTOR if bounds is None else min(MAX_PREDICTOR, bounds.predictor)
    if not np.all((least <= eta) & (eta <= most)):  # true for NaN
        raise PeerError("coefficients", "give a record a linear predictor that no fit has")


def log_link_intercept(score: float, weight: float) -> float:
    """Return log(sum y / sum exp(o)), from the sums of score and weight at eta = o.

    For families with a log link whose score is y - mu with the weight mu, or y / mu - 1 with the
    weight 1. -inf if the ratio is 0 up to rounding, as when all y are 0.
    """
    ratio = 1 + score / weight
    return math.log(ratio) if ratio > ROUNDING else -math.inf


def _check(family: Family, X: Array, y: Array, beta: Array) -> None:
    if not np.all(np.abs(X) <= 1):
        raise DataError("regression", "a scaled predictor lies outside [-1, 1]")
    if not np.all(X[:, 0] == 1):
        raise DataError("regression", "the first column is not 1 throughout")
    if family.outcome is Outcome.BINARY and not np.all((y == 0) | (y == 1)):
        raise DataError("regression", "the outcome has values other than 0 and 1")
    if family.outcome is Outcome.COUNT and not np.all((y >= 0) & (y == np.rint(y))):
        raise DataError("regression", "the outcome has values that are no counts")
    if not np.sum(np.abs(beta)) <= _MAX_BETA_NORM:
        raise UsageError("regression", "the coefficients are not finite")


def newton_direction(
    gradient: Array,
    hessian: Array,
    names: Sequence[str],
    tolerance: float = TOLERANCE,
    *,
    later: bool = False,
) -> Array:
    """Return d = H^-1 g of (4), shape (p,), by Cholesky with unit diagonal.

    names: the p columns, the intercept first
    tolerance: see `secagg.models.numerics.cholesky.factor`. The default suits beta = 0, where
        all weights are similar: it refuses collinear columns. Later, a loss of rank means
        separation, which `diverging` detects from this Hessian and that at beta = 0; then pass
        ROUNDING, which only requires one correct digit of the direction. If the entries have an
        absolute error e (fixed point), neither tolerance may be below about
        p e / (smallest diagonal entry).
    later: whether the Hessian at beta = 0 had full rank, so that a loss of rank comes from the
        weights, not from collinear columns
    Raises UsageError that names the column most collinear with those before it.
    """
    lower, root = _unit_factor(hessian, names, tolerance, later=later)
    return np.asarray(cho_solve((lower, True), gradient / root)) / root


def newton_decrement(gradient: Array, direction: Array) -> float:
    """Return the root of g'd, at least 0: the length of d in the metric of H.

    Half its square estimates the remaining gain in log-likelihood. By Cauchy and Schwarz |d_j| <=
    decrement x (standard error of beta_j): it bounds every coefficient's step in standard errors,
    whatever the columns' units.
    """
    return math.sqrt(max(float(gradient @ direction), 0.0))


def converged(decrement: float, tolerance: float = DECREMENT_TOLERANCE) -> bool:
    """Return whether the next full step is the last: it moves no coefficient beyond the tolerance.

    tolerance: in standard errors. Newton's method converges quadratically, so after that step the
        error is about tolerance squared. If the Fisher weight is not minus the second derivative (a
        link that is not canonical, as gamma's log), this is Fisher scoring, which converges
        linearly: the error is then a fraction of the tolerance.

    Standard errors from the Hessian before the step are off by a factor of at most exp(+-s / 2),
    s = sum |d_j|: no eta changes by more than s, and |d log w / d eta| <= 1 in all families here.
    One more round makes them more precise.

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
    direction: Array,
    hessian: Array,
    null_hessian: Array,
    names: Sequence[str],
    tolerance: float = DECREMENT_TOLERANCE,
    null_weight: float = 0.25,
) -> tuple[str, ...]:
    """Return the coefficients whose estimates diverge to infinity, () if there are none.

    The likelihood has no maximum if the outcomes are separated: if along some v it rises for ever.
    In logistic regression, all margins m_i = +-x_i'v on the side of y_i are >= 0, and not all are 0
    (Albert & Anderson 1984). In Poisson regression, with m_i = -x_i'v: m_i = 0 where y_i > 0; where
    y_i = 0, all m_i >= 0 and not all are 0 (Santos Silva & Tenreyro 2010). Every round adds about 1
    to the separated records' |eta|, and the information on v vanishes: its share a = v'Hv / v'H_0 v
    falls to 0, with H_0 the Hessian at beta = 0. Divergence is reported if the smallest share over
    all v is at most tolerance^2 / w_0, where w_0 is the smallest weight of a record in H_0: 1/4 in
    logistic regression. Then, for `tolerance` as in `converged`,

        converged and not diverging  =>  the data are not separated.

    Proof. Scale v so that v'H_0 v = 1; then w_0 sum m_i^2 <= 1, so m_i <= 1 / root(w_0). Let e_i be
    |s_i|, so g'v = sum m e. By Cauchy and Schwarz decrement^2 >= (sum m e)^2 / v'Hv. Logistic:
    w = e (1 - e) and m <= 2, so this is >= (sum m^2 e / 2)^2 / sum m^2 e = sum m^2 e / 4 >= a / 4.
    Poisson: where m > 0, y = 0 and w = e = mu, so it is >= w_0 (sum m^2 e)^2 / sum m^2 e = w_0 a.

    The converse does not hold. If the data are almost separated, a finite estimate is reported as
    divergent too. In logistic regression, examples are one event in a group of N >= 1 / tolerance^2
    = 4 x 10^8 records (there a is about 4 / N), or an overlap of some 10^-4 of the predictor's
    range. The standard error of such an estimate would have lost half its digits.

    direction: d at this beta, shape (p,), which shows which coefficients move
    hessian, null_hessian: at this beta and at 0, shape (p, p), the intercept first
    null_weight: w_0
    """
    root = _diagonal_root(null_hessian, names)
    scale = np.outer(root, root)
    shares = eigh(hessian / scale, null_hessian / scale, eigvals_only=True)
    if shares[0] > tolerance**2 / null_weight:
        return ()
    # slopes come first: a slope on a column that is not centred also moves the intercept
    slopes = np.abs(direction[1:])
    if slopes.size == 0 or np.max(slopes) < 0.1 * abs(direction[0]):
        return (INTERCEPT,)
    return tuple(
        name for name, slope in zip(names[1:], slopes, strict=True) if slope >= 0.1 * np.max(slopes)
    )


def units_matrix(mid: Array, half: Array) -> Array:
    """Return T with beta_original = T beta_scaled and cov_original = T cov_scaled T'.

    mid, half: shape (p - 1,), half > 0, of u_j = (x_j - mid_j) / half_j. Returns shape (p, p):
    slopes are divided by half_j, and sum_j beta_j mid_j / half_j is subtracted from the intercept.
    """
    T = np.diag(np.concatenate(([1.0], 1 / half)))
    T[0, 1:] = -mid / half
    return T


def covariance(
    hessian: Array, transform: Array, names: Sequence[str], tolerance: float = TOLERANCE
) -> Array:
    """Return T H^-1 T', the estimates' covariance in original units, shape (p, p).

    hessian: at the estimate; transform: T of `units_matrix`; errors as in `newton_direction`
    """
    lower, root = _unit_factor(hessian, names, tolerance, later=True)
    # with A = T D^-1 L'^-1, D the roots, the result is AA': its diagonal has sums of squares
    A = solve_triangular(lower, (transform / root).T, lower=True).T
    return A @ A.T


def inference(
    beta: Array,
    hessian: Array,
    transform: Array,
    names: Sequence[str],
    level: float = 0.95,
    tolerance: float = TOLERANCE,
    deviations: Sequence[float] | None = None,
    dispersion: float = 1.0,
    dof: float = math.inf,
) -> tuple[Term, ...]:
    """Return Wald tests and intervals in the columns' original units.

    beta, hessian: the estimate on scaled columns, shape (p,), and (3) there, shape (p, p)
    transform: T of `units_matrix`, shape (p, p); names: p terms, the intercept first
    level: of the intervals, in (0, 1)
    deviations: the predictors' standard deviations, in their own units, if they are known
    dispersion: factor of the covariance; dof: degrees of freedom of its estimate
    Raises UsageError for a singular Hessian or a level out of range.
    """
    variances = dispersion * np.diagonal(covariance(hessian, transform, names, tolerance))
    terms = tested_terms(names, transform @ beta, np.sqrt(variances), level, dof)
    return terms if deviations is None else per_sd(terms, deviations)


def _unit_factor(
    hessian: Array, names: Sequence[str], tolerance: float, *, later: bool = False
) -> tuple[Array, Array]:
    """Return (L, root) with hessian = diag(root) L L' diag(root).

    A column that depends on the intercept alone is named as a constant one; but if `later`, it
    is not constant: one outcome of 10^9 among zeros, for example, has all the weight.
    """
    if later:
        try:
            return _unit_factor(hessian, names, tolerance)
        except UsageError:
            raise UsageError("analysis", _CONCENTRATED, _CONCENTRATED_ADVICE) from None
    root = _diagonal_root(hessian, names)
    correlation = hessian / root[:, None] / root[None, :]
    if names[0] == INTERCEPT:
        for name, entry in zip(names[1:], correlation[0, 1:], strict=True):
            if abs(1 - entry**2) < tolerance:
                raise constant_column_error(name)
    return factor(correlation, names, tolerance), root


def _diagonal_root(hessian: Array, names: Sequence[str]) -> Array:
    """Return the roots of the Hessian's diagonal, shape (p,), all positive."""
    diagonal = np.diagonal(hessian)
    if not np.all(diagonal > 0):
        name = names[int(np.argmin(diagonal))]
        if names[0] == INTERCEPT != name and diagonal[0] > 0:  # 0 in all records
            raise constant_column_error(name)
        what = f"the records have no information on column {name!r}"
        raise UsageError("regression", what, "Leave it out.")
    return np.sqrt(diagonal)
