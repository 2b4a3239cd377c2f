"""Frames and envelopes: altered, forged, replayed and misdirected ones are rejected."""

import dataclasses
import hashlib
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.protocols.parties import Parties

from secagg.core import canonical_encoding
from secagg.core.frames import (
    FRAME_VERSION,
    MAX_ROUND,
    Header,
    is_whole,
    open_frame,
    peek_header,
    read_frame,
    seal_frame,
    verify_header,
    write_frame,
)
from secagg.errors import PeerError

P = Parties()
ALICE, ROSTER, SESSION = P.keys["alice"], P.roster, P.session
BODY = {"x": 1, "list": [b"bytes", None]}


def frame(**changed: Any) -> bytes:
    """A good frame from alice to the coordinator, with some arguments changed."""
    given_ = {"identity": ALICE, "session": SESSION, "round_": 3, "phase": "share",
              "recipient": "coordinator", "body": BODY, "note": {"min_sites": 2}}  # fmt: skip
    return write_frame(**(given_ | changed))


def read(data: bytes, recipient: str = "coordinator", session: bytes = SESSION) -> Any:
    return read_frame(data, ROSTER, recipient, session)


def resigned(parts: list[Any], identity: Any = ALICE, content: bytes | None = None) -> bytes:
    """A frame with these header fields and a valid signature."""
    header = canonical_encoding.dumps(parts)
    return canonical_encoding.dumps(
        [header, identity.sign(header), content or canonical_encoding.dumps(BODY)]
    )


def header_parts(**changed: Any) -> list[Any]:
    fields = {"version": FRAME_VERSION, "session": SESSION, "round": 3, "phase": "share",
              "sender": "alice", "recipient": "coordinator", "note": {},
              "digest": hashlib.sha256(canonical_encoding.dumps(BODY)).digest()}  # fmt: skip
    return list((fields | changed).values())


def test_a_valid_frame_is_read() -> None:
    got = read(frame())
    assert got.body == BODY
    header = got.header
    assert (header.sender, header.recipient, header.round, header.phase) == (
        "alice", "coordinator", 3, "share",
    )  # fmt: skip
    assert header.note == {"min_sites": 2}
    assert verify_header(*got.proof, ROSTER, SESSION) == header
    assert peek_header(frame()) == (3, "share")
    assert read(resigned(header_parts())).body == BODY  # so each case below has one cause


INVALID_HEADERS: list[dict[str, Any]] = [
    {"sender": "bob"}, {"sender": "eve"}, {"version": 2}, {"version": 0}, {"version": True},
    {"version": np.zeros(3)}, {"phase": b"share"}, {"note": []}, {"digest": ""},
    *({"round": number} for number in (-1, MAX_ROUND + 1, 2**64, 10**5000, True, False, None)),
]  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        frame(session=bytes(16)),
        frame(recipient="bob"),
        *(resigned(header_parts(**changed)) for changed in INVALID_HEADERS),
        resigned(header_parts(), P.keys["bob"]),
        resigned(header_parts(), content=canonical_encoding.dumps({"x": 2})),
        resigned(header_parts()[:-1]),
        resigned([*header_parts(), None]),
        resigned(
            header_parts(digest=hashlib.sha256(canonical_encoding.dumps([1])).digest()),
            content=canonical_encoding.dumps([1]),
        ),
        *(
            canonical_encoding.dumps(value)
            for value in ([], {}, [b""] * 3, [b""] * 4, [b"", b"", "text"])
        ),
        b"",
    ],
)
def test_invalid_frames_are_rejected(data: bytes) -> None:
    with pytest.raises(PeerError):
        read(data)


@pytest.mark.parametrize("other", ["alice", "bob", "holder", "", "coordinator "])
def test_only_the_recipient_reads_an_envelope(other: str) -> None:
    with pytest.raises(PeerError):
        read(frame(), recipient=other)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 8 * len(frame()) - 1))
