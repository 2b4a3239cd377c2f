"""Rounds of federated sparse *linear* models: regression, and Markov random fields by regressions.

A site keeps X'X of its columns and its own last draws (`secagg.models.sparse_bayes.horseshoe`); the
coordinator draws theta with the sites' own coefficients integrated out, or as in the paper
(`secagg.models.sparse_bayes.spike_slab`). See `secagg.models.sparse_bayes.sums` for what is sent.

Several sites' sweeps are computed at once, their arrays stacked along a first axis: every operation
is one matrix's or one number's own, so that no bit depends on what else is in the stack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from secagg.contracts import PublicFacts, Result, Spec, State, Update
from secagg.core.arrays import Array
from secagg.models.common.posterior_summary import number
from secagg.models.common.variables import halves
from secagg.models.numerics.gaussian_draws import within
from secagg.models.sparse_bayes import spike_slab
from secagg.models.sparse_bayes.base import Round, SparseModel
from secagg.models.sparse_bayes.horseshoe import (
    Regression,
    SiteDraw,
    SweepNoise,
    draw_noise,
    marginal,
    sweep,
)
from secagg.models.sparse_bayes.site_posterior import add_draw, begin_sums, own_posterior
from secagg.models.sparse_bayes.spike_slab import Common
from secagg.models.sparse_bayes.sums import (
    Design,
    begin_site,
    collapsed_spec,
    full,
    paper_update,
    upper,
)

_DRAW = tuple(field.name for field in fields(SiteDraw))
_NOISE = tuple(field.name for field in fields(SweepNoise))


@dataclass(frozen=True, kw_only=True)
class SparseLinear(SparseModel, ABC):
    """The sampler's settings and the choice of the coordinator's step."""

    step: Literal["collapsed", "paper"] = "collapsed"
    """How the coordinator draws the common coefficients. `"collapsed"` integrates out the sites'
    own coefficients; `"paper"` sends smaller messages and mixes much more slowly."""

    @abstractmethod
    def design(self, public: PublicFacts) -> Design:
        """Return the regressions, in positions within `columns`."""

    def shape(self, public: PublicFacts) -> tuple[int, int]:
        """Return how many regressions there are, and coefficients in each."""
        return self.design(public).shape

    def round_spec(self, public: PublicFacts) -> Spec:
        """Return the fields of one of the sampler's rounds."""
        if self.step == "paper":
            return super().round_spec(public)
        rows, sites = public.max_rows, len(public.sites)
        # |X_i|^2 is at most the number of records of all sites or, scaled by the site's own
        # deviation, of this one. Pooled squares are rounded, by half a step a site, and divided by
        # a variance of 16 steps or more: 1/32 a site, and what is added is ample for all rounding.
        norm = float(rows if self.scale == "site" else rows * sites) + sites
        return collapsed_spec((self.chains, *self.shape(public)), norm, rows, sites, self.noise)

    def told(self) -> str:
        """Return what the sum of a round tells, in words."""
        if self.step == "paper":
            return super().told()
        return (
            "for each chain, the precision and the slope of the pooled likelihood of theta, given "
            "the sites' own draws"
        )

    def gather(self, z: Array, public: PublicFacts) -> State:
        """Return X'X of the columns analysed, and first draws."""
        begun = begin_site((self.chains, *self.shape(public)))
        shapes = {"theta": begun["theta"].shape, "s": begun["s"].shape}
        own = begin_sums({**shapes, "common": shapes["theta"]})
        return {"gram": z.T @ z, "own": own, "t": np.ones_like(begun["w"]), **begun}

    def sweeps_at(
        self,
        sites: Sequence[State],
        records: Sequence[int],
        now: Round,
        rngs: Sequence[np.random.Generator],
        public: PublicFacts,
    ) -> list[tuple[Update, State]]:
        """Return, for each of these sites, its part of a round's sums and what it keeps."""
        # A flat prior on a site's intercept, integrated out, leaves centred records, and one less.
        counted = [max(n - 1, 0) for n in records]
        data = _stacked(self.design(public), [site["gram"] for site in sites])
        draw = SiteDraw(*(np.array([site[name] for site in sites]) for name in _DRAW))
        if self.step == "paper":  # lambda is held, and w = lambda^2 t
            before = np.array([site["t"] for site in sites])
            draw = SiteDraw(draw.theta, draw.s, within(draw.w * now.t / before), draw.v)
        for _ in range(self.sweeps):
            each = [
                draw_noise(now.t.shape, n, self.noise, rng)
                for n, rng in zip(counted, rngs, strict=True)
            ]
            noise = SweepNoise(*(np.array([getattr(one, name) for one in each]) for name in _NOISE))
            draw = sweep(data, draw, now.theta, now.t, self.noise, noise)
        if self.step == "collapsed":
            P, r = marginal(data, draw)
            update = {"P": upper(P), "r": r, "c": now.t / (draw.v * draw.w)}
        else:
            update, draw = paper_update(draw, now.theta, now.t, self.lambda_floor)
        found = []
        for k, site in enumerate(sites):
            mine = SiteDraw(*(getattr(draw, name)[k] for name in _DRAW))
            kept = {name: getattr(mine, name) for name in _DRAW}
            own = site["own"]
            if not now.warmup:
                at = now.number - self.discarded
                own = add_draw(own, {**kept, "common": now.theta}, at, self.kept_rounds)
            sent = {name: values[k] for name, values in update.items()}
            found.append((sent, {**site, **kept, "t": now.t, "own": own}))
        return found

    def site_result(self, memory: State, public: PublicFacts) -> Result | None:
        """Return a site's own coefficients and error variances, beside the common coefficients."""
        if memory.get("round") != self.rounds:
            return None
        found = {name: own_posterior(sums) for name, sums in memory["own"].items()}
        chosen, design = self.columns(public), self.design(public)
        names = [public.variables[i].name for i in chosen]
        deviations = memory["unit"] * halves(public, chosen)

        # Elsewhere theta_kj has the tails of a Cauchy, no mean and no sd: see `newcomer`.
        known = (memory["here"] > 1) & (np.diagonal(memory["gram"]) > 0)

        def told(kind: str, at: tuple[int, ...], factor: float = 1.0) -> dict[str, float | None]:
            return {key: number(factor * values[at]) for key, values in found[kind].items()}

        def own(i: int, j: int, h: int, factor: float = 1.0) -> dict[str, float | None]:
            return told("theta", (i, j), factor if known[h] else np.nan)

        regressions = [
            {
                "outcome": names[y],
                "error_variance": told("s", (i,)),
                "coefficients": [
                    {
                        "term": names[h],
                        **own(i, j, h),
                        "own_units": own(i, j, h, deviations[y] / deviations[h]),
                        "common": told("common", (i, j)),
                    }
                    for j, h in enumerate(design.predictors[i])
                ],
            }
            for i, y in enumerate(design.outcomes)
        ]
        pooled = "pooled within sites" if self.scale == "pooled" else "of this site's records"
        notes = [f"Coefficients are in standard deviations {pooled}; own_units in the columns'."]
        if memory["here"] < design.shape[1] + 2:
            few = "Fewer records are here than there are coefficients: these are mostly the prior's"
            notes.append(f"{few}, around the common ones.")
        if not np.all(known):
            notes.append("null: with fewer than two records, or a column that does not vary here.")
        return Result({"records_here": memory["here"], "notes": notes, "regressions": regressions})

    def drawn(self, now: Common, total: Update, sites: int, rng: np.random.Generator) -> Common:
        """Return the coordinator's draws after a round's sums."""
        if self.step == "paper":
            return super().drawn(now, total, sites, rng)
        P = full(total["P"], now.theta.shape[-1])
        return spike_slab.collapsed(now, P, total["r"], total["c"], sites, self.prior, rng)


def _stacked(design: Design, grams: Sequence[Array]) -> Regression:
    """Return the statistics of sites (first axis) and regressions (third axis)."""
    each = design.regression(np.array(grams))
    return Regression(each.gram[:, None], each.cross[:, None], each.square[:, None])
