"""What HM2 of FedLin asks of a hierarchy: how sites' coefficients depend on what they share.

Yue, Al Kontar and Estrada Gomez (2022), section 4. Sites have y_k ~ N(X_k theta_k, sigma_k^2 I) and
theta_k ~ p(theta_k | phi), phi ~ p(phi) normal on an unconstrained scale. Expectation propagation
(`secagg.models.fedlin.posterior.expectation_propagation`) approximates each site's factor

    f_k(phi) = INTEGRAL p(y_k | theta_k, phi) p(theta_k | phi) d theta_k

by a normal one, from the mean and covariance of phi under the tilted density f_k times the cavity.
A hierarchy computes these, at the site, from the site's `SufficientStatistics`; and draws (theta_k,
phi) from the same density, equation (8), which is theta_k's posterior.

A new one (another penalty, another prior) is a class with these five members, and a name in
`secagg.models.fedlin.hm2`.

Power expectation propagation (Minka, "Power EP", Microsoft Research 2004) takes f_k^power in place
of f_k where the others leave no density to multiply f_k with; a hierarchy says of which powers it
has the moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from secagg.core.arrays import Array
from secagg.models.numerics.natural_gaussian import Natural


@dataclass(frozen=True)
class SufficientStatistics:
    """All that a site's records say of theta_k, in the units analysed.

    gram: X'X (d, d); cross: X'y (d,); square: y'y
    records: degrees of freedom of the likelihood: n_k, less 1 where the site's own intercept was
        integrated out; 0 for a site without any, whose factor is 1
    variance: sigma_k^2, for hierarchies where it is not in phi
    power: of f_k that is meant, one of the hierarchy's `powers`
    """

    gram: Array
    cross: Array
    square: float
    records: int
    variance: float
    power: float = 1.0


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
    """Equally likely draws: theta (draws, d), phi (draws, p)."""

    theta: Array
    phi: Array


@dataclass(frozen=True)
class PenaltyPrior:
    """What hierarchies with penalties share: phi = (log lambda, log sigma^2), a priori normal.

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
        """Return p(phi)."""
        return Natural.of(np.array(self.means), np.diag(np.square(self.sds)))


class Hierarchy(Protocol):
    """How theta_k depends on phi.

    powers: of f_k that `tilted` and `draw` can take, falling from 1
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

        Raises `LinAlgError` where it cannot.
        """
        ...

    def draw(
        self, site: SufficientStatistics, cavity: Natural, many: int, rng: np.random.Generator
    ) -> PosteriorDraws:
        """Return draws of phi as `tilted` has it, and theta_k given phi: equation (8)."""
        ...
