"""A figure as Markdown tables, beside what its paper states, and as JSON with every number."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from secagg.reproductions.figures import (
    Comparison,
    Entries,
    Entry,
    Figure,
    Metric,
    Panel,
    Place,
    Stated,
    judge,
    mean_and_error,
    paired_difference,
)

NONE = "-"


def value(entry: Entry | None, metric: Metric) -> str:
    """Write mean +- standard error of one entry, or a dash."""
    if entry is None:
        return NONE
    mean, error = mean_and_error(entry.values.get(metric.name, {}).values())
    if mean is None:
        return NONE
    shown = f"{mean:.{metric.decimals}f}"
    return shown if error is None else f"{shown} ± {error:.{metric.decimals}f}"


def rows(figure: Figure, entries: Entries, panel: Panel, metric: Metric) -> list[list[str]]:
    """Return one table: a row for each method that has entries in the panel, its label first."""
    found = [
        [method.label]
        + [
            value(entries.get(Place(panel.name, column, method.name)), metric)
            for column in panel.columns
        ]
        for method in figure.methods
    ]
    return [row for row in found if any(text != NONE for text in row[1:])]


def run_rows(
    figure: Figure, entries: Entries, panel: Panel, *, troubled: bool = False
) -> list[list[str]]:
    """Return a table of runs: how many gave a graph, did not converge, or failed.

    troubled: only the methods of which some did not converge or failed
    """
    found: list[list[str]] = []
    for method in figure.methods:
        row = [entries.get(Place(panel.name, column, method.name)) for column in panel.columns]
        there = [entry for entry in row if entry is not None]
        trouble = any(entry.unconverged or entry.failed for entry in there)
        if trouble if troubled else there:
            found.append([method.label, *map(_runs, row)])
    return found


def _runs(entry: Entry | None) -> str:
    if entry is None:
        return NONE
    told = [f"{entry.runs}"]
    told += [f"{entry.unconverged} not converged"] if entry.unconverged else []
    told += [f"{len(entry.failed)} failed"] if entry.failed else []
    return ", ".join(told)


def reasons(figure: Figure, entries: Entries) -> list[str]:
    """Return why cells failed: each method's reasons, with the number of its entries."""
    labels = {method.name: method.label for method in figure.methods}
    counted: dict[tuple[str, str], int] = {}
    for place, entry in entries.items():
        for why in entry.failed.values():
            pair = (labels[place.method], why)
            counted[pair] = counted.get(pair, 0) + 1
    return [f"{label}, {many} times: {why}" for (label, why), many in counted.items()]


def stated_rows(figure: Figure, entries: Entries) -> list[list[str]]:
    """Return where the paper gives a number: place, its number, ours, and by how much they differ.

    The difference is in standard errors of ours: the paper does not give its own.
    """
    labels = {method.name: method.label for method in figure.methods}
    metrics = {metric.name: metric for metric in figure.metrics}
    across = {panel.name: panel.across for panel in figure.panels}
    found: list[list[str]] = []
    for stated in figure.stated:
        place, metric = stated.place, metrics[stated.metric]
        where = f"{metric.label} of {labels[place.method]}, {place.panel}, {across[place.panel]} "
        ours = value(entries.get(place), metric)
        found.append(
            [where + str(place.column), f"{stated.value:g}", ours, _difference(entries, stated)]
        )
    return found


def _difference(entries: Entries, stated: Stated) -> str:
    entry = entries.get(stated.place)
    given = entry.values.get(stated.metric, {}).values() if entry else ()
    mean, error = mean_and_error(given)
    return f"{(mean - stated.value) / error:+.1f}" if mean is not None and error else NONE


def verdicts(figure: Figure, entries: Entries) -> list[list[str]]:
    """Return what the paper says in words, and how its comparisons come out here."""
    return [
        [s.words, " ".join(_verdict(figure, entries, i))] for i, s in enumerate(figure.statements)
    ]


def _verdict(figure: Figure, entries: Entries, index: int) -> Iterator[str]:
    statement = figure.statements[index]
    found = judge(entries, statement)
    so = len(found.clearly_so) + len(found.so)
    tried = len(statement.comparisons) - len(found.missing)
    if not tried:
        yield "Not run."
        return
    clearly = len(found.clearly_so)
    sure = f", {clearly} by more than two standard errors" if clearly else ""
    yield f"{so} of {tried} comparisons as stated{sure}."
    for title, listed in (("Clearly not so", found.clearly_not_so), ("Not so", found.not_so)):
        if listed:
            yield f"{title}: {'; '.join(_compared(figure, entries, each) for each in listed)}."


