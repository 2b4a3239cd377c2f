"""FedAvg and Ditto for linear regression: one model for all sites, or one near it for each site.

McMahan, Moore, Ramage, Hampson and y Arcas (AISTATS 2017), algorithm 1; Li, Hu, Beirami and Smith
(ICML 2021), equation (Ditto); Yue, Al Kontar and Estrada Gomez (2022), section 6.2, compare both
with their methods. In each round the coordinator sends theta, a site that takes part makes T
gradient steps from it (`secagg.models.fedlin.gradient_steps`). The next theta is the mean of the
sites' results, weighted by records or (as in Yue and others) equally. With `personal` = lambda,
each site at the end computes its own coefficients

    v_k = argmin |y_k - X_k v|^2 / (2 n_k) + lambda / 2 |v - theta|^2                            (1)

in closed form. `personal` does not change theta, so one run gives both theta and all v_k.

If T > 1 and sites differ, FedAvg in general does not converge to pooled least squares (Li and
others, ICLR 2020, "On the convergence of FedAvg on non-iid data", section 4).

If all sites take part with all records, every round applies the same symmetric affine map to theta.
Let r be the ratio of the last two steps. In later rounds, each step is at least r times the step
before. The change still to come, `remaining`, is therefore estimated by the sum of a geometric
series, change r / (1 - r). If only some sites take part, or some records, there is no estimate,
because steps also depend on chance.

What the transcript determines (Guarantees: only this)
    * The number of records and, with pooled units, the columns' pooled means and standard
      deviations. At the end: how many sites have records, and sums over these sites of
      coefficients, their squares, and squared prediction errors.
    * T steps with all records are an affine map of theta. Sites keep no state, so the sums of d + 1
      rounds determine the mean of the sites' maps. This mean depends on how records are split
      over sites. Further rounds reveal nothing beyond it. With batches, the sums depend on the
      sites' random choices. With participation below 1, each sum is over a different set of sites.
      If a single site takes part in a round, the sum is that site's contribution
      (`secagg.models.fedlin.participation`), and the weight reveals its number of records.

==============================  ====================================================================
site                            contribution
==============================  ====================================================================
no record                       weight 0
did not take part in a round    weight 0; if no site takes part, theta does not change
coefficients out of range       `DataError`, nothing is sent: the method diverges
a theta that is not finite      `PeerError`, nothing is sent
==============================  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from secagg.contracts import (
    ANY_MESSAGE,
    Body,
    Disclosure,
    DisclosureKind,
    Field,
    Kind,
    PublicFacts,
    RecordCount,
    Result,
    Stage,
    State,
    Update,
)
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.fedlin.base import FINISH, ROUNDS
from secagg.models.fedlin.descriptions import seen_by_subtraction
from secagg.models.fedlin.local_steps import LocalSteps
from secagg.models.fedlin.participation import SINGLE_SITE_ROUNDS_NOTE
from secagg.models.fedlin.result import convergence, joined, summary
from secagg.models.fedlin.round import FIELD_BOUND, FRACTION_BITS, Round, within_range
from secagg.models.fedlin.site import Site

_ROUNDING = 1e-12  # smaller changes are rounding errors


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalSteps):
    """FedAvg and Ditto."""

    rounds: int = 30
    """Largest number of rounds."""
    tolerance: float = 0.0
    """If the common coefficients change by less than this in a round, relative to their size, the
    rounds end."""
    weights: Literal["records", "equal"] = "records"
    """Weights of the sites in the average: their numbers of records (`"records"`), or equal weights
    as in FedLin's paper (`"equal"`)."""
    personal: float | None = None
    """Lambda of Ditto, above 0. Site k then also has its own coefficients v_k, which minimise |y_k
    - X_k v|^2 / (2 n_k) + lambda/2 |v - theta|^2 for n_k records and the common coefficients theta.
    If it is not set: FedAvg only."""

    name: ClassVar[str] = "fedavg"
    needs_noise: ClassVar[bool] = False

    @property
    def title(self) -> str:
        return f"{'FedAvg' if self.personal is None else 'Ditto'} regression"

    @property
    def disclosure(self) -> Disclosure:
        batches = (
            " With batches the average also depends on a random choice of records."
            if self.batch
            else ""
        )
        return Disclosure(
            DisclosureKind.SITES,
            "How a site's gradient steps change the coefficients, on average over the sites. "
            "This average depends on how records are split over sites, so it may show something "
            "about single sites. The rounds show nothing beyond it."
            f"{batches} At the end, sums over sites of "
            f"{'their own ' if self.personal else ''}coefficients, of their squares if there are "
            "more than two sites, and of prediction errors."
            f"{SINGLE_SITE_ROUNDS_NOTE if self.participation < 1 else ''}",
            ANY_MESSAGE,
            other_runs=seen_by_subtraction(self.intercept),
        )

    @property
    def own_at_sites(self) -> bool:
        return self.personal is not None

    @property
    def short(self) -> str:
        return "fedavg" if self.personal is None else "ditto"

    @property
    def models(self) -> tuple[str, ...]:
        others = super().models
        return others if self.personal is None else (*others, "fedavg")

    def fitted(self, site: Site, own: State) -> list[Array]:
        others = super().fitted(site, own)
        return others if self.personal is None else [*others, own["common"]]

    def round_stage(self, public: PublicFacts) -> Stage:
        self.check_steps()
        if self.personal is not None and not 1e-9 <= self.personal <= 1e9:
            raise JobError("method.personal", "must be positive, from 1e-9 to 1e9")
        spec = (
            Field("weight", (1,), 1.0, FRACTION_BITS, Kind.WEIGHT),
            Field("theta", (self.layout(public).d,), FIELD_BOUND, FRACTION_BITS, Kind.BOUNDED),
        )
        sees = "the weighted mean of the coefficients that sites reach from those it sent"
        stage = Stage(ROUNDS, spec, self.rounds, sees)
        return replace(stage, few_records=self.batch or 0, few_sites=self.few_sites)

    def news(self, stage: str, public: PublicFacts) -> dict[str, tuple[int, ...]]:
        return {"theta": (self.layout(public).d,)}

    def begin(self, public: PublicFacts) -> State:
        return {"theta": np.zeros(self.layout(public).d), "moved": 0.0}

    def sent(self, state: State) -> Body:
        return {"theta": state["theta"]}

    def begin_site(self, site: Site, now: Round, public: PublicFacts) -> State:
        return {}

    def site_contribution(
        self, site: Site, memory: State, now: Round, public: PublicFacts
    ) -> tuple[Update, State]:
        weight = float(self.takes_part(now.rng) and site.records > 0)
        if self.weights == "records":
            weight *= site.records / now.records
        theta = self.stepped(site, now.sent["theta"], now)
        update = {"weight": np.array([weight]), "theta": weight * theta}
        return within_range(update), memory

    def settled(self, site: Site, memory: State, now: Round, public: PublicFacts) -> State:
        """Return theta, or (1)."""
        theta = now.sent["theta"]
        if self.personal is None:
            return {"theta": theta}
        own = site.near(theta, self.personal * site.records) if site.records else theta
        return {"theta": own, "common": theta}

    def advance(self, state: State, total: Update, sites: int) -> State:
        weight, before = float(total["weight"][0]), state["theta"]
        theta = total["theta"] / weight if weight > 0 else before
        size, moved = float(np.linalg.norm(theta)), float(np.linalg.norm(theta - before))
        change = moved / size if size > 0 else None
        quiet = self.quiet(state["quiet"], change, self.tolerance)
        ended = quiet >= self.patience or state["round"] == self.rounds
        progress = {
            "change": change,
            "remaining": self._remaining(change, moved, state["moved"]),
            "moved": moved,
            "quiet": quiet,
        }
        return {**state, **progress, "theta": theta, "status": FINISH if ended else ROUNDS}

    def _remaining(self, change: float | None, moved: float, before: float) -> float | None:
        """Return the relative change still to come; None if two steps do not determine it."""
        if change is None or self.batch is not None or self.participation < 1:
            return None
        if change < _ROUNDING:
            return change
        return change * moved / (before - moved) if moved < before else None

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the common coefficients, and errors of predictions."""
        found = summary(self, state, public)
        ending = convergence(state, self.tolerance, self.patience, "more method.rounds")
        found = joined(found, ending)
        layout = self.layout(public)
        common = dict(zip(layout.terms, state["theta"].tolist(), strict=True))
        return Result({**found, "common": common, "personal": self.personal})
