"""A graph and a network at once, by a penalty on paths: federated neural graph revealers.

Chajewska and Shrivastava (2023), section 2.5. One network reads all variables and predicts all of
them (`secagg.models.neural.ngm.shared_network`). The mean loss of the records has two penalties,
equation 5 entry by entry, with P the path norms and s_v the standard deviation of variable v (1 for
a standardised column, sqrt(p (1 - p)) for a level with the share p of all records):

    self_penalty * sum of P from a column to itself + sparsity * sum of s_v P_vu                 (1)

So s_v P_vu bounds the slope of a mean, or of a probability, in standard deviations. Its slope in
(1) at 0 is the covariance of v and u, which has the same standard error for all variables:
1 / sqrt(n) for n records without dependence. A linear dependence with the z value z has, about,

    sqrt(n) s_v P_vu = max(|z| - sqrt(n) sparsity, 0)                                            (2)

(soft thresholding). So by default, sparsity = 1 / sqrt(n); and two columns have an edge if the
largest s_v P_vu between their variables, as a mean of both directions, is above (2) for the z value
that `false_edges` pairs would exceed if no two columns were associated. The training runs over
secure sums of gradients over records, like that of `fedngm`. The coordinator alone computes the
penalty.

(1) shrinks every dependence, so the network that finds the graph gives biased means and
probabilities. Once the graph is found, the networks of `fedngm` are fitted to it anew, without (1)
and from other starting weights, in further rounds ("refit"). Queries, predictions and samples use
them. This is the relaxed lasso (Meinshausen, Computational Statistics & Data Analysis 2007) with
networks in place of coefficients. Like those of `fedngm`, these networks also read the columns that
AIC keeps (`secagg.models.neural.ngm.pooled_graph`), as linear terms: a dependence too weak for an
edge still counts in a mean.

With `learn_from = "samples"`, the paper's consensus by distillation: each site finds its own graph
in the same way, trains the networks of `fedngm` on it, and draws samples. The sums are then over
samples. In the paper, each site sends its revealer to the coordinator, which draws the samples;
here nothing of it leaves the site.

How the paper's training is changed (docs/math/measured-methods.md has the figures):
    * Steps are proximal (`secagg.models.neural.ngm.revealing.proximal`). Gradient steps never make
      a path norm exactly 0, and the graphs are worse.
    * The loss of a level is a cross-entropy, and residual variances are estimated. This is safe
      only because self paths vanish: a column that is copied has the residual variance 0.
    * One hidden layer is the default. With two, paths share more weights, and graphs are worse.

Differential privacy is refused: the stages declare no bound on what one record can change. With
noise at each round, tried with 3000 records of 6 columns and epsilon 8, no edge was found.

What the transcript determines (Guarantees: only this)
    * The number of records, pooled means and variances; nothing of this with `standardise = false`.
    * The pooled covariances, which are summed for `inputs = "aic"`. The first gradient alone tells
      them to a tenth of their standard error or so (tests/attacks/test_revealed_covariances.py).
    * The pooled loss and its gradient at the parameters of every round, also of the refit. With
      samples, they depend on how records are split over sites; else nothing does.
    * The last sum of `fedngm`, after the refit: the counts of `secagg.models.neural.ngm.fit_stage`.

=====================================  =============================================================
case                                   result
=====================================  =============================================================
a site without a complete record       weight 0; the result is that of the other sites
a column constant at all sites         no error: it has no edge
two columns that are equal             an edge between them; their other edges may go to either
=====================================  =============================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    ANY_MESSAGE,
    Body,
    Disclosure,
    DisclosureKind,
    Field,
    Kind,
    MethodFacts,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SiteRecords,
    Stage,
    State,
    TableKind,
    Update,
)
from secagg.contracts.noise import Placements
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.models.common.shrinkage import marked_shrunk
from secagg.models.common.units import records_in
from secagg.models.neural.graph_votes import missing_edges_note
from secagg.models.neural.ngm.convergence import with_convergence
from secagg.models.neural.ngm.distillation import (
    OVER_SAMPLES,
    own_network,
    samples_from,
)
from secagg.models.neural.ngm.fit_stage import FIT
from secagg.models.neural.ngm.graph_stage import GRAPH, INPUTS_NOTE
from secagg.models.neural.ngm.layout import NgmLayout, ngm_layout
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.ngm.path_norms import path_norms
from secagg.models.neural.ngm.penalty import quadratic_penalty
from secagg.models.neural.ngm.pooled_graph import MOMENTS, PooledRecords
from secagg.models.neural.ngm.revealing.proximal import proximal_step
from secagg.models.neural.ngm.revealing.settings import NgrSettings
from secagg.models.neural.ngm.revealing.strengths import (
    FoundGraph,
    earlier_round,
    found_graph,
    level,
    penalised_paths,
    with_search,
)
from secagg.models.neural.ngm.settings import STRONG_PENALTY, WEAK_PENALTY
from secagg.models.neural.ngm.shared_network import SharedNetwork, self_paths
from secagg.models.neural.ngm.standardisation import (
    centre_and_scale,
    checked_units,
    standardisation_fields,
    standardisation_sums,
)
from secagg.models.neural.optimisers import adam_lengths
from secagg.models.neural.rounds import TRAIN, NetworkRounds, network_facts
from secagg.models.neural.torch_import import require_torch

UNITS, REFIT = "units", "refit"
REFITTED: Final = "refit."
"""Begins the names of the refitted networks' arrays."""
ASK_THE_REFIT: Final = "Means and probabilities come from the refit (`secagg query`)."
_OWN_HIDDEN: Final = (10,)  # of the networks that a site's samples come from: defaults of `fedngm`
_OWN_LINEAR_PENALTY: Final = 1.0
_LABELS = {
    "loss": ("Loss", "mean over all records, at the end"),
    "parameters": ("Parameters", "numbers that the network has"),
    "rounds": ("Rounds", ""),
    "records": ("Records", "of all sites"),
    "largest_self_path": ("Largest self path", "0 if no output depends on its own column"),
    "refit_loss": ("Loss after the refit", "mean over all records"),
    "refit_rounds": ("Rounds of the refit", ""),
    "refit_parameters": ("Parameters of the refit", "numbers that the refitted networks have"),
    "refit_status": ("End of the refit", ""),
}


