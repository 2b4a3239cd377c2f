"""Settings of `fedlin_full`, and the checks of their ranges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from secagg.contracts import ChosenWeights, Family, MethodFacts, PublicFacts
from secagg.errors import JobError
from secagg.models.common.checks import check_numbers
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.common.variables import outcome_index
from secagg.models.fedlin.base import MIN_SITES, FedLinModel
from secagg.models.fedlin.full.families import FAMILIES, MAX_TERMS
from secagg.models.fedlin.full.hamiltonian import CHAINS
from secagg.models.fedlin.full.posterior import row_size

_MIN_POINTS = 64
_MAX_MESSAGE_VALUES = 2**22  # 32 MiB to each site


@dataclass(frozen=True, kw_only=True)
class FullSettings(FedLinModel):
    """The settings that `fedlin_full` has besides those of all FedLin methods."""

    family: Literal["gaussian", "binomial", "poisson"] = "gaussian"
    """The distribution of the outcome: `"gaussian"` is a linear regression, `"binomial"` a logistic
    one of a binary column, `"poisson"` one of a count with a log link. The last two need
    `intercept = "modelled"`."""
    rounds: int = 30
    """Largest number of rounds. Usually five to ten are needed."""
    tolerance: float = 0.001
    """Rounds end if no entry of Sigma moves by more, relative to the estimates' variances between
    sites."""
    sd_scale: float = 1.0
    """Scale of the half-t prior of each coefficient's standard deviation between sites, in the
    units analysed. The prior has 2 degrees of freedom; correlations are uniform."""
    points: int = 0
    """Number of draws, at least 64, usually 1000 and at most 16 times `draws`, at which sites add
    their exact likelihoods. 0 takes all sites' designs for equal in the posterior, which reveals
    less."""
    draws: int = 1000
    """Number of draws of each chain, of the shared parameters that sites get, and of each site's
    coefficients, at least 100."""
    level: float = 0.95
    """Probability of all intervals, between 0 and 1."""
    seed: int = 0
    """Seed of the coordinator's random draws, which all sites see anyway. The sites' own draws use
    the operating system's random numbers."""

    @property
    def needs_noise(self) -> bool:
        """The residual variance of a normal outcome is estimated before the rounds."""
        return self.family == "gaussian"

    @property
    def link(self) -> Family:
        return FAMILIES.get(self.family, GAUSSIAN)

    @property
    def needs_records(self) -> str:
        return super().needs_records or ("" if self.needs_noise else "has another family")

    @property
    def facts(self) -> MethodFacts:
        """Of other families, records weigh by the coefficients that the coordinator sends."""
        found = super().facts
        if self.needs_noise or found.regression is None:
            return found
        weights = ChosenWeights(
            "A message with a small covariance matrix makes a site's contribution the score and "
            "information of its records at coefficients that the coordinator chooses."
        )
        own = replace(found.regression, family=self.link)
        return replace(found, weights=weights, regression=own)

    def check_full(self, public: PublicFacts) -> None:
        """Raise `JobError` for a setting that is out of range, or too few sites."""
        check_numbers(self, {"rounds": 2, "tolerance": 0, "draws": 100, "points": 0, "seed": 0})
        if not 1e-6 <= self.sd_scale <= 1e6:
            raise JobError("method.sd_scale", "must be from 1e-6 to 1e6")
        if not 0 < self.level < 1:
            raise JobError("method.level", "must be above 0 and below 1: 0.9 is 90 %")
        if 0 < self.points < _MIN_POINTS:
            raise JobError("method.points", f"must be 0, or at least {_MIN_POINTS}")
        if self.points > CHAINS * self.draws:
            what = f"{self.points} are more than the {CHAINS * self.draws} draws of all chains"
            raise JobError("method.points", what, "Take fewer, or more method.draws.")
        if len(public.sites) < MIN_SITES:
            what = f"has {len(public.sites)} sites, and fedlin_full needs {MIN_SITES}"
            raise JobError("sites", what, "With two, each site's sums would show the other's.")
        if not self.needs_noise:
            self._check_family(public)
        size = row_size(self.layout(public).d)
        for name in ("points", "draws"):
            if getattr(self, name) * size > _MAX_MESSAGE_VALUES:
                what = f"with {size} numbers each is more than a message may hold"
                raise JobError(
                    f"method.{name}", what, f"Take at most {_MAX_MESSAGE_VALUES // size}."
                )

    def _check_family(self, public: PublicFacts) -> None:
        outcome_index(public, self.outcome, self.link.outcome, log=False)
        if self.intercept != "modelled":
            what = f'is "{self.intercept}", and family = "{self.family}" has no such intercept'
            raise JobError("method.intercept", what, 'Set intercept = "modelled".')
        if (d := self.layout(public).d) > MAX_TERMS:
            what = f'has {d} coefficients, and family = "{self.family}" at most {MAX_TERMS}'
            raise JobError("method.predictors", what, "Leave out some predictors.")
        if self.degree > 1:
            raise JobError("method.degree", f'must be 1 with family = "{self.family}"')
        if public.site_moments:
            what = "reads single records, so noise cannot be in moments"
            raise JobError("method.family", what, 'Take family = "gaussian".')
