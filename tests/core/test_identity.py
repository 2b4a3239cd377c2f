"""Keys, signatures, sealing, and the roster that pins them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.protocols.parties import Parties

from secagg.core.identity import (
    SMALL_HEADER,
    Identity,
    PublicIdentity,
    Role,
    Roster,
    _verify_cached,
)
from secagg.core.randomness import replayable_random, system_random
from secagg.errors import PeerError

P = Parties()
ALICE, BOB, ROSTER = P.keys["alice"], P.keys["bob"], P.roster
FEW = settings(max_examples=60, deadline=None)


def test_a_signature_verifies_for_its_signer_and_message_only() -> None:
    signature = ALICE.sign(b"m")
    assert len(signature) == 64
    ROSTER.verify("alice", b"m", signature)
    others = [("bob", b"m"), ("alice", b"n"), ("alice", b""), ("alice", b"m\0"), ("eve", b"m")]
    for sender, message in others:
        with pytest.raises(PeerError) as caught:
            ROSTER.verify(sender, message, signature)
        assert caught.value.where == ("roster" if sender == "eve" else sender)


@FEW
@given(st.binary(max_size=130) | st.integers(0, 511))
def test_forged_signatures(forged: bytes | int) -> None:
    """Any other bytes, of any length, and each single bit flipped."""
    signature = ALICE.sign(b"m")
    if isinstance(forged, int):
        at, bit = divmod(forged, 8)
        forged = signature[:at] + bytes([signature[at] ^ (1 << bit)]) + signature[at + 1 :]
    with pytest.raises(PeerError):
        ROSTER.verify("alice", b"m", forged)


def test_only_the_exact_bytes_of_a_valid_signature_are_remembered() -> None:
    """After a valid signature was verified, and after an invalid one was refused."""
    message, signature = b"remembered", ALICE.sign(b"remembered")
    for _ in range(2):
        with pytest.raises(PeerError):
            ROSTER.verify("alice", message, signature[:-1] + bytes([signature[-1] ^ 1]))
        with pytest.raises(PeerError):
            ROSTER.verify("alice", message + b"!", signature)
        with pytest.raises(PeerError):
            ROSTER.verify("bob", message, signature)
        ROSTER.verify("alice", message, signature)


def test_a_large_header_is_verified_but_not_remembered() -> None:
    """Otherwise another party could fill the memory."""
    before = _verify_cached.cache_info().misses
    for size in (SMALL_HEADER, SMALL_HEADER + 1):
        ROSTER.verify("alice", bytes(size), ALICE.sign(bytes(size)))
        with pytest.raises(PeerError):
            ROSTER.verify("alice", bytes(size), ALICE.sign(b""))
    assert _verify_cached.cache_info().misses == before + 2  # those of the smaller header


def test_signatures_are_bound_to_frames() -> None:
    """The bare message was not signed: bytes signed for another purpose do not pass."""
    raw = ALICE._signer.sign(b"m")
    with pytest.raises(PeerError):
        ROSTER.verify("alice", b"m", raw)


def test_an_envelope_opens_for_its_recipient_and_context_only() -> None:
    envelope = ROSTER.seal("bob", b"secret", b"context")
    assert b"secret" not in envelope
    assert BOB.open(envelope, b"context") == b"secret"
    for keys, context in ((ALICE, b"context"), (BOB, b"contexu"), (BOB, b"")):
        with pytest.raises(PeerError):
            keys.open(envelope, context)


def test_sealing_is_randomised() -> None:
    assert ROSTER.seal("bob", b"secret", b"") != ROSTER.seal("bob", b"secret", b"")


@FEW
@given(st.data())
def test_envelopes_with_other_bytes_do_not_open(data: st.DataObject) -> None:
    """Arbitrary, cut, lengthened and flipped envelopes, and keys of low order: `PeerError`."""
    envelope = ROSTER.seal("bob", b"secret", b"context")
    at = data.draw(st.integers(0, len(envelope) - 1))
    low_order = st.sampled_from([bytes(32), b"\x01" + bytes(31), b"\xff" * 32])
    changed = data.draw(
        st.binary(max_size=100)
        | st.just(envelope[:at])
        | st.just(envelope + b"\0")
        | st.integers(0, 7).map(
            lambda bit: envelope[:at] + bytes([envelope[at] ^ (1 << bit)]) + envelope[at + 1 :]
        )
        | low_order.map(lambda key: key + envelope[32:])
    )
    with pytest.raises(PeerError):
        BOB.open(changed, b"context")


def test_keys_come_from_the_random_argument() -> None:
    def make(seed: int) -> PublicIdentity:
        return Identity.generate("x", Role.SITE, replayable_random(seed)).public

    assert make(1) == make(1)
    assert make(1) != make(2)
    drawn = [Identity.generate("x", Role.SITE, system_random) for _ in range(2)]
    keys = {k for identity in drawn for k in (identity.signing_key, identity.opening_key)}
    assert len(keys) == 4


def test_private_keys_do_not_print() -> None:
    for text in (repr(ALICE), str(ALICE), f"{ALICE}"):
        assert ALICE.signing_key.hex() not in text
        assert repr(ALICE.signing_key)[2:-1] not in text


def test_a_roster_lists_its_parties_by_role_in_any_order() -> None:
    assert ROSTER.coordinator == "coordinator"
    assert ROSTER.with_role(Role.SITE) == ("alice", "bob")
    shuffled = Roster(dict(reversed(ROSTER.parties.items())))
    assert shuffled.to_plain() == ROSTER.to_plain()


def test_the_session_binds_roster_job_and_nonce() -> None:
    name = ROSTER.session(bytes(16), b"job")
    assert len(name) == 16
    assert name == ROSTER.session(bytes(16), b"job")
    swapped = dict(ROSTER.parties)
    bob = swapped["bob"]
    others = [
        ROSTER.session(b"\x01" + bytes(15), b"job"),
        ROSTER.session(bytes(16), b"jpb"),
        Roster({n: p for n, p in swapped.items() if n != "bob"}).session(bytes(16), b"job"),
    ]
    impostors = (
        PublicIdentity("bob", Role.AGGREGATOR, bob.verify_key, bob.seal_key),
        PublicIdentity("bob", Role.SITE, bob.seal_key, bob.seal_key),
        PublicIdentity("bob", Role.SITE, bob.verify_key, bob.verify_key),
    )
    others += [Roster({**swapped, "bob": p}).session(bytes(16), b"job") for p in impostors]
    assert len({name, *others}) == 7
