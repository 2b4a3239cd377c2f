"""The analyses of pooled moments that a job can list, with one class of settings for each kind.

========  ==========================================================================
kind      what it computes
========  ==========================================================================
describe  means, standard deviations, correlations
ols       least squares with classical standard errors; from moments with noise,
          with intervals that allow for the noise
ridge     ridge regression; penalty by generalised cross-validation or given
lasso     the lasso; penalty by BIC or given
pc, ges   equivalence class of a directed graph (extra `graphs`)
notears   linear NOTEARS
golem     GOLEM-NV, or GOLEM-EV with equal_variances = true
========  ==========================================================================

and graphical_lasso: an undirected graph with partial correlations.

If the job states the true edges, learned graphs are compared with them. Settings are checked before
data are read: a release cannot be undone, and an invalid setting would waste it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from secagg.contracts import AskedRegression, PublicFacts, Result, ResultTable, TableKind
from secagg.core.validation import build
from secagg.errors import JobError, UsageError
from secagg.models.common.coefficient_table import critical_value
from secagg.models.common.gaussian import GAUSSIAN
from secagg.models.common.pooled_moments import Moments, constant_column
from secagg.models.common.shrinkage import marked_shrunk
from secagg.models.common.variables import choose
from secagg.models.graphs.knowledge import Knowledge
from secagg.models.moments.graph_analyses import Ges, Golem, Graph, GraphicalLasso, Notears, Pc
from secagg.models.moments.lasso import LassoFit, lasso
from secagg.models.moments.noisy_description import describe_noisy
from secagg.models.moments.noisy_ols import NoisyLinearFit, noisy_ols
from secagg.models.moments.ols import LinearFit, describe, ols
from secagg.models.moments.ridge import RidgeFit, ridge
from secagg.models.moments.scaling import check_penalty
from secagg.models.moments.tables import regression_table


class Analysis(Protocol):
    """One analysis with its settings."""

    @property
    def table(self) -> ResultTable:
        """The layout of its result."""
        ...

    def check(self, public: PublicFacts) -> None:
        """Raise `UsageError` for an undeclared column or an invalid setting."""
        ...

    def run(self, moments: Moments, known: Knowledge | None) -> Result:
        """Compute the result. Raises `UsageError` if the moments do not allow it.

        known: about all variables of the moments; only graphs use it
        """
        ...


@dataclass(frozen=True)
class Describe:
    """Means, standard deviations and correlations of all variables."""

    table: ClassVar = ResultTable("Means, spread and correlations", TableKind.DESCRIPTION)

    def check(self, public: PublicFacts) -> None:
        """Accept every job: there are no settings."""

    def run(self, moments: Moments, known: Knowledge | None) -> Result:
        if moments.noisy is not None:
            return Result({"method": "describe", **describe_noisy(moments.noisy).to_dict()})
        summary = {"method": "describe", **describe(moments).to_dict()}
        if np.any(moments.constant):
            constant = [name for name, c in zip(moments.names, moments.constant, strict=True) if c]
            summary["notes"] = [constant_column(name, moments.within) for name in constant]
        return Result(summary)


@dataclass(frozen=True)
class _Regression:
    outcome: str
    """The outcome: a continuous, count or binary column, or one variable such as `ward=other`."""
    predictors: tuple[str, ...]
    """The predictors: at least one column. An intercept is added."""

    def check(self, public: PublicFacts) -> None:
        """Check that outcome and predictors are declared."""
        if len(choose(public, [self.outcome], "outcome")) != 1:
            what = f"column {self.outcome!r} has several indicators"
            raise JobError("outcome", what, "Name one of them as `column=level`.")
        choose(public, self.predictors, "predictors", other_than=self.outcome)


@dataclass(frozen=True)
class Ols(_Regression):
    """Least squares."""

    level: float = 0.95
    """Level of the confidence intervals, between 0 and 1."""

    table: ClassVar[ResultTable] = regression_table("Linear regression (least squares)")

    def check(self, public: PublicFacts) -> None:
        super().check(public)
        critical_value(self.level)

    def run(self, moments: Moments, known: Knowledge | None) -> Result:
        """Fit. With noisy moments, the intervals allow for the noise."""
        if moments.noisy is not None:
            return _regression(noisy_ols(moments.noisy, self.outcome, self.predictors, self.level))
        return _regression(ols(moments, self.outcome, self.predictors, self.level))


@dataclass(frozen=True)
class Ridge(_Regression):
    """Ridge regression."""

    penalty: float | Literal["gcv"] = "gcv"
    """Factor of the sum of squared slopes, above 0. `"gcv"` chooses it by generalised
    cross-validation. Predictors are standardised. scikit-learn's alpha, divided by n, is this
    number."""
    level: float = 0.95
    """Probability of the intervals, between 0 and 1. They do not account for the bias of ridge
    regression or for the choice of the penalty."""

    table: ClassVar[ResultTable] = regression_table("Ridge regression")

    def check(self, public: PublicFacts) -> None:
        super().check(public)
        check_penalty(self.penalty, "gcv")
        critical_value(self.level)

    def run(self, moments: Moments, known: Knowledge | None) -> Result:
        fit = ridge(moments, self.outcome, self.predictors, self.penalty, self.level)
        return _shrunk(fit, "For estimates without this bias, use 'ols'.")


@dataclass(frozen=True)
class Lasso(_Regression):
    """The lasso."""

    penalty: float | Literal["bic"] = "bic"
    """Factor of the sum of absolute slopes, above 0. `"bic"` tries 100 penalties and takes the one
    with the smallest BIC. Predictors are standardised. scikit-learn's alpha is this number."""

    table: ClassVar[ResultTable] = regression_table("Lasso")

    def check(self, public: PublicFacts) -> None:
        super().check(public)
        check_penalty(self.penalty, "bic")

    def run(self, moments: Moments, known: Knowledge | None) -> Result:
        fit = lasso(moments, self.outcome, self.predictors, self.penalty)
        advice = "For estimates without this bias, use 'ols' with the selected predictors"
        return _shrunk(fit, f"{advice}; its intervals ignore the selection.")


