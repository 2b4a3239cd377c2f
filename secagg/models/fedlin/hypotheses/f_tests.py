"""Tests of what sites share: do sites agree, and is a mean over sites 0?

Sites agree (Sigma = 0, or its row and column of one coefficient). The boundary of the covariance
matrices is not regular: the likelihood ratio of Sigma_jj = 0 has no chi-squared law, but a mixture
of such laws (Self and Liang, JASA 1987; Stram and Lee, Biometrics 1994), which holds for many sites
only. The test used here needs no such law. If sites agree, residual sums of squares of one common
regression and of the sites' own ones give the F statistic of the analysis of covariance,

    F = (SUM b_k' G_k b_k - beta' (SUM G_k) beta) / (df1 s^2),  G_k = X_k'X_k,
    df1 = SUM rank(G_k) - rank(SUM G_k),  df2 = SUM (n_k - rank),                                (1)

and likewise for one coefficient, the others being free at each site, with df1 = K - 1. Under normal
errors with one variance, F has exactly the F distribution, for any number of sites and any means.
If s^2 is known, df2 is infinite.

A mean is 0. K sites' estimates b_k have the mean m, and T is an estimate of the covariance of one
of them, about mu. Then m_j^2 K / T_jj ~ F(1, K - 1), and for q coefficients Hotelling's
(K - q) / (q (K - 1)) K m'T^-1 m ~ F(q, K - q), if T is unbiased, independent of m and Wishart. Both
are exact if all sites have equal designs, also if Sigma = 0. Otherwise they are approximate.

    fedlin_full           m and T = S / (K - 1) of `EqualSites`: weighted by Sigma + C_k, as in
                          Hartung and Knapp (Statistics in Medicine 2001) for meta-analysis
    fedlin_hm1, _hm2      mean and covariance matrix of the sites' own least squares, unweighted
                          (`agreement.own_estimates`). Sites with few records cost power
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import chi2, f, ncf

from secagg.core.arrays import Array
from secagg.models.fedlin.design import INTERCEPT
from secagg.models.numerics.natural_gaussian import symmetric

Row = dict[str, Any]
_JOINT = "all means of slopes are 0"
_MIN_FREEDOM = 2  # of Hotelling's test: with 1, means of 2 sds are found in 14 % of cases
_MIN_EIGENVALUE = 1e-10  # of SUM G_k with unit diagonal
_FAR, _LEVEL, _USEFUL_POWER = 2.0, 0.05, 0.8


def agreement_rows(
    terms: Sequence[str], total: Mapping[str, Array], noise: float, *, known: bool
) -> list[Row]:
    """Return the tests that sites agree, on all coefficients and on each.

    total: sums of `agreement_sums`; noise: the residual variance, in the units analysed
    known: whether it is known, and not estimated
    """
    freedom = np.inf if known else float(total["freedom"][0])
    gram = symmetric(total["gram"], len(terms))
    size = np.sqrt(np.diagonal(gram))
    size = np.where(size > 0, size, 1.0)
    cross = total["cross"] / size
    beta, _, rank, _ = np.linalg.lstsq(gram / np.outer(size, size), cross, rcond=_MIN_EIGENVALUE)
    extra = float(total["explained"][0]) - float(cross @ beta)
    df = float(total["rank"][0]) - float(rank)
    rows = [_row("sites agree on all coefficients", extra / noise, df, freedom)]
    weights = total["weights"]
    mean = np.divide(total["weighted"], weights, out=np.zeros(len(terms)), where=weights > 0)
    between = total["weighted_squares"] - weights * mean**2
    sites = float(total["determined"][0])
    for term, value in zip(terms, between.tolist(), strict=True):
        rows.append(_row(f"sites agree on {term}", value / noise, sites - 1, freedom))
    return rows


def mean_rows(terms: Sequence[str], K: int, mean: Array, wide: Array) -> list[Row]:
    """Return the tests that means over sites are 0: of all slopes together, and of each term.

    K: number of sites; mean: m (d,); wide: T (d, d)
    """
    covariance = wide / K
    slopes = [j for j, term in enumerate(terms) if term != INTERCEPT]
    rows, q = [], len(slopes)
    if q > 1 and K - q >= _MIN_FREEDOM:
        m = mean[slopes]
        squared = float(m @ np.linalg.solve(covariance[np.ix_(slopes, slopes)], m))
        statistic = squared * (K - q) / (K - 1)
        rows.append(_row(_JOINT, statistic, q, K - q))
    for j in slopes:
        statistic = float(mean[j] ** 2 / covariance[j, j])
        rows.append(_row(f"the mean of {terms[j]} is 0", statistic, 1, K - 1))
    return rows


def joint_test_notes(terms: Sequence[str], K: int, rows: Sequence[Row]) -> list[str]:
    """Return a note if Hotelling's test that all means are 0 has little power, or is left out.

    rows: the tests; if this one rejects, its power is no question.

    If the vector of means is `_FAR` standard deviations of the sites' estimates from 0 (Mahalanobis
    distance delta), the statistic is noncentral F with noncentrality K delta^2.
    """
    q = sum(term != INTERCEPT for term in terms)
    if q < 2:
        return []
    if K - q < _MIN_FREEDOM:
        return [
            f"There is no joint test that all means of slopes are 0: with {K} sites and {q} slopes "
            "it would almost never reject. Test them one by one, or choose fewer predictors."
        ]
    if any(row["name"] == _JOINT and row["p"] < _LEVEL for row in rows):
        return []
    power = float(ncf.sf(f.isf(_LEVEL, q, K - q), q, K - q, K * _FAR**2))
    if power >= _USEFUL_POWER:
        return []
    return [
        f"With {K} sites, the joint test that all {q} means of slopes are 0 has little power: if "
        f"they are two standard deviations of the sites' estimates from 0, it rejects in "
        f"{100 * power:.0f} % of cases, at level 0.05."
    ]


def _row(name: str, squares: float, df: float, freedom: float) -> Row:
    """Return a test; squares: chi-squared with df degrees of freedom if `freedom` is infinite."""
    if df < 1 or freedom < 1:
        return {"name": name, "F": None, "df": None, "df_error": None, "p": None}
    squares = max(squares, 0.0)  # below 0 by rounding only
    p = chi2.sf(squares, df) if np.isinf(freedom) else f.sf(squares / df, df, freedom)
    error = None if np.isinf(freedom) else freedom
    return {"name": name, "F": squares / df, "df": df, "df_error": error, "p": float(p)}
