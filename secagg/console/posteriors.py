"""The tables of a sparse Bayesian model: coefficients or pairs, and the prior they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from secagg.audits.posteriors import (
    Pair,
    pairs_of,
    prior_in_words,
    sampler_in_words,
    unit_analysed,
    widths_in_words,
)
from secagg.console.terminal import number

_MOST_LISTED = 10  # pairs of a graph that are no edges


def show_posterior(
    out: Console, analysis: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]
) -> None:
    """Print a regression's coefficients, or a graph's pairs; then the prior and the sampler."""
    if "coefficients" in analysis:
        out.print(_coefficients(analysis))
        if others:
            out.print(_alone(analysis, others))
    else:
        out.print(_pairs(analysis))
    for words in (widths_in_words, prior_in_words, sampler_in_words):
        out.print(Padding(f"[dim]{escape(words(analysis))}[/]", (0, 0, 0, 2), expand=False))


def _coefficients(analysis: Mapping[str, Any]) -> Table:
    """Return a table like Table 1 of Kidd, Wang, Xu and Ni (PSB 2023), with errors."""
    own = all("own_units" in row for row in analysis["coefficients"])
    interval = f"{100 * analysis['level']:g}% interval"
    table = Table(
        title=f"{analysis['method']} of {escape(analysis['outcome'])}",
        caption=f"mean and interval in {unit_analysed(analysis)}",
    )
    table.add_column("term", no_wrap=True)
    for name in ("mean", interval, "PIP +- MCSE", "R-hat", "ESS"):
        table.add_column(name, justify="right", no_wrap=True)
    if own:
        table.add_column("in own units", justify="right")
    for row in analysis["coefficients"]:
        units = [_with_interval(row["own_units"], " ")] if own else []
        mean, ends = _with_interval(row, "|").split("|")
        pip = f"{row['pip']:.3f} +- {row['pip_mcse']:.3f}"
        table.add_row(escape(row["term"]), mean, ends, pip, *_sampled([row]), *units)
    return table


def _alone(analysis: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return what each site finds by itself, which only a simulation can show."""
    table = Table(title="each site by itself: mean, and PIP", style="dim")
    table.add_column("term", no_wrap=True)
    for site in others:
        table.add_column(escape(site), justify="right", style="dim")
    for i, row in enumerate(analysis["coefficients"]):
        own = [result["coefficients"][i] for result in others.values()]
        cells = [f"{number(each['mean'])}, {each['pip']:.2f}" for each in own]
        table.add_row(escape(row["term"]), *cells)
    return table


def _pairs(analysis: Mapping[str, Any]) -> Table:
    """Return a graph's edges, and the likeliest of the other pairs; both sides of an undirected."""
    pairs = pairs_of(analysis)
    edges = [pair for pair in pairs if pair.edge]
    shown = edges + [pair for pair in pairs if not pair.edge][:_MOST_LISTED]
    left, directed = len(pairs) - len(shown), "arrows" in analysis
    what = "arrows" if directed else "pairs"
    table = Table(
        title=f"{analysis['method']}: {len(edges)} of {len(pairs)} {what} are edges "
        f"(Bayesian false discovery rate at most {analysis['fdr_at_most']:g})",
        caption=f"means in {unit_analysed(analysis)}"
        + (f"; {left} less likely {what} are in result.json" if left else ""),
    )
    table.add_column("from -> to" if directed else "pair", no_wrap=True)
    table.add_column("edge", no_wrap=True)
    told = ["PIP", "both PIPs +- MCSE", "both means", "partial r"]
    if directed:
        told = ["PIP +- MCSE", "mean", f"{100 * analysis['level']:g}% interval"]
    for name in (*told, "R-hat", "ESS"):
        table.add_column(name, justify="right", no_wrap=True)
    for pair in shown:
        name = f"{pair.source} {'->' if pair.directed else '-'} {pair.target}"
        cells = _of_arrow(pair.sides[0]) if directed else _of_pair(pair)
        style = None if pair.edge else "dim"
        edge = "yes" if pair.edge else ""
        table.add_row(escape(name), edge, *cells, *_sampled(pair.sides), style=style)
    return table


def _of_arrow(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['pip']:.3f} +- {row['pip_mcse']:.3f}", *_with_interval(row, "|").split("|")]


def _of_pair(pair: Pair) -> list[str]:
    error = max(side["pip_mcse"] for side in pair.sides)
    pips = " / ".join(f"{side['pip']:.2f}" for side in pair.sides)
    means = " / ".join(f"{side['mean']:.2f}" for side in pair.sides)
    partial = "-" if pair.weight is None else f"{pair.weight:.2f}"
    return [f"{pair.pip:.3f}", f"{pips} +- {error:.2f}", means, partial]


def _with_interval(row: Mapping[str, Any], between: str) -> str:
    return f"{number(row['mean'])}{between}({number(row['low'])}, {number(row['high'])})"


def _sampled(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the largest R-hat, and the least bulk or tail effective sample size."""
    agreements = [row["r_hat"] for row in rows if row["r_hat"] is not None]
    sizes = [row[name] for row in rows for name in ("ess_bulk", "ess_tail")]
    least = [size for size in sizes if size is not None]
    return (
        f"{max(agreements):.3f}" if agreements else "-",
        f"{min(least):.0f}" if least else "-",
    )
