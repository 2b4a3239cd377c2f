"""What a paper states and how it comes out here, in words: for pages, screen and JSON alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from secagg.reproductions.harness.figures import (
    Comparison,
    Entries,
    Entry,
    Figure,
    Metric,
    Place,
    Remark,
    Statement,
    mean_and_error,
)
from secagg.reproductions.harness.paired_comparison import (
    LEVEL,
    MIN_RUNS,
    Found,
    Interval,
    Verdict,
    check,
    interval,
    judge,
    paired,
)

NONE = "-"
NUMBERS_HEAD = ("quantity", "paper", "here", "expected", "verdict")
REMARKS_HEAD = ("the paper", "difference", "here", f"{LEVEL:.0%} interval", "runs")

Pairs = Sequence[tuple[Comparison, Found]]


def value(entry: Entry | None, metric: Metric) -> str:
    """Write mean +- standard error of one entry, or a dash; and how many runs, if not all have a
    value.
    """
    if entry is None:
        return NONE
    given = entry.values.get(metric.name, {})
    shown = _mean(given.values(), metric)
    return shown if not given or len(given) == entry.planned else f"{shown} ({len(given)})"


def _mean(values: Iterable[float], metric: Metric) -> str:
    mean, error = mean_and_error(values)
    if mean is None:
        return NONE
    shown = f"{mean:.{metric.decimals}f}"
    return shown if error is None else f"{shown} ± {error:.{metric.decimals}f}"


def stated_rows(figure: Figure, entries: Entries) -> list[list[str]]:
    """Return where the paper gives a number: the columns of NUMBERS_HEAD."""
    labels = _labels(figure)
    across = {panel.name: panel.across for panel in figure.panels}
    found: list[list[str]] = []
    for stated in figure.stated:
        place, metric = stated.place, _metric(figure, stated.metric)
        where = f"{metric.label} of {labels[place.method]}, {place.panel}, {across[place.panel]} "
        ours = value(entries.get(place), metric)
        result = check(entries, stated)
        expected = NONE if result.interval is None else _range(result.interval, metric)
        verdict = result.verdict.value
        found.append([f"{where}{place.column:g}", f"{stated.value:g}", ours, expected, verdict])
    return found


def verdicts(figure: Figure, entries: Entries) -> list[list[str]]:
    """Return what the paper says in words, and how its comparisons come out here."""
    return [[s.words, " ".join(_told(figure, judge(entries, s)))] for s in figure.statements]


def remark_rows(figure: Figure, entries: Entries) -> list[list[str]]:
    """Return the columns of REMARKS_HEAD, the paper's words in the first row of each remark."""
    found: list[list[str]] = []
    for remark in figure.remarks:
        metric, words = _metric(figure, remark.metric), remark.words
        for place, other in remark.differences:
            given = list(paired(entries, remark.metric, place, other).values())
            around = interval(given)
            what = f"{metric.label} of {_named(figure, place)} less {_named(figure, other)}"
            shown = NONE if around is None else _range(around, metric)
            found.append([words, what, _mean(given, metric), shown, f"{len(given)}"])
            words = ""
    return found


def plain_remark(entries: Entries, remark: Remark) -> dict[str, Any]:
    """Return a remark and its differences as plain data."""
    differences: list[dict[str, Any]] = []
    for place, other in remark.differences:
        given = list(paired(entries, remark.metric, place, other).values())
        around = interval(given)
        differences.append(
            {
                "of": asdict(place),
                "less": asdict(other),
                "runs": len(given),
                "difference": None if around is None else asdict(around),
                "standard_error": mean_and_error(given)[1],
            }
        )
    return {"paper": remark.words, "metric": remark.metric, "differences": differences}


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
    few = [pair for pair in of[Verdict.UNDECIDED] if pair[1].runs < MIN_RUNS]
    wide = [pair for pair in of[Verdict.UNDECIDED] if pair[1].runs >= MIN_RUNS]
    if few:
        yield f"Fewer than {MIN_RUNS} runs with a value: {len(few)}."
    for title, listed in (("Not as stated", of[Verdict.NOT_AS_STATED]), ("Undecided", wide)):
        if listed:
            yield f"{title}: {'; '.join(_compared(figure, *pair) for pair in listed)}."
    if of[Verdict.NOT_RUN]:
        yield not_run


def _compared(figure: Figure, comparison: Comparison, found: Found) -> str:
    """Return what is asserted, by how much it is so, and the interval."""
    metric = _metric(figure, comparison.metric)
    assert found.interval is not None  # of two runs and more, which these are
    by = f"{found.interval.mean:.{metric.decimals}f}"
    if (than := comparison.by_more_than) is not None:
        by += f" more than {_ends(figure, than)}"
    shown = f"{_range(found.interval, metric)}; {found.runs} runs"
    return f"{_ends(figure, comparison)} by {by} ({shown})"


def _ends(figure: Figure, comparison: Comparison) -> str:
    return f"{_named(figure, comparison.smaller)} below {_named(figure, comparison.larger)}"


def _named(figure: Figure, place: Place) -> str:
    where = f"{place.panel}, " if len(figure.panels) > 1 else ""
    return f"{_labels(figure)[place.method]} ({where}{place.column:g})"


def _range(interval: Interval, metric: Metric) -> str:
    return f"{interval.low:.{metric.decimals}f} to {interval.high:.{metric.decimals}f}"


def _metric(figure: Figure, name: str) -> Metric:
    return next(metric for metric in figure.metrics if metric.name == name)


def _labels(figure: Figure) -> dict[str, str]:
    return {method.name: method.label for method in figure.methods}
