"""The tables of a sparse Bayesian model: coefficients or pairs, and the prior they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from secagg.contracts import TableKind
from secagg.reports.posterior import (
    Pair,
    ess_in_words,
    mean_and_interval,
    pairs_of,
    prior_in_words,
    sampler_in_words,
    unit_analysed,
    widths_in_words,
)
from secagg.reports.results import Block

SAMPLED = ("R-hat", "ESS,\nbulk / tail")
"""Heads of what `sampled` returns."""
DIGITS = "digits as far as Monte Carlo errors support them"
_MAX_LISTED = 10  # pairs of a graph that are no edges


def show_posterior(out: Console, block: Block) -> None:
    """Print a regression's coefficients, or a graph's pairs; then the prior and the sampler."""
    analysis = block.summary
    if block.kind is TableKind.POSTERIOR:
        out.print(_coefficients(analysis, block.title))
    else:
        out.print(_pairs(analysis, block.title))
    for words in (widths_in_words, prior_in_words, sampler_in_words):
        out.print(Padding(f"[dim]{escape(words(analysis))}[/]", (0, 0, 0, 2), expand=False))


def _coefficients(analysis: Mapping[str, Any], title: str) -> Table:
    """Return a table like Table 1 of Kidd, Wang, Xu and Ni (PSB 2023), with errors."""
    own = all("own_units" in row for row in analysis["coefficients"])
    interval = f"{100 * analysis['level']:g}% interval"
    table = Table(
        title=f"{escape(title)} of {escape(analysis['outcome'])}",
        caption=f"mean and interval in {unit_analysed(analysis)}; {DIGITS}",
    )
    table.add_column("term", no_wrap=True)
    for name in ("mean", interval, "PIP +- MCSE", *SAMPLED):
        table.add_column(name, justify="right", no_wrap=True)
    if own:
        table.add_column("in own units", justify="right")
    for row in analysis["coefficients"]:
        units = [" ".join(estimated(row, in_own_units=True))] if own else []
        pip = f"{row['pip']:.3f} +- {row['pip_mcse']:.3f}"
        table.add_row(escape(row["term"]), *estimated(row), pip, *sampled([row]), *units)
    return table


def _pairs(analysis: Mapping[str, Any], title: str) -> Table:
    """Return a graph's edges, and the likeliest of the other pairs; both sides of an undirected."""
    pairs = pairs_of(analysis)
    edges = [pair for pair in pairs if pair.edge]
    shown = edges + [pair for pair in pairs if not pair.edge][:_MAX_LISTED]
    left, directed = len(pairs) - len(shown), "arrows" in analysis
    what = "arrows" if directed else "pairs"
    table = Table(
        title=f"{escape(title)}: {len(edges)} of {len(pairs)} {what} are edges "
        f"(Bayesian false discovery rate at most {analysis['fdr_at_most']:g})",
        caption=("" if directed else "of a pair a - b: first a explained by b, then b by a; ")
        + f"means in {unit_analysed(analysis)}; {DIGITS}"
        + (f"; {left} less likely {what} are in result.json" if left else ""),
    )
    table.add_column("from -> to" if directed else "pair", no_wrap=True)
    table.add_column("edge", no_wrap=True)
    told = ["PIP", "both PIPs +- MCSE", "both means", "partial r"]
    if directed:
        told = ["PIP +- MCSE", "mean", f"{100 * analysis['level']:g}% interval"]
    for name in (*told, *SAMPLED):
        table.add_column(name, justify="right", no_wrap=True)
    for pair in shown:
        name = f"{pair.source} {'->' if pair.directed else '-'} {pair.target}"
        cells = _of_arrow(pair.sides[0]) if directed else _of_pair(pair)
        style = None if pair.edge else "dim"
        edge = "yes" if pair.edge else ""
        table.add_row(escape(name), edge, *cells, *sampled(pair.sides), style=style)
    return table


def _of_arrow(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['pip']:.3f} +- {row['pip_mcse']:.3f}", *estimated(row)]


def _of_pair(pair: Pair) -> list[str]:
    error = max(side["pip_mcse"] for side in pair.sides)
    pips = " / ".join(f"{side['pip']:.2f}" for side in pair.sides)
    means = " / ".join(estimated(side)[0] for side in pair.sides)
    partial = "-" if pair.weight is None else f"{pair.weight:.2f}"
    return [f"{pair.pip:.3f}", f"{pips} +- {error:.2f}", means, partial]


def estimated(
    row: Mapping[str, Any], *, in_own_units: bool = False, middle: str = "mean"
) -> tuple[str, str]:
    """Return the mean (or the middle named), and the interval, with the digits that they have."""
    told = mean_and_interval(row, in_own_units=in_own_units, middle=middle)
    number, ends = (text.replace("−", "-").replace(",", "") for text in told)
    return number, f"({ends.replace(' to ', ', ')})"


def sampled(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the largest R-hat, and the least bulk and tail effective sample sizes."""
    agreements = [row["r_hat"] for row in rows if row["r_hat"] is not None]
    return f"{max(agreements):.3f}" if agreements else "-", ess_in_words(rows)
