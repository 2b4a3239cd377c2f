"""Processes that die, hang or never start, and strangers on the port: what the run makes of it."""

import os
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.crashes.loopback import before_each, overrides, processes, same_bits

import secagg.sessions.engines.loopback
from secagg.core import canonical_encoding
from secagg.core.frames import Header
from secagg.errors import ProtocolAbort
from secagg.evidence.integrity import verify_folder
from secagg.runs.run import Run, run
from secagg.sessions.engines.channel import HOST
from secagg.sessions.engines.launcher import Launcher
from secagg.sessions.engines.loopback import LoopbackEngine


def sender(frame: bytes) -> str:
    return Header.from_bytes(canonical_encoding.loads(frame)[0]).sender


def trouble(done: Run) -> list[tuple[str, int, Any]]:
    events = done.facts["trouble"]
    return [(e["event"], e["round"], e.get("parties", e.get("party"))) for e in events]


# --- no start -------------------------------------------------------------------------------------


def test_parties_that_did_not_start_are_counted(
    job: Path, monkeypatch: pytest.MonkeyPatch, engines: list[LoopbackEngine]
) -> None:
    """The limit grows with the parties; here it is short, and one process never gets to run."""
    real = Launcher.launch

    def launch(self: Launcher, name: str, port: int) -> None:
        real(self, name, port)
        if name == "west":
            os.kill(self.processes[name].pid, signal.SIGSTOP)

    monkeypatch.setattr(Launcher, "launch", launch)
    monkeypatch.setattr(secagg.sessions.engines.loopback, "_START", 0.0)
    monkeypatch.setattr(secagg.sessions.engines.loopback, "_START_EACH", 3.0)
    with pytest.raises(ProtocolAbort, match=r"2 of 3 .* 9 s") as caught:
        processes(job)
    assert caught.value.where == "west"


# --- deaths --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["plain", "masked"])
@pytest.mark.usefixtures("quick_starts")
def test_parties_killed_between_phases_recover(
    job: Path, protocol: str, monkeypatch: pytest.MonkeyPatch, engines: list[LoopbackEngine]
) -> None:
    """One is killed before each phase, in turn; each is back, within the deadline, as it was."""
    killed: list[str] = []

    def kill(engine: LoopbackEngine, *_: Any) -> None:
        killed.append(sorted(engine.parties)[len(killed) % len(engine.parties)])
        engine._launcher.processes[killed[-1]].kill()

    before_each(monkeypatch, kill)
    done = processes(job, protocol)
    run(job, out=job.parent / "memory", overrides=overrides(protocol))
    assert same_bits(job.parent / "memory", job.parent / "out")
    back = [(e["event"], e["party"]) for e in done.facts["trouble"]]
    assert {name for _, name in back} <= set(killed) and {kind for kind, _ in back} == {"restarted"}
    # The last one was killed before it countersigned, when the facts were written.
    assert len(killed) >= 3 and (protocol != "plain" or [name for _, name in back] == killed[:-1])
    assert len(verify_folder(job.parent / "out").countersigned) == 3


@pytest.mark.parametrize("protocol", ["additive", "masked"])
@pytest.mark.usefixtures("quick_starts")
def test_parties_killed_while_answering_recover(
    job: Path, protocol: str, monkeypatch: pytest.MonkeyPatch, engines: list[LoopbackEngine]
) -> None:
    """At moments of all kinds: reading, computing, writing its state, sending."""
    moment = 0.0

    def kill(engine: LoopbackEngine, *_: Any) -> None:
        nonlocal moment
        moment += 0.002
        for process in engine._launcher.processes.values():
            threading.Timer(moment, process.kill).start()

    before_each(monkeypatch, kill)
    done = processes(job, protocol)
    run(job, out=job.parent / "memory", overrides=overrides(protocol))
    assert same_bits(job.parent / "memory", job.parent / "out")
    assert {kind for kind, *_ in trouble(done)} == {"restarted"}


