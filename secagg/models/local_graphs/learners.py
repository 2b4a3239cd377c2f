"""Graphs that sites learn alone, and three ways to combine them: vote, average and best.

The baselines of Ng and Zhang (AISTATS 2022), section 6. Every site learns a graph from its own
records by NOTEARS, NOTEARS-MLP, PC or GES. (The paper uses FGES, a faster version of GES.) There
are three ways to combine these graphs:

    vote     keeps an edge i -> j if more than half of all sites have it (Na and Yang 2010). An
             undirected edge i - j (PC and GES return equivalence classes) is a vote for i -> j and
             one for j -> i; if both directions have a majority, the edge stays undirected
    average  keeps i -> j if |mean of the sites' weights W_ij| > threshold; W_ij is the weight
             before the site's own threshold, 0 if the site has no edge
    best     chooses the site's graph that is closest to the true one. This requires the true
             graph, so it is for simulations only.

The graphs of a vote or an average may have cycles. As in the paper, no cycle is removed, and the
result has a note. The paper does not publish the settings of the baselines; those here are the
learners' defaults.

Sites often have few records (n_k = 3 at each site in the paper's figure 1), and one small site must
not stop the run. A site that cannot learn a graph abstains: its fit has no edge, `converged` is
False and a note gives the reason.

=============================  ====================================================================
a site's records               its fit
=============================  ====================================================================
none, or one                   abstains
a constant column              the graph of the others; fewer than two others: abstains
NOTEARS does not converge      abstains
PC: n_k <= 3                   abstains: no test has a degree of freedom. For larger n_k, a test
                               without a degree of freedom counts as independence
NOTEARS, PC: n_k > p, and      abstains: the site's records do not tell their effects apart
columns linearly dependent
PC: the same with n_k <= p     abstains, if a test with degrees of freedom contains them
NOTEARS: n_k <= p              the penalty chooses among the equally good graphs
GES: singular correlations R,  GES with (n_k R + I) / (n_k + 1): one more record's worth of evidence
as always if n_k <= p          that nothing is correlated
=============================  ====================================================================

Without the last rule, a variable with n_k - 1 parents would have a residual variance of 0 and an
unbounded score. With the rule, no residual variance is below 1 / (n_k + 1), and the penalty has an
effect. If sites with singular correlations abstained, every site in figure 1 of the paper would
abstain with GES, because there n_k = 0.3 p.

A mean or majority is over all sites, as in the paper. So a site that abstains votes against every
edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import EdgeRule, Update
from secagg.core.arrays import Array
from secagg.errors import UsageError
from secagg.models.common.checks import require_number
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclicity import is_acyclic
from secagg.models.graphs.inputs import graph_input
from secagg.models.graphs.knowledge import Knowledge
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.notears import notears
from secagg.models.graphs.notears_mlp import notears_mlp
from secagg.models.graphs.pc_ges import ges, pc, require_causal_learn
from secagg.models.graphs.result import GraphFit
from secagg.models.local_graphs.scatter_noise import SiteNoise

Algorithm = Literal["notears", "pc", "ges", "notears_mlp"]
Combine = Literal["vote", "average"]

EDGES, ABSTAINED = "edges", "abstained"
"""The two arrays of a contribution: votes or weights, (p, p); whether the site abstained, (1,)."""

_LEVEL_OF_BIC = 0.01
"""Of one edge with penalty 1: for 1000 records, root(log n) is the quantile of 0.9 %."""
_MIN_POSITIVE = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, kw_only=True)
class Learner:
    """How a site learns a graph from its own records.

    standardise: for NOTEARS, linear or MLP: divide columns by their standard deviations
    penalty: of NOTEARS, at least 0, or of GES, above 0; None for 0.1 (MLP: 0.01), or 1
    threshold: of NOTEARS, at least 0; alpha: level of PC's tests, above 0 and below 1
    knowledge: about the variables; required edges for PC and GES only
    """

    algorithm: Algorithm = "notears"
    standardise: bool = False
    penalty: float | None = None
    threshold: float = 0.3
    alpha: float = 0.05
    knowledge: Knowledge | None = None

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

    def fit(self, rows: Array, names: Sequence[str], noise: SiteNoise | None = None) -> GraphFit:
        """Return the graph of one site's records; without edges if the site abstains.

        rows: (n_k, p), in the units to be analysed; names: of the p columns
        noise: in the moments of `rows`, under differential privacy; not for NOTEARS-MLP
        Raises `UsageError` as `check` does, and if the records are not finite or have another
        shape.
        """
        self.check()
        if rows.ndim != 2 or rows.shape[1] != len(names) or not np.all(np.isfinite(rows)):
            raise UsageError(
                "analysis", f"records must be finite numbers of {len(names)} variables"
            )
        if len(rows) < 2:
            return self._too_few(names, len(rows))
        moments = _moments(rows, names)
        if self.algorithm != "notears_mlp":
            return self.fit_moments(moments, noise)
        varying = ~moments.constant
        return self._attempt(
            moments,
            lambda some: notears_mlp(
                rows[:, varying], some.names, knowledge=self.knowledge, **self.settings()
            ),
        )

    def fit_moments(self, moments: Moments, noise: SiteNoise | None = None) -> GraphFit:
        """Return the graph of moments, as `fit` does; not for NOTEARS-MLP."""
        if moments.n < 2:
            return self._too_few(moments.names, moments.n)
        varying = ~moments.constant
        some_noise = None if noise is None else noise.select(varying)
        return self._attempt(moments, lambda some: self._learn(some, some_noise))

    @property
    def weighted(self) -> bool:
        """Return whether its graphs have weights, which can be averaged."""
        return self.algorithm in ("notears", "notears_mlp")

    def settings(self) -> dict[str, Any]:
        match self.algorithm:
            case "notears" | "notears_mlp":
                default = 0.1 if self.algorithm == "notears" else 0.01
                return {
                    "penalty": default if self.penalty is None else self.penalty,
                    "standardise": self.standardise,
                    "threshold": self.threshold,
                }
            case "pc":
                return {"alpha": self.alpha}
            case "ges":
                return {"penalty": 1.0 if self.penalty is None else self.penalty}

    def weight_variance(self, rows: Array, names: Sequence[str], noise: SiteNoise) -> Array:
        """Return the variances of NOTEARS's weights by noise and chance; 0 without a weight."""
        found = np.zeros((len(names), len(names)))
        if len(rows) >= 2:
            moments = _moments(rows, names)
            kept = ~moments.constant
            some = moments.select([n for n, k in zip(names, kept, strict=True) if k])
            size = noise.select(kept).size(some, standardise=self.standardise)
            found[np.ix_(kept, kept)] = size.weight_variance
        return found

    def edge_rule(self, columns: frozenset[str] | None, *, vote: bool) -> EdgeRule:
        """Return when a site finds an edge; that of GES is a score, as strict as a test of 1 %."""
        if self.algorithm in ("pc", "ges"):
            tests = self.algorithm == "pc"
            level = self.alpha if tests else _LEVEL_OF_BIC
            return EdgeRule(columns, 0.0, 0.0, False, vote, level, level_of_vote=tests)
        penalty = self.settings()["penalty"]
        return EdgeRule(columns, penalty, self.threshold, pooled=False, vote=vote)

    def noise_note(self) -> str:
        """Return what sites do about noise whose size they know."""
        if self.algorithm in ("pc", "ges"):
            return (
                "Each site allows for its own noise in every test and in every edge that it adds."
            )
        return (
            "Each site raises its penalty and, for a vote, its threshold to the size of its own "
            "noise."
        )

    def _attempt(self, moments: Moments, learn: Callable[[Moments], GraphFit]) -> GraphFit:
        """Return the graph of the columns that vary, or an abstention, over all columns."""
        names = moments.names
        varying = [name for name, c in zip(names, moments.constant, strict=True) if not c]
        try:
            fit = learn(moments.select(varying))
        except UsageError as error:  # settings and package were checked: the records are the cause
            return self._abstention(names, error.what)
        return _embed(fit, names) if fit.converged else self._abstention(names, *fit.notes)

    def _learn(self, moments: Moments, noise: SiteNoise | None) -> GraphFit:
        if noise is not None and len(moments.names) > 1:
            return self._learn_with_noise(moments, noise)
        match self.algorithm:
            case "pc":
                return pc(moments, knowledge=self.knowledge, **self.settings())
            case "ges":
                if not graph_input(moments, None, standardise=True).full_rank:
                    n, R = moments.n, moments.correlation
                    # the scale of the scatter matrix does not matter: GES reads correlations
                    moments = Moments(moments.names, n, np.zeros(len(R)), n * R + np.eye(len(R)))
                return ges(moments, knowledge=self.knowledge, **self.settings())
            case _:
                return self._notears(moments)

    def _learn_with_noise(self, moments: Moments, noise: SiteNoise) -> GraphFit:
        if self.algorithm == "pc":
            return pc(noise.in_moments(moments), alpha=noise.level, knowledge=self.knowledge)
        if self.algorithm == "ges":
            noisy = noise.in_moments(moments)
            return ges(noisy, level=noise.level, knowledge=self.knowledge, **self.settings())
        settings = self.settings()
        size = noise.size(moments, standardise=self.standardise)
        fit = self._notears(moments, size.penalty)
        assert fit.weights is not None
        clear = np.abs(fit.weights) > size.threshold(settings["penalty"], noise.level)
        return replace(fit, directed=fit.directed & clear)

    def _notears(self, moments: Moments, at_least: Array | float = 0.0) -> GraphFit:
        return notears(
            moments, at_least=at_least, few_records=True, knowledge=self.knowledge,
            **self.settings(),
        )  # fmt: skip

    def _too_few(self, names: Sequence[str], n: int) -> GraphFit:
        return self._abstention(names, f"a graph needs at least 2 records, not {n}")

    def _abstention(self, names: Sequence[str], *reasons: str) -> GraphFit:
        none = np.zeros((len(names), len(names)), dtype=np.bool_)
        return GraphFit(
            method=self.algorithm,
            names=tuple(names),
            directed=none,
            undirected=none,
            weights=none.astype(np.float64) if self.weighted else None,
            converged=False,
            settings={},
            notes=tuple(f"abstains: {reason}" for reason in reasons),
        )


