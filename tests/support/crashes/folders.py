"""An engine for tests: the folders and the code of real parties, without their processes.

A party is made from its folder for each request and forgotten after it, as if it had been killed
and started again between any two: what it has not saved is lost. A coordinator is killed by an
exception, `Killed`; what it has not saved is lost with it, since `secagg.resume` reads files only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import secagg.sessions.engines.processes
from secagg.core.frames import Delivery, peek_header
from secagg.core.identity import PublicIdentity, Role, Roster
from secagg.jobs.job import Job
from secagg.sessions.engines.loopback import LoopbackEngine
from secagg.sessions.engines.party_process import PartyProcess


class Killed(BaseException):
    """The coordinator is gone."""


class FolderEngine:
    """Has what a session asks of `LoopbackEngine`."""

    name: ClassVar[str] = LoopbackEngine.name

    def __init__(
        self, coordinator: str, job: Job, parties: Mapping[str, Role], folder: Path, cwd: str
    ) -> None:
        self.coordinator, self.job, self.parties = coordinator, job, dict(parties)
        self.folder = folder
        self.transcript: list[Delivery] = []
        self.seconds: dict[str, float] = {}
        self.deadline, self.more_time = job.engine.deadline, "a longer --deadline"
        self.restarted: list[str] = []
        self.silent: list[str] = []

    def __enter__(self) -> FolderEngine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def party(self, name: str) -> PartyProcess:
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        return PartyProcess(place, name, self.parties[name], self.job)

    def start(self) -> dict[str, PublicIdentity]:
        return {name: self.party(name).identity.public for name in self.parties}

    def open(self, roster: Roster, nonce: bytes, session: bytes) -> None:
        for name in self.parties:
            assert self.party(name).answer(["open", roster.to_plain(), nonce])[1] == session

    def exchange(self, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        replies: list[bytes] = []
        for name, request in requests.items():
            replies.append(self.party(name).answer(["handle", request])[2])
            for frame, ends in (
                (request, (self.coordinator, name)),
                (replies[-1], (name, self.coordinator)),
            ):
                self.transcript.append(Delivery(*peek_header(frame), *ends, len(frame)))
        return replies


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions over processes use `FolderEngine`."""
    monkeypatch.setattr(secagg.sessions.engines.processes, "LoopbackEngine", FolderEngine)


@contextlib.contextmanager
def dying(kind: Any, method: str, number: int, *, after: bool) -> Iterator[None]:
    """Let the coordinator die just before or after the n-th call of a method (0 is the first)."""
    real, left = getattr(kind, method), number

    def call(self: Any, *args: Any, **settings: Any) -> Any:
        nonlocal left
        left -= 1
        if left == -1 and not after:
            raise Killed
        result = real(self, *args, **settings)
        if left == -1:
            raise Killed
        return result

    setattr(kind, method, call)
    try:
        yield
    finally:
        setattr(kind, method, real)
