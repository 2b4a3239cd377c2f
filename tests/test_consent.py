"""Consent before the first sum: what one site refuses costs no other site anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.jobs import raw_job, table
from support.ledger_runs import DELTA, FIVE, folder_with, noised, run
from support.world import SumNumbers, World, events, run_until

from secagg import budgeting, wire
from secagg.contracts import Rows
from secagg.errors import DataError, PolicyRefusal, SecaggError
from secagg.frames import peek_header, read_frame
from secagg.job import parse_job
from secagg.noise import Adjacency
from secagg.party import REFUSED, SiteSide
from secagg.privacy.budget import Cap
from secagg.protocols.additive import Additive
from secagg.protocols.plain import Plain
from secagg.randomness import system_random
from secagg.session import open_session, plan_job

EMPTY_AGE = "age,sex,grade\n,male,low\n"
POLICY = "min_sites = 3\nmin_records = 2\n"


def entered(data: Path) -> list[str]:
    """Return the parties that have an entry in their ledgers."""
    rows = budgeting.history(data / "ledgers")
    return sorted({row["party"] for row in rows if row["kind"] in ("entry", "use")})


def cap(data: Path, party: str, epsilon: float) -> None:
    whose = Cap(epsilon, DELTA, None, Adjacency.ADD_REMOVE)
    budgeting.set_cap(data / "ledgers" / f"{party}.ledger", None, party, whose)


def write_policy(data: Path, more: str) -> None:
    (data / "e.policy.toml").write_text(POLICY + more, encoding="utf-8")


SPOILS: dict[str, Any] = {
    "a rule on the job": lambda data: write_policy(data, 'methods = ["logistic"]\n'),
    "a rule on its records": lambda data: write_policy(data, "min_level_records = 30\n"),
    "too few records": lambda data: (data / "e.csv").write_text(EMPTY_AGE),
    "no such column": lambda data: (data / "e.csv").write_text("age,grade\n50,low\n60,mid\n"),
    "its budget": lambda data: cap(data, "e", 0.5),
    "the budget of the later rounds": lambda data: cap(data, "e", 0.99),
}


@pytest.mark.parametrize("privacy", [noised(), noised(placement="site"), {}], ids=str)
@pytest.mark.parametrize("spoil", SPOILS)
def test_a_run_that_one_site_refuses_charges_nobody(
    tmp_path: Path, spoil: str, privacy: dict[str, Any]
) -> None:
    """The last site to be asked refuses; the others have entered nothing by then."""
    data = folder_with(tmp_path)
    (data / "ledgers").mkdir(mode=0o700)
    SPOILS[spoil](data)
    for _ in range(3):
        with pytest.raises(SecaggError) as refused:
            run(data, privacy=privacy)
        assert refused.value.where.startswith(("e", "data set 'e'"))
    assert entered(data) == []


def test_who_decides_on_public_facts_decides_before_reading(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    write_policy(data, 'methods = ["logistic"]\n')
    (data / "e.csv").write_text("no\nrecords\n")
    with pytest.raises(PolicyRefusal, match="methods"):
        run(data)


def test_a_replay_needs_no_budget(tmp_path: Path) -> None:
    """What leaves with the noise of an earlier release is affordable when nothing is left."""
    data = folder_with(tmp_path)
    run(data, privacy=noised(placement="site"))
    for name in FIVE:
        cap(data, name, 1.0)
    run(data, privacy=noised(placement="site"))
    with pytest.raises(PolicyRefusal, match="its cap is epsilon 1"):
        run(data, privacy=noised(0.9, placement="site"))


def test_decisions_are_written_once_and_refusals_always(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data)
    rows = [r for r in budgeting.history(data / "ledgers") if r["kind"] == "decision"]
    for party in FIVE:
        said = [r["text"] for r in rows if r["party"] == party]
        assert len(said) == len(set(said)) >= 4
    write_policy(data, 'methods = ["logistic"]\n')
    for number in (1, 2):
        with pytest.raises(PolicyRefusal):
            run(data)
        rows = [r for r in budgeting.history(data / "ledgers") if "REFUSED" in r["text"]]
        assert [r["party"] for r in rows] == ["e"] * number


def test_consent_enters_nothing_and_reads_nothing_twice() -> None:
    """After it there are decisions in the ledger, and the records have been read, once."""
    raw = raw_job(privacy=noised(2.0), protocol={"name": "additive"})
    raw["release"]["min_records"] = 5
    records = {name: table(i, 40) for i, name in enumerate("abcd")}
    session = open_session(plan_job(parse_job(raw), records), system_random)
    reads: list[str] = []
    side = session.sides["a"]
    assert side.guard is not None
    load = side.load

    def counted() -> Rows:
        reads.append("a")
        return load()

    object.__setattr__(side, "load", counted)
    step = session.coordinator.start()
    assert {peek_header(r) for r in step.requests.values()} == {(0, "consent")}
    step = session.coordinator.advance(step.state, session.engine.exchange(step.requests))
    kinds = {line.kind for line in side.guard.ledger.history("a")}
    assert kinds == {"decision"} and reads == ["a"]
    while not step.done:
        step = session.coordinator.advance(step.state, session.engine.exchange(step.requests))
    assert reads == ["a"]
    session.close()


def world(**more: Any) -> World:
    numbers = {name: [float(i)] * 2 for i, name in enumerate("abcd")}
    return World(more.pop("protocol", Plain()), numbers, SumNumbers((2,)), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", [Plain(), Additive(2)], ids=lambda p: p.name)
def test_silence_is_no_consent(protocol: Any) -> None:
    """The run goes on without that site, if the rules let it."""

    def tamper(sender: str, recipient: str, frame: bytes) -> list[bytes]:
        return [] if (sender, peek_header(frame)[1]) == ("b", "consent") else [frame]

    w = world(protocol=protocol, tamper=tamper)
    total, cohort = w.sum()
    assert cohort == ["a", "c", "d"] and total.tolist() == [5.0, 5.0]
    asked = {d.phase for d in w.engine.transcript if d.recipient == "b"}
    assert asked == {"consent"}
    few = world(protocol=protocol, tamper=tamper, min_sites=4)
    with pytest.raises(PolicyRefusal, match="3 sites take part"):
        few.sum()
    assert {d.phase for d in few.engine.transcript} == {"consent"}


def test_what_consent_says() -> None:
    """A signed frame of this session that carries nothing, for each site."""
    w = world()
    first = w.coordinator.start()
    frames = w.engine.exchange(first.requests)
    for data in frames:
        frame = read_frame(data, w.roster, "coordinator", w.session)
        assert (frame.header.round, frame.header.phase) == (0, "consent")
        assert frame.body == {} and frame.header.note == {}
    (event,) = events([w.coordinator.advance(first.state, frames)], "consent")
    assert sorted(event["claims"]) == list("abcd")
    assert run_until(world(), "submit").state["cohort"] == list("abcd")


def test_consent_is_asked_of_a_site_once() -> None:
    w = world(protocol=Additive(2))
    request = w.coordinator.start().requests["a"]
    party = w.engine.parties["a"]
    once = party.handle(request, party.first_state())
    again = party.handle(request, once.state)
    assert once.error is None and again.error is not None
    assert "repeats" in again.error.what


def test_why_a_site_refuses_stays_there() -> None:
    w = world()

    def fail() -> Rows:
        raise DataError("column 'age', row 7", "'Smith' is not a number")

    party = w.engine.parties["a"]
    w.engine.parties = {  # type: ignore[assignment]
        **w.engine.parties,
        "a": type(party)(**{**vars(party), "site": SiteSide(w.method, w.public, fail)}),
    }
    step = w.coordinator.start()
    frames = w.engine.exchange(step.requests)
    refused = [read_frame(f, w.roster, "coordinator", w.session) for f in frames]
    assert [f.body for f in refused if f.header.phase == REFUSED] == [{"code": "data"}]
    assert not any(b"Smith" in f for f in frames)
    with pytest.raises(DataError) as caught:
        w.coordinator.advance(wire.loads(wire.dumps(step.state)), frames)
    assert caught.value.where == "a"
