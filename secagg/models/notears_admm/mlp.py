"""Nonlinear NOTEARS-ADMM over secure sums (Ng and Zhang, AISTATS 2022, section 5.2).

A small network predicts each variable from the others (`secagg.models.graphs.mlp`); W and B_k are
the parameters of all networks. Round 0 sums the sites' numbers of records (and, to standardise, the
columns' sums and sums of squares). Then the coordinator sends W, each site solves problem (4) and
answers V_k, the slopes of its loss there (`secagg.models.notears_admm.mlp_site`), and the
coordinator computes the next W from their sum (`secagg.models.notears_admm.coordinator`).

Units. Records are stored as u = (x - middle) / half and analysed as (u - centre) * scale. Either
centre is 0 and scale is half (own units, about the middle of the declared bounds), or centre is the
pooled mean and scale the inverse of the pooled standard deviation. Unlike linear ones, records are
not centred site by site: a network's slope depends on the level. In own units V_k is divided before
it is sent, for example by half_i half_j^2 for A_ijh, which removes the units. B_k has no bound. A
contribution beyond `FIELD_BOUND` means that the method diverges, and the site sends nothing.

What the transcript determines (Guarantees: only this)
    Every sum is that of the sites' slopes, each at its own B_k. In late rounds, where B_k = W, it
    is the slope of the pooled loss at a W that all parties know. With m hidden units that is
    d (d + 1) m numbers or more per round, over some hundred rounds. As in the linear method, the
    early rounds depend on how records are split over sites.
    * Known: if sites are tiny, the sums determine every record of every site, up to the order of
      sites and records. With three sites, five records each, two variables and 60 rounds, the
      smallest singular value of the sums' derivatives with respect to the records is 2e-4, far
      above the rounding of a sum, 1e-12: the records are locally unique. With three records each,
      a search from a random start finds all of them, to 3e-4 standard deviations
      (`tests/attacks/test_notears_mlp_admm.py`).
    * Unknown: up to which number of records this is possible. There are no fixed statistics, such
      as the covariances of the linear method, through which alone the records act. So nothing
      limits what the sums may reveal.
    A coordinator that deviates from the protocol can choose W so that a slope depends on few
    records, or on one. No single sum of moments can replace this method, because no fixed set of
    moments serves all networks.
    With noise in every round none of this applies: see `secagg.models.notears_admm.mlp_private`;
    nor with solver "gradient": see `secagg.models.notears_admm.mlp_pooled`.

=================================  =================================================================
site                               contribution
=================================  =================================================================
no record                          V_k = 0; the graph is that of the other sites
one record, or a constant column   as any other: rho2 limits how closely its networks fit
a column constant at every site    not detected, may get edges; an error with `standardise`
a W that is not finite             `PeerError`, nothing is sent
=================================  =================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from secagg.contracts import (
    ANY_MESSAGE,
    NO_WINDOWS,
    Body,
    ChosenWeights,
    Disclosure,
    DisclosureKind,
    Field,
    Kind,
    MethodFacts,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SingleRecords,
    SiteRecords,
    Stage,
    State,
    Update,
)
from secagg.contracts.noise import Placement, Placements
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.models.common.message_checks import check_facts, read_message
from secagg.models.common.units import deviations, records_in
from secagg.models.common.variables import halves
from secagg.models.graphs.job_result import graph_result, note_indicators
from secagg.models.graphs.knowledge import in_state
from secagg.models.graphs.mlp import Networks, squared_loss
from secagg.models.graphs.tables import other_table
from secagg.models.notears_admm.coordinator import advance, begin
from secagg.models.notears_admm.mlp_pooled import (
    after_round,
    begin_pooled,
    loss_unit,
    pooled_answer,
    pooled_fit,
    pooled_search,
    pooled_spec,
)
from secagg.models.notears_admm.mlp_private import GRADIENT, NoisyRounds, check_without_noise
from secagg.models.notears_admm.mlp_private_result import ALL_ROUNDS
from secagg.models.notears_admm.mlp_settings import MlpSettings
from secagg.models.notears_admm.mlp_simulation import graph_fit
from secagg.models.notears_admm.mlp_site import answer, begin_site
from secagg.models.notears_admm.range import (
    CONSENSUS,
    FIELD_BOUND,
    FRACTION_BITS,
    RECORDS,
    bits_for,
    check_own_units,
    within_bound,
)
from secagg.models.notears_admm.result import CONVERGED, STATIONARITY_LABELS
from secagg.models.notears_admm.variants import variant_in_words

# The variance is a difference of two numbers near 1, rounded to 2^-53 and to steps of the sums,
# 2^-BITS at every site: this is 16 steps. A scale that is wrong by a few per cent works as well.
_MIN_VARIANCE = 2.0 ** (4 - FRACTION_BITS)


_POOLED_CONVERGED = "The search has ended, and no cycle is left."
_UNDER_NOISE = "Nonlinear graph by gradient steps (not ADMM), with noise in every round"


_TOLD_BY_ADMM = (
    "sums over sites of the gradients of their losses, each at the site's own networks. In some "
    "hundred rounds, each with hundreds of numbers or more, these sums may give more equations "
    "than the records have values. In our tests with three records per site, a search recovers "
    "every record of every site. Whether that is possible with larger sites is not known: no proof "
    "prevents it. A coordinator that chooses the networks it sends can make a sum depend on few "
    "records."
)
_TOLD_BY_GRADIENTS = (
    "the loss of all records and its gradient, at the networks of every round. They do not show "
    "how records are split over sites. In some hundred rounds, each with hundreds of numbers or "
    "more, few records can be recovered from them. A coordinator that chooses the networks it "
    "sends can make a sum depend on few records."
)


@dataclass(frozen=True, kw_only=True)
class NotearsMlpAdmm(MlpSettings):
    """Nonlinear NOTEARS-ADMM."""

    name: ClassVar[str] = "notears_mlp_admm"
    placements: ClassVar[Placements] = Placements(
        (Placement.ROUND,),
        "Gradients are clipped in every step. Sites then solve no problem of their own: it is not "
        "ADMM.",
    )

    @property
    def disclosure(self) -> Disclosure:
        text, kind = _TOLD_BY_ADMM, DisclosureKind.SITES
        if self.pooled:
            text, kind = _TOLD_BY_GRADIENTS, DisclosureKind.POOLED
        return Disclosure(
            kind,
            f"Each column's pooled mean and variance (if standardised), and {text}",
            ANY_MESSAGE,
            "Such a coordinator can send other networks than the method's and so make the graph "
            "wrong. But every answer contains noise, and the bound on one record's part does not "
            "depend on the message.",
            attacks=("gradient_inversion",),
            text_noised="Sums of all records' clipped gradients at the networks that the "
            "coordinator sent, and of columns and their squares (if standardised). They do not "
            "show how records are split over sites.",
            kind_noised=DisclosureKind.POOLED,
        )

    @property
    def title(self) -> str:
        if self.pooled:
            return "Nonlinear graph by NOTEARS-MLP on the records of all sites"
        variant = variant_in_words(self.variant, self.given)
        return f"Nonlinear graph by NOTEARS-ADMM, {variant}"

    @property
    def facts(self) -> MethodFacts:
        """A nonlinear graph from networks of single records."""
        return MethodFacts(
            derivation=type(self).__module__,
            weights=ChosenWeights(
                "Sites compute slopes at networks near those they are sent. Where a network's "
                "units are saturated for all records but a few, the slopes are those of the few."
            ),
            reads=SingleRecords(reason="trains networks on single records", repeatable=True),
            windows=NO_WINDOWS,
            named_code=(),
            network=True,
            regression=None,
            edge_rule=None,
            title_under_noise=_UNDER_NOISE,
        )

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        title, labels, converged = self.title, STATIONARITY_LABELS, CONVERGED
        if self.pooled:
            labels, converged = {}, _POOLED_CONVERGED
        if public.clip is not None:
            title, labels, converged = _UNDER_NOISE, {}, ALL_ROUNDS
        return (other_table(title, networks=True, labels=labels, converged=converged),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        self.check(public)
        if public.clip is not None:
            return self._noisy.stages(public)
        check_without_noise(self)
        networks, rows = self.networks(public), float(public.max_rows)
        count = [Field("records", (1,), rows, 0, Kind.COUNT)]
        sees = "the number of records"
        if self.standardised:
            count.append(Field("sums", (networks.d,), rows, FRACTION_BITS, Kind.BOUNDED))
            count.append(Field("squares", (networks.d,), rows, FRACTION_BITS, Kind.WEIGHT))
            sees += ", and each column's sum and sum of squares"
        half = halves(public, self.chosen(public))
        if self.pooled:
            scale = np.zeros(1) if self.standardised else half
            spec = pooled_spec(networks, self.units(networks, half), scale)
            told = "the loss of all records and its slopes, at the networks it sent"
            return (
                Stage(RECORDS, tuple(count), 1, sees),
                Stage(GRADIENT, spec, self.schedule.rounds, told),
            )
        bits = bits_for(float(np.max(self.units(networks, half))), self.schedule.rho2)
        slopes = (Field("slopes", (networks.size,), FIELD_BOUND, bits, Kind.BOUNDED),)
        return (
            Stage(RECORDS, tuple(count), 1, sees),
            Stage(
                CONSENSUS,
                slopes,
                self.schedule.rounds,
                "sum over sites of the slopes of their losses at their own networks",
            ),
        )

    def initial_state(self, public: PublicFacts) -> State:
        if public.clip is not None:
            return self._noisy.initial_state(public)
        networks = self.networks(public)
        rng = np.random.default_rng(self.seed)
        start = networks.initial(rng, random_inputs=self.starts_random)
        return {
            **begin(self.schedule, start),
            "status": "counting",
            "columns": list(self.names(public)),
            "centre": np.zeros(networks.d),
            "scale": halves(public, self.chosen(public)),
            **in_state(self.known(public)),
            **(begin_pooled(networks, start) if self.pooled else {}),
        }

    def next_request(self, state: State) -> tuple[str, Body] | None:
        if "noised" in state:
            return self._noisy.next_request(state)
        if state["status"] == "counting":
            return RECORDS, {}
        if state["status"] != "running":
            return None
        stage = GRADIENT if self.pooled else CONSENSUS
        return stage, {name: state[name] for name in ("W", "records", "centre", "scale")}

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Count, or solve problem (4) and answer; with noise, sum gradients."""
        if public.clip is not None:
            return self._noisy.contribute(stage, rows, message, public, random), memory
        u = rows.values[:, self.chosen(public)]
        if stage == RECORDS:
            update = {"records": np.array([float(len(u))])}
            if self.standardised:
                update |= {"sums": u.sum(axis=0), "squares": np.sum(u * u, axis=0)}
            return update, memory
        networks = self.networks(public)
        shapes = {"centre": (networks.d,), "scale": (networks.d,)}
        received, facts = read_message(message, {"W": (networks.size,)}, shapes)
        check_facts(memory, facts, len(u))
        if not self.standardised:
            check_own_units(facts, halves(public, self.chosen(public)))
        X = (u - facts["centre"]) * facts["scale"]
        loss = squared_loss(networks, X, facts["records"])
        if self.pooled:
            units, unit = self._units(networks, facts["scale"])
            return pooled_answer(loss, received["W"], units, unit), facts
        if not memory:
            memory = {**begin_site(networks.size), **facts}
        V, site = answer(memory, loss, received["W"], self.schedule.next_rho2(memory["rho2"]))
        slopes = within_bound(V / self.units(networks, facts["scale"]))
        return {"slopes": slopes}, {**site, **facts}

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        if "noised" in state:
            return self._noisy.aggregate(state, total)
        if state["status"] == "counting":
            return self._after_count(state, total)
        networks = self.networks_of(len(state["columns"]), state, noised=False)
        if self.pooled:
            units, unit = self._units(networks, state["scale"])
            search = pooled_search(networks, self.in_force["ridge"])
            return after_round(state, total, search, units, unit, self.schedule.rounds)
        V = total["slopes"] * self.units(networks, state["scale"])
        ridge = networks.ridge(self.in_force["ridge"])
        return advance(state, V, sites, networks, self.schedule, ridge)

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the graph, and the networks in the units analysed."""
        if public.clip is not None:
            return self._noisy.result(state, public)
        networks = self.networks(public)
        if self.pooled:
            search = pooled_search(networks, self.in_force["ridge"])
            fit, theta = pooled_fit(
                state, self.names(public), search, self.threshold,
                acyclic=self.acyclic, standardised=self.standardised, rounds=self.schedule.rounds,
            )  # fmt: skip
        else:
            theta = state["W"]
            fit = graph_fit(
                state,
                self.names(public),
                networks,
                self.schedule,
                self.threshold,
                ridge=self.in_force["ridge"],
                acyclic=self.acyclic,
                standardised=self.standardised,
                random_inputs=self.starts_random,
            )
        fit = replace(fit, knowledge=self.known(public))
        result = note_indicators(graph_result(fit, self.truth, linear=False), public)
        result.summary["settings"] |= {
            "standardise": self.standardised,
            "rounds": self.schedule.rounds,
            "random_inputs": self.starts_random,
            "seed": self.seed,
        }
        result.summary["status"] = state["status"]
        result.arrays["parameters"] = theta
        if self.standardised:  # to undo it: the networks read (x - means) / deviations
            chosen = self.chosen(public)
            half = halves(public, chosen)
            middle = np.array([public.variables[i].midpoint for i in chosen])
            result.arrays["means"] = middle + half * state["centre"]
            result.arrays["deviations"] = half / state["scale"]
        return result

    def _after_count(self, state: State, total: Update) -> State:
        records = records_in(total)
        centre, scale = state["centre"], state["scale"]
        if self.standardised:
            centre = total["sums"] / records
            variance = total["squares"] / records - centre**2
            scale = 1 / deviations(variance, _MIN_VARIANCE, state["columns"])
        return {**state, "status": "running", "records": records, "centre": centre, "scale": scale}

    @cached_property
    def _noisy(self) -> NoisyRounds:
        return NoisyRounds(self)

    def _units(self, networks: Networks, scale: Array) -> tuple[Array, float]:
        """Return the divisors of slopes and loss when they are sent as pooled sums."""
        loss = loss_unit(np.zeros(1) if self.standardised else scale)
        return self.units(networks, scale), loss

    def units(self, networks: Networks, scale: Array) -> Array:
        """Return the divisors of V_k when it is sent, shape (size,).

        In own units: the unit of the loss divided by the unit of each parameter. The loss of
        network j has the unit scale_j^2, A_ijh that of 1 / scale_i, C_jh and c_j that of scale_j.
        """
        units = np.ones(networks.size)
        if not self.standardised:
            A, b, C, c = networks.split(units)
            squares = scale**2
            A[:] = networks.free_entries(np.outer(scale, squares))[:, :, None]
            b[:] = squares[:, None]
            C[:] = scale[:, None]
            c[:] = scale
        return units
