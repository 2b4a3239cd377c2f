"""What `secagg plan` prints: overflow check, traffic, privacy guarantee, expected refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from secagg.cli.output import terminal
from secagg.cli.output.tables import Table
from secagg.cli.output.terminal import show_disclosure, show_warnings
from secagg.privacy.accounting.budget import rounded_down
from secagg.reports.dp_mechanisms import noise_exhausted
from secagg.reports.numbers import (
    any_setting,
    count,
    declared,
    epsilon_or_no_bound,
    listing,
    probability,
    significant,
    size,
)

_MANY_ROUNDS = 1000  # from here on a line warns of their running time
_COLOURS = {"green": "green", "amber": "yellow", "red": "bold red", None: "dim"}


def show_plan(plan: Mapping[str, Any]) -> None:
    """Print a plan: one table of fields, one of traffic."""
    out = terminal.standard_output()
    out.print(f"[bold]{escape(plan['title'])}[/]: {plan['method']} under {plan['protocol']}")
    out.print(f"{plan['protocol']}: {plan['in_numbers']}")
    names = plan["sites"]
    out.print(f"{len(names)} sites: {escape(', '.join(names))}")
    out.print(f"release rules: {_rules(plan['release']) or 'none set'}")
    for name, rules in plan["own_rules"].items():
        out.print(f"own rules of {escape(name)}: {_rules(rules)}")
    for refusal in plan["refusals"]:
        out.print(f"[bold red]will be refused: {escape(refusal)}[/]")
    for refusal in plan["possible_refusals"]:
        out.print(f"[bold yellow]may be refused: {escape(refusal)}[/]")
    totals = {row["party"]: row for row in plan["totals"]}
    for budget in plan["budgets"]:
        left = f"{rounded_down(budget['left'])} at delta {probability(budget['delta'])}"
        spent, _, after = _spending(
            {"before": budget["spent"], "after": budget["after"]}, totals.get(budget["site"])
        )
        left += f" (spent {spent}, with this job {after})"
        site = escape(budget["site"])
        out.print(f"epsilon left at {site}: {left}, of a cap of {budget['words']}")
    if sites := plan["no_budget"]:
        out.print(
            f"no budget limits all jobs with noise together at {escape(listing(sites))}: set one "
            "in a policy, or with `secagg budget set`"
        )
    if drawn := plan["moments_drawn_before"]:
        out.print(
            f"{escape(listing(drawn))} drew this job's noise before: where no record has changed "
            "since, it costs nothing"
        )
    if plan["exact_numbers"] is not None:
        _show_numbers(out, plan["exact_numbers"])
    for line in plan["new_ledgers"]:
        out.print(escape(line), style="yellow")
    noised = plan["differential_privacy"]["placement"] != "none"
    first = plan["stages"][0]["sees"]
    show_disclosure(out, first, plan["disclosure"], noised=noised)
    show_warnings(out, [(warning, False) for warning in plan["warnings"]])
    _show_guarantee(out, plan["differential_privacy"], plan["protocol"])
    if plan["totals"]:
        out.print(_totals_table(plan["totals"]))
        if any(row["before"] for row in plan["totals"]):
            out.print("Epsilons do not simply add up: several jobs have less than their sum.")
    out.print(_fields_table(plan))
    out.print(_traffic_table(plan))
    rounds = sum(stage["max_rounds"] for stage in plan["stages"])
    if rounds >= _MANY_ROUNDS:
        at_most = "" if all(stage["all_run"] for stage in plan["stages"]) else "at most "
        out.print(
            f"In {at_most}{count(rounds)} rounds a site sends {at_most or 'about '}"
            f"{size(plan['a_site_sends_at_most'])}. Each round is also signed, checked, entered in "
            "ledgers, logged and written to disk. That takes many times as long as small sums "
            "themselves."
        )


def _rules(rules: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {any_setting(v)}" for k, v in rules.items() if v is not None)


def _show_numbers(out: Console, numbers: Mapping[str, Any]) -> None:
    """Print how many exact numbers are released, and the records that sites need for them."""
    words = f"exact numbers: {count(numbers['moments'])} moments of the columns"
    if numbers["rounds"]:
        words += f", and up to {count(numbers['rounds'])} in rounds"
    out.print(words)
    for each in numbers["sites"]:
        words = f"{count(each['records_to_begin'])} records to begin"
        if each["records_for_all"] > each["records_to_begin"]:
            words += f", {count(each['records_for_all'])} for all rounds"
        out.print(
            f"{escape(each['site'])} needs {words} (max_exact_share {each['max_exact_share']:g})"
        )


def _show_guarantee(out: Console, guarantee: Mapping[str, Any], protocol: str) -> None:
    """Print the guarantee, whether the result will be usable, and what more colluders mean."""
    out.print(escape(guarantee["sentence"]))
    if guarantee["placement"] == "none":
        return
    judged = guarantee["feasibility"]
    out.print(f"usable? {escape(judged['words'])}", style=_COLOURS[judged["verdict"]])
    if "assumes" in judged:
        out.print(f"        {escape(judged['assumes'])}", style="dim")
    noise = Table(title="noise, in the units of the sum")
    noise.add_column("stage")
    for name in ("releases", "numbers", "sensitivity", "sigma of a site", "sigma in the sum", "mu"):
        noise.add_column(name, justify="right")
    adjacency = "add" if guarantee["adjacency"] == "add_remove" else "replace"
    keys = (f"sensitivity_{adjacency}", "sigma_of_a_site", "sigma_in_the_sum", f"mu_{adjacency}")
    for part in guarantee["mechanisms"]:
        counts = count(part["releases"]), count(part["numbers"])
        noise.add_row(part["stage"], *counts, *(significant(part[key]) for key in keys))
    out.print(noise)
    if guarantee["if_more_collude"]:
        table = Table(title="if more sites collude")
        for name in ("colluding sites", f"epsilon at delta {probability(guarantee['delta'])}"):
            table.add_column(name, justify="right")
        for colluding, epsilon in guarantee["if_more_collude"]:
            style = "bold" if colluding == guarantee["colluding"] else None
            table.add_row(str(colluding), epsilon_or_no_bound(epsilon), style=style)
        out.print(table)
        if why := noise_exhausted(guarantee, protocol):
            out.print(escape(why))


def _totals_table(totals: Sequence[Mapping[str, Any]]) -> Table:
    """Return what the ledgers have spent and what the job adds; equal parties share a row."""
    first = totals[0]
    table = Table(
        title="all releases of these records, by the ledgers: epsilon at delta "
        f"{probability(first['delta'])} ({first['adjacency']})"
    )
    table.add_column("party")
    for name in ("before", "this job", "after it"):
        table.add_column(name, justify="right")
    rows: dict[tuple[str, str, str], list[str]] = {}
    for row in totals:
        rows.setdefault(_spending(row), []).append(row["party"])
    for figures, parties in rows.items():
        table.add_row(escape(listing(parties)), *figures)
    return table


def _spending(
    row: Mapping[str, Any], repeat: Mapping[str, Any] | None = None
) -> tuple[str, str, str]:
    """Return epsilon before a job, of the job alone (if it is in the row), and of all after it.

    repeat: where it says whether the job may repeat a release; None for the row itself
    """
    before, job, after = (
        epsilon_or_no_bound(row.get(key), 3) for key in ("before", "job", "after")
    )
    known = repeat or row
    if known.get("repeats"):
        return before, f"0, or {job} if a record changed", f"{before}, or {after}"
    if known.get("at_most"):
        return before, f"at most {job}", f"at most {after}"
    return before, job, after


def _fields_table(plan: Mapping[str, Any]) -> Table:
    table = Table(
        title="No sum can overflow: each fits into its ring (integers of a fixed number of bits)"
    )
    for name in ("stage", "field", "kind"):
        table.add_column(name)
    for name in ("values", "bound", "fraction bits", "sum needs", "ring"):
        table.add_column(name, justify="right")
    for stage in plan["stages"]:
        for field in stage["fields"]:
            table.add_row(
                stage["stage"], field["name"], field["kind"], count(field["values"]),
                declared(field["bound"]), count(field["fraction_bits"]),
                f"{field['sum_bits']} bits", f"{stage['ring_bits']} bits",
            )  # fmt: skip
    return table


def _traffic_table(plan: Mapping[str, Any]) -> Table:
    table = Table(title="traffic of one round (measured with zeros)")
    table.add_column("stage")
    for name in ("rounds", "messages", "bytes", "bytes in all rounds"):
        table.add_column(name, justify="right")
    setup = plan["setup"]
    _add_traffic(table, "set-up", 1, setup["messages"], setup["bytes"], exact=True)
    for stage in plan["stages"]:
        _add_traffic(
            table, stage["stage"], stage["max_rounds"], stage["messages_a_round"],
            stage["bytes_a_round"], exact=stage["all_run"],
        )  # fmt: skip
    return table


def _add_traffic(
    table: Table, stage: str, rounds: int, messages: int, size_of_round: int, *, exact: bool
) -> None:
    """Add a row; exact: all rounds of the stage will run."""
    if messages:
        of_rounds = "" if rounds == 1 else "exactly " if exact else "at most "
        of_bytes = "" if rounds == 1 else "about " if exact else "at most "
        total = f"{of_bytes}{count(rounds * size_of_round)}"
        table.add_row(
            stage, f"{of_rounds}{count(rounds)}", count(messages), count(size_of_round), total
        )
