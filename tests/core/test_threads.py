"""Linear algebra in one thread: the same bits on any number of cores; then the old setting."""

import functools
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # its BLAS is there before threads are counted
from support.runs.jobs import raw_job, tables
from threadpoolctl import ThreadpoolController

import secagg
from secagg.core.threads import single_threaded_blas
from secagg.models.moments.method import PooledMoments

JOB = """
import hashlib, sys
import numpy as np
import secagg
from secagg.core import threads

if sys.argv[1] == "unpinned":
    threads._libraries = list  # none is found

D, ROWS = 100, 120
rng = np.random.default_rng(0)
weights = np.triu(rng.normal(size=(D, D)) * (rng.random((D, D)) < 0.05), 1)
names = [f"x{i}" for i in range(D)]
data = {
    site: dict(zip(names, (rng.normal(size=(ROWS, D)) @ np.linalg.inv(np.eye(D) - weights)).T))
    for site in ("north", "south", "west")
}
job = {
    "title": "Bits",
    "sites": {"max_rows": 1000},
    "columns": {name: {"type": "continuous", "low": -30, "high": 30} for name in names},
    "protocol": {"name": "plain"},
    "release": {"min_sites": 3, "min_records": 1},
}
for method in ({"name": "notears_admm", "rounds": 30}, {"name": "moments"}):
    arrays = secagg.run(job | {"method": method}, data).result.arrays
    everything = b"".join(arrays[name].tobytes() for name in sorted(arrays))
    print(method["name"], hashlib.sha256(everything).hexdigest())
"""


@functools.cache
def digests(threads: int, pinned: str) -> str:
    """Return the digests of the results of two methods, from a process that may use `threads`."""
    env = os.environ | {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-c", JOB, pinned], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.system
def test_a_result_has_the_same_bits_on_one_core_and_on_two() -> None:
    assert digests(1, "pinned") == digests(2, "pinned")


@pytest.mark.system
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a BLAS has one thread on one core")
def test_without_one_thread_the_bits_differ() -> None:
    """The positive control of the test above; it holds for OpenBLAS, as in numpy's wheels."""
    alone, two = digests(1, "pinned").split(), digests(2, "unpinned").split()
    assert alone[1] != two[1] or alone[3] != two[3]  # on some processors one of them is equal


def threads() -> set[int]:
    """Return how many threads each BLAS in this process may use."""
    found = ThreadpoolController().select(user_api="blas").info()
    return {library["num_threads"] for library in found}


@pytest.fixture
def two() -> Iterator[None]:
    """Let every BLAS have two threads, whatever the tests run under."""
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        if threads() != {2}:
            pytest.skip("this BLAS has one thread whatever it is told, as on one core")
        yield


@pytest.mark.usefixtures("two")
class TestOneThread:
    def test_the_thread_count_is_restored(self) -> None:
        """Also after a nested use, and after an error."""
        with pytest.raises(np.linalg.LinAlgError), single_threaded_blas():
            assert threads() == {1}
            with single_threaded_blas():
                assert threads() == {1}
            assert threads() == {1}
            np.linalg.inv(np.zeros((2, 2)))
        assert threads() == {2}

    def test_a_run_computes_with_one_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every function of a method, also for a site alone."""
        seen: dict[str, set[int]] = {}

        def watched(name: str) -> None:
            real = getattr(PooledMoments, name)

            def call(*args: object) -> object:
                seen[name] = seen.get(name, set()) | threads()
                return real(*args)

            monkeypatch.setattr(PooledMoments, name, call)

        names = ("initial_state", "contribute", "aggregate", "result")
        for name in names:
            watched(name)
        secagg.run(raw_job(simulation={"site_alone": True}), tables())
        assert seen == {name: {1} for name in names}
        assert threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_does_not_wait_for_threads_of_its_parent() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with single_threaded_blas():
            held.set()
            done.wait()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, from 3.12
        child = os.fork()
    if child == 0:
        signal.alarm(20)  # should it hang, it ends
        with single_threaded_blas():
            os._exit(0)
    _, status = os.waitpid(child, 0)
    done.set()
    other.join()
    assert status == 0