def fit_sites(
    parts: Sequence[Array], learner: Learner | None = None, names: Sequence[str] | None = None
) -> list[GraphFit]:
    """Return each site's own graph, for simulations.

    parts: each site's records (n_k, p), at least one site; learner: None for NOTEARS
    """
    learner = learner or Learner()
    names = names or [f"x{j}" for j in range(parts[0].shape[1])]
    return [learner.fit(rows, names) for rows in parts]


def local_adjacency(fit: GraphFit, combine: Combine) -> Update:
    """Return one site's contribution to a vote or an average.

    Raises `UsageError` for the average of a method that has no weights.
    """
    learned = fit.converged
    if combine == "vote":
        edges = (learned & (fit.directed | fit.undirected)).astype(np.float64)
    elif fit.weights is None:
        raise UsageError("analysis", f"{fit.method} has no weights to average", "Vote instead.")
    else:
        edges = fit.weights if learned else np.zeros_like(fit.weights)
    return {EDGES: edges, ABSTAINED: np.array([float(not learned)])}


def majority_graph(
    total: Update,
    sites: int,
    combine: Combine,
    threshold: float,
    names: Sequence[str],
    floor: Array | None = None,
    *,
    noised: bool = False,
) -> GraphFit:
    """Return the graph that the sum of the sites' contributions gives.

    threshold: of an average; a vote has none. floor: a smallest threshold of each edge, (p, p)
    noised: whether sites have noisy moments
    diagnostics: the number of sites, and of those that abstained
    """
    edges, abstained = total[EDGES], round(float(total[ABSTAINED][0]))
    weights = None
    if combine == "vote":
        majority = 2 * edges > sites
        undirected = majority & majority.T
        directed = majority & ~undirected
    else:
        weights = edges / sites
        directed = np.abs(weights) > (threshold if floor is None else np.maximum(threshold, floor))
        undirected = np.zeros_like(directed)
    notes = []
    if not is_acyclic(directed):
        notes.append("the edges form a cycle; none was removed")
    if abstained:
        notes.append(_abstained_note(abstained, sites, noised=noised))
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


