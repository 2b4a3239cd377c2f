"""The coefficients of a regression on a terminal, as wide as it is.

The first layout that fits is used: one table; one with each interval below its estimate; or, with
single sites, a table of all sites together and further tables of as many sites as fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from secagg.cli.output.tables import Table
from secagg.evidence.numbers import p_value, share
from secagg.reports.regression import effect, per_sd
from secagg.reports.results import Block
from secagg.reports.site_agreement import in_short


def show_terms(
    out: Console,
    block: Block,
    site_results: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, Any],
) -> None:
    """Print a regression's coefficients, and those of each site alone.

    columns: those that the job declares, by the names to show
    """
    terms = [term["term"] for term in block.summary["terms"]]
    pooled = _pooled_cells(block, columns)
    alone = {f"{site} alone": _cells_of(result, block) for site, result in site_results.items()}
    title = f"{_title(block)} ({_interval_words(block)})"
    caption = "per SD: for one standard deviation of a continuous predictor"
    if "per SD" not in pooled:
        caption = ""
    tables = [_table(title, terms, pooled | alone, "\n", caption)] if alone else []
    tables += [_table(title, terms, pooled, separator, caption) for separator in " \n"]
    chosen = next((table for table in tables if table.fits(out)), tables[-1])
    out.print(chosen)
    left = [] if alone and chosen is tables[0] else list(alone)
    title = f"{_title(block)}, each site alone"
    while left:
        for number in range(len(left), 0, -1):
            table = _table(title, terms, {name: alone[name] for name in left[:number]}, "\n")
            if table.fits(out):
                break
        out.print()
        out.print(table)
        left = left[number:]
    if differ := in_short(block):
        out.print(escape(differ), style="yellow")


_Cells = Mapping[str, Sequence[tuple[str, str]]]
"""For each column's name: the estimate and the interval of each term."""


def _table(
    title: str, terms: Sequence[str], cells: _Cells, separator: str, caption: str = ""
) -> Table:
    """Return a table of estimates; separator: between an estimate and its interval."""
    table = Table(title=escape(title), caption=caption)
    table.add_column("term")
    for name in cells:
        style = "dim" if name.endswith(" alone") else ""
        table.add_column(escape(name), justify="right", style=style)
    for i, term in enumerate(terms):
        texts = [_with_interval(*column[i], separator) for column in cells.values()]
        table.add_row(escape(term), *texts)
    return table


def _pooled_cells(block: Block, columns: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Return the columns of all sites together."""
    terms = block.summary["terms"]
    cells = {"all sites": [effect(term, block.effect)[1:] for term in terms]}
    scaled = [per_sd(term, block.effect, columns) for term in terms]
    if any(scaled):
        cells["per SD"] = [scale[1:] if scale else ("–", "") for scale in scaled]
    cells["p"] = [(p_value(term["p_value"]), "") for term in terms]
    return cells


def _cells_of(result: Mapping[str, Any], block: Block) -> list[tuple[str, str]]:
    """Return the column of a site alone, for the terms of all sites together."""
    own = {term["term"]: term for term in result.get("terms", [])}
    return [
        effect(own[name], block.effect)[1:] if (name := term["term"]) in own else ("–", "")
        for term in block.summary["terms"]
    ]


def _title(block: Block) -> str:
    return f"{block.title} of {block.summary['outcome']}: {block.effect_name}"


def _interval_words(block: Block) -> str:
    level = block.summary.get("level")
    return "no interval" if level is None else f"{share(level)} interval"


def _with_interval(estimate: str, interval: str, separator: str) -> Text:
    """Return `estimate (low to high)`, with `separator` before the interval."""
    return Text(f"{estimate}{separator}({interval})" if interval else estimate)
