"""Federated linear and logistic regression in gradient rounds, optionally with noise in each.

This is FedSGD with full participation (McMahan et al. 2017, section 2) and all records in every
round. The coordinator sends coefficients. The sites return the sums of their records' gradients and
sizes (equations 1 and 2 of `secagg.models.glm.clipped_gradients`). The coordinator makes a step of
Nesterov's accelerated method (1983) and resets the momentum whenever it points against the gradient
(O'Donoghue & Candes 2015, section 3.2):

    b_t = v_t + g(v_t) / L_t,   L_t >= the largest eigenvalue of the objective's Hessian      (1)
    v_t+1 = b_t + m_t (b_t - b_t-1),   m_t = (a_t - 1) / a_t+1,
            a_t+1 = (1 + root(1 + 4 a_t^2)) / 2                                               (2)

L_t is c times the sum of the records' squared lengths, with c the largest Fisher weight: 1 for
linear and 1/4 for logistic regression. This is at least as large as any eigenvalue of the Hessian.
A step that is too short only costs more rounds. With noise, L_t is the mean of the noisy sums over
all rounds so far, plus two standard deviations of this mean.

Without noise, the estimate is the last b. With noise, it is the mean of the points v in the last
half of the rounds (Polyak & Juditsky 1992). The noise partly cancels in this mean. While the noise
of a round is small beside the gradients, the remaining error hardly depends on the number of rounds
that share the budget. At a small epsilon it is not: with 853 records and epsilon 1, the error of a
logistic regression is 0.6 after 20 rounds and 3.0 after 180 (docs/studies/four-hospitals.md).

For linear regression, method `moments` needs only one release. This method is for noise in every
round, and for logistic regression, which no fixed set of moments determines.

What the transcript determines: the sites keep no state, so every sum is a function of the pooled
records and of coefficients that the coordinator chose. It reveals nothing about how records are
split over sites, but a lot about the pooled records: without noise, p + 1 gradients of a linear
regression give all cross products with the predictors. Noise in every round protects all of this,
because steps, momentum, resets and averages are computed from the noisy sums alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    ANY_MESSAGE,
    NO_WINDOWS,
    AskedRegression,
    Body,
    Disclosure,
    DisclosureKind,
    Family,
    Field,
    Kind,
    MethodFacts,
    MomentsOnly,
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
from secagg.core.randomness import RandomBytes
from secagg.errors import JobError, PeerError
from secagg.models.common.clipped_sums import exact_bits, gradient_sensitivity
from secagg.models.common.coefficient_table import INTERCEPT, Term, plain_terms
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.common.site_confounding import POOLED_NOISED_NOTE, POOLED_ROUNDS_NOTE
from secagg.models.common.variables import choose, outcome_index
from secagg.models.glm.clipped_gradients import residuals, site_sums
from secagg.models.glm.logistic import BINOMIAL
from secagg.models.glm.newton import check_predictors, units_matrix

STAGE = "gradient"
_FRACTION_BITS = 40  # without noise; the rounding, 2^-41 at each site, is far below the tolerance
_MIN_FRACTION_BITS = 12
_MAX_BETA_NORM = 1000.0  # limit of sum |beta_j|, above any estimate on scaled columns
_MAX_ROUNDS = 10_000
_FAMILIES = {each.name: each for each in (GAUSSIAN, BINOMIAL)}
"""Those with a largest Fisher weight, and so with a step that is safe for all records."""
_TOLERANCE = 1e-10  # limit of the gradient divided by the sum of squared lengths


@dataclass(frozen=True)
class Gradient:
    """Linear or logistic regression by gradient rounds."""

    outcome: str
    """The outcome: a binary column for `"binomial"`, a continuous or binary column for
    `"gaussian"`."""
    predictors: tuple[str, ...]
    """The predictors: at least one column. An intercept is added."""
    family: Literal["gaussian", "binomial"]
    """Least squares (`"gaussian"`) or logistic regression (`"binomial"`)."""
    rounds: int = 100
    """Number of rounds. With noise, all of them are run, and the budget is divided among them.
    Without noise, it is the largest number. The estimate is the average over the last half of the
    rounds. With too few rounds it is far from the optimum. More rounds than needed cost time; at a
    small epsilon they also cost accuracy. `secagg plan` says how many are enough without
    noise."""
    clip: float | None = None
    """With differential privacy: the largest L2 norm of one record's gradient, in variables scaled
    to [-1, 1]. A longer gradient is scaled down to it. The noise is proportional to it. If it is
    not set: for `"binomial"`, a value that shortens no gradient; for `"gaussian"`, half of such a
    value, which shortens no gradient whose residual is below a quarter of the outcome's range."""

    name: ClassVar[str] = "gradient"
    placements: ClassVar[Placements] = Placements(
        (Placement.ROUND,), "Gradients are clipped in every round."
    )
    title: ClassVar[str] = "Regression by gradient rounds"
    disclosure: ClassVar[Disclosure] = Disclosure(
        DisclosureKind.POOLED,
        "The pooled gradient at the coefficients of every round, and the sum of the records' "
        "squared norms. Without noise, p rounds of a linear regression with p coefficients reveal "
        "the pooled cross products. The sums do not show how records are split over sites.",
        ANY_MESSAGE,
        "Such a coordinator can send other coefficients than the method's and so make the result "
        "wrong. But every answer contains noise, and the bound on one record's part does not "
        "depend on the message.",
    )

    @property
    def _family(self) -> Family:
        return _FAMILIES[self.family]

    @property
    def facts(self) -> MethodFacts:
        """One regression by sums over records, whose residuals depend on the coefficients sent."""
        return MethodFacts(
            derivation=type(self).__module__,
            weights=self.record_weights,
            weighted_columns=self._design,
            reads=MomentsOnly(noise_at_site=False)  # without noise, nothing is clipped
            if self._family.linear
            else SingleRecords(reason="sums gradients of single records", repeatable=True),
            windows=NO_WINDOWS,
            named_code=(),
            network=False,
            regression=Regression(
                self._family, frozenset((self.outcome, *self.predictors)), self.outcome
            ),
            edge_rule=None,
            asked=(AskedRegression(self.outcome, tuple(self.predictors), self._family),),
        )

    @classmethod
    def answering(cls, *asked: AskedRegression) -> tuple[dict[str, Any], ...]:
        """Return settings that answer these regressions in one job; () if there are none."""
        if len(asked) > 1 or asked[0].within or asked[0].family not in _FAMILIES.values():
            return ()
        return tuple({**asked[0].settings(), "rounds": rounds} for rounds in (20, 60))

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        """Return the layout of a regression."""
        return (ResultTable(self.title, TableKind.REGRESSION),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Declare the one kind of round: gradient and size at the given coefficients."""
        if self.rounds < 1:
            raise JobError("method.rounds", "must be at least 1")
        if self.rounds > _MAX_ROUNDS:
            raise JobError("method.rounds", f"must be at most {_MAX_ROUNDS}")
        if self.clip is not None and not (math.isfinite(self.clip) and self.clip > 0):
            raise JobError("method.clip", "must be positive and finite")
        if self.clip is not None and public.clip is None:
            what = "has no effect without differential privacy"
            raise JobError("method.clip", what, "Leave it out, or add [privacy] with a placement.")
        p, rows = len(self._names(public)), float(public.max_rows)
        _, clip = self._limits(public, p - 1)
        bits = _grid_bits(public, clip)
        largest = clip if bits is not None else 1.0
        if bits is None and self._family.linear:
            largest += _MAX_BETA_NORM + 1  # largest residual at coefficients that a site accepts
        if bits is not None and bits < _MIN_FRACTION_BITS:
            raise JobError(
                "sites.max_rows", "is too large for exact sums of clipped gradients", "Lower it."
            )
        step = _FRACTION_BITS if bits is None else bits
        spec = (
            Field("gradient", (p,), rows * largest, step, Kind.BOUNDED),
            Field("size", (1,), rows * clip / 4, step, Kind.WEIGHT),
        )
        if bits is None:
            sees = "pooled gradient at the coefficients it sent, summed squared length of records"
            return (Stage(STAGE, spec, self.rounds, sees),)
        noise = public.noise.get(STAGE)
        if noise is not None and noise.placement is not Placement.ROUND:
            raise JobError(
                "privacy.placement", "this method has several rounds", "Take placement 'round'."
            )
        sees = "noised: pooled clipped gradient at the coefficients it sent, summed squared length"
        return (Stage(STAGE, spec, self.rounds, sees, gradient_sensitivity(clip)),)

    def initial_state(self, public: PublicFacts) -> State:
        """Begin at zero."""
        p = len(self._names(public))
        square, clip = self._limits(public, p - 1)
        noise = public.noise.get(STAGE)
        # A sum over fewer sites has more noise (`Noise.site_variance`), so the minimum is the bound
        variance = (
            0.0
            if noise is None
            else noise.sum_variance(noise.min_sites, noise.site_variance(noise.min_sites))
        )
        return {
            "status": "running",
            "rounds": 0,
            "noised": noise is not None,
            "unit": 4 * square / clip,  # converts summed sizes to |z|^2
            "size_error": math.sqrt(variance),
            "sizes": 0.0,
            "momentum": 1.0,
            "beta": np.zeros(p),
            "point": np.zeros(p),
            "summed": np.zeros(p),
        }

    def next_request(self, state: State) -> tuple[str, Body] | None:
        """Request the gradient at the next point, until the search has ended."""
        return (STAGE, {"beta": state["point"]}) if state["status"] == "running" else None

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Compute this site's gradient and size."""
        beta = message.get("beta")
        chosen = self._predictors(public)
        if not (
            isinstance(beta, np.ndarray)
            and beta.dtype == np.float64
            and beta.shape == (len(chosen) + 1,)
        ):
            raise PeerError("gradient", "the coordinator's coefficients have the wrong shape")
        if not np.sum(np.abs(beta)) <= _MAX_BETA_NORM + 1:  # true for NaN
            raise PeerError("gradient", "the coordinator's coefficients are out of range")
        x, residual = self._residuals(rows, beta, public)
        if public.clip is None and not self._family.linear:  # with noise, nothing may depend on it
            check_predictors(beta[0] + x @ beta[1:])
        square, clip = self._limits(public, len(chosen))
        gradient, size = site_sums(x, residual, square, clip, _grid_bits(public, clip))
        return {"gradient": gradient, "size": np.array([size])}, memory

    def record_weights(
        self, rows: SiteRecords, message: Body, public: PublicFacts
    ) -> Sequence[NDArray[np.float64]]:
        """Return the records' weights in a gradient: |y - mu|.

        The residuals of a linear regression are linear in the records, so they weigh few records
        only if a combination of columns does, which has a rule of its own (`max_leverage`).
        """
        if self._family.linear:
            return ()
        return (np.abs(self._residuals(rows, message["beta"], public)[1]),)

    def _design(self, rows: SiteRecords, public: PublicFacts) -> NDArray[np.float64]:
        x = rows.values[:, self._predictors(public)]
        return np.column_stack([np.ones(len(x)), x])

    def _residuals(
        self, rows: SiteRecords, beta: NDArray[np.float64], public: PublicFacts
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        x, outcome = rows.values[:, self._predictors(public)], self._outcome(public)
        y = self._family.outcomes(rows.values[:, outcome], public.variables[outcome])
        return x, residuals(x, y, beta, self._family)

    @property
    def _largest_weight(self) -> float:
        fisher = self._family.fisher
        assert fisher is not None
        return fisher.largest

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        """Take one accelerated step. Without noise, check for convergence."""
        gradient, t = total["gradient"], state["rounds"] + 1
        sizes = state["sizes"] + float(total["size"][0])
        error = 2 * state["size_error"] / math.sqrt(t)
        length = max(sizes / t + error, error) * state["unit"]
        length = max(length, 1.0)  # one record has at least 1
        curvature = length * self._largest_weight
        beta = _shrunk_to_limit(state["point"] + gradient / curvature)
        change = beta - state["beta"]
        momentum = 1.0 if gradient @ change < 0 else state["momentum"]
        next_momentum = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point = _shrunk_to_limit(beta + (momentum - 1) / next_momentum * change)
        state = {**state, "rounds": t, "sites": sites, "sizes": sizes, "momentum": next_momentum}
        state |= {"beta": beta, "point": point}
        if t > self.rounds // 2:
            state["summed"] = state["summed"] + point
        if state["noised"]:
            outcome = "finished"
        else:
            small = float(np.max(np.abs(gradient))) <= _TOLERANCE * length
            outcome = "converged" if small else "out of rounds"
        if outcome == "converged" or t == self.rounds:
            state["status"] = outcome
        return state

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return the coefficients in the columns' own units, without standard errors."""
        scaled = state["beta"]
        if state["noised"]:
            scaled = state["summed"] / (self.rounds - self.rounds // 2)
        chosen = [public.variables[i] for i in self._predictors(public)]
        outcome = public.variables[self._outcome(public)]
        coefficients = (
            units_matrix(
                np.array([v.midpoint for v in chosen]), np.array([v.half_range for v in chosen])
            )
            @ scaled
        )
        if self._family.linear:  # the outcome was scaled too
            coefficients = outcome.half_range * coefficients
            coefficients[0] += outcome.midpoint
        named = zip(self._names(public), coefficients, strict=True)
        terms = tuple(Term(term=name, estimate=float(b)) for name, b in named)
        summary: dict[str, Any] = {
            "method": self.name,
            "family": self.family,
            "outcome": outcome.name,
            **({} if state["noised"] else {"converged": state["status"] == "converged"}),
            "status": state["status"],
            "rounds": state["rounds"],
            "terms": plain_terms(terms, self._family.effect),
            "notes": self._notes(state, public),
        }
        return Result(summary, {"coefficients": coefficients, "scaled_coefficients": scaled})

    def _notes(self, state: State, public: PublicFacts) -> list[str]:
        notes: list[str] = []
        if state["status"] == "out of rounds":
            notes.append(
                f"The search did not converge within {self.rounds} rounds; do not use the "
                "estimates. (Separated outcomes have none.)"
            )
        if state["noised"]:
            _, clip = self._limits(public, len(self._predictors(public)))
            notes.append(
                f"The estimates are means over the last half of {self.rounds} noisy rounds. Each "
                f"record's gradient was clipped to norm {clip:.4g}. Noisy sums do "
                "not show whether the search converged."
            )
        notes.append("No standard errors: gradients do not determine the curvature.")
        notes.append("Constant and collinear columns are not detected: they share an effect.")
        if effect := self._family.effect:
            notes.append(f"Estimates are log {effect} (the intercept) and log {effect} ratios.")
        if state["sites"] > 1 and state["status"] != "out of rounds":
            notes.append(POOLED_NOISED_NOTE if state["noised"] else POOLED_ROUNDS_NOTE)
        return notes

    def _limits(self, public: PublicFacts, predictors: int) -> tuple[float, float]:
        """Return B^2, the largest squared length of a record's (1, x), and C.

        predictors: number of variables in x
        """
        square = float(predictors)
        square = 1 + (square if public.clip is None else min(square, public.clip.squared_norm))
        if self.clip is not None:
            return square, self.clip
        bound = math.sqrt(square)
        return square, bound / 2 if self._family.linear else bound

    def _predictors(self, public: PublicFacts) -> NDArray[np.int64]:
        return choose(public, self.predictors, "method.predictors", other_than=self.outcome)

    def _outcome(self, public: PublicFacts) -> int:
        if not self._family.linear:
            return outcome_index(public, self.outcome, self._family.outcome)
        matches = choose(public, [self.outcome], "method.outcome")
        if len(matches) != 1:
            what = f"{self.outcome!r} has several indicators"
            raise JobError("method.outcome", what, "Name one of them as `column=level`.")
        return int(matches[0])

    def _names(self, public: PublicFacts) -> tuple[str, ...]:
        self._outcome(public)
        return (INTERCEPT, *(public.variables[i].name for i in self._predictors(public)))


def _grid_bits(public: PublicFacts, clip: float) -> int | None:
    """Return the fraction bits of the sums' grid under differential privacy; None without."""
    return None if public.clip is None else exact_bits(public.max_rows, clip)


def _shrunk_to_limit(beta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return beta, shrunk towards zero if it exceeds what the sites accept."""
    norm = float(np.sum(np.abs(beta)))
    return beta if norm <= _MAX_BETA_NORM else beta * (_MAX_BETA_NORM / norm)
