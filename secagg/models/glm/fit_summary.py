"""What the result of a Newton fit says beside the coefficients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from secagg.contracts import Family, Label, Outcome, State, Variable
from secagg.core.arrays import Array
from secagg.models.common.coefficient_table import INTERCEPT, Term
from secagg.models.common.site_confounding import POOLED_FIT_NOTE, POOLED_ROUNDS_NOTE
from secagg.models.numerics.precision import ROUNDING

NO_DEVIATIONS_NOTE = (
    "Effects per standard deviation (SD) are left out: with an exposure, no sum of the run gives "
    "the standard deviations of the predictors."
)
_NEARLY_SEPARATED = 5.0  # for one standard deviation: an odds ratio of about 150
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
_DISPERSED_LABELS: Mapping[str, Label] = {
    "deviance": ("deviance", ""),
    "null_deviance": ("deviance without predictors", ""),
    "dispersion": ("dispersion", "deviance divided by the degrees of freedom"),
}


def labels_of(family: Family) -> Mapping[str, Label]:
    """Return the labels of `Fit.statistics`."""
    return _DISPERSED_LABELS if family.dispersed else _LABELS


@dataclass(frozen=True)
class Fit:
    """How well a fit describes its records.

    n: number of records; parameters: number of coefficients
    value, null_value: log-likelihood of the fit, and without predictors
    """

    family: Family
    n: int
    parameters: int
    value: float
    null_value: float

    @property
    def degrees_of_freedom(self) -> float:
        """Those of the dispersion; infinite if it is 1."""
        return max(self.n - self.parameters, 1) if self.family.dispersed else math.inf

    @property
    def dispersion(self) -> float:
        """The estimate of the dispersion, or 1."""
        return -2 * self.value / self.degrees_of_freedom if self.family.dispersed else 1.0

    def statistics(self) -> dict[str, float | int | None]:
        """Return likelihood-based statistics."""
        n, p, value, null = self.n, self.parameters, self.value, self.null_value
        if self.family.dispersed:
            return {
                "deviance": -2 * value, "null_deviance": -2 * null, "dispersion": self.dispersion,
            }  # fmt: skip
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


def predictor_deviations(
    null_hessian: Array, n: int, predictors: Sequence[Variable]
) -> list[float]:
    """Return the predictors' standard deviations, with the divisor n - 1; NaN for indicators.

    At beta = 0 all records have one weight w, and the Hessian is w X'X. So the sum that the first
    round opens contains the predictors' sums and sums of squares. With h the Hessian divided by its
    first entry, which is w n, the scaled sd_j^2 = n / (n - 1) (h_jj - h_0j^2). One that is below
    its rounding error becomes 0.
    """
    h = null_hessian / null_hessian[0, 0]
    variance, square = np.diagonal(h)[1:] - h[0, 1:] ** 2, np.diagonal(h)[1:]
    known = variance > math.sqrt(ROUNDING) * square
    scaled = np.sqrt(np.where(known, variance, 0.0) * (n / max(n - 1, 1)))
    return [
        math.nan if variable.indicator else float(variable.half_range * sd)
        for variable, sd in zip(predictors, scaled, strict=True)
    ]


def caution(status: str, terms: Sequence[Term], family: Family) -> dict[str, str]:
    """Return a caution if one standard deviation of a predictor has an enormous effect."""
    scaled = [(term.term, term.per_sd.estimate) for term in terms if term.per_sd is not None]
    near = [name for name, estimate in scaled if abs(estimate) > _NEARLY_SEPARATED]
    if status != "converged" or not near or not family.effect:
        return {}
    changes = f"one standard deviation changes the {family.effect} more than 148 times"
    if family.outcome is Outcome.NUMBER:  # nothing separates: an estimate always exists
        return {"caution": f"of {', '.join(near)}, {changes}: check its unit and its bounds"}
    return {
        "caution": f"the outcomes are nearly separated by {', '.join(near)} ({changes}), so Wald "
        "intervals and p-values are unreliable (Hauck & Donner 1977): use the likelihood ratio test"
    }


def notes(state: State, family: Family, exposed: Sequence[Variable] = ()) -> list[str]:
    """Return what to know about the end of a fit. exposed: predictors, if there is an exposure"""
    match state["status"]:
        case "converged":
            binary = family.outcome is Outcome.BINARY
            pooled = POOLED_ROUNDS_NOTE if binary else POOLED_FIT_NOTE
            assumed = [family.assumption] if family.assumption else []
            unscaled = [] if all(each.indicator for each in exposed) else [NO_DEVIATIONS_NOTE]
            return [*assumed, *([pooled] if state["sites"] > 1 else []), *unscaled]
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
