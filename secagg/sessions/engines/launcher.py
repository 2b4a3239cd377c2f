"""Start and end the processes of the parties on this computer.

Each party has a private folder that only its own process reads or writes
(`secagg.sessions.engines.party_process`). The exception is the file with the processor time, which
the launcher reads.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from secagg.core import canonical_encoding
from secagg.core.identity import Role
from secagg.core.randomness import system_random
from secagg.jobs.job import Job
from secagg.sessions.engines.crash_safe_party import read_seconds

_CLOSE_SECONDS = 2.0
"""Seconds in which a process must end before it is killed."""


class Launcher:
    """Starts and ends the processes of `parties`; each has a folder and a token (for greetings)."""

    def __init__(self, job: Job, parties: Mapping[str, Role], folder: Path, cwd: str) -> None:
        """Create a private folder for each party in `folder`; this starts no process.

        cwd: the working directory of the processes, for relative paths in the job
        """
        self._parties, self._job, self.cwd = dict(parties), job.model_dump_json(), cwd
        self.folders = {
            name: folder / f"{i:02}-{_printable(name)}" for i, name in enumerate(sorted(parties))
        }
        for place in self.folders.values():
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.tokens: dict[str, bytes] = {}

    @property
    def seconds(self) -> dict[str, float]:
        """Processor time that each party spent on requests."""
        spent = {name: read_seconds(folder) for name, folder in self.folders.items()}
        return {name: seconds for name, seconds in spent.items() if seconds}

    def was_started(self, name: str) -> bool:
        """Whether this object has started the party's process."""
        return name in self.processes

    def is_running(self, name: str) -> bool:
        """Whether the party's process exists; it may be busy or stuck."""
        return name in self.processes and self.processes[name].poll() is None

    def launch(self, name: str, port: int) -> None:
        """Start a party's process; it gets the token through a pipe, invisible in process lists."""
        folder = self.folders[name]
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(log, "wb") as output:
            process = subprocess.Popen(
                # -P: a file in the user's folder must not replace a module
                [sys.executable, "-P", "-m", "secagg.sessions.engines.party_process"],
                stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=self.cwd,
                start_new_session=True,  # Ctrl-C is for the coordinator
            )  # fmt: skip
        self.processes[name] = process
        self.tokens[name] = system_random(32)
        setup = {
            "folder": str(folder.absolute()), "name": name, "role": self._parties[name].value,
            "job": self._job, "port": port, "token": self.tokens[name],
        }  # fmt: skip
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended; the caller will notice
            process.stdin.write(canonical_encoding.dumps(setup))
            process.stdin.close()

    def kill(self, name: str) -> None:
        """Kill a party's process, unless it has ended."""
        _end(self.processes[name], 0.0)

    def close(self) -> None:
        """Wait for every process to end; kill those that do not end in time."""
        for process in self.processes.values():
            _end(process, _CLOSE_SECONDS)


def _end(process: subprocess.Popen[bytes], patience: float) -> None:
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _printable(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)[:40]
