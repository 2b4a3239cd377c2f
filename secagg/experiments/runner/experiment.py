"""An experiment: compute the missing cells, then write tables, picture and numbers.

The folder holds the experiment's files, and `cells/` with one file for each cell. The others can be
rebuilt from the cells in seconds. They are also written whenever a seed is complete, so that a run
of hours shows results early, and still has them after it was killed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from secagg.core.private_files import write_private
from secagg.experiments.runner.cell_store import Cache, batch_of, compute_all
from secagg.experiments.runner.cells import Cell, Outcome

Started = Callable[[int, int, float, float], None]
"""Called once with: all cells, stored cells, and the estimated seconds of each group."""


class Experiment(Protocol):
    """A figure, a set of tables, or a sweep."""

    def cells(self) -> list[Cell]:
        """Return every cell once."""
        ...


@dataclass(frozen=True)
class Done:
    """The results of an experiment so far.

    versions: library versions that computed the cells; seconds: total processor time of all cells
    """

    outcomes: Mapping[Cell, Outcome]
    versions: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Computed(Done):
    """computed: number of cells computed in this run; files: the files written"""

    computed: int
    files: tuple[Path, ...]


E = TypeVar("E", bound=Experiment)
Write = Callable[[E, Done], Mapping[str, str | bytes]]
"""Returns the content of each file of an experiment, by the name of the file."""


def compute_experiment(
    experiment: E,
    write: Write[E],
    folder: Path,
    jobs: int,
    started: Started = lambda *_: None,
    finished: Callable[[Cell, Outcome], None] = lambda *_: None,
) -> Computed:
    """Compute the cells missing from `folder` in `jobs` processes; write the experiment's files.

    finished: called with each cell when it is done
    Raises `UsageError` if another process works in the folder. Any other exception carries a note
    that says how many cells are stored.
    """
    cache = Cache(folder / "cells")
    cells = experiment.cells()

    def write_files(outcomes: Mapping[Cell, Outcome], computed: int = 0) -> Computed:
        done = _done(outcomes)
        files: list[Path] = []
        for name, content in write(experiment, done).items():
            files.append(folder / name)
            write_private(files[-1], content.encode() if isinstance(content, str) else content)
        return Computed(done.outcomes, done.versions, done.seconds, computed, tuple(files))

    with cache.locked():
        stored = {cell: cache.load(cell) for cell in cells}
        outcomes = {cell: o for cell, o in stored.items() if o is not None and o.failed is None}
        missing = [cell for cell in cells if cell not in outcomes]
        started(len(cells), len(outcomes), _seconds(cells), _seconds(list(outcomes)))

        remaining = Counter(batch_of(cell) for cell in missing)
        if outcomes and missing:
            write_files(outcomes)

        def keep(cell: Cell, outcome: Outcome) -> None:
            cache.save(cell, outcome)
            outcomes[cell] = outcome
            finished(cell, outcome)
            remaining[batch_of(cell)] -= 1
            if not remaining[batch_of(cell)] and len(outcomes) < len(cells):
                write_files(outcomes)

        try:
            compute_all(missing, jobs, keep)
        except BaseException as interruption:
            on_disk = sum(map(cache.holds, cells))  # one cell may not be in `outcomes` yet
            interruption.add_note(
                f"{on_disk} of {len(cells)} cells are stored in {cache.folder}; run the same "
                "command again to continue."
            )
            raise
        return write_files(outcomes, len(missing))


def _done(outcomes: Mapping[Cell, Outcome]) -> Done:
    versions = tuple(sorted({o.versions for o in outcomes.values() if o.versions}))
    return Done(outcomes, versions, sum(o.seconds for o in outcomes.values()))


def _seconds(cells: list[Cell]) -> float:
    return sum(cell.seconds for cell in cells)
