"""Parties with homes of their own, over a fake federated engine: same bits, kills, refusals."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.crashes.consortium import Before, Consortium, remote_job
from support.privacy.ledger_runs import noised
from support.runs.jobs import SITES, tables

import secagg
from secagg.contracts import Result
from secagg.core import canonical_encoding
from secagg.core.identity import COORDINATOR, Role, Roster
from secagg.core.private_files import exclusive_lock
from secagg.core.randomness import system_random
from secagg.core.roster_file import fingerprint
from secagg.errors import (
    PeerError,
    PolicyRefusal,
    ProtocolAbort,
    SecaggError,
    UsageError,
)
from secagg.evidence.integrity import verify_folder
from secagg.models.one_step.method import OneStep
from secagg.runs import ledger_history
from secagg.runs.session_loop import Run
from secagg.sessions.homes.approvals import approve
from secagg.sessions.homes.home import Home

FILES = ("result.json", "arrays.npz")


def in_memory(folder: Path, consortium: Consortium) -> Path:
    out = folder / "memory"
    secagg.run(consortium.job, data=tables(), out=out)
    return out


def check_same(run: Run, out: Path) -> None:
    assert run.folder is not None
    for name in FILES:
        assert (run.folder / name).read_bytes() == (out / name).read_bytes(), name


@pytest.mark.parametrize(
    "protocol",
    [
        {"name": "masked"},
        {"name": "additive"},
        {"name": "threshold_paillier", "key_bits": 2048},
        {"name": "plain"},
    ],
    ids=lambda protocol: protocol["name"],
)
def test_bits_are_those_of_a_run_in_one_process(tmp_path: Path, protocol: dict[str, Any]) -> None:
    made = Consortium.of(tmp_path, remote_job(protocol=protocol))
    run = made.lead()
    check_same(run, in_memory(tmp_path, made))
    assert run.folder is not None
    verify_folder(run.folder)
    facts = json.loads((run.folder / "run.json").read_bytes())
    assert facts["local"] == {}  # not that of a run on one computer
    pinned = fingerprint(made.homes["coordinator"].roster)
    assert facts["engine"] == {"name": "fake", "processes": len(facts["roster"]), "resumed": 0,
                               "pinned_roster": pinned}  # fmt: skip
    report = (run.folder / "report.html").read_text()
    assert pinned in report and "one computer" not in report
    assert facts["cohort"] == list(SITES)


def test_each_party_keeps_its_own_ledger_and_state(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)
    run = made.lead()
    session = run.facts["session"]
    for name in SITES:
        home = made.homes[name].folder
        assert (home / "ledgers" / f"{name}.ledger").is_file()
        assert (home / "runs" / session / "state").is_file()
    assert (made.homes["coordinator"].folder / "ledgers" / "coordinator.ledger").is_file()


@pytest.mark.parametrize("victim", SITES)
def test_a_party_killed_before_each_request_goes_on(tmp_path: Path, victim: str) -> None:
    made = Consortium.of(tmp_path)
    seen: set[bytes] = set()

    def kill(consortium: Consortium, party: str, message: bytes) -> bytes:
        if party == victim and message not in seen:
            seen.add(message)
            consortium.restart(victim)
        return message

    made.before = kill
    run = made.lead()
    check_same(run, in_memory(tmp_path, made))
    restarts = [event for event in run.events if event["event"] == "restarted"]
    assert {event["party"] for event in restarts} == {victim}


def test_calls_that_are_lost_are_repeated_and_answered_alike(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)
    answers: dict[bytes, bytes] = {}

    def lose(consortium: Consortium, party: str, message: bytes) -> bytes:
        if message not in answers:
            answers[message] = consortium.nodes[party].answer(message)
            raise ConnectionError("the answer is lost")
        return message

    made.before = lose
    run = made.lead()
    check_same(run, in_memory(tmp_path, made))


def dying_after(calls: int) -> Before:
    """Return what lets the coordinator die after so many calls."""
    left = calls

    def die(consortium: Consortium, party: str, message: bytes) -> bytes:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return message

    return die


def test_a_run_whose_coordinator_dies_goes_on_when_submitted_again(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)
    whole = len(Consortium.of(tmp_path / "whole").lead().events)
    for calls in range(4, 40, 9):
        made.before = dying_after(calls)
        try:
            made.lead(f"run{calls}")
        except KeyboardInterrupt:
            made.before = lambda consortium, party, message: message
            run = made.lead(f"run{calls}")
        check_same(run, in_memory(tmp_path / f"m{calls}", made))
        assert len(run.events) >= whole


def charged(made: Consortium) -> dict[str, list[tuple[int, str]]]:
    """Return round and stage of each entry in each party's ledger."""
    return {
        name: [
            (row["round"], row["content"]["stage"])
            for row in ledger_history.history(home.folder / "ledgers")
            if row["kind"] == "entry"
        ]
        for name, home in made.homes.items()
        if any((home.folder / "ledgers").glob("*.ledger"))
    }