def test_every_flipped_bit_is_rejected(position: int) -> None:
    data = bytearray(frame())
    data[position // 8] ^= 1 << position % 8
    with pytest.raises(PeerError):
        read(bytes(data))


def test_headers_survive_a_round_trip() -> None:
    header = Header(SESSION, MAX_ROUND, "p", "alice", "bob", {"n": [1, None]}, bytes(32))
    assert Header.from_bytes(header.to_bytes()) == header
    others = {"session": b"x", "round": 1, "phase": "x", "sender": "x", "recipient": "x",
              "note": {}, "body_digest": b"x"}  # fmt: skip
    assert set(others) == {f.name for f in dataclasses.fields(Header)}
    for name, other in others.items():
        assert dataclasses.replace(header, **{name: other}).to_bytes() != header.to_bytes(), name


@given(st.one_of(st.integers(), st.integers(-4, 4).map(lambda n: MAX_ROUND + n), st.booleans()))
@example("1")
@example(1.0)
@example(None)
def test_a_round_is_an_integer_within_its_bounds(number: object) -> None:
    data = canonical_encoding.dumps(header_parts(round=number))
    if type(number) is int and 0 <= number <= MAX_ROUND:
        assert Header.from_bytes(data).round == number
        assert is_whole(number, MAX_ROUND)
    else:
        with pytest.raises(PeerError):
            Header.from_bytes(data)
        assert not is_whole(number, MAX_ROUND)


# --- envelopes -----------------------------------------------------------------------------------


def envelope(**changed: Any) -> bytes:
    given_ = {"identity": ALICE, "roster": ROSTER, "session": SESSION, "round_": 3,
              "phase": "share", "recipient": "holder", "body": BODY}  # fmt: skip
    return seal_frame(**(given_ | changed))


def opened(data: bytes, **changed: Any) -> dict[str, Any]:
    given_ = {"identity": P.keys["holder"], "roster": ROSTER, "session": SESSION, "round_": 3,
              "phase": "share", "sender": "alice", "envelope": data}  # fmt: skip
    return open_frame(**(given_ | changed))


def test_a_valid_envelope_is_opened() -> None:
    data = envelope()
    assert opened(data) == BODY
    assert b"bytes" not in data and b"alice" not in data


@pytest.mark.parametrize(
    "moved",
    [{"round_": 4}, {"phase": "hold"}, {"sender": "bob"}, {"session": bytes(16)},
     {"identity": P.keys["bob"]}, {"identity": P.keys["coordinator"]}],
)  # fmt: skip
def test_an_envelope_moved_to_another_place_does_not_open(moved: dict[str, Any]) -> None:
    """The coordinator relays an envelope to another round, phase, party or session."""
    with pytest.raises(PeerError):
        opened(envelope(), **moved)


def repacked(context: tuple[Any, ...], **inner: Any) -> bytes:
    """Seal a frame under the context of another one: what a rostered cheat can do."""
    session, round_, phase, sender, recipient = context
    content = write_frame(
        **({"identity": ALICE, "session": SESSION, "round_": 3, "phase": "share",
            "recipient": "holder", "body": BODY} | inner)
    )  # fmt: skip
    aad = canonical_encoding.dumps(["secagg envelope 1", session, round_, phase, sender, recipient])
    return ROSTER.seal(recipient, content, aad)


HERE = (SESSION, 3, "share", "alice", "holder")


@pytest.mark.parametrize(
    "inner",
    [{"identity": P.keys["bob"]}, {"round_": 2}, {"phase": "hold"}, {"recipient": "coordinator"},
     {"session": bytes(16)}],
)  # fmt: skip
def test_a_sealed_frame_must_match_its_envelope(inner: dict[str, Any]) -> None:
    assert opened(repacked(HERE)) == BODY
    with pytest.raises(PeerError):
        opened(repacked(HERE, **inner))


def test_sealing_needs_a_signature() -> None:
    """Anyone can seal to a public key; what is inside must be signed by the named sender."""
    aad = canonical_encoding.dumps(["secagg envelope 1", *HERE])
    header = canonical_encoding.dumps(header_parts(recipient="holder"))
    unsigned = canonical_encoding.dumps([header, bytes(64), canonical_encoding.dumps(BODY)])
    with pytest.raises(PeerError):
        opened(ROSTER.seal("holder", unsigned, aad))


def test_writing_a_large_body_copies_it_once_and_reading_never() -> None:
    """Peak memory of writing a frame is the frame; of reading it, nothing of note."""
    values = np.zeros((1 << 20, 1), dtype=np.uint32)
    slack = 200_000  # bytes of Python objects
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        data = frame(body={"values": values})
        assert tracemalloc.get_traced_memory()[1] - before < values.nbytes + slack
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        peek_header(data)
        got = read(data)
        assert tracemalloc.get_traced_memory()[1] - before < slack
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(got.body["values"], values)


@pytest.mark.parametrize("bits", [72, 16_610])
def test_long_integers_are_typed_errors_except_in_phases_about_keys(bits: int) -> None:
    """A number of 16610 bits cannot even be printed, so no error text may contain it."""
    parties = Parties()
    frame = write_frame(
        parties.keys["coordinator"], parties.session, 0, "deal", "alice", {"n": 1 << bits}
    )
    known = (parties.roster, "alice", parties.session)
    with pytest.raises(PeerError):
        read_frame(frame, *known)
    assert read_frame(frame, *known, key_phases=("deal",)).body == {"n": 1 << bits}
    with pytest.raises(PeerError):
        read_frame(frame, *known, key_phases=("share",))


@pytest.mark.parametrize("bits", [33, 70, 16_610])
def test_round_numbers_beyond_the_largest_are_typed_errors(bits: int) -> None:
    parties = Parties()
    frame = write_frame(
        parties.keys["coordinator"], parties.session, 1 << bits, "share", "alice", {}
    )
    for read in (peek_header, lambda f: read_frame(f, parties.roster, "alice", parties.session)):
        with pytest.raises(PeerError):
            read(frame)
