"""Parties in processes of their own: the same bits; deaths, hangs and strangers on the way."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.jobs import SITES, write_job
from support.nursery import nursery, quick_starts

import secagg.jobs.data_sources
import secagg.runtime.engines.loopback
from secagg.audits.run_integrity import verify_folder
from secagg.core import encoding
from secagg.core.frames import Header, peek_header
from secagg.core.hash_chain_log import read_log
from secagg.core.randomness import replayable_random
from secagg.errors import (
    JobError,
    PolicyRefusal,
    ProtocolAbort,
    RecordsRefusal,
    UsageError,
)
from secagg.jobs.registry import PROTOCOLS
from secagg.runs.run import Run, run
from secagg.runtime.engines.channel import HOST
from secagg.runtime.engines.launcher import Launcher
from secagg.runtime.engines.loopback import LoopbackEngine

__all__ = ["nursery", "quick_starts"]  # fixtures
Before = Callable[[LoopbackEngine, int, str], None]


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


def overrides(protocol: str, **changed: Any) -> dict[str, str]:
    small = {"paillier": ", key_bits = 2048", "threshold_paillier": ", key_bits = 2048"}
    named = f'{{ name = "{protocol}"{small.get(protocol, "")} }}'
    return {"protocol": named, **{key: str(value) for key, value in changed.items()}}


def processes(job: Path, protocol: str = "plain", out: str = "out", **changed: Any) -> Run:
    settings = overrides(protocol, **changed) | {"engine.name": "processes"}
    return run(job, out=job.parent / out, overrides=settings)


def before_each(monkeypatch: pytest.MonkeyPatch, act: Before) -> list[float]:
    """Have `act(engine, round, phase)` done before each exchange; return how long each took."""
    real, took = LoopbackEngine.exchange, list[float]()

    def exchange(self: LoopbackEngine, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        if not requests:
            return real(self, requests)
        act(self, *peek_header(next(iter(requests.values()))))
        began = time.monotonic()
        replies = real(self, requests)
        took.append(time.monotonic() - began)
        return replies

    monkeypatch.setattr(LoopbackEngine, "exchange", exchange)
    return took


def same_bits(a: Path, b: Path) -> bool:
    return all(
        (a / name).read_bytes() == (b / name).read_bytes() for name in ("result.json", "arrays.npz")
    )


def sender(frame: bytes) -> str:
    return Header.from_bytes(encoding.loads(frame)[0]).sender


def trouble(done: Run) -> list[tuple[str, int, Any]]:
    events = done.facts["trouble"]
    return [(e["event"], e["round"], e.get("parties", e.get("party"))) for e in events]


# --- the same run --------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_processes_give_the_same_bits_and_messages_as_in_memory(
    job: Path,
    protocol: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    engines: list[LoopbackEngine],
) -> None:
    """Two protocols in fresh interpreters, with different string hashes; the others in forks."""
    if protocol not in ("masked", "additive"):
        request.getfixturevalue("quick_starts")
    memory = run(job, out=job.parent / "memory", overrides=overrides(protocol))

    def unread(path: Path, *_: Any) -> None:
        raise AssertionError(f"the coordinator's process reads {path}")

    monkeypatch.setattr(secagg.jobs.site_tables, "read_file", unread)
    done = processes(job, protocol)
    assert same_bits(job.parent / "memory", job.parent / "out")
    assert verify_folder(job.parent / "out").signatures == 12
    assert done.facts["engine"] == {
        "name": "processes", "processes": len(engines[0].parties) + 1, "resumed": 0
    }  # fmt: skip
    assert memory.facts["engine"] == {"name": "memory", "processes": 1, "resumed": 0}
    for key in ("rounds", "cohort", "plan", "protocol", "method", "trouble"):
        assert done.facts[key] == memory.facts[key]
    for ours, theirs in zip(done.facts["phases"], memory.facts["phases"], strict=True):
        # ciphertexts and integers are as long as they need be
        assert abs(ours.pop("bytes") - theirs.pop("bytes")) <= 64 * ours["messages"]
        assert ours == theirs
    assert done.facts["seconds"].keys() == memory.facts["seconds"].keys()
    there = sorted(path.name for path in job.parent.iterdir())
    assert there == ["data", "job.toml", "memory", "out"]


@pytest.mark.usefixtures("quick_starts")
def test_sites_may_share_a_table(job: Path, engines: list[LoopbackEngine]) -> None:
    """Each reads the whole table, which is what a simulation is."""
    rows = ["site,age,sex,grade"]
    for site in SITES:
        lines = (job.parent / f"data/{site}.csv").read_text().splitlines()[1:]
        rows += [f"{site},{line}" for line in lines]
    (job.parent / "all.csv").write_text("\n".join(rows) + "\n")
    settings = {"sites": '{ table = "all.csv", site_column = "site", max_rows = 100 }'}
    run(job, out=job.parent / "memory", overrides=settings)
    processes(job, **settings)
    assert same_bits(job.parent / "memory", job.parent / "out")


@pytest.mark.usefixtures("quick_starts")
def test_a_run_without_a_folder_leaves_no_files(job: Path, engines: list[LoopbackEngine]) -> None:
    seen: list[Mapping[str, Any]] = []
    done = run(job, overrides={"engine.name": "processes"}, progress=seen.append)
    asked = [(e["round"], e["phase"], e["parties"]) for e in seen if e["event"] == "asked"]
    phases = [(i, phase) for i in (0, 1) for phase in ("consent", "submit")]
    assert asked == [(*phase, list(SITES)) for phase in phases]
    started = [(e["started"], e["parties"]) for e in seen if e["event"] == "starting"]
    assert started == [(0, 3), (1, 3), (2, 3), (3, 3)]
    logged = [e["event"] for e in seen if e["event"] not in ("sites", "asked", "starting")]
    assert [e["event"] for e in done.events] == logged
    assert done.folder is None and done.result.summary["records"] == 36
    assert not any(folder.exists() for folder in engines[0]._launcher.folders.values())
    assert sorted(path.name for path in job.parent.iterdir()) == ["data", "job.toml"]


def test_relative_paths_start_at_the_folder_of_the_caller(
    job: Path, monkeypatch: pytest.MonkeyPatch, engines: list[LoopbackEngine]
) -> None:
    """And a file there that has a module's name is not imported."""
    monkeypatch.chdir(job.parent)
    (job.parent / "secagg.py").write_text("raise SystemExit('taken for a module')")
    assert processes(Path("job.toml")).facts["cohort"] == list(SITES)
    assert engines[0]._launcher.cwd == str(job.parent)


