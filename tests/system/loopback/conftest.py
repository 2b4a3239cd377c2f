"""A job in files, and the engines that a test makes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.crashes.nursery import nursery, quick_starts
from support.runs.jobs import write_job

from secagg.sessions.engines.loopback import LoopbackEngine

__all__ = ["nursery", "quick_starts"]  # fixtures


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[LoopbackEngine]]:
    """Yield the engines of the test; none may leave a process behind."""
    made: list[LoopbackEngine] = []
    real = LoopbackEngine.__init__

    def init(self: LoopbackEngine, *args: Any) -> None:
        real(self, *args)
        made.append(self)

    monkeypatch.setattr(LoopbackEngine, "__init__", init)
    yield made
    assert made
    for engine in made:
        assert all(process.poll() is not None for process in engine._launcher.processes.values())
