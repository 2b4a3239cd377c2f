"""A pool of processes that ends with the program, and whatever happens to it.

Each process uses one thread for linear algebra. The matrices are small, so more threads would cost
processor time without any gain, and they could change the last bits of a sum.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def processes(
    jobs: int, begin: Callable[..., None] | None = None, *args: Any
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of new processes; an exception ends them at once.

    begin: a function of a module, called with `args` at the start of each process
    """
    earlier_children = set(multiprocessing.active_children())
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))  # read when numpy is first imported
    executor = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(begin, *args),
    )
    try:
        _start(executor, jobs)
        yield executor
    except BaseException:
        for process in set(multiprocessing.active_children()) - earlier_children:
            process.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start(executor: ProcessPoolExecutor, jobs: int) -> None:
    """Start all processes. Each ignores SIGINT from its first instruction, as its parent does now.

    Otherwise one that is interrupted while it imports modules would print where it stood.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may set a handler
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for _ in range(jobs):
            executor.submit(int)
    finally:
        signal.signal(signal.SIGINT, handler)


def _begin(begin: Callable[..., None] | None, *args: Any) -> None:
    """Prepare a pool process: it ignores SIGINT, and ends when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()
    if begin is not None:
        begin(*args)
