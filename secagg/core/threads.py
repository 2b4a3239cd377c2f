"""Single-threaded linear algebra, so that results do not depend on the number of cores.

A BLAS library adds the terms of a product in an order that depends on its number of threads. The
last bits of a result then depend on the number of cores (tests show this at 100 variables), and a
run could not be reproduced exactly on another computer. The matrices here have one row and column
for each variable, so a single thread is fast enough.

Not protected: results may still differ between processors and between BLAS libraries.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

_LOCK = threading.RLock()
"""Most BLAS libraries have one thread count for the whole process. Without the lock, a run in
another Python thread could reset it during this one's work."""


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Run linear algebra in one thread, then restore the thread count; also a decorator."""
    with _LOCK, _libraries().limit(limits=1, user_api="blas"):
        yield


def _replace_lock() -> None:
    """Give a forked child a new lock: in the child, nobody would release one held at the fork."""
    global _LOCK  # noqa: PLW0603  # one for the process, like the thread count
    _LOCK = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock)


@functools.cache
def _libraries() -> ThreadpoolController:
    """Return the controller of all BLAS libraries (cached, because finding them is slow)."""
    import scipy.linalg  # noqa: F401, PLC0415  # loads scipy's own BLAS, so that it is found

    return ThreadpoolController()