@pytest.mark.usefixtures("quick_starts")
def test_a_party_that_stays_dead_is_noticed_at_once(
    job: Path, monkeypatch: pytest.MonkeyPatch, engines: list[LoopbackEngine]
) -> None:
    def kill(engine: LoopbackEngine, round_: int, _: str) -> None:
        if round_ == 0:
            engine._launcher.processes["west"].kill()

    took = before_each(monkeypatch, kill)
    done = processes(job, **{"engine.restart": "false", "release.min_sites": 2})
    assert trouble(done) == [("missing", 0, ["west"])]
    assert done.facts["cohort"] == ["north", "south"]
    assert max(took) < 15  # the deadline is 30: nobody waited for it
    missed = [d for d in done.transcript if "west" in (d.sender, d.recipient)]
    assert len(missed) <= 1  # it may have been asked before its end was seen


@pytest.mark.usefixtures("quick_starts")
def test_a_party_that_dies_at_each_request_is_dropped(
    job: Path, monkeypatch: pytest.MonkeyPatch, engines: list[LoopbackEngine]
) -> None:
    starts: list[str] = []
    real = Launcher.launch

    def launch(self: Launcher, name: str, port: int) -> None:
        starts.append(name)
        real(self, name, port)
        if starts.count("west") > 1 and name == "west":
            self.processes["west"].kill()

    def kill(engine: LoopbackEngine, *_: Any) -> None:
        engine._launcher.processes["west"].kill()

    monkeypatch.setattr(Launcher, "launch", launch)
    before_each(monkeypatch, kill)
    done = processes(job, **{"release.min_sites": 2})
    restarts = [("restarted", 0, "west")] * 2
    assert trouble(done) == [*restarts, ("missing", 0, ["west"])]
    assert starts.count("west") == 1 + 2 and starts.count("north") == 1


# --- hangs ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_starts")
def test_a_hanging_party_is_dropped_at_the_deadline(
    job: Path, monkeypatch: pytest.MonkeyPatch, engines: list[LoopbackEngine]
) -> None:
    """The first phase is over at the deadline; the next goes on without it."""

    def stop(engine: LoopbackEngine, round_: int, _: str) -> None:
        if round_ == 0:
            os.kill(engine._launcher.processes["west"].pid, signal.SIGSTOP)

    took = before_each(monkeypatch, stop)
    done = processes(job, **{"engine.deadline": 5, "release.min_sites": 2})
    assert trouble(done) == [("missing", 0, ["west"])]
    assert 5 <= took[0] < 10 and took[1] < 5


@pytest.mark.usefixtures("quick_starts")
def test_late_replies_of_a_party_are_not_confused(
    job: Path, monkeypatch: pytest.MonkeyPatch, engines: list[LoopbackEngine]
) -> None:
    """It hangs through a first try of each phase: then it answers both, the first too late."""
    real = LoopbackEngine.exchange
    tries: list[list[str]] = []

    def exchange(self: LoopbackEngine, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        if requests:
            self.start()
            west = self._launcher.processes["west"].pid
            os.kill(west, signal.SIGSTOP)
            self.deadline = 0.5
            tries.append([sender(reply) for reply in real(self, requests)])
            os.kill(west, signal.SIGCONT)
            self.deadline = 30.0
        return real(self, requests)

    monkeypatch.setattr(LoopbackEngine, "exchange", exchange)
    done = processes(job)
    assert len(tries) == 5 and not any("west" in answered for answered in tries)
    run(job, out=job.parent / "memory")
    assert same_bits(job.parent / "memory", job.parent / "out") and trouble(done) == []


# --- strangers -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_starts")
def test_strangers_on_the_port_change_nothing(
    job: Path, monkeypatch: pytest.MonkeyPatch, engines: list[LoopbackEngine]
) -> None:
    """Noise, silence, a length that lies, a greeting without a token: all hang up or wait."""
    lines: list[socket.socket] = []

    def call(engine: LoopbackEngine, *_: Any) -> None:
        for said in (b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), b"\xff" * 10) * 8:
            lines.append(socket.create_connection((HOST, engine.port)))
            lines[-1].sendall(said)

    before_each(monkeypatch, call)
    done = processes(job)
    run(job, out=job.parent / "memory")
    assert same_bits(job.parent / "memory", job.parent / "out") and trouble(done) == []
    for line in lines:
        line.close()
