"""Regression under noise: one step from a first estimate, with intervals.

A run has one sum of each kind (`secagg.models.one_step.releases`), each with noise of its own:

    centres        the columns' means, relative to public guesses                  8 % of the budget
    moments        second moments, which give least squares b0                    28 %
    scores         derivatives of the objective at b0, for one step from it       64 %

With a 0/1 outcome, there are two sums of scores (28 and 50 %, centres 6, moments 16). The noise of
moments grows with the outcome's size and with the coefficients; that of scores with the residuals
and with the error of b0. `secagg.models.one_step.estimate` has the estimate and its covariance.

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
spreads wrong by a factor of 2          more noise or more shortened records: docs/privacy-cost.md
======================================  ============================================================

Not protected: the estimate is that of weighted records. Where effects are not linear, or errors are
skewed and far from the middle, it differs from that of least squares (the intervals are for what it
estimates with all records and no noise).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    ANY_MESSAGE,
    NO_WINDOWS,
    Body,
    ChosenWeights,
    Disclosure,
    DisclosureKind,
    Family,
    Field,
    Kind,
    MethodFacts,
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
from secagg.contracts.noise import Placement, Placements
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.errors import JobError, PeerError
from secagg.models.common.coefficient_table import (
    INTERCEPT,
    critical_value,
    plain_terms,
    tested_terms,
)
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.common.site_confounding import POOLED_NOISED_NOTE, POOLED_ROUNDS_NOTE
from secagg.models.common.variables import choose, outcome_index
from secagg.models.glm.logistic import BINOMIAL
from secagg.models.glm.newton import newton_direction, units_matrix
from secagg.models.one_step.estimate import (
    Clips,
    Estimate,
    Scores,
    binary_clip,
    centres_map,
    found_centres,
    least_squares,
    log_odds,
    moments_map,
    standardising,
    step,
    transform,
)
from secagg.models.one_step.releases import (
    centres,
    centres_sensitivity,
    moments,
    moments_sensitivity,
    scores,
    scores_sensitivity,
    scores_weights,
    square,
)

CENTRES, MOMENTS, FIRST_SCORES, SCORES = "centres", "moments", "first_scores", "scores"
_BUDGETS: Final[Mapping[str, Mapping[str, float]]] = {
    "gaussian": {CENTRES: 0.08, MOMENTS: 0.28, SCORES: 0.64},
    "binomial": {CENTRES: 0.06, MOMENTS: 0.16, FIRST_SCORES: 0.28, SCORES: 0.50},
}
_GRID_BITS = 16
_LEAST_OF_LEVEL = 0.3
"""Least spread of an indicator: with that of a rare level, records with it would hardly count."""
_LARGEST = 1e6  # of an entry of a message
_BIAS = {"gaussian": {SCORES: 0.03}, "binomial": {FIRST_SCORES: 0.3, SCORES: 0.1}}
"""d of `estimate.step`, for the estimate before these sums."""
_FAMILIES = {each.name: each for each in (GAUSSIAN, BINOMIAL)}


@dataclass(frozen=True)
class OneStep:
    """Linear or logistic regression under noise, with intervals."""

    outcome: str
    """The outcome: a column of numbers or a binary column for `"gaussian"`, a binary column for
    `"binomial"`."""
    predictors: tuple[str, ...]
    """The predictors: at least one column. An intercept is added."""
    family: Literal["gaussian", "binomial"] = "gaussian"
    """Linear (`"gaussian"`) or logistic regression (`"binomial"`)."""
    level: float = 0.95
    """Level of the intervals, between 0 and 1."""

    name: ClassVar[str] = "one_step"
    placements: ClassVar[Placements] = Placements(
        (Placement.ROUND,), "Three or four sums have noise of their own."
    )
    title: ClassVar[str] = "Regression by a noisy step"
    disclosure: ClassVar[Disclosure] = Disclosure(
        DisclosureKind.POOLED,
        "Three or four sums of single records' weighted values, products and residuals, at a "
        "matrix and coefficients that come from the sums before. They do not show how records are "
        "split over sites.",
        ANY_MESSAGE,
        "Such a coordinator can send other matrices and coefficients, and so make the result "
        "wrong. But every answer contains noise, and the bound on one record's part does not "
        "depend on the message.",
    )

    @property
    def _family(self) -> Family:
        return _FAMILIES[self.family]

    @property
    def facts(self) -> MethodFacts:
        return MethodFacts(
            derivation=type(self).__module__,
            weights=ChosenWeights(
                "the coordinator's matrix decides how much each record is shortened"
            ),
            reads=SingleRecords(reason="weighs single records", repeatable=True),
            windows=NO_WINDOWS,
            named_code=(),
            network=False,
            regression=Regression(self._family, frozenset((self.outcome, *self.predictors))),
            edge_rule=None,
        )

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        return (ResultTable(self.title, TableKind.REGRESSION),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        critical_value(self.level)
        if public.clip is not None:
            _check_norm(public)
        p = len(self._names(public))
        rows, bits = float(public.max_rows), 2 * _grid_bits(public)

        def field(name: str, size: int) -> Field:
            return Field(name, (size,), rows, bits, Kind.BOUNDED)

        triangle = p * (p + 1) // 2
        parts = (field("g", p), field("J", triangle), field("B", triangle))
        of_scores = scores_sensitivity(p, binary=self._binary)
        declared = {
            CENTRES: ((field("centres", p + 1),), centres_sensitivity(), "means of the columns"),
            MOMENTS: (
                (field("moments", (p + 1) * (p + 2) // 2),), moments_sensitivity(p + 1),
                "means of products of two columns",
            ),
            FIRST_SCORES: (parts, of_scores, "derivatives at the first estimate"),
            SCORES: (parts, of_scores, "derivatives at the estimate so far"),
        }  # fmt: skip
        noised = "noised: " * (public.clip is not None)
        return tuple(
            Stage(
                name, declared[name][0], 1, f"{noised}{declared[name][2]}, of weighted records",
                declared[name][1] if public.clip is not None else None, ends_early=False,
                budget=budget,
            )
            for name, budget in _BUDGETS[self.family].items()
        )  # fmt: skip

    def initial_state(self, public: PublicFacts) -> State:
        chosen = [public.variables[i] for i in self._columns(public)]
        spread = [
            max(v.typical_spread, _LEAST_OF_LEVEL / v.half_range if v.indicator else 0.0)
            for v in chosen[:-1]
        ]
        spread.append(chosen[-1].typical_spread)
        sds = {name: _deviations(public, name) for name in _BUDGETS[self.family]}
        outcome = chosen[-1]
        return {
            "stage": CENTRES,
            "names": list(self._names(public)),
            "centre": np.array([v.typical_centre for v in chosen]),
            "spread": np.array(spread),
            "sds": sds,
            "zero": outcome.midpoint,
            "half": outcome.half_range,
        }

    def next_request(self, state: State) -> tuple[str, Body] | None:
        stage = state["stage"]
        if stage == "":
            return None
        if stage == CENTRES:
            return stage, {"T": centres_map(state["centre"], state["spread"])}
        if stage == MOMENTS:
            reach = Clips(state["record"], 0.0).moments
            return stage, {"T": moments_map(state["centre"], state["spread"], reach)}
        Z = standardising(state["centre"][:-1], state["spread"][:-1])
        scale = 1.0 if self._binary else float(state["spread"][-1])
        b = scale * (Z.T @ state["b"])
        if not self._binary:
            b[0] += state["centre"][-1]
        T = np.ascontiguousarray(transform(state["S"], state["record"]) @ Z)
        return stage, {"T": T, "b": b, "h": state["h"] * scale}

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
        p, bits = len(columns), _grid_bits(public)
        values = rows.values[:, columns]
        if stage in (CENTRES, MOMENTS):
            T = _array(message, "T", (p + 1, p + 1))
            if stage == CENTRES:
                return {"centres": centres(values, T, 2 * bits)}, memory
            return {"moments": moments(values, T, bits)}, memory
        T, b = _array(message, "T", (p, p)), _array(message, "b", (p,))
        h, y = message.get("h"), values[:, -1]
        if self._binary:
            h, y = None, BINOMIAL.outcomes(y, public.variables[columns[-1]])
        elif not (isinstance(h, float) and 1 / _LARGEST < h < _LARGEST):
            raise PeerError(self.name, "the coordinator's limit of residuals is out of range")
        return {**scores(values[:, :-1], y, T, b, h, bits)}, memory

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        stage, size = state["stage"], len(state["centre"])
        sd = state["sds"][stage][sites]
        following = [*_BUDGETS[self.family], ""]
        state = {**state, "sites": sites, "stage": following[following.index(stage) + 1]}
        roots = np.sqrt(scores_weights(binary=self._binary))
        of_g = float(roots[0]) * state["sds"][state["stage"] or stage][sites]
        if stage == CENTRES:
            of_g = float(roots[0]) * state["sds"][SCORES][sites]
            centre, records = found_centres(total["centres"], sd, state["centre"], state["spread"])
            if self._binary:
                centre[-1] = state["centre"][-1]
            limits = Clips.of(size, records, of_g)
            return {**state, "centre": centre, "records": records, "record": limits.record,
                    "residual": limits.residual}  # fmt: skip
        if stage == MOMENTS:
            reach = Clips(state["record"], 0.0).moments
            if not sd:
                S = square(total["moments"], size + 1)
                newton_direction(S[:-1, -1], S[:-1, :-1], state["names"])  # or an error names them
            first = least_squares(total["moments"], sd, size + 1, reach)
            found, state["S"] = first.estimate, first.S
            state["h"] = state["residual"] * first.residual
            state["residual_variance"] = first.residual**2
            if self._binary:
                unit = state["half"] * float(state["spread"][-1])
                zero = state["zero"] + state["half"] * float(state["centre"][-1])
                found, state["h"] = log_odds(first, zero, unit), 1.0
                state["variance"] = (unit * first.residual) ** 2
                state["residual_variance"] = 1.0
        else:
            found_scores = Scores(
                dict(total), (sd * roots[0], sd * roots[1], sd * roots[2]),
                transform(state["S"], state["record"]), state["h"], state["residual_variance"],
            )  # fmt: skip
            before = Estimate(state["b"], np.zeros((size, size)), state["noise"])
            made, joint = step(found_scores, before, _BIAS[self.family][stage], state["S"])
            found = made if state["stage"] else joint
        if self._binary:
            state["record"] = binary_clip(size, state["records"], of_g, state["variance"])
        return {**state, "b": found.b, "noise": found.noise, "sampling": found.sampling}

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return coefficients with intervals, in the columns' own units."""
        chosen = [public.variables[i] for i in self._columns(public)]
        middle = np.array([v.midpoint + v.half_range * c
                           for v, c in zip(chosen, state["centre"], strict=True)])  # fmt: skip
        unit = np.array([v.half_range for v in chosen]) * state["spread"]
        scale = 1.0 if self._binary else float(unit[-1])
        U = scale * units_matrix(middle[:-1], unit[:-1])
        estimate = U @ state["b"]
        if not self._binary:
            estimate[0] += middle[-1]
        covariance = U @ (state["sampling"] + state["noise"]) @ U.T
        errors = np.sqrt(np.diagonal(covariance))
        alone = np.sqrt(np.diagonal(U @ state["sampling"] @ U.T))
        terms = tested_terms(self._names(public), estimate, errors, self.level)
        widened = float(np.median((errors / alone)[1:]))
        summary = {
            "method": self.name,
            "family": self.family,
            "outcome": chosen[-1].name,
            "level": self.level,
            "n": max(1, round(counted.records)),
            "rounds": len(_BUDGETS[self.family]),
            "widened": widened,
            "terms": plain_terms(terms, self._family.effect),
            "notes": self._notes(state, public, widened),
        }
        arrays = {"coefficients": estimate, "covariance": covariance,
                  "noise_covariance": U @ state["noise"] @ U.T}  # fmt: skip
        return Result(summary, arrays)

    def _notes(self, state: State, public: PublicFacts, widened: float) -> list[str]:
        notes = []
        if public.clip is None:
            notes.append(
                "Without [privacy] this is a robust regression. Use moments or logistic: they "
                "release less."
            )
        else:
            notes.append(
                "Intervals cover the noise of differential privacy as well as sampling; they are "
                f"{widened:.1f} times as long as without the noise."
            )
        notes.append(
            "Records far from the middle of the columns count less, and large residuals are "
            "limited. Where effects are linear, this does not move the slopes."
        )
        if effect := self._family.effect:
            notes.append(f"Estimates are log {effect} (the intercept) and log {effect} ratios.")
        if state["sites"] > 1:
            notes.append(POOLED_ROUNDS_NOTE if public.clip is None else POOLED_NOISED_NOTE)
        return notes

    @property
    def _binary(self) -> bool:
        return self.family == "binomial"

    def _columns(self, public: PublicFacts) -> NDArray[np.int64]:
        """Return the positions of the predictors, and of the outcome at the end."""
        if self._binary:
            outcome = outcome_index(public, self.outcome)
        else:
            matches = choose(public, [self.outcome], "method.outcome")
            if len(matches) != 1:
                what = f"{self.outcome!r} has several indicators"
                raise JobError("method.outcome", what, "Name one of them as `column=level`.")
            outcome = int(matches[0])
        of_x = choose(public, self.predictors, "method.predictors", other_than=self.outcome)
        return np.array([*of_x, outcome], dtype=np.int64)

    def _names(self, public: PublicFacts) -> tuple[str, ...]:
        return (INTERCEPT, *(public.variables[i].name for i in self._columns(public)[:-1]))


