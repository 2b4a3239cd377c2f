"""A run folder that is not what was written: each change is found, and the file or line named.

Logs that are forged as a whole are in `test_forged_logs`.
"""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.runs.jobs import SITES, small_job, tables
from support.runs.run_folders import REPORT, RESULT, bad, facts, log, rewrite, save_facts

from secagg.core.hash_chain_log import GENESIS_HASH, canonical_json, entry_hash
from secagg.core.identity import Identity, Role
from secagg.core.randomness import system_random
from secagg.core.roster_file import card_of
from secagg.errors import UsageError
from secagg.evidence.integrity import verify_folder
from secagg.evidence.run_files import facts_digest, file_digest
from secagg.evidence.run_folder import roster_of
from secagg.runs.run import run
from secagg.sessions.planned_job import session_name


def test_an_intact_folder_verifies(folder: Path) -> None:
    entries = log(folder)
    assert [e["event"] for e in entries] == [
        "session", "consent", "round", "release", "round", "release", "result", "report",
        "countersigned",
    ]  # fmt: skip
    found = verify_folder(folder)
    assert (found.lines, found.head) == (9, entries[-1]["hash"])
    assert found.files == ("arrays.npz", "report.html", "result.json")
    assert (found.releases, found.signatures) == (2, 12)
    assert (found.evidence, found.countersigned, found.unsigned) == (3, SITES, ())
    assert found.recomputed and not found.not_recomputed
    assert verify_folder(folder, found.head) == verify_folder(folder, found.head.upper()) == found
    assert entries[RESULT]["hash"] in (folder / "report.html").read_text(encoding="utf-8")


def test_the_head_shown_in_the_report_does_not_bind_the_report(folder: Path) -> None:
    """The head that precedes the report is not accepted, with or without a forged report."""
    shown = log(folder)[RESULT]["hash"]
    with pytest.raises(UsageError):
        verify_folder(folder, shown)
    (folder / "report.html").write_text("forged", encoding="utf-8")
    entries = log(folder)
    entries[REPORT]["files"]["report.html"] = file_digest(folder / "report.html")
    rewrite(folder, entries)
    assert log(folder)[RESULT]["hash"] == shown
    with pytest.raises(UsageError):
        verify_folder(folder, shown)


AGREED = ("secagg", "evidence", "job", "method", "protocol", "plan")


@pytest.mark.parametrize("change", ["another aggregator", "a site that the job does not name"])
def test_a_roster_with_other_parties_than_the_jobs_is_found(folder: Path, change: str) -> None:
    """As each party of the session does: forged so that the session's name matches."""
    entries = log(folder)
    own = Identity.generate("planted", Role.AGGREGATOR, system_random)
    planted = card_of(own.public)
    if change == "another aggregator":
        entries[0]["roster"].append(planted)
    else:
        entries[0]["job"]["sites"]["names"] = [*SITES[:2], "planted"]
    agreed = {key: entries[0][key] for key in AGREED}
    nonce = bytes.fromhex(entries[0]["nonce"])
    entries[0]["session"] = session_name(roster_of(entries[0]), nonce, agreed).hex()
    changed = {key: entries[0][key] for key in ("roster", "job", "session")}
    new = facts(folder) | changed
    save_facts(folder, new)
    entries[RESULT]["facts"] = facts_digest(new)
    rewrite(folder, entries)
    assert bad(folder).where == "log.jsonl line 1"


def test_rewriting_an_unchanged_log_still_verifies(folder: Path) -> None:
    before = (folder / "log.jsonl").read_bytes()
    rewrite(folder, log(folder))
    assert (folder / "log.jsonl").read_bytes() == before
    verify_folder(folder)


# --- files ---------------------------------------------------------------------------------------

FILES = ["result.json", "arrays.npz", "report.html"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "change",
    [lambda d: d + b" ", lambda d: d[:-1], lambda d: bytes([d[0] ^ 1]) + d[1:], lambda d: b""],
)
def test_an_edited_file_is_detected(
    folder: Path, name: str, change: Callable[[bytes], bytes]
) -> None:
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    assert bad(folder).where == name


