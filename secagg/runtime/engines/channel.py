"""The line between the coordinator and one party on the same computer: framing and greeting.

A message is plain data in the encoding of `secagg.core.encoding`, after its length as 4 bytes,
big-endian; at most `LIMIT` bytes, before the greeting at most `GREETING_LIMIT`. A length beyond
that, or bytes that `wire` does not accept, is a `PeerError`.

The greeting is the three-pass mutual authentication of ISO/IEC 9798-4 (mechanism with random
challenges), with HMAC-SHA256 under a token that the coordinator drew for this one start of this one
party and handed to it through a pipe:

    coordinator -> party         challenge R_C
    party       -> coordinator   name, R_P, HMAC(token, "party", R_P, R_C, name)
    coordinator -> party         HMAC(token, "coordinator", R_C, R_P, name)

Threat model: another user of the computer, who may connect to the coordinator's port, or take the
port over when the coordinator has died. Without the token such a stranger is not heard: a party
waits for nobody else, shows nobody else a record, and the coordinator keeps no seat for him. What
is said afterwards is signed, frame by frame (`secagg.core.frames`); the token guards only the line.
Not protected: against the superuser or a process of the same user, who can read tokens and keys
from memory and disk; against many connections that slow the coordinator down.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from secagg.core import encoding
from secagg.core.identity import PublicIdentity
from secagg.core.randomness import RandomBytes
from secagg.errors import CapabilityError, PeerError

HOST: Final = "127.0.0.1"
"""The loopback, and nothing else: this engine is not for use between computers."""
LIMIT: Final = 1 << 30
GREETING_LIMIT: Final = 1 << 12
_PREFIX: Final = 4


def pack(message: Any) -> bytes:
    """Return a message with its length in front. Raises `CapabilityError` when it is too long."""
    body = encoding.dumps(message)
    if len(body) > LIMIT:
        raise CapabilityError(
            "engine", f"a message of {len(body)} bytes is longer than it carries ({LIMIT})"
        )
    return len(body).to_bytes(_PREFIX, "big") + body


def _length(prefix: bytes, limit: int) -> int:
    length = int.from_bytes(prefix, "big")
    if length > limit:
        raise PeerError("channel", f"a message says that it is {length} bytes long")
    return length


def proof(token: bytes, says: str, first: bytes, second: bytes, name: str) -> bytes:
    """Return what only a holder of the token can answer to these two challenges."""
    return hmac.digest(token, encoding.dumps([says, first, second, name]), hashlib.sha256)


async def receive(reader: asyncio.StreamReader, limit: int = LIMIT) -> Any:
    """Return the next message. Raises `PeerError`, `EOFError` or `OSError`."""
    length = _length(await reader.readexactly(_PREFIX), limit)
    return encoding.loads(await reader.readexactly(length))


async def greet_party(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    tokens: dict[str, bytes],
    random: RandomBytes,
) -> str:
    """Return the name of the party that calls; its token is used up. Raises as `receive`."""
    challenge = random(32)
    writer.write(pack(challenge))
    match await receive(reader, GREETING_LIMIT):
        case [str(name), bytes(theirs), bytes(answer)]:
            pass
        case _:
            raise PeerError("channel", "a stranger called")
    token = tokens.get(name, random(32))  # for an unknown name: one that nobody has
    if not hmac.compare_digest(answer, proof(token, "party", theirs, challenge, name)):
        raise PeerError("channel", "a stranger called")
    del tokens[name]
    writer.write(pack(proof(token, "coordinator", challenge, theirs, name)))
    return name


@dataclass
class Caller:
    """The coordinator's end: a party that has been greeted, and what it has said since."""

    public: PublicIdentity
    session: bytes | None
    writer: asyncio.StreamWriter
    said: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    """messages, in order; None when the line is broken"""

    async def send(self, message: list[Any]) -> None:
        """Send one message. Raises `CapabilityError` or `OSError`."""
        self.writer.write(pack(message))
        await self.writer.drain()

    async def hear(self, *begins: Any) -> Any:
        """Return the last item of the next message that begins so. Raises `EOFError`.

        Others are dropped: answers to requests that nobody waits for any more.
        """
        while (message := await self.said.get()) is not None:
            match message:
                case [*begun, item] if begun == list(begins):
                    return item
        raise EOFError


class Line:
    """The party's end: plain blocking calls, since a party does one thing at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # one message, one push

    @classmethod
    @contextmanager
    def calling(cls, port: int, name: str, token: bytes, random: RandomBytes) -> Iterator[Line]:
        """Call the coordinator, greet it, and yield the line.

        Raises `PeerError`, `EOFError` or `OSError` when nobody answers who holds the token.
        """
        with socket.create_connection((HOST, port)) as connected:
            line = cls(connected)
            challenge, own = line.receive(GREETING_LIMIT), random(32)
            if not isinstance(challenge, bytes):
                raise PeerError("channel", "no coordinator answers here")
            line.send([name, own, proof(token, "party", own, challenge, name)])
            answer = line.receive(GREETING_LIMIT)
            expected = proof(token, "coordinator", challenge, own, name)
            if not (isinstance(answer, bytes) and hmac.compare_digest(answer, expected)):
                raise PeerError("channel", "no coordinator answers here")
            yield line

    def send(self, message: Any) -> None:
        """Send one message. Raises `CapabilityError` or `OSError`."""
        self._socket.sendall(pack(message))

    def receive(self, limit: int = LIMIT) -> Any:
        """Return the next message. Raises `PeerError`, `EOFError` or `OSError`."""
        return encoding.loads(self._exactly(_length(self._exactly(_PREFIX), limit)))

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            # No more than a piece at once: a length that lies takes up no memory.
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)
