"""Two halves of a calculation at the same time: modulo p and modulo q, each on a core of its own.

The long kernels let other threads run, and what a key holder calculates falls into two halves that
need nothing of each other until the Chinese remainder theorem joins them. A half is a function of
its arguments alone, all randomness having been drawn before, so that no result depends on which
half is done first. Without kernels the halves take turns, and gain nothing.

Not protected: what `secagg.protocols.paillier.cryptosystem` says of time holds here too, neither
    better nor worse.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Half = TypeVar("Half")


def in_two_threads(halves: Sequence[Callable[[], Half]]) -> list[Half]:
    """Return what each half returns, in their order; this thread does the last one.

    A half must not call this: the helper would wait for itself.
    Raises what a half raises; of several, the first one's.
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


if hasattr(os, "register_at_fork"):  # where there is no fork there is no such function
    # A forked process has no thread but the one that forked: it must not wait for its parent's.
    os.register_at_fork(after_in_child=_helper.cache_clear)
