"""Federated regression of any family: Newton's method on securely summed derivatives.

In each round the coordinator sends coefficients beta, and the sites' log-likelihoods, gradients and
Hessians at beta are summed (equations 1 to 3 of `secagg.models.glm.newton`). The sums equal those
of the pooled records, so the fit is the pooled fit. If a step does not raise the log-likelihood
enough, it is halved. Each beta that is tried takes one round.

If estimates diverge, the weights of later rounds concentrate on few records, and the sums show
these records. So without noise a site with a policy refuses a sum whose weights are those of too
few records (`record_weights`, rule `effective_records`). The log-likelihood needs no weights of its
own: it then depends on the same few records as the gradient.

What the transcript determines: the sites keep no state, so every sum is a function of the *pooled*
records and of a beta that the coordinator already knew. All rounds together reveal nothing about
how the records are split over sites, except through rounding: each site's sum is rounded to the
fixed-point step, so the last bit of a total may depend on the split. The rounds reveal more about
the pooled records than the result does: with p coefficients, the log-likelihood, gradient and
Hessian at each beta are some p^2 / 2 numbers a round.

The result contains the pooled standard deviations of continuous predictors (`per_sd`). They follow
from the first round's Hessian, at beta = 0, so the coordinator knows them anyway; readers of the
result learn them too. Those of indicators are left out: each one gives the number of records with
that level. With an exposure the first Hessian is weighted, and the result has no `per_sd`.

A subclass adds the `Family`: see CONTRIBUTING.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import (
    ANY_MESSAGE,
    NO_WINDOWS,
    Body,
    Disclosure,
    DisclosureKind,
    Family,
    Field,
    Kind,
    MethodFacts,
    Outcome,
    OutcomeRange,
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
    TermBounds,
    Update,
)
from secagg.contracts.noise import Placements
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.errors import JobError, PeerError
from secagg.models.common.coefficient_table import INTERCEPT, plain_terms
from secagg.models.common.variables import choose, outcome_index
from secagg.models.glm.exposure import Exposure
from secagg.models.glm.fit_summary import (
    Fit,
    caution,
    labels_of,
    notes,
    predictor_deviations,
)
from secagg.models.glm.newton import (
    accept_step,
    check_predictors,
    converged,
    covariance,
    diverging,
    inference,
    newton_decrement,
    newton_direction,
    record_weights,
    term_sums,
    units_matrix,
)
from secagg.models.numerics.cholesky import TOLERANCE
from secagg.models.numerics.precision import ROUNDING

NEWTON = "newton"
MIN_FRACTION_BITS = 40
_MIN_STEP = 2.0**-30
_MAX_COEFFICIENT = 1e100  # of scaled columns: sums of numbers up to this are finite


@dataclass(frozen=True)
class NewtonRegression:
    """A regression by Newton's method. `family` says which."""

    outcome: str
    """The outcome."""
    predictors: tuple[str, ...]
    """The predictors: at least one column. An intercept is added."""
    level: float = 0.95
    """Level of the confidence intervals, between 0 and 1."""
    max_rounds: int = 60
    """Largest number of Newton rounds. If the fit has not converged by then, the result says so."""
    fraction_bits: int = 80
    """Each site rounds its derivatives to multiples of 2^-fraction_bits. At least 40. The default
    is finer than double precision, in which numbers near 1 are multiples of 2^-52."""

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[Family]
    placements: ClassVar[Placements] = Placements(
        (),
        "Newton steps build on exact sums.",
        "Method one_step fits a linear regression with noise.",
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        DisclosureKind.POOLED,
        "The pooled log-likelihood, its gradient and its Hessian at each trial of Newton's method. "
        "All sums are functions of the pooled records, so they do not show how records are split "
        "over sites.",
        ANY_MESSAGE,
    )

    def exposure_column(self) -> str | None:
        """Return the column whose logarithm is the offset; None if there is none."""
        return None

    def null_log_likelihood(self, state: State) -> float:
        """Return the largest log-likelihood without predictors: that of the first trial."""
        return float(state["null_value"])

    @property
    def facts(self) -> MethodFacts:
        """One regression by sums over records, whose weights depend on the coefficients sent."""
        exposure = self.exposure_column()
        columns = (self.outcome, *self.predictors, *(() if exposure is None else (exposure,)))
        return MethodFacts(
            derivation=NewtonRegression.__module__,
            weights=self.record_weights,
            weighted_columns=self.design,
            reads=SingleRecords(reason="sums derivatives of single records", repeatable=True),
            windows=NO_WINDOWS,
            named_code=(),
            network=False,
            regression=Regression(self.family, frozenset(columns), self.outcome),
            edge_rule=None,
        )

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        """Return the layout of a regression."""
        return (ResultTable(self.title, TableKind.REGRESSION, labels_of(self.family)),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Declare the one kind of round: the derivatives at a trial point."""
        if not 0 < self.level < 1:
            raise JobError("method.level", f"is {self.level}; it must be above 0 and below 1")
        if self.max_rounds < 1:
            raise JobError("method.max_rounds", "must be at least 1")
        if self.fraction_bits < MIN_FRACTION_BITS:
            raise JobError("method.fraction_bits", f"must be at least {MIN_FRACTION_BITS}")
        p, rows, bits = len(self._names(public)), float(public.max_rows), self.fraction_bits
        bounds = self.bounds(public)
        spec = (
            Field("log_likelihood", (1,), bounds.log_likelihood * rows, bits, Kind.BOUNDED),
            Field("gradient", (p,), bounds.score * rows, bits, Kind.BOUNDED),
            Field("hessian", (p * (p + 1) // 2,), bounds.weight * rows, bits, Kind.PSD),
        )
        sees = "pooled log-likelihood, gradient and Hessian at the coefficients it sent"
        return (Stage(NEWTON, spec, self.max_rounds, sees),)

    def initial_state(self, public: PublicFacts) -> State:
        """Begin at beta = 0."""
        names = self._names(public)
        return {
            "status": "running",
            "rounds": 0,
            "trial": np.zeros(len(names)),
            "names": list(names),
            "null_weight": self._smallest_null_weight(public),
        }

    def next_request(self, state: State) -> tuple[str, Body] | None:
        """Request the derivatives at the trial point, until the search has ended."""
        if state["status"] not in ("running", "last"):
            return None
        return NEWTON, {"trial": state["trial"]}

    def contribute(
        self,
        stage: str,
        rows: SiteRecords,
        message: Body,
        memory: State,
        public: PublicFacts,
        random: RandomBytes,
    ) -> tuple[Update, State]:
        """Compute this site's derivatives at the trial point."""
        X, y, offset = self._parts(rows, public)
        trial = message.get("trial")
        if not (isinstance(trial, np.ndarray) and trial.shape == X.shape[1:]):
            raise PeerError(self.name, "the coordinator's coefficients have the wrong shape")
        if not np.all(np.abs(trial) < _MAX_COEFFICIENT):  # true for NaN
            raise PeerError(self.name, "the coordinator's coefficients are out of range")
        bounds = self.bounds(public)
        check_predictors(X @ trial if offset is None else X @ trial + offset, bounds)
        log_likelihood, gradient, hessian = term_sums(self.family, bounds, X, y, trial, offset)
        return {
            "log_likelihood": np.array([log_likelihood]),
            "gradient": gradient,
            "hessian": hessian[np.triu_indices(len(hessian))],
        }, memory

    def record_weights(
        self, rows: SiteRecords, message: Body, public: PublicFacts
    ) -> Sequence[Array]:
        """Return the records' weights in Hessian and gradient at the trial point."""
        X, y, offset = self._parts(rows, public)
        return record_weights(self.family, self.bounds(public), X, y, message["trial"], offset)

    def bounds(self, public: PublicFacts) -> TermBounds:
        """Return the limits of a record's terms, from public facts."""
        assert self.family.bounds is not None
        outcome = public.variables[self._outcome(public)]
        low, high = outcome.midpoint - outcome.half_range, outcome.midpoint + outcome.half_range
        records = public.max_rows * max(len(public.sites), 1)
        return self.family.bounds(
            OutcomeRange(records=records, low=low, high=high, offset=self._largest_offset(public))
        )

    def design(self, rows: SiteRecords, public: PublicFacts) -> Array:
        """Return a column of ones, and the predictors."""
        return np.column_stack(
            [np.ones(len(rows.values)), rows.values[:, self._predictors(public)]]
        )

    def _exposure(self, public: PublicFacts) -> Exposure | None:
        name = self.exposure_column()
        return None if name is None else Exposure.of(public, name, (self.outcome, *self.predictors))

    def _largest_offset(self, public: PublicFacts) -> float:
        exposure = self._exposure(public)
        return 0.0 if exposure is None else exposure.largest_offset

    def _parts(self, rows: SiteRecords, public: PublicFacts) -> tuple[Array, Array, Array | None]:
        index = self._outcome(public)
        y = self.family.outcomes(rows.values[:, index], public.variables[index])
        exposure = self._exposure(public)
        offset = None if exposure is None else exposure.offset(rows.values)
        return self.design(rows, public), y, offset

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        """Accept or halve the step, compute the next one, check for convergence and divergence."""
        value, names = float(total["log_likelihood"][0]), state["names"]
        gradient, hessian = total["gradient"], _symmetric(total["hessian"], len(names))
        state = {**state, "rounds": state["rounds"] + 1, "sites": sites}
        # Collinear columns are detected at beta = 0. Later a nearly singular Hessian means
        # divergence, which `diverging` detects.
        error = self._relative_error(hessian, sites)
        if state["rounds"] == 1:
            state |= {"null_gradient": float(gradient[0]), "null_hessian": hessian}
            if self.family.null_intercept is not None:
                return self._begin_at_mean(state, value, gradient, hessian, error)
            error = max(TOLERANCE, math.sqrt(error))
        elif "beta" not in state:
            state["null_value"] = value
        else:
            slack = 2 * sites * 2.0 ** -(self.fraction_bits + 1)  # error of two decoded sums
            accepted = accept_step(state["value"], value, state["decrement"], state["step"], slack)
            if state["status"] == "running" and not accepted:
                return self._halve(state)
        state |= {"beta": state["trial"], "value": value, "hessian": hessian}
        if state["status"] == "last":
            return {**state, "status": "converged"}
        direction = newton_direction(gradient, hessian, names, error, later=state["rounds"] > 1)
        decrement = newton_decrement(gradient, direction)
        longest, length = self.family.longest_step, float(np.sum(np.abs(direction)))
        step = longest / length if length > longest else 1.0
        state |= {"direction": direction, "decrement": decrement, "step": step}
        found = diverging(
            direction, hessian, state["null_hessian"], names, null_weight=state["null_weight"]
        )
        if found:
            return {**state, "status": "separated", "separated": list(found)}
        if converged(decrement) and step == 1.0:
            state["status"] = "last"  # one more full step squares the error; H is computed there
        return self._next_trial(state)

    def _begin_at_mean(
        self, state: State, value: float, gradient: Array, hessian: Array, error: float
    ) -> State:
        """Take the model without predictors as the first trial, from the sums at beta = 0."""
        assert self.family.null_intercept is not None
        newton_direction(gradient, hessian, state["names"], max(TOLERANCE, math.sqrt(error)))
        intercept = self.family.null_intercept(float(gradient[0]), float(hessian[0, 0]))
        trial = np.zeros(len(state["names"]))
        last = {"beta": trial, "value": value, "null_value": value, "hessian": hessian}
        if not math.isfinite(intercept):
            return {**state, **last, "status": "separated", "separated": [INTERCEPT]}
        if self.max_rounds == 1:
            return {**state, **last, "status": "out of rounds"}
        trial[0] = intercept
        return {**state, "trial": trial}

    def _relative_error(self, hessian: Array, sites: int) -> float:
        """Return a bound on the error of p entries of the Hessian together, with unit diagonal.

        An entry is off by half a step for each site, and by float rounding.
        """
        step_error = sites * 2.0 ** -(self.fraction_bits + 1)
        smallest = float(np.min(np.diagonal(hessian)))
        return max(ROUNDING, len(hessian) * step_error / smallest) if smallest > 0 else ROUNDING

    def _halve(self, state: State) -> State:
        if state["step"] <= _MIN_STEP:
            return {**state, "status": "stalled"}
        return self._next_trial({**state, "step": state["step"] / 2})

    def _next_trial(self, state: State) -> State:
        if state["rounds"] >= self.max_rounds:
            return {**state, "status": "out of rounds"}
        return {**state, "trial": state["beta"] + state["step"] * state["direction"]}

    def _smallest_null_weight(self, public: PublicFacts) -> float:
        """Return the smallest weight of a record at beta = 0."""
        largest = self._largest_offset(public)
        return float(np.min(self.family.weight(np.array([-largest, largest]))))

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return coefficients with Wald intervals, and their ratios, in the columns' own units."""
        exposure, n, names = self._exposure(public), round(counted.records), state["names"]
        chosen = [public.variables[i] for i in self._predictors(public)]
        transform = units_matrix(
            np.array([v.midpoint for v in chosen]), np.array([v.half_range for v in chosen])
        )
        error = self._relative_error(state["hessian"], state["sites"])
        null = self.null_log_likelihood(state)
        fit = Fit(self.family, n, len(names), state["value"], null)
        beta, deviations = state["beta"], None
        if exposure is None:
            deviations = predictor_deviations(state["null_hessian"], n, chosen)
        else:  # offsets are relative to the middle of the public bounds; the first Hessian has them
            beta = np.array([beta[0] - exposure.middle, *beta[1:]])
        terms = inference(
            beta, state["hessian"], transform, names, self.level, error, deviations,
            fit.dispersion, fit.degrees_of_freedom,
        )  # fmt: skip
        warned = caution(state["status"], terms, self.family)
        summary = {
            "method": self.name,
            "outcome": public.variables[self._outcome(public)].name,
            **({} if exposure is None else {"exposure": exposure.variable.column}),
            "level": self.level,
            "converged": state["status"] == "converged",
            "status": state["status"],
            "rounds": state["rounds"],
            "n": n,
            **self._events(state),
            "terms": plain_terms(terms, self.family.effect),
            **fit.statistics(),
            "notes": [*warned.values(), *notes(state, self.family, chosen if exposure else ())],
            **warned,
        }
        arrays = {
            "coefficients": transform @ beta,
            "covariance": fit.dispersion * covariance(state["hessian"], transform, names, error),
            "scaled_coefficients": beta,
            "scaled_hessian": state["hessian"],
        }
        return Result(summary, arrays)

    def _events(self, state: State) -> dict[str, int]:
        """Return the sum of a binary outcome or of counts, from the sums at beta = 0."""
        if self.family.outcome is Outcome.NUMBER:
            return {}
        zero = np.zeros(1)
        unit = float((self.family.mean(zero) / self.family.weight(zero))[0])
        return {"events": round(state["null_gradient"] + unit * float(state["null_hessian"][0, 0]))}

    def _outcome(self, public: PublicFacts) -> int:
        return outcome_index(public, self.outcome, self.family.outcome, log=False)

    def _predictors(self, public: PublicFacts) -> NDArray[np.int64]:
        return choose(public, self.predictors, "method.predictors", other_than=self.outcome)

    def _names(self, public: PublicFacts) -> tuple[str, ...]:
        self._outcome(public)
        return (INTERCEPT, *(public.variables[i].name for i in self._predictors(public)))


def _symmetric(upper: Array, p: int) -> Array:
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p)] = upper
    return matrix + np.triu(matrix, 1).T
