"""A process pool that computes in this process: to start others takes seconds each."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from secagg.experiments.runner import cell_store


class _Here:
    def submit(self, task: Callable[..., object], *args: object) -> Future[object]:
        future = Future[object]()
        try:
            future.set_result(task(*args))
        except BaseException as error:  # as a pool does
            future.set_exception(error)
        return future


@contextmanager
def _here(_: int) -> Iterator[_Here]:
    yield _Here()


@pytest.fixture(scope="module")
def serial_pool() -> Iterator[None]:
    """Compute the cells of experiments in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell_store, "processes", _here)
        yield
