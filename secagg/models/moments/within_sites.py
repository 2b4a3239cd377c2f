"""Moments within sites: each takes off its own means before the one secure sum.

Hospitals differ in level: in calibration, in who comes. In the covariance of the pooled records
such differences look like effects of one column on another. Where records are x = a_k + e, a_k any
level of site k's own, the scatter within sites has none of them:

    S = sum_k sum_(i at site k) (x_i - mean_k)(x_i - mean_k)'                                   (1)

Least squares from S is least squares with an indicator of every site among the predictors (Frisch
and Waugh 1933, Lovell 1963): the within or fixed-effects estimator of econometrics (Baltagi,
*Econometric Analysis of Panel Data*, section 2.2). It takes off K means, K the sites with records,
so that S has n - K degrees of freedom, which are summed beside n: n_k - 1 a site, none of a site
without records. There is no one intercept, and what does not vary within any site has no effect
that could be told from the sites' levels. S / n is the covariance that NOTEARS-ADMM works on
(`secagg.models.notears_admm.linear_site`), exactly.

Bounds. Scaled variables u are in [-1, 1]. A difference u - mean_k can be as large as 2, but the
sum of its squares is sum u^2 - n_k mean_k^2 <= n_k, and by Cauchy and Schwarz no product exceeds
that. So entries have the bound that they have without centring, and none is clipped.

What the transcript determines: n, n - K and S; nothing of the level of any site. A site of one
record adds nothing to S, a site of two adds half of (x_1 - x_2)(x_1 - x_2)'. Whoever has the
pooled moments of the same records too (another run, with centre = "pooled") has by subtraction how
the sites' means scatter, sum_k n_k (mean_k - mean)(mean_k - mean)': of two sites n_1 n_2 / n
times dd', d the difference of their means, hence d up to its sign and a factor.

Differential privacy is refused. What a record moves is bounded in real numbers (a record added to
n_k moves S by n_k / (n_k + 1) |u - mean_k|^2, at most 4 R^2 where the moments of
`secagg.models.moments.method` move by at most R^2 + 1/4), but not by any equation there, and a mean
is on
no grid: sums are rounded, any record moves the rounding of every entry, and no proof here holds it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Field, Kind, PublicFacts, SiteRecords, Spec, Update
from secagg.models.common.pooled_moments import Moments

SEES = (
    "pooled record count; how many sites have records; cross products of differences from each "
    "site's own means, summed; no means"
)


def within_spec(public: PublicFacts, fraction_bits: int) -> Spec:
    """Return the fields: S's upper triangle, row by row, in scaled units; n_k and n_k - 1."""
    p = len(public.variables)
    bound = float(public.max_rows)
    return (
        Field("moments", (p * (p + 1) // 2,), bound, fraction_bits, Kind.PSD),
        Field("counts", (2,), bound, 0, Kind.COUNT),
    )


def within_update(rows: SiteRecords) -> Update:
    """Return a site's part of (1), its records and its degrees of freedom.

    The mean that is taken off first errs by up to n eps; that of what is left has as many correct
    digits as the differences themselves (as in the corrected two-pass algorithm, Chan, Golub and
    LeVeque 1983). So a column that is constant at a site comes out as one.
    """
    n, p = rows.values.shape
    away = rows.values
    for _ in range(2 if n else 0):
        away = away - away.mean(axis=0)
    return {
        "moments": (away.T @ away)[np.triu_indices(p)],
        "counts": np.array([n, max(n - 1, 0)], dtype=np.float64),
    }


def within_moments(
    upper: NDArray[np.float64], counts: NDArray[np.float64], public: PublicFacts, step_error: float
) -> Moments:
    """Return the moments in the columns' own units; their means are not known and stand as 0.

    upper, counts: sums of the two fields; step_error: bound on the fixed-point error of S's entries

    With r = n eps, S_jk errs by `step_error`; by at most (r / 2 + 2 eps) root(S_jj S_kk), as a sum
    of n products of rounded differences; and by what the means still err after the second pass,
    at most r (r + sd) each, so by 2 n r^4 + 2 r^2 S_jj on the diagonal. All is below `uncertain`.
    Columns that do not vary beyond twice that are constant, and their rows of the scatter are 0.
    """
    n, freedom = (round(float(count)) for count in counts)
    p = len(public.variables)
    S = np.zeros((p, p))
    S[np.triu_indices(p)] = upper
    S = S + np.triu(S, 1).T
    squares = np.diagonal(S)
    rounding = n * float(np.finfo(np.float64).eps)
    uncertain = 2 * (step_error + rounding * squares + n * rounding**4)
    varies = squares > 2 * uncertain
    S = np.where(np.outer(varies, varies), S, 0.0)
    errors = np.where(varies, uncertain / np.where(varies, squares, 1.0), 0.0)
    half = np.array([v.half for v in public.variables])
    names = tuple(v.name for v in public.variables)
    return Moments(names, n, np.zeros(p), S * np.outer(half, half), errors, within=n - freedom)
