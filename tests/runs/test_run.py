"""`secagg.run` from Python: its evidence, its folder, and whose words an error has."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.jobs import raw_job, small_job, tables, write_job

import secagg
import secagg.evidence.run_files
import secagg.reports.page
import secagg.runs.run_end
import secagg.runs.session_loop
from secagg.core.frames import peek_header
from secagg.core.hash_chain_log import RunLog, read_log
from secagg.core.randomness import replayable_random
from secagg.errors import (
    DataError,
    JobError,
    PeerError,
    PolicyRefusal,
    ProtocolAbort,
    SecaggError,
    UsageError,
)
from secagg.evidence.integrity import verify_folder
from secagg.runs.run import run


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def hashes(events: list[dict[str, Any]]) -> list[str]:
    return [event["hash"] for event in events]


def test_every_form_of_a_job_gives_the_same_result(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    by_file = secagg.run(path)
    assert secagg.run(str(path)).result.summary == by_file.result.summary
    assert secagg.run(raw_job(), tables()).result.summary == by_file.result.summary
    assert secagg.run(small_job(), tables()).result.summary == by_file.result.summary
    assert by_file.folder is None and names(tmp_path) == ["data", "job.toml"]


def test_overrides_need_a_job_file() -> None:
    with pytest.raises(JobError):
        run(small_job(), tables(), overrides={"title": "x"})


def test_the_result_agrees_with_the_pooled_records() -> None:
    got = run(small_job(), tables()).result
    age = np.concatenate([columns["age"] for columns in tables().values()])
    # Each site rounds its sum once, by half a step of 2^-32 times half the range of 100.
    assert got.arrays["mean"][0] == pytest.approx(age.mean(), abs=3 * 25 * 2.0**-32 / 36)
    assert got.arrays["n"] == 36


def test_events_are_logged_in_order(tmp_path: Path) -> None:
    seen: list[Mapping[str, Any]] = []
    done = run(small_job(), tables(), out=tmp_path / "x", progress=seen.append)
    kinds = [event["event"] for event in seen]
    kinds = [kind for kind in kinds if kind != "sites"]  # shown, not logged
    assert kinds == [
        "session", "consent", "round", "release", "round", "release", "result", "report",
        "countersigned",
    ]  # fmt: skip
    logged = read_log(tmp_path / "x" / "log.jsonl")
    assert [e["event"] for e in logged] == kinds
    assert hashes(logged) == hashes(done.events)


@pytest.mark.parametrize("round_", [0, 1])
def test_a_release_that_is_not_on_disk_is_not_used(
    monkeypatch: pytest.MonkeyPatch, round_: int
) -> None:
    """The disk fails as the release is written: nothing is decoded after that."""
    import secagg.sessions.coordinator

    decoded: list[str] = []
    real = secagg.sessions.coordinator.decode

    def spy(plan: Any, total: Any) -> Any:
        decoded.append("sum")
        return real(plan, total)

    monkeypatch.setattr(secagg.sessions.coordinator, "decode", spy)

    def disk(event: Mapping[str, Any]) -> None:
        if (event["event"], event.get("round")) == ("release", round_):
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        run(small_job(), tables(), progress=disk)
    assert len(decoded) == round_


def test_replayable_randomness_is_marked_in_the_run(tmp_path: Path) -> None:
    done = run(small_job(), tables(), random=replayable_random(1), out=tmp_path / "x")
    assert "protects nothing" in done.facts["randomness"]
    assert read_log(tmp_path / "x" / "log.jsonl")[0]["randomness"] == done.facts["randomness"]
    assert run(small_job(), tables()).facts["randomness"] == "operating system"


def test_site_alone_results_are_given_only_on_request() -> None:
    assert "simulation" not in run(small_job(), tables()).result.summary
    done = run(small_job(simulation={"site_alone": True}), tables())
    assert done.result.summary["simulation"]["site_alone"].keys() == tables().keys()


# --- the folder ----------------------------------------------------------------------------------


def test_an_earlier_run_is_kept_or_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    first = run(small_job(), tables(), out=folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(JobError):
        run(small_job(), tables(), out=folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(PolicyRefusal):
        run(small_job(release={}), tables(), out=folder, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    second = run(small_job(), tables(), out=folder, overwrite=True)
    assert first.facts["session"] != second.facts["session"]
    assert hashes(read_log(folder / "log.jsonl")) == hashes(second.events)
    assert "notes.txt" not in names(folder) and names(tmp_path) == ["x"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_not_a_run_is_never_replaced(tmp_path: Path, overwrite: bool) -> None:
    """Nor a link to a run."""
    (tmp_path / "papers").mkdir()
    (tmp_path / "file").write_text("mine")
    run(small_job(), tables(), out=tmp_path / "run")
    (tmp_path / "link").symlink_to("run")
    for name in ("papers", "file", "link"):
        with pytest.raises(JobError):
            run(small_job(), tables(), out=tmp_path / name, overwrite=overwrite)
    assert names(tmp_path) == ["file", "link", "papers", "run"]
    assert (tmp_path / "file").read_text() == "mine" and (tmp_path / "link").is_symlink()


def test_an_unwritable_output_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(JobError):
        run(small_job(), tables(), out=tmp_path / "file" / "x")


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("part", "error"),
    [("savez", FULL), ("render", KeyboardInterrupt()), ("write_private", FULL),
     ("rename", KeyboardInterrupt()), ("write_json", FULL)],
)  # fmt: skip
def test_a_failure_after_the_releases_keeps_their_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, error: BaseException
) -> None:
    real = Path.rename

    def broken(path: Any = None, target: Any = None, **_: Any) -> Path:
        if part == "rename" and target != tmp_path / "x":
            return real(path, target)
        raise error

    owner = {"savez": np, "render": secagg.reports.page}
    owner |= {"write_json": secagg.runs.run_end, "write_private": secagg.evidence.run_files}
    monkeypatch.setattr(owner.get(part, Path), part, broken)
    expected = UsageError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        run(small_job(), tables(), out=tmp_path / "x", transcript=True)
    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith("x.failed-") and names(kept) == ["log.jsonl"]
    events = [event["event"] for event in read_log(kept / "log.jsonl")]
    assert events.count("release") == 2 and events[-1] == "failed"
    if isinstance(caught.value, UsageError):
        assert caught.value.where == str(tmp_path / "x")
        assert "No space left on device" in caught.value.what and str(kept) in caught.value.advice


def test_a_full_disk_does_not_lose_the_log_of_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the line that says so can be written."""
    real = RunLog.write

    def write(log: RunLog, event: Mapping[str, Any], **settings: bool) -> None:
        if event["event"] in ("result", "failed"):
            raise FULL
        real(log, event, **settings)

    monkeypatch.setattr(RunLog, "write", write)
    with pytest.raises(UsageError, match="No space left on device"):
        run(small_job(), tables(), out=tmp_path / "x")
    (kept,) = tmp_path.iterdir()
    assert [e["event"] for e in read_log(kept / "log.jsonl")][-1] == "release"


