"""Nonlinear NOTEARS-ADMM over secure sums (Ng and Zhang, AISTATS 2022, section 5.2).

Every variable is predicted from the others by a small network (`secagg.models.graphs.mlp`); W and
B_k are all networks' parameters. Round 0 sums the sites' numbers of records (and, to standardise,
the columns' sums and sums of squares). Then the coordinator sends W, each site solves problem (4)
and answers V_k, the slopes of its loss there (`secagg.models.notears_admm.mlp_site`), and the
coordinator makes the next W from their sum (`secagg.models.notears_admm.coordinator`).

Units. Records are carried as u = (x - middle) / half and analysed as (u - centre) * scale: centre
is 0 and scale is half (own units, about the middle of the declared bounds), or the pooled mean and
the inverse of the pooled standard deviation. Records are not centred site by site, as linear ones
are: a network's slope depends on the level. In own units V_k is carried divided by such as half_i
half_j^2 for A_ijh, which undoes them. What depends on B_k has no bound; a contribution beyond
`FIELD_BOUND` means divergence, and the site refuses to send it clipped.

What the transcript determines (Guarantees: only this)
    Every sum is that of the sites' slopes, each at its own B_k: in late rounds, where B_k = W, the
    slope of the pooled loss at a W that everybody knows. With m hidden units that is d (d + 1) m
    numbers a round and more, over some hundred rounds: far more equations than the records have
    entries. Nothing but the difficulty of solving them protects the pooled records; and as in the
    linear method the early rounds depend on how records are split over sites, each site's of which
    may be solved for as well. A coordinator that chooses W, against the protocol, can choose it
    such that a slope depends on few records, or one. No one-shot sum of moments stands in for this
    method, because no fixed set of moments serves all networks.

=================================  =================================================================
site                               contribution
=================================  =================================================================
no record                          V_k = 0; the graph is the others'
one record, or a constant column   as any other: its networks fit what is there, held by rho2
a column constant at every site    not noticed, may get edges; an error with `standardise`
a W that is not finite             `PeerError`, nothing is sent
=================================  =================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    ANY_MESSAGE,
    Body,
    Disclosure,
    DisclosureKind,
    Field,
    Kind,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    SiteRecords,
    Stage,
    State,
    Update,
)
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.errors import JobError
from secagg.models.common.checks import check_halves, check_numbers
from secagg.models.common.message_checks import check_facts, read_message
from secagg.models.common.units import deviations, records_in
from secagg.models.common.variables import choose, halves
from secagg.models.graphs.job_result import Edges, check_truth, graph_result, note_indicators
from secagg.models.graphs.mlp import Networks, squared_loss
from secagg.models.graphs.tables import other_table
from secagg.models.notears_admm.coordinator import Schedule, Variant, advance, begin
from secagg.models.notears_admm.mlp_simulation import MLP_PENALTY, MLP_RHO, graph_fit
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

_MAX_HIDDEN = 1000
# Of the difference of two numbers of the order of 1 that are rounded to 2^-53 and to steps of the
# sums, 2^-BITS at every site: 16 of these. A scale that is off by some per cent is as good a scale.
_MIN_VARIANCE = 2.0 ** (4 - FRACTION_BITS)


@dataclass(frozen=True, kw_only=True)
class NotearsMlpAdmm:
    """Nonlinear NOTEARS-ADMM."""

    variables: tuple[str, ...] | None = None
    """The columns of the graph, at least two. If it is not set, all columns."""
    variant: Variant = "fast"
    """`"paper"`: the paper's optimiser and its whole schedule of 197 rounds. `"fast"`: a proximal
    Newton step, which stops when h is at most 1e-6 and the mean consensus residual is at most
    1e-8."""
    penalty: float = MLP_PENALTY
    """Weight of the sum of absolute weights into the networks, at least 0. The default is the
    paper's."""
    hidden: int = 10
    """Hidden units of each network, from 1 to 1000."""
    threshold: float = 0.3
    """Edges with W_ij at or below it are dropped."""
    standardise: bool = True
    """Standardise by pooled means and standard deviations, which are then released. Otherwise
    columns keep their own units, as in the paper, about the middle of their bounds."""
    zero_diagonal: bool = False
    """No network reads its own variable. By default the acyclicity constraint takes care of that,
    as in the paper's program. True finds more edges, right and wrong."""
    random_inputs: bool = False
    """Start from random weights into the networks, as the paper's program does. The default starts
    without edges and ends with far fewer wrong ones."""
    acyclic: bool = False
    """Raise the threshold until no cycle is left. Otherwise cycles stay, and the result says so."""
    rho1: float = MLP_RHO
    """First penalty of the acyclicity constraint h, from 1e-12 to 1e16."""
    rho2: float = MLP_RHO
    """First penalty of disagreement between the sites, from 1e-12 to 1e16."""
    gamma1: float = 1.75
    """Growth of `rho1` in each round, above 1 and at most 100."""
    gamma2: float = 1.25
    """Growth of `rho2` in each round, above 1 and at most 100."""
    rounds: int = 200
    """Largest number of rounds, from 1 to 10000."""
    seed: int = 0
    """Seed of the networks' start, at least 0."""
    truth: Edges | None = None
    """The true edges `["cause", "effect"]` between variables, if they are known. The graph is then
    scored. They must form a directed acyclic graph."""

    name: ClassVar[str] = "notears_mlp_admm"
    disclosure: ClassVar[Disclosure] = Disclosure(
        DisclosureKind.SITES,
        "Each column's pooled mean and variance (if standardised), and sums of the slopes of the "
        "sites' losses, thousands of numbers in each of some hundred rounds: more equations than "
        "the records have entries. Only the difficulty of solving them protects the pooled "
        "records, and how they are split over sites; a coordinator that chooses the networks it "
        "sends can make a sum depend on few records.",
        ANY_MESSAGE,
    )

    @property
    def title(self) -> str:
        """By its variant."""
        return f"Nonlinear graph by NOTEARS-ADMM, variant “{self.variant}”"

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        """Return that of a graph."""
        labels, told = STATIONARITY_LABELS, CONVERGED
        return (other_table(self.title, networks=True, labels=labels, converged=told),)

    @cached_property
    def _schedule(self) -> Schedule:
        return Schedule(self.variant, self.rho1, self.rho2, self.gamma1, self.gamma2, self.rounds)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Declare the count and the rounds of consensus."""
        self._schedule.check()
        check_numbers(self, {"penalty": 0, "threshold": 0, "seed": 0, "hidden": 1})
        if self.hidden > _MAX_HIDDEN:
            raise JobError("method.hidden", f"must be at most {_MAX_HIDDEN}")
        check_truth(self.truth, self._names(public), public)
        networks, rows = self._networks(public), float(public.max_rows)
        half = halves(public, self._chosen(public))
        check_halves(half, self._names(public))
        count = [Field("records", (1,), rows, 0, Kind.COUNT)]
        sees = "the number of records"
        if self.standardise:
            count.append(Field("sums", (networks.d,), rows, FRACTION_BITS, Kind.BOUNDED))
            count.append(Field("squares", (networks.d,), rows, FRACTION_BITS, Kind.WEIGHT))
            sees += ", and each column's sum and sum of squares"
        bits = bits_for(
            float(np.max(self._units(networks, halves(public, self._chosen(public))))), self.rho2
        )
        slopes = (Field("slopes", (networks.size,), FIELD_BOUND, bits, Kind.BOUNDED),)
        return (
            Stage(RECORDS, tuple(count), 1, sees),
            Stage(
                CONSENSUS,
                slopes,
                self.rounds,
                "sum over sites of the slopes of their losses at their own networks",
            ),
        )

    def initial_state(self, public: PublicFacts) -> State:
        """Begin with the count, and networks drawn from the seed."""
        networks = self._networks(public)
        rng = np.random.default_rng(self.seed)
        start = networks.initial(rng, random_inputs=self.random_inputs)
        return {
            **begin(self._schedule, start),
            "status": "counting",
            "columns": list(self._names(public)),
            "centre": np.zeros(networks.d),
            "scale": halves(public, self._chosen(public)),
        }

    def next_request(self, state: State) -> tuple[str, Body] | None:
        """Ask for the count, then for slopes near W, until done."""
        if state["status"] == "counting":
            return RECORDS, {}
        if state["status"] != "running":
            return None
        return CONSENSUS, {name: state[name] for name in ("W", "records", "centre", "scale")}

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Count, or solve problem (4) and answer."""
        u = rows.values[:, self._chosen(public)]
        if stage == RECORDS:
            update = {"records": np.array([float(len(u))])}
            if self.standardise:
                update |= {"sums": u.sum(axis=0), "squares": np.sum(u * u, axis=0)}
            return update, memory
        networks = self._networks(public)
        known = {"centre": (networks.d,), "scale": (networks.d,)}
        news, facts = read_message(message, {"W": (networks.size,)}, known)
        check_facts(memory, facts, len(u))
        if not self.standardise:
            check_own_units(facts, halves(public, self._chosen(public)))
        if not memory:
            memory = {**begin_site(networks.size), **facts}
        X = (u - facts["centre"]) * facts["scale"]
        loss = squared_loss(networks, X, facts["records"])
        V, site = answer(memory, loss, news["W"], self._schedule.growing(memory["rho2"]))
        slopes = within_bound(V / self._units(networks, facts["scale"]))
        return {"slopes": slopes}, {**site, **facts}

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        """Take the count, or make the next W."""
        if state["status"] == "counting":
            return self._counted(state, total)
        networks = self._networks_of(len(state["columns"]))
        V = total["slopes"] * self._units(networks, state["scale"])
        return advance(state, V, sites, networks, self._schedule)

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the graph, and the networks in the units analysed."""
        networks = self._networks(public)
        fit = graph_fit(
            state,
            self._names(public),
            networks,
            self._schedule,
            self.threshold,
            acyclic=self.acyclic,
            standardised=self.standardise,
            random_inputs=self.random_inputs,
        )
        result = note_indicators(graph_result(fit, self.truth, linear=False), public)
        result.summary["settings"] |= {
            "standardise": self.standardise,
            "rounds": self.rounds,
            "random_inputs": self.random_inputs,
            "seed": self.seed,
        }
        result.summary["status"] = state["status"]
        result.arrays["parameters"] = state["W"]
        if self.standardise:  # what undoes it: the networks read (x - means) / deviations
            chosen = self._chosen(public)
            half = halves(public, chosen)
            middle = np.array([public.variables[i].middle for i in chosen])
            result.arrays["means"] = middle + half * state["centre"]
            result.arrays["deviations"] = half / state["scale"]
        return result

    def _counted(self, state: State, total: Update) -> State:
        records = records_in(total)
        centre, scale = state["centre"], state["scale"]
        if self.standardise:
            centre = total["sums"] / records
            variance = total["squares"] / records - centre**2
            scale = 1 / deviations(variance, _MIN_VARIANCE, state["columns"])
        return {**state, "status": "running", "records": records, "centre": centre, "scale": scale}

    def _networks(self, public: PublicFacts) -> Networks:
        return self._networks_of(len(self._chosen(public)))

    def _networks_of(self, d: int) -> Networks:
        return Networks(d, self.hidden, self.penalty, self.zero_diagonal)

    def _names(self, public: PublicFacts) -> tuple[str, ...]:
        return tuple(public.variables[i].name for i in self._chosen(public))

    def _chosen(self, public: PublicFacts) -> NDArray[np.int64]:
        if self.variables is None:
            return np.arange(len(public.variables))
        return choose(public, self.variables, "method.variables")

    def _units(self, networks: Networks, scale: Array) -> Array:
        """Return what V_k is divided by to be carried, shape (size,).

        In own units those of the loss divided by those of each parameter: the loss of network j is
        in scale_j^2, A_ijh in 1 / scale_i, C_jh and c_j in scale_j.
        """
        units = np.ones(networks.size)
        if not self.standardise:
            A, b, C, c = networks.split(units)
            squares = scale**2
            A[:] = networks.held(np.outer(scale, squares))[:, :, None]
            b[:] = squares[:, None]
            C[:] = scale[:, None]
            c[:] = scale
        return units
