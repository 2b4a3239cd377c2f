"""The attacks of an experiment as rows of tables: numbers, limits and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from secagg.reports.experiments.metrics import Summary
from secagg.reports.numbers import significant

Numbers = Mapping[str, float | None]


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


def _cells(numbers: Numbers) -> list[str]:
    """Return number, control, limit and verdict."""
    if not numbers:
        return ["–", "–", "–", "does not apply"]
    claim, errors = numbers.get("claim"), bool(numbers.get("errors"))

    def shown(key: str) -> str:
        value = numbers.get(key)
        if value is None:
            return "–"
        return significant(value, 3) if claim is None else f"ε {significant(value * claim, 3)}"

    limit = shown("limit")
    if limit != "–":
        limit = f"{'≥' if errors else '≤'} {limit}"
    verdict = "leak" if numbers["leak"] else "no leak found"
    return [
        shown("value"), shown("control"), limit,
        "inconclusive" if numbers["inconclusive"] else verdict,
    ]  # fmt: skip