# --- what cannot be ------------------------------------------------------------------------------


def test_records_in_this_process_are_refused(job: Path) -> None:
    for protocol in ("plain", "additive"):
        with pytest.raises(JobError) as caught:
            processes(job, protocol, **{"simulation.site_alone": "true"})
        assert "simulation.site_alone=false" in caught.value.advice
    raw = {"engine": {"name": "processes"}}
    with pytest.raises(JobError):
        run(tomllib.loads(job.read_text()) | raw, {"north": {}, "south": {}})
    with pytest.raises(UsageError):
        run(job, overrides={"engine.name": "processes"}, random=replayable_random(1))
    assert sorted(path.name for path in job.parent.iterdir()) == ["data", "job.toml"]


def test_a_refused_job_starts_no_process(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(LoopbackEngine, "__init__")
    with pytest.raises(PolicyRefusal):
        processes(job, out="a/b/out", **{"release.min_sites": 4})
    assert sorted(path.name for path in job.parent.iterdir()) == ["data", "job.toml"]


@pytest.mark.usefixtures("quick_starts")
def test_a_sites_error_text_stays_in_its_process(job: Path, engines: list[LoopbackEngine]) -> None:
    path = job.parent / "data/north.csv"
    path.write_text(path.read_text().replace(",male", ",secret"))
    with pytest.raises(RecordsRefusal) as caught:
        processes(job)
    assert caught.value.where == "north" and "secret" not in caught.value.line()
    place = job.parent / "out.partial"
    assert f"secagg resume {job.parent / 'out'}" in caught.value.advice
    assert "--overwrite" in caught.value.advice and str(place / "parties") in caught.value.advice
    assert "'secret'" in (place / "parties/00-north/log.txt").read_text()
    kept = [p for p in place.rglob("*") if p.is_file() and b"secret" in p.read_bytes()]
    assert [p.name for p in kept] == ["log.txt"]


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
    monkeypatch.setattr(secagg.runtime.engines.loopback, "_START", 0.0)
    monkeypatch.setattr(secagg.runtime.engines.loopback, "_START_EACH", 3.0)
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


def test_the_port_is_open_to_this_computer_only(job: Path, tmp_path: Path) -> None:
    from secagg.jobs.job import load_job

    engine = LoopbackEngine("coordinator", load_job(job), {}, tmp_path / "x", str(tmp_path))
    with engine:
        addresses = [s.getsockname() for s in engine._server.sockets]
    assert addresses == [("127.0.0.1", engine.port)]


# --- files ---------------------------------------------------------------------------------------


def test_files_and_process_lists_reveal_no_secrets_during_a_run(
    job: Path, monkeypatch: pytest.MonkeyPatch, engines: list[LoopbackEngine]
) -> None:
    """Modes whatever the umask, what the list of processes shows, and what is logged by when."""
    place, before = job.parent / "out.partial", os.umask(0)
    tokens: list[bytes] = []
    seen: set[str] = set()
    logged: list[list[str]] = []
    real = Launcher.launch

    def launch(self: Launcher, name: str, port: int) -> None:
        real(self, name, port)
        tokens.append(self.tokens[name])

    def look(engine: LoopbackEngine, *_: Any) -> None:
        assert place.stat().st_mode & 0o777 == 0o700
        for path in (place / "parties").iterdir():
            assert path.stat().st_mode & 0o777 == 0o700
        for path in place.rglob("*"):
            if path.is_file() and path.name != "log.jsonl":
                seen.add(path.name)
                assert path.stat().st_mode & 0o777 == 0o600, path
        for process in engine._launcher.processes.values():
            for what in ("cmdline", "environ"):
                shown = Path(f"/proc/{process.pid}/{what}").read_bytes()
                assert shown and not any(t in shown or t.hex().encode() in shown for t in tokens)
        events = read_log(place / "log.jsonl")
        logged.append([event["event"] for event in events])

    monkeypatch.setattr(Launcher, "launch", launch)
    before_each(monkeypatch, look)
    try:
        processes(job)
    finally:
        os.umask(before)
    assert len(set(tokens)) == 3 and engines[0]._launcher.tokens == {}  # used up
    assert seen >= {"setup", "journal", "lock", "keys", "session", "state", "seconds", "log.txt"}
    first = ["session", "consent", "round"]
    released = [*first, "release"]
    ended = [*released, "round", "release", "result", "report"]
    assert logged == [["session"], first, released, [*released, "round"], ended]
    assert not place.exists()
