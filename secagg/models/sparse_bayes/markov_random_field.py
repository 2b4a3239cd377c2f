"""Federated sparse Markov random fields (Kidd, Wang, Xu and Ni, PSB 2023, section 2.3).

Neighbourhood selection (Meinshausen and Bühlmann 2006): each column is regressed on all others by
federated sparse regression, all p regressions in one round's contribution. In a Gaussian field with
precision matrix Omega the coefficients of column j are -Omega_j,h / Omega_jj: column h is a
neighbour of j where its coefficient is not zero. (The paper's text has the sign lost, and "if and
only if omega = 0" where it is "not 0".) So PIP_jh is the probability of the edge as seen from j;
the two sides of an edge need not agree, and both are reported.

An edge is in the graph by the "union" of the two sides (the larger PIP) or their "intersection"
(the smaller). Which PIPs are edges is decided by the Bayesian false discovery rate (Müller,
Parmigiani and Rice 2006): the largest set, from the highest PIP down, whose mean of 1 - PIP is at
most `fdr`.

What the transcript determines, and the edge cases, are those of
`secagg.models.sparse_bayes.regression`, of each column on the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    Disclosure,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    State,
    TableKind,
)
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.common.posterior_summary import summarise
from secagg.models.common.variables import choose
from secagg.models.sparse_bayes.base import kept_draws
from secagg.models.sparse_bayes.linear_rounds import SparseLinear
from secagg.models.sparse_bayes.result import (
    LABELS,
    arrays_of,
    beside,
    check_share,
    coefficient,
    linear_disclosure,
)
from secagg.models.sparse_bayes.sums import Design


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

    @property
    def title(self) -> str:
        """By its step."""
        return "Sparse Markov random field" + (
            "" if self.step == "collapsed" else f", step “{self.step}”"
        )

    @property
    def disclosure(self) -> Disclosure:
        """What the sums determine, by its step."""
        return linear_disclosure(collapsed=self.step == "collapsed")

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        """Return that of a graph."""
        return (ResultTable(self.title, TableKind.POSTERIOR_GRAPH, LABELS),)

    def columns(self, public: PublicFacts) -> NDArray[np.int64]:
        """Return the positions of the field's columns."""
        if self.variables is None:
            return np.arange(len(public.variables))
        return choose(public, self.variables, "method.variables")

    def design(self, public: PublicFacts) -> Design:
        """Return the regressions of each column on all others."""
        p = len(self.columns(public))
        if p < 2:
            raise JobError("method.variables", "a field needs at least two variables")
        others = np.array([[h for h in range(p) if h != j] for j in range(p)])
        return Design(np.arange(p), others)

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return every pair with its two sides and whether it is an edge, and the draws."""
        kept = kept_draws(state)
        names, design = state["columns"], self.design(public)
        found = {name: summarise(kept[name], self.level) for name in ("theta", "inclusion")}
        at = (np.arange(len(names))[:, None], design.predictors)
        pip, mean, sd = (np.zeros((len(names), len(names))) for _ in range(3))
        pip[at], mean[at] = found["inclusion"].mean, found["theta"].mean
        sd[at] = found["theta"].sd
        both = np.maximum(pip, pip.T) if self.combine == "union" else np.minimum(pip, pip.T)
        edges = np.zeros_like(both, dtype=bool)
        upper = np.triu_indices(len(names), 1)
        edges[upper] = discoveries(both[upper], self.fdr)
        side = {
            (j, h): {
                "outcome": names[j],
                "predictor": names[h],
                **coefficient(found["theta"], found["inclusion"], (j, i)),
            }
            for j, others in enumerate(design.predictors.tolist())
            for i, h in enumerate(others)
        }
        pairs = [
            {
                "between": [names[i], names[j]],
                "pip": float(both[i, j]),
                "edge": bool(edges[i, j]),
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
            **beside(self, state, kept, found, labels),
        }
        drawn = arrays_of(kept, own_eta=self.own_eta)
        matrices = {"pip": pip, "mean": mean, "sd": sd, "edges": edges | edges.T}
        return Result(summary, {"predictors": design.predictors, **matrices, **drawn})

    def _check(self) -> None:
        super()._check()
        check_share("level", self.level)
        check_share("fdr", self.fdr)


def partial_correlation(one: float, other: float) -> float | None:
    """Return the partial correlation that two coefficients of a pair mean; None if signs differ.

    In a Gaussian field they are r sqrt(v) and r / sqrt(v), v the ratio of the two columns'
    variances given all others: r is their geometric mean. Of posterior means, which are shrunken,
    it is a shrunken one.
    """
    if one * other <= 0:
        return None
    return float(np.sign(one) * min(np.sqrt(one * other), 1.0))


def expected_fdr(pip: Array) -> float | None:
    """Return the mean of 1 - PIP over the edges, None where there are none."""
    return float(np.mean(1 - pip)) if pip.size else None


def discoveries(pip: Array, rate: float) -> NDArray[np.bool_]:
    """Return which of the PIPs are discoveries at the Bayesian false discovery rate."""
    order = np.argsort(-pip, kind="stable")
    expected = np.cumsum(1 - pip[order]) / np.arange(1, len(pip) + 1)
    taken = np.zeros(len(pip), dtype=bool)
    taken[order[expected <= rate]] = True
    return taken
