"""How reports show learned graphs, and whether their arrows may be read as causes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from secagg.contracts import Label, ResultTable, TableKind

_LABELS: Final[Mapping[str, Label]] = {
    "h": ("acyclicity h", ""),
    "rho": ("penalty ρ", ""),
    "threshold": ("threshold applied", "above the setting only if cycles had to be removed"),
    "evaluations": ("evaluations of the acyclicity function", ""),
    "penalty": ("penalty", "of standardised columns"),
    "ebic": ("extended BIC", ""),
    "edges": ("edges", ""),
    "effective_records": (
        "effective records",
        "by which edges are chosen; fewer than there are if moments have noise",
    ),
    "shd": (
        "structural Hamming distance",
        "missing, extra and reversed edges; an undirected edge over a true one costs nothing",
    ),
    "tpr": ("true positive rate", ""),
    "fdr": ("false discovery rate", ""),
}

_ARROWS = "Arrows point as the method directs them"
_NETWORKS = "size of the networks' first layer, without sign"


def linear_table(
    title: str,
    *,
    standardised: bool,
    labels: Mapping[str, Label] | None = None,
    converged: str = "",
) -> ResultTable:
    """Return the table of a graph of linear effects, found by a penalised score.

    Such scores identify directions by variances, if at all; standardised columns have equal
    variances (Reisach, Seiler and Weichwald, NeurIPS 2021).
    """
    evidence = "which standardised columns identify only weakly"
    if not standardised:
        evidence = "in own units mostly by the columns' variances, so other units may reverse them"
    arrows = f", {evidence}: do not read arrows as causes, even if no common cause is missing"
    unit = "standard deviations" if standardised else "the columns' own units"
    return _table(title, labels, converged, arrows, unit)


def other_table(
    title: str,
    *,
    networks: bool = False,
    labels: Mapping[str, Label] | None = None,
    converged: str = "",
) -> ResultTable:
    """Return the table of a graph from independence tests, from GES, or of networks.

    networks: whether the weights are those of networks; otherwise there are no weights
    """
    arrows = "; to read them as causes assumes that no common cause is left out"
    return _table(title, labels, converged, arrows, _NETWORKS if networks else "")


def undirected_table(title: str) -> ResultTable:
    """Return the table of a Gaussian graphical model."""
    caption = "Edges have no direction: two columns are dependent given all others"
    return ResultTable(title, TableKind.GRAPH, _LABELS, "", caption, "partial correlations")


def _table(
    title: str, labels: Mapping[str, Label] | None, converged: str, arrows: str, unit: str
) -> ResultTable:
    all_labels = {**_LABELS, **(labels or {})}
    return ResultTable(title, TableKind.GRAPH, all_labels, converged, f"{_ARROWS}{arrows}", unit)
