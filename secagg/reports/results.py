"""A run's result, arranged for reading: one block an analysis, beside it each site's own.

Reads the plain data of `Result.summary` and nothing else. What a site would get alone is there only
in simulations; a site without an estimate of its own keeps its line and says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.reports import numbers as written

Summary = Mapping[str, Any]

_TITLES = {
    "logistic": "Logistic regression",
    "ols": "Linear regression (least squares)",
    "ridge": "Ridge regression",
    "lasso": "Lasso",
    "pc": "Graph by PC",
    "ges": "Graph by GES",
    "notears": "Graph by NOTEARS",
    "golem-ev": "Graph by GOLEM (equal variances)",
    "golem-nv": "Graph by GOLEM",
    "gradient": "Regression by gradient rounds",
    "notears-admm-fast": "Graph by NOTEARS-ADMM, variant “fast”",
    "notears-admm-paper": "Graph by NOTEARS-ADMM, variant “paper”",
    "notears-mlp-admm-fast": "Nonlinear graph by NOTEARS-ADMM, variant “fast”",
    "notears-mlp-admm-paper": "Nonlinear graph by NOTEARS-ADMM, variant “paper”",
    "notears-vote": "Graph by vote of the sites' NOTEARS",
    "notears-average": "Graph by average of the sites' NOTEARS",
    "notears_mlp-vote": "Nonlinear graph by vote of the sites' NOTEARS-MLP",
    "notears_mlp-average": "Nonlinear graph by average of the sites' NOTEARS-MLP",
    "pc-vote": "Graph by vote of the sites' PC",
    "ges-vote": "Graph by vote of the sites' GES",
    "sparse-regression-collapsed": "Sparse Bayesian regression",
    "sparse-regression-paper": "Sparse Bayesian regression, step “paper”",
    "sparse-markov-collapsed": "Sparse Markov random field",
    "sparse-markov-paper": "Sparse Markov random field, step “paper”",
    "sparse-directed": "Sparse directed graph, cycles allowed",
    "fedlin-hm1": "FedLin HM1 regression",
    "fedlin-hm2": "FedLin HM2 regression",
    "fedlin-fedavg": "FedAvg regression",
    "fedlin-ditto": "Ditto regression",
}
_KINDS = {
    "terms": "regression",
    "edges": "graph",
    "columns": "description",
    "coefficients": "posterior",
    "pairs": "posterior graph",
    "arrows": "posterior graph",
    "across_sites": "sites",
}
"""Which table shows a summary, by the key that it has."""
_LABELS = {
    "n": "records",
    "rounds": "rounds of the method",
    "lr_chi_squared": "likelihood ratio χ²",
    "lr_dof": "likelihood ratio: degrees of freedom",
    "lr_p_value": "likelihood ratio: p-value",
    "mcfadden_r_squared": "McFadden's R²",
    "r_squared": "R²",
    "adjusted_r_squared": "adjusted R²",
    "residual_std_error": "residual standard error",
    "model_dof": "F: degrees of freedom",
    "residual_dof": "residual degrees of freedom",
    "f_statistic": "F",
    "f_p_value": "F: p-value",
    "aic": "AIC",
    "bic": "BIC",
    "gcv": "generalised cross-validation",
    "kkt_violation": "violation of optimality",
    "log_likelihood": "log-likelihood",
    "null_log_likelihood": "log-likelihood without predictors",
    "h": "acyclicity h",
    "rho": "penalty ρ",
    "shd": "structural Hamming distance",
    "tpr": "true positive rate",
    "fdr": "false discovery rate",
}
_LABELS |= {
    "widened": "length of intervals ÷ length without noise",
    "noise_ratio": "size of the noise ÷ least spread of the predictors",
    "r_hat": "agreement of the sampler's chains (R-hat)",
    "consensus_residual": "consensus residual",
    "threshold": "threshold applied",
    "evaluations": "evaluations of the acyclicity function",
    "scale": "columns divided by standard deviations",
    "outcome_deviation": "standard deviation of the outcome, within sites",
    "slab_sd": "standard deviation of the slab, median",
    "spike_sd": "standard deviation of the spike, median",
    "largest_r_hat": "largest R-hat",
    "least_ess_bulk": "least bulk ESS",
    "least_ess_tail": "least tail ESS",
    "largest_pip_mcse": "largest Monte Carlo error of a PIP",
    "combine": "PIP of a pair",
    "fdr_at_most": "Bayesian false discovery rate that was set",
    "noise_sd": "standard deviation of the noise, pooled over sites",
    "change": "relative change in the last round",
    "remaining": "relative change still to come",
    "sites_telling_noise": "sites with more records than coefficients",
    "distance": "distance of the shared posterior from where it goes",
    "hierarchy": "distribution of the sites' coefficients",
    "expected_fdr": "expected share of false ones among the edges",
}
_MEANINGS = {
    "widened": "1 would mean that noise does not show; the median of all predictors",
    "noise_ratio": "well below 1, the data decide; above 1 intervals rest on what is assumed "
    "beforehand",
    "consensus_residual": "how far the sites' solutions are, on average, from the graph's weights",
    "stationarity": "how far the graph is from a local optimum: the largest slope of the penalised "
    "loss over edges that close no cycle (of linear graphs, in units of correlations); 0 at one, "
    "which penalties that grow by a fixed factor need not reach",
    "shd": "missing, extra and reversed edges; an undirected edge over a true one costs nothing",
    "threshold": "raised above the setting only where cycles had to go",
    "r_hat": "intervals are computed by several independent random searches; at 1 they agree, "
    "above 1.05 do not rely on the intervals",
}
_MEANINGS |= {
    "largest_r_hat": "do the chains agree? 1 where they do; at most 1.01 is wanted, and beyond 1.1 "
    "nothing may be used",
    "least_ess_bulk": "effective sample size: how many independent draws would tell as much of "
    "means; 100 for each chain are wanted",
    "least_ess_tail": "the same of the ends of intervals",
    "combine": "union: the larger of its two sides; intersection: the smaller",
    "distance": "in its standard deviations, when rounds ended; well below 1 it has arrived",
    "remaining": "at a guess from the last changes, when rounds ended; near 0 more rounds change "
    "nothing",
    "expected_fdr": "the mean of 1 − PIP over the edges; the rate that was set bounds it",
}
_SHOWN_ELSEWHERE = {"method", "title", "outcome", "level", "converged", "status", "records"}
_SHOWN_ELSEWHERE |= {
    "failed",
    "incomplete_records",
    "records_error",
    "missing",
    "extra",
    "reversed",
}


@dataclass(frozen=True)
class Block:
    """One analysis of the pooled records; `alone` is the same analysis at each site by itself.

    apart: the settings that tell it from others by the same method, "" where there are none
    """

    summary: Summary
    alone: Mapping[str, Summary]
    apart: str = ""

    @property
    def kind(self) -> str:
        """Return which table it is shown in."""
        return next((kind for key, kind in _KINDS.items() if key in self.summary), "other")

    @property
    def title(self) -> str:
        """Return its heading."""
        if self.kind == "description":
            return "Means, spread and correlations"
        return method_in_words(self.summary) + (f", {self.apart}" if self.apart else "")

    @property
    def odds(self) -> bool:
        """Say whether the coefficients are logarithms of odds ratios."""
        return any("odds_ratio" in term for term in self.summary.get("terms", ()))

    @property
    def usable(self) -> bool:
        """Say whether the method reached its goal."""
        return usable(self.summary)

    @property
    def iterative(self) -> bool:
        """Say whether its method searches for an optimum, so that convergence is worth a line."""
        return "status" in self.summary or self.summary.get("weights") is not None

    @property
    def consensus(self) -> bool:
        """Say whether it ends where sites agree on an acyclic graph, whatever the slopes are."""
        return "consensus_residual" in self.summary.get("diagnostics", {})

    @property
    def notes(self) -> Sequence[str]:
        """Return what the method remarks on its own result."""
        notes: Sequence[str] = self.summary.get("notes", ())
        return notes

    def failures(self) -> dict[str, str]:
        """Return why a site by itself gets no estimate."""
        return {
            site: own.get("failed") or next(iter(own.get("notes", ())), str(own.get("status")))
            for site, own in self.alone.items()
            if not usable(own)
        }


def method_in_words(summary: Summary) -> str:
    """Return what a summary's method is called in a heading."""
    name = str(summary["method"])
    return _TITLES.get(name, name)


