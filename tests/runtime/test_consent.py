"""Consent before the first sum: what one site refuses costs no other site anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.jobs import raw_job, table
from support.ledger_runs import DELTA, FIVE, folder_with, noised, run
from support.world import STAGE, SumNumbers, World, events, run_until

from secagg.contracts import SiteRecords
from secagg.contracts.noise import Adjacency
from secagg.core.frames import peek_header, read_frame, write_frame
from secagg.core.identity import Identity
from secagg.core.randomness import system_random
from secagg.errors import PeerError, PolicyRefusal, SecaggError
from secagg.jobs.job import parse_job
from secagg.privacy.accounting.budget import Cap
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.additive import Additive
from secagg.protocols.plain import Plain
from secagg.runs import budgets, ledger_history
from secagg.runtime.attestations import digest_request
from secagg.runtime.engines.memory import MemoryEngine
from secagg.runtime.party import REFUSED, Handled, Party
from secagg.runtime.planned_job import plan_job
from secagg.runtime.session import open_session

EMPTY_AGE = "age,sex,grade\n,male,low\n"
POLICY = "min_sites = 3\nmin_records = 2\n"


def entered(data: Path) -> list[str]:
    """Return the parties that have an entry in their ledgers."""
    rows = ledger_history.history(data / "ledgers")
    return sorted({row["party"] for row in rows if row["kind"] in ("entry", "use")})


def cap(data: Path, party: str, epsilon: float) -> None:
    whose = Cap(epsilon, DELTA, None, Adjacency.ADD_REMOVE)
    budgets.set_cap(data / "ledgers" / f"{party}.ledger", None, party, whose)


@dataclass(frozen=True)
class Ledgered:
    """The parties of a session whose sites keep ledgers, in the folder `data`."""

    data: Path
    parties: Mapping[str, Party]
    keys: Identity
    name: bytes


def hexadecimal(number: Any) -> str:
    """Python refuses to write large integers in decimals."""
    return f"{number:x}"[:20] if type(number) is int else str(number)


def ledgered(place: Path, **settings: Any) -> Ledgered:
    data = folder_with(place)
    raw = raw_job(
        sites={"folder": data, "max_rows": 100}, protocol={"name": "additive"}, **settings
    )
    session = open_session(plan_job(parse_job(raw)), system_random)
    assert isinstance(session.engine, MemoryEngine)
    keys = session.coordinator.identity
    return Ledgered(data, session.engine.parties, keys, session.session)


def write_policy(data: Path, more: str) -> None:
    (data / "e.policy.toml").write_text(POLICY + more, encoding="utf-8")


BY_THE_JOB: dict[str, Any] = {
    "a rule on the job": lambda data: write_policy(data, 'methods = ["logistic"]\n'),
    "its budget": lambda data: cap(data, "e", 0.5),
    "the budget of the later rounds": lambda data: cap(data, "e", 0.99),
}
BY_RECORDS: dict[str, Any] = {
    "a rule on its records": lambda data: write_policy(data, "min_level_records = 30\n"),
    "too few records": lambda data: (data / "e.csv").write_text(EMPTY_AGE),
    "no such column": lambda data: (data / "e.csv").write_text("age,grade\n50,low\n60,mid\n"),
}
NOISED = (noised(), noised(placement="site"))
EXACT: dict[str, Any] = {}


def refused(tmp_path: Path, spoil: Any, privacy: dict[str, Any]) -> Path:
    """Three runs that the last site to be asked refuses."""
    data = folder_with(tmp_path)
    (data / "ledgers").mkdir(mode=0o700)
    spoil(data)
    for _ in range(3):
        with pytest.raises(SecaggError) as caught:
            run(data, privacy=privacy)
        assert caught.value.where.startswith("e")
    return data


@pytest.mark.parametrize("privacy", [*NOISED, EXACT], ids=str)
@pytest.mark.parametrize("spoil", BY_THE_JOB)
def test_a_run_that_one_site_refuses_charges_nobody(
    tmp_path: Path, spoil: str, privacy: dict[str, Any]
) -> None:
    """The others have entered nothing by then; the refusal is in the site's own ledger."""
    data = refused(tmp_path, BY_THE_JOB[spoil], privacy)
    assert entered(data) == []
    rows = [r for r in ledger_history.history(data / "ledgers") if "REFUSED" in r["text"]]
    assert [row["party"] for row in rows] == ["e"] * 3


@pytest.mark.parametrize("spoil", BY_RECORDS)
def test_without_noise_records_are_looked_at_before_anybody_pays(
    tmp_path: Path, spoil: str
) -> None:
    assert entered(refused(tmp_path, BY_RECORDS[spoil], EXACT)) == []


