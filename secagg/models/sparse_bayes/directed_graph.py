"""Federated sparse directed graphs, cycles allowed (Kidd, Wang, Xu and Ni, PSB 2023, section 2.4).

Every column is a linear function of the others plus an error, Y = mu + Theta_k Y + e at site k.
Errors have a Laplace distribution. With normal errors, `errors = "gaussian"`, sites need moments
only, but causes and effects cannot be told apart (`secagg.models.sparse_bayes.normal_graph`),
unless the order of the columns is known: `ordered` leaves out the entries with h after j.
Each site has its own graph. A horseshoe prior shrinks these graphs towards a common graph, whose
entries have a spike-and-slab prior. Results have the probability of the slab (PIP).
`secagg.models.sparse_bayes.laplace_graph` computes a site's draws. The coordinator runs
`secagg.models.sparse_bayes.collapsed_slabs`, then step
`paper` of `secagg.models.sparse_bayes.spike_slab`. There is no `collapsed` step: Theta_k is not
normal given the records and cannot be integrated out. So chains need more rounds (thousands) than
those of regressions, and the floor of lambda (`secagg.models.sparse_bayes.sums`) applies to the
sums. The p (p - 1) entries are one family: one eta and one rho for the whole graph, as the paper
has one graph, or one eta for each entry (`own_eta`). The Bayesian false discovery rate
(`secagg.models.sparse_bayes.markov_random_field.discoveries`) selects edges, each arrow separately.

theta_jh is the change of j, before any feedback through a cycle, if an intervention sets h one unit
higher, under assumptions that are not tested: Y is linear, errors are independent of one another
and nearly Laplace. A graph with cycles is determined only up to exchanging rows of I - Theta. With
strong cycles or few records R-hat may be large, and the PIPs cannot be used then. See
docs/math/laplace-graph.md. Each site has its own constants mu.

What the transcript determines (Guarantees: only this)
    * The number of records and, with scale = "pooled", columns' pooled variances within sites.
    * In each round, for each chain and entry, sums over sites of 1/l, d/l and d^2/l, where
      l = lambda_k^2 and d = theta_k - theta are the site's own random draws. Their distribution at
      a site depends on all of its records, not on a few moments. Over many rounds the sums
      therefore reveal more and more of the sites' likelihoods of Theta_k near their maxima, summed
      over sites.
      With normal errors they depend on the number of records and the scatter only, which all sums
      together therefore do not exceed. Under noise once at the site, these are the noisy ones.
    A site keeps to itself: Theta_k, b_k, lambda_k, step sizes, acceptance rates, and its number of
    records. Its memory between rounds has its records, centred and scaled; with normal errors only
    columns with the same scatter, and under noise draws of the exact moments
    (`secagg.models.sparse_bayes.latent_graph`).

===============================  ===================================================================
site                             contribution
===============================  ===================================================================
no record, or one                (3) of `laplace_graph` is constant: the prior, given theta
fewer records than columns       no special case: only I - Theta is inverted
a column that is constant there  effects on it are drawn near zero there, because their sum is its
                                 error; for its effects on others there are no data, so they follow
                                 theta
columns that are collinear       the prior decides between them; R-hat and ESS show how well
a column constant everywhere     with scale = "pooled" an error names it
a theta or t that is not finite  `PeerError`, nothing is sent
===============================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    Disclosure,
    NoisyMatrix,
    PublicFacts,
    RecordCount,
    Result,
    ResultTable,
    State,
    TableKind,
    Update,
)
from secagg.contracts.noise import Placement, Placements
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.common.posterior_summary import summarise
from secagg.models.common.variables import choose
from secagg.models.sparse_bayes.base import Round, SparseModel, recorded_draws
from secagg.models.sparse_bayes.horseshoe import SiteDraw
from secagg.models.sparse_bayes.laplace_graph import (
    GraphDraw,
    draw_graph_noise,
    entry_positions,
    matrices,
    sweep_graph,
)
from secagg.models.sparse_bayes.latent_graph import (
    begin_latent_graph,
    draw_latent_graph,
    latent_columns,
)
from secagg.models.sparse_bayes.markov_random_field import (
    NOT_JUDGED,
    discoveries,
    expected_fdr,
)
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw, adapted
from secagg.models.sparse_bayes.normal_graph import (
    NOT_DETERMINED,
    SURROGATE,
    pair_positions,
    partial_correlations,
    scatter_columns,
    surrogate_result,
)
from secagg.models.sparse_bayes.result import (
    LABELS,
    coefficient,
    draw_arrays,
    sampler_disclosure,
    summary_fields,
    undecided,
    with_note_on_undecided,
)
from secagg.models.sparse_bayes.site_posterior import add_draw, begin_sums, own_posterior
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab
from secagg.models.sparse_bayes.sums import paper_update

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
class SparseDirected(SparseModel):
    """A directed graph, cycles allowed."""

    variables: tuple[str, ...] | None = None
    """The columns of the graph, at least two. If it is not set, all columns."""
    errors: Literal["laplace", "gaussian"] = "laplace"
    """Distribution of the errors. `"laplace"`, as in the paper, determines directions.
    `"gaussian"`, the Gaussian surrogate, does not: it finds which pairs of columns are connected,
    and needs moments only, so it can have noise once at the site."""
    ordered: bool = False
    """If true, the columns are in causal order: each acts only on later ones (of `variables`). Then
    there are no cycles, and effects are determined with normal errors, too."""
    fdr: float = 0.1
    """Bayesian false discovery rate of the edges, between 0 and 1."""
    level: float = 0.95
    """Level of the posterior intervals, between 0 and 1."""

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
        if self._surrogate:
            return SURROGATE
        kind = "order of the columns known" if self.ordered else "cycles allowed"
        return f"Sparse directed graph, {kind}{', normal errors' * (self.errors == 'gaussian')}"

    @property
    def disclosure(self) -> Disclosure:
        return sampler_disclosure(
            "The number of records; with scale = 'pooled' each column's variance within sites; and "
            "in every round, for every chain, sums over sites of differences between each site's "
            "own graph, drawn at random given its records, and the common graph. Over many rounds "
            f"the draws average out. {_REVEALED[self.errors]}"
        )

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

    def columns(self, public: PublicFacts) -> NDArray[np.int64]:
        return choose(public, self.variables, "method.variables")

    def shape(self, public: PublicFacts) -> tuple[int, int]:
        """Return one family of coefficients: the entries of the graph."""
        p = len(self.columns(public))
        if p < 2:
            raise JobError("method.variables", "a graph needs at least two variables")
        return 1, len(self._positions(p)[0])

    def begin_memory(self, z: Array, public: PublicFacts) -> State:
        """Return the records, one per column, and first draws: an empty graph."""
        p = z.shape[1]
        entries, rows = (self.chains, len(self._positions(p)[0])), (self.chains, p)
        quantities = {"theta": entries, "b": rows, "moves_taken": entries, "turns_taken": rows}
        columns = np.ascontiguousarray(z.T)
        if self.errors == "gaussian":
            columns = scatter_columns(z)
            quantities["partial"] = (self.chains, p * (p - 1) // 2)
        return {
            "Y": columns,
            "theta": np.zeros(entries),
            "b": np.ones(rows),
            "v": np.ones(entries),
            # the standard deviation of a slope from n records
            "reach": np.full(entries, 1 / np.sqrt(max(len(z), 1))),
            "own": begin_sums(quantities),
        }

    def begin_noisy(self, noisy: NoisyMatrix, public: PublicFacts) -> State:
        """Return first draws of the exact moments."""
        return {"latent": begin_latent_graph(noisy, (self.chains, self.shape(public)[1]))}

    def run_sweeps(
        self,
        sites: Sequence[State],
        records: Sequence[int],
        now: Round,
        rngs: Sequence[np.random.Generator],
        public: PublicFacts,
    ) -> list[tuple[Update, State]]:
        return [
            self._run_sweeps(site, n, now, rng)
            for site, n, rng in zip(sites, records, rngs, strict=True)
        ]

    def draw_common(
        self,
        now: Common,
        total: Update,
        sites: int,
        prior: SpikeSlab,
        rng: np.random.Generator,
    ) -> Common:
        return self.draw_slabs_first(now, total, sites, prior, rng)

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
            for i, (j, h) in enumerate(zip(*self._positions(len(names)), strict=True))
        ]
        scales = [
            {"column": name, **{key: float(values[j]) for key, values in own["b"].items()}}
            for j, name in enumerate(names)
        ]
        turns = float(own["turns_taken"]["mean"].mean())
        summary = {"effects": effects, "error_scales": scales, "turns_taken": turns}
        if self._surrogate:
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
        if self._surrogate:
            return surrogate_result(self, state, self.level, self.fdr)
        draws, names = recorded_draws(state), state["columns"]
        targets, sources = self._positions(len(names))
        posteriors = {name: summarise(draws[name], self.level) for name in ("theta", "inclusion")}
        pip = posteriors["inclusion"].mean[0]
        edges = discoveries(pip, self.fdr)
        arrows: list[dict[str, Any]] = []
        for i in np.argsort(-pip, kind="stable"):
            found = coefficient(posteriors["theta"], posteriors["inclusion"], (0, int(i)))
            ends = {"from": names[sources[i]], "to": names[targets[i]], "edge": bool(edges[i])}
            arrows.append({**ends, "undecided": undecided(ends["edge"], [found]), **found})
        labels = [f"{names[h]!r} -> {names[j]!r}" for j, h in zip(targets, sources, strict=True)]
        summary = {
            "method": "sparse-directed",
            "errors": self.errors,
            "ordered": self.ordered,
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

    @property
    def _surrogate(self) -> bool:
        """Whether directions are not determined."""
        return self.errors == "gaussian" and not self.ordered

    def _positions(self, p: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return row and column of each entry of the graph."""
        return entry_positions(p, ordered=self.ordered)

    def _run_sweeps(
        self, site: State, n: int, now: Round, rng: np.random.Generator
    ) -> tuple[Update, State]:
        """Return one site's contribution to a round's sums and its memory."""
        Y, theta, t, reach = site["Y"], now.theta[:, 0], now.t[:, 0], site["reach"]
        law = ErrorLaw(1 if self.errors == "laplace" else 2, n)
        # t is a placeholder: a sweep does not read w.
        draw, exact = GraphDraw(site["theta"], site["b"], t, site["v"]), State()
        if "latent" in site:
            law = replace(law, records=max(n, Y.shape[0] + 1))
            latent, draw = draw_latent_graph(
                site["latent"], 1 / site["unit"], law.determinants, draw, theta, t, self.noise, rng,
                warmup=now.number + 1 if now.warmup else 0,
            )  # fmt: skip
            Y, exact = latent_columns(latent, 1 / site["unit"]), {"latent": latent}
        moves, turns = np.zeros(theta.shape), np.zeros(draw.b.shape)
        for i in range(self.sweeps):
            noise = draw_graph_noise(
                self.chains, Y.shape[-2], law, self.noise, rng, ordered=self.ordered
            )
            draw, moved, turned = sweep_graph(Y, draw, reach, theta, t, self.noise, law, noise)
            if now.warmup:
                reach = adapted(reach, moved, now.number * self.sweeps + i + 1)
            moves, turns = moves + moved / self.sweeps, turns + turned / self.sweeps
        last = SiteDraw(draw.theta, draw.b, draw.w, draw.v)
        sums, _ = paper_update(last, theta, t, self.lambda_floor)
        parameters = {"theta": draw.theta, "b": draw.b, "v": draw.v, "reach": reach, **exact}
        own = site["own"]
        if not now.warmup:
            news = {"theta": draw.theta, "b": draw.b, "moves_taken": moves, "turns_taken": turns}
            if self.errors == "gaussian":
                graph = matrices(draw.theta, Y.shape[-2])
                news["partial"] = partial_correlations(graph, draw.b**2)
            own = add_draw(own, news, now.number - self.discarded, self.recorded_rounds)
        update = {name: values[:, None] for name, values in sums.items()}
        return update, {**site, **parameters, "own": own}
