"""The end of a run's log: the result, the report, and the sites' countersignatures.

After the last release the log has the events `result`, `report` and `countersigned`, in this order
and once each. Between and after them only failures and resumptions are allowed. `countersigned`
names the line whose hash the sites signed; that line is the report or a later one. So the
signatures bind the whole log up to the report, and through the digests in the log all files.

Nobody signs the lines after the signed one. In `countersigned` itself, all values except `time`
follow from what was signed. Other lines can be false: those between the signed line and
`countersigned`, from a run that was interrupted and resumed, and those after `countersigned`.
`unsigned_lines` counts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secagg.errors import EvidenceError, PeerError
from secagg.evidence.run_files import TROUBLE
from secagg.evidence.run_folder import MALFORMED_ERRORS, RunFolder
from secagg.sessions.attestations import read_attestation
from secagg.sessions.countersignatures import Statement, check_countersignature, extend_requests

_ORDER = ("result", "report", "countersigned")
_KEYS = {"event", "round", "head", "result", "requests", "claims", "missing"} | {
    "seq", "time", "prev", "hash",
}  # fmt: skip
"""The keys of the event `countersigned`, and those of every line."""


@dataclass(frozen=True)
class LogEnd:
    """The last events. countersigned is None in a folder of an earlier version of secagg."""

    result: Mapping[str, Any]
    report: Mapping[str, Any]
    countersigned: Mapping[str, Any] | None


def read_end(entries: Sequence[Mapping[str, Any]], countersigned: bool) -> LogEnd:
    """Return the last events of the log. Raises `EvidenceError` if they have another order.

    countersigned: whether the parties agreed on countersignatures
    """
    expected = _ORDER if countersigned else _ORDER[:2]
    kinds = [entry.get("event") for entry in entries]
    if "result" not in kinds or (not countersigned and kinds[-2:] != list(expected)):
        raise EvidenceError("log.jsonl", "the last two lines are not the result and the report")
    tail = entries[kinds.index("result") :]
    named = [entry for entry in tail if entry.get("event") not in TROUBLE]
    if tuple(entry.get("event") for entry in named) != expected:
        what = f"its last events are not {', '.join(expected)}, once each"
        raise EvidenceError("log.jsonl", what)
    return LogEnd(named[0], named[1], named[2] if countersigned else None)


def check_countersignatures(run: RunFolder, end: LogEnd) -> tuple[str, ...]:
    """Return the sites that countersigned this log, result and list of requests.

    run: with valid signatures of its releases. Raises `EvidenceError` for one that is not valid.
    """
    entries, releases = run.events, run.releases
    if end.countersigned is None:
        return ()
    event = end.countersigned
    where = f"log.jsonl line {event['seq'] + 1}"
    signable = [entry["hash"] for entry in entries[end.report["seq"] : event["seq"]]]
    if event["head"] not in signable:
        what = "the sites countersigned another log: the lines before the end were rewritten"
        raise EvidenceError(where, what)
    requests = b""
    for release in releases:
        requests = extend_requests(requests, asked_in(release, run))
    result = bytes.fromhex(end.result["files"]["result.json"])
    statement = Statement(bytes.fromhex(event["head"]), result, requests)
    if {name: digest.hex() for name, digest in statement.note().items()} != {
        name: event[name] for name in statement.note()
    }:
        raise EvidenceError(where, "the sites countersigned another result or other requests")
    try:
        for site, parts in event["claims"].items():
            claim = [bytes.fromhex(part) for part in parts]
            check_countersignature(site, claim, statement, run.roster, run.session_bytes)
    except (PeerError, *MALFORMED_ERRORS):
        raise EvidenceError(where, "a site's countersignature is not valid") from None
    if event["missing"] != sorted(set(run.cohort) - set(event["claims"])):
        raise EvidenceError(where, "it names other sites as missing than those without signature")
    if set(event) != _KEYS or event["round"] != releases[-1]["round"] + 1:
        raise EvidenceError(where, "it was changed: it has other keys, or another round")
    return tuple(sorted(event["claims"]))


def unsigned_lines(entries: Sequence[Mapping[str, Any]], end: LogEnd) -> int:
    """Return how many lines after the signed one are not `countersigned`: anybody can add these.

    Call `check_countersignatures` first. Returns 0 for a folder without countersignatures.
    """
    if end.countersigned is None:
        return 0
    signed = next(entry["seq"] for entry in entries if entry["hash"] == end.countersigned["head"])
    return len(entries) - 1 - int(signed) - 1


def asked_in(release: Mapping[str, Any], run: RunFolder) -> bytes:
    """Return the digest of the request that the contributors to this release signed."""
    site = release["contributors"][0]
    claim = [bytes.fromhex(part) for part in release["claims"][site]]
    return read_attestation(site, claim, release["round"], run.roster, run.session_bytes).asked