def usable(summary: Summary) -> bool:
    """Say whether a summary holds estimates that may be used."""
    return "failed" not in summary and bool(summary.get("converged", True))


def blocks(summary: Summary) -> list[Block]:
    """Return the analyses of a result, in the order of the job."""
    alone: Mapping[str, Summary] = summary.get("simulation", {}).get("site_alone", {})
    if "analyses" not in summary:
        return [Block(summary, alone)]
    analyses = summary["analyses"]
    return [
        Block(
            analysis,
            {s: own if "failed" in own else own["analyses"][i] for s, own in alone.items()},
            _apart(analysis, analyses),
        )
        for i, analysis in enumerate(analyses)
    ]


def _apart(analysis: Summary, analyses: Sequence[Summary]) -> str:
    """Return the settings of a graph that differ among those by its method."""
    own: Mapping[str, Any] = analysis.get("settings", {})
    alike = [a["settings"] for a in analyses if a["method"] == analysis["method"] and "edges" in a]
    differing = [key for key in own if any(other.get(key) != own[key] for other in alike)]
    return ", ".join(
        f"{key.replace('_', ' ')} {written.any_setting(own[key])}" for key in differing
    )


def records_of(summary: Summary) -> tuple[int, float]:
    """Return the best known number of records of a noised run, and its noise's deviation.

    A method that releases the number once more, among its moments, has made one of the two.
    """
    if "n_error" in summary:
        return int(summary["n"]), float(summary["n_error"])
    return int(summary["records"]), float(summary["records_error"])


