"""What a paper states and how it comes out here, in words: for pages, screen and JSON alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from secagg.reproductions.comparing import FEWEST, Found, Verdict, check, judge
from secagg.reproductions.figures import (
    Comparison,
    Entries,
    Entry,
    Figure,
    Metric,
    Place,
    Statement,
    mean_and_error,
)

NONE = "-"
NUMBERS_HEAD = ("quantity", "paper", "here", "expected", "verdict")

Pairs = Sequence[tuple[Comparison, Found]]


def value(entry: Entry | None, metric: Metric) -> str:
    """Write mean +- standard error of one entry, or a dash; and how many runs, if not all have a
    value.
    """
    if entry is None:
        return NONE
    given = entry.values.get(metric.name, {})
    mean, error = mean_and_error(given.values())
    if mean is None:
        return NONE
    shown = f"{mean:.{metric.decimals}f}"
    shown += "" if error is None else f" ± {error:.{metric.decimals}f}"
    return shown if len(given) == entry.planned else f"{shown} ({len(given)})"


def stated_rows(figure: Figure, entries: Entries) -> list[list[str]]:
    """Return where the paper gives a number: the columns of NUMBERS_HEAD."""
    labels = _labels(figure)
    metrics = {metric.name: metric for metric in figure.metrics}
    across = {panel.name: panel.across for panel in figure.panels}
    found: list[list[str]] = []
    for stated in figure.stated:
        place, metric = stated.place, metrics[stated.metric]
        where = f"{metric.label} of {labels[place.method]}, {place.panel}, {across[place.panel]} "
        ours = value(entries.get(place), metric)
        result = check(entries, stated)
        expected = NONE if result.interval is None else _range(result, metric)
        verdict = result.verdict.value
        found.append([f"{where}{place.column}", f"{stated.value:g}", ours, expected, verdict])
    return found


def verdicts(figure: Figure, entries: Entries) -> list[list[str]]:
    """Return what the paper says in words, and how its comparisons come out here."""
    return [[s.words, " ".join(_told(figure, judge(entries, s)))] for s in figure.statements]


def plain_statement(entries: Entries, statement: Statement) -> dict[str, Any]:
    """Return how a statement's comparisons come out, as plain data."""
    return {
        "comparisons": [
            {
                **asdict(comparison),
                "verdict": found.verdict.value,
                "runs": found.runs,
                "difference": None if found.interval is None else asdict(found.interval),
            }
            for comparison, found in judge(entries, statement)
        ]
    }


def _told(figure: Figure, pairs: Pairs) -> Iterator[str]:
    """Yield sentences: counts of all verdicts, then which comparisons are not as stated, or open.

    How many are not run is part of the first sentence, so that a statement of which half was
    checked never reads like one that was.
    """
    of = {verdict: [pair for pair in pairs if pair[1].verdict is verdict] for verdict in Verdict}
    labels = _labels(figure)
    absent = (labels[place.method] for _, found in of[Verdict.NOT_RUN] for place in found.absent)
    not_run = f"Not run: {'; '.join(dict.fromkeys(absent))}."
    if len(of[Verdict.NOT_RUN]) == len(pairs):
        yield not_run
        return
    counts = [f"{len(listed)} {verdict.value}" for verdict, listed in of.items() if listed]
    comparisons = "1 comparison" if len(pairs) == 1 else f"{len(pairs)} comparisons"
    yield f"Of {comparisons}: {', '.join(counts)}."
    few = [pair for pair in of[Verdict.UNDECIDED] if pair[1].runs < FEWEST]
    wide = [pair for pair in of[Verdict.UNDECIDED] if pair[1].runs >= FEWEST]
    if few:
        yield f"Fewer than {FEWEST} runs with a value: {len(few)}."
    for title, listed in (("Not as stated", of[Verdict.NOT_SO]), ("Undecided", wide)):
        if listed:
            yield f"{title}: {'; '.join(_compared(figure, *pair) for pair in listed)}."
    if of[Verdict.NOT_RUN]:
        yield not_run


def _compared(figure: Figure, comparison: Comparison, found: Found) -> str:
    """Return what is asserted, by how much it is so, and the interval."""
    labels = _labels(figure)
    metric = next(m for m in figure.metrics if m.name == comparison.metric)
    several = len(figure.panels) > 1

    def told(place: Place) -> str:
        where = f"{place.panel}, " if several else ""
        return f"{labels[place.method]} ({where}{place.column})"

    ends = f"{told(comparison.smaller)} below {told(comparison.larger)}"
    assert found.interval is not None  # of two runs and more, which these are
    by = f"{found.interval.mean:.{metric.decimals}f}"
    return f"{ends} by {by} ({_range(found, metric)}; {found.runs} runs)"


def _range(found: Found, metric: Metric) -> str:
    assert found.interval is not None
    low, high = found.interval.low, found.interval.high
    return f"{low:.{metric.decimals}f} to {high:.{metric.decimals}f}"


def _labels(figure: Figure) -> dict[str, str]:
    return {method.name: method.label for method in figure.methods}
