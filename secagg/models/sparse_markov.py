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

What the transcript determines, and the edge cases, are those of `secagg.models.sparse_regression`,
of each column on the others.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Counted, Public, Result, State
from secagg.errors import JobError
from secagg.models.posterior import complaints, summarise
from secagg.models.sparse_linear import SparseLinear
from secagg.models.sparse_model import kept_draws
from secagg.models.sparse_rounds import Design
from secagg.models.variables import choose

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SparseMarkov(SparseLinear):
    """A Markov random field; the sampler's settings are those of `SparseLinear`.

    variables: columns of the field; None for all
    combine: "union" or "intersection" of the two sides of an edge
    fdr: Bayesian false discovery rate of the edges
    level: of the intervals
    """

    variables: tuple[str, ...] | None = None
    combine: Literal["union", "intersection"] = "union"
    fdr: float = 0.1
    level: float = 0.95

    name: ClassVar[str] = "sparse_markov"
    leaves: ClassVar[str] = (
        "The number of records, each column's pooled variance within sites, and in every round "
        "sums over sites of statistics of each site's records with random weights of its own: "
        "together about what one sum of cross products within sites tells, and something of how "
        "records are split over sites."
    )

    def columns(self, public: Public) -> NDArray[np.int64]:
        """Return the positions of the field's columns."""
        if self.variables is None:
            return np.arange(len(public.variables))
        return choose(public, self.variables, "method.variables")

    def design(self, public: Public) -> Design:
        """Return the regressions of each column on all others."""
        p = len(self.columns(public))
        if p < 2:
            raise JobError("method.variables", "a field needs at least two variables")
        others = np.array([[h for h in range(p) if h != j] for j in range(p)])
        return Design(np.arange(p), others)

    def result(self, state: State, public: Public, counted: Counted) -> Result:
        """Return the edges, both sides' PIPs and coefficients, and the draws."""
        kept = kept_draws(state)
        names, design = state["columns"], self.design(public)
        found = {name: summarise(draws, self.level) for name, draws in kept.items()}
        p = len(names)
        pip, mean, sd, error = (np.zeros((p, p)) for _ in range(4))
        for matrix, values in (
            (pip, found["inclusion"].mean),
            (error, found["inclusion"].mcse_mean),
            (mean, found["theta"].mean),
            (sd, found["theta"].sd),
        ):
            matrix[np.arange(p)[:, None], design.predictors] = values
        side = np.maximum if self.combine == "union" else np.minimum
        both = side(pip, pip.T)
        edges = np.zeros((p, p), dtype=bool)
        upper = np.triu_indices(p, 1)
        edges[upper] = discoveries(both[upper], self.fdr)
        table = [
            {
                "between": [names[i], names[j]],
                "pip": float(both[i, j]),
                "pip_sides": [float(pip[i, j]), float(pip[j, i])],
                "pip_mcse": [float(error[i, j]), float(error[j, i])],
                "edge": bool(edges[i, j]),
            }
            for i, j in zip(*upper, strict=True)
        ]
        summary = {
            "method": f"sparse-markov-{self.step}",
            "names": list(names),
            "n": state["records"],
            "pairs": sorted(table, key=lambda row: -float(row["pip"])),  # type: ignore[arg-type]
            "diagnostics": {k: asdict(v) for k, v in found.items()},
            "notes": complaints(
                {"theta": found["theta"], "PIP": found["inclusion"]}, self.chains, names
            ),
        }
        return Result(summary, {"pip": pip, "mean": mean, "sd": sd, "edges": edges | edges.T})


def discoveries(pip: Array, rate: float) -> NDArray[np.bool_]:
    """Return which of the PIPs are discoveries at the Bayesian false discovery rate."""
    order = np.argsort(-pip, kind="stable")
    expected = np.cumsum(1 - pip[order]) / np.arange(1, len(pip) + 1)
    taken = np.zeros(len(pip), dtype=bool)
    taken[order[expected <= rate]] = True
    return taken