KINDS: Mapping[str, type[Analysis]] = {
    "describe": Describe, "ols": Ols, "ridge": Ridge, "lasso": Lasso,
    "pc": Pc, "ges": Ges, "notears": Notears, "golem": Golem, "graphical_lasso": GraphicalLasso,
}  # fmt: skip


def asked_of(tables: Sequence[Mapping[str, Any]], within: bool) -> tuple[AskedRegression, ...]:
    """Return the least-squares regressions of a job's tables that other methods can answer.

    within: whether records are taken about their site's means
    """
    return tuple(
        AskedRegression(table["outcome"], tuple(table["predictors"]), GAUSSIAN, within)
        for table in tables
        if table.get("kind") == "ols" and isinstance(table.get("outcome"), str)
        if isinstance(table.get("predictors"), list | tuple)
    )


def ols_table(asked: AskedRegression) -> dict[str, Any]:
    """Return the table of a regression, as a job has it."""
    return {"kind": "ols", "outcome": asked.outcome, "predictors": list(asked.predictors)}


def build_analysis(
    table: Mapping[str, Any],
    public: PublicFacts,
    where: str,
    truth: tuple[tuple[str, str], ...] | None = None,
) -> Analysis:
    """Return the analysis that a job's table describes, with indicators for categorical columns.

    truth: the true edges, for graph analyses
    Raises `JobError` for an unknown kind, key or column, or an invalid setting.
    """
    settings = dict(table)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        what = "kind is required" if kind is None else f"unknown kind {kind!r}"
        raise JobError(where, what, f"Kinds are {', '.join(KINDS)}.")
    if issubclass(KINDS[kind], Graph):
        settings = {"truth": truth, **settings}
    analysis = build(KINDS[kind], settings, where)
    try:
        analysis.check(public)
    except UsageError as error:  # the checks do not know the analysis's place in the job
        in_job = where if error.where == "analysis" else f"{where}.{error.where}"
        if error.where == "truth" and "truth" not in table:
            in_job = f"method.truth, for {where}"
        raise JobError(in_job, error.what, error.advice) from None
    for key in ("predictors", "variables", "outcome"):
        names = getattr(analysis, key, None)
        if names is not None:
            chosen = choose(public, [names] if key == "outcome" else names, f"{where}.{key}")
            variables = tuple(public.variables[i].name for i in chosen)
            settings[key] = variables[0] if key == "outcome" else variables
    return build(KINDS[kind], settings, where)


def _regression(fit: LinearFit | NoisyLinearFit | RidgeFit | LassoFit) -> Result:
    estimates = np.array([term.estimate for term in fit.terms])
    errors = np.array([np.nan if t.std_error is None else t.std_error for t in fit.terms])
    return Result(fit.to_dict(), {"coefficients": estimates, "std_errors": errors})


def _shrunk(fit: RidgeFit | LassoFit, advice: str) -> Result:
    result = _regression(fit)
    return replace(result, summary=marked_shrunk(result.summary, "slopes", advice))
