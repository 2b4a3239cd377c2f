"""Studies: several fits of one set of records, and the tables that set them side by side.

Beside `figures`, which are of means over seeds: here a cell is a fit of real records, and its
numbers have Monte Carlo errors of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from secagg.reproductions.harness.cells import Cell, Outcome
from secagg.reproductions.harness.experiment import Done
from secagg.reproductions.harness.markdown import table
from secagg.reproductions.harness.types import Numbers


@dataclass(frozen=True)
class Table:
    """title, head, rows, note: as shown; the first column is flush left"""

    title: str
    head: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class StudyTables:
    """What came of a study. picture: the text of an SVG file, empty where there is none"""

    tables: tuple[Table, ...]
    picture: str = ""


@dataclass(frozen=True)
class Study:
    """name: of its files; title, notes: as shown; fits: label of a fit -> its cell
    tell: what the numbers of all fits say, by their labels
    """

    name: str
    title: str
    fits: Mapping[str, Cell]
    tell: Callable[[Mapping[str, Numbers]], StudyTables]
    notes: tuple[str, ...]

    def cells(self) -> list[Cell]:
        """Return every cell once."""
        return list(self.fits.values())


def study_tables(
    study: Study, outcomes: Mapping[Cell, Outcome]
) -> tuple[StudyTables | None, list[str]]:
    """Return what came of the study once all fits have numbers, and a line for each without."""
    numbers, missing = dict[str, Numbers](), list[str]()
    for label, cell in study.fits.items():
        outcome = outcomes.get(cell)
        if outcome is not None and outcome.numbers is not None:
            numbers[label] = outcome.numbers
        else:
            why = "to come" if outcome is None else f"failed: {outcome.failed}"
            missing.append(f"{label}: {why}")
    return (None if missing else study.tell(numbers)), missing


def write(study: Study, done: Done) -> dict[str, str]:
    """Return the study's page, picture and numbers, by the endings of their files."""
    came, missing = study_tables(study, done.outcomes)
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
        "md": "\n".join(_page(study, came, missing)) + "\n",
        "json": json.dumps(plain, indent=1, ensure_ascii=False) + "\n",
    }
    return files | ({"svg": came.picture} if came is not None and came.picture else {})


def _page(study: Study, came: StudyTables | None, missing: Sequence[str]) -> Iterator[str]:
    yield f"# {study.title}\n"
    if came is None:
        yield "**Not finished; the same command goes on.**\n"
        yield from (f"- {line}" for line in missing)
        return
    if came.picture:
        yield f"![{study.title}]({study.name}.svg)\n"
    for each in came.tables:
        yield f"## {each.title}\n"
        if each.note:
            yield f"{each.note}\n"
        yield from table(each.head, each.rows)
    yield "## Notes\n"
    yield from (f"- {note}" for note in study.notes)
