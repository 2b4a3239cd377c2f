"""What `secagg plan` prints: proof of fit, traffic, promise, and who would refuse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from secagg.cli.output import terminal
from secagg.cli.output.terminal import number, show_disclosure, show_warnings
from secagg.privacy.accounting.budget import rounded_down
from secagg.reports.dp_mechanisms import gives_way
from secagg.reports.numbers import size

_MANY_ROUNDS = 1000  # rounds, from which on their time is worth a word


def show_plan(plan: Mapping[str, Any]) -> None:
    """Print a plan: one table of fields, one of traffic."""
    out = terminal.standard_output()
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
    noised = plan["differential_privacy"]["placement"] != "none"
    show_disclosure(out, plan["disclosure"]["text"], noised=noised)
    show_warnings(out, [(warning, False) for warning in plan["warnings"]])
    _show_promise(out, plan["differential_privacy"], plan["protocol"])
    fields = Table(title="proof of fit: sites x bound x 2^fraction bits fits the ring")
    for name in ("stage", "field", "kind"):
        fields.add_column(name)
    for name in ("values", "bound", "fraction bits", "sum needs", "ring"):
        fields.add_column(name, justify="right")
    traffic = Table(title="traffic of one round (measured with zeros)")
    traffic.add_column("stage")
    for name in ("rounds", "messages", "bytes", "bytes in all rounds"):
        traffic.add_column(name, justify="right")
    setup = plan["setup"]
    _traffic_row(traffic, "set-up", 1, setup["messages"], setup["bytes"], exactly=True)
    for stage in plan["stages"]:
        for field in stage["fields"]:
            fields.add_row(
                stage["stage"], field["name"], field["kind"], str(field["values"]),
                f"{field['bound']:g}", str(field["fraction_bits"]), f"{field['sum_bits']} bits",
                f"{stage['ring_bits']} bits",
            )  # fmt: skip
        _traffic_row(
            traffic, stage["stage"], stage["max_rounds"], stage["messages_a_round"],
            stage["bytes_a_round"], exactly=stage["all_run"],
        )  # fmt: skip
    out.print(fields)
    out.print(traffic)
    rounds = sum(stage["max_rounds"] for stage in plan["stages"])
    if rounds >= _MANY_ROUNDS:
        most = "" if all(stage["all_run"] for stage in plan["stages"]) else "at most "
        out.print(
            f"In {most}{rounds:,} rounds a site sends {most or 'about '}"
            f"{size(plan['a_site_sends_at_most'])}. Each round is also signed, checked, entered in "
            "ledgers, logged and written to disk, which takes many times what small sums "
            "themselves do.",
            soft_wrap=True,
        )


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


def _traffic_row(
    table: Table, stage: str, rounds: int, messages: int, each: int, *, exactly: bool
) -> None:
    """Add a row; exactly: nothing ends the stage before its last round."""
    if messages:
        sign = "" if rounds == 1 else "exactly " if exactly else "at most "
        about = "" if rounds == 1 else "about " if exactly else "at most "
        table.add_row(
            stage, f"{sign}{rounds}", str(messages), f"{each:,}", f"{about}{rounds * each:,}"
        )
