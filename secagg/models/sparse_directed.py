"""Federated sparse directed graphs, cycles allowed (Kidd, Wang, Xu and Ni, PSB 2023, section 2.4).

draft
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Counted, Public, Result, Rows, State, Update
from secagg.errors import JobError
from secagg.models.horseshoe import SiteDraw, within
from secagg.models.laplace_graph import GraphDraw, draw_graph_noise, places, sweep_graph
from secagg.models.laplace_graph_moves import adapted
from secagg.models.own_posterior import add_draw, begin_sums, own_posterior
from secagg.models.posterior import summarise
from secagg.models.sparse_markov import discoveries, expected_fdr
from secagg.models.sparse_model import Round, SparseModel, kept_draws
from secagg.models.sparse_result import arrays_of, beside, check_share, coefficient
from secagg.models.sparse_rounds import Design, paper_update
from secagg.models.variables import choose

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SparseDirected(SparseModel):
    variables: tuple[str, ...] | None = None
    fdr: float = 0.1
    level: float = 0.95

    name: ClassVar[str] = "sparse_directed"
    leaves: ClassVar[str] = "draft"

    def columns(self, public: Public) -> NDArray[np.int64]:
        if self.variables is None:
            return np.arange(len(public.variables))
        return choose(public, self.variables, "method.variables")

    def design(self, public: Public) -> Design:
        p = len(self.columns(public))
        if p < 2:
            raise JobError("method.variables", "a graph needs at least two variables")
        rows, columns = places(p)
        return Design(rows[None, :], columns[None, :])

    def gather(self, z: Array, public: Public) -> State:
        chains, q, p = self.chains, self.design(public).shape[1], z.shape[1]
        shape = (chains, q)
        return {
            "Y": np.ascontiguousarray(z.T),
            "theta": np.zeros(shape),
            "b": np.ones((chains, p)),
            "w": np.ones(shape),
            "v": np.ones(shape),
            "t": np.ones(shape),
            "reach": np.full(shape, 1 / np.sqrt(max(len(z), 1))),
            "taken": np.zeros(shape),
            "own": begin_sums({"theta": shape, "b": (chains, p)}),
        }

    def sweeps_at(self, sites, records, now, rngs, public):
        return [self._round(site, n, now, rng) for site, n, rng in zip(sites, records, rngs)]

    def _round(self, site, n, now, rng):
        theta, t = now.theta[:, 0], now.t[:, 0]
        p = len(site["Y"])
        draw = GraphDraw(site["theta"], site["b"], within(site["w"] * t / site["t"]), site["v"])
        reach, taken = site["reach"], site["taken"]
        for i in range(self.sweeps):
            noise = draw_graph_noise(self.chains, p, n, self.noise, rng)
            draw, moved = sweep_graph(site["Y"], draw, reach, theta, t, self.noise, noise)
            if now.warmup:
                reach = adapted(reach, moved, now.number * self.sweeps + i + 1)
            else:
                taken = taken + moved
        held = SiteDraw(draw.theta, draw.b, draw.w, draw.v)
        update, held = paper_update(held, theta, t, self.lambda_floor)
        kept = asdict(replace(draw, w=held.w))
        own = site["own"]
        if not now.warmup:
            own = add_draw(own, kept, now.number - self.discarded, self.kept_rounds)
        return ({k: v[:, None] for k, v in update.items()}, {**site, **kept, "t": t, "reach": reach, "taken": taken, "own": own})

    def own_result(self, memory, rows, public):
        return None

    def result(self, state: State, public: Public, counted: Counted) -> Result:
        kept = kept_draws(state)
        names = state["columns"]
        rows, columns = places(len(names))
        found = {name: summarise(kept[name], self.level) for name in ("theta", "inclusion")}
        p = len(names)
        pip, mean, sd = (np.zeros((p, p)) for _ in range(3))
        at = (columns, rows)
        pip[at], mean[at] = found["inclusion"].mean[0], found["theta"].mean[0]
        sd[at] = found["theta"].sd[0]
        edges = np.zeros((p, p), dtype=bool)
        edges[at] = discoveries(pip[at], self.fdr)
        labels = [f"{names[h]!r} -> {names[j]!r}" for j, h in zip(rows, columns)]
        summary = {"found": found, **beside(self, state, kept, found, labels)}
        return Result(summary, {"pip": pip, "mean": mean, "sd": sd, "edges": edges, **arrays_of(kept, own_eta=self.own_eta)})
