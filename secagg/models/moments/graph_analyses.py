"""The analyses of pooled moments that learn a graph; see `secagg.models.moments.analyses`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from secagg.contracts import EdgeRule, PublicFacts, Result, ResultTable
from secagg.models.common.checks import require_number
from secagg.models.common.pooled_moments import Moments
from secagg.models.common.variables import choose
from secagg.models.graphs.golem import golem
from secagg.models.graphs.job_result import check_truth, graph_result, undirected_result
from secagg.models.graphs.knowledge import Knowledge
from secagg.models.graphs.noise_size import OWN_UNITS
from secagg.models.graphs.notears import notears
from secagg.models.graphs.pc_ges import ges, pc, require_causal_learn
from secagg.models.graphs.result import GraphFit
from secagg.models.graphs.support import Threshold, require_threshold, threshold_of
from secagg.models.graphs.tables import linear_table, other_table, undirected_table
from secagg.models.moments.graphical_lasso import gaussian_graph
from secagg.models.moments.scaling import check_penalty
from secagg.models.numerics.ebic_graph import EBIC_GAMMA

MIN_POSITIVE = float(np.finfo(np.float64).tiny)  # the smallest normal number, for "above 0"


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Settings that the graph analyses share."""

    variables: tuple[str, ...] | None = None
    """The columns of the graph, at least two. If it is not set, all columns."""
    truth: tuple[tuple[str, str], ...] | None = None
    """`truth` for this analysis alone."""

    def check(self, public: PublicFacts) -> None:
        """Check that the variables are declared and that the true edges form a DAG over them."""
        check_truth(self.truth, self.names(public), public, at="")

    def names(self, public: PublicFacts) -> list[str]:
        """Return the names of the graph's variables."""
        names = [v.name for v in public.variables]
        if self.variables is None:
            return names
        return [names[i] for i in choose(public, self.variables, "variables")]

    def edge_rule(self) -> EdgeRule | str | None:
        """Return when the graph has an edge, for the plan; see `MethodFacts.edge_rule`."""
        return None

    def _rule(
        self, penalty: float | None = 0.0, threshold: float = 0.0, level: float | None = None
    ) -> EdgeRule:
        columns = None if self.variables is None else frozenset(self.variables)
        kind = type(self).__name__.lower()
        return EdgeRule(columns, penalty, threshold, pooled=True, level=level, analysis=kind)

    def _weights_rule(
        self, standardise: bool, penalty: float | None, threshold: Threshold | None
    ) -> EdgeRule | str:
        """Return the rule of a graph of weights, under noise."""
        if not standardise:
            return OWN_UNITS
        number = threshold_of(threshold, standardised=True, noised=True)
        return self._rule(penalty=penalty, threshold=0.0 if number == "ebic" else number)

    def _settings(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if k != "truth"}

    directed: ClassVar[bool] = True
    """Whether edges have directions, so that knowledge about them has an effect."""
    can_require: ClassVar[bool] = False
    """Whether the graph can be made to have an edge."""

    def _result(self, fit: GraphFit) -> Result:
        return graph_result(fit, self.truth)


@dataclass(frozen=True, kw_only=True)
class Pc(Graph):
    """PC."""

    alpha: float = 0.05
    """Level of each test of independence, above 0 and below 1."""

    table: ClassVar[ResultTable] = other_table("Graph by PC")
    can_require: ClassVar[bool] = True

    def check(self, public: PublicFacts) -> None:
        super().check(public)
        require_number("alpha", self.alpha, low=MIN_POSITIVE, below=1)
        require_causal_learn("kind")

    def edge_rule(self) -> EdgeRule:
        return self._rule(level=self.alpha)

    def run(self, moments: Moments, known: Knowledge | None) -> Result:
        return self._result(pc(moments, knowledge=known, **self._settings()))


@dataclass(frozen=True, kw_only=True)
class Ges(Graph):
    """GES."""

    penalty: float = 1.0
    """Factor of the penalty in BIC, above 0. With 1, the score is BIC itself."""

    table: ClassVar[ResultTable] = other_table("Graph by GES")
    can_require: ClassVar[bool] = True

    def check(self, public: PublicFacts) -> None:
        super().check(public)
        require_number("penalty", self.penalty, low=MIN_POSITIVE)
        require_causal_learn("kind")

    def edge_rule(self) -> EdgeRule:
        """Return the rule of an insertion under noise."""
        return self._rule()

    def run(self, moments: Moments, known: Knowledge | None) -> Result:
        return self._result(ges(moments, knowledge=known, **self._settings()))


