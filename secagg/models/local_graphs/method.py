"""Graphs learned at each site alone, combined by a vote or an average over secure sums.

Two baselines of Ng and Zhang (AISTATS 2022), section 6. `secagg.models.local_graphs.learners` says
what sites learn, what counts as a vote, and what happens with few records. Here one secure sum
adds up the 0/1 edges of each graph (`vote`) or its weights (`average`), and the number of sites
that abstained. The third baseline, the best of the sites' graphs, needs the true graph, so it
exists in simulations only (`best_graph` there).

Units. By default NOTEARS divides a site's columns by their standard deviations at that site. In own
units, as in the paper, a weight is in units of the effect per unit of the cause. In both cases, the
bounds of the columns do not limit the weights. So weights beyond 2^20 are clipped, and the number
of clipped weights is reported.

What the transcript determines: one sum of graphs. A graph is a function of one site's records only.
The sum therefore depends on how records are split over sites. With few sites, it hides little about
each site's graph.

* vote: for each edge, how many of the K sites have it, and no more than this count. A count of 0 or
  K reveals every site's vote. Colluding sites can subtract their own graphs: K - 1 of them obtain
  the last site's graph. So with two sites, each obtains the graph of the other.
* average: p (p - 1) real numbers instead of counts. If only one site has a nonzero weight, the sum
  is that weight, which is a regression coefficient of few records. It does not show which site has
  it. The l1 penalty sets most weights to zero, so this case is common.
* how many sites abstained: a count of 0 or K reveals for every site whether it could learn a graph.

One record can change every edge of a site's graph, limited only by the field's bound. So noise in
the sum would have to hide a whole site. Sites can add noise to their moments instead, before they
learn (placement `site`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    ASKED_ONCE,
    NO_WINDOWS,
    Body,
    Disclosure,
    DisclosureKind,
    EdgeRule,
    EqualWeights,
    Field,
    Kind,
    MethodFacts,
    MomentsOnly,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SingleRecords,
    SiteRecords,
    Spec,
    Stage,
    State,
    Update,
)
from secagg.contracts.noise import Placements
from secagg.core.randomness import RandomBytes
from secagg.errors import JobError, UsageError
from secagg.models.common.disclosures import CENTRES_WITHIN_SITES
from secagg.models.common.variables import choose
from secagg.models.graphs.job_result import check_truth, graph_result, note_indicators
from secagg.models.graphs.knowledge import CANNOT_REQUIRE, Edges, Knowledge, RequiredSettings
from secagg.models.graphs.noise_size import OWN_UNITS
from secagg.models.graphs.tables import linear_table, other_table
from secagg.models.local_graphs.learners import (
    ABSTAINED,
    EDGES,
    Algorithm,
    Combine,
    Learner,
    local_adjacency,
    majority_graph,
)
from secagg.models.local_graphs.noisy_site import (
    NoisySite,
    average_floor,
    level_of_a_site,
    noisy_fields,
    with_stability,
)

STAGE = "graphs"
_MAX_REDRAWS = 1000
WEIGHT_BOUND = 2.0**20
WEIGHT_BITS = 32  # with the bound above, sums over 1000 sites fit 64 bits


@dataclass(frozen=True, kw_only=True)
class LocalGraphs(RequiredSettings):
    """Voting and averaging over the graphs that sites learn alone.

    A setting that the learner does not use is an error.
    """

    learner: Algorithm = "notears"
    """How each site learns its graph. `"notears_mlp"` finds nonlinear effects. `"pc"` and `"ges"`
    need `pip install 'secagg[graphs]'` at every site."""
    combine: Combine = "vote"
    """`"vote"` keeps the edges that more than half of the sites have. `"average"` keeps the edges
    whose mean weight over the sites exceeds `threshold`; it is for `"notears"` and `"notears_mlp"`
    only."""
    variables: tuple[str, ...] | None = None
    """The columns of the graph, at least two. If it is not set, all columns."""
    standardise: bool | None = None
    """For `notears` and `notears_mlp`: each site divides its columns by its own standard
    deviations. If it is not set: true."""
    penalty: float | None = None
    """For all learners except `pc`: the penalty, as in the analyses `notears` and `ges`. If it is
    not set: 0.1 for `notears`, 0.01 for `notears_mlp`, 1 for `ges`. With noise at the sites, each
    site raises that of `notears` to the size of its noise."""
    threshold: float | None = None
    """For `notears` and `notears_mlp`: edges with smaller absolute weights are dropped. With
    `"vote"`, each site drops them; with `"average"`, they are dropped after averaging. If it is not
    set: 0.3. With noise at the sites, it is raised to the size of the noise."""
    alpha: float | None = None
    """For `pc`: level of each test of independence, above 0 and below 1. If it is not set: 0.05.
    With noise at the sites, it is the level of the vote about one test, and each site's own level
    is larger."""
    redraws: int = 20
    """With noise at the sites: the number of repetitions with fresh noise that the stability of
    edges is computed from, from 0 to 1000. They cost time, and no privacy."""
    truth: Edges | None = None
    """The true edges `["cause", "effect"]` between variables, if they are known. The graph is then
    scored. They must form a directed acyclic graph."""

    name: ClassVar[str] = "local_graphs"
    placements: ClassVar[Placements] = Placements.site_moments(
        'learner = "notears_mlp"',
        'Use another learner, or for networks method notears_mlp_admm with placement "round".',
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        DisclosureKind.SITES,
        "For each edge, how many sites have it in the graph of their own records (vote), or the "
        "sum of its weights over the sites (average); and how many sites could not learn a graph. "
        "If no site or every site has an edge, the count reveals every site's vote. If only one "
        "site has an edge, the weight is that site's own regression coefficient.",
        ASKED_ONCE,
        other_runs="A vote with threshold 0 shows at which edges only one site has a weight. So it "
        "shows which sums of an average over the same records are a single site's.",
        attacks=("single_estimates",),
    )
    unknown_settings: ClassVar[Mapping[str, str]] = CENTRES_WITHIN_SITES

    @property
    def title(self) -> str:
        learner = {"notears": "NOTEARS", "notears_mlp": "NOTEARS-MLP", "pc": "PC", "ges": "GES"}
        graph = "Nonlinear graph" if self.learner == "notears_mlp" else "Graph"
        return f"{graph} by {self.combine} of the sites' {learner[self.learner]}"

    @property
    def facts(self) -> MethodFacts:
        """A graph of each site's own records, which are moments unless networks learn it."""
        network = self.learner == "notears_mlp"
        return MethodFacts(
            derivation=type(self).__module__,
            weights=EqualWeights("Sites are asked once, with an empty message."),
            reads=SingleRecords(
                reason='has learner = "notears_mlp"',
                repeatable=False,
                moments_with_other_settings=True,
            )
            if network
            else MomentsOnly(),
            windows=NO_WINDOWS,
            named_code=(),
            network=network,
            regression=None,
            edge_rule=self._edge_rule,
        )

    @property
    def _edge_rule(self) -> EdgeRule | str:
        """The learner's rule at one site, if columns are standardised."""
        columns = None if self.variables is None else frozenset(self.variables)
        if self.standardise is False:
            return OWN_UNITS
        return self._learner().edge_rule(columns, vote=self.combine == "vote")

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        if self.learner == "notears":
            standardised = self.standardise is not False
            return (linear_table(self.title, standardised=standardised),)
        return (other_table(self.title, networks=self.learner == "notears_mlp"),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        combine, p = self._combine(), len(self._names(public))
        learner = self._learner()
        for name in self._job_settings():
            if name not in learner.settings():
                raise JobError(f"method.{name}", f"{self.learner!r} has no {name}", "Leave it out.")
        try:
            learner.check()
        except UsageError as error:
            raise JobError("method", error.what, error.advice) from None
        check_truth(self.truth, self._names(public), public)
        self.known(public)
        if not 0 <= self.redraws <= _MAX_REDRAWS:
            raise JobError("method.redraws", f"must be between 0 and {_MAX_REDRAWS}")
        if combine == "vote":
            edges = Field(EDGES, (p, p), 1.0, 0, Kind.COUNT)
            sees = "for each edge, how many sites have it in the graph of their own records"
        else:
            edges = Field(EDGES, (p, p), WEIGHT_BOUND, WEIGHT_BITS, Kind.BOUNDED)
            sees = "for each edge, the sum of the weights in the graphs of the sites' own records"
        spec: Spec = (edges, Field(ABSTAINED, (1,), 1.0, 0, Kind.COUNT))
        if public.site_moments:
            more, told = noisy_fields(edges, combine, self.redraws)
            spec, sees = (*spec, *more), sees + told
        return (Stage(STAGE, spec, 1, f"{sees}; how many sites could not learn a graph"),)

    def initial_state(self, public: PublicFacts) -> State:
        return {}

    def next_request(self, state: State) -> tuple[str, Body] | None:
        return None if EDGES in state else (STAGE, {})

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Learn a graph from this site's records, in the columns' own units.

        The middle of the bounds is not added: no learner depends on the position of zero.
        """
        chosen = self._chosen(public)
        half = np.array([public.variables[i].half_range for i in chosen])
        names, combine = self._names(public), self._combine()
        learner = replace(self._learner(), knowledge=self.known(public))
        if rows.noisy is not None:
            site = NoisySite(rows.values, rows.noisy, chosen, half, names)
            level = level_of_a_site(public, len(names), learner)
            rng = np.random.default_rng(list(random(32)))
            return site.contribution(learner, combine, level, self.redraws, rng), memory
        fit = learner.fit(half * rows.values[:, chosen], names)
        return local_adjacency(fit, combine), memory

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        return {**total, "sites": sites}

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the graph that the vote or the average gives; for a vote, with all votes.

        status: "converged" unless all sites abstained
        """
        combine, names = self._combine(), self._names(public)
        learner = self._learner()
        floor = average_floor(state)
        fit = majority_graph(
            state, state["sites"], combine, learner.threshold, names, floor,
            noised=public.site_moments,
        )  # fmt: skip
        fit = replace(
            fit,
            method=f"{self.learner}-{combine}",
            settings={**fit.settings, **learner.settings()},
            knowledge=self.known(public),
        )
        linear = self.learner != "notears_mlp"
        result = note_indicators(graph_result(fit, self.truth, linear=linear), public)
        if public.site_moments:
            result = with_stability(result, state, learner, combine, names)
        result.summary["status"] = "converged" if fit.converged else "all sites abstained"
        arrays: dict[str, NDArray[Any]] = {**result.arrays}
        if combine == "vote":
            arrays["votes"] = votes = state[EDGES]
            result.summary["votes"] = [
                {"from": names[i], "to": names[j], "sites": round(votes[i, j])}
                for i, j in sorted(np.argwhere(votes).tolist(), key=lambda edge: -votes[*edge])
            ]
        return Result(result.summary, arrays)

    def known(self, public: PublicFacts) -> Knowledge | None:
        """Return the knowledge. Raises `JobError` if the learner cannot use it."""
        if self.required and self.learner not in ("pc", "ges"):
            raise JobError("method.required", CANNOT_REQUIRE, "Use learner 'pc' or 'ges'.")
        return self.knowledge(self._names(public), public)

    def _learner(self) -> Learner:
        return Learner(**{"algorithm": self.learner, "standardise": True, **self._job_settings()})

    def _job_settings(self) -> dict[str, Any]:
        names = ("standardise", "penalty", "threshold", "alpha")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def _combine(self) -> Combine:
        """Return how graphs are combined. Raises `JobError` if the learner cannot do it."""
        if self.combine == "average" and not self._learner().weighted:
            raise JobError(
                "method.combine", f"{self.learner!r} has no weights to average", "Use 'vote'."
            )
        return self.combine

    def _names(self, public: PublicFacts) -> tuple[str, ...]:
        return tuple(public.variables[i].name for i in self._chosen(public))

    def _chosen(self, public: PublicFacts) -> NDArray[np.int64]:
        return choose(public, self.variables, "method.variables")