GRADIENT = {"name": "gradient", "outcome": "sex", "predictors": ["age"], "family": "binomial",
            "rounds": 3}  # fmt: skip
ONE_STEP = {"name": "one_step", "outcome": "age", "predictors": ["sex"]}
STEPS = ["cohort", "centres", "products", "lengths", "scores"]
PRIVATE = {"privacy": noised(2.0, "round"), "protocol": {"name": "masked"}}


@pytest.mark.parametrize(
    ("changed", "calls", "stages"),
    [({"method": GRADIENT, "protocol": {"name": "plain"}}, 9, None),
     ({"method": ONE_STEP | {"centre": "site"}, **PRIVATE}, 13, STEPS)],
    ids=["exact rounds", "noisy sums"],
)  # fmt: skip
def test_a_coordinator_that_dies_again_and_again_charges_nothing_twice(
    tmp_path: Path, changed: dict[str, Any], calls: int, stages: list[str] | None
) -> None:
    """calls: a little more than a phase needs, so that each attempt gets on."""
    job = remote_job(**changed)
    whole = Consortium.of(tmp_path / "whole", job, rows=90)
    whole.lead()
    made = Consortium.of(tmp_path / "killed", job, rows=90)
    deaths = 0
    while not (made.homes["coordinator"].folder / "runs" / "run").exists():
        made.before = dying_after(calls)
        try:
            made.lead()
        except KeyboardInterrupt:
            deaths += 1
    assert deaths > 2
    assert charged(made) == charged(whole)
    for site in SITES if stages else ():
        assert [stage for _, stage in charged(made)[site]] == stages


def asks(patch: pytest.MonkeyPatch, *stages: str) -> None:
    """Let the coordinator ask for these sums only, with messages of its own."""
    message = {"T": np.eye(2), "b": np.zeros(2), "h": 1.0}
    patch.setattr(OneStep, "initial_state", lambda self, public: {"asked": 0})
    patch.setattr(
        OneStep, "next_request", lambda self, state:
        (stages[state["asked"]], message) if state["asked"] < len(stages) else None
    )  # fmt: skip
    patch.setattr(
        OneStep, "aggregate", lambda self, state, total, sites: {"asked": state["asked"] + 1}
    )
    patch.setattr(OneStep, "result", lambda self, *rest: Result({"method": "one_step"}))


def test_a_coordinator_that_asks_for_the_last_sum_alone_is_charged_for_it_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Consortium.of(tmp_path, remote_job(method=ONE_STEP, **PRIVATE), rows=90)
    asks(monkeypatch, "scores", "scores")
    with pytest.raises(SecaggError):
        made.lead()
    for site in SITES:
        assert charged(made)[site] == [(0, "cohort"), (1, "scores")]


@pytest.mark.parametrize("stages", [("scores",), ("products", "scores")])
def test_a_changed_job_cannot_have_later_sums_beyond_a_sites_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stages: tuple[str, ...]
) -> None:
    """The first job ends after two sums. What it left of the budget is enough for some of another's
    sums, but not for that whole job."""
    job = remote_job(method=ONE_STEP, **PRIVATE)
    made = Consortium.of(tmp_path, job, rows=90)
    for name in SITES:
        (made.homes[name].folder / "policy.toml").write_text(
            "min_sites = 2\nmin_records = 2\n[budget]\nperiod_epsilon = 3.8\nperiod_delta = 1e-6\n"
        )
        approve(made.homes[name], job.model_copy(update={"title": "Again"}))
        made.restart(name)

    def stop(consortium: Consortium, party: str, message: bytes) -> bytes:
        if len(charged(consortium).get("south", ())) == 3:  # the count, centres and products
            raise KeyboardInterrupt
        return message

    made.before = stop
    with pytest.raises(KeyboardInterrupt):
        made.lead()
    made.before = lambda consortium, party, message: message
    spent = charged(made)
    assert [stage for _, stage in spent["south"]] == STEPS[:3]
    made.job = job.model_copy(update={"title": "Again"})
    asks(monkeypatch, *stages)
    with pytest.raises(PolicyRefusal):
        made.lead("again")
    assert charged(made) == spent


