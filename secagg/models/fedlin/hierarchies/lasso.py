"""The lasso's hierarchy of HM2: sites share how strongly coefficients are shrunk, and the noise.

Yue, Al Kontar and Estrada Gomez ("Federated data analytics: a study on linear models", 2022),
section 4.3. With phi = (log lambda, log sigma^2), for all sites k and coefficients i,

    y_k ~ N(X_k theta_k, sigma^2 I),  theta_ki ~ Laplace(scale sigma / lambda)                   (1)

and each entry of phi has a normal prior, as in the paper ("log-normal priors on sigma^2 and
lambda"). The paper does not give the prior's mean and sd. The defaults are 0 and 1, as in the
paper's example 4.1. (1) is the hierarchy of Park and Casella (2008). lambda does not depend on the
unit of y, only on those of the columns of X.

The factor f_k has no closed form. The moments and draws are computed by
`secagg.models.fedlin.hierarchies.penalised_moments`. They have a Monte Carlo error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.penalised_density import Penalty
from secagg.models.fedlin.hierarchies.penalised_moments import SampledPenalty


class LaplacePenalty:
    """l1 = lambda, l2 = 0 and Z = 2 / lambda, as functions of phi = (log lambda, log sigma^2)."""

    def rates(self, phi: Array) -> tuple[Array, Array]:
        return np.exp(phi[..., 0]), np.zeros(phi.shape[:-1])

    def log_constant(self, phi: Array) -> Array:
        found: Array = np.log(2) - phi[..., 0]
        return found

    def expected(self, phi: Array) -> Array:
        """Return the mean of l1 |v|."""
        return np.ones((*phi.shape[:-1], 1))


@dataclass(frozen=True)
class Lasso(SampledPenalty):
    """phi = (log lambda, log sigma^2)."""

    penalty: ClassVar[Penalty] = LaplacePenalty()
