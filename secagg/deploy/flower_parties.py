"""A job on Flower (1.41): the coordinator's calls over its messages, and a party's answers.

A run on Flower sends an app bundle to every party, and Flower's own programs run the code in it. So
Flower's own programs do not run at a party: `secagg.deploy.flower_worker` takes their place, with
the code that each party has installed. It answers messages without memory of earlier ones:

* A party's state is in its home. Each message opens it anew, and at the end every lock is released,
  so runs may alternate, and a worker may die at any time.
* `PartyNode` handles a request only in a session that it has opened. So each request travels with
  the opening of its session, and both are answered in turn. The opening is signed by the
  coordinator, and the party checks it each time: keys, approval, name of the session. The opening
  is not kept on disk, because that would be a second record of what is allowed.
* A repeated request gets the stored reply, as on any engine.

Which node is which party: Flower's node ids only route. Each node is asked for its name, and the
frames inside prove who speaks.

Threat model: that of `secagg.sessions.engines.site_node`. Also, everyone who reaches the port
of the SuperLink can submit a run: Flower checks identities only with an account service of its own.

Not protected: the operator of the SuperLink can read the coordinator's key and home. Treat that
operator as the coordinator when you read secagg's guarantees.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from secagg.core import canonical_encoding
from secagg.deploy.noted_run import run_noted
from secagg.sessions.engines.site_node import PartyNode
from secagg.sessions.homes.home import Home

_RECORD, _MESSAGES, _ANSWER = "secagg", "messages", "answer"
_PAUSE = 0.1
"""Seconds between two looks for an answer."""


def answer(home: Home, message: Message) -> Message:
    """Return a party's answer to Flower's message; never raises an exception."""
    try:
        found = answer_each(home, message.content[_RECORD][_MESSAGES])
    except Exception:  # no text of it may be sent
        found = canonical_encoding.dumps(["refused", "peer"])
    return Message(RecordDict({_RECORD: ConfigRecord({_ANSWER: found})}), reply_to=message)


def answer_each(home: Home, messages: Sequence[bytes]) -> bytes:
    """Answer messages in turn, and return the last answer.

    If an opening is refused, the answer to the request after it is "unknown". Then the coordinator
    sends the opening alone, and learns why.
    """
    node = PartyNode(home)
    try:
        return [node.answer(message) for message in messages][-1]
    finally:
        node.close()


def coordinate(home: Home, grid: Grid, config: Mapping[str, Any]) -> None:
    """Run the job that the configuration names. Raises `RunFailed`."""
    calls, name = NodeCalls(grid), str(config["name"])
    try:
        run_noted(home, str(config["job"]), calls, "flower", name)
    finally:
        home.note(f"{name}: seconds of calls {json.dumps(calls.seconds)}")


class NodeCalls:
    """Calls parties at Flower's nodes; see `secagg.sessions.engines.remote.Call`."""

    def __init__(self, grid: Grid) -> None:
        self.seconds: dict[str, list[float]] = {}
        """how long each call of a party took"""
        self._grid, self._line = grid, threading.Lock()
        self._greetings: dict[int, str] = {}
        """each node that was asked for its name, and the message that asked it"""
        self._found: dict[str, tuple[int, bytes]] = {}
        """the node of each party that said its name, and how it said it"""
        self._openings: dict[tuple[str, bytes], bytes] = {}

    def __call__(self, party: str, message: bytes, seconds: float) -> bytes:
        """Return the party's answer.

        Raises `TimeoutError`, or `ConnectionError` if Flower reports an error.
        """
        began = time.monotonic()
        until = began + seconds
        node, greeting = self._find(party, until)
        messages = [message]
        match canonical_encoding.loads(message):
            case ["hello"]:
                return greeting
            case ["open", bytes(session), bytes()]:
                self._openings[party, session] = message
            case ["handle", bytes(session), bytes()] if (party, session) in self._openings:
                messages.insert(0, self._openings[party, session])
        with self._line:
            sent = self._send(node, messages)
        while time.monotonic() < until:
            with self._line:
                for found in self._receive([sent]).values():
                    if found is None:
                        self._forget(party)
                        raise ConnectionError
                    took = round(time.monotonic() - began, 3)
                    self.seconds.setdefault(party, []).append(took)
                    return found
            time.sleep(_PAUSE)
        raise TimeoutError

    def _find(self, party: str, until: float) -> tuple[int, bytes]:
        """Return a party's node and its greeting, once it is known."""
        while party not in self._found:
            if time.monotonic() >= until:
                raise TimeoutError
            with self._line:
                self._greet()
            time.sleep(_PAUSE)
        return self._found[party]

    def _greet(self) -> None:
        """Ask nodes that are new for their names, and take the names that have arrived."""
        for node in set(self._grid.get_node_ids()) - self._greetings.keys():
            self._greetings[node] = self._send(node, [canonical_encoding.dumps(["hello"])])
        known = {node for node, _ in self._found.values()}
        asked = {sent: node for node, sent in self._greetings.items() if node not in known}
        for sent, found in self._receive(asked).items():
            match canonical_encoding.loads(found or canonical_encoding.dumps(None)):
                case ["hello", _, str(name), *_]:
                    assert found is not None
                    self._found[name] = asked[sent], found
                case _:  # no home there yet, or its process failed
                    del self._greetings[asked[sent]]

    def _forget(self, party: str) -> None:
        """Look for a party anew: its SuperNode may have another id when it is back."""
        if party in self._found:
            node, _ = self._found.pop(party)
            del self._greetings[node]

    def _send(self, node: int, messages: list[bytes]) -> str:
        content = RecordDict({_RECORD: ConfigRecord({_MESSAGES: messages})})
        (sent,) = self._grid.push_messages([Message(content, node, "query")])
        return str(sent)

    def _receive(self, sent: Sequence[str] | dict[str, int]) -> dict[str, bytes | None]:
        """Return the answers that have arrived, by the message; None for an error."""
        return {
            reply.metadata.reply_to_message_id: None
            if reply.has_error()
            else bytes(reply.content[_RECORD][_ANSWER])
            for reply in (self._grid.pull_messages(list(sent)) if sent else ())
        }
