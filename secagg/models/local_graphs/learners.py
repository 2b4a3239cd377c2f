"""Graphs that sites learn alone, and what is made of them: voting, averaging, the best of them.

The baselines of Ng and Zhang (AISTATS 2022), section 6. Every site learns a graph from its own
records by NOTEARS, NOTEARS-MLP, PC or GES (for the paper's FGES: the same search, made faster).
Of these graphs

    vote     keeps an edge i -> j where more than half of all sites have it (Na and Yang 2010). An
             undirected edge i - j (PC and GES return equivalence classes) is a vote for i -> j and
             one for j -> i; where both directions have a majority, so has the undirected edge
    average  keeps i -> j where |mean of the sites' weights W_ij| > threshold; W_ij before the
             site's own threshold, 0 where it has no edge
    best     is the one closest to the true graph. Whoever could choose it would have no need to: an
             oracle, for simulations only

Vote and average may have cycles; as in the paper none is removed, and the fit says so. The paper
does not publish the baselines' settings; those here are the learners' defaults.

Few records are the normal case (n_k = 3 in the paper's figure 1), and one site's must not stop all.
A site that cannot learn abstains: its fit has no edge, `converged` is False and a note says why.

=============================  ====================================================================
a site's records               its fit
=============================  ====================================================================
none, or one                   abstains
a constant column              the graph of the others; fewer than two others: abstains
NOTEARS does not converge      abstains
PC: n_k <= 3                   abstains: no test has a degree of freedom. Of larger n_k, tests that
                               have none count as independent
PC: dependent columns          abstains, if a test with degrees of freedom meets them
GES: singular correlations R,  GES with (n_k R + I) / (n_k + 1): one more record's worth of evidence
as always where n_k <= p       that nothing is correlated
=============================  ====================================================================

Without the last rule a variable with n_k - 1 parents has no residual, and a score without bound;
with it, none has less residual than 1 / (n_k + 1), and the penalty counts again. To abstain would
leave GES-voting without a voter in all of figure 1, where n_k = 0.3 p.

A mean or majority is over all sites, as in the paper: to abstain is to vote against every edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Update
from secagg.errors import UsageError
from secagg.models.common.checks import require_number
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclicity import is_acyclic
from secagg.models.graphs.inputs import graph_input
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.notears import notears
from secagg.models.graphs.notears_mlp import notears_mlp
from secagg.models.graphs.pc_ges import ges, pc, require_causal_learn
from secagg.models.graphs.result import GraphFit

Matrix = NDArray[np.float64]
Algorithm = Literal["notears", "pc", "ges", "notears_mlp"]
Combine = Literal["vote", "average"]

EDGES, ABSTAINED = "edges", "abstained"
"""The two arrays of a ballot: votes or weights, (p, p), and whether the site abstained, (1,)."""

_MIN_POSITIVE = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, kw_only=True)
class Learner:
    """How a site learns a graph from its own records.

    standardise: for NOTEARS, linear or MLP, of records divided by their standard deviations
    penalty: of NOTEARS, at least 0, or of GES, above 0; None for 0.1 (MLP: 0.01), or 1
    threshold: of NOTEARS, at least 0; alpha: level of PC's tests, above 0 and below 1
    """

    algorithm: Algorithm = "notears"
    standardise: bool = False
    penalty: float | None = None
    threshold: float = 0.3
    alpha: float = 0.05

    def check(self) -> None:
        """Raise `UsageError` for a setting out of range, or a package that is not installed."""
        if self.penalty is not None:
            require_number(
                "penalty", self.penalty, low=_MIN_POSITIVE if self.algorithm == "ges" else 0
            )
        require_number("threshold", self.threshold, low=0)
        require_number("alpha", self.alpha, low=_MIN_POSITIVE, below=1)
        if self.algorithm in ("pc", "ges"):
            require_causal_learn("algorithm")

    def fit(self, rows: Matrix, names: Sequence[str]) -> GraphFit:
        """Return the graph of one site's records; without edges where the site abstains.

        rows: (n_k, p), in the units to be analysed; names: of the p columns
        Raises `UsageError` as `check` does, and for records of another shape or not finite.
        """
        self.check()
        if rows.ndim != 2 or rows.shape[1] != len(names) or not np.all(np.isfinite(rows)):
            raise UsageError("analysis", f"not finite records of {len(names)} variables")
        if len(rows) < 2:
            return self._abstains(names, f"{len(rows)} record is too few for a graph")
        moments = _moments(rows, names)
        varying = [name for name, c in zip(names, moments.constant, strict=True) if not c]
        try:
            if self.algorithm == "notears_mlp":
                fit = notears_mlp(rows[:, ~moments.constant], varying, **self.settings())
            else:
                fit = self._learn(moments.select(varying))
        except UsageError as error:  # settings and package are in order: it is about the records
            return self._abstains(names, error.what)
        return _among(fit, names) if fit.converged else self._abstains(names, *fit.notes)

    @property
    def weighted(self) -> bool:
        """Say whether its graphs have weights, which can be averaged."""
        return self.algorithm in ("notears", "notears_mlp")

    def settings(self) -> dict[str, Any]:
        """Return the settings that the algorithm has, by name."""
        match self.algorithm:
            case "notears" | "notears_mlp":
                usual = 0.1 if self.algorithm == "notears" else 0.01
                penalty = usual if self.penalty is None else self.penalty
                own = {"standardise": self.standardise, "threshold": self.threshold}
                return {"penalty": penalty, **own}
            case "pc":
                return {"alpha": self.alpha}
            case "ges":
                return {"penalty": 1.0 if self.penalty is None else self.penalty}

    def _learn(self, moments: Moments) -> GraphFit:
        match self.algorithm:
            case "pc":
                return pc(moments, **self.settings())
            case "ges":
                if not graph_input(moments, None, standardise=True).full_rank:
                    n, R = moments.n, moments.correlation
                    # as a scatter matrix, whose scale does not matter: GES reads correlations
                    moments = Moments(moments.names, n, np.zeros(len(R)), n * R + np.eye(len(R)))
                return ges(moments, **self.settings())
            case _:
                return notears(moments, **self.settings())

    def _abstains(self, names: Sequence[str], *why: str) -> GraphFit:
        none = np.zeros((len(names), len(names)), dtype=np.bool_)
        return GraphFit(
            method=self.algorithm,
            names=tuple(names),
            directed=none,
            undirected=none,
            weights=none.astype(np.float64) if self.weighted else None,
            converged=False,
            settings={},
            notes=tuple(f"abstains: {reason}" for reason in why),
        )


def fit_sites(
    parts: Sequence[Matrix], learner: Learner | None = None, names: Sequence[str] | None = None
) -> list[GraphFit]:
    """Return each site's own graph: a simulation's shortcut for what sites do on their own.

    parts: each site's records (n_k, p), at least one site; learner: None for NOTEARS
    """
    learner = learner or Learner()
    names = names or [f"x{j}" for j in range(parts[0].shape[1])]
    return [learner.fit(rows, names) for rows in parts]


def local_adjacency(fit: GraphFit, combine: Combine) -> Update:
    """Return what one site contributes to a vote or an average.

    Raises `UsageError` for the average of a method that has no weights.
    """
    counts = fit.converged
    if combine == "vote":
        edges = (counts & (fit.directed | fit.undirected)).astype(np.float64)
    elif fit.weights is None:
        raise UsageError("analysis", f"{fit.method} has no weights to average", "Vote instead.")
    else:
        edges = fit.weights if counts else np.zeros_like(fit.weights)
    return {EDGES: edges, ABSTAINED: np.array([float(not counts)])}


def majority_graph(
    total: Update, sites: int, combine: Combine, threshold: float, names: Sequence[str]
) -> GraphFit:
    """Return the graph that the sum of so many sites' ballots makes.

    threshold: of an average; a vote has none
    diagnostics: sites, and how many abstained
    """
    edges, abstained = total[EDGES], round(float(total[ABSTAINED][0]))
    weights = None
    if combine == "vote":
        majority = 2 * edges > sites
        undirected = majority & majority.T
        directed = majority & ~undirected
    else:
        weights = edges / sites
        directed = np.abs(weights) > threshold
        undirected = np.zeros_like(directed)
    notes = []
    if not is_acyclic(directed):
        notes.append("the edges form a cycle: none was removed")
    if abstained:
        notes.append(
            f"{abstained} of {sites} sites could not learn a graph, and vote for no edge: a site "
            "cannot with one record, too few records for the learner, fewer than two columns that "
            "vary or columns that depend linearly on one another, nor if its search does not "
            "converge. No site says which; of all records together the analyses of 'moments' tell "
            "whether columns do not vary or depend on others"
        )
    return GraphFit(
        method=combine,
        names=tuple(names),
        directed=directed,
        undirected=undirected,
        weights=weights,
        converged=abstained < sites,
        settings={"threshold": threshold} if combine == "average" else {},
        diagnostics={"sites": sites, "abstained": abstained},
        notes=tuple(notes),
    )


def vote(fits: Sequence[GraphFit]) -> GraphFit:
    """Return the graph of the edges that more than half of the fits have (see above)."""
    return _elected(fits, "vote", 0.0)


def average(fits: Sequence[GraphFit], threshold: float = 0.3) -> GraphFit:
    """Return the graph of the mean weights that are above the threshold (see above)."""
    return _elected(fits, "average", threshold)


def best_graph(fits: Sequence[GraphFit], truth: NDArray[np.bool_]) -> GraphFit:
    """Return the fit of lowest SHD from the true graph, the first of equals. An oracle.

    Of sites that abstained, only where all did: an empty graph can be closer than a bad one.
    """
    learned = [fit for fit in fits if fit.converged] or list(fits)
    return min(learned, key=lambda fit: compare_graphs(fit.directed, truth, fit.undirected).shd)


def _elected(fits: Sequence[GraphFit], combine: Combine, threshold: float) -> GraphFit:
    ballots = [local_adjacency(fit, combine) for fit in fits]
    total = {name: np.sum([b[name] for b in ballots], axis=0) for name in (EDGES, ABSTAINED)}
    return majority_graph(total, len(fits), combine, threshold, fits[0].names)


def _moments(rows: Matrix, names: Sequence[str]) -> Moments:
    mean = rows.mean(axis=0)
    return Moments(tuple(names), len(rows), mean, (rows - mean).T @ (rows - mean))


def _among(fit: GraphFit, names: Sequence[str]) -> GraphFit:
    """Return the fit over all the names, those that it lacks as isolated variables."""
    index = [list(names).index(name) for name in fit.names]
    place, weights, p = np.ix_(index, index), None, len(names)
    directed, undirected = np.zeros((2, p, p), dtype=np.bool_)
    directed[place], undirected[place] = fit.directed, fit.undirected
    if fit.weights is not None:
        weights = np.zeros((p, p))
        weights[place] = fit.weights
    return replace(
        fit, names=tuple(names), directed=directed, undirected=undirected, weights=weights
    )
