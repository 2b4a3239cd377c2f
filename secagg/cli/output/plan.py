"""What `secagg plan` prints: privacy, rules and budgets, sums, traffic and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from secagg.cli.output import terminal
from secagg.cli.output.tables import Table
from secagg.cli.output.terminal import (
    Paragraph,
    alike,
    show_disclosure,
    show_heading,
    show_warnings,
)
from secagg.evidence.claims.disclosure import other_runs
from secagg.evidence.claims.noise import noise_exhausted
from secagg.evidence.claims.rules import NOT_OF_A_SITE
from secagg.evidence.numbers import (
    any_setting,
    count,
    counted,
    declared,
    epsilon_or_no_bound,
    listing,
    probability,
    significant,
    size,
    typeset,
)
from secagg.privacy.accounting.composition import rounded_down
from secagg.privacy.expected_error import percent

_MANY_ROUNDS = 1000  # from here on a line warns of their running time
_COLOURS = {"green": "green", "amber": "yellow", "red": "bold red", None: "dim"}


def show_plan(plan: Mapping[str, Any], *, at_home: bool = False) -> None:
    """Print a plan: privacy, rules and budgets, sums and traffic, and the verdict.

    at_home: a party reads the plan before it approves the job: what its home says follows, and
        has the refusals and the verdict
    """
    out = terminal.standard_output()
    names = plan["sites"]
    out.print(f"[bold]{escape(plan['title'])}[/]")
    out.print(
        f"{plan['method']} under {plan['protocol']}, {counted(len(names), 'site')}: "
        f"{escape(', '.join(names))}"
    )
    guarantee, noised = plan["differential_privacy"], _is_noised(plan)
    show_heading(out, "Privacy")
    out.print(f"{plan['protocol']}: {plan['in_numbers']}")
    out.print(escape(typeset(guarantee["sentence"])))
    show_warnings(out, [(warning, False) for warning in plan["warnings"]])
    if noised:
        _show_usefulness(out, guarantee, plan["protocol"])
    show_heading(out, "What the sums reveal")
    show_disclosure(out, plan["stages"][0]["sees"], plan["disclosure"], noised=noised)
    if not noised:
        together = other_runs(plan["disclosure"])
        out.print(f"Two results over the same records can tell more than each alone: {together}")
    if plan["exact_numbers"] is not None:
        _show_numbers(out, plan["exact_numbers"])
    show_heading(out, "Rules and budgets")
    out.print(f"rules of the job: {_rules(plan['release']) or 'none set'}")
    own_rules = ((name, _rules(rules)) for name, rules in plan["own_rules"].items())
    for sites, rules in alike(own_rules):
        out.print(f"own rules of {escape(sites)}: {rules}")
    if noised:
        out.print(f"min_records at each site is not checked: {NOT_OF_A_SITE}.")
    _show_budgets(out, plan)
    show_heading(out, "Sums and traffic")
    out.print(_fields_table(plan))
    out.print()
    out.print(_traffic_table(plan))
    _show_running_time(out, plan)
    _show_refusals(out, plan, at_home=at_home)


def _is_noised(plan: Mapping[str, Any]) -> bool:
    return bool(plan["differential_privacy"]["placement"] != "none")


def _rules(rules: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {any_setting(v)}" for k, v in rules.items() if v is not None)


def _show_numbers(out: Console, numbers: Mapping[str, Any]) -> None:
    """Print how many exact numbers are released, and the records that sites need for them."""
    words = f"exact numbers: {count(numbers['moments'])} moments of the columns"
    if numbers["rounds"]:
        words += f", and up to {count(numbers['rounds'])} in rounds"
    out.print(words)
    needs = []
    for each in numbers["sites"]:
        words = f"{count(each['records_to_begin'])} records to begin"
        if each["records_for_all"] > each["records_to_begin"]:
            words += f", {count(each['records_for_all'])} for all rounds"
        words += f" (max_exact_share {declared(each['max_exact_share'])})"
        needs.append((each["site"], words))
    for sites, words in alike(needs):
        out.print(f"records needed at {escape(sites)}: {words}")


def _show_budgets(out: Console, plan: Mapping[str, Any]) -> None:
    """Print what is left under each cap, what the ledgers have spent, and which ledgers are new."""
    totals = {row["party"]: row for row in plan["totals"]}
    left = []
    for budget in plan["budgets"]:
        words = f"{rounded_down(budget['left'])} at delta {probability(budget['delta'])}"
        spent, _, after = _spending(
            {"before": budget["spent"], "after": budget["after"]}, totals.get(budget["site"])
        )
        words += f" (spent {spent}, with this job {after}), of a cap of {typeset(budget['words'])}"
        left.append((budget["site"], words))
    for sites, words in alike(left):
        out.print(f"epsilon left at {escape(sites)}: {words}")
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
    for line in plan["new_ledgers"]:
        out.print(escape(line), style="yellow")
    if plan["totals"]:
        out.print()
        out.print(_totals_table(plan["totals"]))
        if any(row["before"] for row in plan["totals"]):
            out.print("Epsilons do not simply add up: several jobs have less than their sum.")


def _show_running_time(out: Console, plan: Mapping[str, Any]) -> None:
    """Print a remark on a job with many rounds."""
    rounds = sum(stage["max_rounds"] for stage in plan["stages"])
    if rounds < _MANY_ROUNDS:
        return
    at_most = "" if all(stage["all_run"] for stage in plan["stages"]) else "at most "
    out.print(
        f"In {at_most}{count(rounds)} rounds a site sends {at_most or 'about '}"
        f"{size(plan['a_site_sends_at_most'])}. Each round is also signed, checked, entered in "
        "ledgers, logged and written to disk. That takes many times as long as small sums "
        "themselves."
    )


def _show_refusals(out: Console, plan: Mapping[str, Any], *, at_home: bool) -> None:
    """Print who may refuse or will refuse the job; last, the verdict of a job that can run.

    The verdict of a job that will be refused is the error that the command ends with.
    """
    if not at_home:
        out.print()
    for refusal in _shared_refusals(plan["possible_refusals"], plan["sites"]):
        out.print(f"may be refused: {escape(refusal)}", style="bold yellow")
    if at_home:
        return
    refusals = _shared_refusals(plan["refusals"], plan["sites"])
    for refusal in refusals:
        out.print(f"will be refused: {escape(refusal)}", style="bold red")
    if not refusals:
        out.print("can run: no rule or budget known here refuses this job", style="bold green")


def _shared_refusals(refusals: Sequence[str], sites: Sequence[str]) -> list[str]:
    """Return the refusals with the sites of equal ones in one line."""
    split = []
    for refusal in refusals:
        site = next((name for name in sites if refusal.startswith(f"{name}, by its ")), "")
        split.append((site, refusal.removeprefix(site)))
    return [f"{names}{why}" for names, why in alike(split)]


def _show_usefulness(out: Console, guarantee: Mapping[str, Any], protocol: str) -> None:
    """Print whether the result will be usable, the noise, and what more colluders mean."""
    judged = guarantee["feasibility"]
    out.print(f"usable? {escape(judged['words'])}", style=_COLOURS[judged["verdict"]])
    if "assumes" in judged:
        out.print(Paragraph(escape(judged["assumes"]), "dim", indent=2))
    if guarantee["compared"] is not None:
        _show_compared(out, guarantee["compared"])
    out.print()
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
        out.print()
        table = Table(title="if more sites collude")
        for name in ("colluding sites", f"epsilon at delta {probability(guarantee['delta'])}"):
            table.add_column(name, justify="right")
        for colluding, epsilon in guarantee["if_more_collude"]:
            style = "bold" if colluding == guarantee["colluding"] else None
            table.add_row(str(colluding), epsilon_or_no_bound(epsilon), style=style)
        out.print(table)
        if why := noise_exhausted(guarantee, protocol):
            out.print(escape(why))


def _show_compared(out: Console, found: Mapping[str, Any]) -> None:
    """Print the errors of all methods that answer the job's regressions, and what to change."""
    out.print()
    title = "expected coefficient error, by mechanism (simulated records)"
    caption = "SD: standard deviation of each column, relative to what the job states or assumes"
    if several := [row for row in found["rows"] if row["jobs"] > 1]:
        alone = next(row for row in found["rows"] if row["own"])
        caption += f"; {several[0]['jobs']} jobs together cost epsilon {alone['epsilon']:g}"
    table = Table(title=title, caption=caption)
    for name in ("method", "placement", "settings"):
        table.add_column(name)
    for name in ("error", "if true SDs are half", "if twice", "intervals"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for i, row in enumerate(found["rows"]):
        settings = [row["settings"]] if row["settings"] else []
        settings += ["this job"] if row["own"] else []
        settings += (
            [f"{row['jobs']} jobs, epsilon {row['epsilon']:.2g} each"] if row["jobs"] > 1 else []
        )
        errors = (percent(row[key]) for key in ("error", "if_narrow", "if_wide"))
        table.add_row(
            row["method"], row["placement"], ", ".join(settings), *errors,
            f"{row['widened']:g} times" if row["intervals"] else "none", row["verdict"],
            style="bold" if i == found["best"] else None,
        )  # fmt: skip
    out.print(table)
    out.print(escape(found["words"]))
    if found["change"]:
        out.print("To take it, change in the job:")
        for line in found["change"]:
            out.print(f"  {escape(line)}", highlight=False)
    if found["hint"]:
        out.print(escape(found["hint"]))


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
    """Return the sums; the bits that each needs are fewer than its ring has."""
    table = Table(
        title="No sum can overflow: each needs at most the bits of the integers it is added up in"
    )
    for name in ("stage", "field"):
        table.add_column(name)
    for name in ("values", "bound", "fraction bits", "bits needed", "bits"):
        table.add_column(name, justify="right")
    for stage in plan["stages"]:
        for field in stage["fields"]:
            table.add_row(
                stage["stage"], field["name"], count(field["values"]), declared(field["bound"]),
                count(field["fraction_bits"]), count(field["sum_bits"]), count(stage["ring_bits"]),
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