@pytest.mark.parametrize("name", [*FILES, "run.json", "log.jsonl"])
def test_a_missing_file_is_detected(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert name in bad(folder).where
    (folder / name).mkdir()
    assert name in bad(folder).where


@pytest.mark.parametrize("name", ["notes.txt", "result (1).json", ".report.html.swp"])
def test_an_added_file_is_detected(folder: Path, name: str) -> None:
    (folder / name).write_text("approved")
    assert bad(folder).where == name


@pytest.mark.parametrize("name", FILES)
def test_a_head_kept_elsewhere_detects_consistent_edits(folder: Path, name: str) -> None:
    """All in the folder agrees again, and so do the countersignatures of another log."""
    head = verify_folder(folder).head
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    entries = log(folder)
    for entry in entries:
        if name in entry.get("files", ()):
            entry["files"][name] = file_digest(folder / name)
    rewrite(folder, entries)
    assert bad(folder).where == "log.jsonl line 9"
    assert bad(folder, head).where == "log.jsonl"


@pytest.mark.parametrize("head", ["0" * 64, GENESIS_HASH])
def test_a_wrong_head_is_detected(folder: Path, head: str) -> None:
    assert bad(folder, head).where == "log.jsonl"


@pytest.mark.parametrize("i", [0, 3, 5, 7, 8])
def test_lines_added_after_the_head_are_detected(folder: Path, i: int) -> None:
    """A forger of further lines keeps the genuine ones: this is no usage error."""
    entries = log(folder)
    head = entries[i]["hash"]
    rewrite(folder, [*entries, *copy.deepcopy(entries[-2:])])
    assert bad(folder, head).where == "log.jsonl"


@pytest.mark.parametrize("head", ["", "xyz", "0" * 63, "0" * 65, "g" * 64, "0" * 64 + "\n"])
def test_malformed_heads_are_usage_errors(folder: Path, head: str) -> None:
    with pytest.raises(UsageError) as caught:
        verify_folder(folder, head)
    assert caught.value.where == "--head" and caught.value.advice


def test_folders_that_are_not_runs_are_usage_errors(folder: Path, tmp_path: Path) -> None:
    for path in (folder / "report.html", tmp_path / "none"):
        with pytest.raises(UsageError) as caught:
            verify_folder(path)
        assert caught.value.where == str(path)
    (tmp_path / "empty").mkdir()
    assert "run.json" in bad(tmp_path / "empty").where


# --- run.json ------------------------------------------------------------------------------------


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        return [leaf for k, v in value.items() for leaf in leaves(v, (*path, k))]
    if isinstance(value, list) and value:
        return [leaf for i, v in enumerate(value) for leaf in leaves(v, (*path, i))]
    return [path]


def test_every_changed_fact_is_detected(folder: Path) -> None:
    """Each number and text in run.json, changed on its own."""
    good = facts(folder)
    paths = [path for path in leaves(good) if path[0] != "log"]
    assert len(paths) > 150
    for path in paths:
        changed = copy.deepcopy(good)
        at: Any = changed
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = "changed" if at[path[-1]] != "changed" else None
        save_facts(folder, changed)
        assert bad(folder).where == "run.json", path


def test_added_or_removed_facts_are_detected(folder: Path) -> None:
    good = facts(folder)
    for key in good:
        save_facts(folder, {k: v for k, v in good.items() if k != key})
        assert str(folder) in bad(folder).where or bad(folder).where == "run.json"
    save_facts(folder, good | {"note": "approved by the ethics committee"})
    assert bad(folder).where == "run.json"


@pytest.mark.parametrize("change", [{"lines": 8}, {"lines": 10}, {"lines": 0}, {"lines": -1},
                                    {"head": GENESIS_HASH}, {"head": ""}])  # fmt: skip
def test_edited_facts_in_the_log_are_detected(folder: Path, change: dict[str, Any]) -> None:
    good = facts(folder)
    save_facts(folder, good | {"log": good["log"] | change})
    assert "log.jsonl" in bad(folder).where


@pytest.mark.parametrize(
    "value",
    [None, [], {}, 3, {"log": None}, {"log": {"lines": "8", "head": ""}}, {"log": {"lines": 8}},
     {"log": {"lines": 8, "head": 3}}, {"log": {"lines": 8, "head": "", "approved": True}}],
)  # fmt: skip
def test_a_run_json_of_another_form_is_detected(folder: Path, value: Any) -> None:
    save_facts(folder, value)
    assert "run.json" in bad(folder).where


@pytest.mark.parametrize(
    "change",
    [lambda t: t.replace("{", '{\n "title": "Other",', 1), lambda t: t + " ", lambda t: t[:-1],
     lambda t: t.replace('"head"', '"lines": 8,\n  "head"'), lambda t: t.replace("\n", "\r\n"),
     lambda t: t.replace('"title"', '"\\u0074itle"', 1), lambda t: json.dumps(json.loads(t)),
     lambda t: t.replace('"head"', '"approved": true,\n  "head"')],
)  # fmt: skip
def test_a_run_json_with_other_bytes_is_detected(
    folder: Path, change: Callable[[str], str]
) -> None:
    """The first key of two is what some readers show, and the last one what others do."""
    before = (folder / "run.json").read_text(encoding="utf-8")
    after = change(before)
    assert after != before
    (folder / "run.json").write_bytes(after.encode())
    error = bad(folder)
    assert "run.json" in error.where


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 200_000])
def test_an_invalid_run_json_is_detected(folder: Path, data: bytes) -> None:
    (folder / "run.json").write_bytes(data)
    assert "run.json" in bad(folder).where


# --- the log -------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1, 4, 7, 8])
def test_lines_removed_from_the_end_are_detected(folder: Path, left: int) -> None:
    lines = (folder / "log.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "log.jsonl").write_bytes(b"".join(lines[:left]))
    assert bad(folder).where == f"log.jsonl line {left + 1}"


def test_a_line_added_to_the_end_is_detected(folder: Path) -> None:
    last = log(folder)[-1]
    entry = {**last, "seq": last["seq"] + 1, "prev": last["hash"]}
    entry["hash"] = entry_hash(entry)
    with (folder / "log.jsonl").open("ab") as file:
        file.write(canonical_json(entry) + b"\n")
    assert bad(folder).where == "log.jsonl line 10"


@pytest.mark.parametrize("i", range(9))
def test_a_changed_line_is_detected(folder: Path, i: int) -> None:
    lines = (folder / "log.jsonl").read_bytes().splitlines(keepends=True)
    lines[i] = lines[i].replace(b'"time":"2', b'"time":"1')
    (folder / "log.jsonl").write_bytes(b"".join(lines))
    assert bad(folder).where == f"log.jsonl line {i + 1}"


def test_the_log_of_another_run_is_detected(folder: Path, tmp_path: Path) -> None:
    run(small_job(), tables(), out=tmp_path / "other")
    shutil.copy(tmp_path / "other" / "log.jsonl", folder / "log.jsonl")
    assert bad(folder).where.startswith("log.jsonl")
    save_facts(folder, facts(folder) | {"log": facts(tmp_path / "other")["log"]})
    assert bad(folder).where == "run.json"
    shutil.copy(tmp_path / "other" / "run.json", folder / "run.json")
    assert bad(folder).where in FILES
