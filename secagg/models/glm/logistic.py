"""Federated logistic regression: Newton's method on securely summed derivatives.

In each round the coordinator sends coefficients beta, and the sites' log-likelihoods, gradients and
Hessians at beta are summed (equations 1 to 3 of `secagg.models.glm.newton`). The sums equal those
of the pooled records, so the fit is the pooled fit. If a step does not raise the log-likelihood
enough, it is halved. Each beta that is tried takes one round.

If predictors separate the outcomes, the weights of later rounds concentrate on the few records
nearest to the border, and the sums show these records. So without noise a site with a policy
refuses a sum whose weights are those of too few records (`Logistic.record_weights`, rule
`effective_records`). The log-likelihood concentrates like the gradient.

What the transcript determines: the sites keep no state, so every sum is a function of the *pooled*
records and of a beta that the coordinator already knew. All rounds together reveal nothing about
how the records are split over sites, except through rounding: each site's sum is rounded to the
fixed-point step, so the last bit of a total may depend on the split. The rounds reveal more about
the pooled records than the result does: with p coefficients, the log-likelihood, gradient and
Hessian at each beta are some p^2 / 2 numbers a round.

The result contains the pooled standard deviations of the continuous predictors (`per_sd`). They
follow from the first round's Hessian, at beta = 0, so the coordinator knows them anyway; readers of
the result learn them too. Those of indicators are left out: each one gives the number of records
with that level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from secagg.contracts import (
    ANY_MESSAGE,
    NO_WINDOWS,
    Body,
    Disclosure,
    DisclosureKind,
    Family,
    Field,
    Kind,
    Label,
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
from secagg.contracts.noise import Placements
from secagg.core.randomness import RandomBytes
from secagg.errors import JobError, PeerError
from secagg.models.common.coefficient_table import INTERCEPT, Term, plain
from secagg.models.common.site_levels import POOLED_ROUNDS_NOTE
from secagg.models.common.variables import choose, outcome_index
from secagg.models.glm.newton import (
    LOG_LIKELIHOOD_FLOOR,
    accept_step,
    check_log_odds,
    converged,
    covariance,
    diverging,
    inference,
    logistic_sums,
    newton_decrement,
    newton_direction,
    record_weights,
    units_matrix,
)
from secagg.models.numerics.cholesky import TOLERANCE
from secagg.models.numerics.precision import ROUNDING

NEWTON = "newton"
MIN_FRACTION_BITS = 40
_MIN_STEP = 2.0**-30
_NEARLY_SEPARATED = 5.0  # log odds for one standard deviation: an odds ratio of about 150
_LABELS: Mapping[str, Label] = {
    "log_likelihood": ("log-likelihood", ""),
    "null_log_likelihood": ("log-likelihood without predictors", ""),
    "lr_chi_squared": ("likelihood ratio χ²", ""),
    "lr_dof": ("likelihood ratio: degrees of freedom", ""),
    "lr_p_value": ("likelihood ratio: p-value", ""),
    "mcfadden_r_squared": ("McFadden's R²", ""),
    "aic": ("AIC", ""),
    "bic": ("BIC", ""),
}


_MAX_COEFFICIENT = 1e100  # of scaled columns: sums of numbers up to this are finite


@dataclass(frozen=True)
class Logistic:
    """Logistic regression of a binary column."""

    outcome: str
    """The outcome: a binary column."""
    predictors: tuple[str, ...]
    """The predictors: at least one column. An intercept is added."""
    level: float = 0.95
    """Level of the confidence intervals, between 0 and 1."""
    max_rounds: int = 60
    """Largest number of Newton rounds. If the fit has not converged by then, the result says so."""
    fraction_bits: int = 80
    """Each site rounds its derivatives to multiples of 2^-fraction_bits. At least 40. With the
    default, this rounding is smaller than that of double precision."""

    name: ClassVar[str] = "logistic"
    placements: ClassVar[Placements] = Placements(
        (),
        "Newton steps build on exact sums.",
        'Use method gradient with family = "binomial" and placement "round": it fits the same '
        "regression with noise.",
    )
    title: ClassVar[str] = "Logistic regression"
    disclosure: ClassVar[Disclosure] = Disclosure(
        DisclosureKind.POOLED,
        "The pooled log-likelihood, its gradient and its Hessian at each trial of Newton's method. "
        "All sums are functions of the pooled records, so they do not show how records are split "
        "over sites.",
        ANY_MESSAGE,
    )

    @property
    def facts(self) -> MethodFacts:
        """One regression by sums over records, whose weights depend on the coefficients sent."""
        return MethodFacts(
            derivation=type(self).__module__,
            weights=self.record_weights,
            weighted_columns=lambda rows, public: self._design(rows, public)[0],
            reads=SingleRecords(reason="sums derivatives of single records", repeatable=True),
            windows=NO_WINDOWS,
            named_code=(),
            network=False,
            regression=Regression(Family.BINOMIAL, frozenset((self.outcome, *self.predictors))),
            edge_rule=None,
        )

    def tables(self, public: PublicFacts) -> tuple[ResultTable, ...]:
        """Return the layout of a regression."""
        return (ResultTable(self.title, TableKind.REGRESSION, _LABELS),)

    def stages(self, public: PublicFacts) -> tuple[Stage, ...]:
        """Declare the one kind of round: the derivatives at a trial point."""
        if not 0 < self.level < 1:
            raise JobError("method.level", f"is {self.level}; it must be above 0 and below 1")
        if self.max_rounds < 1:
            raise JobError("method.max_rounds", "must be at least 1")
        if self.fraction_bits < MIN_FRACTION_BITS:
            raise JobError("method.fraction_bits", f"must be at least {MIN_FRACTION_BITS}")
        p = len(self._names(public))
        rows = float(public.max_rows)
        bits = self.fraction_bits
        spec = (
            Field("log_likelihood", (1,), -LOG_LIKELIHOOD_FLOOR * rows, bits, Kind.BOUNDED),
            Field("gradient", (p,), rows, bits, Kind.BOUNDED),
            Field("hessian", (p * (p + 1) // 2,), rows / 4, bits, Kind.PSD),
        )
        sees = "pooled log-likelihood, gradient and Hessian at the coefficients it sent"
        return (Stage(NEWTON, spec, self.max_rounds, sees),)

    def initial_state(self, public: PublicFacts) -> State:
        """Begin at beta = 0."""
        p = len(self._names(public))
        return {
            "status": "running",
            "rounds": 0,
            "step": 1.0,
            "trial": np.zeros(p),
            "names": list(self._names(public)),
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
        X, y = self._design(rows, public)
        trial = message.get("trial")
        if not (isinstance(trial, np.ndarray) and trial.shape == X.shape[1:]):
            raise PeerError("logistic", "the coordinator's coefficients have the wrong shape")
        if not np.all(np.abs(trial) < _MAX_COEFFICIENT):  # true for NaN
            raise PeerError("logistic", "the coordinator's coefficients are out of range")
        check_log_odds(X @ trial)
        log_likelihood, gradient, hessian = logistic_sums(X, y, trial)
        return {
            "log_likelihood": np.array([log_likelihood]),
            "gradient": gradient,
            "hessian": hessian[np.triu_indices(len(hessian))],
        }, memory

    def record_weights(
        self, rows: SiteRecords, message: Body, public: PublicFacts
    ) -> Sequence[NDArray[np.float64]]:
        """Return the records' weights in Hessian and gradient at the trial point."""
        return record_weights(*self._design(rows, public), message["trial"])

    def _design(
        self, rows: SiteRecords, public: PublicFacts
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        X = np.column_stack([np.ones(len(rows.values)), rows.values[:, self._predictors(public)]])
        index = outcome_index(public, self.outcome)
        outcome = public.variables[index]
        return X, outcome.midpoint + outcome.half_range * rows.values[:, index]  # 0 or 1, exactly

    def aggregate(self, state: State, total: Update, sites: int) -> State:
        """Accept or halve the step, compute the next one, check for convergence and separation."""
        value = float(total["log_likelihood"][0])
        state = {**state, "rounds": state["rounds"] + 1}
        if state["rounds"] == 1:
            state |= _counts(total)
            state["null_hessian"] = _symmetric(total["hessian"], len(state["names"]))
        else:
            slack = 2 * sites * 2.0 ** -(self.fraction_bits + 1)  # error of two decoded sums
            accepted = accept_step(state["value"], value, state["decrement"], state["step"], slack)
            if state["status"] == "running" and not accepted:
                return self._halve(state)
        names = state["names"]
        gradient, hessian = total["gradient"], _symmetric(total["hessian"], len(names))
        state |= {"beta": state["trial"], "value": value, "hessian": hessian, "sites": sites}
        if state["status"] == "last":
            return {**state, "status": "converged"}
        # Collinear columns are detected at beta = 0. Later a nearly singular Hessian means
        # separation, which `diverging` detects.
        error = self._relative_error(hessian, sites)
        tolerance = max(TOLERANCE, math.sqrt(error)) if state["rounds"] == 1 else error
        direction = newton_direction(gradient, hessian, names, tolerance)
        decrement = newton_decrement(gradient, direction)
        state |= {"direction": direction, "decrement": decrement, "step": 1.0}
        separated = diverging(direction, hessian, state["null_hessian"], names)
        if separated:
            return {**state, "status": "separated", "separated": list(separated)}
        if converged(decrement):
            state["status"] = "last"  # one more full step squares the error; H is computed there
        return self._next_trial(state)

    def _relative_error(self, hessian: NDArray[np.float64], sites: int) -> float:
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

    def result(self, state: State, public: PublicFacts, counted: RecordCount) -> Result:
        """Return odds ratios with Wald intervals, in the columns' own units."""
        chosen = [public.variables[i] for i in self._predictors(public)]
        transform = units_matrix(
            np.array([v.midpoint for v in chosen]), np.array([v.half_range for v in chosen])
        )
        error = self._relative_error(state["hessian"], state["sites"])
        scaled = _deviations(state["null_hessian"], state["n"])
        deviations = [
            math.nan if variable.indicator else float(variable.half_range * sd)
            for variable, sd in zip(chosen, scaled, strict=True)
        ]
        terms = inference(
            state["beta"], state["hessian"], transform, state["names"], self.level, error,
            deviations,
        )  # fmt: skip
        caution = _caution(state, terms)
        summary = {
            "method": self.name,
            "outcome": public.variables[outcome_index(public, self.outcome)].name,
            "level": self.level,
            "converged": state["status"] == "converged",
            "status": state["status"],
            "rounds": state["rounds"],
            "n": state["n"],
            "events": state["events"],
            "terms": plain(terms),
            **_fit_statistics(state),
            "notes": [*caution.values(), *_notes(state)],
            **caution,
        }
        arrays = {
            "coefficients": transform @ state["beta"],
            "covariance": covariance(state["hessian"], transform, state["names"], error),
            "scaled_coefficients": state["beta"],
            "scaled_hessian": state["hessian"],
        }
        return Result(summary, arrays)

    def _predictors(self, public: PublicFacts) -> NDArray[np.int64]:
        return choose(public, self.predictors, "method.predictors", other_than=self.outcome)

    def _names(self, public: PublicFacts) -> tuple[str, ...]:
        outcome_index(public, self.outcome)
        return (INTERCEPT, *(public.variables[i].name for i in self._predictors(public)))


def _counts(total: Update) -> State:
    """Return the numbers of records and events from the sums at beta = 0.

    There every record has the weight 1/4 in the Hessian.
    """
    n = round(4 * float(total["hessian"][0]))
    return {"n": n, "events": round(float(total["gradient"][0]) + n / 2)}


def _deviations(null_hessian: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return the standard deviations of the scaled predictors, with the divisor n - 1.

    At beta = 0 the Hessian is X'X / 4, so the sum that the first round opens contains the
    predictors' sums and sums of squares. With h the Hessian divided by its first entry, which is
    n / 4, sd_j^2 = n / (n - 1) (h_jj - h_0j^2). One that is below its rounding error becomes 0.
    """
    h = null_hessian / null_hessian[0, 0]
    variance, square = np.diagonal(h)[1:] - h[0, 1:] ** 2, np.diagonal(h)[1:]
    known = variance > math.sqrt(ROUNDING) * square
    return np.sqrt(np.where(known, variance, 0.0) * (n / max(n - 1, 1)))


def _symmetric(upper: NDArray[np.float64], p: int) -> NDArray[np.float64]:
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p)] = upper
    return matrix + np.triu(matrix, 1).T


def _fit_statistics(state: State) -> dict[str, float | int | None]:
    """Return likelihood-based statistics. The null model's likelihood needs only the counts."""
    n, events, value, p = state["n"], state["events"], state["value"], len(state["beta"])
    null = sum(count * math.log(count / n) for count in (events, n - events) if count)
    chi_squared = max(2 * (value - null), 0.0)
    return {
        "log_likelihood": value,
        "null_log_likelihood": null,
        "lr_chi_squared": chi_squared,
        "lr_dof": p - 1,
        "lr_p_value": float(chdtrc(p - 1, chi_squared)),
        "mcfadden_r_squared": 1 - value / null if null else None,
        "aic": 2 * p - 2 * value,
        "bic": p * math.log(n) - 2 * value,
    }


def _caution(state: State, terms: Sequence[Term]) -> dict[str, str]:
    """Return a caution if one standard deviation of a predictor changes the odds enormously."""
    scaled = [(term.term, term.per_sd.estimate) for term in terms if term.per_sd is not None]
    near = [name for name, estimate in scaled if abs(estimate) > _NEARLY_SEPARATED]
    if state["status"] != "converged" or not near:
        return {}
    return {
        "caution": f"the outcomes are nearly separated by {', '.join(near)} (one standard "
        "deviation changes the odds more than 148 times), so Wald intervals and p-values are "
        "unreliable (Hauck & Donner 1977): use the likelihood ratio test"
    }


def _notes(state: State) -> list[str]:
    match state["status"]:
        case "converged":
            return [POOLED_ROUNDS_NOTE] if state["sites"] > 1 else []
        case "separated":
            separating = ", ".join(state["separated"])
            why = f"the outcomes are separated by {separating}"
            if state["separated"] == [INTERCEPT]:
                why = "all records have the same outcome"
            return [
                f"No finite estimate exists: {why}.",
                "Do not use the estimates and intervals: the search only stopped at them.",
            ]
        case status:
            return [f"Newton's method did not converge ({status}); do not use the estimates."]
