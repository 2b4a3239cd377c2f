"""Countersignatures: what a site signs, what it refuses to sign, and sites that do not answer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.protocols.world import SumNumbers, World
from support.runs.jobs import SITES, small_job, tables

from secagg.core.frames import peek_header, write_frame
from secagg.core.hash_chain_log import read_log
from secagg.errors import EvidenceError, PeerError, PolicyRefusal
from secagg.evidence.integrity import verify_folder
from secagg.protocols.plain import Plain
from secagg.runs.run import run
from secagg.sessions.coordinator import Step
from secagg.sessions.countersignatures import Statement, check_countersignature
from secagg.sessions.party import REFUSED
from secagg.sessions.rounds import COUNTERSIGN

HEAD, RESULT = "ab" * 32, "cd" * 32


def finished(**options: Any) -> tuple[World, Step]:
    """Return a session whose method is done."""
    world = World(Plain(), {s: np.ones(1) for s in "abc"}, SumNumbers((1,), rounds=2), **options)
    step = world.coordinator.start()
    while not step.done:
        step = world.coordinator.advance(step.state, world.engine.exchange(step.requests))
    return world, step


def ask(world: World, body: dict[str, Any], round_: int = 9) -> tuple[str, Any]:
    """Send site `a` a request to countersign; return the phase of its reply, and its error."""
    frame = write_frame(
        world.identities["coordinator"], world.session, round_, COUNTERSIGN.name, "a", body
    )
    world.engine.errors.clear()
    (reply,) = world.engine.exchange({"a": frame})
    return peek_header(reply)[1], world.engine.errors.get("a")


def test_every_site_countersigns_head_result_and_its_own_requests() -> None:
    world, step = finished()
    asking = world.coordinator.ask_countersignatures(step.state, HEAD, RESULT)
    assert sorted(asking.requests) == ["a", "b", "c"]
    closed = world.coordinator.advance(asking.state, world.engine.exchange(asking.requests))
    (event,) = closed.events
    assert closed.done and (event["head"], event["result"]) == (HEAD, RESULT)
    assert event["missing"] == [] and sorted(event["claims"]) == ["a", "b", "c"]
    statement = Statement(
        bytes.fromhex(HEAD), bytes.fromhex(RESULT), bytes.fromhex(event["requests"])
    )
    others = [replace(statement, **{name: bytes(32)}) for name in vars(statement)]
    for site, parts in event["claims"].items():
        claim = [bytes.fromhex(part) for part in parts]
        check_countersignature(site, claim, statement, world.roster, world.session)
        for other in others:
            with pytest.raises(PeerError):
                check_countersignature(site, claim, other, world.roster, world.session)
        with pytest.raises(PeerError):
            check_countersignature("abc"["abc".index(site) - 1], claim, statement, world.roster,
                                   world.session)  # fmt: skip


def test_a_site_signs_once_and_the_session_is_then_over() -> None:
    world, step = finished()
    asking = world.coordinator.ask_countersignatures(step.state, HEAD, RESULT)
    world.engine.exchange(asking.requests)
    for head in (HEAD, "ef" * 32):
        again = world.coordinator.ask_countersignatures(step.state, head, RESULT)
        (reply,) = world.engine.exchange({"a": again.requests["a"]})
        assert peek_header(reply)[1] == REFUSED
        assert isinstance(world.engine.errors["a"], PolicyRefusal)


@pytest.mark.parametrize(
    "change",
    [{"requests": bytes(32)}, {"requests": b""}, {"head": b"short"}, {"result": None},
     {"more": 1}, {"head": HEAD}],
)  # fmt: skip
def test_a_site_refuses_other_requests_than_its_own_and_may_sign_afterwards(
    change: dict[str, Any],
) -> None:
    world, step = finished()
    good = Statement(bytes.fromhex(HEAD), bytes.fromhex(RESULT), step.state.requests).note()
    phase, error = ask(world, good | change)
    assert phase == REFUSED and isinstance(error, PeerError)
    assert ask(world, good) == (COUNTERSIGN.name, None)


def test_a_site_that_has_not_contributed_countersigns_nothing() -> None:
    world = World(Plain(), {s: np.ones(1) for s in "abc"}, SumNumbers((1,)))
    for requests in (b"", bytes(32)):
        phase, error = ask(world, Statement(bytes(32), bytes(32), requests).note())
        assert phase == REFUSED and isinstance(error, PeerError)


def test_a_site_that_drops_out_at_the_end_costs_its_countersignature_only(tmp_path: Path) -> None:
    def tamper(sender: str, recipient: str, frame: bytes) -> list[bytes]:
        lost = sender == "west" and peek_header(frame)[1] == COUNTERSIGN.name
        return [] if lost else [frame]

    done = run(small_job(), tables(), out=tmp_path / "out", tamper=tamper)
    *_, missing, last = read_log(tmp_path / "out" / "log.jsonl")
    assert (missing["event"], missing["parties"]) == ("missing", ["west"])
    assert last["missing"] == ["west"] and sorted(last["claims"]) == list(SITES[:2])
    with pytest.raises(EvidenceError):
        verify_folder(tmp_path / "out")
    found = verify_folder(tmp_path / "out", done.facts["log"]["head"])
    assert (found.countersigned, found.unsigned) == (SITES[:2], ("west",))
    assert found.recomputed


def test_a_report_that_cannot_be_drawn_loses_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import secagg.reports.page

    def broken(*_: Any) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(secagg.reports.page, "render", broken)
    done = run(small_job(), tables(), out=tmp_path / "out")
    assert any("report" in remark for remark in done.remarks)
    found = verify_folder(tmp_path / "out")
    assert found.files == ("arrays.npz", "result.json") and found.countersigned == SITES
    (tmp_path / "out" / "report.html").write_text("forged")
    with pytest.raises(EvidenceError) as caught:
        verify_folder(tmp_path / "out")
    assert caught.value.where == "report.html"


def test_a_run_folder_is_private(tmp_path: Path) -> None:
    run(small_job(), tables(), out=tmp_path / "out")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o600}
