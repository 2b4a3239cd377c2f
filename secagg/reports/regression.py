"""A regression, arranged for reading: its table of coefficients and its forest plot.

The plot has a panel a term: the estimate of all sites together, and in simulations that of each
site by itself. A site without an estimate keeps its line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.models.common.coefficient_table import INTERCEPT
from secagg.reports import numbers as written
from secagg.reports.results import Block, Summary, usable
from secagg.reports.svg.forest_plot import Interval, Scale, reach_of


@dataclass(frozen=True)
class Row:
    """One line of a forest plot: where, how many records, the numbers drawn and as written."""

    label: str
    records: int | None
    interval: Interval | None
    estimate: str
    between: str


@dataclass(frozen=True)
class Panel:
    """One term of a forest plot, the pooled estimate first."""

    term: str
    unit: str
    scale: Scale
    rows: tuple[Row, ...]


def unit_of(term: str, columns: Mapping[str, Any]) -> str:
    """Return what a coefficient is for: one unit of a continuous column, or a level of another."""
    if term in columns and columns[term]["type"] == "continuous":
        unit = columns[term]["unit"] or "its unit"
        return f"logarithm, in {unit}" if columns[term]["transform"] == "log" else f"in {unit}"
    for name, column in columns.items():
        reference, *others = column.get("levels", ("",))
        for level in others:
            if term == f"{name}={level}":
                return f"against {reference}"
            if term == name:
                return f"{level} against {reference}"
    return ""


def coefficient_table(block: Block, columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a regression table, written."""
    return [
        {
            "term": term["term"],
            "unit": unit_of(term["term"], columns),
            "estimate": written.by_error(term["estimate"], term["std_error"]),
            "error": written.significant(term["std_error"], 2),
            "statistic": written.fixed(term["statistic"], 2),
            "p": written.p_value(term["p_value"]),
            "interval": written.interval(
                written.by_error(term["ci_low"], term["std_error"]),
                written.by_error(term["ci_high"], term["std_error"]),
            ),
            "odds": _effect(term, odds=True)[1:] if block.odds else None,
        }
        for term in block.summary["terms"]
    ]


def panels(block: Block, columns: Mapping[str, Any]) -> list[Panel]:
    """Return the forest plot of a regression: a panel a term, without the intercept.

    Empty where the pooled estimates mean nothing, or there is neither interval nor comparison.
    """
    terms: Sequence[Summary] = block.summary["terms"]
    if not block.usable or not (block.alone or any(t["ci_low"] is not None for t in terms)):
        return []
    found = []
    for term in terms:
        if term["term"] == INTERCEPT:
            continue
        rows = [_row("All sites", block.summary, term["term"], block.odds)]
        rows += [_row(s, own, term["term"], block.odds) for s, own in block.alone.items()]
        drawn = [row.interval for row in rows]
        scale = reach_of(drawn[0], drawn[1:], log=block.odds)
        name = term["term"]
        found.append(Panel(name, unit_of(name, columns), scale, tuple(rows)))
    return found


def _row(label: str, summary: Summary, name: str, odds: bool) -> Row:
    records = summary.get("n")
    if not usable(summary):
        return Row(label, records, None, "no estimate", "")
    term = next((t for t in summary["terms"] if t["term"] == name), None)
    if term is None:
        return Row(label, records, None, "no estimate", "")
    return Row(label, records, *_effect(term, odds))


def _effect(term: Summary, odds: bool) -> tuple[Interval | None, str, str]:
    """Return what is drawn of a term, and its estimate and interval as written."""
    if odds:
        values = [term["odds_ratio"], term["odds_low"], term["odds_high"]]
        error = None if None in (values[0], term["std_error"]) else values[0] * term["std_error"]
        texts = [written.ratio(value, error) for value in values]
    else:
        values = [term["estimate"], term["ci_low"], term["ci_high"]]
        texts = [written.by_error(value, term["std_error"]) for value in values]
    return Interval.of(*values), texts[0], written.interval(*texts[1:])
