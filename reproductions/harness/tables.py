"""Studies: several fits of the same records, and tables that compare them.

`figures` shows means over seeds. Here each cell is a fit of real records, and its numbers carry
their own Monte Carlo errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reproductions.harness.markdown import table
from secagg.experiments.runner.cells import Cell, Outcome
from secagg.experiments.runner.experiment import Done
from secagg.experiments.runner.types import Numbers


@dataclass(frozen=True)
class Table:
    """title, head, rows, note: as shown; the first column is left-aligned"""

    title: str
    head: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class StudyTables:
    """The results of a study. picture: the text of an SVG file, or empty"""

    tables: tuple[Table, ...]
    picture: str = ""


@dataclass(frozen=True)
class Study:
    """name: stem of its files; title, notes: as shown; fits: label of a fit -> its cell
    build_tables: makes the tables from the numbers of all fits, by label
    """

    name: str
    title: str
    fits: Mapping[str, Cell]
    build_tables: Callable[[Mapping[str, Numbers]], StudyTables]
    notes: tuple[str, ...]

    def cells(self) -> list[Cell]:
        """Return every cell once."""
        return list(self.fits.values())


def study_tables(
    study: Study, outcomes: Mapping[Cell, Outcome]
) -> tuple[StudyTables | None, list[str]]:
    """Return the tables once all fits have numbers, else None; and a line for each missing fit."""
    numbers, missing = dict[str, Numbers](), list[str]()
    for label, cell in study.fits.items():
        outcome = outcomes.get(cell)
        if outcome is not None and outcome.numbers is not None:
            numbers[label] = outcome.numbers
        else:
            why = "pending" if outcome is None else f"failed: {outcome.failed}"
            missing.append(f"{label}: {why}")
    return (None if missing else study.build_tables(numbers)), missing


def write(study: Study, done: Done) -> dict[str, str]:
    """Return the study's page, picture and numbers, by the name of the file."""
    results, missing = study_tables(study, done.outcomes)
    plain = {
        "study": study.name,
        "title": study.title,
        "fits": {
            label: done.outcomes[cell].numbers
            for label, cell in study.fits.items()
            if cell in done.outcomes
        },
        "missing": missing,
        "computed_with": list(done.versions),
        "cpu_seconds": done.seconds,
        "notes": list(study.notes),
    }
    files = {
        f"{study.name}.md": "\n".join(_page(study, results, missing)) + "\n",
        f"{study.name}.json": json.dumps(plain, indent=1, ensure_ascii=False) + "\n",
    }
    if results is not None and results.picture:
        files[f"{study.name}.svg"] = results.picture
    return files


def _page(study: Study, results: StudyTables | None, missing: Sequence[str]) -> Iterator[str]:
    yield f"# {study.title}\n"
    if results is None:
        yield "**Not finished. Run the same command again to continue.**\n"
        yield from (f"- {line}" for line in missing)
        return
    if results.picture:
        yield f"![{study.title}]({study.name}.svg)\n"
    for each in results.tables:
        yield f"## {each.title}\n"
        if each.note:
            yield f"{each.note}\n"
        yield from table(each.head, each.rows)
    yield "## Notes\n"
    yield from (f"- {note}" for note in study.notes)
