"""Compute an experiment's missing cells in several processes; the run may stop at any moment.

Each finished cell is written at once and atomically (`secagg.core.private_files`). After a signal,
a full disk or a power failure, the next run computes only the cells without a result. It also
retries failed cells, since a missing package may have been installed in the meantime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from secagg.core.private_files import exclusive_lock, read_checked, write_checked
from secagg.core.process_pool import processes
from secagg.errors import EvidenceError
from secagg.experiments.runner.cells import Cell, Outcome, code_version, compute, key

Keep = Callable[[Cell, Outcome], None]

KILLED = "the process was killed or crashed"


class Cache:
    """A folder with one file for each computed cell, named by the cell's key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, cell: Cell) -> Outcome | None:
        """Return the cell's outcome, or None if its file is missing or damaged."""
        try:
            return Outcome.from_plain(read_checked(self._file(cell)))
        except EvidenceError:
            return None

    def holds(self, cell: Cell) -> bool:
        """Return whether the cell has a file."""
        return self._file(cell).is_file()

    def save(self, cell: Cell, outcome: Outcome) -> None:
        """Write the outcome; it is on disk when this returns."""
        write_checked(self._file(cell), outcome.to_plain())

    def _file(self, cell: Cell) -> Path:
        return self.folder / key(cell)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder and lock it. Raises `UsageError` if another process holds the lock."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(self.folder / "lock"):
            yield


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells in the order of work: batch by batch, longest first within a batch.

    A stopped run then has complete seeds, and only short cells remain when processes begin to run
    out of work.
    """
    return sorted(cells, key=lambda cell: (*batch_of(cell), -cell.seconds))


def batch_of(cell: Cell) -> tuple[bool, int]:
    """Return the batch to which a cell belongs: whether it is late, and its seed."""
    return cell.late, int(dict(cell.settings).get("seed", 0))


def compute_all(cells: Sequence[Cell], jobs: int, keep: Keep) -> None:
    """Compute the cells in `jobs` processes; call `keep` with each cell when it is done.

    If a cell's process dies (out of memory, say), that is an outcome, too.
    """
    waiting = deque(in_order(cells))
    while waiting:
        # The pool does not say which of several running cells killed its process. So each of them
        # runs once more, with no other cell running.
        for cell in _until_one_dies(waiting, jobs, keep):
            if _until_one_dies(deque([cell]), 1, keep):
                keep(cell, Outcome(None, KILLED, 0.0, ""))


def _until_one_dies(waiting: deque[Cell], jobs: int, keep: Keep) -> list[Cell]:
    """Compute until all cells are done or a process dies; return the cells running at that time."""
    with processes(jobs) as executor:
        running: dict[Future[Outcome], Cell] = {}
        while waiting or running:
            try:
                while waiting and len(running) < jobs:
                    cell = waiting[0]
                    running[executor.submit(compute, cell, code_version(cell.task))] = cell
                    waiting.popleft()
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    outcome = future.result()
                    keep(running.pop(future), outcome)
            except BrokenProcessPool:
                return list(running.values())
    return []
