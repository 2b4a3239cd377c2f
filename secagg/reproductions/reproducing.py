"""Reproducing one figure: what is missing is computed, then tables, picture and numbers written.

The folder holds `NAME.md`, `NAME.svg` and `NAME.json` of each figure, and `cells/` with one file a
cell, from which any figure is put together again in no time. The three are written as soon as a
seed is complete, too: a run of hours has something to show long before its end, and after it was
killed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from secagg.durable import write_private
from secagg.reproductions.cells import Cell, Outcome
from secagg.reproductions.chart import chart
from secagg.reproductions.figures import Entries, Figure, read_entries
from secagg.reproductions.pages import as_json, as_markdown
from secagg.reproductions.pool import Cache, batch_of, compute_all

Started = Callable[[int, int, float, float], None]
"""Called once: cells in all, cells there already, and the estimated seconds of both."""


@dataclass(frozen=True)
class Reproduced:
    """entries: what came of the figure; computed: cells computed now; files: as written
    versions: of the libraries that the cells were computed with; seconds: of processor time, of
        all cells
    """

    figure: Figure
    entries: Entries
    computed: int
    versions: tuple[str, ...]
    seconds: float
    files: tuple[Path, ...]


def reproduce(
    figure: Figure,
    folder: Path,
    jobs: int,
    started: Started = lambda *_: None,
    finished: Callable[[Cell, Outcome], None] = lambda *_: None,
) -> Reproduced:
    """Compute the cells of `figure` that `folder` does not hold, in `jobs` processes; write it.

    finished: called with each cell as it is done
    Raises `UsageError` if another process works in the folder. Whatever else ends it carries a note
    of what is kept.
    """
    cache = Cache(folder / "cells")
    cells = figure.cells()
    with cache.locked():
        found = {cell: cache.load(cell) for cell in cells}
        outcomes = {cell: o for cell, o in found.items() if o is not None and o.failed is None}
        missing = [cell for cell in cells if cell not in outcomes]
        started(len(cells), len(outcomes), _seconds(cells), _seconds(list(outcomes)))

        left = Counter(batch_of(cell) for cell in missing)
        if outcomes and missing:
            _write(figure, folder, outcomes)

        def keep(cell: Cell, outcome: Outcome) -> None:
            cache.save(cell, outcome)
            outcomes[cell] = outcome
            finished(cell, outcome)
            left[batch_of(cell)] -= 1
            if not left[batch_of(cell)] and len(outcomes) < len(cells):
                _write(figure, folder, outcomes)

        try:
            compute_all(missing, jobs, keep)
        except BaseException as interruption:
            interruption.add_note(
                f"{len(outcomes)} of {len(cells)} cells are kept in {cache.folder}; the same "
                "command goes on from there."
            )
            raise
        return _write(figure, folder, outcomes, len(missing))


def _write(
    figure: Figure, folder: Path, outcomes: Mapping[Cell, Outcome], computed: int = 0
) -> Reproduced:
    """Write the figure as far as there are outcomes."""
    entries = read_entries(figure, outcomes)
    versions = tuple(sorted({o.versions for o in outcomes.values() if o.versions}))
    seconds = sum(o.seconds for o in outcomes.values())
    written = {
        "md": as_markdown(figure, entries),
        "svg": chart(figure, entries),
        "json": as_json(figure, entries, versions, seconds),
    }
    files: list[Path] = []
    for ending, text in written.items():
        files.append(folder / f"{figure.name}.{ending}")
        write_private(files[-1], text.encode())
    return Reproduced(figure, entries, computed, versions, seconds, tuple(files))


def _seconds(cells: list[Cell]) -> float:
    return sum(cell.seconds for cell in cells)
