"""The tables of a result: coefficients, edges, means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from secagg.cli.output.fedlin import show_sites
from secagg.cli.output.posterior import show_posterior
from secagg.cli.output.terminal import number
from secagg.contracts import TableKind
from secagg.reports.results import Block, statistics, within_sites


def show_analysis(
    out: Console, block: Block, others: Mapping[str, Mapping[str, Any]], *, noised: bool
) -> None:
    """Print one analysis in the table that its method declares; others: the sites' own."""
    analysis, name = block.summary, block.title
    mark = "" if analysis.get("converged", True) else "[bold red]![/] "
    if mark:
        show_mistrust(out, name, analysis["notes"])
    if "failed" in analysis:
        out.print(f"[bold red]{escape(name)} failed: {escape(analysis['failed'])}[/]")
    else:
        match block.kind:
            case TableKind.REGRESSION:
                out.print(_terms_table(block, others))
            case TableKind.POSTERIOR | TableKind.POSTERIOR_GRAPH:
                show_posterior(out, block)
            case TableKind.SITES:
                show_sites(out, block)
            case TableKind.GRAPH:
                out.print(f"{mark}{_edges_line(analysis, name)}")
            case TableKind.DESCRIPTION:
                out.print(_description_table(analysis))
            case TableKind.NUMBERS:
                out.print(_numbers_table(block, noised=noised))
    if not mark and analysis.get("notes"):
        show_notes(out, name, analysis["notes"])


def show_mistrust(out: Console, name: str, why: Sequence[str]) -> None:
    """Print that a result is not to be relied on."""
    out.print(f"[bold red]! {escape(name)}: do not rely on this result[/]")
    for note in why:
        out.print(Padding(f"[red]- {escape(note)}[/]", (0, 0, 0, 2), expand=False))


def show_notes(out: Console, name: str, notes: Sequence[str]) -> None:
    """Print notes on a result that may be used."""
    out.print(f"[dim]notes on {escape(name)}:[/]")  # not the next one's caption
    for note in notes:
        out.print(Padding(f"[dim]- {escape(note)}[/]", (0, 0, 0, 2), expand=False))


def _terms_table(block: Block, others: Mapping[str, Mapping[str, Any]]) -> Table:
    analysis = block.summary
    odds = "odds_ratio" in analysis["terms"][0]
    what = "odds ratio" if odds else "coefficient"
    level = f"{100 * analysis['level']:g}% interval" if "level" in analysis else "no interval"
    outcome = escape(analysis["outcome"])
    table = Table(title=f"{escape(block.title)} of {outcome}: {what} ({level})")
    table.add_column("term", no_wrap=True)
    table.add_column("pooled", justify="right", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    for site in others:
        table.add_column(f"{escape(site)} alone", justify="right", style="dim")
    own = {
        site: {term["term"]: term for term in result.get("terms", [])}
        for site, result in others.items()
    }
    for term in analysis["terms"]:
        cells = [_estimate(own[site].get(term["term"]), odds, "\n") for site in others]
        p = term.get("p_value")
        shown = "" if p is None else ("<.0001" if p < 1e-4 else f"{p:.4f}")
        table.add_row(escape(term["term"]), _estimate(term, odds, " "), shown, *cells)
    return table


def _estimate(term: Mapping[str, Any] | None, odds: bool, between: str) -> str:
    """Return `estimate (low, high)`, with `between` before the interval."""
    if term is None:
        return "-"
    keys = ("odds_ratio", "odds_low", "odds_high") if odds else ("estimate", "ci_low", "ci_high")
    middle, low, high = (term.get(key) for key in keys)
    if low is None:
        return number(middle)
    return f"{number(middle)}{between}({number(low)}, {number(high)})"


def _edges_line(analysis: Mapping[str, Any], name: str) -> str:
    edges = analysis["edges"]
    listed = escape(", ".join(map(_edge, edges))) or "none"
    line = f"[bold]{escape(name)}[/]: edges ({len(edges)}): {listed}"
    if lagged := analysis.get("lagged_edges"):
        earlier = ", ".join(map(_edge, lagged))
        line += f"\n  from earlier steps ({len(lagged)}): {escape(earlier)}"
    if "score" in analysis:
        s = analysis["score"]
        line += f"\n  against the truth: SHD {s['shd']}, TPR {s['tpr']:.2f}, FDR {s['fdr']:.2f}"
        if any(edge["kind"] == "undirected" for edge in edges):
            line += " (an undirected edge counts as right where the truth has either direction)"
    return line


def _edge(edge: Mapping[str, Any]) -> str:
    """Return an edge with its weight; one of an earlier step, which has no kind, is directed."""
    arrow = "-" if edge.get("kind") == "undirected" else "->"
    weight = "" if edge["weight"] is None else f" ({edge['weight']:.2g})"
    return f"{edge['from']} {arrow} {edge['to']}{weight}"


def _description_table(analysis: Mapping[str, Any]) -> Table:
    within = within_sites(analysis)
    title = "standard deviations within sites" if within else "means and standard deviations"
    table = Table(title=title)
    table.add_column("variable")
    told = ("sd",) if within else ("mean", "sd")
    for name in told:
        table.add_column(name, justify="right")
    for column in analysis["columns"]:
        table.add_row(escape(column["column"]), *(number(column[name]) for name in told))
    return table


def _numbers_table(block: Block, *, noised: bool) -> Table:
    table = Table(title=escape(block.title), show_header=False)
    table.add_column("number")
    table.add_column("value", justify="right")
    for label, value, _ in statistics(block, noised=noised):
        table.add_row(escape(label), escape(value))
    return table
