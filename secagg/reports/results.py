"""The result of a run for display: a block for each analysis, with the results of each site alone.

The input is the plain data of `Result.summary`, and from the facts the tables that the method
declares. Only simulations have results of single sites; a site without an estimate has its own line
that states the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.contracts import ResultTable, TableKind
from secagg.evidence import numbers as written
from secagg.evidence.claims.counts import records_of
from secagg.models.common.coefficient_table import effect_of
from secagg.reports.names import log_names, shown_result

Summary = Mapping[str, Any]

_LABELS = {"n": "records", "rounds": "rounds of the method"}
"""Labels of numbers that every method may have; a method's own labels have priority."""
_SHOWN_ELSEWHERE = {"schema", "method", "title", "outcome", "level", "converged", "status"}
_SHOWN_ELSEWHERE |= {"caution"}
_SHOWN_ELSEWHERE |= {"failed", "records", "incomplete_records", "records_error", "persons"}
_SHOWN_ELSEWHERE |= {"missing", "extra", "reversed"}


@dataclass(frozen=True)
class Block:
    """One analysis of the pooled records; `alone` is the same analysis at each site alone.

    table: the display that the method declares
    settings: those that differ from other analyses by the same method; "" if none do
    """

    summary: Summary
    table: ResultTable
    alone: Mapping[str, Summary]
    settings: str = ""

    @property
    def kind(self) -> TableKind:
        """The kind of its table; a failed analysis shows numbers only."""
        return TableKind.NUMBERS if "failed" in self.summary else self.table.kind

    @property
    def title(self) -> str:
        """Its heading."""
        return self.table.title + (f", {self.settings}" if self.settings else "")

    @property
    def effect(self) -> str:
        """What the coefficients are logarithms of ratios of, such as "odds"; "" for nothing."""
        return effect_of(self.summary.get("terms", ()))

    @property
    def effect_name(self) -> str:
        """What is shown first of a term: its ratio or its coefficient."""
        return f"{self.effect} ratio" if self.effect else "coefficient"

    @property
    def usable(self) -> bool:
        """Whether the result may be used."""
        return usable(self.summary)

    @property
    def iterative(self) -> bool:
        """Whether the method searches for an optimum, so the page mentions convergence."""
        return "status" in self.summary or self.summary.get("weights") is not None

    @property
    def ending(self) -> str:
        """How the search ended, in a sentence."""
        rounds = self.summary.get("rounds")
        after = "" if rounds is None else f" after {written.counted(rounds, 'round')}"
        match self.summary.get("status"):
            case "finished":
                return f"Finished{after}."
            case "out of rounds":
                return f"Stopped{after}, before the search converged."
            case "no step lowers the objective":
                return f"Stopped{after}: no step lowered the objective any further."
            case "parameter limit reached":
                return f"Stopped{after}: a parameter would have exceeded the limit of exact rounds."
            case _:
                return f"Converged{after}."

    @property
    def caution(self) -> str:
        """What stands before the result, although it may be used; "" if nothing does."""
        return str(self.summary.get("caution", ""))

    @property
    def notes(self) -> Sequence[str]:
        """The method's other notes on its own result."""
        return [note for note in self.summary.get("notes", ()) if note != self.caution]

    def failures(self) -> dict[str, str]:
        """Return, for each site that gets no estimate alone, the reason."""
        return {
            site: own.get("failed") or next(iter(own.get("notes", ())), str(own.get("status")))
            for site, own in self.alone.items()
            if not usable(own)
        }


def usable(summary: Summary) -> bool:
    """Return whether a summary's estimates may be used: `converged` is None if it is unknown."""
    return "failed" not in summary and summary.get("converged") is not False


def blocks(facts: Mapping[str, Any], summary: Summary) -> list[Block]:
    """Return the analyses of a result, in the order of the job, with the names to show."""
    summary = shown_result(summary, log_names(facts["job"]["columns"]))
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
            _distinct_settings(analysis, analyses),
        )
        for i, (analysis, table) in enumerate(zip(analyses, tables, strict=True))
    ]


def read_table(plain: Mapping[str, Any]) -> ResultTable:
    """Return a method's declared table, from run.json."""
    labels = {key: (label, meaning) for key, (label, meaning) in plain["labels"].items()}
    return ResultTable(**{**plain, "kind": TableKind(plain["kind"]), "labels": labels})


def _distinct_settings(analysis: Summary, analyses: Sequence[Summary]) -> str:
    """Return the settings of a graph that differ between graphs by the same method."""
    own: Mapping[str, Any] = analysis.get("settings", {})
    others = [a["settings"] for a in analyses if a["method"] == analysis["method"] and "edges" in a]
    differing = [key for key in own if any(other.get(key) != own[key] for other in others)]
    return ", ".join(
        f"{key.replace('_', ' ')} {written.any_setting(own[key])}" for key in differing
    )


def site_counts_shown(facts: Mapping[str, Any], summary: Summary) -> bool:
    """Return whether the page shows numbers of records of single sites."""
    return any("n" in own for block in blocks(facts, summary) for own in block.alone.values())


def other_counts(facts: Mapping[str, Any], summary: Summary) -> list[str]:
    """Return the numbers of records that analyses used in place of the best estimate.

    Only least squares accounts for the noise. The others need moments of a possible table, in which
    the number of records is an integer, and larger if the moments were repaired.
    """
    best, _ = records_of(summary)
    used = {int(block.summary.get("n", best)) for block in blocks(facts, summary)}
    return [written.count(n) for n in sorted(used - {best})]


def statistics(block: Block, *, noised: bool) -> list[tuple[str, str, str]]:
    """Return the numbers of a summary that no other table shows: (label, value, meaning).

    noised: the number of records has noise, and the page shows it once, for all analyses
    """
    summary, labels = block.summary, block.table.labels
    elsewhere = _SHOWN_ELSEWHERE | ({"n"} if noised else set())
    single: dict[str, Any] = {
        **summary.get("score", {}),
        **summary,
        **summary.get("diagnostics", {}),
    }
    lines = []
    for key, value in single.items():
        if key not in elsewhere and isinstance(value, int | float | str):
            label, meaning = labels.get(key, (_LABELS.get(key, key.replace("_", " ")), ""))
            lines.append((label, written.any_number(key, value), meaning))
    return lines + [
        (f"setting: {key.replace('_', ' ')}", written.any_setting(value), "")
        for key, value in summary.get("settings", {}).items()
    ]


def within_sites(description: Summary) -> bool:
    """Return whether the data are centred within each site, so there are no means."""
    return all(column["mean"] is None for column in description["columns"])


def _with_noise(x: float | None, error: float | None) -> str:
    """Write a number with the standard deviation of its noise."""
    number = written.by_error(x, error)
    return number if error is None else f"{number} ± {written.significant(error, 2)}"


def description_table(summary: Summary) -> list[dict[str, Any]]:
    """Return the rows of a table of means, deviations and correlations (below the diagonal).

    With noise, means and deviations have the standard deviation of their noise beside them.
    """
    rows = []
    for i, column in enumerate(summary["columns"]):
        error = None if column["sd"] is None else column["sd"] / math.sqrt(summary["n"])
        mean = written.by_error(column["mean"], error)
        sd = written.significant(column["sd"], 3)
        if "mean_error" in column:
            mean = _with_noise(column["mean"], column["mean_error"])
            sd = _with_noise(column["sd"], column["sd_error"])
        rows.append(
            {
                "column": column["column"],
                "mean": mean,
                "sd": sd,
                "correlations": [written.fixed(r, 2) for r in summary["correlation"][i][:i]],
            }
        )
    return rows
