"""Parties' processes without the second that each takes to load its libraries.

python -P nursery.py SOCKET

A nursery is a process that has loaded them. Nothing of the test's own process is in it, patched or
not. It forks for each party that an engine starts, and the fork runs what a process of its own
would run: in a session of its own, with its own standard streams, folder and signals. What ends,
hangs or is killed is a process like any other.

What is not the same: all forks hash strings alike, and none is started from a command line. Tests
of how processes are started, or of what may differ between any two, do without a nursery.
"""

import functools
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from types import SimpleNamespace
from typing import IO

import pytest

from secagg.sessions.engines import launcher, party_process

COMMAND = [sys.executable, "-P", "-m", "secagg.sessions.engines.party_process"]


class Nursery:
    """The test's side."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line

    def fork(self, cwd: str, handles: list[int]) -> int:
        """Return the id of a new process with these standard streams, and one more handle."""
        socket.send_fds(self.line, [cwd.encode()], handles)
        child = int.from_bytes(self.line.recv(8), "little")
        assert child
        return child

    def stand_in(self) -> SimpleNamespace:
        """Return what engines are to find under the name `subprocess`."""
        return SimpleNamespace(
            Popen=functools.partial(Forked, self),
            PIPE=subprocess.PIPE,
            TimeoutExpired=subprocess.TimeoutExpired,
        )


class Forked:
    """Has what an engine and its tests use of `subprocess.Popen`.

    The process holds an end of a pipe, which closes when it ends. The nursery does not ask how it
    ended, so its id is given to no other process while there is a nursery.
    """

    def __init__(
        self, nursery: Nursery, command: list[str], *, stdin: int, stdout: IO[bytes],
        stderr: IO[bytes], cwd: str, start_new_session: bool,
    ) -> None:  # fmt: skip
        assert (command, stdin, start_new_session) == (COMMAND, subprocess.PIPE, True)
        told, tell = os.pipe()
        self._life, life = os.pipe()
        self.pid = nursery.fork(cwd, [told, stdout.fileno(), stderr.fileno(), life])
        os.close(told)
        os.close(life)
        self.stdin = os.fdopen(tell, "wb")
        self._ended = False

    def poll(self) -> int | None:
        """Return None while it runs, then 0, however it ended."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended:
            if not select.select([self._life], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(COMMAND, timeout or 0.0)
            os.close(self._life)
            self._ended = True
        return 0

    def send_signal(self, number: int) -> None:
        if not self._ended:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", __file__, str(theirs.fileno())]
    null = subprocess.DEVNULL
    started = subprocess.Popen(command, stdin=null, stdout=null, pass_fds=[theirs.fileno()])
    theirs.close()
    with started, ours:
        yield Nursery(ours)


@pytest.fixture
def quick_starts(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> Nursery:
    """Let engines start their parties as forks."""
    monkeypatch.setattr(launcher, "subprocess", nursery.stand_in())
    return nursery


# --- the nursery's side --------------------------------------------------------------------------


def main() -> None:
    """Fork on demand, until the test hangs up."""
    with socket.socket(fileno=int(sys.argv[1])) as line:
        while True:
            cwd, handles, *_ = socket.recv_fds(line, 4096, 4)
            if not cwd:
                return
            child = os.fork()
            if child == 0:
                line.close()
                become_party(cwd.decode(), handles)
            for handle in handles:
                os.close(handle)
            line.send(child.to_bytes(8, "little"))


def become_party(cwd: str, handles: list[int]) -> None:
    """Do what `COMMAND` does; never return."""
    code = 1
    try:
        os.setsid()
        os.chdir(cwd)
        for stream, handle in enumerate(handles[:3]):
            os.dup2(handle, stream)
            os.close(handle)
        party_process.main()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
