"""Reproducing one figure: what is missing is computed, then tables, picture and numbers written.

The folder holds `NAME.md`, `NAME.svg` and `NAME.json` of each figure, and `cells/` with one file a
cell, from which any figure is put together again in no time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from secagg.durable import write_private
from secagg.reproductions.cells import Cell, Outcome
from secagg.reproductions.chart import chart
from secagg.reproductions.figures import Entries, Figure, read_entries
from secagg.reproductions.pages import as_json, as_markdown
from secagg.reproductions.pool import Cache, compute_all

Started = Callable[[int, int, float, float], None]
"""Called once: cells in all, cells there already, and the estimated seconds of both."""


@dataclass(frozen=True)
class Reproduced:
    """entries: what came of the figure; computed: cells computed now; files: as written
    versions: of the libraries that the cells were computed with
    """

    figure: Figure
    entries: Entries
    computed: int
    versions: tuple[str, ...]
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

        def keep(cell: Cell, outcome: Outcome) -> None:
            cache.save(cell, outcome)
            outcomes[cell] = outcome
            finished(cell, outcome)

        try:
            compute_all(missing, jobs, keep)
        except BaseException as interruption:
            interruption.add_note(
                f"{len(outcomes)} of {len(cells)} cells are kept in {cache.folder}; the same "
                "command goes on from there."
            )
            raise
        entries = read_entries(figure, outcomes)
        versions = tuple(sorted({o.versions for o in outcomes.values() if o.versions}))
        written = {
            "md": as_markdown(figure, entries),
            "svg": chart(figure, entries),
            "json": as_json(figure, entries, versions),
        }
        files: list[Path] = []
        for ending, text in written.items():
            files.append(folder / f"{figure.name}.{ending}")
            write_private(files[-1], text.encode())
    return Reproduced(figure, entries, len(missing), versions, tuple(files))


def _seconds(cells: list[Cell]) -> float:
    return sum(cell.seconds for cell in cells)
