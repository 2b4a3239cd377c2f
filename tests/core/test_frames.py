"""Frames and envelopes: nothing that was altered, forged, replayed or misdirected is accepted."""

from __future__ import annotations

import dataclasses
import hashlib
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.parties import Parties

from secagg.core import encoding
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


NO_ROUNDS = (-1, MAX_ROUND + 1, 2**63 - 1, 2**63, 2**64, 2**70, -(2**63), 10**5000, True, False)


def frame(**changed: Any) -> bytes:
    """A good frame from alice to the coordinator, with some arguments changed."""
    given_ = {"identity": ALICE, "session": SESSION, "round_": 3, "phase": "share",
              "recipient": "coordinator", "body": BODY, "note": {"min_sites": 2}}  # fmt: skip
    return write_frame(**(given_ | changed))


def read(data: bytes, recipient: str = "coordinator", session: bytes = SESSION) -> Any:
    return read_frame(data, ROSTER, recipient, session)


def resigned(parts: list[Any], identity: Any = ALICE, content: bytes | None = None) -> bytes:
    """A frame with these header fields, properly signed."""
    header = encoding.dumps(parts)
    return encoding.dumps([header, identity.sign(header), content or encoding.dumps(BODY)])


def header_parts(**changed: Any) -> list[Any]:
    fields = {"version": FRAME_VERSION, "session": SESSION, "round": 3, "phase": "share",
              "sender": "alice", "recipient": "coordinator", "note": {},
              "digest": hashlib.sha256(encoding.dumps(BODY)).digest()}  # fmt: skip
    return list((fields | changed).values())


def test_a_good_frame() -> None:
    got = read(frame())
    assert got.body == BODY
    header = got.header
    assert (header.sender, header.recipient, header.round, header.phase) == (
        "alice", "coordinator", 3, "share",
    )  # fmt: skip
    assert header.note == {"min_sites": 2}
    assert verify_header(*got.proof, ROSTER, SESSION) == header
    assert peek_header(frame()) == (3, "share")
    assert read(resigned(header_parts())).body == BODY  # so the refusals below have one cause each


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (frame(session=bytes(16)), "another session"),
        (frame(recipient="bob"), "addressed to another party"),
        (resigned(header_parts(sender="bob")), "invalid signature"),
        (resigned(header_parts(sender="eve")), "not in the roster"),
        (resigned(header_parts(), P.keys["bob"]), "invalid signature"),
        (
            resigned(header_parts(), content=encoding.dumps({"x": 2})),
            "does not match its signature",
        ),
        (resigned(header_parts(version=2)), "not a frame header of this version"),
        (resigned(header_parts(version=0)), "not a frame header of this version"),
        (resigned(header_parts(round="3")), "not a frame header"),
        (resigned(header_parts(round=None)), "not a frame header"),
        *((resigned(header_parts(round=n)), "not a frame header") for n in NO_ROUNDS),
        (resigned(header_parts(version=True)), "not a frame header"),
        (resigned(header_parts(version=np.zeros(3))), "not a frame header"),
        (resigned(header_parts(phase=b"share")), "not a frame header"),
        (resigned(header_parts(note=[])), "not a frame header"),
        (resigned(header_parts(digest="")), "not a frame header"),
        (resigned(header_parts()[:-1]), "not a frame header"),
        (resigned([*header_parts(), None]), "not a frame header"),
        (encoding.dumps([]), "not a frame"),
        (encoding.dumps({}), "not a frame"),
        (encoding.dumps([b"", b"", b"", b""]), "not a frame"),
        (encoding.dumps([b"", b"", "text"]), "not a frame"),
        (encoding.dumps([b"", b"", b""]), "malformed"),
        (b"", "malformed"),
    ],
)
def test_what_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(PeerError, match=why) as caught:
        read(data)
    assert caught.value.exit_code == 4


def test_a_body_that_is_not_a_mapping() -> None:
    content = encoding.dumps([1])
    digest = hashlib.sha256(content).digest()
    with pytest.raises(PeerError, match="body is not a mapping"):
        read(resigned(header_parts(digest=digest), content=content))


@pytest.mark.parametrize("other", ["alice", "bob", "holder", "", "coordinator "])
def test_only_the_recipient_reads_it(other: str) -> None:
    with pytest.raises(PeerError, match="another party"):
        read(frame(), recipient=other)


