"""A run's result, arranged for reading: one block an analysis, beside it each site's own.

Reads the plain data of `Result.summary`, and of the facts how the method wants it shown. What a
site would get alone is there only in simulations; a site without an estimate of its own keeps its
line and says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.contracts import ResultTable, TableKind
from secagg.reports import numbers as written

Summary = Mapping[str, Any]

_LABELS = {"n": "records", "rounds": "rounds of the method"}
"""Of numbers that methods of any kind may have; a method's own labels come first."""
_SHOWN_ELSEWHERE = {"schema", "method", "title", "outcome", "level", "converged", "status"}
_SHOWN_ELSEWHERE |= {"failed", "records", "incomplete_records", "records_error"}
_SHOWN_ELSEWHERE |= {"missing", "extra", "reversed"}


@dataclass(frozen=True)
class Block:
    """One analysis of the pooled records; `alone` is the same analysis at each site by itself.

    table: how the method wants it shown
    apart: the settings that tell it from others by the same method, "" where there are none
    """

    summary: Summary
    table: ResultTable
    alone: Mapping[str, Summary]
    apart: str = ""

    @property
    def kind(self) -> TableKind:
        """Return which table it is shown in; of an analysis that failed nothing is."""
        return TableKind.NUMBERS if "failed" in self.summary else self.table.kind

    @property
    def title(self) -> str:
        """Return its heading."""
        return self.table.title + (f", {self.apart}" if self.apart else "")

    @property
    def odds(self) -> bool:
        """Say whether the coefficients are logarithms of odds ratios."""
        return any("odds_ratio" in term for term in self.summary.get("terms", ()))

    @property
    def usable(self) -> bool:
        """Say whether the method reached its goal."""
        return usable(self.summary)

    @property
    def iterative(self) -> bool:
        """Say whether its method searches for an optimum, so that convergence is worth a line."""
        return "status" in self.summary or self.summary.get("weights") is not None

    @property
    def notes(self) -> Sequence[str]:
        """Return what the method remarks on its own result."""
        notes: Sequence[str] = self.summary.get("notes", ())
        return notes

    def failures(self) -> dict[str, str]:
        """Return why a site by itself gets no estimate."""
        return {
            site: own.get("failed") or next(iter(own.get("notes", ())), str(own.get("status")))
            for site, own in self.alone.items()
            if not usable(own)
        }


def usable(summary: Summary) -> bool:
    """Say whether a summary holds estimates that may be used."""
    return "failed" not in summary and bool(summary.get("converged", True))


def blocks(facts: Mapping[str, Any], summary: Summary) -> list[Block]:
    """Return the analyses of a result, in the order of the job."""
    tables = [read_table(table) for table in facts["method"]["tables"]]
    alone: Mapping[str, Summary] = summary.get("simulation", {}).get("site_alone", {})
    if "analyses" not in summary:
        (table,) = tables
        return [Block(summary, table, alone)]
    analyses = summary["analyses"]
    return [
        Block(
            analysis,
            table,
            {s: own if "failed" in own else own["analyses"][i] for s, own in alone.items()},
            _apart(analysis, analyses),
        )
        for i, (analysis, table) in enumerate(zip(analyses, tables, strict=True))
    ]


def read_table(plain: Mapping[str, Any]) -> ResultTable:
    """Return what a method declared, from run.json."""
    labels = {key: (label, meaning) for key, (label, meaning) in plain["labels"].items()}
    return ResultTable(**{**plain, "kind": TableKind(plain["kind"]), "labels": labels})


def _apart(analysis: Summary, analyses: Sequence[Summary]) -> str:
    """Return the settings of a graph that differ among those by its method."""
    own: Mapping[str, Any] = analysis.get("settings", {})
    alike = [a["settings"] for a in analyses if a["method"] == analysis["method"] and "edges" in a]
    differing = [key for key in own if any(other.get(key) != own[key] for other in alike)]
    return ", ".join(
        f"{key.replace('_', ' ')} {written.any_setting(own[key])}" for key in differing
    )


def records_of(summary: Summary) -> tuple[int, float]:
    """Return the best known number of records of a noised run, and its noise's deviation.

    A method that releases the number once more, among its moments, has made one of the two.
    """
    if "n_error" in summary:
        return int(summary["n"]), float(summary["n_error"])
    return int(summary["records"]), float(summary["records_error"])


def other_counts(facts: Mapping[str, Any], summary: Summary) -> list[str]:
    """Return the numbers of records that analyses went by, where not by the best known one.

    Only least squares allows for the noise. The others need moments that a table can have, where
    the number of records is a whole one, and more if the moments were repaired.
    """
    best, _ = records_of(summary)
    used = {int(block.summary.get("n", best)) for block in blocks(facts, summary)}
    return [written.count(n) for n in sorted(used - {best})]


def statistics(block: Block, *, noised: bool) -> list[tuple[str, str, str]]:
    """Return every single number of a summary that no other table shows: label, value, meaning.

    noised: whether the number of records has noise; then the page shows it once, for all analyses
    """
    summary, labels = block.summary, block.table.labels
    elsewhere = _SHOWN_ELSEWHERE | ({"n"} if noised else set())
    single: dict[str, Any] = {
        **summary.get("score", {}),
        **summary,
        **summary.get("diagnostics", {}),
    }
    found = []
    for key, value in single.items():
        if key not in elsewhere and isinstance(value, int | float | str):
            label, meaning = labels.get(key, (_LABELS.get(key, key.replace("_", " ")), ""))
            found.append((label, written.any_number(key, value), meaning))
    asked = summary.get("settings", {}).items()
    return found + [
        (f"setting: {key.replace('_', ' ')}", written.any_setting(value), "")
        for key, value in asked
    ]


def within_sites(description: Summary) -> bool:
    """Say whether each site took off its own means, so that there are none to show."""
    return all(column["mean"] is None for column in description["columns"])


def description_table(summary: Summary) -> list[dict[str, Any]]:
    """Return the rows of a table of means, deviations and correlations (below the diagonal)."""
    rows = []
    for i, column in enumerate(summary["columns"]):
        error = None if column["sd"] is None else column["sd"] / math.sqrt(summary["n"])
        rows.append(
            {
                "column": column["column"],
                "mean": written.by_error(column["mean"], error),
                "sd": written.significant(column["sd"], 3),
                "correlations": [written.fixed(r, 2) for r in summary["correlation"][i][:i]],
            }
        )
    return rows
