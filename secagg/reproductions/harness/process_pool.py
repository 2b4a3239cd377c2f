"""Computing what is missing of an experiment, in processes, so that it may stop at any moment.

Each finished cell is written at once (`secagg.core.private_files`: whole or not at all). Whatever
ends the run, a signal, a full disk or the power, the next run computes only the cells without a
result. Cells that failed are tried again, since what they lacked may have been installed since.

Each process computes with one thread of linear algebra: the matrices are small, and more threads
would cost processor time without gaining any, and could change the last bits of a sum.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from secagg.core.private_files import exclusive_lock, read_checked, write_checked
from secagg.errors import EvidenceError
from secagg.reproductions.harness.cells import Cell, Outcome, code_version, compute, key

Keep = Callable[[Cell, Outcome], None]

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
KILLED = "its process was killed or crashed"


class Cache:
    """A folder with one file for each cell that was computed, named by the cell's key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, cell: Cell) -> Outcome | None:
        """Return the cell's outcome, or None where it has none yet or the file is damaged."""
        try:
            return Outcome.from_plain(read_checked(self.folder / key(cell)))
        except EvidenceError:
            return None

    def holds(self, cell: Cell) -> bool:
        """Return whether the cell has a file."""
        return (self.folder / key(cell)).is_file()

    def save(self, cell: Cell, outcome: Outcome) -> None:
        """Write the outcome; it is on disk when this returns."""
        write_checked(self.folder / key(cell), outcome.to_plain())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and hold it alone. Raises `UsageError` if another process does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(self.folder / "lock"):
            yield


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells in the order of work: batch by batch, and the longest of each first.

    So a run that was stopped has whole seeds to show, and what is left to the end, when processes
    begin to run out of work, is short.
    """
    return sorted(cells, key=lambda cell: (*batch_of(cell), -cell.seconds))


def batch_of(cell: Cell) -> tuple[bool, int]:
    """Return what a cell is computed together with: whether it is late, and its seed."""
    return cell.late, int(dict(cell.settings).get("seed", 0))


def compute_all(cells: Sequence[Cell], jobs: int, keep: Keep) -> None:
    """Compute the cells in `jobs` processes; `keep` is called with each as it is done.

    A cell whose process dies (out of memory, say) is an outcome, too.
    """
    waiting = deque(in_order(cells))
    while waiting:
        # With several cells under way nobody can tell which one its process died of. Alone, it
        # shows.
        for cell in _until_one_dies(waiting, jobs, keep):
            if _until_one_dies(deque([cell]), 1, keep):
                keep(cell, Outcome(None, KILLED, 0.0, ""))


def _until_one_dies(waiting: deque[Cell], jobs: int, keep: Keep) -> list[Cell]:
    """Compute until all is done or a process dies; return what was under way when it did."""
    with _processes(jobs) as executor:
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


@contextmanager
def _processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of fresh processes; on the way out of an interruption they are ended at once."""
    ours = set(multiprocessing.active_children())
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))  # read when numpy is first imported
    executor = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_begin
    )
    try:
        yield executor
    except BaseException:
        for process in set(multiprocessing.active_children()) - ours:
            process.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin() -> None:
    """Prepare a process of the pool: it leaves signals to its parent, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()
