"""Gradient steps that sites take between two rounds of HM1 and FedAvg.

Yue, Al Kontar and Estrada Gomez (2022), Algorithm 1. Here eta_k = step / (largest eigenvalue of the
site's X'X). So every site's steps are stable, for any number of records and any units of its
columns. In the paper all sites have the same eta, which would have to be small enough for the
largest site.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from secagg.contracts import PublicFacts, Result, State
from secagg.contracts.noise import Placements
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.common.checks import check_numbers
from secagg.models.fedlin.base import FedLinModel
from secagg.models.fedlin.gradient_steps import batch_steps
from secagg.models.fedlin.participation import Participation
from secagg.models.fedlin.result import own_summary
from secagg.models.fedlin.round import Round
from secagg.models.fedlin.site import Site


@dataclass(frozen=True, kw_only=True)
class LocalSteps(Participation, FedLinModel):
    """A FedLin method whose sites take gradient steps in a round."""

    steps: int = 20
    """Number of gradient steps of a site in a round (T in the paper)."""
    step: float = 0.5
    """Step size as a share of the largest stable one, above 0 and below 1: eta = `step` / (largest
    eigenvalue of X'X). The gradient is that of the sum of squares, without the factor 1/n."""
    batch: int | None = None
    """Number of records for one gradient step, drawn anew for each step. If it is not set: all
    records."""

    placements: ClassVar[Placements] = Placements.site_moments("batch, holdout or degree")

    @property
    def needs_records(self) -> str:
        return super().needs_records or ("draws batches of records" if self.batch else "")

    def site_result(self, memory: State, public: PublicFacts) -> Result | None:
        return own_summary(self, memory, public)

    def check_steps(self) -> None:
        """Raise `JobError` for settings out of range."""
        check_numbers(self, {"rounds": 1, "tolerance": 0, "steps": 1})
        if self.batch is not None:
            check_numbers(self, {"batch": 1})
        if not 0 < self.step < 1:
            raise JobError("method.step", "must be above 0 and below 1")
        self.check_participation()

    def eta(self, site: Site) -> float:
        """Return the site's step size; 0 without records that vary."""
        return self.step / site.shape.steepest if site.shape.steepest > 0 else 0.0

    def stepped(self, site: Site, theta: Array, now: Round) -> Array:
        """Return theta after a round's steps; a batch's gradient is multiplied by n / b."""
        eta = self.eta(site)
        if self.batch is None or self.batch >= site.records:
            return site.shape.stepped(theta, eta, self.steps)
        X, y = now.layout.design(now.values, now.centre, now.scale)
        X, y = X - site.level.x, y - site.level.y
        share = site.records / self.batch
        return batch_steps(X, y, theta, eta, self.steps, self.batch, share, now.rng)
