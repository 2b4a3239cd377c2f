"""Regression under noise: one step from a first estimate, with intervals.

A run has one sum of each kind (`secagg.models.one_step.releases`), each with noise of its own:

    centres        the columns' means, relative to public guesses                  7 % of the budget
    products       second moments, which give least squares b0                    26 %
    lengths        numbers of records by the length of their derivatives           9 %
    scores         derivatives of the objective at b0, for one step from it       58 %

Other families have two sums of scores, before and after the lengths (6, 18, 22, 8 and 46 %). The
noise of moments grows with the outcome's size and with the coefficients; that of scores with the
residuals and with the error of b0. `secagg.models.one_step.estimate` has the estimate and its
covariance, `limits` says how far a record may reach, `starts` where other families begin.

Guarantees: a record's part of every sum is bounded whatever the coordinator sends, so all sums
together have the guarantee of the job, and everything else is computed from them.

Without noise the sums are exact, and the estimate is a robust regression. It is then of no use, and
tells more than `moments` and `logistic`: the matrix and the coefficients that the coordinator sends
decide how much each record weighs. Sites with a policy refuse this unless it names the method.

What the transcript determines without noise: each sum at a matrix, coefficients and a limit of the
coordinator's choice. By choosing them it can learn any weighted sum of the records, and so, in many
runs, single records.

======================================  ============================================================
case                                    result
======================================  ============================================================
a message with other shapes, not        `PeerError`, nothing is sent
finite, or too large
a site without records                  zeros, and noise
more noise than information             the estimate stays near the first one; wide intervals
wrong guesses of centres                corrected by the first sum
guesses of spreads that are far off      more noise or more shortened records, and a caution
======================================  ============================================================

Not protected: the influence of each record is limited. Where few records far from the middle decide
the slope of least squares, or errors are skewed, the estimate differs from that of least squares
(the intervals are for what it estimates with all records and no noise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from secagg.contracts import (
    ANY_MESSAGE,
    NO_WINDOWS,
    AskedRegression,
    Body,
    ChosenWeights,
    Disclosure,
    DisclosureKind,
    Family,
    Field,
    Kind,
    LocalTraining,
    MethodFacts,
    Outcome,
    PublicFacts,
    RecordCount,
    Regression,
    Result,
    ResultTable,
    SingleRecords,
    SiteRecords,
    Stage,
    State,
    TableKind,
    Update,
)
from secagg.contracts.facts import IntegerNoise
from secagg.contracts.noise import Placement, Placements
from secagg.core.randomness import RandomBytes
from secagg.models.common.checks import no_record_norm
from secagg.models.common.coefficient_table import (
    WITHIN_NOTE,
    critical_value,
    plain_terms,
    tested_terms,
)
from secagg.models.common.site_confounding import (
    HIDDEN,
    POOLED_COUNTS_NOTE,
    POOLED_NOISED_NOTE,
    POOLED_ROUNDS_NOTE,
    without_hidden,
)
from secagg.models.glm.newton import units_matrix
from secagg.models.one_step.columns import (
    CENTRES,
    FAMILIES,
    FIRST_SCORES,
    LENGTHS,
    MOMENTS,
    SCORES,
    Columns,
)
from secagg.models.one_step.coordinator import (
    first_state,
    following,
    next_message,
    predictor_variance,
)
from secagg.models.one_step.releases import (
    LENGTHS_END,
    centres_sensitivity,
    lengths_sensitivity,
    moments_sensitivity,
    scores_sensitivity,
)
from secagg.models.one_step.site import answer, centred

_LEAST_WEIGHT = 0.75  # mean weight of a record in the first sum; with right guesses about 0.95
_STRONG = 2.5  # standard deviation of the log odds


@dataclass(frozen=True)
class OneStep:
    """Linear, logistic or Poisson regression under noise, with intervals."""

    outcome: str
    """The outcome: a column of numbers or a binary column for `"gaussian"`, a binary column for
    `"binomial"`."""
    predictors: tuple[str, ...]
    """The predictors: at least one column. An intercept is added."""
    family: Literal["gaussian", "binomial", "poisson"] = "gaussian"
    """Linear (`"gaussian"`), logistic (`"binomial"`) or Poisson regression of a count
    (`"poisson"`)."""
    centre: Literal["pooled", "site"] = "pooled"
    """Which means are subtracted: those of all records together (`"pooled"`), or at each site its
    own (`"site"`). Each site then has an intercept of its own, so differences in level between
    sites do not look like effects."""
    exposure: str | None = None
    """With `"poisson"`: a continuous column, with `low` above 0, such as person-years. Its
    logarithm is added to the linear predictor. Results are then rates per unit of exposure."""
    level: float = 0.95
    """Level of the intervals, between 0 and 1."""

    name: ClassVar[str] = "one_step"
    placements: ClassVar[Placements] = Placements(
        (Placement.ROUND,), "Four or five sums have noise of their own."
    )
    title: ClassVar[str] = "Bounded-influence regression"

    @property
    def disclosure(self) -> Disclosure:
        own = self.centre == "site"
        split = "They do not show how records are split over sites."
        if own:
            split = (
                "Records are taken relative to their site's means. Their first sum shows the means "
                "of all records; those of a site are in no other message, but without noise they "
                "have an effect on the later sums."
            )
        return Disclosure(
            DisclosureKind.SITES if own else DisclosureKind.POOLED,
            "Sums over all records: of the columns, of products of two columns, numbers of records "
            "by their influence on the slopes, and derivatives by the slopes. Records far from the "
            f"middle weigh less, by coefficients that come from the sums before. {split}",
            ANY_MESSAGE,
            "Such a coordinator can send other matrices and coefficients, and so make the result "
            "wrong. But every answer contains noise, and the bound on one record's part does not "
            "depend on the message.",
        )

    @property
    def facts(self) -> MethodFacts:
        exposure = () if self.exposure is None else (self.exposure,)
        columns = (self.outcome, *self.predictors, *exposure)
        return MethodFacts(
            derivation=type(self).__module__,
            weights=ChosenWeights(
                "the coordinator's matrix decides how much each record is shortened"
            ),
            reads=SingleRecords(reason="weighs single records", repeatable=True),
            windows=NO_WINDOWS,
            named_code=(),
            network=False,
            regression=Regression(self._family, frozenset(columns), self.outcome),
            edge_rule=None,
            simulated=True,
            asked=(
                AskedRegression(
                    self.outcome,
                    tuple(self.predictors),
                    self._family,
                    self.centre == "site",
                    self.exposure,
                ),
            ),
            train=self._train if self.centre == "site" else None,
        )

    @classmethod
    def answering(cls, *asked: AskedRegression) -> tuple[dict[str, Any], ...]:
        """Return settings that answer these regressions in one job; () if there are none."""
        family = asked[0].family
        if len(asked) > 1 or family.name not in FAMILIES or family.outcome is Outcome.COUNT:
            return ()  # of counts, the exposure is not known
        return (asked[0].settings() | ({"centre": "site"} if asked[0].within else {}),)

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title, TableKind.REGRESSION),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        critical_value(self.level)
        columns = self._columns(public)
        noised = public.clip is not None
        if noised:
            no_record_norm(public, "the method weighs records itself, by typical ranges")
        p, rows, bits = columns.p, float(public.max_rows), 2 * columns.grid_bits

        def field(name: str, size: int) -> Field:
            return Field(name, (size,), rows, bits, Kind.BOUNDED)

        triangle = p * (p + 1) // 2
        parts = (field("g", p), field("J", triangle), field("B", triangle))
        of_scores = scores_sensitivity(p)
        declared = {
            CENTRES: ((field("centres", p + 1),), centres_sensitivity(), "means of the columns"),
            MOMENTS: (
                (field("products", (p + 1) * (p + 2) // 2),), moments_sensitivity(p + 1),
                "means of products of two columns",
            ),
            LENGTHS: (
                (field("lengths", 2 * LENGTHS_END + 2),), lengths_sensitivity(),
                "numbers of records by the length of their derivatives",
            ),
            FIRST_SCORES: (parts, of_scores, "derivatives at the first estimate"),
            SCORES: (parts, of_scores, "derivatives at the estimate so far"),
        }  # fmt: skip
        stages = []
        for name, budget in columns.budgets.items():
            spec, moved, what = declared[name]
            sees = f"{'noised: ' * noised}{what}, of weighted records"
            if name == CENTRES and self.centre == "site":
                sees += ", and how well sites know theirs"
                spec = (*spec, field("doubt", triangle), Field(HIDDEN, (1,), 1.0, 0, Kind.COUNT))
            stage = Stage(name, spec, 1, sees, ends_early=False, budget=budget)
            if noised and name == CENTRES and self.centre == "site":
                stage = replace(stage, training=LocalTraining(1, p + 1, moved, bits))
            elif noised:
                stage = replace(stage, sensitivity=moved)
            stages.append(stage)
        return tuple(stages)

    def initial_state(self, public: PublicFacts) -> State:
        return first_state(self._columns(public), public)

    def next_request(self, state: State) -> tuple[str, Body] | None:
        return next_message(state)

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        columns = self._columns(public)
        if stage == CENTRES and self.centre == "site":
            return centred(columns, rows, None, 0.0)
        return answer(columns, stage, rows, message, memory), memory

    def _train(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
        noise: IntegerNoise,
    ) -> tuple[Update, State]:
        """Find the site's own means, with noise."""
        variance = public.noise[stage].variance * 4.0 ** -public.noise[stage].fraction_bits
        return centred(self._columns(public), rows, noise, variance)

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        return following(state, total, sites)

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return coefficients with intervals, in the columns' own units."""
        columns = self._columns(public)
        middle, unit = columns.unscaled(state["centre"]), columns.half_ranges * state["spread"]
        linear = columns.family.linear
        scale = float(unit[-1]) if linear else 1.0
        U = scale * units_matrix(middle[:-1], unit[:-1])
        estimate = U @ state["b"]
        estimate[0] += middle[-1] if linear else -columns.log_exposure
        covariance = U @ (state["sampling"] + state["noise"]) @ U.T
        errors = np.sqrt(np.diagonal(covariance))
        alone = np.sqrt(np.diagonal(U @ state["sampling"] @ U.T))
        first = 1 if self.centre == "site" else 0  # each site has an intercept of its own
        terms = tested_terms(columns.names[first:], estimate[first:], errors[first:], self.level)
        widened = float(np.median((errors / alone)[1:]))
        summary = {
            "method": self.name,
            "family": self.family,
            "centre": self.centre,
            "outcome": columns.variables[-1].name,
            "level": self.level,
            "n": max(1, round(counted.records)),
            "rounds": len(columns.budgets),
            "widened": widened,
            "terms": plain_terms(terms, columns.family.effect),
            **self._caution(state, columns, counted),
            "notes": self._notes(state, public, widened),
        }
        arrays = {
            "coefficients": estimate[first:],
            "covariance": covariance[first:, first:],
            "noise_covariance": (U @ state["noise"] @ U.T)[first:, first:],
        }
        return Result(summary, arrays)

    def _caution(self, state: State, columns: Columns, counted: RecordCount) -> dict[str, str]:
        found, own = [], columns.own_centres
        if hidden := without_hidden(state.get(HIDDEN, 0), state["sites"]):
            found.append(hidden)
        elif state["records"] < _LEAST_WEIGHT * counted.records - 2 * math.sqrt(counted.variance):
            found.append(
                "most records lie far outside the typical ranges, so the slopes may be wrong: "
                "correct `typical`, above all of the outcome"
                + (", or leave out sites whose levels are far from the others'" * own)
            )
        if state.get("rare"):
            found.append(
                f"{columns.variables[-1].name} hardly varies: the noise hides how many records "
                "have the rarer value, if any. Do not use the slopes without knowing that there "
                "are enough"
            )
        if names := [columns.names[1 + j] for j in state["narrow"]]:
            found.append(
                f"{', '.join(names)} var{'ies' if len(names) == 1 else 'y'} less than half of what "
                "the typical range says, so the slopes may be wrong: narrow `typical`"
            )
        if columns.binary and predictor_variance(state) > _STRONG**2:
            found.append(
                "effects are strong: two steps leave log odds too small, by a few per cent, or by "
                "far if the predictors nearly separate the outcome. Intervals do not cover this"
            )
        return {"caution": "; ".join(found)} if found else {}

    def _notes(self, state: State, public: PublicFacts, widened: float) -> list[str]:
        notes = [
            "Without [privacy] this is a robust regression. Use moments or logistic: they release "
            "less."
            if public.clip is None
            else "Intervals cover the noise of differential privacy as well as sampling; they are "
            f"{widened:.1f} times as long as with the same limits and no noise.",
            "The influence of each record is limited, so intervals are longer than those of the "
            "usual regression, at any epsilon. This does not move the slopes if effects are "
            "linear and the errors' distribution is symmetric, or does not depend on the "
            "predictors. If few records decide a slope, it is that of the other records.",
        ]
        if (f := state.get("longer", 1.0)) > 1:
            notes.append(
                "Some records are far from what the other records predict. So limits, and the "
                f"noise with them, are {f:.1f} times as large as for normal records."
            )
        if effect := self._family.effect:
            notes.append(f"Estimates are log {effect} (the intercept) and log {effect} ratios.")
        if self.centre == "site":
            notes.append(WITHIN_NOTE)
        elif state["sites"] > 1:
            noised = POOLED_NOISED_NOTE
            if self._family.outcome is Outcome.COUNT:
                noised = POOLED_COUNTS_NOTE
            notes.append(POOLED_ROUNDS_NOTE if public.clip is None else noised)
        return notes

    @property
    def _family(self) -> Family:
        return FAMILIES[self.family]

    def _columns(self, public: PublicFacts) -> Columns:
        own = self.centre == "site"
        return Columns.of(
            self.outcome, self.predictors, self.family, public,
            own_centres=own, exposure=self.exposure,
        )  # fmt: skip
