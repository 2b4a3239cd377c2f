"""The sums for tests of what sites share, and the setting that asks for them in HM1 and HM2.

The agreement sums belong to the classical test that all theta_k are equal (analysis of covariance):
with all sites' own least squares and one common least squares, the residual sums of squares differ
by SUM b_k' X'X b_k - beta' (SUM X'X) beta. For one coefficient j, with 1 / w_kj the jj entry of
(X'X)^-1, they differ by SUM w_kj b_kj^2 - (SUM w_kj b_kj)^2 / SUM w_kj, over sites whose records
determine all coefficients.

In HM1 and HM2, which do not estimate a mean of the b_k over sites, the same stage sums b_k and
b_k b_k' over these sites.

What the sums determine (Guarantees: only this): for each coefficient j of K sites, three sums of
the 2 K numbers w_kj and b_kj; the pooled X'X and X'y; with the setting, also mean and covariance
matrix of the b_k. With two sites these would be each site's regression, so at least three sites are
required. What else rounds tell is said by each method.

Sites whose records determine all coefficients are counted in the first sum of the run. If they are
fewer than three, all sites send 0 for w_kj, b_kj and b_k, and tests of one coefficient are left
out. The sites have this number from the coordinator, which they trust to send it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from secagg.contracts import Field, Kind, PublicFacts, Spec, Stage, State, Update
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.fedlin.base import MIN_SITES, FedLinModel
from secagg.models.fedlin.hypotheses.f_tests import Row, agreement_rows, mean_rows
from secagg.models.fedlin.round import FIELD_BOUND, FRACTION_BITS
from secagg.models.fedlin.site import Site
from secagg.models.numerics.natural_gaussian import symmetric, triangle

AGREEMENT = "agreement"
"""Name of the stage."""
TESTS_NOTE = (
    " The tests release the pooled cross products within sites, how far the sites' own least "
    "squares scatter for each coefficient, and their mean and covariance over sites."
)
"""A sentence for `Disclosure.text`."""


def agreement_stage(d: int, max_rows: int, *, own: bool = False) -> Stage:
    """Return the stage; own: whether sites' own estimates are summed, too."""
    each, one, entries = (d,), (1,), (d * (d + 1) // 2,)

    def real(name: str, shape: tuple[int, ...], kind: Kind = Kind.BOUNDED) -> Field:
        return Field(name, shape, FIELD_BOUND, FRACTION_BITS, kind)

    spec: Spec = (
        real("gram", entries), real("cross", each),
        real("explained", one, Kind.WEIGHT), real("weights", each, Kind.WEIGHT),
        real("weighted", each), real("weighted_squares", each, Kind.WEIGHT),
        Field("rank", one, float(d), 0, Kind.COUNT),
        Field("determined", one, 1.0, 0, Kind.COUNT),
        Field("freedom", one, float(max_rows), 0, Kind.COUNT),
    )  # fmt: skip
    sees = (
        "sums over sites of X'X and X'y, of what their own least squares explain, and for each "
        "coefficient of its precision, times its estimate and times its square; at how many "
        "sites records determine all coefficients; degrees of freedom"
    )
    if own:
        spec = (*spec, real("estimates", each), real("products", entries))
        sees += "; sums of the sites' own least squares and of their products"
    return Stage(AGREEMENT, spec, 1, sees)


def agreement_sums(site: Site, sites: Array) -> Update:
    """Return a site's terms of the test that sites agree, in the units analysed.

    sites (1,): at how many sites records determine all coefficients
    """
    d, full = len(site.cross), _determined(site, sites)
    weight = np.zeros(d)  # of a site whose records do not determine all coefficients
    if full:
        size = np.sqrt(np.diagonal(site.gram))
        inverse = np.linalg.inv(site.gram / np.outer(size, size))
        weight = size**2 / np.diagonal(inverse)
    return {
        "gram": triangle(site.gram),
        "cross": site.cross,
        "explained": np.array([max(float(site.separate @ site.cross), 0.0)]),
        "weights": weight,
        "weighted": weight * site.separate,
        "weighted_squares": weight * site.separate**2,
        "rank": np.array([float(site.rank)]),
        "determined": np.array([float(full)]),
        "freedom": np.array([float(site.left)]),
    }


def own_estimates(site: Site, sites: Array) -> Update:
    """Return a site's terms of mean and covariance of least squares that records determine."""
    own = site.separate * _determined(site, sites)
    return {"estimates": own, "products": triangle(np.outer(own, own))}


def _determined(site: Site, sites: Array) -> bool:
    """Return whether this site's records determine all coefficients, as at enough other sites."""
    return float(sites[0]) >= MIN_SITES and site.rank == len(site.cross)


def own_mean_rows(terms: Sequence[str], total: Update) -> list[Row]:
    """Return the tests that means over sites are 0, from the sums of `own_estimates`."""
    K = round(float(total["determined"][0]))
    if K < MIN_SITES:
        return []
    mean = total["estimates"] / K
    scatter = symmetric(total["products"], len(terms)) - K * np.outer(mean, mean)
    return mean_rows(terms, K, mean, scatter / (K - 1))


@dataclass(frozen=True, kw_only=True)
class TestsOfSites(FedLinModel):
    """A FedLin method that tests hypotheses if the job asks for it."""

    __test__ = False  # not a class of pytest

    tests: bool = False
    """Whether to test that sites agree, on all coefficients and on each, and that means of slopes
    over sites are 0. It takes one more round and at least three sites, and reveals more."""

    @property
    def counts_sites(self) -> bool:
        return self.tests

    def agreement_stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Return the stage if it is asked for. Raises `JobError` where tests are not valid."""
        if not self.tests:
            return ()
        if len(public.sites) < MIN_SITES:
            what = f"has {len(public.sites)} sites, and tests need {MIN_SITES}"
            raise JobError("sites", what, "With two, the sums would show both regressions.")
        if public.site_moments:
            what = "do not account for the noise of differential privacy"
            raise JobError("method.tests", what, "Leave them out.")
        if not self.needs_noise or self.variance != "pooled":
            what = "need a pooled residual variance"
            raise JobError("method.tests", what, 'Take variance = "pooled", and prior "normal".')
        return (agreement_stage(self.layout(public).d, public.max_rows, own=True),)

    def tested(self, state: State, public: PublicFacts) -> dict[str, Any]:
        """Return the rows "tests" of the result; none if they are not asked for."""
        if not self.tests:
            return {}
        terms, total = self.layout(public).terms, state["agreement"]
        noise = float(state["noise"] * state["scale"][0] ** 2)
        known = self.noise_sd is not None
        rows = agreement_rows(terms, total, noise, known=known) + own_mean_rows(terms, total)
        return {"tests": rows}