def test_a_party_that_stays_away_is_named(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)

    def away(consortium: Consortium, party: str, message: bytes) -> bytes:
        if party == "west":
            consortium.let_the_deadline_pass()
        return message

    made.before = away
    with pytest.raises(ProtocolAbort) as caught:
        made.lead()
    assert caught.value.where == "west"
    assert not (made.homes["coordinator"].folder / "runs" / "run").exists()


def refused(made: Consortium, kind: type[SecaggError], where: str, **changed: Any) -> SecaggError:
    """Check that the run is refused with this error, which is returned, and releases nothing."""
    with pytest.raises(kind) as caught:
        made.lead(**changed)
    assert caught.value.where == where, caught.value.line()
    runs = made.homes["coordinator"].folder / "runs"
    assert not (runs / "run").exists()
    assert not any(charged(made).values())
    return caught.value


def test_a_job_that_is_not_approved_waits_and_releases_nothing(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path, approved=False)
    error = refused(made, PolicyRefusal, "north")
    assert all(f"{site} (policy)" in error.what for site in SITES[1:])
    (waiting,) = (made.homes["north"].folder / "waiting").iterdir()
    assert json.loads(waiting.read_bytes())["title"] == made.job.title


@pytest.mark.parametrize(
    "changes",
    [{"release": {"min_sites": 2, "min_records": 2}}, {"method": {"name": "moments",
      "fraction_bits": 60}}, {"title": "Another"}],
)  # fmt: skip
def test_a_changed_job_is_another_job(tmp_path: Path, changes: dict[str, Any]) -> None:
    made = Consortium.of(tmp_path)
    made.job = remote_job(**changes)
    refused(made, PolicyRefusal, "north")


def test_the_advice_of_a_refused_run_can_be_followed(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path, approved=False)
    with pytest.raises(PolicyRefusal) as caught:
        made.lead()
    assert "--overwrite" not in caught.value.advice  # no command here has it
    with pytest.raises(UsageError):  # the same name belongs to the unfinished run
        made.lead(title="Another")
    with pytest.raises(PolicyRefusal) as caught:  # another name can be used
        made.lead("other", title="Another")
    assert caught.value.where == "north"


def test_sites_with_other_keys_than_pinned_are_refused(tmp_path: Path) -> None:
    made, other = Consortium.of(tmp_path / "a"), Consortium.of(tmp_path / "b")
    made.homes["coordinator"] = other.homes["coordinator"]  # which pins other keys of all sites
    refused(made, PeerError, "north")


def test_a_coordinator_that_the_sites_have_not_pinned_is_refused(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)
    forged = Home.create(tmp_path / "f", "coordinator", Role.COORDINATOR, system_random)
    known = made.homes["coordinator"].roster.parties
    roster = Roster(known | {"coordinator": forged.identity.public})
    forged.pin(roster, fingerprint(roster))
    made.homes["coordinator"] = forged
    refused(made, PeerError, "north")
    assert "signature" in (made.homes["north"].folder / "log.txt").read_text()


def test_records_that_change_during_a_run_end_it(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)
    asked = 0

    def change(consortium: Consortium, party: str, message: bytes) -> bytes:
        nonlocal asked
        asked += party == "north"
        if party == "north" and asked == 6:
            path = consortium.homes["north"].records
            path.write_text(path.read_text() + "50,male,low\n")
            consortium.restart("north")
        return message

    made.before = change
    with pytest.raises(SecaggError) as caught:
        made.lead()
    assert caught.value.where == "north" and "50" not in caught.value.line()


def test_another_version_of_secagg_is_named(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)

    def old(consortium: Consortium, party: str, answer: bytes) -> bytes:
        match canonical_encoding.loads(answer):
            case ["hello", _, *rest] if party == "south":
                return canonical_encoding.dumps(["hello", "0.0.9", *rest])
        return answer

    made.after = old
    refused(made, UsageError, "south")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (["refused", "usage"], UsageError),  # such as a client without a home
        (["refused", "policy"], PolicyRefusal),
        (["refused", "forged\nline"], PeerError),
        (["hello", "0.0.9\nforged line", "south", b"", b""], PeerError),
    ],
)
def test_a_party_that_refuses_the_greeting_is_named_and_adds_no_line(
    tmp_path: Path, answer: list[Any], kind: type[SecaggError]
) -> None:
    made = Consortium.of(tmp_path)
    made.after = lambda _, party, said: (
        canonical_encoding.dumps(answer) if party == "south" else said
    )
    error = refused(made, kind, "south")
    assert type(error) is kind and error.line().isprintable()


