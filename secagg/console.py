"""What the command line prints: progress on standard error, tables on standard output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from secagg import budgeting
from secagg.audits.mechanisms import gives_way
from secagg.audits.privacy import claimed, holds
from secagg.audits.results import records_of
from secagg.audits.statements import banners
from secagg.noise import Adjacency
from secagg.privacy.budget import rounded_down
from secagg.processes import Progress
from secagg.running import Run


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress | None]:
    """Yield a progress callback that prints one line a round, or None if quiet."""
    if quiet:
        yield None
        return
    errors = Console(stderr=True, highlight=False)

    def show(event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "session":
                protocol, sites = event["protocol"]["name"], event["plan"][0]["sites"]
                errors.print(f"[dim]session {event['session'][:8]}: {sites} sites, {protocol}[/]")
            case "release":
                covered = len(event["contributors"])
                errors.print(
                    f"[dim]round {event['round']:3} {escape(event['stage']):10} "
                    f"sum over {covered} sites released[/]"
                )
            case "asked":
                asked = len(event["parties"])
                errors.print(
                    f"[dim]round {event['round']:3} {event['phase']:10} {asked} parties asked[/]"
                )
            case "starting" if event["started"] % 10 == 0 or event["started"] == event["parties"]:
                errors.print(f"[dim]{event['started']} of {event['parties']} parties started[/]")
            case "resumed":
                errors.print(
                    f"[dim]resumed in round {event['round']}, {event['deadline']:g} s a phase[/]"
                )
            case "restarted":
                party = escape(event["party"])
                errors.print(f"[yellow]round {event['round']:3} {party} was started again[/]")
            case "missing":
                parties = escape(", ".join(event["parties"]))
                errors.print(f"[yellow]round {event['round']:3} no answer from {parties}[/]")
            case "rejected":
                errors.print(
                    f"[yellow]round {event['round']:3} rejected: {escape(event['why'])}[/]"
                )

    yield show


def _console() -> Console:
    """Return standard output; where that is a file, wide enough for every table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)


def show_run(run: Run) -> None:
    """Print result tables, what was protected from whom, and where the report is."""
    out = _console()
    summary = run.result.summary
    out.print(f"\n[bold]{escape(summary['title'])}[/]")
    out.print(_records_line(summary))
    alone = summary.get("simulation", {}).get("site_alone", {})
    for analysis in summary.get("analyses", [summary]):
        out.print()
        fitted = {name: result for name, result in alone.items() if not _no_fit(result)}
        others = {name: _matching(result, analysis) for name, result in fitted.items()}
        _show_analysis(out, analysis, others)
    for name, result in alone.items():
        if why := _no_fit(result):
            out.print(f"[yellow]{escape(name)} alone gets no fit: {escape(why)}[/]")
    outside = {k: v for k, v in summary["values_outside_bounds"].items() if v}
    if outside:
        listed = ", ".join(f"{escape(k)} {v}" for k, v in outside.items())
        rows = summary["records"] + summary["incomplete_records"]
        out.print(f"[yellow]values outside their bounds, clipped, of {rows} rows: {listed}[/]")
    protocol = run.facts["protocol"]
    out.print(f"\ncoordinator saw: {protocol['sees']['coordinator']} ({run.facts['rounds']} sums)")
    if not protocol["hides_from_coordinator"]:
        noised = run.facts["privacy"] is not None
        nothing = "hides no site: all that protects is noise" if noised else "protects nothing"
        out.print(f"[bold red]protocol {protocol['name']} {nothing}[/]")
    _show_noise(out, run.facts)
    _show_warnings(out, warnings(run))
    if run.folder is not None:
        out.print(f"log head {run.facts['log']['head']}", soft_wrap=True)
        out.print(f"report   {run.folder / 'report.html'}", soft_wrap=True)


def warnings(run: Run) -> list[tuple[str, bool]]:
    """Return the headlines of the report's banners, and of each if nothing is protected."""
    return [(banner.title, banner.void) for banner in banners(run.facts, run.result.summary)]


def _show_warnings(out: Console, warnings: Sequence[tuple[str, bool]]) -> None:
    """Print headlines, a line each; of those marked true, as of a promise that is void."""
    for headline, void in warnings:
        style = "bold red" if void else "bold yellow"
        out.print(f"! {escape(headline)}", style=style, soft_wrap=True)


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
    promise = facts["privacy"]
    if promise is None:
        return
    out.print(
        f"epsilon {promise['epsilon']:g}, delta {promise['delta']:g} "
        f"({promise['adjacency']}, placement {promise['placement']})"
    )
    style = "" if holds(facts) else "bold red"
    out.print(escape(claimed(facts)), style=style)


def _no_fit(result: Mapping[str, Any]) -> str:
    """Return why a site alone gets no estimates; empty if it does."""
    if "failed" in result:
        return str(result["failed"])
    return "" if result.get("converged", True) else str(result["notes"][0])


