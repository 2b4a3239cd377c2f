"""The files of a run folder, read, and written anew by the folder's owner."""

import json
from pathlib import Path
from typing import Any

import pytest

from secagg.core.hash_chain_log import GENESIS_HASH, canonical_json, entry_hash
from secagg.errors import EvidenceError
from secagg.evidence.integrity import verify_folder
from secagg.evidence.run_files import facts_digest, file_digest, write_json

RESULT, REPORT = -3, -2
"""The lines of these events in the log of an uninterrupted run."""


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


def log_files(folder: Path, entries: list[dict[str, Any]] | None = None) -> None:
    """Write the digests of the changed files into the log, as the folder's owner can."""
    entries = log(folder) if entries is None else entries
    for entry in entries:
        if "files" in entry:
            entry["files"] = {name: file_digest(folder / name) for name in entry["files"]}
        if entry["event"] == "result":
            entry["facts"] = facts_digest(facts(folder))
    rewrite(folder, entries)


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
