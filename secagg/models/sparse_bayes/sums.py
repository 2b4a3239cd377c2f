"""The rounds of federated sparse regression and Markov random fields: fields, bounds, memories.

Kidd, Wang, Xu and Ni ("Federated learning for sparse Bayesian models", PSB 2023), Algorithm 1. In a
round the coordinator sends theta and t of all chains and regressions. Each site runs `sweeps`
sweeps of its own (`secagg.models.sparse_bayes.horseshoe`) and contributes to the sums from which
the coordinator draws the next theta and t (`secagg.models.sparse_bayes.spike_slab`). Records are
centred by each site's own means, which replaces an intercept for each site. They are divided by
standard deviations pooled within sites, or by the site's own.

Ranges. Let X_i be a column as analysed and n_k the site's records, at most N; |X_i|^2 <= N, or N
times the number of sites with pooled deviations. `collapsed` sends

    P_kij, r_ki   |.| <= |X_i| |X_j| / s_k, and 1 / s_k <= G / b_s, where Gamma(a_s + N/2) exceeds G
                  with probability 1e-17
    c_kj          at most the Exp(1) with which v_kj was drawn: 64 with probability 1 - 1.6e-28

`paper` sends 1/l, d/(l sqrt(t)) and d^2/(l t), where l was drawn with 1/l at most Exp(1) 2 t / d^2:

    d^2/(l t)     at most 128 with probability 1 - 1.6e-28 (under noise once at the site, where
                  theta_k also moves after l is drawn, only once chains have converged)
    1/l           has a tail like x^-1/2, which has no bound: l is raised to `lambda_floor`^2
    d/(l sqrt(t)) at most sqrt(128) / lambda_floor, by these two

Steps. P and r are rounded to 2^-24 or finer. The error of R P R in the coordinator's K = I + R P R,
where R^2 is the spread e of theta, is then below q M e / 2^25, and K >= I. With e about 1 that is
far below any Monte Carlo error. (With e of 1e8 and P singular a draw would be a few per cent too
wide. If K is indefinite, its eigenvalues are raised to 1.)

If a number exceeds its bound, which is too improbable to occur by chance, the site reports an error
(`Field.strict`). No number is clipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv

from secagg.contracts import Field, Kind, PublicFacts, Spec, State, Update
from secagg.core.arrays import Array
from secagg.errors import PeerError
from secagg.models.common.units import centred
from secagg.models.sparse_bayes.horseshoe import NoisePrior, Regression, SiteDraw

Indices = NDArray[np.int64]

FRACTION_BITS, MIN_BITS = 40, 24
_FIELD_EXCESS_PROBABILITY = 1e-17
_MAX_C, _MAX_DD = 64.0, 128.0


@dataclass(frozen=True)
class Design:
    """The regressions of a round, in the positions of the p columns analysed.

    outcomes: (R,); predictors: (R, q), none of them the outcome
    """

    outcomes: Indices
    predictors: Indices

    @property
    def shape(self) -> tuple[int, int]:
        """R regressions of q coefficients each."""
        return int(self.predictors.shape[0]), int(self.predictors.shape[1])

    def regression(self, gram: Array) -> Regression:
        """Return the statistics of all regressions, from Z'Z (..., p, p) of the columns."""
        y, x = self.outcomes, self.predictors
        parts = gram[..., x[:, :, None], x[:, None, :]], gram[..., x, y[:, None]], gram[..., y, y]
        return Regression(*(np.ascontiguousarray(part) for part in parts))


