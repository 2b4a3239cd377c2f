"""Rounds of federated sparse *linear* models: regression, and Markov random fields by regressions.

A site keeps X'X of its columns and its own last draws (`secagg.models.sparse_bayes.horseshoe`). The
coordinator draws theta with the sites' own coefficients integrated out, or as in the paper
(`secagg.models.sparse_bayes.spike_slab`). See `secagg.models.sparse_bayes.sums` for the sums.

The sweeps of several sites are computed together, with arrays stacked along a first axis. Every
operation acts on one matrix or one number alone, so no bit depends on the rest of the stack.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import ClassVar, Literal

import numpy as np

from secagg.contracts import (
    Disclosure,
    Field,
    Kind,
    NoisyMatrix,
    PublicFacts,
    Result,
    Spec,
    State,
    Update,
)
from secagg.core.arrays import Array
from secagg.errors import PeerError
from secagg.models.common.posterior_summary import number
from secagg.models.common.variables import halves
from secagg.models.numerics.gaussian_draws import clip_variance, times
from secagg.models.numerics.line_move import TERMS, draw_along, draw_direction
from secagg.models.numerics.site_covariances import (
    begin_shared,
    draw_shared,
    read_shared,
    shared_spec,
    site_terms,
)
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
from secagg.models.sparse_bayes.latent.moments import (
    begin_latent,
    draw_latent,
    latent_regression,
    line_terms,
    predictor_scatters,
    shift_latent,
)
from secagg.models.sparse_bayes.result import linear_disclosure
from secagg.models.sparse_bayes.site_posterior import add_draw, begin_sums, own_posterior
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab
from secagg.models.sparse_bayes.sums import (
    Design,
    begin_site,
    collapsed_spec,
    full,
    paper_update,
    upper,
)

_MAX_LINE, _LINE_BITS = 2.0**30, 20
_MAX_SHIFT = 1e6  # in standard deviations
_DRAW = tuple(field.name for field in fields(SiteDraw))
_NOISE = tuple(field.name for field in fields(SweepNoise))


@dataclass(frozen=True, kw_only=True)
class SparseLinear(SparseModel):
    """The sampler's settings and the choice of the coordinator's step."""

    step: Literal["collapsed", "paper"] = "collapsed"
    """How the coordinator draws the common coefficients. `"collapsed"` integrates out the sites'
    own coefficients. `"paper"` needs smaller messages, but its chains mix much more slowly."""

    model_name: ClassVar[str]

    @property
    def title(self) -> str:
        step = "" if self.step == "collapsed" else f", step “{self.step}”"
        return f"{self.model_name}{step}"

    @property
    def disclosure(self) -> Disclosure:
        return linear_disclosure(collapsed=self.step == "collapsed")

    @abstractmethod
    def design(self, public: PublicFacts) -> Design:
        """Return the regressions, in positions within `columns`."""

    def shape(self, public: PublicFacts) -> tuple[int, int]:
        return self.design(public).shape

    def round_spec(self, public: PublicFacts) -> Spec:
        norm, rows, sites = self._largest_square(public), public.max_rows, len(public.sites)
        chains, (R, q) = self.chains, self.shape(public)
        spec = super().round_spec(public)
        if self.step == "collapsed":
            spec = collapsed_spec((chains, R, q), norm, rows, sites, self.noise)
        if not public.site_moments:
            return spec
        line = Field("line", (chains, R, TERMS), _MAX_LINE, _LINE_BITS, Kind.BOUNDED)
        return (*spec, *shared_spec((chains, R), q, rows, sites), line)

    def _largest_square(self, public: PublicFacts) -> float:
        """Return the largest |X_i|^2 that is possible at a site.

        It is at most the number of records of all sites or, scaled by the site's own deviation, of
        this one. Pooled squares are rounded, by half a step per site, and divided by a variance of
        16 steps or more: 1/32 per site. Adding 1 per site covers all rounding.
        """
        rows, sites = public.max_rows, len(public.sites)
        return float(rows if self.scale == "site" else rows * sites) + sites

    def describe_sum(self) -> str:
        if self.step == "paper":
            return super().describe_sum()
        return (
            "for each chain, the precision and the slope of the pooled likelihood of theta, given "
            "the sites' own draws"
        )

    def begin_memory(self, z: Array, public: PublicFacts) -> State:
        """Return X'X of the columns analysed, and first draws."""
        draws = begin_site((self.chains, *self.shape(public)))
        shapes = {"theta": draws["theta"].shape, "s": draws["s"].shape}
        own = begin_sums({**shapes, "common": shapes["theta"]})
        return {"gram": z.T @ z, "own": own, "t": np.ones_like(draws["w"]), **draws}

    def begin_noisy(self, noisy: NoisyMatrix, public: PublicFacts) -> State:
        """Return first draws of the exact moments."""
        return {"latent": begin_latent(noisy, self.design(public), self.chains)}

    def begin_shared_state(self, public: PublicFacts) -> State:
        """Return first draws of what the sites' covariances have in common, and of a line."""
        if not public.site_moments:
            return {}
        R, q = self.shape(public)
        still = {"shift": np.zeros((self.chains, R, q)), "direction": np.zeros((self.chains, R, q))}
        return {**asdict(begin_shared((self.chains, R), q)), **still}

    def draw_round(
        self, now: Common, total: Update, shared: State, number: int, sites: int, records: int,
        rng: np.random.Generator,
    ) -> tuple[Common, State]:  # fmt: skip
        """Return the next draws; under noise once at the site, theta moves along the line first."""
        prior = self.constants(records)
        if not shared:
            return self.draw_common(now, total, sites, prior, rng), shared
        u = shared["direction"]
        one_axis = (np.count_nonzero(u, axis=-1) == 1)[..., None] & (u != 0)
        slabs = np.stack([np.where(one_axis, value, now.g) for value in (0.0, 1.0)])
        variance = np.where(slabs > 0, now.eta, prior.narrow(now.eta))
        of_slabs = np.where(slabs > 0, np.log(now.rho)[..., None], np.log1p(-now.rho)[..., None])
        weights = (of_slabs - (now.theta**2 / variance + np.log(variance)) / 2).sum(axis=-1)
        line = np.stack([total["line"]] * 2)
        line[..., 0] -= (now.theta * u / variance).sum(axis=-1)
        line[..., 1] -= (u**2 / variance).sum(axis=-1) / 2
        line[:, ~np.any(u, axis=-1)] = [0.0, -1.0, 0.0, 0.0, 0.0]  # before the first direction
        in_slab = (one_axis & (now.g > 0)).any(axis=-1).astype(np.int64)
        a, model = draw_along(line, weights, in_slab, rng)
        shift = a[..., None] * u
        g = np.where(one_axis, model[..., None], now.g)
        if self.step == "collapsed":  # r is P X'y, up to terms that X'y does not change
            P = full(total["P"], u.shape[-1])
            total = {**total, "r": total["r"] + times(P, shift)}
        covariances = draw_shared(read_shared(shared), total, sites, rng)
        direction = draw_direction(u.shape, rng)
        moved = replace(now, theta=now.theta + shift, g=g)
        drawn = self.draw_common(moved, total, sites, prior, rng)
        return drawn, {**asdict(covariances), "shift": shift, "direction": direction}

    def run_sweeps(
        self,
        sites: Sequence[State],
        records: Sequence[int],
        now: Round,
        rngs: Sequence[np.random.Generator],
        public: PublicFacts,
    ) -> list[tuple[Update, State]]:
        # Integrating out a flat prior on a site's intercept leaves centred records, one fewer.
        counted = [max(n - 1, 0) for n in records]
        design = self.design(public)
        latents = [site["latent"] for site in sites if "latent" in site]
        shared = read_shared(now.shared) if latents else None
        if shared and np.any(np.abs(now.shared["shift"]) > _MAX_SHIFT):
            raise PeerError("message", "the coordinator's shift is out of range")
        factors = [1 / site["unit"] for site in sites]  # 0 for a column that does not vary
        data = _stacked(design, [site["gram"] for site in sites])
        if shared:
            latents = shift_latent(latents, factors, design, now.shared["shift"])
            data = latent_regression(latents, factors, design, self._largest_square(public))
        draw = SiteDraw(*(np.array([site[name] for site in sites]) for name in _DRAW))
        if self.step == "paper":  # lambda stays, and w = lambda^2 t
            before = np.array([site["t"] for site in sites])
            draw = SiteDraw(draw.theta, draw.s, clip_variance(draw.w * now.t / before), draw.v)
        for _ in range(self.sweeps):
            # the exact moments have q + 1 dimensions at least, by (1) of `latent.moments`
            least = now.t.shape[-1] + 1 if shared else 0
            each = [
                draw_noise(now.t.shape, max(n, least), self.noise, rng)
                for n, rng in zip(counted, rngs, strict=True)
            ]
            noise = SweepNoise(*(np.array([getattr(one, name) for one in each]) for name in _NOISE))
            draw = sweep(data, draw, now.theta, now.t, self.noise, noise)
        if shared:
            latents, draw = draw_latent(
                latents,
                factors,
                design,
                counted,
                draw,
                now.theta,
                shared,
                rngs,
                warmup=now.warmup,
            )
            data = latent_regression(latents, factors, design, self._largest_square(public))
        if self.step == "collapsed":
            P, r = marginal(data, draw)
            update = {"P": upper(P), "r": r, "c": now.t / (draw.v * draw.w)}
        else:
            update, draw = paper_update(draw, now.theta, now.t, self.lambda_floor)
        told: list[State] = [{} for _ in sites]
        if shared:
            lines = line_terms(latents, factors, design, now.shared["direction"])
            told = [
                {"line": np.clip(line, -_MAX_LINE, _MAX_LINE)}
                | site_terms(scatter, max(n, 1), shared)
                for line, scatter, n in zip(
                    lines, predictor_scatters(latents), counted, strict=True
                )
            ]
        results = []
        for k, site in enumerate(sites):
            site_draw = SiteDraw(*(getattr(draw, name)[k] for name in _DRAW))
            parameters = {name: getattr(site_draw, name) for name in _DRAW}
            own = site["own"]
            if not now.warmup:
                at = now.number - self.discarded
                own = add_draw(own, {**parameters, "common": now.theta}, at, self.recorded_rounds)
            sent = {name: values[k] for name, values in update.items()} | told[k]
            exact = {"latent": latents[k]} if shared else {}
            results.append((sent, {**site, **parameters, **exact, "t": now.t, "own": own}))
        return results

    def site_result(self, memory: State, public: PublicFacts) -> Result | None:
        """Return a site's own coefficients and error variances, and the common coefficients."""
        if memory.get("round") != self.rounds:
            return None
        posteriors = {name: own_posterior(sums) for name, sums in memory["own"].items()}
        chosen, design = self.columns(public), self.design(public)
        names = [public.variables[i].name for i in chosen]
        deviations = memory["unit"] * halves(public, chosen)

        # Otherwise theta_kj has Cauchy tails, no mean and no sd: see `new_site`.
        estimable = (memory["here"] > 1) & (np.diagonal(memory["gram"]) > 0)

        def numbers(kind: str, at: tuple[int, ...], factor: float = 1.0) -> dict[str, float | None]:
            return {key: number(factor * values[at]) for key, values in posteriors[kind].items()}

        def own(i: int, j: int, h: int, factor: float = 1.0) -> dict[str, float | None]:
            return numbers("theta", (i, j), factor if estimable[h] else np.nan)

        regressions = [
            {
                "outcome": names[y],
                "error_variance": numbers("s", (i,)),
                "coefficients": [
                    {
                        "term": names[h],
                        **own(i, j, h),
                        "own_units": own(i, j, h, deviations[y] / deviations[h]),
                        "common": numbers("common", (i, j)),
                    }
                    for j, h in enumerate(design.predictors[i])
                ],
            }
            for i, y in enumerate(design.outcomes)
        ]
        pooled = "pooled within sites" if self.scale == "pooled" else "of this site's records"
        notes = [f"Coefficients are in standard deviations {pooled}; own_units in the columns'."]
        if memory["here"] < design.shape[1] + 2:
            notes.append(
                "This site has fewer records than coefficients: the prior around the common "
                "coefficients mostly determines its own."
            )
        if not np.all(estimable):
            notes.append(
                "null means fewer than two records, or a column that does not vary at this site."
            )
        return Result({"records_here": memory["here"], "notes": notes, "regressions": regressions})

    def draw_common(
        self,
        now: Common,
        total: Update,
        sites: int,
        prior: SpikeSlab,
        rng: np.random.Generator,
    ) -> Common:
        if self.step == "paper":
            if prior.spike is None:
                return super().draw_common(now, total, sites, prior, rng)
            return self.draw_slabs_first(now, total, sites, prior, rng)
        P = full(total["P"], now.theta.shape[-1])
        return spike_slab.collapsed(now, P, total["r"], total["c"], sites, prior, rng)


def _stacked(design: Design, grams: Sequence[Array]) -> Regression:
    """Return the statistics of sites (first axis) and regressions (third axis)."""
    each = design.regression(np.array(grams))
    return Regression(each.gram[:, None], each.cross[:, None], each.square[:, None])