@pytest.mark.parametrize(
    "place",
    [
        "engines.site_node.check_approved",
        "engines.crash_safe_party.read_records",
        "site_steps.encode",
    ],
)
def test_an_exception_at_a_site_sends_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    made = Consortium.of(tmp_path, remote_job(engine={"deadline": 1}))
    seen: list[bytes] = []

    def record(consortium: Consortium, party: str, answer: bytes) -> bytes:
        seen.append(answer)
        return answer

    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("SECRET-4711")

    made.after = record
    monkeypatch.setattr(f"secagg.sessions.{place}", fail)
    with pytest.raises(SecaggError):
        made.lead()
    assert not any(b"SECRET-4711" in answer for answer in seen)
    assert "SECRET-4711" in (made.homes["north"].folder / "log.txt").read_text()


@pytest.mark.parametrize("name", ["../../elsewhere", "/tmp/elsewhere", "a.lost-b", ""])
def test_the_name_of_a_run_is_no_path(tmp_path: Path, name: str) -> None:
    made = Consortium.of(tmp_path / "made")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError):
        made.lead(name)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_second_private_run_over_a_sites_budget_is_refused(tmp_path: Path) -> None:
    first = remote_job(privacy=noised(2.0))
    made = Consortium.of(tmp_path, first, rows=90)  # so that the noisy count is large enough
    policy = made.homes["south"].folder / "policy.toml"
    policy.write_text(
        "min_sites = 2\nmin_records = 2\n[budget]\nperiod_epsilon = 3.5\nperiod_delta = 1e-6\n"
    )
    for name in SITES:
        approve(made.homes[name], remote_job(title="Again", privacy=noised(2.0)))
    for name in (*SITES, *SITES):
        made.restart(name)
    made.lead()
    spent = charged(made)
    made.job = first.model_copy(update={"title": "Again"})
    for _ in range(2):  # the second time, with new processes
        with pytest.raises(PolicyRefusal) as caught:
            made.lead("again")
        assert caught.value.where == "south" and charged(made) == spent
        made.restart("south")


def test_a_job_must_list_its_sites(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)
    sites = made.job.sites.model_copy(update={"names": None})
    refused(made, UsageError, "sites.names", sites=sites)


def test_a_site_that_the_coordinator_has_not_pinned_is_named(tmp_path: Path) -> None:
    """The rosters in which a site was removed, and in which it never was."""
    made = Consortium.of(tmp_path)
    home = made.homes["coordinator"]
    parties = {name: who for name, who in home.roster.parties.items() if name != "south"}
    home.pin(Roster(parties), fingerprint(Roster(parties)))
    error = refused(made, PolicyRefusal, "coordinator")
    assert "south" in error.what and not made.calls
    sites = made.job.sites.model_copy(update={"names": ("north", "planted", "west")})
    error = refused(made, PolicyRefusal, "coordinator", sites=sites)
    assert "planted" in error.what and not made.calls


def test_a_site_that_a_partys_own_roster_lacks_is_refused_there(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)
    for name in ("north", "west"):
        home = made.homes[name]
        parties = {who: card for who, card in home.roster.parties.items() if who != "south"}
        home.pin(Roster(parties), fingerprint(Roster(parties)))
        made.restart(name)
    refused(made, PeerError, "north")
    assert "south" in (made.homes["north"].folder / "log.txt").read_text()


def test_an_aggregator_that_nobody_pinned_is_missing(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)
    made.job = remote_job(protocol={"name": "additive"})
    refused(made, PolicyRefusal, "coordinator")


def test_a_run_waits_for_the_process_of_the_job_that_was_ended(tmp_path: Path) -> None:
    made = Consortium.of(tmp_path)
    quiet = made.before

    def die(consortium: Consortium, party: str, message: bytes) -> bytes:
        if canonical_encoding.loads(message)[0] == "handle":
            raise KeyboardInterrupt
        return message

    made.before = die
    with pytest.raises(KeyboardInterrupt):
        made.lead()
    made.before = quiet
    held, free = threading.Event(), threading.Event()

    def old_process() -> None:
        with exclusive_lock(made.homes[COORDINATOR].folder / "runs" / "run.partial" / "lock"):
            held.set()
            free.wait(10)

    other = threading.Thread(target=old_process)
    other.start()
    held.wait(10)
    threading.Timer(0.3, free.set).start()
    assert made.lead().facts["cohort"] == list(SITES)
    other.join()
