"""Federated neural graphical models, with dependencies outside the graph cut by construction.

Chajewska and Shrivastava (2023), "Federated learning with neural graphical models", sections 2.1 to
2.3. The graph is recovered from one secure sum of moments
(`secagg.models.neural.ngm.pooled_graph`); or, as in the paper, each site brings one
(`secagg.models.neural.ngm.site_votes`), and the merge is one secure sum of 0/1 votes for each
pair of columns. Then one network for each column (`secagg.models.neural.ngm.masked_network`) is
trained over secure sums of gradients over records.

The paper sends each site's network to the coordinator, which trains the global network on samples
from them. A network can be inverted for records that it has fitted closely, so no network of a site
leaves it here.

What the transcript determines (Guarantees: only this)
    * The number of records, and the pooled means and covariances of all variables; with votes, only
      their variances (if standardised), and for each pair the number of sites with this edge.
    * As for `secagg.models.neural.torch_module`: pooled gradients, or sums of the sites' updates.

=====================================  =============================================================
case                                   result
=====================================  =============================================================
a site without a complete record       weight 0, votes for no edge
one record at a site                   weight 1; with votes, its graph is empty
a column constant at all sites         no error: it has no influence, and its residual sd is minimal
a level that no record has             its probability tends to 0; the penalty keeps it finite
a column without an edge               its marginal distribution
=====================================  =============================================================
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from secagg.contracts import (
    ANY_MESSAGE,
    Body,
    Disclosure,
    DisclosureKind,
    Field,
    IntegerNoise,
    Kind,
    Label,
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
from secagg.contracts.noise import Placement, Placements
from secagg.core.hash_chain_log import canonical_json
from secagg.core.randomness import RandomBytes
from secagg.errors import PeerError
from secagg.models.common.shrinkage import marked_shrunk
from secagg.models.neural.graph_votes import missing_edges_note, vote_level
from secagg.models.neural.local_fit import fit_privately, local_training
from secagg.models.neural.ngm.convergence import with_convergence, with_gain
from secagg.models.neural.ngm.curvature import Curvature
from secagg.models.neural.ngm.distillation import (
    OVER_SAMPLES,
    fitted_model,
    own_network,
    samples_from,
)
from secagg.models.neural.ngm.fit_stage import FIT, calibration, fit_counts, fit_fields, shown
from secagg.models.neural.ngm.fitted.model import FittedNgm
from secagg.models.neural.ngm.graph_stage import (
    GRAPH,
    INPUTS_NOTE,
    after_graph,
    graph_stage,
    graph_sums,
    linear_inputs,
    listed_edges,
)
from secagg.models.neural.ngm.layout import NgmLayout, ngm_layout
from secagg.models.neural.ngm.masked_network import MaskedNetwork
from secagg.models.neural.ngm.networks import Network, equation_1, leaks, masked_network, no_facts
from secagg.models.neural.ngm.penalty import quadratic_penalty
from secagg.models.neural.ngm.public_term import with_public_term
from secagg.models.neural.ngm.settings import WEAK_PENALTY, NgmSettings
from secagg.models.neural.ngm.shared_network import SharedNetwork
from secagg.models.neural.ngm.standardisation import checked_units
from secagg.models.neural.optimisers import Scaling
from secagg.models.neural.rounds import TRAIN, Penalty, checked_parameters, network_facts
from secagg.models.neural.torch_import import require_torch

LABELS: Final[dict[str, Label]] = {
    "loss": ("Loss", "mean over all records; with adam and sgd, before the last step"),
    "parameters": ("Parameters", "numbers that the networks have"),
    "rounds": ("Rounds", ""),
    "records": ("Records", "of all sites"),
    "public_records": ("Public records", "of the job, in the loss that is minimised"),
    "shortened_updates": ("Shortened updates", "updates of sites that were clipped, of all rounds"),
}

LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class FedNgm(NgmSettings):
    """A neural graphical model."""

    name: ClassVar[str] = "fedngm"
    placements: ClassVar[Placements] = Placements(
        (Placement.ROUND, Placement.SITE),
        'Gradients are clipped in every step; "site" needs learn_from = "samples".',
    )
    title: ClassVar[str] = "Neural graphical model"

    @property
    def disclosure(self) -> Disclosure:
        votes = "For each pair of columns, how many sites' own graphs have the edge. "
        facts = "Each variable's pooled mean and variance. " if self.standardise else ""
        if self.sums_moments:
            facts = "The pooled means and covariances of all variables. "
        fedavg = self.algorithm == "fedavg"
        rest = (
            "How training at a site changes the networks' parameters, on average over the sites."
            if fedavg
            else "The gradient of the pooled loss at the parameters of every round."
        )
        samples = self.learn_from == "samples"
        if samples:
            rest = f"{rest.removesuffix('.')}, {OVER_SAMPLES}"
            if self.public_sites:
                rest += " Public sites contribute gradients over their records."
        sites = fedavg or samples or self.edges == "votes"
        kind = DisclosureKind.SITES if sites else DisclosureKind.POOLED
        fit = " How many records have each size of residual." if self._counts_fit else ""
        text = f"{votes if self.edges == 'votes' else ''}{facts}{rest}{fit}"
        return Disclosure(kind, text, ANY_MESSAGE)

    @property
    def facts(self) -> MethodFacts:
        """Networks of all columns, with a training at sites under noise."""
        return network_facts(
            type(self).__module__,
            repeatable=self.algorithm == "fedsgd" and self.learn_from == "records",
            train=self.train,
            public_records=True,
        )

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title, TableKind.NETWORK, LABELS),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        layout = ngm_layout(public, self.variables)
        self.check_settings(layout, public)
        require_torch(self.name)
        parameters = self._network(layout, no_facts(layout)).blocks.size
        train = self.train_stage(parameters, public)
        if self.noised(public):
            return (train,)
        if public.clip is not None:
            training = local_training(self.local_rounds, parameters, public)
            trained = (Field("trained", (1,), 1.0, 0, Kind.COUNT),)
            local = Stage(LOCAL, trained, 1, "the number of sites", training=training)
            return local, replace(train, reads_records=False)
        rows = float(public.max_rows)
        graph = graph_stage(self, layout, rows)
        if not self._counts_fit:
            return graph, train
        sees = "the number of records with each size of residual and each predicted probability"
        return graph, train, Stage(FIT, fit_fields(layout, rows), 1, sees)

    def initial_state(self, public: PublicFacts) -> State:
        layout = ngm_layout(public, self.variables)
        state: State = {
            "status": GRAPH,
            "max_rows": public.max_rows,
            "noised": self.noised(public),
            "layout": layout.plain(),
            **({} if public.public_records is None else {"public": public.public_records}),
        }
        if public.clip is None:
            return state
        alone = {} if state["noised"] else {"alone": True}
        return self._after_graph(state, layout, {}) | alone

    def next_request(self, state: State) -> tuple[str, Body] | None:
        if state["status"] == GRAPH:
            return GRAPH, {}
        if state.get("alone"):
            return LOCAL, {**state["facts"], "settings": canonical_json(asdict(self)).decode()}
        training = state["training"]
        if "ended" not in training:
            return TRAIN, {"theta": training["optimiser"]["point"], **state["facts"]}
        private = state["noised"] or "alone" in state
        if state["status"] == FIT or private or not self._counts_fit:
            return None
        return FIT, {"theta": training["optimiser"]["best"], **state["facts"]}

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
        if stage == GRAPH:
            return graph_sums(self, layout, rows, len(public.sites)), memory
        facts = _checked_facts(message, layout, memory)
        network = self._network(layout, facts)
        if stage == FIT and isinstance(network, MaskedNetwork):
            theta = checked_parameters(message, network.blocks.size)
            model = fitted_model(network, theta, public)
            return fit_counts(model, rows.values[:, list(layout.chosen)]), memory
        if "graph" not in memory:
            memory = memory | facts
        values, weight = rows.values, None
        if self.learn_from == "samples" and isinstance(network, MaskedNetwork):
            if "samples" not in memory:
                memory = memory | self._samples(network, rows, public, random)
            values, weight = memory["samples"], memory["weight"]
        update = self.train_contribution(network, values, message, public, random, weight)
        return update, memory

    def train(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
        noise: IntegerNoise,
    ) -> tuple[Update, State]:
        """Train a network with noise, and keep samples from it."""
        layout = ngm_layout(public, self.variables)
        facts = _checked_facts(message, layout, memory)
        if message.get("settings") != canonical_json(asdict(self)).decode():
            raise PeerError("message", "the coordinator has other settings")
        network = self._network(layout, facts)
        assert isinstance(network, MaskedNetwork)
        theta = fit_privately(
            self.local_rounds, network, network.initial(self.seed), rows.values, public, random,
            noise, self._penalty(network, facts),
        )  # fmt: skip
        rng = np.random.default_rng(list(random(32)))
        model = fitted_model(network, theta, public)
        samples = samples_from(model, self.samples, len(public.variables), rng)
        return {"trained": np.ones(1)}, facts | {"samples": samples, "weight": 1.0}

    def _samples(
        self, network: MaskedNetwork, rows: SiteRecords, public: PublicFacts, random: RandomBytes
    ) -> State:
        """Return what stands for the site's records in training, and its weight."""
        weight = len(rows.values) / public.max_rows
        if self.site_weights == "equal":
            weight = float(len(rows.values) > 0)
        if rows.site in self.public_sites or not len(rows.values):
            return {"samples": rows.values, "weight": weight}
        model = own_network(network, rows.values, self._penalty(network, {}), public, self.seed)
        rng = np.random.default_rng(list(random(32)))
        samples = samples_from(model, self.samples, rows.values.shape[1], rng)
        return {"samples": samples, "weight": weight}

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        layout = NgmLayout.of(state["layout"])
        if state["status"] == GRAPH:
            return self._after_graph(state, layout, total)
        if state.get("alone"):
            return state | {"alone": False}
        training = state["training"]
        if "ended" in training:
            return state | {"status": FIT, "fit": shown(total)}
        network = self._network(layout, state["facts"])
        penalty = self._penalty(network, state["facts"], noised=state["noised"])
        penalty = with_public_term(penalty, network, state, self.public_weight)
        records = state["records"] or (self.samples * sites if "alone" in state else None)
        if state["noised"]:
            return state | {"training": self.advance_training(training, total, penalty)}
        records = records or float(total["weight"][0]) * state["max_rows"]
        scaling = self._scaling(network, records)
        after = self.advance_training(training, total, penalty, records, scaling)
        return state | {"training": with_gain(after, records, self.least_gain)}

    def _after_graph(self, state: State, layout: NgmLayout, total: Update) -> State:
        """Choose the edges, the inputs and the units, and begin training."""
        found, facts, records = after_graph(self, layout, total)
        return self.begin_networks({**state, **found}, facts, records)

    def begin_networks(self, state: State, facts: State, records: int | None) -> State:
        """Return the state in which the networks of a graph are trained.

        state: layout, max_rows, noised, votes; facts: graph, centre and scale
        records: their number, if it is known
        """
        start = self._network(NgmLayout.of(state["layout"]), facts).initial(self.seed)
        training = self.begin_training(start, state["max_rows"], state["noised"])
        return {**state, "status": TRAIN, "facts": facts, "records": records, "training": training}

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the graph, and the parameters by block."""
        layout, training = NgmLayout.of(state["layout"]), state["training"]
        network = self._network(layout, state["facts"])
        names, graph = layout.names, state["facts"]["graph"]
        summary: dict[str, Any] = {
            "method": self.name,
            "names": list(names),
            "edges": listed_edges(self, layout, state, public.min_sites),
            "parameters": network.blocks.size,
            **({"records": int(counted.records)} if public.clip is None else {}),
            **({"public_records": len(state["public"])} if "public" in state else {}),
            **self.training_summary(training),
        }
        kinks = isinstance(network, SharedNetwork) and self.path_penalty > 0
        least = self.least_gain
        summary = with_convergence(summary, training, least, "method.rounds", kinks=kinks)
        if "curved" in state["facts"]:
            summary["linear_inputs"] = linear_inputs(layout, state["facts"])
            summary["notes"] = [*summary["notes"], INPUTS_NOTE]
        if self.edges == "pooled" and self.recovery != "graphical_lasso":
            alpha = vote_level(len(layout.pairs[0]), 1, 1, self.false_edges)
            note = missing_edges_note(alpha, counted.records)
            summary["notes"] = [*summary["notes"], note]
        theta, penalty = training["optimiser"]["best"], self.hidden_penalty(state["noised"])
        if isinstance(network, SharedNetwork):
            summary["derivatives"] = leaks(network, graph, theta, self.seed)
        elif self.hidden and penalty > WEAK_PENALTY:
            advice = f"The penalty was {penalty:g}; a smaller one shrinks less."
            summary = marked_shrunk(summary, "curved dependences", advice)
        arrays = dict(network.blocks.split(theta))
        arrays |= {name: arrays[name] * mask for name, mask in network.masks.items()}
        arrays |= state["facts"]
        if "fit" in state:
            arrays["residuals"] = state["fit"]["residuals"]
            model = FittedNgm.of(layout, public, arrays)
            fit = state["fit"]
            summary["calibration"] = calibration(model, fit["predicted"], fit["observed"])
        return Result(summary, arrays)

    @property
    def _counts_fit(self) -> bool:
        return self.count_fit and self.network == "masked"

    def network_in(self, state: State, public: PublicFacts) -> tuple[Network, Penalty]:
        """Return what a state trains, and its penalty."""
        network = self._network(NgmLayout.of(state["layout"]), state["facts"])
        penalty = self._penalty(network, state["facts"])
        return network, with_public_term(penalty, network, state, self.public_weight)

    def _network(self, layout: NgmLayout, facts: State) -> Network:
        if self.network == "paper":
            return SharedNetwork(layout, self.hidden, facts["centre"], facts["scale"])
        named = (facts[name].tobytes() for name in ("graph", "centre", "scale", "curved")
                 if name in facts)  # fmt: skip
        return masked_network(layout, self.hidden, *named)

    def _scaling(self, network: Network, records: float) -> Scaling | None:
        """Return how L-BFGS scales its steps; None as it does by itself."""
        if not isinstance(network, MaskedNetwork):
            return None
        penalties = self.hidden_penalty(noised=False), self.linear_penalty
        curvature = Curvature(network, *penalties, records)
        return curvature.solve if curvature.usable else None

    def _penalty(self, network: Network, facts: State, *, noised: bool = False) -> Penalty:
        if isinstance(network, SharedNetwork):
            return equation_1(network, facts["graph"], self.path_penalty)
        return quadratic_penalty(network.blocks, self.hidden_penalty(noised), self.linear_penalty)


def _checked_facts(message: Body, layout: NgmLayout, memory: State) -> State:
    """Return graphs and units of a message. Raises `PeerError`, also if they change in a run."""
    facts = checked_units(message, layout.variables, memory)
    for name in ("graph", "curved"):
        if name == "curved" and name not in message:
            continue
        graph = message.get(name)
        if not (
            isinstance(graph, np.ndarray)
            and graph.dtype == np.uint8
            and graph.shape == (layout.d, layout.d)
        ):
            raise PeerError("message", "the coordinator's graph has the wrong shape or type")
        if np.any(graph > 1) or np.any(graph != graph.T) or np.any(np.diag(graph)):
            raise PeerError("message", "the coordinator's graph is not symmetric and without loops")
        facts[name] = graph
    if "graph" in memory and any(
        (name in facts) != (name in memory)
        or (name in facts and not np.array_equal(facts[name], memory[name]))
        for name in ("graph", "curved")
    ):
        raise PeerError("message", "the coordinator changed the graph")
    return facts