@pytest.mark.parametrize("privacy", NOISED, ids=str)
@pytest.mark.parametrize("spoil", BY_RECORDS)
def test_with_noise_consent_says_nothing_of_records(
    tmp_path: Path, spoil: str, privacy: dict[str, Any]
) -> None:
    """It is free: otherwise whoever asks again and again would learn them for nothing."""
    data = refused(tmp_path, BY_RECORDS[spoil], privacy)
    rows = [r for r in ledger_history.history(data / "ledgers") if r["kind"] == "entry"]
    assert {row["content"]["stage"] for row in rows} == {"cohort"}  # which was asked, and paid for
    assert {row["party"] for row in rows} == set(FIVE) - {"e"}


@pytest.mark.parametrize("rule", ["min_total_records = 1000", "max_site_share = 0.1"])
@pytest.mark.parametrize("privacy", [*NOISED, EXACT], ids=str)
def test_what_the_count_shows_is_decided_before_the_next_sum(
    tmp_path: Path, rule: str, privacy: dict[str, Any]
) -> None:
    """A rule on all records: the count is paid for, as it was released; the moments are not."""
    data = refused(tmp_path, lambda data: write_policy(data, rule + "\n"), privacy)
    rows = [r for r in ledger_history.history(data / "ledgers") if r["kind"] == "entry"]
    assert {row["content"]["stage"] for row in rows} == {"cohort"}
    assert {row["party"] for row in rows} == {*FIVE, "coordinator"}


def test_a_gradient_that_does_not_fit_as_a_whole_charges_nobody(tmp_path: Path) -> None:
    """All rounds are asked about; the first ones alone would fit."""
    method = {"name": "gradient", "outcome": "sex", "predictors": ["age"], "family": "binomial"}
    data = folder_with(tmp_path)
    (data / "ledgers").mkdir(mode=0o700)
    cap(data, "e", 0.9)
    job = {"method": method | {"rounds": 5}, "privacy": noised(placement="round")}
    with pytest.raises(PolicyRefusal):
        run(data, **job)
    assert entered(data) == []
    cap(data, "e", 1.1)
    run(data, **job)


