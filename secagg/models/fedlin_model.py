"""What all FedLin methods share as methods: settings, units, noise variance, the end of a run.

Yue, Al Kontar and Estrada Gomez (2022). The stages are

    records    number of records; for pooled units, columns' sums and squares
    noise      sums of squared residuals of the sites' own least squares, and their degrees of
               freedom: the pooled variance of the noise. Only where a method uses it.
    fit        the method's own
    finish     sums over sites of coefficients and their squares, and of squared errors, of the
               method's predictions and of others that a site can make without it

Predictions are compared with "separate", the site's own least squares (the shortest where there
are many), and with "nothing", the site's own mean (or 0 where no intercept is its own). With
`holdout` they are of records that nothing was learned from; the report's figure is the paper's
A-RMSE, the mean over sites of each site's root mean squared error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Body, Field, Kind, Public, Rows, Spec, Stage, State, Update
from secagg.errors import DataError, JobError, PeerError, UsageError
from secagg.models.consensus_rounds import SQUARES_BITS, check_numbers, deviations, records_in
from secagg.models.fedlin_site import Held, Site, parted
from secagg.models.messages import check_facts, read_message
from secagg.models.regression_layout import Intercept, Layout, Scale
from secagg.randomness import RandomBytes

Array = NDArray[np.float64]

RECORDS, NOISE, ROUNDS, FINISH = "records", "noise", "fit", "finish"
"""The names of the stages."""

BITS = 56
MOST = 2.0**40
"""Bound and fraction bits of what has no bound of its own. Beyond it a method diverges."""
_MOST_ERROR = 2.0**20  # of a prediction, in half widths of the outcome's bounds: clipped, counted
_LEAST_VARIANCE = 2.0 ** (4 - SQUARES_BITS)  # 16 steps of the sum of squares
_ROUNDING = 2.0**-46  # of a mean square: a variance below it may be its rounding
_LEAST_NOISE = 1e-12  # of the outcome's half width, squared: an exact fit has some noise


@dataclass(frozen=True)
class Round:
    """What a site has at hand in a round after the first two.

    sent: the round's own arrays, from the coordinator; noise: the variance, in the units analysed
    values: its training records, as carried; records: of all sites
    """

    layout: Layout
    sent: Mapping[str, Array]
    centre: Array
    scale: Array
    noise: float
    values: Array
    records: int
    rng: np.random.Generator


@dataclass(frozen=True, kw_only=True)
class FedLinModel(ABC):
    """Settings that all FedLin methods have.

    outcome: a numeric column; predictors: columns, None for all others
    degree: of a polynomial of the one predictor, in place of a linear function of several
    intercept, scale: see `secagg.models.regression_layout`
    variance: the sites' noise, "pooled" over sites or each "site"'s own (drawn to the pooled one as
        by 4 more records)
    noise_sd: its standard deviation, in the outcome's unit, where it is known
    holdout: share of each site's records that nothing is learned from; holdout_rows: which
    """

    outcome: str
    predictors: tuple[str, ...] | None = None
    degree: int = 1
    intercept: Intercept = "site"
    scale: Scale = "pooled"
    variance: Literal["pooled", "site"] = "pooled"
    noise_sd: float | None = None
    holdout: float = 0.0
    holdout_rows: Held = "random"

    # --- what a method adds ----------------------------------------------------------------------

    @property
    @abstractmethod
    def needs_noise(self) -> bool:
        """Whether the noise's variance is used, and has to be known."""

    @abstractmethod
    def round_stage(self, public: Public) -> Stage:
        """Return the stage of the method's own rounds."""

    @abstractmethod
    def news(self, stage: str, public: Public) -> dict[str, tuple[int, ...]]:
        """Return the shapes of what the coordinator sends in a round, or at the end."""

    @abstractmethod
    def begin(self, public: Public) -> State:
        """Return what the coordinator keeps of its own before the first round."""

    @abstractmethod
    def sent(self, state: State) -> Body:
        """Return what it sends, as `news` says."""

    @abstractmethod
    def begin_site(self, site: Site, now: Round, public: Public) -> State:
        """Return what a site keeps beside its `Site` before the method's first round."""

    @abstractmethod
    def contribute(
        self, site: Site, memory: State, now: Round, public: Public
    ) -> tuple[Update, State]:
        """Return a site's part of a round's sums and what it keeps."""

    @abstractmethod
    def settled(self, site: Site, memory: State, now: Round, public: Public) -> State:
        """Return what a site keeps after the last message; it then has "theta" (d,)."""

    @abstractmethod
    def advance(self, state: State, total: Update, sites: int) -> State:
        """Return the coordinator's state after a round's sums; "status" FINISH ends the rounds."""

    def last_fields(self, public: Public) -> Spec:
        """Return what a method sums at the end beside coefficients and errors."""
        return ()

    def last_parts(self, own: State) -> Update:
        """Return a site's part of `last_fields`, from what `settled` left."""
        return {}

    # --- the run ---------------------------------------------------------------------------------

    def layout(self, public: Public) -> Layout:
        """Return the regression."""
        return Layout.of(public, self.outcome, self.predictors, self.intercept, self.degree)

    def stages(self, public: Public) -> tuple[Stage, ...]:
        """Declare all kinds of round."""
        self._check()
        layout = self.layout(public)
        declared = [self._records_stage(layout, public)]
        if self._asks_noise:
            reach = self._reach(layout)
            noise = (
                Field("residual", (1,), public.max_rows * reach**2, SQUARES_BITS, Kind.WEIGHT),
                Field("freedom", (1,), float(public.max_rows), 0, Kind.COUNT),
            )
            sees = "sum of squared residuals of the sites' own least squares, degrees of freedom"
            declared.append(Stage(NOISE, noise, 1, sees))
        declared.append(self.round_stage(public))
        sees = "each coefficient's sum and sum of squares over sites; squared errors of predictions"
        declared.append(Stage(FINISH, self._finish_spec(layout, public), 1, sees))
        return tuple(declared)

    def start(self, public: Public) -> State:
        """Begin with the records."""
        layout = self.layout(public)
        centre, scale = layout.own_units
        noise = 0.0  # in half widths of the outcome's bounds, squared, as it is summed
        if self.noise_sd is not None:
            noise = (self.noise_sd / float(layout.half[0])) ** 2
        return {
            "status": RECORDS,
            "round": 0,
            "quiet": 0,
            "centre": centre,
            "scale": scale,
            "half": float(layout.half[0]),
            "names": list(layout.names),
            "noise": noise,
            **self.begin(public),
        }

    def message(self, state: State) -> tuple[str, Body] | None:
        """Ask for the next sum; None when done."""
        status = state["status"]
        if status == "done":
            return None
        if status == RECORDS:
            return RECORDS, {}
        facts = {name: state[name] for name in ("records", "centre", "scale")}
        if status == NOISE:
            return NOISE, facts
        noise = np.array([state["noise"] * state["scale"][0] ** 2])
        return status, {**facts, "noise": noise, **self.sent(state)}

    def local(
        self,
        stage: str,
        rows: Rows,
        message: Body,
        memory: State,
        public: Public,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Answer for one site."""
        layout, seed = self.layout(public), random(16)
        memory = memory or {"parting": seed}
        values = rows.values[:, layout.columns]
        training, held = parted(values, self.holdout, self.holdout_rows, memory["parting"])
        if stage == RECORDS:
            return self._recorded(layout, training), memory
        many = (len(layout.columns),)
        shapes = {} if stage == NOISE else {**self.news(stage, public), "noise": (1,)}
        news, facts = read_message(message, shapes, {"centre": many, "scale": many})
        self._check_units(layout, facts)
        check_facts(memory.get("facts", {}), facts, len(training))
        centre, scale = facts["centre"], facts["scale"]
        if "site" not in memory:
            site = Site.of(layout, training, centre, scale)
            memory = {**memory, "facts": facts, "site": site.state()}
        else:
            site = Site.read(memory["site"])
        if stage == NOISE:
            wrong = site.errors(site.separate, layout, training, centre, scale) / scale[0]
            freedom = np.array([float(site.left)])
            residual = np.array([float(wrong @ wrong)]) * (site.left > 0)
            return {"residual": residual, "freedom": freedom}, memory
        if not np.array_equal(memory.get("noise", news["noise"]), news["noise"]):
            raise PeerError("message", "the coordinator changed the noise")
        memory = {**memory, "noise": news["noise"]}
        noise = self._noise_here(site, news, layout, training, facts)
        rng = np.random.default_rng(int.from_bytes(seed, "little"))
        now = Round(layout, news, centre, scale, noise, training, facts["records"], rng)
        own = memory.get("own") or self.begin_site(site, now, public)
        if stage == FINISH:
            own = self.settled(site, own, now, public)
            update, errors = self._finished(site, own, now, held)
            return update, {**memory, "own": own, "errors": errors, "variance": noise}
        update, own = self.contribute(site, own, now, public)
        return update, {**memory, "own": own}

    def server(self, state: State, total: Update, sites: int) -> State:
        """Take a sum."""
        match state["status"]:
            case "records":
                return self._scaled(state, total)
            case "noise":
                return {**state, "noise": self._noise_of(total), "status": ROUNDS}
            case "fit":
                return self.advance({**state, "round": state["round"] + 1}, total, sites)
            case _:
                return {**state, "status": "done", "finished": total, "sites": sites}

    # --- parts -----------------------------------------------------------------------------------

    @property
    def _asks_noise(self) -> bool:
        return self.needs_noise and self.noise_sd is None

    @property
    def models(self) -> tuple[str, ...]:
        """Return the predictions that are compared."""
        return (self.short, "separate", "nothing")

    def fitted(self, site: Site, own: State) -> list[Array]:
        """Return the coefficients of `models` at a site."""
        return [own["theta"], site.separate, np.zeros_like(own["theta"])]

    @property
    @abstractmethod
    def short(self) -> str:
        """Return the method's own name among the predictions."""

    def _check(self) -> None:
        check_numbers(self, {"holdout": 0})
        if not 0 <= self.holdout < 1:
            raise JobError("method.holdout", "must be from 0 to below 1")
        if self.noise_sd is not None and not 1e-9 <= self.noise_sd <= 1e9:
            raise JobError("method.noise_sd", "must be positive, from 1e-9 to 1e9")
        if self.intercept == "none" and self.scale == "pooled":
            what = 'is "none", and "pooled" units have the pooled mean for their origin'
            raise JobError("method.intercept", what, 'Take scale = "own", or another intercept.')

    def _reach(self, layout: Layout) -> float:
        """Return the largest |y| / half: y is taken from the origin, or from a mean."""
        if self.scale == "own" and layout.intercept == "none":
            return float(np.abs(layout.own_units[0][0])) + 1
        return 2.0

    def _records_stage(self, layout: Layout, public: Public) -> Stage:
        rows = float(public.max_rows)
        spec = [Field("records", (1,), rows, 0, Kind.COUNT)]
        sees = "the number of records that are learned from"
        if self.scale == "pooled":
            shape = (layout.scaled,)
            spec.append(Field("squares", shape, rows, SQUARES_BITS, Kind.WEIGHT))
            sees += ", each column's sum of squares"
            if layout.intercept == "modelled":
                spec.append(Field("sums", shape, rows, SQUARES_BITS, Kind.BOUNDED))
                sees += ", and its sum"
            else:
                sees += " about the sites' own means"
        return Stage(RECORDS, tuple(spec), 1, sees)

    def _recorded(self, layout: Layout, values: Array) -> Update:
        update = {"records": np.array([float(len(values))])}
        if self.scale == "pooled":
            u = np.ascontiguousarray(values[:, : layout.scaled].T)  # a row is summed in pairs
            if layout.intercept == "modelled":
                update["sums"] = u.sum(axis=1)
            elif len(values):
                u = u - u.mean(axis=1, keepdims=True)
            update["squares"] = np.sum(u * u, axis=1)
        return update

    def _scaled(self, state: State, total: Update) -> State:
        records = records_in(total)
        state = {**state, "records": records}
        if self.scale == "pooled":
            mean = total["sums"] / records if "sums" in total else np.zeros(len(total["squares"]))
            variance = total["squares"] / records - mean**2
            variance[variance <= _ROUNDING * mean**2] = 0
            centre, scale = state["centre"].copy(), state["scale"].copy()
            many = len(variance)
            scale[:many] = 1 / deviations(variance, _LEAST_VARIANCE, state["names"])
            centre[:many] = mean
            state |= {"centre": centre, "scale": scale}
        return {**state, "status": NOISE if self._asks_noise else ROUNDS}

    def _check_units(self, layout: Layout, facts: State) -> None:
        centre, scale = layout.own_units
        free = layout.scaled if self.scale == "pooled" else 0
        if not (
            np.array_equal(facts["centre"][free:], centre[free:])
            and np.array_equal(facts["scale"][free:], scale[free:])
        ):
            raise PeerError("message", "the coordinator's units are not the columns' own")

    def _noise_of(self, total: Update) -> float:
        freedom = float(total["freedom"][0])
        if freedom < 1:
            raise UsageError(
                "analysis",
                "no site has more records than coefficients, so that none tells the noise",
                "Set method.noise_sd, or take fewer predictors.",
            )
        return max(float(total["residual"][0]) / freedom, _LEAST_NOISE)

    def _noise_here(
        self, site: Site, news: Mapping[str, Array], layout: Layout, training: Array, facts: State
    ) -> float:
        """Return the site's noise variance, in the units analysed."""
        pooled = float(news["noise"][0])
        if not self.needs_noise:
            return pooled
        if pooled <= 0:
            raise PeerError("message", "the coordinator's noise is not above 0")
        if self.variance == "pooled" or self.noise_sd is not None or not site.left:
            return pooled
        wrong = site.errors(site.separate, layout, training, facts["centre"], facts["scale"])
        return float((wrong @ wrong + 4 * pooled) / (site.left + 4))

    def _finish_spec(self, layout: Layout, public: Public) -> Spec:
        rows, models = float(public.max_rows), (len(self.models),)
        squares = rows * _MOST_ERROR**2
        spec = [
            Field("coefficients", (layout.d,), _MOST_ERROR, BITS, Kind.BOUNDED),
            Field("squares", (layout.d,), _MOST_ERROR**2, BITS, Kind.WEIGHT),
            Field("training", models, squares, BITS, Kind.WEIGHT),
        ]
        if self.holdout:
            spec += [
                Field("held", (2,), rows, 0, Kind.COUNT),
                Field("held_squares", models, squares, BITS, Kind.WEIGHT),
                Field("held_rmse", models, _MOST_ERROR, BITS, Kind.WEIGHT),
            ]
        return (*spec, *self.last_fields(public))

    def _finished(
        self, site: Site, own: State, now: Round, held: Array
    ) -> tuple[Update, dict[str, Any]]:
        """Return a site's part of the last sums, and its errors for its own eyes."""
        theta, fitted = own["theta"], self.fitted(site, own)
        within_range({"coefficients": theta}, _MOST_ERROR)  # clipped, they would be a wrong mean
        unit = float(now.scale[0])  # errors are summed in half widths of the outcome's bounds

        def squared(values: Array) -> Array:
            wrong = [
                site.errors(each, now.layout, values, now.centre, now.scale) / unit
                for each in fitted
            ]
            return np.array([float(w @ w) for w in wrong])

        update = {
            "coefficients": theta,
            "squares": theta**2,
            **self.last_parts(own),
            "training": squared(now.values),
        }
        errors: dict[str, Any] = {"training": update["training"], "here": site.here}
        if self.holdout:
            many = len(held)
            update["held"] = np.array([float(many), float(many > 0)])
            update["held_squares"] = squared(held)
            update["held_rmse"] = np.sqrt(update["held_squares"] / max(many, 1))
            errors |= {"held": update["held_squares"], "held_here": many}
        return update, errors


def within_range(update: Update, most: float = MOST) -> Update:
    """Return a contribution as it is. Raises `DataError` where it left its range."""
    for values in update.values():
        if not np.all(np.abs(values) <= most):
            raise DataError(
                "rounds",
                "this site's coefficients have left the range that can be sent: the method "
                "diverges, or its units or noise are extreme",
                "Take a smaller method.step, method.shrink = 'implicit', or method.scale = "
                "'pooled'.",
            )
    return update