def test_parts_of_two_good_frames_do_not_mix() -> None:
    a, b = encoding.loads(frame()), encoding.loads(frame(round_=4, body={"x": 2}))
    for mixed in ([a[0], b[1], a[2]], [a[0], a[1], b[2]], [b[0], a[1], a[2]], [a[0], b[1], b[2]]):
        with pytest.raises(PeerError):
            read(encoding.dumps(mixed))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 8 * len(frame()) - 1))
def test_every_bit_counts(position: int) -> None:
    data = bytearray(frame())
    data[position // 8] ^= 1 << position % 8
    with pytest.raises(PeerError):
        read(bytes(data))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_arbitrary_bytes(data: bytes) -> None:
    with pytest.raises(PeerError):
        read(data)


def test_header_round_trip() -> None:
    header = Header(SESSION, MAX_ROUND, "p", "alice", "bob", {"n": [1, None]}, bytes(32))
    assert Header.from_bytes(header.to_bytes()) == header
    others = {"session": b"x", "round": 1, "phase": "x", "sender": "x", "recipient": "x",
              "note": {}, "body_digest": b"x"}  # fmt: skip
    assert set(others) == {f.name for f in dataclasses.fields(Header)}
    for name, other in others.items():
        assert dataclasses.replace(header, **{name: other}).to_bytes() != header.to_bytes(), name


@given(st.one_of(st.integers(), st.integers(-4, 4).map(lambda n: MAX_ROUND + n), st.booleans()))
def test_a_round_is_a_whole_number_within_its_bounds(number: int) -> None:
    data = encoding.dumps(header_parts(round=number))
    if type(number) is int and 0 <= number <= MAX_ROUND:
        assert Header.from_bytes(data).round == number
        assert is_whole(number, MAX_ROUND)
    else:
        with pytest.raises(PeerError, match="not a frame header"):
            Header.from_bytes(data)
        assert not is_whole(number, MAX_ROUND)


@pytest.mark.parametrize("other", [None, "1", b"1", 1.0, [1], {}, True])
def test_what_is_no_whole_number(other: object) -> None:
    assert not is_whole(other, 2**70)


# --- envelopes -----------------------------------------------------------------------------------


def envelope(**changed: Any) -> bytes:
    given_ = {"identity": ALICE, "roster": ROSTER, "session": SESSION, "round_": 3,
              "phase": "share", "recipient": "holder", "body": BODY}  # fmt: skip
    return seal_frame(**(given_ | changed))


def opened(data: bytes, **changed: Any) -> dict[str, Any]:
    given_ = {"identity": P.keys["holder"], "roster": ROSTER, "session": SESSION, "round_": 3,
              "phase": "share", "sender": "alice", "envelope": data}  # fmt: skip
    return open_frame(**(given_ | changed))


def test_a_good_envelope() -> None:
    data = envelope()
    assert opened(data) == BODY
    assert b"bytes" not in data and b"alice" not in data


@pytest.mark.parametrize(
    "moved",
    [{"round_": 4}, {"phase": "hold"}, {"sender": "bob"}, {"session": bytes(16)},
     {"identity": P.keys["bob"]}, {"identity": P.keys["coordinator"]}],
)  # fmt: skip
def test_an_envelope_moved_elsewhere_does_not_open(moved: dict[str, Any]) -> None:
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
    aad = encoding.dumps(["secagg envelope 1", session, round_, phase, sender, recipient])
    return ROSTER.seal(recipient, content, aad)


HERE = (SESSION, 3, "share", "alice", "holder")


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        ({"identity": P.keys["bob"]}, "another sender, round or phase"),
        ({"round_": 2}, "another sender, round or phase"),
        ({"phase": "hold"}, "another sender, round or phase"),
        ({"recipient": "coordinator"}, "addressed to another party"),
        ({"session": bytes(16)}, "another session"),
    ],
)
def test_the_frame_inside_must_agree_with_the_seal(inner: dict[str, Any], why: str) -> None:
    assert opened(repacked(HERE)) == BODY
    with pytest.raises(PeerError, match=why):
        opened(repacked(HERE, **inner))


def test_sealing_needs_a_signature() -> None:
    """Anyone can seal to a public key; what is inside must be signed by the named sender."""
    aad = encoding.dumps(["secagg envelope 1", *HERE])
    header = encoding.dumps(header_parts(recipient="holder"))
    unsigned = encoding.dumps([header, bytes(64), encoding.dumps(BODY)])
    with pytest.raises(PeerError, match="invalid signature"):
        opened(ROSTER.seal("holder", unsigned, aad))


def test_a_large_body_is_copied_once_and_not_at_all() -> None:
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
