"""Settings and facts that all FedLin methods share, and the regression that they describe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from secagg.contracts import (
    NO_WINDOWS,
    EqualWeights,
    MethodFacts,
    MomentsOnly,
    PublicFacts,
    Regression,
    Result,
    SingleRecords,
    State,
)
from secagg.errors import JobError
from secagg.models.common.checks import check_numbers
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.fedlin.design import Intercept, Layout, Scale
from secagg.models.fedlin.site import HoldoutRule


@dataclass(frozen=True, kw_only=True)
class FedLinSettings(ABC):
    """Settings that all FedLin methods have."""

    outcome: str
    """The outcome: a continuous, count or binary column, or one variable such as `ward=other`."""
    predictors: tuple[str, ...] | None = None
    """The predictors. If it is not set: all other columns. If the outcome is one indicator of a
    categorical column, the other indicators of that column are left out."""
    degree: int = 1
    """If it is above 1, powers of a single predictor up to this degree are used, at most 12. The
    predictor is first scaled so that its public bounds become 0 and 1."""
    intercept: Intercept = "site"
    """`"site"`: each site has its own intercept and centres its records. `"modelled"`: the
    intercept is a coefficient like the others. `"none"`: there is no intercept; this requires
    `scale = "own"`."""
    scale: Scale = "pooled"
    """`"pooled"`: columns are divided by their pooled standard deviations, which are released.
    `"own"`: columns keep their own units, as in the paper."""
    variance: Literal["pooled", "site"] = "pooled"
    """The residual variance that `fedlin_hm1`, and `fedlin_hm2` with prior `"normal"`, estimate
    before the fit: one for all sites (`"pooled"`), or one for each site (`"site"`). With `"site"`,
    it is shrunk to the pooled variance as if by four more records."""
    noise_sd: float | None = None
    """The residual standard deviation in the outcome's unit, above 0, if it is known. If it is not
    set, it is estimated."""
    holdout: float = 0.0
    """Share of each site's records that is held out to measure prediction errors, from 0 to below
    1. If it is above 0, a site with at least two records holds out at least one. Without noise, a
    site's rules may require more."""
    holdout_rows: HoldoutRule = "random"
    """Which records are held out: drawn at random by each site, or the last of its file."""

    @property
    def facts(self) -> MethodFacts:
        """A regression at each site, from the site's moments unless settings need its records."""
        columns = None if self.predictors is None else frozenset((self.outcome, *self.predictors))
        reason = self.needs_records
        return MethodFacts(
            derivation=type(self).__module__,
            weights=EqualWeights(
                "A site's contribution is a function of its moments or, with batches and held-out "
                "records, of the moments of records that the site chooses."
            ),
            reads=SingleRecords(reason=reason, repeatable=False, moments_with_other_settings=True)
            if reason
            else MomentsOnly(knows_noise=self.knows_noise),
            windows=NO_WINDOWS,
            named_code=(),
            network=False,
            regression=Regression(GAUSSIAN, columns, self.outcome, self.own_at_sites),
            edge_rule=None,
            site_result=self.site_result,
        )

    @property
    def own_at_sites(self) -> bool:
        """Whether each site has its own coefficients: yes, if the method does not say otherwise."""
        return True

    @property
    def knows_noise(self) -> bool:
        """Whether the method uses the likelihood of `hierarchies.noisy_likelihood`."""
        return False

    @property
    def needs_records(self) -> str:
        """Why moments are not enough: single records are held out, or transformed."""
        if self.holdout:
            return "has a holdout of single records"
        return "has powers of a column" if self.degree > 1 else ""

    @abstractmethod
    def site_result(self, memory: State, public: PublicFacts) -> Result | None:
        """Return a site's own result. memory: after its last `contribute`."""

    def layout(self, public: PublicFacts) -> Layout:
        return Layout.of(public, self.outcome, self.predictors, self.intercept, self.degree)

    def check_settings(self, *, uses_noise: bool) -> None:
        """Raise `JobError` for a setting that is out of range, or that the method does not use."""
        check_numbers(self, {"holdout": 0})
        if not 0 <= self.holdout < 1:
            raise JobError("method.holdout", "must be from 0 to below 1: 0.2 is a fifth")
        if self.noise_sd is not None and not 1e-9 <= self.noise_sd <= 1e9:
            raise JobError("method.noise_sd", "must be positive, from 1e-9 to 1e9")
        for name, unset in (("noise_sd", None), ("variance", "pooled")):
            if not uses_noise and getattr(self, name) != unset:
                what = "is not used: this method does not estimate a residual variance beforehand"
                raise JobError(f"method.{name}", what, "Leave it out.")
        if self.intercept == "none" and self.scale == "pooled":
            what = 'is "none", and "pooled" units have the pooled mean for their origin'
            raise JobError("method.intercept", what, 'Take scale = "own", or another intercept.')

    def outcome_range(self, layout: Layout) -> float:
        """Return the largest |y| / half: y is taken from the origin, or from a mean."""
        if self.scale == "own" and layout.intercept == "none":
            return float(np.abs(layout.own_units[0][0])) + 1
        return 2.0
