"""The analyses a job may ask of pooled moments: settings as in the job file, one class a kind.

========  ==========================================================================
kind      what it computes
========  ==========================================================================
describe  means, standard deviations, correlations
ols       least squares with classical standard errors
ridge     ridge regression; penalty by generalised cross-validation or given
lasso     the lasso; penalty by BIC or given
pc, ges   equivalence class of a directed graph (extra `graphs`)
notears   linear NOTEARS
golem     GOLEM-NV, or GOLEM-EV with equal_variances = true
========  ==========================================================================

Graph analyses are scored where the job states the true edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Public, Result
from secagg.errors import JobError
from secagg.models.golem import golem
from secagg.models.graph_metrics import compare_graphs
from secagg.models.graph_result import GraphFit
from secagg.models.lasso import LassoFit, lasso
from secagg.models.linear import LinearFit, describe, ols
from secagg.models.notears import notears
from secagg.models.pc_ges import ges, pc
from secagg.models.pooled import Moments
from secagg.models.ridge import RidgeFit, ridge
from secagg.models.variables import choose
from secagg.settings import build


class Analysis(Protocol):
    """One analysis with its settings."""

    def check(self, public: Public) -> None:
        """Raise `JobError` if the settings name columns that are not declared."""
        ...

    def run(self, moments: Moments) -> Result:
        """Compute; raises `UsageError` where the moments do not allow it."""
        ...


@dataclass(frozen=True)
class Describe:
    """Means, standard deviations and correlations of all variables."""

    def check(self, public: Public) -> None:
        """Need nothing."""

    def run(self, moments: Moments) -> Result:
        """Describe."""
        return Result({"method": "describe", **describe(moments).to_dict()})


@dataclass(frozen=True)
class _Regression:
    outcome: str
    predictors: tuple[str, ...]

    def check(self, public: Public) -> None:
        """Check that outcome and predictors are declared."""
        if len(choose(public, [self.outcome], "outcome")) != 1:
            raise JobError("outcome", f"column {self.outcome!r} has several indicators")
        choose(public, self.predictors, "predictors", other_than=self.outcome)


@dataclass(frozen=True)
class Ols(_Regression):
    """Least squares."""

    level: float = 0.95

    def run(self, moments: Moments) -> Result:
        """Fit."""
        return _regression(ols(moments, self.outcome, self.predictors, self.level))


@dataclass(frozen=True)
class Ridge(_Regression):
    """Ridge regression."""

    penalty: float | Literal["gcv"] = "gcv"
    level: float = 0.95

    def run(self, moments: Moments) -> Result:
        """Fit."""
        return _regression(ridge(moments, self.outcome, self.predictors, self.penalty, self.level))


@dataclass(frozen=True)
class Lasso(_Regression):
    """The lasso."""

    penalty: float | Literal["bic"] = "bic"

    def run(self, moments: Moments) -> Result:
        """Fit."""
        return _regression(lasso(moments, self.outcome, self.predictors, self.penalty))


@dataclass(frozen=True, kw_only=True)
class _Graph:
    variables: tuple[str, ...] | None = None
    truth: tuple[tuple[str, str], ...] | None = None

    def check(self, public: Public) -> None:
        """Check that variables are declared, and that true edges run between them."""
        known = {v.name for v in public.variables}
        if self.variables is not None:
            chosen = choose(public, self.variables, "variables")
            known = {public.variables[i].name for i in chosen}
        strangers = sorted({name for edge in self.truth or () for name in edge} - known)
        if strangers:
            raise JobError("truth", f"{strangers[0]!r} is not one of the graph's variables")

    def _settings(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if k != "truth"}

    def _result(self, fit: GraphFit) -> Result:
        summary = fit.to_dict()
        arrays: dict[str, NDArray[Any]] = {
            "directed": fit.directed, "undirected": fit.undirected
        }  # fmt: skip
        if fit.weights is not None:
            arrays["weights"] = fit.weights
        if self.truth is not None:
            truth = np.zeros((len(fit.names), len(fit.names)), dtype=np.bool_)
            for cause, effect in self.truth:
                truth[fit.names.index(cause), fit.names.index(effect)] = True
            summary["truth"] = [list(edge) for edge in self.truth]
            summary["score"] = asdict(compare_graphs(fit.directed, truth, fit.undirected))
        return Result(summary, arrays)


@dataclass(frozen=True, kw_only=True)
class Pc(_Graph):
    """PC."""

    alpha: float = 0.05

    def run(self, moments: Moments) -> Result:
        """Learn."""
        return self._result(pc(moments, **self._settings()))


@dataclass(frozen=True, kw_only=True)
class Ges(_Graph):
    """GES."""

    penalty: float = 1.0

    def run(self, moments: Moments) -> Result:
        """Learn."""
        return self._result(ges(moments, **self._settings()))


@dataclass(frozen=True, kw_only=True)
class Notears(_Graph):
    """Linear NOTEARS."""

    standardise: bool = True
    penalty: float = 0.1
    threshold: float = 0.3

    def run(self, moments: Moments) -> Result:
        """Learn."""
        return self._result(notears(moments, **self._settings()))


@dataclass(frozen=True, kw_only=True)
class Golem(_Graph):
    """GOLEM."""

    equal_variances: bool = False
    standardise: bool = True
    penalty: float | None = None
    threshold: float = 0.3

    def run(self, moments: Moments) -> Result:
        """Learn."""
        return self._result(golem(moments, **self._settings()))


KINDS: Mapping[str, type[Analysis]] = {
    "describe": Describe, "ols": Ols, "ridge": Ridge, "lasso": Lasso,
    "pc": Pc, "ges": Ges, "notears": Notears, "golem": Golem,
}  # fmt: skip


def build_analysis(
    table: Mapping[str, Any],
    public: Public,
    where: str,
    truth: tuple[tuple[str, str], ...] | None = None,
) -> Analysis:
    """Return the analysis a job's table asks for; categorical columns become their indicators.

    truth: the true edges, for graph analyses
    Raises `JobError` for an unknown kind, key or column.
    """
    settings = dict(table)
    kind = settings.pop("kind", None)
    if kind not in KINDS:
        raise JobError(where, f"unknown kind {kind!r}", f"Kinds are {', '.join(KINDS)}.")
    if issubclass(KINDS[kind], _Graph):
        settings = {"truth": truth, **settings}
    analysis = build(KINDS[kind], settings, where)
    analysis.check(public)
    for key in ("predictors", "variables", "outcome"):
        names = getattr(analysis, key, None)
        if names is not None:
            chosen = choose(public, [names] if key == "outcome" else names, f"{where}.{key}")
            variables = tuple(public.variables[i].name for i in chosen)
            settings[key] = variables[0] if key == "outcome" else variables
    return build(KINDS[kind], settings, where)


def _regression(fit: LinearFit | RidgeFit | LassoFit) -> Result:
    estimates = np.array([term.estimate for term in fit.terms])
    errors = np.array([np.nan if t.std_error is None else t.std_error for t in fit.terms])
    return Result(fit.to_dict(), {"coefficients": estimates, "std_errors": errors})
