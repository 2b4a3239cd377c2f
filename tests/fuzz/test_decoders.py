"""Every decoder of bytes from another party: for any bytes, it returns a value or a typed error.

In addition, the contract suite sends mutated messages with valid signatures through sessions
(`test_mutated_messages_are_typed_errors`).
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.protocols.mutations import mutated
from support.protocols.vectors import shared_key
from support.protocols.world import SumNumbers, World, run_until

from secagg.contracts import Context, Field, Kind
from secagg.core import canonical_encoding
from secagg.core.frames import Header, open_frame, peek_header, read_frame, seal_frame
from secagg.core.identity import Roster
from secagg.core.randomness import replayable_random
from secagg.core.ring import is_vector
from secagg.errors import SecaggError
from secagg.protocols.masked import masks, shamir
from secagg.protocols.masked.protocol import Masked
from secagg.protocols.paillier import cryptosystem
from secagg.sessions.attestations import read_attestation
from secagg.sessions.fixed_point import decode
from secagg.sessions.sum_plan import plan_sum

fuzzed = settings(deadline=None, suppress_health_check=[*HealthCheck])
PLAN = plan_sum((Field("x", (3,), 10.0, 30, Kind.BOUNDED),), 4, (64,))


@functools.cache
def samples() -> tuple[World, dict[str, bytes]]:
    """Return a session and one valid message of each kind from it."""
    values = {f"site_{i}": np.array([1.0, 2.0, 3.0]) for i in range(4)}
    world, twin = (World(Masked(), values, SumNumbers((3,))) for _ in range(2))  # the same keys
    share = run_until(world, "share")
    frame = share.requests["site_0"]
    identity = world.identities["site_1"]
    sealed = seal_frame(identity, world.roster, world.session, 0, "share", "site_0", {"a": b"b"})
    upload = twin.engine.exchange(run_until(twin, "mask").requests)[1]
    return world, {
        "frame": frame,
        "header": canonical_encoding.loads(frame)[0],
        "envelope": sealed,
        "directory": canonical_encoding.dumps(
            canonical_encoding.loads(canonical_encoding.loads(frame)[2])["directory"]
        ),
        "claim": canonical_encoding.dumps(canonical_encoding.loads(upload)[:2]),
        "roster": canonical_encoding.dumps(world.roster.to_plain()),
        "shares": canonical_encoding.dumps(
            {str(k): v for k, v in shamir.split(bytes(32), 2, [1, 2, 3], world.random).items()}
        ),
        "ciphertexts": cryptosystem.ciphertexts_to_bytes(
            shared_key().public,
            cryptosystem.encrypt(shared_key().public, [1, 2], replayable_random(1)),
        ),
        "total": canonical_encoding.dumps(np.zeros((4, 1), dtype="<u8")),
    }


def context(world: World) -> Context:
    shape = world.plans.of("numbers").shape
    return Context(
        world.session, 0, world.identities["site_0"], world.roster, shape, replayable_random(2)
    )


def _directory(world: World, data: bytes) -> Any:
    statements = canonical_encoding.loads(data)
    return isinstance(statements, dict) and masks.read_directory(statements, context(world))


def _shares(world: World, data: bytes) -> Any:
    shares = canonical_encoding.loads(data)
    if isinstance(shares, dict) and all(k.isdecimal() and k.isascii() for k in shares):
        by_point = {int(k): v for k, v in shares.items() if isinstance(v, bytes)}
        return by_point and shamir.combine(by_point)
    return None


def _ciphertexts(world: World, data: bytes) -> Any:
    public = shared_key().public
    return cryptosystem.multiply(public, [cryptosystem.ciphertexts_from_bytes(public, data, 2)])


def _total(world: World, data: bytes) -> Any:
    vector = canonical_encoding.loads(data)
    return is_vector(vector, PLAN.length, PLAN.ring_bits) and decode(PLAN, vector)


DECODERS: dict[str, tuple[str, Callable[[World, bytes], Any]]] = {
    "wire.loads": ("frame", lambda _, data: canonical_encoding.loads(data)),
    "wire.split": ("frame", lambda _, data: canonical_encoding.split(data, "a frame")),
    "header": ("header", lambda _, data: Header.from_bytes(data)),
    "peek": ("frame", lambda _, data: peek_header(data)),
    "frame": ("frame", lambda w, data: read_frame(data, w.roster, "site_0", w.session)),
    "party": (
        "frame",
        lambda w, data: w.engine.parties["site_0"].handle(data, w.engine.states["site_0"]).error,
    ),
    "envelope": (
        "envelope",
        lambda w, data: open_frame(
            w.identities["site_0"], w.roster, w.session, 0, "share", "site_1", data
        ),
    ),
    "claim": (
        "claim",
        lambda w, data: read_attestation(
            "site_1", canonical_encoding.loads(data), 0, w.roster, w.session
        ),
    ),
    "directory": ("directory", _directory),
    "roster": ("roster", lambda _, data: Roster.from_plain(canonical_encoding.loads(data))),
    "shares": ("shares", _shares),
    "ciphertexts": ("ciphertexts", _ciphertexts),
    "total": ("total", _total),
}


@pytest.mark.parametrize("name", DECODERS)
def test_valid_messages_are_accepted(name: str) -> None:
    world, good = samples()
    kind, decoder = DECODERS[name]
    decoder(world, good[kind])


@pytest.mark.parametrize("name", DECODERS)
@fuzzed
@given(data=st.data())
def test_decoders_raise_only_typed_errors(name: str, data: st.DataObject) -> None:
    world, good = samples()
    kind, decoder = DECODERS[name]
    try:
        decoder(world, altered(data.draw, good[kind]))
    except SecaggError as error:
        assert error.exit_code != 1, error.line()


def altered(draw: Any, good: bytes) -> bytes:
    """Return bytes near a valid message, or a decodable one with other content, or any bytes."""
    match draw(st.sampled_from(["bytes", "content", "any"])):
        case "any":
            return draw(st.binary(max_size=200))
        case "content":
            try:
                return canonical_encoding.dumps(mutated(draw, canonical_encoding.loads(good)))
            except SecaggError:  # not plain data: alter its bytes instead
                pass
    changed = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(changed) - 1)) if changed else 0
        match draw(st.sampled_from(["set", "cut", "insert", "double"])):
            case "set" if changed:
                changed[at] = draw(st.integers(0, 255))
            case "cut":
                del changed[at : at + draw(st.integers(1, 40))]
            case "insert":
                changed[at:at] = draw(st.binary(max_size=20))
            case _:
                changed[at:at] = changed[at : at + 64]
    return bytes(changed)
