"""What `secagg run` prints: the result, what each party saw, and where the report is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from secagg.cli.output import terminal
from secagg.cli.output.analyses import show_analysis
from secagg.cli.output.terminal import show_disclosure, show_warnings
from secagg.evidence.claims.counts import NONE_COUNTED, at_least, not_counted, records_of
from secagg.evidence.claims.privacy import PrivacyClaims
from secagg.evidence.numbers import count, counted, deviation, typeset
from secagg.reports.names import shown_columns
from secagg.reports.results import blocks
from secagg.reports.summary import banners
from secagg.runs.run import Run


def show_run(run: Run) -> None:
    """Print result tables, what the coordinator saw, warnings, and where the report is."""
    out = terminal.standard_output()
    summary = run.result.summary
    out.print()
    out.print(f"[bold]{escape(summary['title'])}[/]")
    out.print(_records_line(summary))
    alone = summary.get("simulation", {}).get("site_alone", {})
    noised = run.facts["privacy"] is not None
    columns = shown_columns(run.facts["job"]["columns"])
    for block in blocks(run.facts, summary):
        out.print()
        site_results = {n: result for n, result in block.alone.items() if not _no_fit(alone[n])}
        show_analysis(out, block, site_results, columns, noised=noised)
    for name, result in alone.items():
        if why := _no_fit(result):
            out.print(f"[yellow]{escape(name)} alone gets no fit: {escape(why)}[/]")
    _show_outside(out, run.facts, summary)
    protocol = run.facts["protocol"]
    sums = counted(run.facts["rounds"], "sum")
    out.print()
    out.print(f"coordinator saw: {protocol['sees']['coordinator']} ({sums})")
    first = run.facts["plan"][0]["sees"]
    show_disclosure(out, first, run.facts["method"]["disclosure"], noised=noised)
    _show_noise(out, run.facts)
    show_warnings(out, warnings(run))
    if run.own:
        file = f"SITE.{run.facts['session'][:8]}.json"
        out.print(f"each site keeps its own results, next to its ledger if it has one: {file}")
    if run.folder is not None:
        out.print(f"log head {run.facts['log']['head']}")
        out.print(f"report   {run.folder / 'report.html'}")


def warnings(run: Run) -> list[tuple[str, bool]]:
    """Return the headlines of the report's banners; True marks a run that protects nothing."""
    shown = banners(run.facts, run.result.summary, PrivacyClaims.of(run.facts))
    return [(banner.title, banner.void) for banner in shown]


def _records_line(summary: Mapping[str, Any]) -> str:
    sites = counted(len(summary["cohort"]), "site")
    if summary["incomplete_records"] is None:  # not counted in a run with noise
        records, error = records_of(summary)
        return (
            f"about {count(records)} ± {deviation(error)} complete records at {sites} "
            "(standard deviation of the noise)"
        )
    incomplete = at_least(summary["incomplete_records"])
    records_text = counted(summary["records"], "complete record")
    return f"{records_text} at {sites}; incomplete left out: {incomplete}"


def _show_outside(out: Console, facts: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
    """Print how many values were outside the bounds, and which counts the sites left out."""
    if summary["incomplete_records"] is None:  # nothing was counted in a run with noise
        return
    counts: Mapping[str, int] = summary["values_outside_bounds"]
    outside = {name: number for name, number in counts.items() if number}
    listed = ", ".join(f"{escape(name)} {at_least(number)}" for name, number in outside.items())
    text = f"values outside their bounds, replaced by the bound: {listed or NONE_COUNTED}"
    out.print(text, style="yellow" if outside else None)
    out.print(f"[dim]{not_counted(facts)}[/]")


def _show_noise(out: Console, facts: Mapping[str, Any]) -> None:
    """Print epsilon and delta and the guarantee, or why there is none."""
    claims = PrivacyClaims.of(facts)
    if not claims.noised:
        return
    guarantee = claims.guarantee
    how = f"{guarantee['adjacency']}, placement {guarantee['placement']}"
    out.print(f"{claims.epsilon_and_delta} ({how})")
    out.print(escape(typeset(claims.sentence)), style="" if claims.holds else "bold red")
    if claims.ledger.repeats:
        out.print(escape(claims.ledger.repeats))


def _no_fit(result: Mapping[str, Any]) -> str:
    """Return why a site alone gets no estimates; empty if it does."""
    if "failed" in result:
        return str(result["failed"])
    return str(result["notes"][0]) if result.get("converged") is False else ""
