"""The paper's claims and their results here, as text and plain data for pages, screen and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from reproductions.harness.figures import (
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
from reproductions.harness.paired_comparison import (
    LEVEL,
    MIN_RUNS,
    Finding,
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

Pairs = Sequence[tuple[Comparison, Finding]]


def value(entry: Entry | None, metric: Metric) -> str:
    """Return mean ± standard error, or a dash; with the number of runs if some lack a value."""
    if entry is None:
        return NONE
    values = entry.values.get(metric.name, {})
    text = _mean(values.values(), metric)
    return text if not values or len(values) == entry.planned else f"{text} ({len(values)})"


def _mean(values: Iterable[float], metric: Metric) -> str:
    mean, error = mean_and_error(values)
    if mean is None:
        return NONE
    text = f"{mean:.{metric.decimals}f}"
    return text if error is None else f"{text} ± {error:.{metric.decimals}f}"


def stated_rows(figure: Figure, entries: Entries) -> list[list[str]]:
    """Return one row for each number in the paper, with the columns of NUMBERS_HEAD."""
    labels = _labels(figure)
    across = {panel.name: panel.across for panel in figure.panels}
    rows: list[list[str]] = []
    for stated in figure.stated:
        place, metric = stated.place, _metric(figure, stated.metric)
        where = f"{metric.label} of {labels[place.method]}, {place.panel}, {across[place.panel]} "
        result = value(entries.get(place), metric)
        finding = check(entries, stated)
        expected = _range(finding.interval, metric)
        verdict = finding.verdict.value
        rows.append([f"{where}{place.column:g}", f"{stated.value:g}", result, expected, verdict])
    return rows


def verdicts(figure: Figure, entries: Entries) -> list[list[str]]:
    """Return each of the paper's claims, and the results of its comparisons in words."""
    return [[s.words, " ".join(_sentences(figure, judge(entries, s)))] for s in figure.statements]


def remark_rows(figure: Figure, entries: Entries) -> list[list[str]]:
    """Return the columns of REMARKS_HEAD, with the paper's words in each remark's first row."""
    rows: list[list[str]] = []
    for remark in figure.remarks:
        metric, words = _metric(figure, remark.metric), remark.words
        for place, other in remark.differences:
            values = list(paired(entries, remark.metric, place, other).values())
            what = f"{metric.label} of {_named(figure, place)} minus {_named(figure, other)}"
            ends = _range(interval(values), metric)
            rows.append([words, what, _mean(values, metric), ends, f"{len(values)}"])
            words = ""
    return rows


def plain_remark(entries: Entries, remark: Remark) -> dict[str, Any]:
    """Return a remark and its differences as plain data."""
    differences: list[dict[str, Any]] = []
    for place, other in remark.differences:
        values = list(paired(entries, remark.metric, place, other).values())
        differences.append(
            {
                "of": asdict(place),
                "less": asdict(other),
                "runs": len(values),
                "difference": _plain(interval(values)),
                "standard_error": mean_and_error(values)[1],
            }
        )
    return {"paper": remark.words, "metric": remark.metric, "differences": differences}


def plain_statement(entries: Entries, statement: Statement) -> dict[str, Any]:
    """Return the results of a statement's comparisons, as plain data."""
    return {
        "comparisons": [
            {
                **asdict(comparison),
                "verdict": finding.verdict.value,
                "runs": finding.runs,
                "difference": _plain(finding.interval),
            }
            for comparison, finding in judge(entries, statement)
        ]
    }


def _plain(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else asdict(interval)


def _sentences(figure: Figure, pairs: Pairs) -> Iterator[str]:
    """Yield sentences: counts of all verdicts, then the comparisons not as stated or undecided.

    The first sentence counts the comparisons that were not run, so that a statement that was half
    checked never reads like one that was fully checked.
    """
    of = {verdict: [pair for pair in pairs if pair[1].verdict is verdict] for verdict in Verdict}
    labels = _labels(figure)
    absent = (labels[place.method] for _, f in of[Verdict.NOT_RUN] for place in f.absent)
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


def _compared(figure: Figure, comparison: Comparison, finding: Finding) -> str:
    """Return the claim, the difference found, and its interval."""
    metric = _metric(figure, comparison.metric)
    assert finding.interval is not None  # these comparisons have at least two runs
    by = f"{finding.interval.mean:.{metric.decimals}f}"
    if (than := comparison.by_more_than) is not None:
        by += f" more than {_claim(figure, than)}"
    ends = f"{_range(finding.interval, metric)}; {finding.runs} runs"
    return f"{_claim(figure, comparison)} by {by} ({ends})"


def _claim(figure: Figure, comparison: Comparison) -> str:
    return f"{_named(figure, comparison.smaller)} below {_named(figure, comparison.larger)}"


def _named(figure: Figure, place: Place) -> str:
    where = f"{place.panel}, " if len(figure.panels) > 1 else ""
    return f"{_labels(figure)[place.method]} ({where}{place.column:g})"


def _range(interval: Interval | None, metric: Metric) -> str:
    if interval is None:
        return NONE
    return f"{interval.low:.{metric.decimals}f} to {interval.high:.{metric.decimals}f}"


def _metric(figure: Figure, name: str) -> Metric:
    return next(metric for metric in figure.metrics if metric.name == name)


def _labels(figure: Figure) -> dict[str, str]:
    return {method.name: method.label for method in figure.methods}
