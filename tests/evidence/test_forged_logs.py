"""A log whose whole chain is forged: the sites' signatures detect what is not theirs."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.protocols.parties import Parties
from support.runs.run_folders import REPORT, RESULT, bad, chain, facts, log, rewrite, save_facts

from secagg.core import canonical_encoding
from secagg.core.frames import write_frame
from secagg.errors import EvidenceError, PeerError
from secagg.evidence.run_files import facts_digest, release_counts
from secagg.sessions.attestations import check_consent, digest_request
from secagg.sessions.rounds import COHORT


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
        header, signature, _ = canonical_encoding.loads(frame)
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
    "keys": lambda e: e["roster"][0].update(seal_key="09" + "00" * 31),
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
