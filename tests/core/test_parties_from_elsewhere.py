"""Each reader of parties refuses the same ones: the rows of the table of `secagg.core.identity`.

The readers are those of cards, rosters, messages, policies, run folders and reports' signatures.
"""

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.protocols.small_order import bad_seal_keys, bad_verify_keys, encode, small_order
from support.runs.jobs import raw_job

import secagg
from secagg.core.identity import (
    COORDINATOR,
    Identity,
    PublicIdentity,
    Role,
    Roster,
    alike,
    is_report_signature,
)
from secagg.core.randomness import replayable_random
from secagg.core.roster_file import card_of, read_card, read_roster
from secagg.errors import EvidenceError, JobError, PeerError, SecaggError, UsageError
from secagg.evidence.run_folder import roster_of
from secagg.jobs.job import parse_job
from secagg.privacy.policy.site_policy import parse_policy

RANDOM = replayable_random(5)
HONEST = [
    Identity.generate(COORDINATOR, Role.COORDINATOR, RANDOM).public,
    *(Identity.generate(name, Role.SITE, RANDOM).public for name in ("north", "south", "west")),
]
NORTH = HONEST[1]
BAD = {f"signing key, {name}": replace(NORTH, verify_key=key)
       for name, key in bad_verify_keys(NORTH.verify_key).items()}  # fmt: skip
BAD |= {f"opening key, {name}": replace(NORTH, seal_key=key)
        for name, key in bad_seal_keys(NORTH.seal_key).items()}  # fmt: skip
BAD["one key for two purposes"] = replace(NORTH, verify_key=NORTH.seal_key)
BAD["another's signing key"] = replace(NORTH, verify_key=HONEST[2].verify_key)
BAD["another's opening key"] = replace(NORTH, seal_key=HONEST[3].seal_key)
BAD["another's keys, exchanged"] = replace(NORTH, verify_key=HONEST[3].seal_key)
BAD |= {
    f"name {name!a}": replace(NORTH, name=name)
    for name in ("South", "SOUTH", "south", "so uth", " south", "south\t", "\uff53outh",
                 "s\u200bouth", "\u017fouth", "Coordinator", "coordinator", "coordi nator",
                 COORDINATOR.upper())
}  # fmt: skip
BAD["a second coordinator"] = replace(NORTH, role=Role.COORDINATOR)
BAD["the coordinator's name in capitals"] = replace(HONEST[0], name="COORDINATOR")


def parties(bad: PublicIdentity) -> list[PublicIdentity]:
    """Return the honest parties, and the bad one in place of north or the coordinator."""
    if bad.name == "COORDINATOR" and bad.role is Role.COORDINATOR:
        return [bad, *HONEST[1:]]
    return [HONEST[0], bad, *HONEST[2:]]


def by_file(folder: Path, found: list[PublicIdentity]) -> Roster:
    content = {"secagg_roster": 1, "parties": [card_of(party) for party in found]}
    (folder / "roster.json").write_text(json.dumps(content))
    return read_roster(folder / "roster.json")


def by_message(_: Path, found: list[PublicIdentity]) -> Roster:
    return Roster.from_plain([[p.name, p.role.value, p.verify_key, p.seal_key] for p in found])


def by_run_folder(_: Path, found: list[PublicIdentity]) -> Roster:
    return roster_of({"roster": [card_of(party) for party in found]})


READERS: dict[str, tuple[Callable[[Path, list[PublicIdentity]], Roster], type[SecaggError]]] = {
    "file": (by_file, UsageError),
    "message": (by_message, PeerError),
    "run folder": (by_run_folder, EvidenceError),
}


@pytest.mark.parametrize("reader", READERS)
def test_honest_parties_are_read(tmp_path: Path, reader: str) -> None:
    assert (
        READERS[reader][0](tmp_path, HONEST).to_plain()
        == Roster({party.name: party for party in HONEST}).to_plain()
    )


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", BAD)
def test_no_reader_takes_a_bad_party(tmp_path: Path, reader: str, what: str) -> None:
    read, error = READERS[reader]
    with pytest.raises(error) as caught:
        read(tmp_path, parties(BAD[what]))
    assert "\n" not in caught.value.line() and caught.value.line().isprintable()


@pytest.mark.parametrize("reader", READERS)
def test_the_coordinator_is_one(tmp_path: Path, reader: str) -> None:
    read, error = READERS[reader]
    with pytest.raises(error):
        read(tmp_path, HONEST[1:])


