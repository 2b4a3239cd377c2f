"""The connection between coordinator and party: callers without a token, and garbage."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from secagg.core import canonical_encoding
from secagg.errors import CapabilityError, PeerError
from secagg.sessions.engines import channel
from secagg.sessions.engines.channel import (
    GREETING_LIMIT,
    HOST,
    Line,
    greet_party,
    pack,
    proof,
    receive,
)

TOKEN = b"t" * 32


def meet(party: Callable[[int], Any], tokens: dict[str, bytes]) -> tuple[Any, Any]:
    """Let a party call a coordinator; return what each of them got, a value or an error."""
    got: list[Any] = []

    def call(port: int) -> None:
        try:
            got.append(party(port))
        except (PeerError, EOFError, OSError) as error:
            got.append(error)

    async def host() -> Any:
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                name = await greet_party(reader, writer, tokens, os.urandom)
                outcome.set_result([name, await receive(reader)])
            except (PeerError, EOFError, OSError) as error:
                outcome.set_result(error)
            finally:
                writer.close()

        server = await asyncio.start_server(called, HOST, 0)
        thread = threading.Thread(target=call, args=server.sockets[0].getsockname()[1:2])
        thread.start()
        try:
            return await asyncio.wait_for(outcome, 10)
        finally:
            server.close()
            await asyncio.to_thread(thread.join)

    heard = asyncio.run(host())
    return heard, got[0]


def say(*messages: bytes) -> Callable[[int], Any]:
    """Return a caller that sends these bytes after the challenge, and then disconnects."""

    def call(port: int) -> None:
        with socket.create_connection((HOST, port)) as line:
            line.recv(100)
            line.sendall(b"".join(messages))

    return call


def test_a_party_with_its_token_is_accepted() -> None:
    tokens = {"north": TOKEN, "south": b"s" * 32}

    def party(port: int) -> None:
        with Line.calling(port, "north", TOKEN, os.urandom) as line:
            line.send(["hello", b"x" * 3_000_000])

    heard, _ = meet(party, tokens)
    assert heard == ["north", ["hello", b"x" * 3_000_000]]
    assert tokens == {"south": b"s" * 32}  # used up


@pytest.mark.parametrize(
    ("name", "token"), [("north", b"guess"), ("south", TOKEN), ("nobody", TOKEN), ("north", b"")]
)
def test_a_stranger_without_a_token_is_rejected(name: str, token: bytes) -> None:
    tokens = {"north": TOKEN, "south": b"s" * 32}

    def stranger(port: int) -> None:
        with Line.calling(port, name, token, os.urandom):
            pass

    heard, own = meet(stranger, tokens)
    assert isinstance(heard, PeerError)
    assert isinstance(own, EOFError | OSError)
    assert len(tokens) == 2


@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4, b"\0\0\0\2zz", pack(None), pack(["north"]),
     pack(["north", b"", b""]), pack([1, b"", b""]), pack(b"x" * GREETING_LIMIT)],
)  # fmt: skip
def test_garbage_raises_a_typed_error(said: bytes) -> None:
    heard, _ = meet(say(said), {"north": TOKEN})
    assert isinstance(heard, PeerError | EOFError | OSError)


def test_a_proof_binds_role_challenges_and_name() -> None:
    """Roles, both challenges in order, and the name are all in it."""
    kinds = [(TOKEN, "party", b"a", b"b", "n"), (TOKEN, "coordinator", b"a", b"b", "n"),
             (TOKEN, "party", b"b", b"a", "n"), (TOKEN, "party", b"a", b"b", "m"),
             (b"u" * 32, "party", b"a", b"b", "n"), (TOKEN, "party", b"ab", b"", "n")]  # fmt: skip
    assert len({proof(*kind) for kind in kinds}) == len(kinds)


def test_a_party_rejects_another_coordinator_on_the_port() -> None:
    """The coordinator has died, and somebody else has taken over its port."""
    for answer in (pack(b"guess"), pack(proof(b"guess", "coordinator", b"", b"", "north")), b""):
        with socket.create_server((HOST, 0)) as server:

            def impostor(server: socket.socket = server, answer: bytes = answer) -> None:
                line, _ = server.accept()
                with line:
                    line.sendall(pack(b"challenge") + answer)

            thread = threading.Thread(target=impostor)
            thread.start()
            port = server.getsockname()[1]
            with pytest.raises((PeerError, EOFError, OSError)):
                Line.calling(port, "north", TOKEN, os.urandom).__enter__()
            thread.join()


def test_a_false_message_length_takes_no_memory() -> None:
    """It is refused by its prefix, or waited for without taking memory."""
    server = socket.create_server((HOST, 0))
    ours = socket.create_connection(server.getsockname())
    theirs, _ = server.accept()
    server.close()
    line = Line(theirs)
    ours.sendall((channel.LIMIT + 1).to_bytes(4, "big"))
    with pytest.raises(PeerError):
        line.receive()
    ours.sendall(channel.LIMIT.to_bytes(4, "big") + b"a little")
    ours.close()
    with pytest.raises(EOFError):
        line.receive()
    theirs.close()


def test_a_message_that_is_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "LIMIT", 100)
    assert pack(b"x" * 91) == (100).to_bytes(4, "big") + canonical_encoding.dumps(b"x" * 91)
    with pytest.raises(CapabilityError):
        pack(b"x" * 92)