def _matching(alone: Mapping[str, Any], analysis: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a site's own result for the same analysis."""
    if "analyses" not in alone:
        return alone
    for own in alone["analyses"]:
        if "failed" not in own and (own["method"], own.get("outcome")) == (
            analysis["method"],
            analysis.get("outcome"),
        ):
            return dict(own)
    return {}


def _show_analysis(
    out: Console, analysis: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]
) -> None:
    if not analysis.get("converged", True):
        for note in analysis["notes"]:
            out.print(f"[bold red]{escape(note)}[/]")
    if "failed" in analysis:
        out.print(f"[bold red]{escape(analysis['method'])} failed: {escape(analysis['failed'])}[/]")
    elif "terms" in analysis:
        out.print(_terms_table(analysis, others))
    elif "edges" in analysis:
        out.print(_edges_line(analysis))
    else:
        out.print(_description_table(analysis))
    if analysis.get("converged", True) and analysis.get("notes"):
        out.print(f"[dim]notes on this {analysis['method']}:[/]")  # not the next one's caption
        for note in analysis["notes"]:
            out.print(Padding(f"[dim]- {escape(note)}[/]", (0, 0, 0, 2), expand=False))


def _terms_table(analysis: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> Table:
    odds = "odds_ratio" in analysis["terms"][0]
    what = "odds ratio" if odds else "coefficient"
    level = f"{100 * analysis['level']:g}% interval" if "level" in analysis else "no interval"
    table = Table(title=f"{analysis['method']} of {escape(analysis['outcome'])}: {what} ({level})")
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


def _edges_line(analysis: Mapping[str, Any]) -> str:
    arrows = {"directed": "->", "undirected": "-"}
    edges = ", ".join(f"{e['from']} {arrows[e['kind']]} {e['to']}" for e in analysis["edges"])
    line = f"[bold]{analysis['method']}[/]: edges ({len(analysis['edges'])}): {escape(edges)}"
    if lagged := analysis.get("lagged_edges"):
        earlier = ", ".join(f"{e['from']} -> {e['to']}" for e in lagged)
        line += f"\n  from earlier steps ({len(lagged)}): {escape(earlier)}"
    if "score" in analysis:
        s = analysis["score"]
        line += f"\n  against the truth: SHD {s['shd']}, TPR {s['tpr']:.2f}, FDR {s['fdr']:.2f}"
    return line


def _description_table(analysis: Mapping[str, Any]) -> Table:
    table = Table(title="means and standard deviations")
    table.add_column("variable")
    for name in ("mean", "sd"):
        table.add_column(name, justify="right")
    for column in analysis["columns"]:
        table.add_row(escape(column["column"]), number(column["mean"]), number(column["sd"]))
    return table


def show_plan(plan: Mapping[str, Any]) -> None:
    """Print a plan: one table of fields, one of traffic."""
    out = _console()
    out.print(f"[bold]{escape(plan['title'])}[/]: {plan['method']} under {plan['protocol']}")
    out.print(f"{plan['protocol']}: {plan['in_numbers']}")
    out.print(f"sites: {escape(', '.join(plan['sites']))}")
    rules = ", ".join(f"{k} {v}" for k, v in plan["release"].items() if v is not None)
    out.print(f"release rules: {rules or 'none set'}")
    for name, own in plan["own_rules"].items():
        listed = ", ".join(f"{k} {v}" for k, v in own.items() if v is not None)
        out.print(f"own rules of {escape(name)}: {listed}")
    for refusal in plan["refusals"]:
        out.print(f"[bold red]will be refused: {escape(refusal)}[/]", soft_wrap=True)
    for left in plan["budgets"]:
        told = f"{rounded_down(left['left'])} at delta {left['delta']:g}"
        out.print(
            f"epsilon left at {escape(left['site'])}: {told}, of a cap of {left['words']}",
            soft_wrap=True,
        )
    _show_warnings(out, [(warning, False) for warning in plan["warnings"]])
    _show_promise(out, plan["differential_privacy"], plan["protocol"])
    fields = Table(title="proof of fit: sites x bound x 2^fraction bits fits the ring")
    for name in ("stage", "field", "kind"):
        fields.add_column(name)
    for name in ("values", "bound", "fraction bits", "sum needs", "ring"):
        fields.add_column(name, justify="right")
    traffic = Table(title="traffic of one round (measured with zeros)")
    traffic.add_column("stage")
    for name in ("rounds", "messages", "bytes"):
        traffic.add_column(name, justify="right")
    _traffic_row(traffic, "set-up", 1, plan["setup"]["messages"], plan["setup"]["bytes"])
    for stage in plan["stages"]:
        for field in stage["fields"]:
            fields.add_row(
                stage["stage"], field["name"], field["kind"], str(field["values"]),
                f"{field['bound']:g}", str(field["fraction_bits"]), f"{field['sum_bits']} bits",
                f"{stage['ring_bits']} bits",
            )  # fmt: skip
        most = stage["max_rounds"]
        _traffic_row(
            traffic, stage["stage"], most, stage["messages_a_round"], stage["bytes_a_round"]
        )
    out.print(fields)
    out.print(traffic)


_COLOURS = {"green": "green", "amber": "yellow", "red": "bold red", None: "dim"}


def _show_promise(out: Console, promise: Mapping[str, Any], protocol: str) -> None:
    """Print what a plan promises, what becomes of it if more sites collude, and if it is usable."""
    out.print(escape(promise["sentence"]))
    if promise["placement"] == "none":
        return
    judged = promise["feasibility"]
    out.print(f"usable? {escape(judged['words'])}", style=_COLOURS[judged["verdict"]])
    noise = Table(title="noise, in the units of the sum")
    noise.add_column("stage")
    for name in ("releases", "numbers", "sensitivity", "sigma of a site", "sigma in the sum", "mu"):
        noise.add_column(name, justify="right")
    under = "add" if promise["adjacency"] == "add_remove" else "replace"
    for part in promise["mechanisms"]:
        noise.add_row(
            part["stage"], str(part["releases"]), str(part["numbers"]),
            number(part[f"sensitivity_{under}"]), number(part["sigma_of_a_site"]),
            number(part["sigma_in_the_sum"]), number(part[f"mu_{under}"]),
        )  # fmt: skip
    out.print(noise)
    if promise["if_more_collude"]:
        table = Table(title="if more sites collude")
        for name in ("colluding sites", f"epsilon at delta {promise['delta']:g}"):
            table.add_column(name, justify="right")
        for colluding, epsilon in promise["if_more_collude"]:
            promised = "bold" if colluding == promise["colluding"] else None
            table.add_row(str(colluding), number(epsilon), style=promised)
        out.print(table)
        if why := gives_way(promise, protocol):
            out.print(escape(why))


def show_budget(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print, for each data set, what was spent; then what is left under each cap, if there is one.

    The first is told under both adjacencies and for ever, a cap under its own and for its period.
    """
    out = _console()
    told = ", ".join(sorted({f"{row['delta']:g}" for row in rows}))
    table = Table(title=f"what was released, and its epsilon at delta {told}")
    for name in ("party", "data set"):
        table.add_column(name, overflow="fold")
    for name in ("releases", "of them exact"):
        table.add_column(name, justify="right")
    for adjacency in Adjacency:  # whose names must be whole in a narrow terminal, too
        name = adjacency.value
        table.add_column(f"epsilon {name}", justify="right", min_width=len(name))
    caps = Table(title="caps, and the epsilon left under each")
    for name in ("party", "data set", "cap"):
        caps.add_column(name, overflow="fold")
    for name in ("spent", "left"):
        caps.add_column(name, justify="right")
    for row in rows:
        whose = escape(row["party"]), escape(row["dataset"])
        spent = [_epsilon(row[f"epsilon_{a.value}"]) for a in Adjacency]
        table.add_row(*whose, str(row["releases"]), str(row["exact"]), *spent)
        for cap in row["caps"]:
            caps.add_row(*whose, cap["words"], _epsilon(cap["spent"]), rounded_down(cap["left"]))
    out.print(table)
    if caps.row_count:
        out.print(caps)
    out.print(
        "Epsilons do not add up: what several noisy releases give away together grows like the "
        "root of the sum of their squares, so more is left than cap less spent."
    )


def _epsilon(spent: float) -> str:
    return "no bound" if spent == float("inf") else f"{spent:.3g}"


def show_history(
    rows: Sequence[Mapping[str, Any]], party: str | None, session: str | None, *, refused: bool
) -> None:
    """Print one line for each line of the ledgers; if there is none, what was looked for."""
    out = _console()
    if not rows:
        looked = ["a decision that refused something" if refused else "a line"]
        looked += [] if party is None else [f"of party {party!r}"]
        looked += [] if session is None else [f"of a session whose name begins with {session!r}"]
        out.print(f"nothing found: looked for {escape(' '.join(looked))}", soft_wrap=True)
    for row in rows:
        where = "" if row["session"] is None else f" session {row['session'][:8]}"
        where += "" if row["round"] is None else f" round {row['round']}"
        line = f"{row['time']} {row['party']} ({row['dataset']}){where}: {row['text']}"
        out.print(escape(line), soft_wrap=True)
    if session is not None:
        for line in budgeting.in_all(rows):
            out.print(escape(line), soft_wrap=True)


def _traffic_row(table: Table, stage: str, rounds: int, messages: int, size: int) -> None:
    if messages:
        most = "1" if rounds == 1 else f"at most {rounds}"
        table.add_row(stage, most, str(messages), f"{size:,}")


def number(value: float | None) -> str:
    """Return three significant digits, plain where that is short."""
    if value is None:
        return "-"
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.2e}"
    return f"{value:.3g}"