def _abstained_note(abstained: int, sites: int, *, noised: bool) -> str:
    noise, check = "", "; the analyses of 'moments' show for all records together whether columns "
    check += "are constant or depend on others"
    if noised:
        noise = "noise of differential privacy that is large for a site's number of records (more "
        noise, check = f"{noise}records or a larger epsilon help), ", ""
    return (
        f"{abstained} of {sites} sites could not learn a graph and count as votes against every "
        f"edge. Possible reasons: {noise}one record, too few records for the learner, fewer than "
        "two columns that vary, columns that depend linearly on one another, or a search that does "
        f"not converge. Sites do not report which{check}"
    )


def vote(fits: Sequence[GraphFit]) -> GraphFit:
    """Return the graph with the edges of more than half of the fits (see above)."""
    return _combined(fits, "vote", 0.0)


def average(fits: Sequence[GraphFit], threshold: float = 0.3) -> GraphFit:
    """Return the graph with the edges whose mean weight exceeds the threshold (see above)."""
    return _combined(fits, "average", threshold)


def best_graph(fits: Sequence[GraphFit], truth: NDArray[np.bool_]) -> GraphFit:
    """Return the fit with the lowest SHD from the true graph; of equal fits, the first.

    SHD is the structural Hamming distance (`secagg.models.graphs.metrics`). Fits of sites that
    abstained are considered only if all sites abstained. Otherwise an empty graph could win,
    because it can be closer to the true graph than a bad one.
    """
    learned = [fit for fit in fits if fit.converged] or list(fits)
    return min(learned, key=lambda fit: compare_graphs(fit.directed, truth, fit.undirected).shd)


def _combined(fits: Sequence[GraphFit], combine: Combine, threshold: float) -> GraphFit:
    updates = [local_adjacency(fit, combine) for fit in fits]
    total = {name: np.sum([b[name] for b in updates], axis=0) for name in (EDGES, ABSTAINED)}
    return majority_graph(total, len(fits), combine, threshold, fits[0].names)


def _moments(rows: Array, names: Sequence[str]) -> Moments:
    """Return the moments of a site's records, at least one."""
    mean = rows.mean(axis=0)
    return Moments(tuple(names), len(rows), mean, (rows - mean).T @ (rows - mean))


def _embed(fit: GraphFit, names: Sequence[str]) -> GraphFit:
    """Return the fit over all names; a name that the fit lacks is an isolated variable."""
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
