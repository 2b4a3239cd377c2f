"""A forged result with all original signatures: the owner of a folder rewrites the end of its log.

The forger has the whole folder and no key. Every signature of a contribution stays as it was, and
all digests and hashes are computed anew, so nothing in the folder contradicts anything else.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.jobs import SITES, small_job, tables
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.contracts import Result
from secagg.core.hash_chain_log import GENESIS_HASH, canonical_json, entry_hash
from secagg.errors import EvidenceError
from secagg.evidence import recomputation
from secagg.evidence.integrity import verify_folder
from secagg.evidence.released_sums import SUMS_FILE
from secagg.evidence.run_files import facts_digest, file_digest, release_counts, write_json
from secagg.evidence.run_folder import RunFolder
from secagg.runs import facts as run_facts
from secagg.runs import session_loop
from secagg.runs.run import run
from secagg.sessions import planned_job
from secagg.sessions.countersignatures import sum_digest

pytestmark = pytest.mark.attack
RULES = {"min_sites": 2, "min_records": 2}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "folder"
    run(small_job(protocol={"name": "additive"}, release=RULES), tables(), out=folder)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_bytes().splitlines()]


def forge_result(folder: Path) -> None:
    """Replace the means of result.json and the arrays by other numbers."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    result["title"], result["records"] = "A forged result", 3600
    write_json(folder / "result.json", result)
    with np.load(folder / "arrays.npz") as arrays:
        np.savez(folder / "arrays.npz", **{name: arrays[name] + 1 for name in arrays})
    page = (folder / "report.html").read_text(encoding="utf-8")
    (folder / "report.html").write_text(page.replace("A small job", "A forged result"), "utf-8")


