"""Federated sparse Markov random fields (Kidd, Wang, Xu and Ni, PSB 2023, section 2.3).

The method is neighbourhood selection (Meinshausen and Bühlmann 2006). Federated sparse regression
regresses each of the p columns on all others. One contribution serves all p regressions of a round.
In a Gaussian field with precision matrix Omega, the coefficient of column h in the regression of
column j is -Omega_j,h / Omega_jj. Column h is a neighbour of j if this coefficient is not zero.
(The paper's text omits the sign, and has "if and only if omega = 0" instead of "not 0".) So PIP_jh
is the probability of the edge in the regression of j. The regressions of j and of h may disagree
about an edge, and results have both probabilities.

An edge has the larger of its two PIPs ("union") or the smaller ("intersection"). Edges are selected
by the Bayesian false discovery rate (Müller, Parmigiani and Rice 2006): the largest set of edges
with the highest PIPs whose mean of 1 - PIP is at most `fdr`.

For what the transcript determines, and for edge cases, see
`secagg.models.sparse_bayes.regression`, applied to each column on the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    State,
    TableKind,
)
from secagg.contracts.noise import Placements
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.common.posterior_summary import summarise
from secagg.models.common.variables import choose
from secagg.models.sparse_bayes.base import recorded_draws
from secagg.models.sparse_bayes.linear_rounds import SparseLinear
from secagg.models.sparse_bayes.result import (
    LABELS,
    coefficient,
    draw_arrays,
    summary_fields,
    undecided,
    with_note_on_undecided,
)
from secagg.models.sparse_bayes.sums import Design

NOT_JUDGED = (
    "which edges are found depends on the prior and the number of sites as well as on the noise; "
    "with few sites the prior rarely includes an edge; try it with simulated records"
)
"""Why the plan has no verdict (docs/math/graphs-under-noise.md#the-plan)."""
ADVICE = (
    " Method sparse_regression of one of the two columns on all others has another default prior, "
    "which finds such effects more often."
)


@dataclass(frozen=True, kw_only=True)
class SparseMarkov(SparseLinear):
    """A Markov random field."""

    variables: tuple[str, ...] | None = None
    """The columns of the graph, at least two. If it is not set, all columns."""
    combine: Literal["union", "intersection"] = "union"
    """Inclusion probability of a pair: the larger of its two sides (`"union"`) or the smaller
    (`"intersection"`)."""
    fdr: float = 0.1
    """Bayesian false discovery rate of the edges, between 0 and 1."""
    level: float = 0.95
    """Level of the posterior intervals, between 0 and 1."""

    name: ClassVar[str] = "sparse_markov"
    edge_rule: ClassVar[str] = NOT_JUDGED
    placements: ClassVar[Placements] = Placements.site_moments()
    model_name: ClassVar[str] = "Sparse Markov random field"
    shares: ClassVar[tuple[str, ...]] = ("level", "fdr")

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title, TableKind.POSTERIOR_GRAPH, LABELS),)

    def columns(self, public: PublicFacts) -> NDArray[np.int64]:
        return choose(public, self.variables, "method.variables")

    def design(self, public: PublicFacts) -> Design:
        p = len(self.columns(public))
        if p < 2:
            raise JobError("method.variables", "a field needs at least two variables")
        others = np.array([[h for h in range(p) if h != j] for j in range(p)])
        return Design(np.arange(p), others)

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return every pair with its two sides and whether it is an edge, and the draws."""
        draws = recorded_draws(state)
        names, design = state["columns"], self.design(public)
        posteriors = {name: summarise(draws[name], self.level) for name in ("theta", "inclusion")}
        at = (np.arange(len(names))[:, None], design.predictors)
        pip, mean, sd = (np.zeros((len(names), len(names))) for _ in range(3))
        pip[at], mean[at] = posteriors["inclusion"].mean, posteriors["theta"].mean
        sd[at] = posteriors["theta"].sd
        both = np.maximum(pip, pip.T) if self.combine == "union" else np.minimum(pip, pip.T)
        edges = np.zeros_like(both, dtype=bool)
        upper = np.triu_indices(len(names), 1)
        edges[upper] = discoveries(both[upper], self.fdr)
        side = {
            (j, h): {
                "outcome": names[j],
                "predictor": names[h],
                **coefficient(posteriors["theta"], posteriors["inclusion"], (j, i)),
            }
            for j, others in enumerate(design.predictors.tolist())
            for i, h in enumerate(others)
        }
        pairs: list[dict[str, Any]] = [
            {
                "between": [names[i], names[j]],
                "pip": float(both[i, j]),
                "edge": bool(edges[i, j]),
                "undecided": undecided(bool(edges[i, j]), (side[i, j], side[j, i])),
                "partial_correlation": partial_correlation(float(mean[i, j]), float(mean[j, i])),
                "sides": [side[i, j], side[j, i]],
            }
            for i, j in sorted(combinations(range(len(names)), 2), key=lambda ij: -both[ij])
        ]
        labels = [f"{row['predictor']!r} as seen from {row['outcome']!r}" for row in side.values()]
        summary = {
            "method": f"sparse-markov-{self.step}",
            "names": list(names),
            "level": self.level,
            "combine": self.combine,
            "fdr_at_most": self.fdr,
            "expected_fdr": expected_fdr(both[edges]),
            "pairs": pairs,
            **summary_fields(self, state, draws, posteriors, labels),
        }
        undecided_pairs = [
            f"{' - '.join(map(repr, pair['between']))} (PIP {pair['pip']:.2f})"
            for pair in pairs
            if pair["undecided"]
        ]
        summary = with_note_on_undecided(summary, undecided_pairs, ADVICE)
        drawn = draw_arrays(draws, own_eta=self.own_eta)
        matrices = {"pip": pip, "mean": mean, "sd": sd, "edges": edges | edges.T}
        return Result(summary, {"predictors": design.predictors, **matrices, **drawn})


def partial_correlation(one: float, other: float) -> float | None:
    """Return the partial correlation from the two coefficients of a pair; None if signs differ.

    In a Gaussian field the coefficients are r sqrt(v) and r / sqrt(v), v the ratio of the two
    columns' variances given all others: r is their geometric mean. Posterior means are shrunken,
    so the result is too.
    """
    if one * other <= 0:
        return None
    return float(np.sign(one) * min(np.sqrt(one * other), 1.0))


def expected_fdr(pip: Array) -> float | None:
    """Return the mean of 1 - PIP over the edges; None without edges."""
    return float(np.mean(1 - pip)) if pip.size else None


def discoveries(pip: Array, rate: float) -> NDArray[np.bool_]:
    """Return which of the PIPs are discoveries at the Bayesian false discovery rate."""
    order = np.argsort(-pip, kind="stable")
    expected = np.cumsum(1 - pip[order]) / np.arange(1, len(pip) + 1)
    selected = np.zeros(len(pip), dtype=bool)
    selected[order[expected <= rate]] = True
    return selected
