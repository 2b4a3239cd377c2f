"""Consent before the first sum: a refusal by one site costs no other site any budget."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.privacy.ledger_runs import DELTA, FIVE, folder_with, noised, run
from support.protocols.world import SumNumbers, World, events, run_until
from support.runs.jobs import raw_job, table

from secagg.contracts import SiteRecords
from secagg.contracts.noise import Adjacency
from secagg.core.frames import peek_header, read_frame
from secagg.core.randomness import system_random
from secagg.errors import PolicyRefusal, SecaggError
from secagg.jobs.job import parse_job
from secagg.privacy.accounting.composition import Cap
from secagg.privacy.policy.release_rules import ReleasePolicy
from secagg.protocols.additive import Additive
from secagg.protocols.plain import Plain
from secagg.runs import budgets, ledger_history
from secagg.sessions.attestations import digest_request
from secagg.sessions.party import REFUSED
from secagg.sessions.planned_job import plan_job
from secagg.sessions.session import open_session

EMPTY_AGE = "age,sex,grade\n,male,low\n"
POLICY = "min_sites = 3\nmin_records = 2\n"


def entered(data: Path) -> list[str]:
    """Return the parties that have an entry in their ledgers."""
    rows = ledger_history.history(data / "ledgers")
    return sorted({row["party"] for row in rows if row["kind"] in ("entry", "use")})


def cap(data: Path, party: str, epsilon: float) -> None:
    whose = Cap(epsilon, DELTA, None, Adjacency.ADD_REMOVE)
    budgets.set_cap(data / "ledgers" / f"{party}.ledger", None, party, whose)


AMPLE = '[budget]\nperiod_epsilon = 100\nperiod_delta = 0.1\nexact_jobs = "by_rules"\n'


def write_policy(data: Path, more: str) -> None:
    """Write a policy of which only `more` can refuse a job here."""
    (data / "e.policy.toml").write_text(f"{POLICY}{more}\n{AMPLE}", encoding="utf-8")


def forbid_method(data: Path) -> None:
    """Also break the site's records, which are never read."""
    write_policy(data, 'methods = ["logistic"]\n')
    (data / "e.csv").write_text("age,sex,grade\nno,records,here\n")


BY_THE_JOB: dict[str, Any] = {
    "a rule on the job": forbid_method,
    "its budget": lambda data: cap(data, "e", 0.5),
    "the budget of the later rounds": lambda data: cap(data, "e", 0.99),
}
BY_RECORDS: dict[str, Any] = {
    "a rule on its records": lambda data: write_policy(data, "min_level_records = 30\n"),
    "too few records": lambda data: (data / "e.csv").write_text(EMPTY_AGE),
    "an unreadable cell": lambda data: (data / "e.csv").write_text("age,sex,grade\n?,mael,low\n"),
}
NOISED = (noised(), noised(placement="site"))
EXACT: dict[str, Any] = {}


def refused(tmp_path: Path, spoil: Any, privacy: dict[str, Any]) -> Path:
    """Try three runs, each refused by the last site."""
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
    """The other sites have recorded no release; the refusal is in the site's own ledger."""
    data = refused(tmp_path, BY_THE_JOB[spoil], privacy)
    assert entered(data) == []
    rows = [r for r in ledger_history.history(data / "ledgers") if "REFUSED" in r["text"]]
    assert [row["party"] for row in rows] == ["e"] * 3


@pytest.mark.parametrize("spoil", BY_RECORDS)
def test_without_noise_rules_on_records_apply_before_any_release(
    tmp_path: Path, spoil: str
) -> None:
    assert entered(refused(tmp_path, BY_RECORDS[spoil], EXACT)) == []


@pytest.mark.parametrize("privacy", NOISED, ids=str)
@pytest.mark.parametrize("spoil", BY_RECORDS)
def test_with_noise_no_rule_or_cell_refuses(
    tmp_path: Path, spoil: str, privacy: dict[str, Any]
) -> None:
    """A refusal would be exact and free. The site takes part with the records that it has."""
    data = folder_with(tmp_path)
    BY_RECORDS[spoil](data)
    run(data, privacy=privacy)
    assert set(entered(data)) == {*FIVE, "coordinator"}


@pytest.mark.parametrize(
    ("rule", "privacy"),
    [
        *(("min_total_records = 1000", privacy) for privacy in (*NOISED, EXACT)),
        ("max_site_share = 0.1", EXACT),
    ],
    ids=str,
)
def test_rules_on_the_count_apply_before_the_next_sum(
    tmp_path: Path, rule: str, privacy: dict[str, Any]
) -> None:
    """A rule on the total: the count was released and costs budget, the moments do not."""
    data = refused(tmp_path, lambda data: write_policy(data, rule + "\n"), privacy)
    rows = [r for r in ledger_history.history(data / "ledgers") if r["kind"] == "entry"]
    assert {row["content"]["stage"] for row in rows} == {"cohort"}
    assert {row["party"] for row in rows} == {*FIVE, "coordinator"}


def test_a_gradient_beyond_the_budget_charges_nobody(tmp_path: Path) -> None:
    """Consent covers all rounds; the first rounds alone would fit the budget."""
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


def test_a_repeated_release_needs_no_budget(tmp_path: Path) -> None:
    """A repeated release with the same noise costs nothing, so it needs no remaining budget."""
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
        said.remove("allowed: records: asked")  # once before the count, and once after it
        assert len(said) == len(set(said)) >= 4
    write_policy(data, 'methods = ["logistic"]\n')
    for number in (1, 2):
        with pytest.raises(PolicyRefusal):
            run(data)
        rows = [r for r in ledger_history.history(data / "ledgers") if "REFUSED" in r["text"]]
        assert [r["party"] for r in rows] == ["e"] * number


def test_consent_records_only_decisions_and_reads_no_records() -> None:
    """The whole run reads the records once."""
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
def test_a_silent_site_does_not_consent(protocol: Any) -> None:
    """The run continues without that site, if the rules allow it."""

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


def test_consent_frames_are_signed_and_empty() -> None:
    """A signed frame of this session with an empty body, for each site."""
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


def test_the_other_sites_are_asked_again_after_silence() -> None:
    """A site that requires more sites than are left refuses before any release."""
    rules = {"a": ReleasePolicy(5, 1)}

    def tamper(sender: str, recipient: str, frame: bytes) -> list[bytes]:
        return [] if sender == "e" else [frame]

    numbers = {name: [float(i)] * 2 for i, name in enumerate(FIVE)}
    w = World(Additive(2), numbers, SumNumbers((2,)), policies=rules, tamper=tamper)  # type: ignore[arg-type]
    with pytest.raises(PolicyRefusal) as caught:
        w.sum()
    assert caught.value.where == "a"
    assert {d.phase for d in w.engine.transcript} == {"consent", REFUSED}


def test_silence_that_would_expose_a_site_ends_the_run() -> None:
    """A sum over all five was released before; a sum over four would show the fifth."""

    def tamper(sender: str, recipient: str, frame: bytes) -> list[bytes]:
        return [] if sender == "e" else [frame]

    numbers = {name: [float(i)] * 2 for i, name in enumerate(FIVE)}
    w = World(Plain(), numbers, SumNumbers((2,)), tamper=tamper)  # type: ignore[arg-type]
    w.coordinator = replace(w.coordinator, earlier=(frozenset(FIVE),))
    with pytest.raises(PolicyRefusal):
        w.sum()
    assert {d.phase for d in w.engine.transcript} == {"consent"}