# --- the place is taken --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "overwrite"),
    [("folder", True), ("file", False), ("link", True), ("empty folder", False)],
)
def test_files_that_appear_during_the_run_are_not_replaced(
    tmp_path: Path, kind: str, overwrite: bool
) -> None:
    """The finished run is kept beside it, whole."""
    target = tmp_path / "x"

    def appear(event: Mapping[str, Any]) -> None:
        if (event["event"], event.get("round")) != ("release", 1):
            return
        if kind == "file":
            target.write_text("mine")
        elif kind == "link":
            target.symlink_to(tmp_path / "nowhere")
        else:
            target.mkdir()
            if kind == "folder":
                (target / "thesis.tex").write_text("mine")

    with pytest.raises(JobError) as caught:
        run(small_job(), tables(), out=target, overwrite=overwrite, progress=appear)
    (beside,) = [path for path in tmp_path.iterdir() if path != target]
    assert str(beside) in caught.value.advice
    assert verify_folder(beside).failed is None
    if kind == "link":
        assert target.is_symlink()
    elif kind == "file":
        assert target.read_text() == "mine"
    else:
        assert names(target) == (["thesis.tex"] if kind == "folder" else [])


@pytest.mark.parametrize(
    ("error", "after"), [(KeyboardInterrupt(), "earlier moved"), (FULL, "before it moved")]
)
def test_an_interrupt_while_replacing_keeps_the_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, after: str
) -> None:
    target = tmp_path / "x"
    earlier = run(small_job(), tables(), out=target)
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    real = Path.rename

    def rename(path: Path, to: Path) -> Path:
        replacing = to == target and path.name == "run"
        if replacing if after == "earlier moved" else path == target:
            raise error
        return real(path, to)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises((KeyboardInterrupt, UsageError)):
        run(small_job(), tables(), out=target, overwrite=True)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    assert verify_folder(target).head == earlier.facts["log"]["head"]
    (kept,) = [path.name for path in tmp_path.iterdir() if path != target]
    assert kept.startswith("x.failed-")


