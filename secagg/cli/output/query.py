"""What `secagg query` prints: means and probabilities of columns, or the most probable record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from secagg.cli.output.analyses import show_notes
from secagg.cli.output.tables import Table
from secagg.cli.output.terminal import show_mistrust, show_warnings, standard_output
from secagg.evidence.numbers import by_error, fixed, percent, significant
from secagg.evidence.numbers import interval as written_interval
from secagg.models.neural.ngm.fitted.replicates import MIN_LEVEL_RECORDS

_PROBABILITY_DIGITS = 3


def show_query(answer: Mapping[str, Any]) -> None:
    """Print what `FinishedNgmRun.query` or `most_probable` returned."""
    out = standard_output()
    notes = answer["run"]["notes"]
    if not answer["run"]["converged"]:
        show_mistrust(out, "the run", notes)
        notes = []
    clipped = "is outside its bounds and was set to the bound"
    show_warnings(out, [(f"{name} {clipped}", False) for name in answer["clipped"]])
    if "values" in answer:
        out.print(_most_probable(answer))
    else:
        _show_columns(out, answer)
    if notes:
        show_notes(out, "the run", notes)


def _show_columns(out: Console, answer: Mapping[str, Any]) -> None:
    """Print means and probabilities of columns."""
    disagree = [
        f"the chains for {row['column']} disagree (R-hat {row['r_hat']:.3f}): do not use its values"
        for row in answer["columns"]
        if not row["chains_agree"]
    ]
    show_warnings(out, [(text, True) for text in disagree])
    title = f"{escape(answer['title'])}: {escape(_given(answer))}"
    interval = answer["interval"]
    heads = [] if interval["unavailable"] else [f"{percent(interval['level'])} interval"]
    numbers = [row for row in answer["columns"] if "mean" in row]
    if numbers:
        names = ("mean", *heads, "± MCSE", "sd", "± MCSE", "mode", "R-hat", "ESS")
        table = _table(title, "column", *names)
        for row in numbers:
            low, high = row.get("mean_interval", (0.0, 0.0))
            errors = {key: row[f"{key}_error"] for key in ("mean", "sd")}
            widest = max(errors["mean"], (high - low) / 4)  # near the larger standard error
            cells = [by_error(row["mean"], widest)]
            if heads:
                cells.append(written_interval(by_error(low, widest), by_error(high, widest)))
            sd = by_error(row["sd"], errors["sd"])
            cells += [_error(errors["mean"]), sd, _error(errors["sd"]), significant(row["mode"], 4)]
            table.add_row(escape(row["column"]), *cells, *_sampler(row))
        out.print(table)
    levels = [row for row in answer["columns"] if "levels" in row]
    if levels:
        names = ("probability", *heads, "± MCSE", "R-hat", "ESS")
        table = _table("" if numbers else title, "column", "level", *names)
        for row in levels:
            for i, level in enumerate(row["levels"]):
                cells = [level["level"], fixed(level["probability"], _PROBABILITY_DIGITS)]
                if heads:
                    ends = [fixed(end, _PROBABILITY_DIGITS) for end in level.get("interval", ())]
                    cells.append(written_interval(*ends) if ends else "")
                cells.append(_error(level["error"]))
                sampler = ("", "") if i else _sampler(row)
                table.add_row("" if i else escape(row["column"]), *map(escape, cells), *sampler)
        out.print(table)
    out.print(_below(answer, levels), markup=False)


def _below(answer: Mapping[str, Any], levels: Sequence[Mapping[str, Any]]) -> str:
    """Return what the errors mean. levels: the rows of columns with levels"""
    interval = answer["interval"]
    text = (
        "Interval: the sampling error, as if other records of the same kind had been drawn. It "
        "takes the graph as given."
    )
    if not all("interval" in row["levels"][0] for row in levels):
        text += (
            f" A column with a level that fewer than {MIN_LEVEL_RECORDS} records have has none: "
            "so few do not tell how often the level occurs."
        )
    if interval["unavailable"]:
        text = f"There are no intervals for the sampling error: {interval['unavailable']}."
    if any(not row["exact"] for row in answer["columns"]):
        text += (
            " MCSE: Monte Carlo standard error of the draws. A value without MCSE, R-hat "
            "and ESS needed no draws, because all neighbours of its column are given."
        )
    else:
        text += " No draws were needed: all neighbours are given."
    return text


def _given(answer: Mapping[str, Any]) -> str:
    given = answer["given"].items()
    known = ", ".join(f"{n} = {v if isinstance(v, str) else significant(v)}" for n, v in given)
    return f"given {known}" if known else "nothing given"


def _table(title: str, *heads: str) -> Table:
    table = Table(title=title)
    for i, head in enumerate(heads):
        left = i == 0 or head == "level"
        table.add_column(head, justify="left" if left else "right")
    return table


def _error(error: float) -> str:
    return significant(error, 1) if error > 0 else ""


def _sampler(row: Mapping[str, Any]) -> tuple[str, str]:
    if row["exact"]:
        return "", ""
    return fixed(row["r_hat"], 3), significant(row["ess"], 2)


def _most_probable(answer: Mapping[str, Any]) -> Table:
    table = _table(f"{escape(answer['title'])}: most probable record", "column", "value", "")
    for name, value in answer["values"].items():
        cell = value if isinstance(value, str) else significant(value)
        table.add_row(escape(name), escape(cell), "given" if name in answer["given"] else "")
    table.below = f"{percent(answer['reached'])} of the searches, from random starts, ended here"
    return table
