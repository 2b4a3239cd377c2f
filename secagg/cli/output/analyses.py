"""The tables of a result: coefficients, edges, means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from secagg.cli.output.fedlin import show_sites
from secagg.cli.output.posterior import show_posterior
from secagg.cli.output.tables import Table
from secagg.cli.output.terminal import Paragraph, show_mistrust
from secagg.cli.output.terms import show_terms
from secagg.contracts import TableKind
from secagg.evidence.numbers import counted, fixed, significant
from secagg.reports.count_tables import ShownTable, count_tables
from secagg.reports.results import Block, description_table, statistics, within_sites


def show_analysis(
    out: Console,
    block: Block,
    site_results: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, Any],
    *,
    noised: bool,
) -> None:
    """Print one analysis in the table that its method declares.

    site_results: the same analysis at each site alone, if this is a simulation
    columns: those that the job declares
    """
    analysis, name = block.summary, block.title
    mark = "[bold red]![/] " if analysis.get("converged") is False else ""
    if mark:
        show_mistrust(out, name, analysis["notes"])
    elif block.caution:
        out.print(f"[bold yellow]! {escape(name)}: {escape(block.caution)}[/]")
    if "failed" in analysis:
        out.print(f"[bold red]{escape(name)} failed: {escape(analysis['failed'])}[/]")
    else:
        match block.kind:
            case TableKind.REGRESSION:
                show_terms(out, block, site_results, columns)
            case TableKind.POSTERIOR | TableKind.POSTERIOR_GRAPH:
                show_posterior(out, block)
            case TableKind.SITES:
                show_sites(out, block)
            case TableKind.GRAPH:
                _show_edges(out, analysis, f"{mark}[bold]{escape(name)}[/]")
            case TableKind.NETWORK:
                _show_network(out, block, noised=noised)
            case TableKind.DESCRIPTION | TableKind.COUNTS | TableKind.NUMBERS:
                for i, table in enumerate(_tables(block, noised=noised)):
                    out.print(*[""] * bool(i), table, sep="\n")
    if not mark and block.notes:
        show_notes(out, name, block.notes)


def show_notes(out: Console, name: str, notes: Sequence[str]) -> None:
    """Print notes on a usable result, with its name: the next result follows directly."""
    out.print(f"[dim]notes on {escape(name)}:[/]")
    for note in notes:
        out.print(Paragraph(f"[dim]- {escape(note)}[/]", indent=2))


def _show_edges(out: Console, analysis: Mapping[str, Any], head: str) -> None:
    """Print a graph's edges after the head, and lines on what else is known of them."""
    edges = analysis["edges"]
    listed = escape(", ".join(map(_edge, edges))) or "none"
    out.print(Paragraph(f"{head}: edges ({len(edges)}): {listed}"))
    if lagged := analysis.get("lagged_edges"):
        earlier = ", ".join(map(_edge, lagged))
        out.print(Paragraph(f"from earlier steps ({len(lagged)}): {escape(earlier)}", indent=2))
    if "score" in analysis:
        s = analysis["score"]
        rates = f"TPR {fixed(s['tpr'], 2)}, FDR {fixed(s['fdr'], 2)}"
        line = f"against the truth: SHD {s['shd']}, {rates}"
        if any(edge["kind"] == "undirected" for edge in edges):
            line += " (an undirected edge counts as right if the truth has either direction)"
        out.print(Paragraph(line, indent=2))


def _show_network(out: Console, block: Block, *, noised: bool) -> None:
    """Print how the training ended, the edges, and the numbers."""
    of = f" of {block.summary['outcome']}" if "outcome" in block.summary else ""
    out.print(f"[bold]{escape(block.title + of)}[/]: {escape(block.ending)}")
    if (edges := block.summary.get("edges")) is not None:
        listed = escape(", ".join(map(_dependency, edges))) or "none"
        out.print(Paragraph(f"edges ({len(edges)}): {listed}", indent=2))
    out.print(_numbers_table(block, noised=noised))


def _dependency(edge: Mapping[str, Any]) -> str:
    """Return an undirected edge, with its votes or its path norm."""
    text = " - ".join(edge["between"])
    if edge.get("votes") is not None:
        return f"{text} ({counted(edge['votes'], 'vote')})"
    if "votes" in edge:
        return f"{text} (too few votes to show)"
    return f"{text} ({significant(edge['path_norm'], 3)})" if "path_norm" in edge else text


def _edge(edge: Mapping[str, Any]) -> str:
    """Return an edge with its numbers; an edge of an earlier step has no kind and is directed."""
    arrow = "-" if edge.get("kind") == "undirected" else "->"
    about = [] if edge["weight"] is None else [significant(edge["weight"], 3)]
    if "std_error" in edge:
        about[0] += f" ± {significant(edge['std_error'], 2)}"
    if "times_noise" in edge:
        about.append(f"{fixed(edge['times_noise'], 1)} times its noise")
    if "stability" in edge:
        about.append(f"stability {fixed(edge['stability'], 2)}")
        about.append(f"in either direction {fixed(edge['stability_either_way'], 2)}")
    return f"{edge['from']} {arrow} {edge['to']}" + (f" ({', '.join(about)})" if about else "")


def _tables(block: Block, *, noised: bool) -> list[Table]:
    if block.kind is TableKind.COUNTS:
        return list(map(_count_table, count_tables(block.summary)))
    if block.kind is TableKind.DESCRIPTION:
        return [_description_table(block.summary)]
    return [_numbers_table(block, noised=noised)]


def _description_table(analysis: Mapping[str, Any]) -> Table:
    within = within_sites(analysis)
    title = "standard deviations within sites" if within else "means and standard deviations"
    table = Table(title=title)
    table.add_column("variable")
    keys = ("sd",) if within else ("mean", "sd")
    for key in keys:
        table.add_column(key, justify="right")
    for row in description_table(analysis):
        table.add_row(escape(row["column"]), *(row[key] for key in keys))
    return table


def _count_table(counts: ShownTable) -> Table:
    table = Table(title=escape(counts.title), caption=escape(counts.caption))
    for name in counts.labels:
        table.add_column(escape(name))
    for head in counts.heads:
        table.add_column(escape(head), justify="right")
    for labels, row in counts.rows:
        table.add_row(*map(escape, labels), *row)
    return table


def _numbers_table(block: Block, *, noised: bool) -> Table:
    table = Table(title=escape(block.title), show_header=False)
    table.add_column("number")
    table.add_column("value", justify="right")
    for label, value, _ in statistics(block, noised=noised):
        table.add_row(escape(label), escape(value))
    return table
