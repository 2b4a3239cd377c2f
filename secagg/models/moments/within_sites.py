"""Moments within sites: each site subtracts its own means before the one secure sum.

Hospitals differ in level, for example in calibration and in their patients. In the covariance of
the pooled records such differences look like effects of one column on another. If records are
x = a_k + e, with any level a_k of site k, the scatter within sites does not depend on the levels:

    S = sum_k sum_(i at site k) (x_i - mean_k)(x_i - mean_k)'                                   (1)

Least squares from S is least squares with an indicator of every site among the predictors (Frisch
and Waugh 1933, Lovell 1963): the within or fixed-effects estimator of econometrics (Baltagi,
*Econometric Analysis of Panel Data*, section 2.2). K means are subtracted, K the number of sites
with records, so S has n - K degrees of freedom. Each site also contributes its degrees of freedom:
n_k - 1, or 0 without records. There is no common intercept, and the effect of a column that
varies within no site cannot be separated from the sites' levels. S / n is exactly the covariance
that NOTEARS-ADMM uses (`secagg.models.notears_admm.linear_site`).

Bounds. Scaled variables u are in [-1, 1]. A difference u - mean_k can be as large as 2, but the sum
of its squares is sum u^2 - n_k mean_k^2 <= n_k, and by Cauchy and Schwarz no sum of products of two
columns exceeds n_k. So entries have the same bound as without centring, and none is clipped.

What the transcript determines: n, n - K and S, and nothing about the level of any site. A site with
one record adds nothing to S; a site with two records adds (x_1 - x_2)(x_1 - x_2)' / 2. Suppose
that an observer also has the pooled moments of the same records, from a run with centre = "pooled".
By subtraction the observer obtains the scatter of the sites' means,
sum_k n_k (mean_k - mean)(mean_k - mean)'. For two sites this is n_1 n_2 / n times dd', with d the
difference of their means. So the observer knows d, except for its sign and a common factor.

Differential privacy needs another way (`secagg.models.moments.within_noise`). In real numbers, the
change of S that one record makes is bounded: adding a record to n_k records changes S by
n_k / (n_k + 1) |u - mean_k|^2, at most 4 R^2, with R the norm to which records are clipped. (The
moments of `secagg.models.moments.method` change by at most R^2 + 1/4.) In floating point there is
no proof. A mean is not a multiple of a grid step, so one record changes the rounding of every
entry.
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
    """Return a site's part of (1), its number of records and its degrees of freedom.

    Means are subtracted twice. The first mean has an error of up to n eps; the mean of the
    differences has as many correct digits as the differences themselves (as in the corrected
    two-pass algorithm, Chan, Golub and LeVeque 1983). So a column that is constant at a site
    becomes exactly constant.
    """
    n, p = rows.values.shape
    differences = rows.values
    for _ in range(2 if n else 0):
        differences = differences - differences.mean(axis=0)
    return {
        "moments": (differences.T @ differences)[np.triu_indices(p)],
        "counts": np.array([n, max(n - 1, 0)], dtype=np.float64),
    }


def within_moments(
    upper: NDArray[np.float64], counts: NDArray[np.float64], public: PublicFacts, step_error: float
) -> Moments:
    """Return the moments in the columns' own units. The means are unknown and set to 0.

    upper, counts: sums of the two fields; step_error: bound on the fixed-point error of S's entries

    With r = n eps, S_jk has three errors: (a) `step_error`; (b) at most
    (r / 2 + 2 eps) root(S_jj S_kk), from the sum of n products of rounded differences; (c) from the
    means, which are off by at most r (r + sd) after the second pass: 2 n r^4 + 2 r^2 S_jj on the
    diagonal. `uncertain` is larger than their sum. A column with S_jj <= 2 `uncertain` is taken as
    constant, and its row of the scatter is 0.
    """
    n, degrees_of_freedom = (round(float(count)) for count in counts)
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
    half = np.array([v.half_range for v in public.variables])
    names = tuple(v.name for v in public.variables)
    scatter = S * np.outer(half, half)
    columns = tuple(v.column for v in public.variables)
    within = n - degrees_of_freedom
    return Moments(names, n, np.zeros(p), scatter, errors, within=within, columns=columns)
