"""The attacks of an experiment as rows of tables: numbers, limits and verdicts.

The verdict is computed here from the numbers (`secagg.contracts.findings`); summary.json has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from secagg.contracts.findings import Finding, Limit, Verdict, judge
from secagg.evidence.numbers import significant
from secagg.reports.experiments.metrics import Summary

Numbers = Mapping[str, float | str | None]
CONTROL = "control_"
"""Before the names of the control's numbers."""


def attack_rows(summary: Summary) -> list[list[str]]:
    """Return curve, place, attack, number, control, limit and verdict, of each attack."""
    return list(_rows(summary))


def _rows(summary: Summary) -> Iterator[list[str]]:
    for row in summary["attacks"]:
        start = [row["line"] or summary["title"], f"{row['across']:g}"]
        if row["failed"] is not None:
            yield [*start, "–", "–", "–", "–", f"failed: {row['failed']}"]
        for name, numbers in row["found"].items():
            yield [*start, name, *_cells(numbers)]


def round_rows(summary: Summary) -> list[list[str]]:
    """Return curve, place, attack, sums seen, number, control, limit and verdict."""
    return [
        [row["line"] or summary["title"], f"{row['across']:g}", name, f"{numbers['rounds']:g}",
         *_cells(numbers)]
        for row in summary["attacks"]
        for name, found in row["by_rounds"].items()
        for numbers in found
    ]  # fmt: skip


def verdict_of(numbers: Numbers) -> Verdict:
    """Return the verdict that follows from an attack's numbers."""
    if "value" not in numbers:
        return Verdict.INCONCLUSIVE
    errors = bool(numbers.get("errors"))
    limit, planted = (
        None if numbers.get(key) is None else Limit(number_of(numbers, key), errors)
        for key in ("limit", "control_limit")
    )
    control = _finding(numbers, CONTROL) if f"{CONTROL}value" in numbers else None
    return judge(_finding(numbers, ""), limit, control, planted)[0]


def _finding(numbers: Numbers, prefix: str) -> Finding:
    failed = "its search failed" if numbers.get(f"{prefix}failed") else ""
    bound = "only a bound" if numbers.get(f"{prefix}bound") else ""
    return Finding(
        value=number_of(numbers, f"{prefix}value"),
        low=number_of(numbers, f"{prefix}low"),
        high=number_of(numbers, f"{prefix}high"),
        baseline=number_of(numbers, f"{prefix}baseline"),
        failed=failed,
        bound=bound,
    )


def number_of(numbers: Numbers, key: str) -> float:
    """Return a number; nan without one. An infinite one is a text, because JSON has none."""
    value = numbers.get(key)
    return math.nan if value is None else float(value)


def _cells(numbers: Numbers) -> list[str]:
    """Return number, control, limit and verdict."""
    if not numbers:
        return ["–", "–", "–", "does not apply"]
    claim, errors = numbers.get("claim"), bool(numbers.get("errors"))

    def shown(key: str) -> str:
        value = number_of(numbers, key)
        if not math.isfinite(value):
            return "–"
        return (
            significant(value, 3) if claim is None else f"ε {significant(value * float(claim), 3)}"
        )

    limit = shown("limit")
    if limit != "–":
        limit = f"{'≥' if errors else '≤'} {limit}"
    return [shown("value"), shown(f"{CONTROL}value"), limit, verdict_of(numbers).value]