def other_counts(summary: Summary) -> list[str]:
    """Return the numbers of records that analyses went by, where not by the best known one.

    Only least squares allows for the noise. The others need moments that a table can have, where
    the number of records is a whole one, and more if the moments were repaired.
    """
    best, _ = records_of(summary)
    used = {int(block.summary.get("n", best)) for block in blocks(summary)}
    return [written.count(n) for n in sorted(used - {best})]


def statistics(summary: Summary, *, noised: bool) -> list[tuple[str, str, str]]:
    """Return every single number of a summary that no other table shows: label, value, meaning.

    noised: whether the number of records has noise; then the page shows it once, for all analyses
    """
    elsewhere = _SHOWN_ELSEWHERE | ({"n"} if noised else set())
    single: dict[str, Any] = {
        **summary.get("score", {}),
        **summary,
        **summary.get("diagnostics", {}),
    }
    found = [
        (
            _LABELS.get(key, key.replace("_", " ")),
            written.any_number(key, value),
            _MEANINGS.get(key, ""),
        )
        for key, value in single.items()
        if key not in elsewhere and isinstance(value, int | float | str)
    ]
    asked = summary.get("settings", {}).items()
    return found + [
        (f"setting: {key.replace('_', ' ')}", written.any_setting(value), "")
        for key, value in asked
    ]


def within_sites(description: Summary) -> bool:
    """Say whether each site took off its own means, so that there are none to show."""
    return all(column["mean"] is None for column in description["columns"])


def description_table(summary: Summary) -> list[dict[str, Any]]:
    """Return the rows of a table of means, deviations and correlations (below the diagonal)."""
    rows = []
    for i, column in enumerate(summary["columns"]):
        error = None if column["sd"] is None else column["sd"] / math.sqrt(summary["n"])
        rows.append(
            {
                "column": column["column"],
                "mean": written.by_error(column["mean"], error),
                "sd": written.significant(column["sd"], 3),
                "correlations": [written.fixed(r, 2) for r in summary["correlation"][i][:i]],
            }
        )
    return rows
