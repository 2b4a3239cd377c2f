"""A job over a fake of Flower's grid: each message is answered from the home alone, as in a worker.

The fake has the few names of Flower that `secagg.deploy.flower_parties` uses.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.crashes.consortium import Consortium
from support.runs.jobs import SITES

from secagg.core import canonical_encoding
from secagg.core.identity import COORDINATOR
from secagg.deploy.flower_job import write_app_folder
from secagg.deploy.noted_run import RunFailed
from secagg.errors import PolicyRefusal, UsageError
from secagg.sessions.engines.site_node import PartyNode
from secagg.sessions.homes.home import Home

NODES = dict(zip(range(11, 11 + len(SITES)), SITES, strict=True))


class Message:
    """A message, or a reply to one; without content it is an error."""

    numbers = itertools.count()

    def __init__(
        self, content: Any, dst_node_id: int = 0, message_type: str = "",
        *, reply_to: Message | None = None,
    ) -> None:  # fmt: skip
        self.content, self.node, self.type = content, dst_node_id, message_type
        before = None if reply_to is None else reply_to.metadata.message_id
        self.metadata = SimpleNamespace(
            message_id=str(next(self.numbers)), reply_to_message_id=before
        )

    def has_error(self) -> bool:
        return self.content is None


@dataclass
class Grid:
    """Answers each message when it is pulled. lose: after how many messages an answer is lost."""

    answer: Callable[[Home, Message], Message]
    made: Consortium
    nodes: dict[int, str] = field(default_factory=lambda: dict(NODES))
    sent: dict[str, Message] = field(default_factory=dict)
    asked: list[tuple[int, int]] = field(default_factory=list)
    lose: set[int] = field(default_factory=set)

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: Sequence[Message]) -> list[str]:
        for message in messages:
            self.asked.append((message.node, len(message.content["secagg"]["messages"])))
            self.sent[message.metadata.message_id] = message
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, numbers: Sequence[str]) -> Iterator[Message]:
        for message in [self.sent.pop(number) for number in numbers if number in self.sent]:
            home = Home.open(self.made.homes[self.nodes[message.node]].folder)
            reply = self.answer(home, message)
            if len(self.asked) in self.lose:  # after the party has answered
                reply.content = None
            yield reply


@pytest.fixture
def parties(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module under test, with the fake in place of Flower."""
    app, serverapp = ModuleType("flwr.app"), ModuleType("flwr.serverapp")
    vars(app).update(Message=Message, RecordDict=dict, ConfigRecord=dict)
    vars(serverapp).update(Grid=Grid)
    fakes = {"flwr": ModuleType("flwr"), "flwr.app": app, "flwr.serverapp": serverapp}
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    name = "secagg.deploy.flower_parties"
    sys.modules.pop(name, None)
    module = importlib.import_module(name)
    monkeypatch.setattr(module, "_PAUSE", 0.001)
    kept = []  # else a node that nobody closed would be closed as garbage

    def make(home: Home) -> PartyNode:
        kept.append(PartyNode(home))
        return kept[-1]

    monkeypatch.setattr(module, "PartyNode", make)
    yield module
    del sys.modules[name]


def lead(parties: Any, grid: Grid, name: str) -> Path:
    made = grid.made
    config = {"job": made.job.model_dump_json(), "name": name}
    parties.coordinate(made.homes[COORDINATOR], grid, config)
    return made.homes[COORDINATOR].folder / "runs" / name


def test_a_job_has_the_same_bits_although_each_message_finds_only_the_home(
    parties: Any, tmp_path: Path
) -> None:
    made = Consortium.of(tmp_path)
    made.lead("kept")  # by nodes that stay
    for name in SITES:
        made.nodes[name].close()
    grid = Grid(parties.answer, made)
    out = lead(parties, grid, "flower")
    for name in ("result.json", "arrays.npz"):
        kept = made.homes[COORDINATOR].folder / "runs" / "kept" / name
        assert (out / name).read_bytes() == kept.read_bytes()
    facts = json.loads((out / "run.json").read_bytes())
    assert facts["engine"]["name"] == "flower"
    # each node is greeted once and told of the session once; then each request has its opening
    assert all([n for m, n in grid.asked if m == node][:2] == [1, 1] for node in NODES)
    assert all([n for m, n in grid.asked if m == node][2:].count(1) == 0 for node in NODES)


def test_an_answer_that_is_lost_is_asked_for_again_and_the_node_is_looked_for(
    parties: Any, tmp_path: Path
) -> None:
    made = Consortium.of(tmp_path)
    grid = Grid(parties.answer, made, lose={2, 9, 14, 20})
    out = lead(parties, grid, "flower")
    assert (out / "result.json").is_file()
    greetings = [n for _, n in grid.asked].count(1)
    assert greetings > 2 * len(NODES)


def test_a_refused_job_fails_without_a_text_and_its_reason_stays_at_home(
    parties: Any, tmp_path: Path
) -> None:
    made = Consortium.of(tmp_path, approved=False)
    with pytest.raises(RunFailed) as caught:
        lead(parties, Grid(parties.answer, made), "refused")
    assert caught.value.args == (PolicyRefusal.exit_code,)
    assert "refused: " in (made.homes[COORDINATOR].folder / "log.txt").read_text()


@pytest.mark.parametrize("content", [{}, {"secagg": {"messages": []}}, {"secagg": {"messages": 3}}])
def test_no_text_of_an_exception_is_sent(parties: Any, tmp_path: Path, content: Any) -> None:
    made = Consortium.of(tmp_path)
    home = made.homes[SITES[0]]
    reply = parties.answer(home, Message(content)).content["secagg"]
    assert list(reply) == ["answer"]
    assert canonical_encoding.loads(reply["answer"]) == ["refused", "peer"]


def test_a_request_after_a_refused_opening_is_unknown_and_the_locks_are_released(
    parties: Any, tmp_path: Path
) -> None:
    made = Consortium.of(tmp_path)
    home, session = made.homes[SITES[0]], b"s" * 32
    asked = [
        canonical_encoding.dumps(["open", session, b"x"]),
        canonical_encoding.dumps(["handle", session, b"y"]),
    ]
    assert canonical_encoding.loads(parties.answer_each(home, asked)) == ["unknown"]
    assert canonical_encoding.loads(parties.answer_each(home, asked[:1])) == ["refused", "peer"]


def test_the_app_folder_has_the_job_and_no_code(tmp_path: Path) -> None:
    import tomllib

    write_app_folder(tmp_path / "app", '{"title": "caf\\u00e9 \\"x\\""}', "a-run")
    assert [path.name for path in (tmp_path / "app").rglob("*")] == ["pyproject.toml"]
    app = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["config"] == {"name": "a-run", "job": '{"title": "caf\\u00e9 \\"x\\""}'}
    module, _, found = app["components"]["clientapp"].partition(":")
    assert getattr(importlib.import_module(module), found) is None
    with pytest.raises(UsageError):
        write_app_folder(tmp_path / "app", "{}", "a-run")
    with pytest.raises(UsageError):
        write_app_folder(tmp_path / "other", "{}", "a run\n")
