"""Linear NOTEARS-ADMM over secure sums (Ng and Zhang, AISTATS 2022, sections 5.1 and 5.2).

Round 0 sums the sites' numbers of records and their squared deviations. Then the coordinator sends
W, each site answers V_k = S_k (J - B_k) of `secagg.models.notears_admm.linear_site`, and the
coordinator computes the next W from their sum (`secagg.models.notears_admm.coordinator`). Every
site centres its records by its own means, as the paper's program does: sites may differ in level.

Units. Records are stored as u = (x - middle) / half, with middle and half width of the public
bounds, and analysed as u times c. c depends on `standardise`:

* true: the inverse of u's pooled standard deviation. The S_k add up to a correlation matrix.
* "common": half, divided by the smallest pooled standard deviation of all columns, in their own
  units. The largest diagonal entry of the sum of the S_k is the largest ratio of two variances.
* false: half (own units, as in the paper). V_k is divided by half_i half_j, and |S_k| is at most 1.

In the first two cases V_k is sent unchanged. B_k has no bound. If a contribution exceeds its bound,
the method diverges, and the site sends nothing.

What a refusal reveals. A coordinator that sends a false W or number of records can influence
whether one site's answer exceeds its bound. The site takes no further part after its first refusal.
The coordinator learns its round and the error's kind: one of 1 + rounds x kinds outcomes per run.
Sites know rho2 and the schedule from the job. A false scale has the same effect as another rho2.

What the transcript determines (Guarantees: only this)
    * The last sum alone is S (J - W), because there B_k = W; S is the pooled covariance within
      sites. J - W of a static graph is invertible: that gives S. With lags, several sums give it.
    * Every site's own covariance. In early rounds B_k is far from W, and the sum over k of
      S_k (S_k + rho2 I)^-1 (...) depends on how records are split over sites. The sums of all
      rounds are equations in the sites' S_k. A coordinator that follows the method can solve them
      for all S_k, but does not learn which S_k belongs to which site. The attack `admm_sums` does
      it from a masked run over four hospitals' records, with three variables, to nine digits. For
      d = 10 and K = 10, 60 rounds have as many independent entries as unknowns (550); nobody has
      measured how long solving them takes.
    So NOTEARS on one secure sum of moments within sites (method `moments` with centre = "site")
    releases strictly less, up to rounding. No sum of this method contains the sites' means. Pooled
    moments without centring do: with a run of this method, they show how these means scatter.

=================================  =================================================================
site                               contribution
=================================  =================================================================
no record, or one                  S_k = 0, so V_k = 0; the graph is that of the other sites
a column that is constant there    zeros in its row and column of S_k
fewer records than variables       S_k has rank n_k - 1: (10) needs no inverse of it
constant everywhere                an isolated variable; in own units only, else an error names it
a W that is not finite             `PeerError`, nothing is sent
=================================  =================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    ANY_MESSAGE,
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
    SiteRecords,
    Stage,
    State,
    Update,
    Windows,
)
from secagg.contracts.noise import Placements
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.models.common.checks import check_halves, check_numbers
from secagg.models.common.disclosures import CENTRES_WITHIN_SITES, means_by_subtraction
from secagg.models.common.message_checks import check_facts, read_message
from secagg.models.common.units import SQUARES_BITS, centred, deviations, records_in
from secagg.models.common.variables import halves
from secagg.models.graphs.job_result import check_truth, graph_result, note_indicators
from secagg.models.graphs.knowledge import Edges, Knowledge, KnowledgeSettings, in_state
from secagg.models.graphs.noise_size import OWN_UNITS
from secagg.models.graphs.proximal_newton import LinearGraph
from secagg.models.graphs.tables import linear_table
from secagg.models.notears_admm.columns import graph_columns, lagged_edges
from secagg.models.notears_admm.coordinator import Schedule, Solver, advance, begin
from secagg.models.notears_admm.linear_noise import (
    graph_in_force,
    noise_fields,
    noise_in,
    noise_sums,
    noise_told,
    raised_threshold,
    with_noise,
)
from secagg.models.notears_admm.linear_simulation import linear_fit, refuse_singular
from secagg.models.notears_admm.linear_site import answer, begin_site, spectrum
from secagg.models.notears_admm.range import (
    CONSENSUS,
    FIELD_BOUND,
    RECORDS,
    bits_for,
    check_own_units,
    common_scale,
    within_bound,
)
from secagg.models.notears_admm.result import CONVERGED, STATIONARITY_LABELS
from secagg.models.notears_admm.variants import (
    Variant,
    check_chosen,
    settings_in_force,
    variant_in_words,
)

_MIN_VARIANCE = 2.0 ** (4 - SQUARES_BITS)  # 16 steps of the sum of squares, which are exact


@dataclass(frozen=True, kw_only=True)
class NotearsAdmm(KnowledgeSettings):
    """Linear NOTEARS-ADMM, static or (with `lags`) for time series."""

    variables: tuple[str, ...] | None = None
    """The columns of the graph, at least two. If it is not set, all columns that no lag lists."""
    lags: tuple[tuple[str, ...], ...] = ()
    """For time series: first the columns with the variables' values one step before, then those
    with the values two steps before, and so on. Each list is in the order of `variables`. Every
    record is one window of a series."""
    variant: Variant = "fast"
    """Sets the defaults of `solver`, `standardise`, `gamma1`, `gamma2` and `rounds`. `"fast"`: our
    choice of these settings. `"paper"`: columns in their own units, and the paper's optimiser and
    schedule."""
    solver: Solver | None = None
    """How the coordinator computes the next graph. `"proximal"` (variant "fast"): a proximal
    Newton step. It stops when h, which is 0 if there is no cycle, is at most 1e-6, and the mean
    difference between the sites' solutions (the consensus residual) is at most 1e-8.
    `"subgradient"` (variant "paper"): the paper's optimiser with its whole schedule of 197
    rounds."""
    penalty: float = 0.01
    """Factor of the sum of absolute edge weights, at least 0. With noise at the sites, it is raised
    to the size of the noise."""
    lag_penalty: float = 0.01
    """`penalty` for effects of earlier steps, at least 0. With noise at the sites, it is raised to
    the size of the noise."""
    threshold: float = 0.3
    """Edges whose absolute weight is at most this are dropped. With noise at the sites, it is
    raised to the size of the noise."""
    standardise: bool | Literal["common"] | None = None
    """If true (default with variant "fast" without `lags`), divide each column by its pooled
    standard deviation within sites. If `"common"`, divide all columns by one number, the smallest
    of these deviations: choose it if all columns have the same unit. If false (default with variant
    "paper"), columns keep their own units. Time series with variant "fast" have no default. The
    deviations are released in every case."""
    zero_diagonal: bool = False
    """Keep each variable's effect on itself at zero from the start. If false, as in the paper, the
    penalty on h removes these effects."""
    acyclic: bool = False
    """If the graph has cycles, raise the threshold until none is left. If false, cycles stay."""
    rho1: float = 1e-3
    """First value of the penalty on h, which measures cycles, from 1e-12 to 1e16."""
    rho2: float = 1e-3
    """First value of the penalty on differences between the sites' solutions, from 1e-12 to
    1e16."""
    gamma1: float | None = None
    """Factor by which `rho1` grows in each round (1.75, or 1.3 with `lags` and variant "fast"),
    above 1 and at most 100."""
    gamma2: float | None = None
    """Factor by which `rho2` grows in each round (1.25, or 1.1 with `lags` and variant "fast"),
    above 1 and at most 100."""
    rounds: int | None = None
    """Largest number of rounds (200, or 500 with `lags` and variant "fast"), from 1 to 10000."""
    truth: Edges | None = None
    """The true edges `["cause", "effect"]` between variables, if they are known. The graph is then
    scored. They must form a directed acyclic graph."""

    name: ClassVar[str] = "notears_admm"
    placements: ClassVar[Placements] = Placements.site_moments()

    unknown_settings: ClassVar[Mapping[str, str]] = CENTRES_WITHIN_SITES

    @property
    def title(self) -> str:
        return f"Graph by NOTEARS-ADMM, {variant_in_words(self.variant, self._given)}"

    @property
    def disclosure(self) -> Disclosure:
        source = "sums of several rounds give" if self.lags else "the last round's sum gives"
        less = (
            "One sum of moments cannot replace these sums: 'moments' has no graph analysis with "
            "lags."
            if self.lags
            else "One sum of moments (method 'moments', analyses 'pc' and 'notears') with centre = "
            '"site" releases strictly less.'
        )
        text = (
            f"The pooled covariance within sites ({source} it), and more. Sums of early rounds "
            "depend on how records are split over sites, so all sums together can be solved for "
            "every single site's own covariance matrix, but do not show which site has which. If "
            "there are few sites and variables, assume that the coordinator knows these matrices. "
        )
        return Disclosure(
            DisclosureKind.SOLVABLE, text + less, ANY_MESSAGE, other_runs=means_by_subtraction(),
            attacks=() if self.lags else ("identified_share", "admm_sums"),
            text_noised="Only noisy matrices, because the sites added noise to their moments. "
            f"{text.rstrip()}",
        )  # fmt: skip

    @property
    def facts(self) -> MethodFacts:
        """A linear graph from each site's moments; with lags, of windows of series."""
        columns = None if self.variables is None else frozenset(sum(self.lags, self.variables))
        rule = EdgeRule(columns, self.penalty, self.threshold, pooled=True)
        return MethodFacts(
            derivation=type(self).__module__, reads=MomentsOnly(), named_code=(), network=False,
            weights=EqualWeights("A site's responses are functions of its moments."),
            windows=Windows(1 + len(self.lags), columns), regression=None,
            edge_rule=rule if self._standardised else OWN_UNITS,
        )  # fmt: skip

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        standardised, labels = self._standardised, STATIONARITY_LABELS
        table = linear_table(self.title, standardised=standardised, labels=labels,
                             converged=CONVERGED)  # fmt: skip
        return (table,)

    @cached_property
    def schedule(self) -> Schedule:
        """The penalties of all rounds, which all parties know."""
        used = self._in_force
        growth = (used["gamma1"], used["gamma2"], used["rounds"])
        return Schedule(used["solver"], self.rho1, self.rho2, *growth)

    @property
    def _given(self) -> dict[str, Any]:
        """The settings that have other values in other variants."""
        names = ("solver", "standardise", "gamma1", "gamma2", "rounds")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def _in_force(self) -> dict[str, Any]:
        return settings_in_force(self.variant, self._given, lagged=bool(self.lags))

    @property
    def _standardised(self) -> bool:
        return self._in_force["standardise"] is True

    @property
    def _own_units(self) -> bool:
        return self._in_force["standardise"] is False

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        self.schedule.check()
        check_numbers(self, {"penalty": 0, "lag_penalty": 0, "threshold": 0})
        graph, chosen = self._graph(public), self.chosen(public)
        check_truth(self.truth, self._names(public), public)
        self.known(public)
        check_chosen(self._in_force["standardise"])
        half, rows = halves(public, chosen), float(public.max_rows)
        check_halves(half, [public.variables[i].name for i in chosen])
        count = (
            Field("records", (1,), rows, 0, Kind.COUNT),
            Field("squares", (len(chosen),), rows, SQUARES_BITS, Kind.WEIGHT),
            *noise_fields(public, len(chosen)),
        )
        bits = bits_for(float(np.max(self.units(half))), self.rho2)
        answers = (Field("responses", graph.shape, FIELD_BOUND, bits, Kind.BOUNDED),)
        counted = (
            "the number of records, and each column's sum of squared deviations from its sites' "
            f"means{noise_told(public)}"
        )
        answered = (
            "sum over sites of rho2 B_k + beta_k, less the W it sent: the slopes of the sites' "
            "losses at their own solutions"
        )
        first = Stage(RECORDS, count, 1, counted)
        return first, Stage(CONSENSUS, answers, self.schedule.rounds, answered)

    def initial_state(self, public: PublicFacts) -> State:
        state = begin(self.schedule, np.zeros(self._graph(public).shape))
        return {
            **state,
            "status": "counting",
            "columns": [public.variables[i].name for i in self.chosen(public)],
            "scale": halves(public, self.chosen(public)),
            **in_state(self.known(public)),
        }

    def next_request(self, state: State) -> tuple[str, Body] | None:
        if state["status"] == "counting":
            return RECORDS, {}
        if state["status"] != "running":
            return None
        return CONSENSUS, {name: state[name] for name in ("W", "records", "scale")}

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Count, or solve problem (4) and respond."""
        u = centred(rows.values[:, self.chosen(public)])
        if stage == RECORDS:
            sums = {"records": np.array([float(len(u))]), "squares": np.sum(u * u, axis=0)}
            return sums | noise_sums(rows, self.chosen(public)), memory
        graph = self._graph(public)
        received, facts = read_message(message, {"W": graph.shape}, {"scale": graph.shape[:1]})
        check_facts(memory, facts, len(u))
        if self._own_units:
            check_own_units(facts, halves(public, self.chosen(public)))
        if not memory:
            Q, L = spectrum(u * facts["scale"], facts["records"])
            memory = {**begin_site(Q, L, graph.d), **facts}
        V, memory = answer(memory, received["W"], self.schedule.next_rho2(memory["rho2"]))
        return {"responses": within_bound(V / self.units(facts["scale"]))}, memory

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        if state["status"] == "counting":
            return self._after_count(state, total)
        graph = graph_in_force(self._graph_of(total["responses"].shape[1]), state)
        V = total["responses"] * self.units(state["scale"])
        return advance(state, V, sites, graph, self.schedule)

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the graph, in the units analysed. Raises `UsageError` if S is singular."""
        if not self.lags:
            refuse_singular(state, len(public.sites))
        names, graph = self._names(public), graph_in_force(self._graph(public), state)
        floor = raised_threshold(state, graph)
        fit = linear_fit(
            state,
            names,
            graph,
            self.schedule,
            self.threshold,
            deviations=state["deviations"],
            acyclic=self.acyclic,
            standardised=self._standardised,
            floor=floor[: graph.d],
        )
        schedule = self.schedule
        settings = {
            **fit.settings,
            "standardise": self._in_force["standardise"],
            "rounds": schedule.rounds,
        }
        fit = replace(fit, settings=settings, knowledge=self.known(public))
        result = note_indicators(graph_result(fit, self.truth), public)
        result.summary["status"] = state["status"]
        if self._standardised:  # to undo it
            half = halves(public, self.chosen(public))
            result.arrays["deviations"] = half / state["scale"]
        if graph.lags:
            result.arrays["lagged_weights"] = lagged = graph.lagged(state["W"])
            edges = lagged_edges(lagged, self.lags, names, self.threshold, graph.lagged(floor))
            result.summary["lagged_edges"] = edges
        return with_noise(result, state, graph, self.lags, self.threshold)

    def _after_count(self, state: State, total: Update) -> State:
        records = records_in(total)
        variance, scale = total["squares"] / records, state["scale"]
        if not self._own_units:
            deviation = deviations(variance, _MIN_VARIANCE, state["columns"])
            scale = 1 / deviation if self._standardised else common_scale(scale, deviation)
        facts = {"records": records, "scale": scale, "deviations": np.sqrt(variance) * scale}
        return {**state, "status": "running", **facts, **noise_in(total, scale, records)}

    def units(self, scale: Array) -> Array:
        """Return the divisors of V_k when it is sent, shape (q, d)."""
        d = len(scale) // (1 + len(self.lags))
        return np.outer(scale, scale[:d]) if self._own_units else np.ones((len(scale), d))

    def known(self, public: PublicFacts) -> Knowledge | None:
        return self.knowledge(self._names(public), public, sum(self.lags, ()))

    def _graph(self, public: PublicFacts) -> LinearGraph:
        return self._graph_of(len(self._names(public)))

    def _graph_of(self, d: int) -> LinearGraph:
        penalties = (self.penalty, self.lag_penalty)
        return LinearGraph(d, len(self.lags), penalties, self.zero_diagonal)

    def _names(self, public: PublicFacts) -> tuple[str, ...]:
        chosen = self.chosen(public)
        d = len(chosen) // (1 + len(self.lags))
        return tuple(public.variables[i].name for i in chosen[:d])

    def chosen(self, public: PublicFacts) -> NDArray[np.int64]:
        """Return the positions of the variables, then of their values at each lag."""
        return graph_columns(public, self.variables, self.lags)
