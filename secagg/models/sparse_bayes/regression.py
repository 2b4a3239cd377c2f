"""Federated sparse Bayesian regression (Kidd, Wang, Xu and Ni, PSB 2023, section 2.2).

One outcome is regressed on many predictors at every site. Each site has its own coefficients. A
horseshoe prior shrinks them towards common coefficients. Each common coefficient has a
spike-and-slab prior: in the spike it is nearly 0, in the slab it is not. Results have the
probability of the slab, the posterior inclusion probability (PIP). See
`secagg.models.sparse_bayes.horseshoe` for a site's computation,
`secagg.models.sparse_bayes.spike_slab` for the coordinator's, and `secagg.models.sparse_bayes.base`
for the settings.

What the transcript determines (Guarantees: only this)
    * The number of records and, with scale = "pooled", columns' pooled variances within sites.
    * `collapsed`: in each round, for each chain, SUM P_k and SUM r_k, where P_k is
      X'(s I + X W X')^-1 X of a site with its own random s_k and w_k. The mean of such sums over
      rounds is a smooth function of the sites' X'X and X'y. P_k is small if w_k is large, and
      nearly X'X / s_k if w_k is small. Over many rounds the sums reveal the pooled X'X and X'y
      about as exactly as one sum of moments would, and part of how they are split over sites.
    * `paper`: sums of 1/l, d/l and d^2/l, functions of the sites' draws. If a site has much data,
      its draws are centred near its own least squares. So over many rounds the sums reveal sums of
      functions of the sites' least squares.
    A site keeps to itself: theta_k, s_k, lambda_k, and its number of records.

Not protected: against a coordinator that sends other values than those that
`secagg.models.sparse_bayes.spike_slab` draws. If it sends t near 0 for some rounds, every theta_k
is close to theta. If it then sends a huge theta_j, every site whose column j varies draws a huge
s_k, and its contribution to the sum is nearly 0. If column j is constant at one site, the sum is
then that site's X'X / s_k and X'y / s_k. Such messages could also come from an unlucky chain, so
sites cannot detect them. Sites refuse only a scale that the columns cannot have, and numbers beyond
fixed limits.

===============================  ===================================================================
site                             contribution
===============================  ===================================================================
no record, or one                X'X = 0: it draws from the prior, given theta
fewer records than predictors    X'X is singular; (7) of `secagg.models.sparse_bayes.horseshoe`
                                 allows that
a column that is constant there  zeros in X'X: its coefficient there is drawn given theta alone
predictors that are collinear    the prior decides between them; R-hat and ESS show how well
a column constant everywhere     with scale = "pooled" an error names it
a theta or t that is not finite  `PeerError`, nothing is sent
===============================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    PublicFacts,
    RecordCount,
    Regression,
    Result,
    ResultTable,
    State,
    TableKind,
)
from secagg.contracts.noise import Placements
from secagg.errors import JobError
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.common.posterior_summary import summarise
from secagg.models.common.variables import choose, halves
from secagg.models.sparse_bayes.base import recorded_draws
from secagg.models.sparse_bayes.linear_rounds import SparseLinear
from secagg.models.sparse_bayes.result import (
    LABELS,
    coefficient,
    draw_arrays,
    summary_fields,
)
from secagg.models.sparse_bayes.spike_slab import SpikeSlab, calibrated
from secagg.models.sparse_bayes.sums import Design


@dataclass(frozen=True, kw_only=True)
class SparseRegression(SparseLinear):
    """Sparse regression of one column."""

    outcome: str
    """The outcome: a continuous, count or binary column, or one variable such as `ward=other`."""
    predictors: tuple[str, ...] | None = None
    """The predictors. If it is not set: all other columns. There is no intercept, because each site
    centres its records."""
    level: float = 0.95
    """Level of the posterior intervals, between 0 and 1."""
    prior: Literal["calibrated", "paper"] = "calibrated"
    """`"calibrated"`: the spike has a fixed variance of 0.1 / n for n records of all sites, and the
    prior of the spread between sites has the scale 0.05. `"paper"`: the spike has the variance
    `spike_ratio` times that of the slab, and the spread's prior has the scale 1."""

    name: ClassVar[str] = "sparse_regression"
    placements: ClassVar[Placements] = Placements.site_moments()
    model_name: ClassVar[str] = "Sparse Bayesian regression"

    @property
    def regression(self) -> Regression:
        columns = None if self.predictors is None else frozenset((self.outcome, *self.predictors))
        return Regression(GAUSSIAN, columns, self.outcome)

    def constants(self, records: int) -> SpikeSlab:
        """Return the constants of the coordinator's prior: docs/math/spike-and-slab.md."""
        paper = super().constants(records)
        return paper if self.prior == "paper" else calibrated(paper, records)

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title, TableKind.POSTERIOR, LABELS),)

    def columns(self, public: PublicFacts) -> NDArray[np.int64]:
        outcome = choose(public, [self.outcome], "method.outcome")
        if len(outcome) != 1:
            raise JobError("method.outcome", f"{self.outcome!r} has more than one variable")
        if self.predictors is None:
            column = public.variables[outcome[0]].column  # indicators of one column add up to 1
            others = [i for i, other in enumerate(public.variables) if other.column != column]
            if not others:
                raise JobError("columns", "the outcome is the only column", "Declare predictors.")
            return np.array([int(outcome[0]), *others], dtype=np.int64)
        chosen = choose(public, self.predictors, "method.predictors", self.outcome)
        return np.concatenate([outcome, chosen])

    def design(self, public: PublicFacts) -> Design:
        self.check_spike(self.prior)
        q = len(self.columns(public)) - 1
        return Design(np.array([0]), np.arange(1, q + 1)[None, :])

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return coefficients in standardised and in the columns' own units, and the draws."""
        draws = {name: values[:, :, 0] for name, values in recorded_draws(state).items()}
        terms = state["columns"][1:]
        posteriors = {name: summarise(draws[name], self.level) for name in ("theta", "inclusion")}
        table = [
            {"term": term, **coefficient(posteriors["theta"], posteriors["inclusion"], (j,))}
            for j, term in enumerate(terms)
        ]
        outcome_facts: dict[str, Any] = {"outcome": self.outcome}
        if self.scale == "pooled":
            deviation = halves(public, self.columns(public)) / state["scale"]
            outcome_facts["outcome_deviation"] = float(deviation[0])
            for row, predictor_deviation in zip(table, deviation[1:], strict=True):
                row |= {
                    "deviation": float(predictor_deviation),
                    "own_units": _rescaled(row, deviation[0] / predictor_deviation),
                }
        summary = {
            "method": f"sparse-regression-{self.step}",
            **outcome_facts,
            "level": self.level,
            "coefficients": table,
            **summary_fields(self, state, draws, posteriors, [repr(term) for term in terms]),
        }
        return Result(summary, draw_arrays(draws, own_eta=self.own_eta))


def _rescaled(row: Mapping[str, Any], factor: float) -> dict[str, float | None]:
    """Return a coefficient's numbers that have a unit, in the columns' own units."""
    return {
        name: None if row[name] is None else float(factor * row[name])
        for name in ("mean", "sd", "low", "high", "mcse_mean")
    }
