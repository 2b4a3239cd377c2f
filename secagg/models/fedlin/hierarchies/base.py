"""The interface of a hierarchy in HM2: how sites' coefficients depend on shared parameters.

Yue, Al Kontar and Estrada Gomez (2022), section 4. Sites have y_k ~ N(X_k theta_k, sigma_k^2 I) and
theta_k ~ p(theta_k | phi), phi ~ p(phi) normal on an unconstrained scale. Expectation propagation
(`secagg.models.fedlin.posterior.expectation_propagation`) approximates each site's factor

    f_k(phi) = INTEGRAL p(y_k | theta_k, phi) p(theta_k | phi) d theta_k

by a normal density. The approximation uses the mean and covariance of phi under the tilted density,
which is f_k times the cavity. The cavity is the current approximation without site k's factor. At
the site, a hierarchy computes this mean and covariance from the `SufficientStatistics`. It also
draws (theta_k, phi) from the tilted density. By equation (8), these draws of theta_k are from its
posterior.

A new hierarchy, for another penalty or prior, is a class with the members of `Hierarchy`, and a
name in `secagg.models.fedlin.hm2`.

If the cavity is not a proper density, power expectation propagation (Minka, "Power EP", Microsoft
Research 2004) uses f_k^power instead of f_k. The attribute `powers` of a hierarchy lists the powers
for which it can compute the moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.numerics.natural_gaussian import Natural

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class PseudoObservations:
    """Equally likely normal observations z ~ N(R theta_k, I); their mean density is a likelihood.

    R: shape (i, d, draws); z: (i, draws); log_factor: log of a factor of each density, (draws,)
    """

    R: Array
    z: Array
    log_factor: Array


@dataclass(frozen=True)
class SufficientStatistics:
    """The statistics of a site's records that determine the likelihood of theta_k.

    All are in the units analysed.

    gram: X'X (d, d); cross: X'y (d,); square: y'y
    records: degrees of freedom of the likelihood: n_k, or n_k - 1 if the site's own intercept was
        integrated out. A site without records has 0, and its factor f_k is 1.
    variance: sigma_k^2, for hierarchies in which it is not part of phi
    power: the power of f_k to use, one of the hierarchy's `powers`
    noisy: under noise once at the site, the likelihood of theta_k that knows the noise, in place of
        `gram` and `cross`; for hierarchies that use it. `power` is then 1
    """

    gram: Array
    cross: Array
    square: float
    records: int
    variance: float
    power: float = 1.0
    noisy: PseudoObservations | None = None


@dataclass(frozen=True)
class TiltedMoments:
    """Moments of phi under a tilted density.

    mean (p,); cov (p, p); error (p,): Monte Carlo or quadrature error of the mean, 0 if exact to
        rounding
    """

    mean: Array
    cov: Array
    error: Array


@dataclass(frozen=True)
class PosteriorDraws:
    """Equally likely draws: theta (draws, d), phi (draws, p).

    which: the pseudo-observation behind each draw, if there are several
    """

    theta: Array
    phi: Array
    which: Positions | None = None


@dataclass(frozen=True)
class PenaltyPrior:
    """The prior that hierarchies with penalties share: phi = (log lambda, log sigma^2) is normal.

    means, sds: of the independent normal priors of phi's components
    """

    means: tuple[float, ...] = (0.0, 0.0)
    sds: tuple[float, ...] = (1.0, 1.0)

    powers: ClassVar[tuple[float, ...]] = (1.0,)
    phi_names: ClassVar[tuple[str, ...]] = ("log lambda", "log sigma^2")

    def components(self, terms: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of phi's components; they are the same for all coefficients."""
        return self.phi_names

    def prior(self, d: int) -> Natural:
        return Natural.of(np.array(self.means), np.diag(np.square(self.sds)))


def usable_powers(hierarchy: Hierarchy, site: SufficientStatistics) -> tuple[float, ...]:
    """Return the hierarchy's powers; of a mean of densities there is only the power 1."""
    return hierarchy.powers if site.noisy is None else (1.0,)


class Hierarchy(Protocol):
    """How theta_k depends on phi.

    powers: the powers of f_k that `tilted` and `draw` accept, in decreasing order from 1
    """

    powers: ClassVar[tuple[float, ...]]

    def components(self, terms: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of phi's components, given those of the coefficients."""
        ...

    def prior(self, d: int) -> Natural:
        """Return p(phi), for d coefficients."""
        ...

    def tilted(
        self, site: SufficientStatistics, cavity: Natural, rng: np.random.Generator
    ) -> TiltedMoments:
        """Return the moments of f_k^power times a proper cavity.

        Raises `LinAlgError` if they cannot be computed.
        """
        ...

    def draw(
        self, site: SufficientStatistics, cavity: Natural, count: int, rng: np.random.Generator
    ) -> PosteriorDraws:
        """Return draws of phi from the tilted density, and of theta_k given phi: equation (8)."""
        ...
