"""Parties in processes of their own: the same bits as in memory, and no secret left behind."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.crashes.loopback import before_each, overrides, processes, same_bits
from support.runs.jobs import SITES

import secagg.jobs.site_tables
from secagg.core.hash_chain_log import read_log
from secagg.core.randomness import replayable_random
from secagg.errors import JobError, PolicyRefusal, RecordsRefusal, UsageError
from secagg.evidence.integrity import verify_folder
from secagg.jobs.registry import PROTOCOLS
from secagg.runs.run import run
from secagg.sessions.engines.launcher import Launcher
from secagg.sessions.engines.loopback import LoopbackEngine

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
    logged = [
        e["event"] for e in seen if e["event"] not in ("sites", "remark", "asked", "starting")
    ]
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


# --- what other users can reach and see ----------------------------------------------------------


def test_the_port_is_open_to_this_computer_only(job: Path, tmp_path: Path) -> None:
    from secagg.jobs.job import load_job

    engine = LoopbackEngine("coordinator", load_job(job), {}, tmp_path / "x", str(tmp_path))
    with engine:
        addresses = [s.getsockname() for s in engine._server.sockets]
    assert addresses == [("127.0.0.1", engine.port)]


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
