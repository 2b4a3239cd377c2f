"""A figure as a Markdown page with tables and the paper's claims, and as JSON with every number."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from reproductions.harness.chart import chart
from reproductions.harness.figures import (
    Entries,
    Entry,
    Figure,
    Metric,
    Panel,
    Place,
    mean_and_error,
    read_entries,
)
from reproductions.harness.findings import (
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
from reproductions.harness.markdown import table
from reproductions.harness.paired_comparison import LEVEL, MIN_RUNS
from secagg.experiments.runner.experiment import Done


def rows(figure: Figure, entries: Entries, panel: Panel, metric: Metric) -> list[list[str]]:
    """Return one table: for each method with entries in the panel, its label and its values."""
    all_rows = [
        [method.label]
        + [
            value(entries.get(Place(panel.name, column, method.name)), metric)
            for column in panel.columns
        ]
        for method in figure.methods
    ]
    return [row for row in all_rows if any(text != NONE for text in row[1:])]


def run_rows(
    figure: Figure, entries: Entries, panel: Panel, *, troubled: bool = False
) -> list[list[str]]:
    """Return a table with the numbers of runs: with a value, not converged, failed, pending.

    troubled: only methods with runs that did not converge, failed or are pending
    """
    table_rows: list[list[str]] = []
    for method in figure.methods:
        row = [entries.get(Place(panel.name, column, method.name)) for column in panel.columns]
        present = [entry for entry in row if entry is not None]
        trouble = any(entry.unconverged or entry.failed or entry.waiting for entry in present)
        if trouble if troubled else present:
            table_rows.append([method.label, *map(_runs, row)])
    return table_rows


def _runs(entry: Entry | None) -> str:
    if entry is None:
        return NONE
    counts = [f"{entry.runs}"]
    counts += [f"{entry.unconverged} not converged"] if entry.unconverged else []
    counts += [f"{len(entry.failed)} failed"] if entry.failed else []
    counts += [f"{len(entry.waiting)} pending"] if entry.waiting else []
    return ", ".join(counts)


def reasons(figure: Figure, entries: Entries) -> list[str]:
    """Return why cells failed: one line for each method and reason, with the number of cells."""
    labels = {method.name: method.label for method in figure.methods}
    counts = Counter(
        (labels[place.method], why) for place, e in entries.items() for why in e.failed.values()
    )
    return [f"{label}, {count} times: {why}" for (label, why), count in counts.items()]


def progress(figure: Figure, entries: Entries) -> str:
    """Return how many runs of each method are complete; empty if all runs are."""
    planned = {seed for runs in figure.points.values() for seed in runs}
    methods = dict[int, list[str]]()  # number of complete runs -> labels
    for method in figure.methods:
        own = [entry for place, entry in entries.items() if place.method == method.name]
        waiting = {seed for entry in own for seed in entry.waiting}
        if own:
            methods.setdefault(len(planned - waiting), []).append(method.label)
    if methods.keys() == {len(planned)}:
        return ""
    counts = [f"{runs} ({'; '.join(labels)})" for runs, labels in sorted(methods.items())]
    complete = ", ".join(counts if len(counts) > 1 else map(str, methods))
    return (
        f"Not finished. Runs complete, of {len(planned)}: {complete}. Run the same command again "
        "to continue."
    )


def as_markdown(figure: Figure, entries: Entries) -> str:
    """Return the figure's page."""
    return "\n".join(_page(figure, entries)) + "\n"


def _page(figure: Figure, entries: Entries) -> Iterator[str]:
    yield f"# {figure.title}\n"
    yield f"![{figure.title}]({figure.name}.svg)\n"
    if unfinished := progress(figure, entries):
        yield f"**{unfinished}**\n"
    yield (
        "Means ± standard errors over the runs (seeds), including fits that did not converge. "
        "Brackets give the number of runs with a value if some planned runs have none.\n"
    )
    if not_run := figure.methods_not_run():
        yield f"Not run: {'; '.join(method.label for method in not_run)}.\n"
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
            f"Expected: the {LEVEL:.0%} prediction interval, computed from the runs here, for a "
            "mean over as many runs as the paper used. It is half a digit wider at each end, since "
            f"the paper's numbers are rounded. Undecided: fewer than {MIN_RUNS} runs here.\n"
        )
        yield from table(NUMBERS_HEAD, stated_rows(figure, entries))
    if figure.statements:
        yield "## The paper's claims, and the results here\n"
        yield (
            f"Each comparison uses paired differences and Student's {LEVEL:.0%} confidence "
            "interval. As stated: the whole interval lies on the stated side. Not as stated: no "
            "part of the interval does. Undecided: the interval covers both sides, or fewer than "
            f"{MIN_RUNS} runs have a value for both methods.\n"
        )
        yield from table(["the paper", "here"], verdicts(figure, entries), right=False)
    if figure.remarks:
        yield "## Differences without a verdict\n"
        yield (
            'The paper does not define words such as "close" and "stable", and makes no claim '
            "about rows that it does not contain. This table gives paired differences: mean ± "
            f"standard error, and the {LEVEL:.0%} confidence interval of the mean over all seeds.\n"
        )
        yield from table(REMARKS_HEAD, remark_rows(figure, entries), right=False)
    if failed := reasons(figure, entries):
        yield "## Failed cells\n"
        yield from (f"- {line}" for line in failed)
        yield ""
    yield "## Methods\n"
    yield from (f"- {m.label}: {m.note}" for m in figure.methods if m.note)
    yield ""
    yield from (f"{note}\n" for note in figure.notes)


def write(figure: Figure, done: Done) -> dict[str, str]:
    """Return the figure's page, picture and numbers, by the name of the file."""
    entries = read_entries(figure, done.outcomes)
    plain = as_plain(figure, entries, done.versions, done.seconds)
    return {
        f"{figure.name}.md": as_markdown(figure, entries),
        f"{figure.name}.svg": chart(figure, entries),
        f"{figure.name}.json": json.dumps(plain, indent=1, ensure_ascii=False) + "\n",
    }


def as_plain(
    figure: Figure, entries: Entries, versions: Sequence[str], seconds: float
) -> dict[str, Any]:
    """Return everything as plain data: each seed's values, means, standard errors, verdicts.

    versions: library versions that computed the cells; seconds: total processor time of all cells
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
        "not_run": [method.name for method in figure.methods_not_run()],
        "stated": [
            dict(zip(NUMBERS_HEAD, row, strict=True)) for row in stated_rows(figure, entries)
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
