"""The stages that all FedLin methods share: units, noise variance, rounds, the end of a run.

Yue, Al Kontar and Estrada Gomez (2022). A stage is a kind of round. The stages sum the following:

    records    the number of records; with pooled units, also the columns' sums and squares; if the
               stage `noise` follows, also how many sites have more records than coefficients;
               before sums that need three sites, also how many sites each predictor varies at, and
               how many can estimate a coefficient or all coefficients; under noise once at the
               site, if the method knows it, the predictors' noisy cross products
    noise      squared residuals of the sites' own least squares, and their degrees of freedom,
               which give the pooled variance of the regression's noise. This stage takes place only
               if the method uses that variance and at least two sites have residuals. With
               residuals of one site alone, the sum would be that site's.
    fit        the quantities of the method's own rounds
    finish     over sites with records: coefficients, their squares, and squared prediction errors,
               both of the method and of predictions that a site can make without it
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from secagg.contracts import (
    Body,
    Family,
    Field,
    Kind,
    PublicFacts,
    ResultTable,
    SiteRecords,
    Spec,
    Stage,
    State,
    Update,
)
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.errors import InternalError, PeerError, UsageError
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.common.message_checks import check_facts, read_message
from secagg.models.common.units import SQUARES_BITS, records_in
from secagg.models.fedlin.descriptions import MEAN_ONLY, SITE_OLS, sites_table
from secagg.models.fedlin.design import Layout
from secagg.models.fedlin.error_variance import (
    own_error_variance,
    pooled_error_variance,
    residual_sums,
)
from secagg.models.fedlin.final_sum import ending_fields, ending_sees, ending_sums
from secagg.models.fedlin.hierarchies.noisy_likelihood import (
    NoisyRegression,
    drawn_moments,
    predictors_scatter,
)
from secagg.models.fedlin.round import Round
from secagg.models.fedlin.settings import FedLinSettings
from secagg.models.fedlin.site import Site, split_holdout, varying_predictors
from secagg.models.fedlin.units import check_units, training_units, unit_sums, units_fields

RECORDS, NOISE, ROUNDS, FINISH = "records", "noise", "fit", "finish"
"""The names of the stages."""

MIN_SITES = 3
"""Smallest number of sites in a sum that would show both regressions of two sites."""
_MIN_SITES_FOR_NOISE = 2
_SCATTER_BITS = 24


@dataclass(frozen=True, kw_only=True)
class FedLinModel(FedLinSettings):
    """One run of a FedLin method: what its coordinator and its sites do in every stage."""

    # --- what a method adds ----------------------------------------------------------------------

    @property
    @abstractmethod
    def title(self) -> str:
        """The method's name in a heading."""

    @property
    @abstractmethod
    def needs_noise(self) -> bool:
        """Whether the noise variance is used."""

    @abstractmethod
    def round_stage(self, public: PublicFacts) -> Stage:
        """Return the stage of the method's own rounds."""

    @abstractmethod
    def news(self, stage: str, public: PublicFacts) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the arrays that the coordinator sends in a stage."""

    @abstractmethod
    def begin(self, public: PublicFacts) -> State:
        """Return what the method adds to the coordinator's state before the first round."""

    @abstractmethod
    def sent(self, state: State) -> Body:
        """Return the arrays that `news` declares."""

    @abstractmethod
    def begin_site(self, site: Site, now: Round, public: PublicFacts) -> State:
        """Return what the method adds to a site's memory before the first round."""

    @abstractmethod
    def site_contribution(
        self, site: Site, memory: State, now: Round, public: PublicFacts
    ) -> tuple[Update, State]:
        """Return a site's contribution to a round's sums, and its new memory."""

    @abstractmethod
    def settled(self, site: Site, memory: State, now: Round, public: PublicFacts) -> State:
        """Return a site's memory after the last message, with "theta" (d,)."""

    @abstractmethod
    def advance(self, state: State, total: Update, sites: int) -> State:
        """Return the coordinator's state after a round's sums; "status" FINISH ends the rounds."""

    @property
    def link(self) -> Family:
        """The family of the outcome. Unless it is linear, the outcome keeps its own unit."""
        return GAUSSIAN

    @property
    def counts_sites(self) -> bool:
        """Whether the first sum counts the sites to which later sums are limited.

        They are the sites where a predictor varies (at least `MIN_SITES` for each), those that can
        estimate a coefficient, and those that can estimate all ("determined" in a message).
        """
        return False

    def after_rounds(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Return the method's stages between its rounds and the end."""
        return ()

    def after(self, state: State, total: Update) -> State:
        """Return the coordinator's state after the sum of such a stage."""
        raise InternalError("fedlin", "there is no stage between rounds and the end")

    def last_fields(self, public: PublicFacts) -> Spec:
        """Return the fields of the last sum that are the method's own."""
        return ()

    @property
    def last_sees(self) -> str:
        """What `last_fields` reveal, in words."""
        return ""

    def last_parts(self, own: State) -> Update:
        """Return a site's contribution to `last_fields`, from its memory; 0 without records."""
        return {}

    # --- the run ---------------------------------------------------------------------------------

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        self.check_settings(uses_noise=self.needs_noise)
        layout = self.layout(public)
        declared = [self._records_stage(layout, public)]
        if self._asks_noise:
            reach = self.outcome_range(layout)
            noise = (
                Field("residual", (1,), public.max_rows * reach**2, SQUARES_BITS, Kind.WEIGHT),
                Field("freedom", (1,), float(public.max_rows), 0, Kind.COUNT),
            )
            sees = "sum of squared residuals of the sites' own least squares, degrees of freedom"
            declared.append(Stage(NOISE, noise, 1, sees))
        declared += [self.round_stage(public), *self.after_rounds(public)]
        holdout = self.holdout > 0
        models, sites = len(self.models), len(public.sites)
        last = ending_fields(layout.d, models, public.max_rows, sites, holdout=holdout)
        sees = ending_sees(sites, holdout=holdout)
        sees += f"; {self.last_sees}" if self.last_sees else ""
        declared.append(Stage(FINISH, (*last, *self.last_fields(public)), 1, sees))
        if holdout:
            share, which = self.holdout, self.holdout_rows
            declared = [replace(s, held_out=share, held_out_rows=which) for s in declared]
        powers = {layout.names[1]: layout.degree} if layout.degree > 1 else {}
        return tuple(replace(s, powers=powers) for s in declared)

    def initial_state(self, public: PublicFacts) -> State:
        layout = self.layout(public)
        centre, scale = layout.own_units
        noise = 0.0  # in squared half widths of the outcome's bounds, as in the sum
        if self.noise_sd is not None:
            noise = (self.noise_sd / float(layout.half_range[0])) ** 2
        return {
            "status": RECORDS,
            "round": 0,
            "quiet": 0,
            "centre": centre,
            "scale": scale,
            "half": float(layout.half_range[0]),
            "names": list(layout.names),
            "noise": noise,
            **self.begin(public),
        }

    def next_request(self, state: State) -> tuple[str, Body] | None:
        status = state["status"]
        if status == "done":
            return None
        if status == RECORDS:
            return RECORDS, {}
        facts = {name: state[name] for name in ("records", "centre", "scale")}
        facts |= {name: state[name] for name in ("scatter", "determined") if name in state}
        if status == NOISE:
            return NOISE, facts
        noise = np.array([state["noise"] * state["scale"][0] ** 2])
        return status, {**facts, "noise": noise, **self.sent(state)}

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        layout, seed = self.layout(public), random(16)
        memory = memory or {"parting": seed}
        values = rows.values[:, layout.columns]
        training, held_out = split_holdout(
            values, self.holdout, self.holdout_rows, memory["parting"]
        )
        if stage == RECORDS:
            return self._first_sums(layout, rows, training), memory
        shapes = {} if stage == NOISE else {**self.news(stage, public), "noise": (1,)}
        news, facts = read_message(message, shapes, self._fact_shapes(layout, public))
        pooled = np.arange(len(facts["centre"])) < (layout.scaled if self.scale == "pooled" else 0)
        pooled[0] &= self.link.linear
        check_units(layout, facts, training, pooled, public.max_rows * len(public.sites))
        check_facts(memory.get("facts", {}), facts, len(training))
        centre, scale = facts["centre"], facts["scale"]
        if "site" not in memory:
            site = Site.of(layout, training, centre, scale)
            memory = {**memory, "facts": facts, "site": site.state()}
            if rows.noisy is not None and self.knows_noise:
                drawn = drawn_moments(rows.noisy, layout, facts["scatter"], len(public.sites))
                memory = {**memory, "moments": drawn}
        else:
            site = Site.read(memory["site"])
        noisy = None
        if rows.noisy is not None and self.knows_noise:
            noisy = NoisyRegression.of(rows.noisy, layout, memory["moments"], centre, scale)
        if stage == NOISE:
            return residual_sums(site, noisy, layout, training, centre, scale), memory
        if not np.array_equal(memory.get("noise", news["noise"]), news["noise"]):
            raise PeerError("message", "the coordinator changed the noise")
        memory = {**memory, "noise": news["noise"]}
        noise = float(news["noise"][0])
        if self.needs_noise and noise <= 0:
            raise PeerError("message", "the coordinator's noise is not above 0")
        if self.needs_noise and self.variance == "site" and self.noise_sd is None:
            noise = own_error_variance(noise, site, noisy, layout, training, centre, scale)
        if self.counts_sites:
            news["determined"] = facts["determined"]
        rng = np.random.default_rng(int.from_bytes(seed, "little"))
        now = Round(
            layout, stage, news, centre, scale, noise, training, facts["records"], rng, noisy
        )
        own = memory.get("own") or self.begin_site(site, now, public)
        if stage == FINISH:
            own = self.settled(site, own, now, public)
            fitted, outside = self.fitted(site, own), held_out if self.holdout else None
            sums, errors = ending_sums(site, fitted, now, len(public.sites), outside, self.link)
            memory = {**memory, "own": own, "errors": errors}
            parts = self.last_parts(own).items()
            return {**sums, **{name: part * (site.records > 0) for name, part in parts}}, memory
        update, own = self.site_contribution(site, own, now, public)
        return update, {**memory, "own": own}

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        match state["status"]:
            case "records":
                return self._scaled(state, total)
            case "noise":
                return {**state, "noise": pooled_error_variance(total), "status": ROUNDS}
            case "fit":
                return self.advance({**state, "round": state["round"] + 1}, total, sites)
            case "finish":
                return {**state, "status": "done", "finished": total, "sites": sites}
            case _:
                return self.after(state, total)

    # --- parts -----------------------------------------------------------------------------------

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (sites_table(self.title),)

    @property
    def _asks_noise(self) -> bool:
        return self.needs_noise and self.noise_sd is None

    def _first_sums(self, layout: Layout, rows: SiteRecords, training: Array) -> Update:
        sums = {"records": np.array([float(len(training))])}
        if self.scale == "pooled":
            sums |= unit_sums(layout, training)
        if self._asks_noise:
            sums["telling"] = np.array([float(len(training) > self._coefficients(layout))])
        if self.counts_sites:
            sums["varying"] = varying_predictors(layout, training)
            sums |= Site.of(layout, training, *layout.own_units).counts()
        if rows.noisy is not None and self.knows_noise:
            sums["scatter"] = predictors_scatter(rows.noisy, layout)
        return sums

    def _fact_shapes(self, layout: Layout, public: PublicFacts) -> dict[str, tuple[int, ...]]:
        per_column = (len(layout.columns),)
        scatter = {"scatter": (self._scatter_size(layout),)} if self._draws_moments(public) else {}
        counted = {"determined": (1,)} if self.counts_sites else {}
        return {"centre": per_column, "scale": per_column, **scatter, **counted}

    def _draws_moments(self, public: PublicFacts) -> bool:
        return public.site_moments and self.knows_noise

    def _scatter_size(self, layout: Layout) -> int:
        q = len(layout.columns) - 1
        return q * (q + 1) // 2

    @property
    def models(self) -> tuple[str, ...]:
        """The predictions that are compared."""
        return (self.short, SITE_OLS, MEAN_ONLY)

    def fitted(self, site: Site, own: State) -> list[Array]:
        """Return the coefficients of `models` at a site."""
        return [own["theta"], site.separate, np.zeros_like(own["theta"])]

    @property
    @abstractmethod
    def short(self) -> str:
        """The method's name among the predictions."""

    def _records_stage(self, layout: Layout, public: PublicFacts) -> Stage:
        spec: Spec = (Field("records", (1,), float(public.max_rows), 0, Kind.COUNT),)
        sees = "the number of records that are learned from"
        if self.scale == "pooled":
            fields, seen = units_fields(layout, public.max_rows)
            spec, sees = (*spec, *fields), f"{sees}, {seen}"
        if self._asks_noise:
            spec = (*spec, Field("telling", (1,), 1.0, 0, Kind.COUNT))
            sees = f"{sees}, how many sites have more records than coefficients"
        if self.counts_sites:
            sizes = {"varying": len(layout.names) - 1, "used": 1, "determined": 1}.items()
            spec = (*spec, *(Field(name, (n,), 1.0, 0, Kind.COUNT) for name, n in sizes))
            sees += ", at how many sites each predictor varies, one or all terms can be estimated"
        if self._draws_moments(public):
            shape, most = (self._scatter_size(layout),), float(public.max_rows) ** 2
            spec = (*spec, Field("scatter", shape, most, _SCATTER_BITS, Kind.BOUNDED))
            sees = f"{sees}, cross products of the predictors with the sites' noise"
        return Stage(RECORDS, spec, 1, sees)

    def _coefficients(self, layout: Layout) -> int:
        """Return the largest number of a site's own coefficients, with its own intercept."""
        return layout.d + (self.intercept == "site")

    def _scaled(self, state: State, total: Update) -> State:
        state = {**state, "records": records_in(total)}
        state |= {name: total[name] for name in ("scatter", "determined") if name in total}
        if self.counts_sites:
            state["used"] = round(float(total["used"][0]))
            for name, count in zip(state["names"][1:], total["varying"].tolist(), strict=True):
                if 0 < count < MIN_SITES:  # 0 shows no site; it is an error of its own
                    what = f"predictor {name!r} varies at only {count:.0f} of the sites"
                    raise UsageError("analysis", what, f"Leave it out: {MIN_SITES} are needed.")
        if self.scale == "pooled":
            own = self.intercept == "site"
            mean, unit = training_units(
                total, state["records"], state["names"], self.holdout, own_means=own
            )
            p = len(unit)
            if not self.link.linear:
                mean[0], unit[0] = state["centre"][0], state["scale"][0]
            state["centre"] = np.concatenate([mean, state["centre"][p:]])
            state["scale"] = np.concatenate([unit, state["scale"][p:]])
        if not self._asks_noise:
            return {**state, "status": ROUNDS}
        state["telling"] = round(float(total["telling"][0]))
        if state["telling"] < _MIN_SITES_FOR_NOISE:
            less = f", or hold out less than {self.holdout:g}" if self.holdout else ""
            raise UsageError(
                "analysis",
                "fewer than two sites have more records than coefficients, so the noise variance "
                "cannot be estimated without revealing one site's residuals",
                f"Set method.noise_sd, or take fewer predictors{less}.",
            )
        return {**state, "status": NOISE}
