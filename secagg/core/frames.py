"""Frames and envelopes: everything that travels between parties.

A *frame* is signed (Ed25519). Its header names session, round, phase, sender and recipient, carries
a small public note and the SHA-256 of the body; header and signature can be shown to a third party
without the body, as proof that the sender took part in the round. An *envelope* is a whole frame,
sealed (HPKE) to a recipient that the coordinator is not: the coordinator relays it, and can neither
read it, nor alter it, nor move it to another round, phase or party, because the same facts are
bound into the seal and into the signature inside.

Threat model: anyone on the network, and a relaying coordinator that tries to read, alter, forge,
replay or misdirect. Not protected: that a message was sent, when, and how long it is; a message
that is withheld (a party that does not answer has dropped out).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secagg.core import encoding
from secagg.core.identity import Identity, Roster
from secagg.errors import PeerError

FRAME_VERSION = 1


@dataclass(frozen=True)
class Header:
    """What a frame says of itself, under signature. `note` is small, public plain data."""

    session: bytes
    round: int
    phase: str
    sender: str
    recipient: str
    note: Mapping[str, Any]
    body_digest: bytes

    def to_bytes(self) -> bytes:
        """Return the canonical bytes that are signed."""
        fields = (self.session, self.round, self.phase, self.sender, self.recipient)
        return encoding.dumps([FRAME_VERSION, *fields, dict(self.note), self.body_digest])

    @classmethod
    def from_bytes(cls, data: bytes) -> Header:
        """Read a header strictly. Raises `PeerError`."""
        match encoding.loads(data):
            case [
                int(version),
                bytes(session),
                int(round_),
                str(phase),
                str(sender),
                str(recipient),
                dict(note),
                bytes(body_digest),
            ] if version == FRAME_VERSION:
                return cls(session, round_, phase, sender, recipient, note, body_digest)
        raise PeerError("wire", "malformed message: not a frame header of this version")


def write_frame(
    identity: Identity,
    session: bytes,
    round_: int,
    phase: str,
    recipient: str,
    body: Mapping[str, Any],
    note: Mapping[str, Any] | None = None,
) -> bytes:
    """Return a signed frame from `identity` to `recipient`."""
    content = encoding.Pieces(dict(body))
    header = Header(
        session,
        round_,
        phase,
        identity.name,
        recipient,
        note or {},
        content.digest(),
    ).to_bytes()
    return encoding.dumps([header, identity.sign(header), content])


@dataclass(frozen=True)
class Frame:
    """A frame whose signature and body digest have been verified."""

    header: Header
    body: dict[str, Any]
    proof: tuple[bytes, bytes]
    """(header bytes, signature): shows a third party that the sender said this."""


def read_frame(data: bytes, roster: Roster, recipient: str, session: bytes) -> Frame:
    """Return the frame in `data` if it is well-formed, signed, whole and meant for us here.

    Raises `PeerError` for anything else. Round and phase are the caller's to check.
    """
    header_bytes, signature, content = _split(data)
    header = verify_header(header_bytes, signature, roster, session)
    if header.recipient != recipient:
        raise PeerError(header.sender, "a message is meant for another party")
    if not hmac.compare_digest(hashlib.sha256(content).digest(), header.body_digest):
        raise PeerError(header.sender, "a message's body is not the one that was signed")
    body = encoding.loads(content)
    if not isinstance(body, dict):
        raise PeerError(header.sender, "malformed message: the body is not a mapping")
    return Frame(header, body, (header_bytes, signature))


def verify_header(data: bytes, signature: bytes, roster: Roster, session: bytes) -> Header:
    """Return the header in `data` if its sender signed it in this session. Raises `PeerError`."""
    header = Header.from_bytes(data)
    roster.verify(header.sender, data, signature)
    if not hmac.compare_digest(header.session, session):
        raise PeerError(header.sender, "a message belongs to another session")
    return header


def seal_frame(
    identity: Identity,
    roster: Roster,
    session: bytes,
    round_: int,
    phase: str,
    recipient: str,
    body: Mapping[str, Any],
) -> bytes:
    """Return a signed frame inside an envelope that only `recipient` can open."""
    frame = write_frame(identity, session, round_, phase, recipient, body)
    return roster.seal(
        recipient, frame, _seal_context(session, round_, phase, identity.name, recipient)
    )


def open_frame(
    identity: Identity,
    roster: Roster,
    session: bytes,
    round_: int,
    phase: str,
    sender: str,
    envelope: bytes,
) -> dict[str, Any]:
    """Return the body of the frame that `sender` sealed to us for this round and phase.

    Raises `PeerError` for an envelope of another sender, recipient, session, round or phase.
    """
    context = _seal_context(session, round_, phase, sender, identity.name)
    frame = read_frame(identity.open(envelope, context), roster, identity.name, session)
    header = frame.header
    if (header.sender, header.round, header.phase) != (sender, round_, phase):
        raise PeerError(sender, "a sealed message belongs to another sender, round or phase")
    return frame.body


def _seal_context(session: bytes, round_: int, phase: str, sender: str, recipient: str) -> bytes:
    return encoding.dumps(["secagg envelope 1", session, round_, phase, sender, recipient])


def peek_header(data: bytes) -> tuple[int, str]:
    """Return (round, phase) that a frame claims, unverified: for transcripts only."""
    header = Header.from_bytes(_split(data)[0])
    return header.round, header.phase


def _split(data: bytes) -> tuple[bytes, bytes, memoryview]:
    """Return header, signature and body of a frame; the body, which may be large, as a view."""
    match encoding.split(data, "a frame"):
        case [header, signature, content]:
            return bytes(header), bytes(signature), content
    raise PeerError("wire", "malformed message: not a frame")


@dataclass(frozen=True)
class Delivery:
    """One frame that arrived, as the network saw it."""

    round: int
    phase: str
    sender: str
    recipient: str
    size: int
    """bytes"""
