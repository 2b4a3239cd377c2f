"""Labels for the results of linear regressions on pooled moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from secagg.contracts import Label, ResultTable, TableKind
from secagg.models.common.noisy_moments import NOISE_NOTE

_LABELS: Final[Mapping[str, Label]] = {
    "r_squared": ("R²", ""),
    "adjusted_r_squared": ("adjusted R²", ""),
    "residual_std_error": ("residual standard error", ""),
    "model_dof": ("F: degrees of freedom", ""),
    "residual_dof": ("residual degrees of freedom", ""),
    "f_statistic": ("F", ""),
    "f_p_value": ("F: p-value", ""),
    "log_likelihood": ("log-likelihood", ""),
    "aic": ("AIC", ""),
    "bic": ("BIC", ""),
    "gcv": ("generalised cross-validation", ""),
    "kkt_violation": ("violation of optimality", ""),
    "widened": (
        "length of intervals ÷ length without noise",
        "median over all predictors; at 1 the noise has no effect",
    ),
    "noise_ratio": (
        "size of the noise ÷ smallest spread of the predictors",
        "well below 1 the data determine the intervals; above 1 the prior does",
    ),
    "r_hat": (
        "agreement of the sampler's chains (R-hat)",
        "near 1 the chains agree; above 1.05 do not rely on the intervals",
    ),
}


def regression_table(title: str) -> ResultTable:
    return ResultTable(title, TableKind.REGRESSION, _LABELS)


def without_intervals(summary: dict[str, Any]) -> dict[str, Any]:
    """Remove standard errors and tests, which ignore the noise: they are far too small."""
    summary = {**summary, "notes": [*summary.get("notes", ()), NOISE_NOTE]}
    if "terms" in summary:
        nothing = dict.fromkeys(("std_error", "statistic", "p_value", "ci_low", "ci_high"))
        summary["terms"] = [{**term, **nothing} for term in summary["terms"]]
    return summary
