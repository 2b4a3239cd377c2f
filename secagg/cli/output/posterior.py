"""The tables of a sparse Bayesian model: coefficients or pairs, and the prior they depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from secagg.cli.output.tables import Table
from secagg.cli.output.terminal import Paragraph
from secagg.contracts import TableKind
from secagg.evidence.numbers import NONE, declared, fixed, share
from secagg.reports.posterior import (
    WITHHELD,
    Pair,
    ess_in_words,
    is_surrogate,
    is_withheld,
    mean_and_interval,
    pairs_of,
    prior_in_words,
    sampler_in_words,
    unit_analysed,
    widths_in_words,
)
from secagg.reports.results import Block

DIGITS = "digits as far as Monte Carlo errors support them"
_MAX_LISTED = 10  # pairs of a graph that are no edges


def add_sampler_columns(table: Table) -> None:
    """Add the columns of what `sampler_cells` returns."""
    for head in ("R-hat", Text("ESS,\nbulk / tail")):
        table.add_column(head, justify="right")


def show_posterior(out: Console, block: Block) -> None:
    """Print a regression's coefficients, or a graph's pairs; then the prior and the sampler."""
    analysis = block.summary
    if block.kind is TableKind.POSTERIOR:
        out.print(_coefficients(analysis, block.title))
    elif is_withheld(block):
        out.print(f"{escape(block.title)}: {WITHHELD}")
    else:
        out.print(_pairs(analysis, block.title))
    for words in (widths_in_words, prior_in_words, sampler_in_words):
        out.print(Paragraph(f"[dim]{escape(words(analysis))}[/]", indent=2))


def _coefficients(analysis: Mapping[str, Any], title: str) -> Table:
    """Return a table like Table 1 of Kidd, Wang, Xu and Ni (PSB 2023), with errors."""
    own = all("own_units" in row for row in analysis["coefficients"])
    level = f"{share(analysis['level'])} interval"
    table = Table(
        title=f"{escape(title)} of {escape(analysis['outcome'])}",
        caption=f"mean and interval in {unit_analysed(analysis)}; {DIGITS}",
    )
    table.add_column("term")
    for name in ("mean", level, "PIP ± MCSE"):
        table.add_column(name, justify="right")
    add_sampler_columns(table)
    if own:
        table.add_column("in own units", justify="right")
    for row in analysis["coefficients"]:
        units = [in_parentheses(*mean_and_interval(row, in_own_units=True))] if own else []
        cells = (*mean_and_interval(row), _pip(row), *sampler_cells([row]), *units)
        table.add_row(escape(row["term"]), *cells)
    return table


def _pairs(analysis: Mapping[str, Any], title: str) -> Table:
    """Return a graph's edges and the likeliest other pairs; an undirected pair has two sides."""
    pairs = pairs_of(analysis)
    edges = [pair for pair in pairs if pair.edge]
    shown = edges + [pair for pair in pairs if not pair.edge][:_MAX_LISTED]
    omitted, directed = len(pairs) - len(shown), "arrows" in analysis
    one = directed or is_surrogate(analysis)
    means = "are partial correlations"
    if not is_surrogate(analysis):
        means = f"in {unit_analysed(analysis)}"
    what = "arrows" if directed else "pairs"
    table = Table(
        title=f"{escape(title)}: {len(edges)} of {len(pairs)} {what} are edges "
        f"(Bayesian false discovery rate at most {declared(analysis['fdr_at_most'])})",
        caption=("" if one else "of a pair a - b: first a explained by b, then b by a; ")
        + f"means {means}; {DIGITS}"
        + (f"; {omitted} less likely {what} are in result.json" if omitted else ""),
    )
    table.add_column("from -> to" if directed else "pair")
    table.add_column("edge")
    heads = ["PIP", "both PIPs ± MCSE", "both means", "partial r"]
    if one:
        heads = ["PIP ± MCSE", "mean", f"{share(analysis['level'])} interval"]
    for name in heads:
        table.add_column(name, justify="right")
    add_sampler_columns(table)
    for pair in shown:
        name = f"{pair.source} {'->' if pair.directed else '-'} {pair.target}"
        cells = _arrow_cells(pair.sides[0]) if one else _pair_cells(pair)
        style = None if pair.edge or pair.undecided else "dim"
        edge = "yes" if pair.edge else "undecided" if pair.undecided else ""
        table.add_row(escape(name), edge, *cells, *sampler_cells(pair.sides), style=style)
    return table


def _arrow_cells(row: Mapping[str, Any]) -> list[str]:
    return [_pip(row), *mean_and_interval(row)]


def _pair_cells(pair: Pair) -> list[str]:
    error = max(side["pip_mcse"] for side in pair.sides)
    pips = " / ".join(fixed(side["pip"], 2) for side in pair.sides)
    means = " / ".join(mean_and_interval(side)[0] for side in pair.sides)
    return [fixed(pair.pip, 3), f"{pips} ± {fixed(error, 2)}", means, fixed(pair.weight, 2)]


def _pip(row: Mapping[str, Any]) -> str:
    return f"{fixed(row['pip'], 3)} ± {fixed(row['pip_mcse'], 3)}"


def in_parentheses(estimate: str, interval: str) -> str:
    """Return `estimate (interval)`, for one cell."""
    return f"{estimate} ({interval})"


def sampler_cells(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the largest R-hat, and the smallest bulk and tail effective sample sizes."""
    r_hats = [row["r_hat"] for row in rows if row["r_hat"] is not None]
    return fixed(max(r_hats), 3) if r_hats else NONE, ess_in_words(rows)
