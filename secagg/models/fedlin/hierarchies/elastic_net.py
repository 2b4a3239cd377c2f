"""The elastic net as a hierarchy (prior) for HM2: sites share two shrinkages and a variance.

Section 4.3 of Yue, Al Kontar and Estrada Gomez ("Federated data analytics: a study on linear
models", 2022) names the lasso and ridge regression as two of many possible penalties. This penalty
is from Li and Lin ("The Bayesian elastic net", 2010). For all sites k and coefficients i:

    y_k ~ N(X_k theta_k, sigma^2 I)                                                              (1)
    p(theta_ki | phi) = exp(-l1 |v| - l2 v^2 / 2) / (sigma Z(l1, l2)),  v = theta_ki / sigma     (2)

with phi = (log l1, log l2, log sigma^2), each with a normal prior. Since l1 and l2 are unknown, the
normalising constant Z must be computed. With x = l1 / sqrt(2 l2) and erfcx(x) = exp(x^2) erfc(x),

    Z = sqrt(2 pi / l2) erfcx(x)                                                                 (3)
    E[l1 |v|] = x (2 / sqrt(pi) - 2 x erfcx(x)) / erfcx(x),  E[l2 v^2] = 1 - E[l1 |v|]           (4)

As l2 -> 0, (2) becomes the lasso's prior; as l1 -> 0, that of ridge regression. The moments and
draws are computed by `secagg.models.fedlin.hierarchies.penalised_moments`. They have a Monte Carlo
error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import erfcx

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.penalised_density import Penalty
from secagg.models.fedlin.hierarchies.penalised_moments import SampledPenalty

_ASYMPTOTIC_FROM = 1e3  # if x is larger, E[l1 |v|] in (4) is 1 - 1 / x^2 to 12 digits


class ElasticPenalty:
    """Computes l1 and l2 (`rates`) and log Z (`log_constant`) from phi = (log l1, log l2, ...)."""

    def rates(self, phi: Array) -> tuple[Array, Array]:
        return np.exp(phi[..., 0]), np.exp(phi[..., 1])

    def log_constant(self, phi: Array) -> Array:
        x = _ratio(phi)
        with np.errstate(divide="ignore"):  # at a proposed point, Z may underflow to 0
            found: Array = (np.log(2 * np.pi) - phi[..., 1]) / 2 + np.log(erfcx(x))
        return found

    def expected(self, phi: Array) -> Array:
        """Return the means of l1 |v| and l2 v^2 / 2."""
        x = _ratio(phi)
        clipped = np.minimum(x, _ASYMPTOTIC_FROM)
        scaled = erfcx(clipped)
        first = clipped * (2 / np.sqrt(np.pi) - 2 * clipped * scaled) / scaled
        first = np.where(x > _ASYMPTOTIC_FROM, 1 - 1 / np.maximum(x, _ASYMPTOTIC_FROM) ** 2, first)
        return np.stack([first, (1 - first) / 2], axis=-1)


def _ratio(phi: Array) -> Array:
    found: Array = np.exp(phi[..., 0] - phi[..., 1] / 2) / np.sqrt(2)
    return found


@dataclass(frozen=True)
class ElasticNet(SampledPenalty):
    """phi = (log l1, log l2, log sigma^2)."""

    means: tuple[float, ...] = (0.0, 0.0, 0.0)
    sds: tuple[float, ...] = (1.0, 1.0, 1.0)

    phi_names: ClassVar[tuple[str, ...]] = ("log lambda1", "log lambda2", "log sigma^2")
    penalty: ClassVar[Penalty] = ElasticPenalty()
