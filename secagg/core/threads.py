"""Single-threaded linear algebra, so that results do not depend on the number of cores.

A BLAS library (for linear algebra) adds the terms of a matrix product in an order that depends on
its number of threads. So the last bits of a result depend on the number of cores (tests show this
with 100 variables), and another computer could not reproduce a run exactly. In secagg, matrices
have one row and one column for each variable, so a single thread is fast enough.

Not protected: results may still differ between processors and between BLAS libraries.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import LibController, ThreadpoolController

_LOCK = threading.RLock()
"""Most BLAS libraries have one thread count for the whole process. Without the lock, a run in one
Python thread could change the count while a run in another thread computes."""
_limited = False
"""Whether the Python thread that holds the lock has limited the count already."""


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Run linear algebra in one thread, then restore the thread count. May be a decorator.

    Inside another such block it changes nothing, and costs nothing.
    """
    global _limited  # noqa: PLW0603  # one for the process, like the thread count
    with _LOCK:
        if _limited:
            yield
            return
        before = [(library, library.get_num_threads()) for library in _libraries()]
        changed = [(library, threads) for library, threads in before if threads not in (None, 1)]
        for library, _ in changed:
            library.set_num_threads(1)
        _limited = True
        try:
            yield
        finally:
            _limited = False
            for library, threads in changed:
                library.set_num_threads(threads)


def _replace_lock() -> None:
    """Give a forked process a new lock, because nobody there releases a lock held at the fork."""
    global _LOCK, _limited  # as above
    _LOCK, _limited = threading.RLock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock)


@functools.cache
def _libraries() -> list[LibController]:
    """Return a controller for each BLAS library (cached, because finding them is slow)."""
    import scipy.linalg  # noqa: F401, PLC0415  # loads scipy's own BLAS, so that it is found

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
