"""No signed message of one protocol, phase, round or session is accepted as another one."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.crashes.consortium import remote_job
from support.protocols.parties import Parties

import secagg
from secagg.core.frames import open_frame, read_frame, seal_frame, verify_header, write_frame
from secagg.core.identity import is_report_signature
from secagg.errors import PeerError
from secagg.jobs.registry import PROTOCOLS, make_protocol
from secagg.runs.remote_run import plan_remote
from secagg.sessions.engines.site_node import OPEN
from secagg.sessions.party import REFUSED
from secagg.sessions.planned_job import session_of
from secagg.sessions.rounds import CONSENT, COUNTERSIGN

SETTINGS: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in PROTOCOLS},
    "two of three": {"name": "threshold_paillier", "threshold": 2},
    "three aggregators": {"name": "additive", "aggregators": 3},
    "colluding": {"name": "masked", "colluding": 0.0},
}
PARTIES = Parties()
NONCE = bytes(16)


def test_the_sessions_own_phases_are_no_protocols() -> None:
    own = {CONSENT.name, COUNTERSIGN.name, REFUSED, OPEN}
    assert len(own) == 4
    for name in PROTOCOLS:
        protocol = make_protocol(remote_job(protocol={"name": name}).protocol)
        assert not own & {phase.name for phase in (*protocol.setup, *protocol.phases)}


def sessions() -> Iterator[tuple[str, bytes]]:
    for name, protocol in SETTINGS.items():
        job = remote_job(protocol=protocol, release={"min_sites": 2, "min_records": 2})
        yield name, session_of(plan_remote(job), PARTIES.roster, NONCE)


def test_each_protocol_and_setting_has_sessions_of_its_own() -> None:
    """With the same parties, keys and nonce: the session's name, which is signed, binds them."""
    names = dict(sessions())
    assert len(set(names.values())) == len(SETTINGS)


@pytest.mark.attack
def test_a_message_of_one_protocol_is_not_accepted_in_another() -> None:
    """Of a phase with the same name: additive and masked share, both Pailliers encrypt."""
    names = dict(sessions())
    alice, roster = PARTIES.keys["alice"], PARTIES.roster
    for phase in ("share", "encrypt", "decrypt", "mask", "open"):
        for ours, session in names.items():
            frame = write_frame(alice, session, 1, phase, "bob", {})
            sealed = seal_frame(alice, roster, session, 1, phase, "bob", {})
            for theirs, other in names.items():
                if ours == theirs:
                    read_frame(frame, roster, "bob", other)
                    continue
                with pytest.raises(PeerError):
                    read_frame(frame, roster, "bob", other)
                with pytest.raises(PeerError):
                    open_frame(PARTIES.keys["bob"], roster, other, 1, phase, "alice", sealed)


@pytest.mark.attack
@pytest.mark.parametrize("changed", ["round", "phase", "sender", "recipient", "session"])
def test_an_envelope_is_for_one_round_phase_sender_and_recipient(changed: str) -> None:
    place: dict[str, Any] = {"round": 1, "phase": "share", "sender": "alice", "recipient": "bob",
                             "session": PARTIES.session}  # fmt: skip
    sealed = seal_frame(PARTIES.keys["alice"], PARTIES.roster, PARTIES.session, 1, "share", "bob",
                        {"seed": bytes(32)})  # fmt: skip

    def opened(at: dict[str, Any]) -> Any:
        return open_frame(PARTIES.keys[at["recipient"]], PARTIES.roster, at["session"],
                          at["round"], at["phase"], at["sender"], sealed)  # fmt: skip

    assert opened(place) == {"seed": bytes(32)}
    other = {"round": 2, "phase": "mask", "sender": "bob", "recipient": "holder",
             "session": bytes(16)}  # fmt: skip
    with pytest.raises(PeerError):
        opened(place | {changed: other[changed]})


def test_a_report_signature_is_no_frame_signature() -> None:
    alice = PARTIES.keys["alice"]
    digest = bytes(range(32))
    signature = alice.sign_report(digest)
    assert is_report_signature(alice.public.verify_key, "alice", "site", digest, signature)
    header = write_frame(alice, PARTIES.session, 1, "share", "bob", {})
    parts = read_frame(header, PARTIES.roster, "bob", PARTIES.session).proof
    assert verify_header(*parts, PARTIES.roster, PARTIES.session)
    with pytest.raises(PeerError):
        verify_header(parts[0], alice.sign_report(parts[0]), PARTIES.roster, PARTIES.session)
    for message in (digest, parts[0]):
        assert not is_report_signature(
            alice.public.verify_key, "alice", "site", message, alice.sign(message)
        )


def test_each_digest_has_a_name_of_its_own() -> None:
    """A name such as "secagg sum 1" begins what is hashed or signed, so it stands in one place."""
    root, places = Path(secagg.__file__).parent, defaultdict(list)
    for path in root.rglob("*.py"):
        for found in re.findall(r'b?"(secagg [a-z ]+ \d)(?:\\x00)?"', path.read_text("utf-8")):
            places[found].append(path.name)
    assert len(places) >= 15
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
