"""A run folder that is not what was written: each change is found, and the file or line named."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.jobs import SITES, small_job, tables
from support.parties import Parties

from secagg.audits.run_integrity import verify_folder
from secagg.core import encoding
from secagg.core.frames import write_frame
from secagg.core.hash_chain_log import GENESIS_HASH, canonical_json, entry_hash
from secagg.errors import EvidenceError, PeerError, UsageError
from secagg.runs.run import run
from secagg.runs.run_files import facts_digest, file_digest, release_counts, write_json
from secagg.runtime.attestations import check_consent, digest_request
from secagg.runtime.rounds import COHORT

RESULT, REPORT = -3, -2
"""The lines of these events in the log of an uninterrupted run."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "folder"
    rules = {"min_sites": 2, "min_records": 2}  # fewer than all three: so the cohort could change
    run(small_job(protocol={"name": "additive"}, release=rules), tables(), out=folder)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_bytes().splitlines()]


def facts(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run.json").read_text(encoding="utf-8")))


def save_facts(folder: Path, value: Any) -> None:
    write_json(folder / "run.json", value)


def rewrite(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Forge a whole new chain, and the head in run.json: what the folder's owner can always do."""
    head = chain(entries)
    (folder / "log.jsonl").write_bytes(b"".join(canonical_json(entry) + b"\n" for entry in entries))
    save_facts(folder, facts(folder) | {"log": {"lines": len(entries), "head": head}})


def chain(entries: list[dict[str, Any]]) -> str:
    """Bind each entry to those before it; return the head."""
    head = GENESIS_HASH
    for i, entry in enumerate(entries):
        entry |= {"seq": i, "prev": head}
        entry["hash"] = head = entry_hash(entry)
    return head


def bad(folder: Path, head: str | None = None) -> EvidenceError:
    with pytest.raises(EvidenceError) as caught:
        verify_folder(folder, head)
    assert caught.value.exit_code == 6 and "\n" not in caught.value.line()
    return caught.value


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
    assert (found.evidence, found.countersigned, found.unsigned) == (2, SITES, ())
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


# --- a forged chain: signatures still hold the sites' part ----------------------------------------


def forge(folder: Path, change: Callable[[dict[str, Any]], None], line: int = 3) -> EvidenceError:
    """Change one entry and forge the chain after it, so that only its own content can be wrong."""
    entries = log(folder)
    change(entries[line])
    if line >= 0:
        agree(folder, entries)
    rewrite(folder, entries)
    return bad(folder)


def agree(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Forge run.json, and its digest in the log, so that it says what the entries say."""
    chain(entries)
    told = facts(folder)
    for key, value in entries[0].items():
        if key in told:
            told[key] = {**told[key], **value} if key in ("method", "protocol") else value
    told["release_counts"] = release_counts([e for e in entries if e["event"] == "release"])
    next(e for e in entries if e["event"] == "result")["facts"] = facts_digest(told)
    save_facts(folder, told)


def swap_claims(entry: dict[str, Any]) -> None:
    claims = entry["claims"]
    claims["north"], claims["south"] = claims["south"], claims["north"]


def without(entry: dict[str, Any], *sites: str) -> None:
    """Take sites out of a release, without a trace in it."""
    for site in sites:
        entry["contributors"].remove(site)
        del entry["claims"][site], entry["thresholds"][site]


RELEASES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "claims of each other": swap_claims,
    "a claim gone": lambda e: e["claims"].pop("north"),
    "a claim of another form": lambda e: e["claims"].update(north="00"),
    "a claim that is not hex": lambda e: e["claims"]["north"].__setitem__(0, "zz"),
    "a signature changed": lambda e: e["claims"]["north"].__setitem__(1, "00" * 64),
    "another round": lambda e: e.update(round=1),
    "a site that never was": lambda e: e["contributors"].append("east"),
    "the coordinator": lambda e: e["contributors"].append("coordinator"),
    "a site fewer, its claim left": lambda e: e["contributors"].pop(),
    "fewer sites than asked for": lambda e: without(e, "north", "west"),
    "another stage": lambda e: e.update(stage="moments"),
    "no stage": lambda e: e.pop("stage"),
    "another threshold": lambda e: e["thresholds"].update(north=1),
    "a threshold gone": lambda e: e["thresholds"].pop("north"),
    "no thresholds": lambda e: e.pop("thresholds"),
    "one site fewer than in the others": lambda e: without(e, "west"),
    "no site": lambda e: e.update(contributors=[]),
    "a site twice": lambda e: e.update(contributors=["north", "south", "south"]),
    "no list of sites": lambda e: e.update(contributors=3),
    "no claims": lambda e: e.pop("claims"),
    "claims in a list": lambda e: e.update(claims=[]),
}


@pytest.mark.parametrize("what", RELEASES)
def test_a_forged_release_is_detected(folder: Path, what: str) -> None:
    error = forge(folder, RELEASES[what])
    assert error.where == "log.jsonl line 4"
    check = {
        "fewer sites than asked for": "fewer sites",
        "one site fewer than in the others": "other sites",
        **dict.fromkeys(["another threshold", "a threshold gone", "no thresholds"], "thresholds"),
    }
    assert check.get(what, "signature") in error.what


CONSENT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "claims of each other": swap_claims,
    "a claim gone": lambda e: e["claims"].pop("north"),
    "a claim of another form": lambda e: e["claims"].update(north="00"),
    "a signature changed": lambda e: e["claims"]["north"].__setitem__(1, "00" * 64),
    "a site that never was": lambda e: e["claims"].update(east=e["claims"]["north"]),
    "no claims": lambda e: e.pop("claims"),
    "claims in a list": lambda e: e.update(claims=[]),
}


@pytest.mark.parametrize("what", CONSENT)
def test_forged_consent_is_detected(folder: Path, what: str) -> None:
    assert forge(folder, CONSENT[what], line=1).where == "log.jsonl line 2"


def test_consent_with_another_signature_or_after_the_sum_is_detected(folder: Path) -> None:
    """A signature under something else, or consent after the fact."""
    entries = log(folder)
    other = copy.deepcopy(entries[3]["claims"])
    assert forge(folder, lambda e: e.update(claims=other), line=1).where == "log.jsonl line 2"
    late = [entries[0], *entries[2:4], entries[1], *entries[4:]]
    agree(folder, late)
    rewrite(folder, late)
    assert bad(folder).where == "log.jsonl line 4"


def test_consent_with_one_changed_fact_is_detected() -> None:
    """Each signature is genuine, and by that site; one fact in it is not that of its consent."""
    parties, sites = Parties(), ["alice", "bob"]
    note = {"asked": digest_request(COHORT, sites, None, {})}
    later = {"asked": digest_request("moments", sites, 90, {})}

    def check(
        round_: int = 0, phase: str = "consent", note: dict[str, Any] = note, by: str = "alice"
    ) -> None:
        frame = write_frame(
            parties.keys[by], parties.session, round_, phase, "coordinator", {}, note
        )
        header, signature, _ = encoding.loads(frame)
        check_consent("alice", [header, signature], sites, parties.roster, parties.session)

    check()
    others: list[dict[str, Any]] = [
        {"round_": 1},
        {"phase": "share"},
        {"by": "bob"},
        {"note": {}},
        {"note": later},
        {"note": {"asked": digest_request(COHORT, [*sites, "eve"], None, {})}},
        {"note": {**note, "min_sites": 2}},
    ]
    for other in others:
        with pytest.raises(PeerError):
            check(**other)


AGREED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "job": lambda e: e["job"].update(title="Another study"),
    "rules": lambda e: e["job"]["release"].update(min_sites=9),
    "method": lambda e: e["method"]["settings"].update(fraction_bits=1),
    "protocol": lambda e: e["protocol"].update(name="plain"),
    "bounds": lambda e: e["plan"][1]["fields"][0].update(bound=1e9),
    "version": lambda e: e.update(secagg="9.9"),
    "nonce": lambda e: e.update(nonce="00" * 16),
    "keys": lambda e: e["roster"][0].update(seal_key="00" * 32),
    "session": lambda e: e.update(session="00" * 16),
}


@pytest.mark.parametrize("what", AGREED)
def test_signatures_of_another_session_are_detected(folder: Path, what: str) -> None:
    """All agrees but the session's name, which the sites' genuine signatures cover."""
    assert forge(folder, AGREED[what], line=0).where == "log.jsonl line 1"


@pytest.mark.parametrize("key", ["method", "protocol", "release_counts", "nonce", "cohort"])
def test_a_run_json_that_contradicts_the_log_is_detected(folder: Path, key: str) -> None:
    """Its digest is in the log; what it says is compared all the same."""
    told, entries = facts(folder), log(folder)
    if key in ("method", "protocol"):
        told[key]["settings"]["more"] = 1
    elif key == "release_counts":
        told[key]["moments"] += 1
    else:
        told[key] = told[key][:1]
    entries[RESULT]["facts"] = facts_digest(told)
    save_facts(folder, told)
    rewrite(folder, entries)
    assert bad(folder).where == ("log.jsonl line 4" if key == "cohort" else "run.json")


@pytest.mark.parametrize(
    ("line", "key"),
    [(0, "roster"), (0, "session"), (0, "plan"), (RESULT, "event"), (RESULT, "files"),
     (RESULT, "facts"), (REPORT, "event"), (REPORT, "files"), (-1, "event"), (-1, "head"),
     (-1, "claims"), (-1, "requests"), (-1, "result"), (3, "sum"), (5, "sum")],
)  # fmt: skip
@pytest.mark.parametrize("value", [None, 3, "x", [], {}])
def test_malformed_log_entries_are_detected(folder: Path, line: int, key: str, value: Any) -> None:
    """Without agreeing on the rest: the events at the end are of one form only."""
    entries = log(folder)
    entries[line][key] = value
    rewrite(folder, entries)
    bad(folder)
    if line in (0, 3, 5):
        agree(folder, entries)
        rewrite(folder, entries)
        bad(folder)
