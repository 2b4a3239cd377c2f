"""The connection between the coordinator and one party on the same computer: framing and greeting.

A message is plain data, encoded by `secagg.core.canonical_encoding`, after its length in 4
big-endian bytes. It has at most `LIMIT` bytes, and at most `GREETING_LIMIT` before the greeting is
complete. The coordinator accepts only as many bytes as a message of the run can have by its plan
(`secagg.sessions.rounds.StagePlans`). If a message is longer, has more items, or has bytes that the
encoding does not accept, `PeerError` is raised before the message is read or decoded.

The greeting is the three-pass mutual authentication of ISO/IEC 9798-4 (mechanism with random
challenges), with HMAC-SHA256. The coordinator draws a new token for each start of a party, and
passes it to the process through a pipe:

    coordinator -> party         challenge R_C
    party       -> coordinator   name, R_P, HMAC(token, "party", R_P, R_C, name)
    coordinator -> party         HMAC(token, "coordinator", R_C, R_P, name)

Threat model: another user of the computer, who can connect to the coordinator's port, or listen on
the port after the coordinator has died. Without the token, both sides reject such a user: the
coordinator closes the connection, and a party sends nothing after the greeting. The token protects
the connection only; every frame after the greeting is signed (`secagg.core.frames`).

Not protected:

* Tokens and keys, against the superuser or a process of the same user: both can read memory and
  disk.
* The coordinator's speed, against many connections.
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

from secagg.core import canonical_encoding
from secagg.core.frames import MAX_ITEMS
from secagg.core.identity import PublicIdentity
from secagg.core.randomness import RandomBytes
from secagg.errors import CapabilityError, PeerError

HOST: Final = "127.0.0.1"
"""The loopback address: this engine does not connect different computers."""
LIMIT: Final = 1 << 30
GREETING_LIMIT: Final = 1 << 12
_REPLY_ITEMS: Final = 8
"""Items in a message of a party to the coordinator; the greeting "hello" has 4."""
_PREFIX: Final = 4


def pack(message: Any) -> bytes:
    """Return a message after its length. Raises `CapabilityError` if the message is too long."""
    body = canonical_encoding.dumps(message)
    if len(body) > LIMIT:
        raise CapabilityError(
            "engine", f"a message has {len(body)} bytes, and the limit is {LIMIT}"
        )
    return len(body).to_bytes(_PREFIX, "big") + body


def _length(prefix: bytes, limit: int) -> int:
    length = int.from_bytes(prefix, "big")
    if length > limit:
        raise PeerError("channel", f"a message of {length} bytes is too long")
    return length


def proof(token: bytes, role: str, first: bytes, second: bytes, name: str) -> bytes:
    """Return the answer to these two challenges, which requires the token."""
    return hmac.digest(token, canonical_encoding.dumps([role, first, second, name]), hashlib.sha256)


async def receive(reader: asyncio.StreamReader, limit: int = LIMIT) -> Any:
    """Return the next message of a party. Raises `PeerError`, `EOFError` or `OSError`.

    A frame is one item of such a message and is decoded later, outside the event loop.
    """
    length = _length(await reader.readexactly(_PREFIX), limit)
    return canonical_encoding.loads(await reader.readexactly(length), _REPLY_ITEMS)


async def greet_party(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    tokens: dict[str, bytes],
    random: RandomBytes,
) -> str:
    """Return the name of the calling party; its token becomes invalid. Raises as `receive`."""
    challenge = random(32)
    writer.write(pack(challenge))
    match await receive(reader, GREETING_LIMIT):
        case [str(name), bytes(theirs), bytes(answer)]:
            pass
        case _:
            raise PeerError("channel", "rejected a caller without a valid token")
    token = tokens.get(name, random(32))  # for an unknown name: a token that nobody has
    if not hmac.compare_digest(answer, proof(token, "party", theirs, challenge, name)):
        raise PeerError("channel", "rejected a caller without a valid token")
    del tokens[name]
    writer.write(pack(proof(token, "coordinator", challenge, theirs, name)))
    return name


@dataclass
class Caller:
    """The coordinator's end of a connection to a party, after the greeting."""

    public: PublicIdentity
    session: bytes | None
    writer: asyncio.StreamWriter
    inbox: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    """messages in order; None after the connection has closed"""

    async def send(self, message: list[Any]) -> None:
        """Send one message. Raises `CapabilityError` or `OSError`."""
        self.writer.write(pack(message))
        await self.writer.drain()

    async def receive(self, *prefix: Any) -> Any:
        """Return the item after `prefix` in the next message [*prefix, item]. Raises `EOFError`.

        Other messages are dropped: they answer earlier requests, whose deadline has passed.
        """
        while (message := await self.inbox.get()) is not None:
            match message:
                case [*start, item] if start == list(prefix):
                    return item
        raise EOFError


class Line:
    """The party's end of the connection, with blocking calls: a party does one thing at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # send each message at once

    @classmethod
    @contextmanager
    def calling(cls, port: int, name: str, token: bytes, random: RandomBytes) -> Iterator[Line]:
        """Connect to the coordinator, exchange greetings, and yield the connection.

        Raises `PeerError`, `EOFError` or `OSError` if no holder of the token answers.
        """
        with socket.create_connection((HOST, port)) as connected:
            line = cls(connected)
            challenge, own = line.receive(GREETING_LIMIT), random(32)
            if not isinstance(challenge, bytes):
                raise PeerError("channel", "the process at this port is not the coordinator")
            line.send([name, own, proof(token, "party", own, challenge, name)])
            answer = line.receive(GREETING_LIMIT)
            expected = proof(token, "coordinator", challenge, own, name)
            if not (isinstance(answer, bytes) and hmac.compare_digest(answer, expected)):
                raise PeerError("channel", "the process at this port is not the coordinator")
            yield line

    def send(self, message: Any) -> None:
        """Send one message. Raises `CapabilityError` or `OSError`."""
        self._socket.sendall(pack(message))

    def receive(self, limit: int = LIMIT) -> Any:
        """Return the next message. Raises `PeerError`, `EOFError` or `OSError`."""
        return canonical_encoding.loads(
            self._exactly(_length(self._exactly(_PREFIX), limit)), MAX_ITEMS
        )

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            # At most 1 MiB at a time, so that a false length does not reserve memory.
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)