def collapsed_spec(
    shape: tuple[int, int, int], norm: float, rows: int, sites: int, prior: NoisePrior
) -> Spec:
    """Return the fields of a round; norm: largest |X_i|^2 at a site with at most `rows` records."""
    chains, R, q = shape
    largest = float(gammainccinv(prior.shape + rows / 2, _FIELD_EXCESS_PROBABILITY)) / prior.scale
    bound = norm * largest
    # As many bits as a sum over the sites in 64 bits allows, but at least 24.
    bits = min(FRACTION_BITS, max(MIN_BITS, 62 - math.ceil(math.log2(sites * bound))))
    return (
        Field("P", (chains, R, q * (q + 1) // 2), bound, bits, Kind.BOUNDED, strict=True),
        Field("r", (chains, R, q), bound, bits, Kind.BOUNDED, strict=True),
        Field("c", (chains, R, q), _MAX_C, FRACTION_BITS, Kind.WEIGHT, strict=True),
    )


def paper_spec(shape: tuple[int, int, int], floor: float) -> Spec:
    """Return the fields of a round; floor: the smallest lambda."""
    return (
        Field("one", shape, 1 / floor**2, FRACTION_BITS, Kind.WEIGHT, strict=True),
        Field("d", shape, math.sqrt(_MAX_DD) / floor, FRACTION_BITS, Kind.BOUNDED, strict=True),
        Field("dd", shape, _MAX_DD, FRACTION_BITS, Kind.WEIGHT, strict=True),
    )


def begin_site(shape: tuple[int, int, int]) -> State:
    """Return a site's draws before the first round; theta_k is drawn before its first use."""
    return {
        "theta": np.zeros(shape),
        "s": np.ones(shape[:-1]),
        "w": np.ones(shape),
        "v": np.ones(shape),
    }


def paper_update(draw: SiteDraw, theta: Array, t: Array, floor: float) -> tuple[Update, SiteDraw]:
    """Return the site's part of the sums of `spike_slab.paper`, and its draws with l floored."""
    share = np.maximum(draw.w / t, floor**2)  # lambda^2
    d = (draw.theta - theta) / np.sqrt(t)
    update = {"one": 1 / share, "d": d / share, "dd": d * d / share}
    return update, SiteDraw(draw.theta, draw.s, share * t, draw.v)


def analysed(values: Array, facts: State, public: PublicFacts, *, own: bool) -> tuple[Array, Array]:
    """Return a site's records, centred and scaled, and the units in which they are.

    own: whether to scale by the site's own deviations. Raises `PeerError` for an impossible scale
    """
    z, unit = centred(values), 1 / facts["scale"]
    if own:
        unit = own_deviations(values)
        return z / unit, unit
    z = np.where(np.ptp(values, axis=0) > 0, z, 0.0) if len(values) else z
    z = z * facts["scale"]
    # pooled deviations imply this bound; see `SparseLinear.round_spec`
    too_large = np.any(np.sum(z * z, axis=0) > facts["records"] + len(public.sites))
    if too_large and not public.site_moments:  # whose noise may exceed it
        raise PeerError("message", "the coordinator's scale is not the columns' own")
    return z, unit


def own_deviations(values: Array) -> Array:
    """Return columns' standard deviations (divisor n); infinity for a constant column.

    Division by infinity makes a constant column zero. Its deviations from its mean are not zero,
    because of rounding, and division by their own size would make it look like any other column.
    """
    if not len(values):
        return np.full(values.shape[1], np.inf)
    return np.where(np.ptp(values, axis=0) > 0, values.std(axis=0), np.inf)


@cache
def _triangle(q: int) -> tuple[Indices, Indices]:
    rows, columns = np.triu_indices(q)
    return rows, columns


def upper(symmetric: Array) -> Array:
    """Return the upper triangles (..., q (q + 1) / 2) of matrices (..., q, q), row by row."""
    rows, columns = _triangle(symmetric.shape[-1])
    return symmetric[..., rows, columns]


def full(triangles: Array, q: int) -> Array:
    """Return the symmetric matrices (..., q, q) of `upper`."""
    rows, columns = _triangle(q)
    matrices = np.empty((*triangles.shape[:-1], q, q))
    matrices[..., rows, columns] = triangles
    matrices[..., columns, rows] = triangles
    return matrices
