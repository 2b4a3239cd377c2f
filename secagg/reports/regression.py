"""The tables of a regression: coefficients, and the forest plot.

The plot has a panel for each term: the estimate of all sites together, and in simulations that of
each site alone. Sites whose fit failed are named above the plot, and have no lines in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.evidence import numbers as written
from secagg.models.common.coefficient_table import INTERCEPT, ratios_of
from secagg.reports.results import Block, Summary, usable
from secagg.reports.svg.forest_plot import Interval, Scale, scale_for


@dataclass(frozen=True)
class Row:
    """One line of a forest plot: label, number of records, the interval drawn and in text."""

    label: str
    records: int | None
    interval: Interval | None
    estimate: str
    written_interval: str


@dataclass(frozen=True)
class Panel:
    """One term of a forest plot, the pooled estimate first."""

    term: str
    unit: str
    scale: Scale
    rows: tuple[Row, ...]

    @property
    def cut(self) -> bool:
        """Whether an interval goes beyond the scale."""
        return any(self.scale.cuts(row.interval) for row in self.rows)

    def weight(self, row: Row) -> float:
        """Return a site's records as a share of the largest site's; 1 if they are not known."""
        most = max((other.records or 0 for other in self.rows[1:]), default=0)
        return row.records / most if row.records and most else 1.0


def unit_of(term: str, columns: Mapping[str, Any]) -> str:
    """Return a coefficient's unit: one unit of a continuous column, or a level against another."""
    if term in columns and "levels" not in columns[term]:
        unit = columns[term]["unit"] or "its unit"
        return f"logarithm, in {unit}" if columns[term].get("transform") == "log" else f"in {unit}"
    for name, column in columns.items():
        reference, *others = column.get("levels", ("",))
        for level in others:
            if term == f"{name}={level}":
                return f"against {reference}"
            if term == name:
                return f"{level} against {reference}"
    return ""


def coefficient_table(block: Block, columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a regression table in text."""
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
            "ratio": effect(term, block.effect)[1:] if block.effect else None,
            "per_sd": per_sd(term, block.effect, columns),
        }
        for term in block.summary["terms"]
    ]


def outcome_in_words(block: Block, columns: Mapping[str, Any]) -> dict[str, str]:
    """Return the outcome's name, the unit of its coefficients, and what lies left and right."""
    name = block.summary["outcome"]
    column = columns.get(name, {})
    what, unit = name, column.get("unit") or ""
    if column.get("type") == "binary":
        what = f"{name} = {column['levels'][1]}" if column["levels"][1] not in ("1", 1) else name
    if of := block.effect:
        return {"what": what, "unit": "", "less": f"lower {of}", "more": f"higher {of} of {what}"}
    return {"what": what, "unit": unit, "less": "lower", "more": f"higher {what}"}


def panels(block: Block, columns: Mapping[str, Any]) -> list[Panel]:
    """Return the forest plot of a regression: a panel for each term except the intercept.

    Empty if the result is not usable, or there is neither an interval nor a comparison.
    """
    terms: Sequence[Summary] = block.summary["terms"]
    if not block.usable or not (block.alone or any(t["ci_low"] is not None for t in terms)):
        return []
    fits = {site: own for site, own in block.alone.items() if usable(own)}
    shown = []
    for name in (term["term"] for term in terms if term["term"] != INTERCEPT):
        rows = [_row("All sites", block.summary, name, block.effect)]
        rows += [_row(site, own, name, block.effect) for site, own in fits.items()]
        intervals = [row.interval for row in rows]
        scale = scale_for(intervals[:1], intervals[1:], log=bool(block.effect))
        shown.append(Panel(name, unit_of(name, columns), scale, tuple(rows)))
    return shown


def _row(label: str, summary: Summary, name: str, of: str) -> Row:
    term = next((t for t in summary["terms"] if t["term"] == name), None)
    if term is None:
        return Row(label, summary.get("n"), None, "no estimate", "")
    return Row(label, summary.get("n"), *effect(term, of))


def effect(term: Summary, of: str) -> tuple[Interval | None, str, str]:
    """Return a term's interval to draw, its estimate in text, and its interval in text.

    of: "odds" for the odds ratio, `Block.effect` in general; "" for the coefficient
    """
    return _effect(term, term["std_error"], of)


def per_sd(term: Summary, of: str, columns: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return a predictor's standard deviation, and its effect per standard deviation with interval.

    None for an indicator, for which one level against another is the readable effect, and where
    standard deviations are not known.
    """
    scaled, name = term.get("per_sd"), term["term"]
    if scaled is None or "levels" in columns.get(name, {"levels": ()}):
        return None
    error = None if term["std_error"] is None else term["std_error"] * scaled["sd"]
    return written.significant(scaled["sd"], 3), *_effect(scaled, error, of)[1:]


def _effect(term: Summary, error: float | None, of: str) -> tuple[Interval | None, str, str]:
    """Return an estimate with its interval to draw, both in text; error: its standard error."""
    logs = [term["estimate"], term["ci_low"], term["ci_high"]]
    if not of:
        texts = [written.by_error(value, error) for value in logs]
        return Interval.of(*logs), texts[0], written.interval(*texts[1:])
    values = ratios_of(term, of)
    ratio_error = None if values[0] is None or error is None else values[0] * error
    texts = [
        written.exponential(value, log, error, ratio_error)
        for value, log in zip(values, logs, strict=True)
    ]
    return Interval.of(*values), texts[0], written.interval(*texts[1:])
