"""Reading a run folder that anybody may have written: the error names the malformed file."""

import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.jobs import small_job, tables

from secagg.audits.views import coordinator_view
from secagg.core.identity import Role
from secagg.errors import EvidenceError, UsageError
from secagg.evidence.integrity import verify_folder
from secagg.evidence.released_sums import SUMS_FILE
from secagg.evidence.run_files import json_bytes
from secagg.evidence.run_folder import RunFolder
from secagg.evidence.transcript_file import MESSAGES_FILE, TRANSCRIPT
from secagg.runs.run import run

READ: dict[str, Callable[[RunFolder], Any]] = {
    "run.json": lambda folder: folder.facts,
    "result.json": lambda folder: folder.result,
    "arrays.npz": lambda folder: folder.result,
    "log.jsonl": lambda folder: folder.releases,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "out"
    run(small_job(), tables(), out=out, transcript=True)
    return out


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


def saved(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def huge() -> bytes:
    """An archive whose header announces 10^15 numbers."""
    array = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_2_0(array, header)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", array.getvalue())
    return file.getvalue()


def test_a_written_run_is_read_back(folder: Path) -> None:
    read = RunFolder.open_finished(folder)
    assert not read.failed
    assert read.facts["session"] == read.session and len(bytes.fromhex(read.session)) > 0
    assert read.result.summary == json.loads((folder / "result.json").read_bytes())
    assert set(read.result.arrays) == set(np.load(folder / "arrays.npz").files)
    assert [event["event"] for event in read.releases] == ["release"] * len(read.releases) != []
    assert read.job.agreed == read.facts["job"]
    assert read.method.name == read.facts["method"]["name"]


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("content", [b"", b"[]\n", b"{}\n", b"\xff", b"[" * 10**5, b"NaN", b"7\n"])
def test_files_of_another_form_are_rejected(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    read = RunFolder.open(folder)
    if (name, content) in {("result.json", b"{}\n"), ("log.jsonl", b"")}:  # of the form, but empty
        assert READ[name](read) is not None
        return
    with pytest.raises(EvidenceError) as caught:
        READ[name](read)
    assert name in caught.value.where


@pytest.mark.parametrize("name", READ)
def test_missing_files_are_errors(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(EvidenceError) as caught:
        READ[name](RunFolder.open(folder))
    assert name in caught.value.where


@pytest.mark.parametrize(
    "content",
    [saved(x=np.ones(3))[:-7], saved(x=np.array([{}], dtype=object)), saved(x=1)[:40], huge()],
    ids=["cut off", "pickled", "header only", "huge"],
)
def test_damaged_array_files_are_rejected(folder: Path, content: bytes) -> None:
    (folder / "arrays.npz").write_bytes(content)
    with pytest.raises(EvidenceError) as caught:
        _ = RunFolder.open(folder).result
    assert caught.value.where.endswith("arrays.npz")


@pytest.mark.parametrize(
    "job",
    [{}, None, {"title": "t", "sites": {"max_rows": 1}, "columns": {"x": {"type": "new"}}},
     small_job().model_dump(mode="json") | {"method": {"name": "unheard of"}}],
)  # fmt: skip
def test_a_job_of_another_version_is_refused(folder: Path, job: dict[str, Any] | None) -> None:
    facts = json.loads((folder / "run.json").read_bytes())
    (folder / "run.json").write_bytes(json_bytes(facts | {"job": job}))
    with pytest.raises(UsageError, match="version"):
        _ = RunFolder.open(folder).method


def test_folders_without_a_finished_run_are_refused(folder: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "none", folder / "run.json", tmp_path):
        with pytest.raises(UsageError):
            RunFolder.open_finished(path)
    (folder / "journal").touch()
    with pytest.raises(UsageError, match="unfinished"):
        RunFolder.open(folder)


def test_malformed_content_raises_an_evidence_error(folder: Path) -> None:
    read = RunFolder.open(folder)
    with pytest.raises(EvidenceError, match="its result"), read.well_formed("result"):
        _ = read.result.summary["nothing"]


def test_what_was_verified_is_what_is_used(folder: Path) -> None:
    """A file that is changed after it was read neither deceives a reader nor is found."""
    read, changed = RunFolder.open_finished(folder), RunFolder.open_finished(folder)
    verified = verify_folder(read)
    (folder / "result.json").write_text("{}")
    (folder / MESSAGES_FILE).write_bytes(b"")
    (folder / SUMS_FILE).write_bytes(b"")
    assert verify_folder(read) == verified
    assert read.result.summary["records"] > 0
    view = coordinator_view(read, read.planned)
    assert len(view.messages) == read.facts["transcript"] > 0 and view.rounds
    with pytest.raises(EvidenceError) as caught:
        verify_folder(changed)
    assert caught.value.where == MESSAGES_FILE


def test_the_parties_and_the_sums_are_read_with_the_run(folder: Path) -> None:
    read = RunFolder.open_finished(folder)
    made = read.run_facts
    assert read.cohort == made["cohort"] == list(read.roster.with_role(Role.SITE))
    assert read.session_bytes.hex() == made["session"]
    assert read.releases == made["releases"] and not made["trouble"]
    assert [item.stage for item in read.sums] == [r["stage"] for r in read.releases]
    assert list(read.planned.public.sites) == read.cohort and not read.planned.sources
    assert read.claims.sums == {r["stage"]: 1 for r in read.releases}


def test_a_file_that_was_missing_when_the_run_was_verified_is_not_read_later(folder: Path) -> None:
    aside = Path(shutil.copytree(folder, folder.parent / "aside"))
    (folder / SUMS_FILE).unlink()
    shutil.rmtree(folder / TRANSCRIPT)
    read = RunFolder.open_finished(folder)
    assert not verify_folder(read).recomputed
    shutil.copytree(aside, folder, dirs_exist_ok=True)
    assert read.has_sums is False and read.messages == ()


@pytest.mark.parametrize("name", READ)
def test_a_pipe_in_place_of_a_file_is_not_waited_on(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(EvidenceError) as caught:
        verify_folder(folder)
    assert name in caught.value.where
