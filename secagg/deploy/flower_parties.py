"""The two apps of a job on Flower (1.41): a party's, and the coordinator's.

Flower carries bytes between `PartyNode` at each SuperNode and `lead` in the ServerApp. It starts a
new process for each message to a ClientApp, so nothing can stay in memory between two messages:

* A party's state is in its home. Each process opens it, answers, and releases its locks.
* `PartyNode` handles a request only in a session that its own process has opened. So each request
  travels with the opening of its session, and the app answers both in turn. The opening is signed
  by the coordinator, and the party checks it anew each time: keys, approval, name of the session.
  The other way, to keep on disk what opened a session, would be a second record of what is allowed.
* A repeated request gets the stored reply, as on any engine.

Which node is which party: Flower's node ids only route. Each node is asked for its name, and the
frames inside prove who speaks.

Where a home is, each computer says for itself: a site in its SuperNode's `--node-config`, the
coordinator in the environment of its SuperLink (`SECAGG_HOME`).

Threat model: that of `secagg.runtime.engines.site_node`. The text of an exception in a ClientApp
would be sent to the server, so `answer` raises none.

Not protected: a site that lets Flower start ClientApps runs code that the submitter of a run sends,
with the rights of the SuperNode's user. `secagg.deploy.flower_worker` takes Flower's place there.
The operator of the SuperLink can read the coordinator's key and home: that operator is the
coordinator, for every promise of secagg.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from secagg.core import encoding
from secagg.deploy.noted_run import run_noted
from secagg.errors import UsageError
from secagg.runtime.engines.site_node import PartyNode
from secagg.runtime.homes.home import Home

HOME = "SECAGG_HOME"
"""The environment variable of the SuperLink with the coordinator's home."""
_RECORD, _MESSAGES, _ANSWER = "secagg", "messages", "answer"
_PAUSE = 0.1
"""Seconds between two looks for an answer."""

client = ClientApp()
server = ServerApp()


@client.query()
def answer(message: Message, context: Context) -> Message:
    """Return the party's answer to the last of the messages; never raises an exception."""
    try:
        home = Home.open(Path(str(context.node_config["home"])))
        found = answer_each(home, message.content[_RECORD][_MESSAGES])
    except Exception:  # without a home there is no log, and no text may be sent
        found = encoding.dumps(["refused", "usage"])
    return Message(RecordDict({_RECORD: ConfigRecord({_ANSWER: found})}), reply_to=message)


def answer_each(home: Home, messages: Sequence[bytes]) -> bytes:
    """Answer messages in turn, as a process that then ends; return the last answer.

    If an opening is refused, the answer to the request after it is "unknown". Then the coordinator
    sends the opening alone, and learns why.
    """
    node = PartyNode(home)
    try:
        return [node.answer(message) for message in messages][-1]
    finally:
        node.close()


@server.main()
def coordinate(grid: Grid, context: Context) -> None:
    """Run the job in the app's configuration. Raises `RunFailed`, so that Flower's run fails."""
    if HOME not in os.environ:
        raise UsageError(HOME, "is not set where the SuperLink runs")
    home, config = Home.open(Path(os.environ[HOME])), context.run_config
    calls, name = NodeCalls(grid), str(config["name"])
    try:
        run_noted(home, str(config["job"]), calls, "flower", name)
    finally:
        home.note(f"{name}: seconds of calls {json.dumps(calls.seconds)}")


class NodeCalls:
    """Calls parties at Flower's nodes; see `secagg.runtime.engines.remote.Call`."""

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
        """Return the party's answer. Raises `TimeoutError`, or `ConnectionError` for an error."""
        began = time.monotonic()
        until = began + seconds
        node, greeting = self._find(party, until)
        messages = [message]
        match encoding.loads(message):
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
            self._greetings[node] = self._send(node, [encoding.dumps(["hello"])])
        known = {node for node, _ in self._found.values()}
        asked = {sent: node for node, sent in self._greetings.items() if node not in known}
        for sent, found in self._receive(asked).items():
            match encoding.loads(found or encoding.dumps(None)):
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
        return sent

    def _receive(self, sent: Sequence[str] | dict[str, int]) -> dict[str, bytes | None]:
        """Return the answers that have arrived, by the message; None for an error."""
        return {
            reply.metadata.reply_to_message_id: None
            if reply.has_error()
            else bytes(reply.content[_RECORD][_ANSWER])
            for reply in (self._grid.pull_messages(list(sent)) if sent else ())
        }