def _compared(figure: Figure, entries: Entries, comparison: Comparison) -> str:
    labels = {method.name: method.label for method in figure.methods}
    metric = next(m for m in figure.metrics if m.name == comparison.metric)
    ends = (comparison.smaller, comparison.larger)
    several = len(figure.panels) > 1

    def told(place: Place) -> str:
        where = f"{place.panel}, " if several else ""
        return f"{labels[place.method]} ({where}{place.column})"

    mean, error = paired_difference(entries, comparison)
    assert mean is not None
    if mean == 0:
        return f"{told(ends[0])} equals {told(ends[1])}"
    by = f"{-mean:.{metric.decimals}f}"
    by += f" ± {error:.{metric.decimals}f}" if error is not None else ""
    return f"{told(ends[0])} above {told(ends[1])} by {by}"


def as_markdown(figure: Figure, entries: Entries) -> str:
    """Return the figure's page."""
    return "\n".join(_page(figure, entries)) + "\n"


def _page(figure: Figure, entries: Entries) -> Iterator[str]:
    yield f"# {figure.title}\n"
    yield f"![{figure.title}]({figure.name}.svg)\n"
    yield "Means ± standard errors over the runs (seeds); what did not converge is in the means.\n"
    for panel in figure.panels:
        head = [f"{panel.across}", *map(str, panel.columns)]
        for metric in (*figure.metrics, *figure.costs):
            yield f"## {metric.label}, {panel.name}\n"
            yield from _table(head, rows(figure, entries, panel, metric))
        yield f"## Runs, {panel.name}\n"
        yield from _table(head, run_rows(figure, entries, panel))
    if figure.stated:
        yield "## Numbers in the paper's text\n"
        head = ["quantity", "paper", "here", "difference in standard errors"]
        yield from _table(head, stated_rows(figure, entries))
    if figure.statements:
        yield "## What the paper says, and what came out here\n"
        yield from _table(["the paper", "here"], verdicts(figure, entries), right=False)
    if failed := reasons(figure, entries):
        yield "## What failed\n"
        yield from (f"- {line}" for line in failed)
        yield ""
    yield "## Methods\n"
    yield from (f"- {m.label}: {m.note}" for m in figure.methods if m.note)
    yield ""
    yield from (f"{note}\n" for note in figure.notes)


def _table(head: Sequence[str], body: Sequence[Sequence[str]], right: bool = True) -> Iterator[str]:
    if not body:
        yield "Nothing.\n"
        return
    mark = "--:" if right else "---"
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join(["---", *[mark] * (len(head) - 1)]) + " |"
    for row in body:
        yield "| " + " | ".join(text.replace("|", "\\|") for text in row) + " |"
    yield ""


def as_plain(figure: Figure, entries: Entries, versions: Sequence[str]) -> dict[str, Any]:
    """Return everything as plain data: every value of every seed, means, errors, verdicts.

    versions: of the libraries that cells were computed with
    """
    metrics = (*figure.metrics, *figure.costs)
    plain: list[dict[str, Any]] = []
    for place, entry in entries.items():
        moments = {m.name: mean_and_error(entry.values.get(m.name, {}).values()) for m in metrics}
        plain.append(
            {
                "panel": place.panel,
                "column": place.column,
                "method": place.method,
                "runs": entry.runs,
                "not_converged": entry.unconverged,
                "failed": {str(seed): why for seed, why in entry.failed.items()},
                "mean": {name: mean for name, (mean, _) in moments.items()},
                "standard_error": {name: error for name, (_, error) in moments.items()},
                "values": {
                    name: {str(seed): v for seed, v in values.items()}
                    for name, values in entry.values.items()
                },
            }
        )
    return {
        "figure": figure.name,
        "title": figure.title,
        "methods": {method.name: method.label for method in figure.methods},
        "entries": plain,
        "stated": [
            dict(zip(("quantity", "paper", "here", "difference"), row, strict=True))
            for row in stated_rows(figure, entries)
        ],
        "statements": [
            dict(zip(("paper", "here"), row, strict=True)) for row in verdicts(figure, entries)
        ],
        "computed_with": list(versions),
        "notes": list(figure.notes),
    }


def as_json(figure: Figure, entries: Entries, versions: Sequence[str]) -> str:
    """Return `as_plain` as text."""
    return json.dumps(as_plain(figure, entries, versions), indent=1, ensure_ascii=False) + "\n"
