"""Reproducing an experiment: what is missing is computed, then tables, picture and numbers written.

The folder holds `NAME.md`, `NAME.svg` and `NAME.json` of each experiment, and `cells/` with one
file a cell, from which any of them is put together again in no time. The three are written as soon
as a seed is complete, too: a run of hours has something to show long before its end, and after it
was killed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from secagg.core.private_files import write_private
from secagg.reproductions.harness.cells import Cell, Outcome
from secagg.reproductions.harness.process_pool import Cache, batch_of, compute_all

Started = Callable[[int, int, float, float], None]
"""Called once: cells in all, cells there already, and the estimated seconds of both."""


class Experiment(Protocol):
    """What there is to compute: a figure, or tables.

    name: of its files
    """

    @property
    def name(self) -> str: ...

    def cells(self) -> list[Cell]:
        """Return every cell once."""
        ...


@dataclass(frozen=True)
class Done:
    """What was computed of an experiment so far.

    versions: of the libraries that the cells were computed with; seconds: of processor time, of all
        cells
    """

    outcomes: Mapping[Cell, Outcome]
    versions: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Reproduced(Done):
    """computed: cells computed now; files: as written"""

    computed: int
    files: tuple[Path, ...]


E = TypeVar("E", bound=Experiment)
Write = Callable[[E, Done], Mapping[str, str]]
"""Writes an experiment down: the text of each file, by its ending."""


def reproduce(
    experiment: E,
    write: Write[E],
    folder: Path,
    jobs: int,
    started: Started = lambda *_: None,
    finished: Callable[[Cell, Outcome], None] = lambda *_: None,
) -> Reproduced:
    """Compute the cells of `experiment` that `folder` does not hold, in `jobs` processes; write it.

    finished: called with each cell as it is done
    Raises `UsageError` if another process works in the folder. Whatever else ends it carries a note
    of what is kept.
    """
    cache = Cache(folder / "cells")
    cells = experiment.cells()

    def written(outcomes: Mapping[Cell, Outcome], computed: int = 0) -> Reproduced:
        done = _done(outcomes)
        files: list[Path] = []
        for ending, text in write(experiment, done).items():
            files.append(folder / f"{experiment.name}.{ending}")
            write_private(files[-1], text.encode())
        return Reproduced(done.outcomes, done.versions, done.seconds, computed, tuple(files))

    with cache.locked():
        found = {cell: cache.load(cell) for cell in cells}
        outcomes = {cell: o for cell, o in found.items() if o is not None and o.failed is None}
        missing = [cell for cell in cells if cell not in outcomes]
        started(len(cells), len(outcomes), _seconds(cells), _seconds(list(outcomes)))

        left = Counter(batch_of(cell) for cell in missing)
        if outcomes and missing:
            written(outcomes)

        def keep(cell: Cell, outcome: Outcome) -> None:
            cache.save(cell, outcome)
            outcomes[cell] = outcome
            finished(cell, outcome)
            left[batch_of(cell)] -= 1
            if not left[batch_of(cell)] and len(outcomes) < len(cells):
                written(outcomes)

        try:
            compute_all(missing, jobs, keep)
        except BaseException as interruption:
            kept = sum(map(cache.holds, cells))  # one may be on disk that is not in `outcomes` yet
            interruption.add_note(
                f"{kept} of {len(cells)} cells are kept in {cache.folder}; the same command goes "
                "on from there."
            )
            raise
        return written(outcomes, len(missing))


def _done(outcomes: Mapping[Cell, Outcome]) -> Done:
    versions = tuple(sorted({o.versions for o in outcomes.values() if o.versions}))
    return Done(outcomes, versions, sum(o.seconds for o in outcomes.values()))


def _seconds(cells: list[Cell]) -> float:
    return sum(cell.seconds for cell in cells)