@pytest.mark.attack
@pytest.mark.parametrize("n", range(8))
def test_anybody_signs_for_a_site_with_a_key_of_small_order(tmp_path: Path, n: int) -> None:
    """A plays S = 0, R = a point of small order: valid if R + hash A = 0, by chance at least 1/8.

    The roster is built without its check, to show what the check is for.
    """
    site = replace(NORTH, verify_key=encode(small_order()[n]))
    unchecked, forged = Roster({"north": site}), 0
    for k in range(40):
        for nonce in small_order():
            try:
                unchecked.verify("north", b"message %d" % k, encode(nonce) + bytes(32))
                forged += 1
            except PeerError:
                pass
    assert forged >= 20
    for read, error in READERS.values():
        with pytest.raises(error):
            read(tmp_path, parties(site))


@pytest.mark.attack
@pytest.mark.parametrize("name", bad_seal_keys(NORTH.seal_key))
def test_no_opening_key_makes_a_sealer_fail_with_another_error(name: str) -> None:
    """In a roster that was not checked; a checked one has no such key."""
    key = bad_seal_keys(NORTH.seal_key)[name]
    unchecked = Roster({"north": replace(NORTH, seal_key=key)})
    try:
        unchecked.seal("north", b"share", b"context")
    except SecaggError as error:
        assert error.where == "north"
    try:
        unchecked.verify("north", b"message", bytes(64))
    except SecaggError as error:
        assert error.where == "north"


@pytest.mark.parametrize("what", [name for name in BAD if "key, " in name])
def test_a_card_alone_is_refused(tmp_path: Path, what: str) -> None:
    (tmp_path / "card.json").write_text(json.dumps({"secagg_card": 1, **card_of(BAD[what])}))
    with pytest.raises(UsageError):
        read_card(tmp_path / "card.json")


@pytest.mark.parametrize("text", [
    '{"secagg_card": 1, "name": "north", "name": "south", CARD}',
    '{"secagg_card": true, "name": "north", CARD}',
    '{"secagg_card": 1.0, "name": "north", CARD}',
    '{"secagg_card": 1, "name": "north", "more": 1, CARD}',
])  # fmt: skip
def test_a_card_that_others_could_read_differently_is_refused(tmp_path: Path, text: str) -> None:
    card = {key: value for key, value in card_of(NORTH).items() if key != "name"}
    rest = json.dumps(card)[1:-1]
    path = tmp_path / "card.json"
    path.write_text(f'{{"secagg_card": 1, "name": "north", {rest}}}')
    assert read_card(path) == NORTH
    path.write_text(text.replace("CARD", rest))
    with pytest.raises(UsageError):
        read_card(path)


def test_a_roster_with_more_in_it_is_refused(tmp_path: Path) -> None:
    content = {"secagg_roster": 1, "parties": [card_of(p) for p in HONEST], "more": []}
    (tmp_path / "roster.json").write_text(json.dumps(content))
    with pytest.raises(UsageError):
        read_roster(tmp_path / "roster.json")


@pytest.mark.parametrize("name", bad_verify_keys(NORTH.verify_key))
def test_a_policy_names_no_degenerate_coordinator(name: str) -> None:
    key = bad_verify_keys(NORTH.verify_key)[name].hex()
    text = 'min_sites = 3\nmin_records = 10\nprotocols = ["any"]\n[keys]\ncoordinators = ["KEY"]'
    parse_policy(tomllib.loads(text.replace("KEY", NORTH.verify_key.hex())), "policy")
    with pytest.raises(JobError):
        parse_policy(tomllib.loads(text.replace("KEY", key)), "policy")


def test_a_report_is_signed_by_no_degenerate_key() -> None:
    for key in bad_verify_keys(NORTH.verify_key).values():
        for nonce in small_order():
            assert not is_report_signature(key, "n", "site", bytes(32), encode(nonce) + bytes(32))


def test_a_job_names_no_two_sites_almost_alike() -> None:
    for names in (["Site", "site"], ["a b", "ab"], ["\uff21", "a"]):
        with pytest.raises(JobError, match="almost"):
            parse_job(raw_job(sites={"max_rows": 100, "names": names}))
    assert alike(["a", "b", "a-b", "a_b"]) is None


def test_parties_from_elsewhere_are_built_where_they_are_checked() -> None:
    """A new reader must call the check, and then be named here."""
    root, found = Path(secagg.__file__).parent, set()
    for path in root.rglob("*.py"):
        if re.search(r"\bPublicIdentity\(|\bRoster\(\{", path.read_text(encoding="utf-8")):
            found.add(str(path.relative_to(root)))
    assert found == {
        "evidence/run_folder.py", "core/identity.py", "core/roster_file.py",
        "sessions/engines/loopback.py", "sessions/session.py", "sessions/stored_session.py",
    }  # fmt: skip