def test_who_decides_on_public_facts_decides_before_reading(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    write_policy(data, 'methods = ["logistic"]\n')
    (data / "e.csv").write_text("no\nrecords\n")
    with pytest.raises(PolicyRefusal):
        run(data)


def test_a_replay_needs_no_budget(tmp_path: Path) -> None:
    """What leaves with the noise of an earlier release is affordable when nothing is left."""
    data = folder_with(tmp_path)
    run(data, privacy=noised(placement="site"))
    for name in FIVE:
        cap(data, name, 1.0)
    run(data, privacy=noised(placement="site"))
    with pytest.raises(PolicyRefusal):
        run(data, privacy=noised(0.9, placement="site"))


def test_decisions_are_written_once_and_refusals_always(tmp_path: Path) -> None:
    data = folder_with(tmp_path)
    run(data)
    rows = [r for r in ledger_history.history(data / "ledgers") if r["kind"] == "decision"]
    for party in FIVE:
        said = [r["text"] for r in rows if r["party"] == party]
        assert len(said) == len(set(said)) >= 4
    write_policy(data, 'methods = ["logistic"]\n')
    for number in (1, 2):
        with pytest.raises(PolicyRefusal):
            run(data)
        rows = [r for r in ledger_history.history(data / "ledgers") if "REFUSED" in r["text"]]
        assert [r["party"] for r in rows] == ["e"] * number


def test_consent_enters_nothing_and_reads_nothing_twice() -> None:
    """After it there are decisions in the ledger, and the records have been read, once."""
    raw = raw_job(privacy=noised(2.0), protocol={"name": "additive"})
    raw["release"]["min_records"] = 5
    records = {name: table(i, 40) for i, name in enumerate("abcd")}
    session = open_session(plan_job(parse_job(raw), records), system_random)
    reads: list[str] = []
    side = session.sites["a"]
    assert side.guard is not None
    load = side.load

    def counted() -> SiteRecords:
        reads.append("a")
        return load()

    object.__setattr__(side, "load", counted)
    step = session.coordinator.start()
    assert {peek_header(r) for r in step.requests.values()} == {(0, "consent")}
    step = session.coordinator.advance(step.state, session.engine.exchange(step.requests))
    kinds = {line.kind for line in side.guard.ledger.history("a")}
    assert kinds == {"decision"} and reads == []
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
    with pytest.raises(PolicyRefusal):
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
        assert frame.body == {}
        digest = digest_request("cohort", list("abcd"), None, {})
        assert frame.header.note == {"asked": digest}  # over whose records
    (event,) = events([w.coordinator.advance(first.state, frames)], "consent")
    assert sorted(event["claims"]) == list("abcd")
    assert run_until(world(), "submit").state.cohort == tuple("abcd")


def test_silence_is_told_to_the_others(tmp_path: Path) -> None:
    """Who wants more sites than are left refuses before anybody pays."""
    rules = {"a": ReleasePolicy(5, 1)}

    def tamper(sender: str, recipient: str, frame: bytes) -> list[bytes]:
        return [] if sender == "e" else [frame]

    numbers = {name: [float(i)] * 2 for i, name in enumerate(FIVE)}
    w = World(Additive(2), numbers, SumNumbers((2,)), policies=rules, tamper=tamper)  # type: ignore[arg-type]
    with pytest.raises(PolicyRefusal) as caught:
        w.sum()
    assert caught.value.where == "a"
    assert {d.phase for d in w.engine.transcript} == {"consent", REFUSED}


def ask(w: World, party: Party, state: bytes, phase: str, round_: int, **body: Any) -> Handled:
    asked = {"stage": "cohort", "cohort": list("abcd"), "records": None, "message": {}} | body
    sender = w.identities["coordinator"]
    return party.handle(write_frame(sender, w.session, round_, phase, "a", asked), state)


def test_when_consent_is_asked() -> None:
    """To the first sum as often as it takes; never afterwards; to the next stage once."""
    w = world(protocol=Additive(2))
    party = w.engine.parties["a"]
    state = party.first_state()
    early = ask(w, party, state, "consent", 0, stage=STAGE, records=4)
    assert isinstance(early.error, PeerError)
    for cohort in (list("abcd"), list("abc")):
        done = ask(w, party, state, "consent", 0, cohort=cohort)
        assert done.error is None
        state = done.state
    state = ask(w, party, state, "share", 0).state
    for round_ in (0, 1):
        late = ask(w, party, state, "consent", round_)
        assert isinstance(late.error, PeerError) and late.state == state
    done = ask(w, party, state, "consent", 1, stage=STAGE, records=4)
    assert done.error is None
    for round_ in (1, 2):  # how many records in all is the coordinator's to say
        again = ask(w, party, done.state, "consent", round_, stage=STAGE, records=5)
        assert isinstance(again.error, PeerError)


def test_silence_that_would_expose_a_site_ends_the_run_before_anybody_pays() -> None:
    """All five were released before; the sum over the other four would show the fifth."""

    def tamper(sender: str, recipient: str, frame: bytes) -> list[bytes]:
        return [] if sender == "e" else [frame]

    numbers = {name: [float(i)] * 2 for i, name in enumerate(FIVE)}
    w = World(Plain(), numbers, SumNumbers((2,)), tamper=tamper)  # type: ignore[arg-type]
    w.coordinator = replace(w.coordinator, earlier=(frozenset(FIVE),))
    with pytest.raises(PolicyRefusal):
        w.sum()
    assert {d.phase for d in w.engine.transcript} == {"consent"}


@pytest.mark.parametrize(
    ("phase", "round_"),
    [("consent", -1), ("share", -1), ("consent", 2**32), ("share", 2**70), ("share", 1 << 20_000),
     ("consent", True)],
    ids=hexadecimal,
)  # fmt: skip
def test_a_round_that_no_ledger_can_hold_is_refused(
    tmp_path: Path, phase: str, round_: int
) -> None:
    """Once such a round reached the site's ledger, and caused an overflow instead of a refusal."""
    w = ledgered(tmp_path)
    party, state = w.parties["e"], w.parties["e"].first_state()
    body = {"stage": "cohort", "cohort": list(FIVE), "records": None, "message": {}}
    handled = party.handle(write_frame(w.keys, w.name, round_, phase, "e", body), state)
    assert isinstance(handled.error, PeerError) and handled.state == state
    reply = read_frame(handled.reply, party.roster, "coordinator", w.name)
    assert reply.header.phase == REFUSED and reply.body == {"code": "peer"}
    assert not (w.data / "ledgers").exists()


def test_a_session_has_one_total_number_of_records(tmp_path: Path) -> None:
    """A rule on the site's share, refused for one total after the other, would tell its records."""
    data = folder_with(tmp_path)
    write_policy(data, "max_site_share = 0.1\n")
    raw = raw_job(sites={"folder": data, "max_rows": 100}, privacy=noised(2.0),
                  protocol={"name": "additive"})  # fmt: skip
    session = open_session(plan_job(parse_job(raw)), system_random)
    engine, keys = session.engine, session.coordinator.identity
    assert isinstance(engine, MemoryEngine)
    step = session.coordinator.start()
    while step.state.round == 0:
        step = session.coordinator.advance(step.state, engine.exchange(step.requests))
    party, state = engine.parties["e"], engine.states["e"]
    body = read_frame(step.requests["e"], session.roster, "e", session.session).body
    for total in (100, 100, 10_000):  # the rule refuses 100; 10,000 would satisfy it
        asked = {**body, "records": total}
        handled = party.handle(write_frame(keys, session.session, 1, "consent", "e", asked), state)
        assert isinstance(handled.error, PolicyRefusal)
        state = handled.state
    session.close()
