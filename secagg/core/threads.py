"""One thread for linear algebra, so that a result has the same bits on any number of cores.

A BLAS with two threads adds a product's terms in another order than with one, so that a result's
last bits would depend on the number of cores (at 100 variables they do, as the tests show), and no
run could be repeated elsewhere bit by bit. The matrices here are small, a row and a column for each
variable: little is lost.

Not protected: another processor or another BLAS, whose kernels add in another order again.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

_LOCK = threading.RLock()
"""Most libraries have one number of threads for the whole process: a run in another Python thread
would set it back in the middle of this one's work."""


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Do linear algebra in one thread, and then in as many as before; also a decorator."""
    with _LOCK, _libraries().limit(limits=1, user_api="blas"):
        yield


def _renew() -> None:
    """Give a forked child a lock of its own: nobody there would ever release one that was held."""
    global _LOCK  # noqa: PLW0603  # there is one, as there is one number of threads
    _LOCK = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@functools.cache
def _libraries() -> ThreadpoolController:
    """Return what sets the threads; finding the libraries takes far longer than that."""
    import scipy.linalg  # noqa: F401, PLC0415  # it has a BLAS of its own, to be found here

    return ThreadpoolController()
