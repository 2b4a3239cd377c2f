"""A figure as Markdown tables, beside what its paper states, and as JSON with every number."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from secagg.reproductions.harness.chart import chart
from secagg.reproductions.harness.experiment import Done
from secagg.reproductions.harness.figures import (
    Entries,
    Entry,
    Figure,
    Metric,
    Panel,
    Place,
    mean_and_error,
    read_entries,
)
from secagg.reproductions.harness.findings import (
    NONE,
    NUMBERS_HEAD,
    REMARKS_HEAD,
    plain_remark,
    plain_statement,
    remark_rows,
    stated_rows,
    value,
    verdicts,
)
from secagg.reproductions.harness.markdown import table
from secagg.reproductions.harness.paired_comparison import LEVEL, MIN_RUNS


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
    """Return a table of runs: how many gave a graph, did not converge, failed, or are to come.

    troubled: only the methods of which some did not converge, failed or are to come
    """
    found: list[list[str]] = []
    for method in figure.methods:
        row = [entries.get(Place(panel.name, column, method.name)) for column in panel.columns]
        there = [entry for entry in row if entry is not None]
        trouble = any(entry.unconverged or entry.failed or entry.waiting for entry in there)
        if trouble if troubled else there:
            found.append([method.label, *map(_runs, row)])
    return found


def _runs(entry: Entry | None) -> str:
    if entry is None:
        return NONE
    told = [f"{entry.runs}"]
    told += [f"{entry.unconverged} not converged"] if entry.unconverged else []
    told += [f"{len(entry.failed)} failed"] if entry.failed else []
    told += [f"{len(entry.waiting)} to come"] if entry.waiting else []
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


def progress(figure: Figure, entries: Entries) -> str:
    """Return how many runs of which methods are complete; an empty text where all are."""
    planned = {seed for runs in figure.points.values() for seed in runs}
    methods = dict[int, list[str]]()  # number of complete runs -> labels
    for method in figure.methods:
        theirs = [entry for place, entry in entries.items() if place.method == method.name]
        waiting = {seed for entry in theirs for seed in entry.waiting}
        if theirs:
            methods.setdefault(len(planned - waiting), []).append(method.label)
    if methods.keys() == {len(planned)}:
        return ""
    counts = [f"{runs} ({'; '.join(labels)})" for runs, labels in sorted(methods.items())]
    complete = ", ".join(counts if len(counts) > 1 else map(str, methods))
    return f"Not finished. Runs complete, of {len(planned)}: {complete}. The same command goes on."


def as_markdown(figure: Figure, entries: Entries) -> str:
    """Return the figure's page."""
    return "\n".join(_page(figure, entries)) + "\n"


def _page(figure: Figure, entries: Entries) -> Iterator[str]:
    yield f"# {figure.title}\n"
    yield f"![{figure.title}]({figure.name}.svg)\n"
    if unfinished := progress(figure, entries):
        yield f"**{unfinished}**\n"
    yield (
        "Means ± standard errors over the runs (seeds); what did not converge is in the means. In "
        "brackets: the number of runs with a value, where it is not that of all planned.\n"
    )
    if left_out := figure.left_out():
        yield f"Not run: {'; '.join(method.label for method in left_out)}.\n"
    for panel in figure.panels:
        head = [f"{panel.across}", *(f"{column:g}" for column in panel.columns)]
        for metric in (*figure.metrics, *figure.costs):
            yield f"## {metric.label}, {panel.name}\n"
            yield from table(head, rows(figure, entries, panel, metric))
        yield f"## Runs, {panel.name}\n"
        yield from table(head, run_rows(figure, entries, panel))
    if figure.stated:
        yield "## Numbers in the paper's text\n"
        yield (
            f"Expected: where, with {LEVEL:.0%} confidence, the mean of as many other runs as the "
            "paper's lies, judging by ours, and half a digit more at either end, since the paper's "
            f"numbers are rounded. Undecided: we have fewer than {MIN_RUNS}.\n"
        )
        yield from table(NUMBERS_HEAD, stated_rows(figure, entries))
    if figure.statements:
        yield "## What the paper says, and what came out here\n"
        yield (
            f"Each comparison is of paired differences, with a {LEVEL:.0%} confidence interval "
            "(Student's). As stated: the whole interval is on the stated side. Not as stated: none "
            f"of it is. Undecided: it holds both answers, or there are fewer than {MIN_RUNS} runs "
            "in which both methods have a value.\n"
        )
        yield from table(["the paper", "here"], verdicts(figure, entries), right=False)
    if figure.remarks:
        yield "## Differences that are not judged\n"
        yield (
            "How close is close, and how stable is stable, the paper does not say, and of the rows "
            "that it does not have it says nothing. Here are paired differences: mean ± standard "
            f"error, and the interval that holds the mean over all seeds with {LEVEL:.0%} "
            "confidence.\n"
        )
        yield from table(REMARKS_HEAD, remark_rows(figure, entries), right=False)
    if failed := reasons(figure, entries):
        yield "## What failed\n"
        yield from (f"- {line}" for line in failed)
        yield ""
    yield "## Methods\n"
    yield from (f"- {m.label}: {m.note}" for m in figure.methods if m.note)
    yield ""
    yield from (f"{note}\n" for note in figure.notes)


def write(figure: Figure, done: Done) -> dict[str, str]:
    """Return the figure's page, picture and numbers, by the endings of their files."""
    entries = read_entries(figure, done.outcomes)
    plain = as_plain(figure, entries, done.versions, done.seconds)
    return {
        "md": as_markdown(figure, entries),
        "svg": chart(figure, entries),
        "json": json.dumps(plain, indent=1, ensure_ascii=False) + "\n",
    }


def as_plain(
    figure: Figure, entries: Entries, versions: Sequence[str], seconds: float
) -> dict[str, Any]:
    """Return everything as plain data: every value of every seed, means, errors, verdicts.

    versions: of the libraries that cells were computed with; seconds: of processor time, that all
        cells took
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
                "to_come": list(entry.waiting),
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
        "not_run": [method.name for method in figure.left_out()],
        "stated": [
            dict(zip(("quantity", "paper", "here", "expected", "verdict"), row, strict=True))
            for row in stated_rows(figure, entries)
        ],
        "statements": [
            {**dict(zip(("paper", "here"), row, strict=True)), **plain_statement(entries, each)}
            for each, row in zip(figure.statements, verdicts(figure, entries), strict=True)
        ],
        "remarks": [plain_remark(entries, remark) for remark in figure.remarks],
        "computed_with": list(versions),
        "cpu_seconds": seconds,
        "notes": list(figure.notes),
    }
