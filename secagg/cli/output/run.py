"""A finished run: its result, what was protected from whom, and where the report is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from secagg.cli.output import terminal
from secagg.cli.output.analyses import show_analysis
from secagg.cli.output.terminal import number, show_disclosure, show_warnings
from secagg.reports.dp_claims import PrivacyClaims
from secagg.reports.results import blocks, records_of
from secagg.reports.summary import banners
from secagg.runs.run import Run


def show_run(run: Run) -> None:
    """Print result tables, what was protected from whom, and where the report is."""
    out = terminal.standard_output()
    summary = run.result.summary
    out.print(f"\n[bold]{escape(summary['title'])}[/]")
    out.print(_records_line(summary))
    alone = summary.get("simulation", {}).get("site_alone", {})
    noised = run.facts["privacy"] is not None
    for block in blocks(run.facts, summary):
        out.print()
        others = {name: own for name, own in block.alone.items() if not _no_fit(alone[name])}
        show_analysis(out, block, others, noised=noised)
    for name, result in alone.items():
        if why := _no_fit(result):
            out.print(f"[yellow]{escape(name)} alone gets no fit: {escape(why)}[/]")
    outside = {k: v for k, v in summary["values_outside_bounds"].items() if v}
    if outside:
        listed = ", ".join(f"{escape(k)} {v}" for k, v in outside.items())
        rows = summary["records"] + summary["incomplete_records"]
        out.print(f"[yellow]values outside their bounds, clipped, of {rows} rows: {listed}[/]")
    for remark in run.remarks:
        out.print(f"[bold yellow]{escape(remark)}[/]", soft_wrap=True)
    protocol = run.facts["protocol"]
    out.print(f"\ncoordinator saw: {protocol['sees']['coordinator']} ({run.facts['rounds']} sums)")
    show_disclosure(out, run.facts["method"]["disclosure"]["text"], noised=noised)
    if not protocol["hides_from_coordinator"]:
        nothing = "hides no site: all that protects is noise" if noised else "protects nothing"
        out.print(f"[bold red]protocol {protocol['name']} {nothing}[/]")
    _show_noise(out, run.facts)
    show_warnings(out, warnings(run))
    if run.own:
        file = f"SITE.{run.facts['session'][:8]}.json"
        out.print(f"left at each site for its own eyes, beside its ledger if it has one: {file}")
    if run.folder is not None:
        out.print(f"log head {run.facts['log']['head']}", soft_wrap=True)
        out.print(f"report   {run.folder / 'report.html'}", soft_wrap=True)


def warnings(run: Run) -> list[tuple[str, bool]]:
    """Return the headlines of the report's banners, and of each if nothing is protected."""
    found = banners(run.facts, run.result.summary, PrivacyClaims.of(run.facts))
    return [(banner.title, banner.void) for banner in found]


def _records_line(summary: Mapping[str, Any]) -> str:
    sites = f"{len(summary['cohort'])} sites"
    if summary["incomplete_records"] is None:  # which only noise leaves uncounted
        records, error = records_of(summary)
        told = number(error) if error < 1 else f"{error:.0f}"
        return (
            f"about {records} +- {told} complete records at {sites} "
            "(standard deviation of the noise)"
        )
    incomplete = summary["incomplete_records"]
    return f"{summary['records']} complete records at {sites} ({incomplete} incomplete left out)"


def _show_noise(out: Console, facts: Mapping[str, Any]) -> None:
    """Print epsilon and delta and what they mean, or why they mean nothing."""
    claims = PrivacyClaims.of(facts)
    if not claims.noised:
        return
    guarantee = claims.guarantee
    out.print(
        f"epsilon {guarantee['epsilon']:g}, delta {guarantee['delta']:g} "
        f"({guarantee['adjacency']}, placement {guarantee['placement']})"
    )
    out.print(escape(claims.sentence), style="" if claims.holds else "bold red")


def _no_fit(result: Mapping[str, Any]) -> str:
    """Return why a site alone gets no estimates; empty if it does."""
    if "failed" in result:
        return str(result["failed"])
    return "" if result.get("converged", True) else str(result["notes"][0])