def _grid_bits(public: PublicFacts) -> int:
    return _GRID_BITS if public.clip is None else public.clip.grid_bits


def _deviations(public: PublicFacts, stage: str) -> list[float]:
    """Return by number of sites the standard deviation of a number of weight 1 in a sum."""
    noise = public.noise.get(stage)
    if noise is None:
        return [0.0] * (1 + len(public.sites))
    least = noise.colluding + 1
    counts = (max(n, least) for n in range(1 + len(public.sites)))
    return [math.sqrt(noise.sum_variance(n, noise.site_variance(n))) for n in counts]


def _check_norm(public: PublicFacts) -> None:
    """Refuse a limit of records' norms, which would shorten records without less noise."""
    assert public.clip is not None
    if public.clip.squared_norm < sum(v.max_abs**2 for v in public.variables) * (1 - 1e-12):
        what = "has no use here: the method weighs records itself, by typical ranges"
        raise JobError("privacy.record_norm", what, "Remove it.")


def _array(message: Body, name: str, shape: tuple[int, ...]) -> Array:
    found = message.get(name)
    if not (isinstance(found, np.ndarray) and found.dtype == np.float64 and found.shape == shape):
        raise PeerError("one_step", f"the coordinator's {name} has the wrong shape")
    if not np.all(np.abs(found) <= _LARGEST):  # true for NaN
        raise PeerError("one_step", f"the coordinator's {name} is out of range")
    return found
