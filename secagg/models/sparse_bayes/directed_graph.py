"""Federated sparse directed graphs, cycles allowed (Kidd, Wang, Xu and Ni, PSB 2023, section 2.4).

Every column is a linear function of the others plus an error, Y = mu + Theta_k Y + e at site k.
Errors have a Laplace distribution. With normal errors, `errors = "gaussian"`, sites need moments
only, but causes and effects cannot be told apart (`secagg.models.sparse_bayes.normal_graph`),
unless the order of the columns is known: `ordered` leaves out the entries with h after j, and
`tiers` and `forbidden` others (`secagg.models.sparse_bayes.joint.known_arrows`). With
`cycles = false` the graph has no cycles (a Bayesian network, the special case that the paper
names), and chains draw the order (`secagg.models.sparse_bayes.joint.orders`). A site may lack
columns, whose values it draws (`secagg.models.sparse_bayes.latent.lacking`).
Each site has its own graph. A horseshoe prior shrinks these graphs towards a common graph, whose
entries have a spike-and-slab prior. Results have the probability of the slab (PIP).
`secagg.models.sparse_bayes.laplace_graph` computes a site's draws, and
`secagg.models.sparse_bayes.directed_rounds` describes a round. There is no `collapsed` step:
Theta_k is not normal given the records and cannot be integrated out. In its place the common graph
and all sites' graphs also move together: on paths along the slopes of the likelihood, in rounds of
their own (`secagg.models.sparse_bayes.directed_paths`), and by shifts, rotations and reversals
(`secagg.models.sparse_bayes.joint.common_moves`). Copies of a chain in which the records count less
carry it between graphs that explain the records about equally well
(`secagg.models.sparse_bayes.joint.tempering`). Chains still need more rounds (thousands) than those
of regressions, and the floor of lambda (`secagg.models.sparse_bayes.sums`) applies to the sums. The
p (p - 1) entries are one family: one eta and one rho for the whole graph, as the paper has one
graph, or one eta for each entry (`own_eta`). The Bayesian false discovery rate
(`secagg.models.sparse_bayes.markov_random_field.discoveries`) selects edges, each arrow separately.

theta_jh is the change of j, before any feedback through a cycle, if an intervention sets h one unit
higher, under assumptions that are not tested: Y is linear, errors are independent of one another
and nearly Laplace. A graph with cycles is determined only up to exchanging rows of I - Theta. With
strong cycles or few records R-hat may be large, and the PIPs cannot be used then. See
docs/math/laplace-graph.md. Each site has its own constants mu.

The result also says about which arrows the chains agree, and what the draws tell about pairs of
columns without directions (`secagg.models.sparse_bayes.without_directions`).

What the transcript determines (Guarantees: only this)
    * The number of records and, with scale = "pooled", columns' pooled variances within sites; not
      of a column that some sites lack, whose unit the job guesses. At which sites a column exists
      is in the job.
    * In each round, for each copy of a chain and entry, sums over sites of 1/l, d/l and d^2/l, with
      l = lambda_k^2 and d = theta_k - theta are the site's own random draws. Their distribution at
      a site depends on all of its records, not on a few moments. Over many rounds the sums
      therefore reveal more and more of the sites' likelihoods of Theta_k near their maxima, summed
      over sites.
    * Without cycles, each copy of a chain has an order, drawn by the coordinator from the sums
      below, and sums are 0 for arrows against it. The sums are of the same kinds.
    * In each round, for each copy, the sum over sites of log likelihoods: of the sites' graphs, and
      of alternatives to them, which differ from them by a matrix that the coordinator sent. These
      sums have no random numbers of their own: only Theta_k is random. If t is near 0, Theta_k is
      theta, and they are the likelihood of all records at a graph of the coordinator's choice.
    * In each round of a path, for each copy, the sum over sites of log likelihoods, constants and
      scales held at the site's random draws of them, and of their slopes, at the sites' graphs
      moved by a matrix that the coordinator sent. The slopes say what these sums at graphs close by
      would say. If t is near 0, they are those of all records at a graph of the coordinator's
      choice.
      With normal errors they depend on the number of records and the scatter only, which all sums
      together therefore do not exceed. Under noise once at the site, these are the noisy ones.
    A site keeps to itself: Theta_k, b_k, lambda_k, step sizes, acceptance rates, and its number of
    records. Its memory between rounds has its records, centred and scaled; with normal errors only
    columns with the same scatter, and under noise draws of the exact moments
    (`secagg.models.sparse_bayes.latent.graph`).

===============================  ===================================================================
site                             contribution
===============================  ===================================================================
no record, or one                (3) of `laplace_graph` is constant: the prior, given theta
fewer records than columns       no special case: only I - Theta is inverted
a column that is constant there  effects on it are drawn near zero there, because their sum is its
                                 error; for its effects on others there are no data, so they follow
                                 theta
a column that the site lacks     its values are drawn; effects on and of it follow theta, as far as
                                 the other columns say nothing
columns that are collinear       the prior decides between them; R-hat and ESS show how well
a column constant everywhere     with scale = "pooled" an error names it
a theta or t that is not finite  `PeerError`, nothing is sent
===============================  ===================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from secagg.contracts import (
    Disclosure,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    State,
    TableKind,
)
from secagg.contracts.noise import Placement, Placements
from secagg.errors import JobError
from secagg.models.common.posterior_summary import summarise
from secagg.models.sparse_bayes.base import recorded_draws
from secagg.models.sparse_bayes.directed_paths import DirectedPaths
from secagg.models.sparse_bayes.joint.known_arrows import is_acyclic
from secagg.models.sparse_bayes.laplace_graph import Order
from secagg.models.sparse_bayes.markov_random_field import (
    NOT_JUDGED,
    discoveries,
    expected_fdr,
)
from secagg.models.sparse_bayes.normal_graph import (
    NOT_DETERMINED,
    SURROGATE,
    pair_positions,
    surrogate_result,
)
from secagg.models.sparse_bayes.result import (
    ANY_STEP,
    LABELS,
    coefficient,
    draw_arrays,
    sampler_disclosure,
    summary_fields,
    undecided,
    with_note_on_undecided,
)
from secagg.models.sparse_bayes.site_posterior import own_posterior
from secagg.models.sparse_bayes.spike_slab import SpikeSlab, calibrated
from secagg.models.sparse_bayes.without_directions import (
    agreed,
    note_on_directions,
    pairs_without_directions,
)

_REVEALED = {
    "laplace": (
        "The errors are not normal, so no fixed set of statistics contains all that these sums "
        "together reveal about the sites' records."
    ),
    "gaussian": (
        "With normal errors a site's draws depend on its records through their number and cross "
        "products only, so all rounds together reveal nothing else about them."
    ),
}


@dataclass(frozen=True, kw_only=True)
class SparseDirected(DirectedPaths):
    """A directed graph, cycles allowed."""

    fdr: float = 0.1
    """Bayesian false discovery rate of the edges, between 0 and 1."""
    level: float = 0.95
    """Level of the posterior intervals, between 0 and 1."""
    prior: Literal["calibrated", "paper"] = "calibrated"
    """`"calibrated"`: the spike has a fixed variance of 0.1 / n for n records of all sites, and the
    prior of the spread between sites has the scale 0.05. `"paper"`: the spike has the variance
    `spike_ratio` times that of the slab, and the spread's prior has the scale 1."""

    name: ClassVar[str] = "sparse_directed"
    edge_rule: ClassVar[str] = NOT_JUDGED
    placements: ClassVar[Placements] = Placements(
        (Placement.SITE,),
        'Noise once in each site\'s moments, only with errors = "gaussian", which finds directions '
        "only if `ordered`. For Laplace errors sites need every record, not moments.",
    )
    shares: ClassVar[tuple[str, ...]] = ("level", "fdr")

    @property
    def title(self) -> str:
        kind = "cycles allowed" if self.cycles else "no cycles"
        if self.order_known:
            kind = "order of the columns known"
        elif self.tiers or self.forbidden:
            kind = "some arrows ruled out"
        elif self.errors == "gaussian":
            return SURROGATE
        return f"Sparse directed graph, {kind}{', normal errors' * (self.errors == 'gaussian')}"

    @property
    def disclosure(self) -> Disclosure:
        return sampler_disclosure(
            "The number of records; with scale = 'pooled' each column's variance within sites, if "
            "all have it; and in every round, for every chain, sums over sites of differences "
            "between each site's own graph, drawn at random given its records, and the common "
            "graph, and of the logarithm of the likelihood of these graphs and of alternatives to "
            "them, with its slopes. Over many "
            f"rounds the draws average out. {_REVEALED[self.errors]}",
            f"{ANY_STEP} For example, it can learn the likelihood of all records together, and its "
            "slopes, at any graph that it chooses, nearly without the noise of the sites' draws.",
        )

    @property
    def if_chains_disagree(self) -> str:
        if self.order_known or self.tiers or self.forbidden:
            return super().if_chains_disagree
        said = "They are at different graphs, between which they seldom pass: "
        if self.cycles and self.errors == "laplace":
            return f"{said}more rounds hardly help. With method.cycles = false there are fewer."
        return f"{said}more of method.rounds helps, and more of method.temperatures may."

    def constants(self, records: int) -> SpikeSlab:
        """Return the constants of the coordinator's prior: docs/math/spike-and-slab.md."""
        paper = super().constants(records)
        return paper if self.prior == "paper" else calibrated(paper, records)

    @property
    def takes_partial(self) -> bool:
        return True

    @property
    def needs_records(self) -> str:
        if self.errors == "gaussian":
            return ""
        return (
            'has Laplace errors, whose likelihood is no function of moments; errors = "gaussian" '
            "needs moments only, and finds directions only if `ordered`"
        )

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title, TableKind.POSTERIOR_GRAPH, LABELS),)

    def shape(self, public: PublicFacts) -> tuple[int, int]:
        """Return one family of coefficients: the entries of the graph."""
        self.check_spike(self.prior)
        p = len(self.columns(public))
        if p < 2:
            raise JobError("method.variables", "a graph needs at least two variables")
        return 1, len(self.entries(p, self.possible(public))[0])

    def site_result(self, memory: State, public: PublicFacts) -> Result | None:
        """Return a site's own graph, error scales (in the units analysed) and acceptance rates."""
        if memory.get("round") != self.rounds:
            return None
        own = {name: own_posterior(sums) for name, sums in memory["own"].items()}
        names = [public.variables[i].name for i in self.columns(public)]
        effects = [
            {
                "from": names[h],
                "to": names[j],
                **{key: float(values[i]) for key, values in own["theta"].items()},
                "moves_taken": float(own["moves_taken"]["mean"][i]),
            }
            for i, (j, h) in enumerate(
                zip(*self.entries(len(names), self.possible(public)), strict=True)
            )
        ]
        scales = [
            {"column": name, **{key: float(values[j]) for key, values in own["b"].items()}}
            for j, name in enumerate(names)
        ]
        turns = float(own["turns_taken"]["mean"].mean())
        summary = {"effects": effects, "error_scales": scales, "turns_taken": turns}
        if self._surrogate(self.possible(public)):
            summary["notes"] = [NOT_DETERMINED]
        if self.errors == "gaussian":
            summary["partial_correlations"] = [
                {
                    "between": [names[j], names[h]],
                    **{key: float(values[i]) for key, values in own["partial"].items()},
                }
                for i, (j, h) in enumerate(zip(*pair_positions(len(names)), strict=True))
            ]
        return Result({"records_here": memory["here"], **summary})

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return every arrow, or with normal errors every pair, whether it is an edge, and draws.

        Matrices have [h, j] for h -> j, as for all graphs here. Draws have the entries in the order
        of `laplace_graph.entry_positions`, given by "targets" and "sources".
        """
        found, knowledge = self._result(state), self.known(public)
        # the sampler's own: the powers of the copies after warmup
        powers = np.sort(state["shared"]["heat"])[:: -self.chains].tolist()
        sampler = {**found.summary["sampler"], "powers": powers}
        summary = {**found.summary, "sampler": sampler}
        notes = list(summary["notes"])
        if lacking := self._lacking(public):
            summary["lacking"] = lacking
            listed = "; ".join(f"{name!r} at {', '.join(at)}" for name, at in lacking.items())
            notes.append(
                f"Sites that lack a column drew its values, as missing at random: {listed}. There "
                "the records say little about its effects, which are taken to be near the common "
                "ones."
            )
        if knowledge is not None:
            summary |= knowledge.summary
            notes.append(knowledge.note())
        return Result({**summary, "notes": notes}, found.arrays)

    def _lacking(self, public: PublicFacts) -> dict[str, list[str]]:
        """Return the sites that lack each column of the graph."""
        names = [public.variables[i].column for i in self.columns(public)]
        return {
            name: [site for site in public.sites if site not in having]
            for name, having in public.partial.items()
            if name in names
        }

    def _result(self, state: State) -> Result:
        known = self.known_from(state["shared"])
        if self._surrogate(known):
            return surrogate_result(self, state, self.level, self.fdr, known)
        draws, names = recorded_draws(state), state["columns"]
        targets, sources = self.entries(len(names), known)
        posteriors = {name: summarise(draws[name], self.level) for name in ("theta", "inclusion")}
        pip = posteriors["inclusion"].mean[0]
        edges, agree = discoveries(pip, self.fdr), agreed(self.chains, *posteriors.values())
        arrows: list[dict[str, Any]] = []
        for i in np.argsort(-pip, kind="stable"):
            found = coefficient(posteriors["theta"], posteriors["inclusion"], (0, int(i)))
            ends = {"from": names[sources[i]], "to": names[targets[i]], "edge": bool(edges[i])}
            said = {"undecided": undecided(ends["edge"], [found]), "chains_agree": agree[i]}
            arrows.append({**ends, **said, **found})
        labels = [f"{names[h]!r} -> {names[j]!r}" for j, h in zip(targets, sources, strict=True)]
        summary = {
            "method": "sparse-directed",
            "errors": self.errors,
            "ordered": self.ordered,
            "cycles": self.cycles and not is_acyclic(known),
            "names": list(names),
            "level": self.level,
            "fdr_at_most": self.fdr,
            "expected_fdr": expected_fdr(pip[edges]),
            "arrows": arrows,
            **summary_fields(self, state, draws, posteriors, labels),
        }
        open_arrows = [
            f"{row['from']!r} -> {row['to']!r} (PIP {row['pip']:.2f})"
            for row in arrows
            if row["undecided"]
        ]
        summary = with_note_on_undecided(summary, open_arrows, "")
        if not is_acyclic(known):
            theta, chance = (draws[name][:, :, 0] for name in ("theta", "inclusion"))
            pairs = pairs_without_directions(theta, chance, names, self.level, known)
            note = note_on_directions(arrows, pairs)
            summary = {**summary, "pairs_without_directions": pairs,
                       "notes": [*summary["notes"], *([note] if note else [])]}  # fmt: skip
        matrices = {
            "pip": pip,
            "mean": posteriors["theta"].mean[0],
            "sd": posteriors["theta"].sd[0],
        }
        filled = {name: np.zeros((len(names),) * 2) for name in matrices}
        for name, values in matrices.items():
            filled[name][sources, targets] = values
        chosen = np.zeros((len(names),) * 2, dtype=bool)
        chosen[sources, targets] = edges
        places_of = {"sources": sources, "targets": targets}
        drawn = draw_arrays(draws, own_eta=self.own_eta)
        return Result(summary, {**filled, "edges": chosen, **places_of, **drawn})

    def _surrogate(self, known: Order) -> bool:
        """Return whether directions are not determined."""
        return self.errors == "gaussian" and not is_acyclic(known)
