"""Frames and envelopes: the messages between parties.

A *frame* is a message with a signature (Ed25519) of its header. The header names the session,
round, phase, sender and recipient, and contains a small public note and the SHA-256 of the body.
Header and signature alone prove to a third party, without the body, that the sender took part in
the round.

An *envelope* is a frame encrypted (HPKE) for a recipient other than the coordinator. The
coordinator relays the envelope, but can neither read nor alter it. It cannot use the envelope in
another round or phase, or for another party, because these are part of the encryption and of the
signature.

Threat model: an attacker on the network, or a coordinator, that tries to read, alter, forge, replay
or misdirect messages.

Not protected:

* The fact that a message was sent, the time when it was sent, and its length.
* Delivery. A party whose message does not arrive counts as dropped out.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeGuard

from secagg.core import canonical_encoding
from secagg.core.identity import SMALL_HEADER, Identity, Roster
from secagg.errors import PeerError

FRAME_VERSION = 1
MAX_ROUND = 2**32 - 1
"""Largest number of a round, far more than any run needs. Files have room for one round more."""
MAX_COUNT = 2**53
"""The largest count that a party may send. A float holds all whole numbers up to 2**53 exactly."""

MAX_ITEMS = 1 << 16
"""The largest number of items in a body if the caller does not know the plan of the run."""
_HEADER_ITEMS = 64
"""A header has 8 items, and its note at most 4; the rest is room for later versions."""


@dataclass(frozen=True)
class Header:
    """The signed header of a frame. `note` is small, public plain data, and read-only."""

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
        return canonical_encoding.dumps([FRAME_VERSION, *fields, dict(self.note), self.body_digest])

    @classmethod
    def from_bytes(cls, data: bytes) -> Header:
        """Read a header strictly. Raises `PeerError`."""
        return _read_header_cached(data) if len(data) <= SMALL_HEADER else _read_header(data)


def _read_header(data: bytes) -> Header:
    match canonical_encoding.loads(data, _HEADER_ITEMS):
        case [
            version,
            bytes(session),
            round_,
            str(phase),
            str(sender),
            str(recipient),
            dict(note),
            bytes(body_digest),
        ] if _is_this_version(version) and is_whole(round_, MAX_ROUND):
            fixed = MappingProxyType(note)
            return Header(session, round_, phase, sender, recipient, fixed, body_digest)
    raise PeerError("wire", "malformed message: not a frame header of this version")


_read_header_cached = lru_cache(maxsize=1 << 10)(_read_header)
"""For the transcript, for the frame and for each check of a claim, the same header is read."""


def _is_this_version(value: object) -> bool:
    return is_whole(value, FRAME_VERSION) and value == FRAME_VERSION


def is_whole(value: object, largest: int) -> TypeGuard[int]:
    """Return whether `value`, sent by another party, is an integer from 0 to `largest`.

    Larger numbers may not fit into files and arrays. True and False do not count as integers.
    """
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest


def write_frame(
    identity: Identity,
    session: bytes,
    round_: int,
    phase: str,
    recipient: str,
    body: Mapping[str, Any] | canonical_encoding.Pieces,
    note: Mapping[str, Any] | None = None,
) -> bytes:
    """Return a signed frame from `identity` to `recipient`; `body` may already be encoded."""
    content = (
        body
        if isinstance(body, canonical_encoding.Pieces)
        else canonical_encoding.Pieces(dict(body))
    )
    header = Header(
        session,
        round_,
        phase,
        identity.name,
        recipient,
        note or {},
        content.digest(),
    ).to_bytes()
    return canonical_encoding.dumps([header, identity.sign(header), content])


@dataclass(frozen=True)
class Frame:
    """A frame whose signature and body digest have been verified."""

    header: Header
    body: dict[str, Any]
    proof: tuple[bytes, bytes]
    """(header bytes, signature): proves to a third party that the sender signed this header."""


def read_frame(
    data: bytes,
    roster: Roster,
    recipient: str,
    session: bytes,
    items: int = MAX_ITEMS,
    key_phases: Collection[str] = (),
) -> Frame:
    """Return the frame in `data` after checking its form, signature, body, recipient and session.

    items: the largest number of items in the body (`secagg.core.canonical_encoding.loads`)
    key_phases: the phases in which parties send keys, whose integers have more than 64 bits
    Raises `PeerError` if a check fails. The caller must check round and phase.
    """
    header_bytes, signature, content = _split(data)
    header = verify_header(header_bytes, signature, roster, session)
    if header.recipient != recipient:
        raise PeerError(header.sender, "a message is addressed to another party")
    if not hmac.compare_digest(hashlib.sha256(content).digest(), header.body_digest):
        raise PeerError(header.sender, "the body of a message does not match its signature")
    is_key = header.phase in key_phases
    size = canonical_encoding.LONG_INTEGER_BYTES if is_key else canonical_encoding.INTEGER_BYTES
    body = canonical_encoding.loads(content, items, size)
    if not isinstance(body, dict):
        raise PeerError(header.sender, "malformed message: the body is not a mapping")
    return Frame(header, body, (header_bytes, signature))


def verify_header(data: bytes, signature: bytes, roster: Roster, session: bytes) -> Header:
    """Return the header in `data`. Raises `PeerError` if its sender did not sign it for `session`.

    data: the bytes of the header
    """
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
    """Open an envelope and return the body of the frame inside.

    Raises `PeerError` unless `sender` sealed it for this party, session, round and phase.
    """
    context = _seal_context(session, round_, phase, sender, identity.name)
    opened = identity.open(envelope, context)
    frame = read_frame(opened, roster, identity.name, session, key_phases=(phase,))
    header = frame.header
    if (header.sender, header.round, header.phase) != (sender, round_, phase):
        raise PeerError(sender, "a sealed message belongs to another sender, round or phase")
    return frame.body


def _seal_context(session: bytes, round_: int, phase: str, sender: str, recipient: str) -> bytes:
    return canonical_encoding.dumps(
        ["secagg envelope 1", session, round_, phase, sender, recipient]
    )


def peek_header(data: bytes) -> tuple[int, str]:
    """Return (round, phase) of a frame without verifying its signature; for transcripts only."""
    header = Header.from_bytes(_split(data)[0])
    return header.round, header.phase


def _split(data: bytes) -> tuple[bytes, bytes, memoryview]:
    """Return header, signature and body of a frame; the body is a view because it may be large."""
    match canonical_encoding.split(data, "a frame"):
        case [header, signature, content]:
            return bytes(header), bytes(signature), content
    raise PeerError("wire", "malformed message: not a frame")


@dataclass(frozen=True)
class Delivery:
    """Metadata of one delivered frame, as visible on the network."""

    round: int
    phase: str
    sender: str
    recipient: str
    size: int
    """bytes"""


Recorder = Callable[[Delivery, bytes], None]
"""Called with each frame that an engine delivers."""


def record_nothing(delivery: Delivery, frame: bytes) -> None:
    """Record no frame: the default."""