def rewrite(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Compute all digests and hashes of the log anew, and the head in run.json."""
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    head = GENESIS_HASH
    for i, entry in enumerate(entries):
        for name in entry.get("files", {}):
            entry["files"][name] = file_digest(folder / name)
        if entry["event"] == "result":
            entry["facts"] = facts_digest(facts)
        entry |= {"seq": i, "prev": head}
        entry["hash"] = head = entry_hash(entry)
    (folder / "log.jsonl").write_bytes(b"".join(canonical_json(e) + b"\n" for e in entries))
    write_json(folder / "run.json", facts | {"log": {"lines": len(entries), "head": head}})


def forged(folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> EvidenceError:
    """Return the error of `verify` for a forged result; no signature of a sum was touched."""
    forge_result(folder)
    before, entries = log(folder), log(folder)
    change(entries)
    rewrite(folder, entries)
    for event in ("consent", "release"):
        claims = [[e["claims"] for e in each if e["event"] == event] for each in (before, entries)]
        assert claims[0] == claims[1]
    with pytest.raises(EvidenceError) as caught:
        verify_folder(folder)
    return caught.value


def test_the_forger_changes_nothing_in_a_folder_that_it_only_rewrites(folder: Path) -> None:
    """The test's own forging is not what `verify` finds."""
    rewrite(folder, log(folder))
    verify_folder(folder)


def by_event(entries: list[dict[str, Any]], event: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["event"] == event)


def test_a_forged_result_with_a_rewritten_end_of_the_log_is_detected(folder: Path) -> None:
    assert forged(folder, lambda entries: None).where == "log.jsonl line 9"


def test_a_forged_report_or_run_json_beside_the_true_result_is_detected(folder: Path) -> None:
    """The signed result is unchanged; only the signed head covers the rest."""
    for name, old, new in (
        ("report.html", "A small job", "A forged title"),
        ("run.json", '"processes": 1', '"processes": 4'),
    ):
        copy = Path(shutil.copytree(folder, folder.with_name(f"copy with {name}")))
        text = (copy / name).read_text(encoding="utf-8")
        assert old in text
        (copy / name).write_text(text.replace(old, new), encoding="utf-8")
        rewrite(copy, log(copy))
        with pytest.raises(EvidenceError) as caught:
            verify_folder(copy)
        assert caught.value.where == "log.jsonl line 9"


def test_countersigning_the_new_head_needs_the_keys_of_the_sites(folder: Path) -> None:
    """The event names the forged head and result; the signatures are for the others."""

    def change(entries: list[dict[str, Any]]) -> None:
        rewrite(folder, entries)
        last = by_event(entries, "countersigned")
        last["head"] = by_event(entries, "report")["hash"]
        last["result"] = by_event(entries, "result")["files"]["result.json"]

    assert forged(folder, change).where == "log.jsonl line 9"


@pytest.mark.parametrize("left", [(), ("north",), ("north", "south")])
def test_removed_countersignatures_do_not_pass_as_dropouts(
    folder: Path, left: tuple[str, ...]
) -> None:
    """A genuine run can end like this; a forger, too. Only a head kept elsewhere decides."""
    entries = log(folder)
    last = by_event(entries, "countersigned")
    last["claims"] = {site: last["claims"][site] for site in left}
    last["missing"] = [site for site in SITES if site not in left]
    rewrite(folder, entries)
    with pytest.raises(EvidenceError):
        verify_folder(folder)
    found = verify_folder(folder, log(folder)[-1]["hash"])
    assert (found.countersigned, set(found.unsigned)) == (left, set(SITES) - set(left))


def test_a_log_without_the_event_of_the_countersignatures_is_detected(folder: Path) -> None:
    assert forged(folder, lambda entries: entries.pop() and None).where == "log.jsonl"


def test_a_newer_folder_cannot_pass_as_one_of_an_earlier_version(folder: Path) -> None:
    """The version of the evidence is part of the session's name, which all signatures cover."""

    def change(entries: list[dict[str, Any]]) -> None:
        entries.pop()
        del entries[0]["evidence"]
        for entry in entries:
            entry.pop("sum", None)
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        write_json(folder / "run.json", {k: v for k, v in facts.items() if k != "evidence"})
        (folder / SUMS_FILE).unlink()

    assert forged(folder, change).where == "log.jsonl line 1"


def test_countersignatures_of_another_session_are_detected(folder: Path, tmp_path: Path) -> None:
    run(small_job(protocol={"name": "additive"}, release=RULES), tables(), out=tmp_path / "other")
    other = by_event(log(tmp_path / "other"), "countersigned")

    def change(entries: list[dict[str, Any]]) -> None:
        by_event(entries, "countersigned")["claims"] = other["claims"]

    assert forged(folder, change).where == "log.jsonl line 9"


def test_a_removed_or_repeated_release_is_detected(folder: Path) -> None:
    """Each site signed the list of all requests that it answered."""
    for entries in (log(folder)[:4] + log(folder)[6:], log(folder)[:6] + log(folder)[4:]):
        copy = Path(shutil.copytree(folder, folder.with_name(f"copy of {len(entries)}")))
        facts = json.loads((copy / "run.json").read_text(encoding="utf-8"))
        facts["release_counts"] = release_counts([e for e in entries if e["event"] == "release"])
        write_json(copy / "run.json", facts)
        rewrite(copy, entries)
        last = by_event(entries, "countersigned")
        last["head"] = by_event(entries, "report")["hash"]
        rewrite(copy, entries)
        with pytest.raises(EvidenceError) as caught:
            verify_folder(copy)
        assert caught.value.where == f"log.jsonl line {len(entries)}"


# --- sums.bin ------------------------------------------------------------------------------------


def test_a_changed_sum_is_detected(folder: Path) -> None:
    path = folder / SUMS_FILE
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(EvidenceError) as caught:
            verify_folder(folder)
        assert caught.value.where == SUMS_FILE
    for other in (b"", data[:-1], data + b"\0", data + data):
        path.write_bytes(other)
        with pytest.raises(EvidenceError) as caught:
            verify_folder(folder)
        assert caught.value.where == SUMS_FILE


def test_a_folder_without_its_sums_is_consistent_but_not_recomputed(folder: Path) -> None:
    """The sums are private; who has only the result can still check the signatures."""
    (folder / SUMS_FILE).unlink()
    found = verify_folder(folder)
    assert found.countersigned == SITES and not found.recomputed and found.claims_checked
    assert SUMS_FILE in found.not_recomputed


def test_the_digest_of_a_sum_does_not_reveal_it(folder: Path) -> None:
    """A person without sums.bin cannot try all sums: the digest depends on a secret salt."""
    sums, event = RunFolder(folder).sums, by_event(log(folder), "release")
    session = bytes.fromhex(log(folder)[0]["session"])
    first = sums[0]
    known = (session, first.round, first.stage)
    assert sum_digest(*known, first.salt, first.total).hex() == event["sum"]
    assert sum_digest(*known, b"", first.total).hex() != event["sum"]
    assert len({item.salt for item in sums}) == 2


# --- a coordinator that lies from the beginning ---------------------------------------------------


def test_a_false_result_that_the_sites_countersigned_does_not_follow_from_the_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sites cannot check the result that they countersign; whoever has the sums can."""
    true = session_loop.result_of

    def false(*known: Any) -> Result:
        result = true(*known)
        return Result({**result.summary, "records": 3600}, result.arrays)

    with monkeypatch.context() as patched:
        patched.setattr(session_loop, "result_of", false)
        run(small_job(release=RULES), tables(), out=tmp_path / "out")
    with pytest.raises(EvidenceError) as caught:
        verify_folder(tmp_path / "out")
    assert caught.value.where == "result.json"
    assert verify_folder(tmp_path / "out", recompute=False).countersigned == SITES


def test_other_arithmetic_is_no_evidence_of_a_forgery(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recomputation, "arithmetic_fingerprint", lambda: "0" * 16)
    found = verify_folder(folder)
    assert not found.recomputed and found.not_recomputed
    monkeypatch.setattr(recomputation, "versions", lambda: {"numpy": "0.1"})
    assert "numpy" in verify_folder(folder).not_recomputed


def test_a_folder_of_an_earlier_version_is_reported_without_countersignatures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consistent, but as easy to forge as it always was."""
    agreement = planned_job.agreement

    def earlier(planned: Any) -> dict[str, Any]:
        return {key: value for key, value in agreement(planned).items() if key != "evidence"}

    folder = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(planned_job, "agreement", earlier)
        patched.setattr(run_facts, "agreement", earlier)
        run(small_job(release=RULES), tables(), out=folder)
    (folder / SUMS_FILE).unlink()
    entries = log(folder)[:-1]
    for entry in entries:
        entry.pop("sum", None)
    rewrite(folder, entries)
    found = verify_folder(folder)
    assert (found.evidence, found.countersigned, found.recomputed) == (1, (), False)
    forge_result(folder)
    rewrite(folder, entries)
    assert verify_folder(folder).evidence == 1


# --- lines that no site signed -------------------------------------------------------------------

FALSE_LINE = {"event": "rejected", "party": "north", "why": "sent forged numbers", "time": "x"}


@pytest.mark.parametrize("back", [0, 1])
def test_a_false_line_beside_the_countersignatures_is_counted(folder: Path, back: int) -> None:
    """After them or before them: a resumed run can write such lines, and so can a forger."""
    assert verify_folder(folder).unsigned_lines == 0
    true = log(folder)
    entries = log(folder)
    entries.insert(len(entries) - back, dict(FALSE_LINE))
    rewrite(folder, entries)
    found = verify_folder(folder)
    assert (found.countersigned, found.unsigned_lines) == (SITES, 1)
    shown = CliRunner().invoke(app, ["verify", str(folder)]).stdout
    assert "intact" not in shown and "consistent" in shown
    with pytest.raises(EvidenceError):
        verify_folder(folder, true[-1]["hash"])


@pytest.mark.parametrize("false", [{"remark": "north signed under protest"}, {"round": 7}])
def test_a_false_field_in_the_line_of_the_countersignatures_is_detected(
    folder: Path, false: dict[str, Any]
) -> None:
    entries = log(folder)
    by_event(entries, "countersigned").update(false)
    rewrite(folder, entries)
    with pytest.raises(EvidenceError) as caught:
        verify_folder(folder)
    assert caught.value.where == "log.jsonl line 9"


def test_a_successful_run_that_is_cut_back_is_not_called_intact(folder: Path) -> None:
    """Without the head, it cannot be told from a run that failed; `verify` says so."""
    true = log(folder)
    entries = log(folder)[:6]
    rewrite(folder, [*entries, {"event": "failed", "code": "abort", "time": true[5]["time"]}])
    for path in folder.iterdir():
        if path.name != "log.jsonl":
            path.unlink()
    found = verify_folder(folder)
    assert (found.failed, found.countersigned, found.unsigned) == ("abort", (), SITES)
    shown = CliRunner().invoke(app, ["verify", str(folder)]).stdout
    assert "intact" not in shown and "cut back" in shown
    with pytest.raises(EvidenceError):
        verify_folder(folder, true[-1]["hash"])