@dataclass(frozen=True, kw_only=True)
class FedNgr(NgrSettings):
    """A neural graph revealer."""

    name: ClassVar[str] = "fedngr"
    placements: ClassVar[Placements] = Placements(
        (),
        "Sites choose graphs of their own, and one record can change every edge.",
        'Use method fedngm with placement "round": networks over the edges that the job names '
        '(edges = "all" or a list of pairs, and standardise = false). To learn a nonlinear graph, '
        'use notears_mlp_admm with placement "round".',
    )
    title: ClassVar[str] = "Neural graph revealer"

    @property
    def disclosure(self) -> Disclosure:
        facts = ""
        if self.standardise:  # if covariances are not summed, the gradients tell them
            facts = "The pooled means and covariances of all variables. "
        text = f"{facts}The gradient of the pooled loss at the parameters of every round"
        fit = " How many records have each size of residual." if self.refit else ""
        if self.learn_from == "records":
            return Disclosure(DisclosureKind.POOLED, f"{text}.{fit}", ANY_MESSAGE)
        return Disclosure(DisclosureKind.SITES, f"{text}, {OVER_SAMPLES}{fit}", ANY_MESSAGE)

    @property
    def facts(self) -> MethodFacts:
        """One network of all columns."""
        return network_facts(type(self).__module__, repeatable=self.learn_from == "records")

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title, TableKind.NETWORK, _LABELS),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        exact = replace(public, clip=None)
        self._training.check_rounds(exact)
        self.check_settings()
        layout = ngm_layout(public, self.variables)
        require_torch(self.name)
        rows = float(public.max_rows)
        stages = [self._training.train_stage(self._network(layout, None).blocks.size, exact)]
        if self.refit:
            of_graph = {stage.name: stage for stage in self.networks.stages(exact)}
            stages += [replace(of_graph[TRAIN], name=REFIT), of_graph[FIT]]
            if self.sums_moments:
                return replace(of_graph[GRAPH], name=UNITS), *stages
        if not self.standardise:
            return tuple(stages)
        count = Field("records", (1,), rows, 0, Kind.COUNT)
        sees = "the number of records, each variable's sum and sum of squares"
        spec = (count, *standardisation_fields(layout.variables, rows))
        return Stage(UNITS, spec, 1, sees), *stages

    def initial_state(self, public: PublicFacts) -> State:
        layout = ngm_layout(public, self.variables)
        state = {"layout": layout.plain(), "max_rows": public.max_rows}
        if self.standardise:
            return state
        zeros, ones = np.zeros(layout.variables), np.ones(layout.variables)
        return self._begin(state, {"centre": zeros, "scale": ones})

    def next_request(self, state: State) -> tuple[str, Body] | None:
        if "training" not in state:
            return UNITS, {}
        if "ended" not in state["training"]:
            return TRAIN, {"theta": state["training"]["optimiser"]["point"], **state["units"]}
        request = self.networks.next_request(state["refit"]) if self.refit else None
        if request is None:
            return None
        stage, message = request
        return REFIT if stage == TRAIN else stage, message

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        layout = ngm_layout(public, self.variables)
        if stage == UNITS:
            if self.sums_moments:
                return self.networks.contribute(GRAPH, rows, message, memory, public, random)
            u = rows.values[:, list(layout.chosen)]
            return {"records": np.array([float(len(u))]), **standardisation_sums(u)}, memory
        if stage in (REFIT, FIT):
            stage = TRAIN if stage == REFIT else FIT
            return self.networks.contribute(stage, rows, message, memory, public, random)
        units = checked_units(message, layout.variables, memory)
        network = self._network(layout, units)
        values, weight = rows.values, None
        if self.learn_from == "samples" and len(values):
            if "samples" not in memory:
                samples = self._samples(rows, units, public, random)
                memory = units | {"samples": samples, "weight": 1.0}
            values, weight = memory["samples"], memory["weight"]
        training = self._training
        update = training.train_contribution(network, values, message, public, random, weight)
        return update, memory or units

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        if "training" not in state:
            layout, records = NgmLayout.of(state["layout"]), records_in(total)
            state = {**state, "records": records}
            if self.sums_moments:
                pooled = PooledRecords(total[MOMENTS], layout)
                total = pooled.sums
                state["kept"] = pooled.kept_by_aic().astype(np.uint8)
            centre, scale = centre_and_scale(total, records)
            return self._begin(state, {"centre": centre, "scale": scale})
        if "refit" in state:
            return state | {"refit": self.networks.aggregate(state["refit"], total, sites)}
        network = self._network(NgmLayout.of(state["layout"]), state["units"])
        before = state["training"]["optimiser"]["point"]
        if "records" not in state:
            state = {**state, "records": float(total["weight"][0]) * state["max_rows"]}
        training = self._training.advance_training(state["training"], total)
        after = training["optimiser"]
        lengths = adam_lengths(after, self.learning_rate)
        paths = penalised_paths(self, network, before, state["records"])
        point = proximal_step(network, before, after["point"], lengths, paths)
        optimiser = {**after, "point": point, "best": point}
        state = {**state, "training": {**training, "optimiser": optimiser}}
        if training["rounds"] == earlier_round(self.rounds):
            state["earlier"] = self._found(state).strength
        return self._begin_refit(state) if self.refit and "ended" in training else state

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the graph, the path norms, and the parameters by block."""
        layout, training = NgmLayout.of(state["layout"]), state["training"]
        network, theta = self._network(layout, state["units"]), training["optimiser"]["best"]
        norms = self._path_norms(state)
        found = self._found(state)
        edges = [
            {
                "between": [layout.names[i], layout.names[j]],
                "path_norm": float(found.strength[i, j]),
            }
            for i, j in zip(*layout.pairs, strict=True)
            if found.graph[i, j]
        ]
        summary: dict[str, Any] = {
            "method": self.name,
            "names": list(layout.names),
            "edges": edges,
            "sparsity": found.sparsity,
            "threshold": found.threshold,
            "largest_self_path": float(np.max(norms * self_paths(layout))),
            "parameters": network.blocks.size,
            "records": int(counted.records),
            **self._training.training_summary(training),
        }
        summary = marked_shrunk(summary, "path norms", ASK_THE_REFIT)
        if self.sparsity is None and self.threshold is None:
            note = missing_edges_note(level(self, layout), state["records"])
            summary["notes"] = [*summary["notes"], note]
        arrays = {**network.blocks.split(theta), **state["units"], "path_norms": found.strength}
        arrays["graph"] = found.graph.astype(np.uint8)
        if self.refit:
            summary, refitted_arrays = self._with_refit(summary, state["refit"], public, counted)
            arrays |= refitted_arrays
        return Result(with_search(summary, found, state.get("earlier"), self.rounds), arrays)

    def _samples(
        self, rows: SiteRecords, units: State, public: PublicFacts, random: RandomBytes
    ) -> Array:
        """Return samples of networks on the site's own graph, (samples, variables of the job)."""
        layout = ngm_layout(public, self.variables)
        alone = replace(self, learn_from="records", refit=False)
        # The site plays the coordinator of a study of its own.
        plain = {"layout": layout.plain(), "max_rows": public.max_rows}
        state, none = alone._begin(plain, units), State()
        while (request := alone.next_request(state)) is not None:
            stage, message = request
            update, _ = alone.contribute(stage, rows, message, none, public, random)
            state = alone.aggregate(state, update, 1)
        graph = alone._found(state).graph
        network = MaskedNetwork(layout, _OWN_HIDDEN, graph, units["centre"], units["scale"])
        penalty = quadratic_penalty(network.blocks, STRONG_PENALTY, _OWN_LINEAR_PENALTY)
        model = own_network(network, rows.values, penalty, public, self.seed)
        rng = np.random.default_rng(list(random(32)))
        return samples_from(model, self.samples, rows.values.shape[1], rng)

    @cached_property
    def _training(self) -> NetworkRounds:
        """How the rounds run: like those of `fedngm`, with Adam."""
        rounds, rate, seed = self.rounds, self.learning_rate, self.seed
        return NetworkRounds(optimiser="adam", rounds=rounds, learning_rate=rate, seed=seed)

    def _begin(self, state: State, units: State) -> State:
        network = self._network(NgmLayout.of(state["layout"]), units)
        start = network.initial(self.seed)
        training = self._training.begin_training(start, state["max_rows"], noised=False)
        return {**state, "units": units, "training": training}

    @cached_property
    def networks(self) -> FedNgm:
        """The method that fits the networks of the graph, from the same records or samples."""
        return FedNgm(
            variables=self.variables, inputs=self.reads, standardise=self.standardise,
            learn_from=self.learn_from, samples=self.samples, seed=self.seed,
            rounds=self.refit_rounds,
            penalty=WEAK_PENALTY if self.refit_penalty is None else self.refit_penalty,
        )  # fmt: skip

    def _begin_refit(self, state: State) -> State:
        layout, graph = NgmLayout.of(state["layout"]), self._found(state).graph.astype(np.uint8)
        start = {"layout": state["layout"], "max_rows": state["max_rows"], "noised": False,
                 "votes": np.zeros(len(layout.pairs[0]))}  # fmt: skip
        facts = {"graph": graph, **state["units"]}
        if "kept" in state:
            facts |= {"graph": graph | state["kept"], "curved": graph}
        return {**state, "refit": self.networks.begin_networks(start, facts, state["records"])}

    def _network(self, layout: NgmLayout, units: State | None) -> SharedNetwork:
        zeros = np.zeros(layout.variables)
        centre, scale = (units["centre"], units["scale"]) if units else (zeros, zeros)
        return SharedNetwork(layout, self.hidden, centre, scale)

    def _path_norms(self, state: State) -> Array:
        network = self._network(NgmLayout.of(state["layout"]), state["units"])
        return path_norms(network.weights(state["training"]["optimiser"]["best"]))

    def _found(self, state: State) -> FoundGraph:
        layout, centre = NgmLayout.of(state["layout"]), state["units"]["centre"]
        return found_graph(self, layout, centre, self._path_norms(state), state["records"])

    def _with_refit(
        self, summary: dict[str, Any], refit: State, public: PublicFacts, counted: RecordCount
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the summary with that of the refit, and the refit's arrays."""
        found = self.networks.result(refit, public, counted)
        for key in ("loss", "rounds", "parameters", "status"):
            summary[f"refit_{key}"] = found.summary[key]
        for key in ("calibration", "linear_inputs"):
            if key in found.summary:
                summary[key] = found.summary[key]
        notes = [INPUTS_NOTE] if "linear_inputs" in found.summary else []
        summary["notes"] = [*summary["notes"], *notes]
        least = self.networks.least_gain
        summary = with_convergence(summary, refit["training"], least, "method.refit_rounds")
        return summary, {f"{REFITTED}{name}": array for name, array in found.arrays.items()}


def refitted(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the refitted networks' arrays of a result, named as those of `fedngm`; or none."""
    prefix = len(REFITTED)
    return {name[prefix:]: array for name, array in arrays.items() if name.startswith(REFITTED)}
