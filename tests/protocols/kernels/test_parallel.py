"""Two halves in two threads: the results in order, also with errors and in forked processes."""

import multiprocessing
import threading
import warnings
from functools import partial

import pytest

from secagg.protocols.kernels.parallel import in_two_threads


def test_results_keep_their_order_and_this_thread_computes_the_last() -> None:
    threads = in_two_threads([threading.get_ident, threading.get_ident])
    assert threads[1] == threading.get_ident() != threads[0]
    for halves in ([1], [1, 2], [3, 2, 1]):
        assert in_two_threads([partial(abs, -half) for half in halves]) == halves


def test_both_halves_run_at_the_same_time() -> None:
    """Each half waits for the other."""
    meeting = threading.Barrier(2, timeout=20)
    in_two_threads([meeting.wait, meeting.wait])


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_in_either_half_is_raised(failing: int) -> None:
    halves = [partial(divmod, 1, 1), partial(divmod, 1, 1)]
    halves[failing] = partial(divmod, 1, 0)
    with pytest.raises(ZeroDivisionError):
        in_two_threads(halves)
    assert in_two_threads([partial(divmod, 1, 1)] * 2) == [(1, 0), (1, 0)]


def _double(value: int) -> int:
    return sum(in_two_threads([partial(abs, value), partial(abs, value)]))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system"
)
def test_a_forked_process_has_its_own_helper_thread() -> None:
    assert _double(3) == 6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads is the point
        pool = multiprocessing.get_context("fork").Pool(1)
    with pool:
        assert pool.apply_async(_double, (4,)).get(timeout=20) == 8