@dataclass(frozen=True, kw_only=True)
class Notears(Graph):
    """Linear NOTEARS."""

    standardise: bool = True
    """Analyse the correlation matrix, so that the result does not depend on units. The directions
    of edges are then hard to learn, so run `pc` as well."""
    penalty: float = 0.1
    """Factor of the sum of absolute edge weights, at least 0."""
    threshold: Threshold | None = None
    """Edges with smaller absolute weights are dropped. `"ebic"`: edges are those that the extended
    BIC keeps, by least squares of each column on the causes found. If it is not set: `"ebic"` with
    `standardise = false` and without `[privacy]`, else 0.3."""

    @property
    def table(self) -> ResultTable:
        return linear_table("Graph by NOTEARS", standardised=self.standardise)

    def check(self, public: PublicFacts) -> None:
        super().check(public)
        require_number("penalty", self.penalty, low=0)
        require_threshold(self.threshold)

    def edge_rule(self) -> EdgeRule | str:
        return self._weights_rule(self.standardise, self.penalty, self.threshold)

    def run(self, moments: Moments, known: Knowledge | None) -> Result:
        return self._result(notears(moments, knowledge=known, **self._settings()))


@dataclass(frozen=True, kw_only=True)
class Golem(Graph):
    """GOLEM."""

    equal_variances: bool = False
    """Assume that the noise of all variables has the same variance (GOLEM-EV). If false:
    GOLEM-NV."""
    standardise: bool = True
    """Analyse the correlation matrix, so that the result does not depend on units. The directions
    of edges are then hard to learn, so run `pc` as well."""
    penalty: float | None = None
    """Factor of the sum of absolute edge weights, at least 0. If it is not set: √(2 log p / n) of p
    columns and n records, a quarter of that in own units; at least the paper's 0.02 with equal
    variances and 0.002 without."""
    threshold: Threshold | None = None
    """Edges with smaller absolute weights are dropped. `"ebic"`: edges are those that the extended
    BIC keeps, by least squares of each column on the causes found. If it is not set: `"ebic"` with
    `standardise = false` and without `[privacy]`, else 0.3."""

    @property
    def table(self) -> ResultTable:
        variant = " (equal variances)" if self.equal_variances else ""
        return linear_table(f"Graph by GOLEM{variant}", standardised=self.standardise)

    def check(self, public: PublicFacts) -> None:
        super().check(public)
        if self.penalty is not None:
            require_number("penalty", self.penalty, low=0)
        require_threshold(self.threshold)

    def edge_rule(self) -> EdgeRule | str:
        return self._weights_rule(self.standardise, self.penalty, self.threshold)

    def run(self, moments: Moments, known: Knowledge | None) -> Result:
        return self._result(golem(moments, knowledge=known, **self._settings()))


@dataclass(frozen=True, kw_only=True)
class GraphicalLasso(Graph):
    """A Gaussian graphical model."""

    penalty: float | Literal["ebic"] = "ebic"
    """Penalty of each entry of the precision matrix of standardised columns, above 0. `"ebic"`
    tries 30 penalties and takes the graph with the smallest extended BIC."""
    gamma: float = EBIC_GAMMA
    """With `"ebic"`: how much the score depends on the number of columns, at least 0. With 0, it is
    BIC."""

    table: ClassVar[ResultTable] = undirected_table("Graph by the graphical lasso")
    directed: ClassVar[bool] = False

    def check(self, public: PublicFacts) -> None:
        super().check(public)
        check_penalty(self.penalty, "ebic")
        require_number("gamma", self.gamma, low=0)

    def run(self, moments: Moments, known: Knowledge | None) -> Result:
        """Find the graph. A true graph is directed, so the score is against its moral graph."""
        fit, errors = gaussian_graph(moments, **self._settings())
        return undirected_result(fit, errors, self.truth)
