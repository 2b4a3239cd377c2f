"""Moments and draws at a site of a penalised regression, by Gibbs sampling.

For HM2 of FedLin (Yue, Al Kontar and Estrada Gomez 2022), section 4.3. This is the common part of
`secagg.models.fedlin.hierarchies.lasso` and `secagg.models.fedlin.hierarchies.elastic_net`. The
chains are run by `secagg.models.fedlin.hierarchies.gibbs`. The moments are computed from the draws
by `secagg.models.fedlin.hierarchies.control_variates`.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import ClassVar, TypeVar

import numpy as np

from secagg.models.fedlin.hierarchies.base import (
    PenaltyPrior,
    PosteriorDraws,
    SufficientStatistics,
    TiltedMoments,
)
from secagg.models.fedlin.hierarchies.control_variates import controls, moments
from secagg.models.fedlin.hierarchies.gibbs import Chains, ChainState
from secagg.models.fedlin.hierarchies.penalised_density import (
    SAMPLED_COMPONENTS,
    Density,
    Mixing,
    Penalty,
    Sizes,
)
from secagg.models.numerics.natural_gaussian import Natural

Part = TypeVar("Part", Sizes, Mixing)


@dataclass(frozen=True)
class SamplerBudget:
    """How long a site samples.

    chains: number of chains, even; burn: sweeps that are discarded
    sweeps, most, error: sweeps are run in blocks of `sweeps`, at most `most` blocks. No further
        block is run once the error of each mean of phi is at most `error` times phi's sd.
    thin: in `draw`, one sweep of so many is kept
    """

    chains: int = 64
    burn: int = 24
    sweeps: int = 24
    most: int = 8
    error: float = 0.02
    thin: int = 3


_BUDGET = SamplerBudget()


@dataclass(frozen=True)
class SampledPenalty(PenaltyPrior):
    """A hierarchy whose moments are computed by sampling; effort: how long a site samples."""

    effort: SamplerBudget = _BUDGET

    penalty: ClassVar[Penalty]

    def tilted(
        self, site: SufficientStatistics, cavity: Natural, rng: np.random.Generator
    ) -> TiltedMoments:
        """Return the moments of f_k times a proper cavity, and their Monte Carlo error.

        Raises `LinAlgError` if they cannot be computed.
        """
        if site.records == 0:
            return TiltedMoments(*cavity.moments(), np.zeros(len(cavity.r)))
        effort = self.effort
        chains = Chains(self.penalty, site, cavity, effort.chains, rng)
        for _ in chains.visits(effort.burn, learn=True):
            pass
        visits = list(chains.visits(effort.sweeps, learn=False))
        found = _moments(chains.density, visits)
        for _ in range(1, effort.most):
            if np.all(found.error <= effort.error * np.sqrt(np.diagonal(found.cov))):
                break
            visits += chains.visits(effort.sweeps, learn=False)
            found = _moments(chains.density, visits)
        if not np.linalg.eigvalsh(found.cov)[0] > 0:
            raise np.linalg.LinAlgError("too few draws for a covariance")
        return found

    def draw(
        self, site: SufficientStatistics, cavity: Natural, count: int, rng: np.random.Generator
    ) -> PosteriorDraws:
        """Return draws of (theta_k, phi), chain after chain. Raises `LinAlgError` on failure."""
        effort = self.effort
        kept = -(-count // effort.chains)
        chains = Chains(self.penalty, site, cavity, effort.chains, rng)
        for _ in chains.visits(effort.burn, learn=True):
            pass
        visits = list(chains.visits(kept * effort.thin, learn=False))[:: effort.thin]
        theta, phi = (
            np.swapaxes(np.array(values), 0, 1).reshape(-1, values[0].shape[-1])[:count]
            for values in ([visit.theta for visit in visits], [visit.phi for visit in visits])
        )
        return PosteriorDraws(theta, phi)


def _moments(density: Density, visits: list[ChainState]) -> TiltedMoments:
    phi = np.array([visit.phi for visit in visits])
    sizes = _stacked([visit.sizes for visit in visits])
    mixing = _stacked([visit.mixing for visit in visits])
    z = np.concatenate([phi, np.log(sizes.second)[..., None] / 2], axis=-1)
    control = [
        controls(density.joint_slope(phi, sizes), z, tuple(range(z.shape[-1]))),
        controls(density.given_w_slope(phi, mixing), phi, SAMPLED_COMPONENTS),
    ]
    return moments(phi, np.concatenate(control, axis=-1))


def _stacked(items: list[Part]) -> Part:
    """Stack dataclasses of arrays (chains,) into one dataclass of arrays (visits, chains)."""
    return type(items[0])(*(np.array(parts) for parts in zip(*map(astuple, items), strict=True)))