def test_the_earlier_run_exists_until_the_new_one_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x"
    run(small_job(), tables(), out=target)
    seen: list[list[str]] = []
    real = shutil.rmtree

    def rmtree(path: Any, *args: Any, **options: Any) -> None:
        if Path(path).name.startswith("x."):
            seen.append(names(tmp_path))
            verify_folder(target)
            verify_folder(Path(path))
        real(path, *args, **options)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    second = run(small_job(), tables(), out=target, overwrite=True)
    assert len(seen) == 1 and f"x.earlier-{second.facts['session'][:8]}" in seen[0]
    assert names(tmp_path) == ["x"]


def test_too_long_output_names_are_refused_before_the_run(tmp_path: Path) -> None:
    for length in (250, 300):
        with pytest.raises(JobError):
            run(small_job(), tables(), out=tmp_path / ("x" * length))
    assert names(tmp_path) == []


def test_processor_time_is_rounded() -> None:
    """It grows with the number of rows: fine digits would tell of rows no sum counts."""
    spent = run(small_job(protocol={"name": "additive"}), tables()).facts["seconds"]
    assert spent.keys() == {"total", "site", "aggregator"}
    assert all(seconds == round(seconds, 1) for seconds in spent.values())


# --- whose words ---------------------------------------------------------------------------------


def test_in_one_process_a_sites_own_error_text_is_shown() -> None:
    data = tables()
    data["south"]["age"] = np.array(["old"] * 12)
    with pytest.raises(DataError, match="'old'") as caught:
        run(small_job(), data)
    assert caught.value.where == "south, column 'age', record 1"


@pytest.mark.parametrize(
    ("own", "shown"),
    [(PolicyRefusal("rule", "own words"), "own words"), (PeerError("x", "stale"), "in short")],
)
def test_a_partys_error_text_is_shown_only_for_the_same_failure(
    monkeypatch: pytest.MonkeyPatch, own: SecaggError, shown: str
) -> None:
    def fail(session: Any, *_: Any) -> None:
        session.engine.errors["north"] = own
        raise PolicyRefusal("north", "in short")

    monkeypatch.setattr(secagg.runs.session_loop, "_loop", fail)
    with pytest.raises(PolicyRefusal, match=shown):
        run(small_job(), tables())


def test_an_earlier_harmless_error_does_not_hide_the_cause() -> None:
    """North gets one request twice, which is harmless; later it refuses for another reason."""
    released: list[int] = []

    def twice(sender: str, recipient: str, frame: bytes) -> Sequence[bytes]:
        round_, _ = peek_header(frame)
        released.append(round_)
        if recipient == "north":
            return [frame, frame] if round_ == 0 else []
        return [frame]

    with pytest.raises(ProtocolAbort, match="north"):
        run(small_job(), tables(), tamper=twice)
    assert 1 in released


def test_a_site_cannot_have_another_partys_name() -> None:
    for taken in ("coordinator", "aggregator_1"):
        data = tables()
        data[taken] = data.pop("west")
        with pytest.raises(DataError, match=f"'{taken}'"):
            run(small_job(protocol={"name": "additive"}), data)
