"""Settings that all federated sparse Bayesian models share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from secagg.errors import JobError
from secagg.models.common.disclosures import CENTRES_WITHIN_SITES
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.spike_slab import SpikeSlab


@dataclass(frozen=True, kw_only=True)
class SparseSettings:
    """Settings of the sampler."""

    chains: int = 4
    """Number of independent chains, which run at once in the same rounds. At least 2, so that they
    can be compared."""
    rounds: int = 4000
    """Number of rounds of each chain, at least 8. All of them are run."""
    warmup: int | None = None
    """Number of first rounds whose draws are discarded. At least 4 draws must remain. If it is not
    set: half of `rounds`."""
    sweeps: int = 1
    """Number of sweeps of each site in a round, at least 1 (L in the paper). More sweeps take the
    sites more time, but need no further messages."""
    thin: int = 1
    """Keep every `thin`-th draw after warmup."""
    scale: Literal["pooled", "site"] = "pooled"
    """`"pooled"`: divide columns by their pooled standard deviations within sites, which are
    released. `"site"`, as in the paper: divide them by each site's own standard deviations, which
    are not released. Coefficients in the columns' own units are then not available."""
    own_eta: bool = False
    """If true, each coefficient has its own slab variance, as in the paper's prior. If false, all
    share one, as in the paper's algorithm."""
    spike_ratio: float = 0.01
    """c0: the variance of the spike divided by the variance of the slab, above 0 and below 1. The
    default is the paper's."""
    slab_shape: float = 1.0
    """a_eta: shape of the slab variance's inverse gamma prior, above 0."""
    slab_scale: float = 1.0
    """b_eta: scale of the slab variance's inverse gamma prior, above 0, in squared units
    analysed."""
    rho_a: float = 1.0
    """a_rho: first parameter of the beta prior of the slab's probability, above 0."""
    rho_b: float = 1.0
    """b_rho: second parameter of the beta prior of the slab's probability, above 0."""
    noise_shape: float = 1.0
    """a_sigma: shape of the noise's inverse gamma prior, above 0. For `sparse_directed`, of the
    error scale b_kj."""
    noise_scale: float = 1.0
    """b_sigma: scale of the noise's inverse gamma prior, above 0. For `sparse_directed`, of the
    error scale b_kj."""
    lambda_floor: float = 1e-4
    """Smallest value of lambda, above 0, in the sums of 1 / lambda^2 that sites send. Smaller
    values are replaced by it, because these sums must have a bound."""
    seed: int = 0
    """Seed of the coordinator's random draws, which all sites see anyway. The sites' own draws use
    the operating system's random numbers."""

    unknown_settings: ClassVar[Mapping[str, str]] = CENTRES_WITHIN_SITES

    shares: ClassVar[tuple[str, ...]] = ("level",)
    """The settings that must be between 0 and 1."""

    @property
    def if_chains_disagree(self) -> str:
        """What a user should do then."""
        return "Increase method.rounds."

    def constants(self, records: int) -> SpikeSlab:
        """Return the constants of the coordinator's prior; records: at all sites."""
        return SpikeSlab(
            self.spike_ratio, self.slab_shape, self.slab_scale, self.rho_a, self.rho_b, self.own_eta
        )

    def check_spike(self, prior: str) -> None:
        """Raise `JobError` for a `spike_ratio` that this `prior` does not read."""
        default = type(self).__dataclass_fields__["spike_ratio"].default
        if prior != "paper" and self.spike_ratio != default:
            what = f"has no effect with prior = {prior!r}, whose spike has a fixed variance"
            raise JobError("method.spike_ratio", what, 'Leave it out, or set prior = "paper".')

    @cached_property
    def noise(self) -> NoisePrior:
        return NoisePrior(self.noise_shape, self.noise_scale)

    @property
    def discarded(self) -> int:
        """Number of warmup rounds."""
        return self.rounds // 2 if self.warmup is None else self.warmup

    @property
    def recorded_rounds(self) -> int:
        """Number of rounds after warmup."""
        return self.rounds - self.discarded
