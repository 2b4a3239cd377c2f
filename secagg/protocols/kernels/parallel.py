"""Run the two halves of a computation, modulo p and modulo q, in two threads.

The kernels let other threads run, and a key holder's computation has two independent halves, which
the Chinese remainder theorem combines at the end. A half is a pure function (all randomness is
drawn before), so the result does not depend on which half finishes first. Without kernels the two
threads take turns and gain nothing.

Not protected: timing, as in `secagg.protocols.paillier.cryptosystem`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Half = TypeVar("Half")


def in_two_threads(halves: Sequence[Callable[[], Half]]) -> list[Half]:
    """Return the results of all halves, in order; this thread computes the last one.

    A half must not call this function: the helper thread would wait for itself.
    Raises the exception of a half; if several fail, that of the first.
    """
    pending = [_helper().submit(half) for half in halves[:-1]]
    try:
        last = halves[-1]()
    finally:
        done = [half.result() for half in pending]
    return [*done, last]


@cache
def _helper() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="secagg-half")


if hasattr(os, "register_at_fork"):  # missing on systems without fork
    # A forked process has only the thread that forked. It must not wait for the parent's helper.
    os.register_at_fork(after_in_child=_helper.cache_clear)
