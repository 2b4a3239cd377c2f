"""Run the two halves of a computation, modulo p and modulo q, in two threads.

A key holder's computation has two independent halves, which the Chinese remainder theorem combines
at the end. While a kernel computes, another thread can run. All random numbers are drawn before the
halves begin, so the result does not depend on which half ends first. Without kernels the two
threads take turns, so nothing is gained.

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
    """Return the results of all halves, in order. The calling thread computes the last half.

    A half must not call this function, because the helper thread would wait for itself. If a half
    raises an exception, this function raises it. If several do, it raises that of the first half.
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
    # A forked process contains only the thread that forked, so it cannot use the parent's helper.
    os.register_at_fork(after_in_child=_helper.cache_clear)
