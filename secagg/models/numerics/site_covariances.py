"""Scatter matrices of sites whose covariances are alike: a prior that the sites learn together.

Under noise once at the site, each site knows the scatter matrix A_k of its columns only with noise.
If every site had a prior of its own for A_k, slopes of all sites together would be biased towards
zero: each site's A_k is a nuisance parameter with its own error, and their number grows with that
of the sites (Neyman and Scott 1948). So the sites' scatter matrices have one distribution. For a
site with n_k + 1 records and q columns,

    A_k ~ Wishart(nu_k, n_k Sigma / nu_k),    nu_k = q + omega n_k                               (1)

with mean n_k Sigma. With omega = 1 the sites' records have the same covariance matrix Sigma. With a
smaller omega, covariances differ between sites, by relative standard deviations of about
root(2 / (omega n_k)). The priors are

    Sigma ~ inverse Wishart(q + 1, V),    omega uniform on `SHARES`                              (2)

so correlations have uniform priors (Barnard, McCulloch and Meng 2000). V is `PRIOR_VARIANCE` I. A
Gibbs sampler's steps at the coordinator are

    p(omega | A, Sigma) ~ prod_k of the densities (1)                                            (3)
    Sigma^-1 | A, omega ~ Wishart(q + 1 + sum nu_k, (V + sum nu_k A_k / n_k)^-1)                 (4)

so it needs sums over sites only: of A_k, of A_k / n_k, of n_k, and of log densities.

These sums depend on the records through the sites' noisy moments only, so they cost no privacy.
Not protected without that noise: sum A_k is then the exact scatter matrix of all sites.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import multigammaln

from secagg.contracts import Field, Kind, Spec, State, Update
from secagg.core.arrays import Array
from secagg.errors import PeerError
from secagg.models.numerics.gaussian_draws import transpose

SHARES = 2.0 ** -np.arange(1.0, 8.25, 0.25)
"""The values of omega. With larger ones, chains become slow."""
PRIOR_VARIANCE = 0.01
"""Of a column, in units in which its values are between -1 and 1."""
_MAX_LOG = 2.0**30
_BITS = 40


@dataclass(frozen=True)
class SharedCovariance:
    """The coordinator's draw: Sigma^-1, of shape (..., q, q), and omega (...)."""

    precision: Array
    share: Array

    def degrees(self, n: Array) -> Array:
        """Return nu_k; n: n_k, of the shape of `share`."""
        nu: Array = self.precision.shape[-1] + self.share * n
        return nu


def begin_shared(shape: tuple[int, ...], q: int) -> SharedCovariance:
    """Return a first draw, of a prior that says little."""
    precision = np.broadcast_to(np.eye(q) / PRIOR_VARIANCE, (*shape, q, q)).copy()
    return SharedCovariance(precision, np.full(shape, SHARES[len(SHARES) // 2]))


def shared_spec(shape: tuple[int, ...], q: int, rows: int, sites: int) -> Spec:
    """Return the fields of the sums; rows: the largest number of records of a site."""
    bits = min(_BITS, 62 - math.ceil(math.log2(sites * rows)))
    of_logs = 61 - math.ceil(math.log2(_MAX_LOG * sites))
    triangle = (*shape, q * (q + 1) // 2)
    return (
        Field("scatter", triangle, rows, bits, Kind.BOUNDED),
        Field("scatter_per_record", triangle, 1.0, _BITS, Kind.BOUNDED),
        Field("log_density", (*shape, len(SHARES)), _MAX_LOG, of_logs, Kind.BOUNDED),
        Field("freedom", (1,), rows, 0, Kind.COUNT),
    )


def site_terms(scatter: Array, n: int, now: SharedCovariance) -> Update:
    """Return what a site contributes.

    scatter: A_k, of shape (..., q, q), positive definite. Columns whose sum of squares exceeds n
        are made smaller, because no table has them
    n: n_k, the number of records less one, at least 1
    """
    q = scatter.shape[-1]
    diagonal = np.diagonal(scatter, axis1=-2, axis2=-1)
    shrink = np.sqrt(np.minimum(n / diagonal, 1.0))
    scatter = scatter * shrink[..., :, None] * shrink[..., None, :]
    upper = scatter[..., *np.triu_indices(q)]
    logs = wishart_log_density(scatter[..., None, :, :], n, SharedCovariance(
        now.precision[..., None, :, :], np.broadcast_to(SHARES, (*now.share.shape, len(SHARES)))
    ))  # fmt: skip
    logs = np.clip(logs - logs[..., :1], -_MAX_LOG, _MAX_LOG)
    return {
        "scatter": upper,
        "scatter_per_record": np.clip(upper / n, -1.0, 1.0),  # by rounding only
        "log_density": logs,
        "freedom": np.array([float(n)]),
    }


def wishart_log_density(scatter: Array, n: float, now: SharedCovariance) -> Array:
    """Return the logarithm of the density (1) of A_k."""
    q, nu = scatter.shape[-1], now.degrees(np.asarray(n, dtype=np.float64))
    log_det = np.linalg.slogdet(scatter)[1]
    trace = (scatter * now.precision).sum(axis=(-2, -1))
    of_scale = q * np.log(2 * n / nu) - np.linalg.slogdet(now.precision)[1]
    found: Array = ((nu - q - 1) * log_det - nu / n * trace - nu * of_scale) / 2
    return found - multigammaln(nu / 2, q)


def draw_shared(
    now: SharedCovariance, total: Update, sites: int, rng: np.random.Generator
) -> SharedCovariance:
    """Draw (3), then (4). total: the sums over `sites` sites."""
    q = now.precision.shape[-1]
    logs = total["log_density"]
    gumbel = rng.gumbel(size=logs.shape)  # the largest of logs + gumbel is a draw from exp(logs)
    share = SHARES[np.argmax(logs + gumbel, axis=-1)]
    sums = np.empty((*share.shape, q, q))
    rows, columns = np.triu_indices(q)
    sums[..., rows, columns] = share[..., None] * total["scatter"] + q * total["scatter_per_record"]
    sums[..., columns, rows] = sums[..., rows, columns]
    freedom = q + 1 + sites * q + share * float(total["freedom"][0])
    scale = np.asarray(np.linalg.inv(sums + PRIOR_VARIANCE * np.eye(q)), dtype=np.float64)
    root = np.asarray(np.linalg.cholesky((scale + transpose(scale)) / 2), dtype=np.float64)
    T = np.tril(rng.standard_normal(root.shape), -1)  # Bartlett's decomposition
    diagonal = np.arange(q)
    T[..., diagonal, diagonal] = np.sqrt(rng.chisquare(freedom[..., None] - diagonal))
    half = root @ T
    precision = half @ transpose(half)
    return SharedCovariance((precision + transpose(precision)) / 2, share)


def read_shared(state: State) -> SharedCovariance:
    """Return the draw that a message or the coordinator's state has.

    Raises `PeerError` if Sigma^-1 is not positive definite, or omega is none of `SHARES`.
    """
    found = SharedCovariance(state["precision"], state["share"])
    symmetric = np.array_equal(found.precision, transpose(found.precision))
    try:
        np.linalg.cholesky(found.precision)
    except np.linalg.LinAlgError:
        symmetric = False
    if not (symmetric and np.all(np.isin(found.share, SHARES))):
        raise PeerError("message", "the coordinator's covariance is not positive definite")
    return found
