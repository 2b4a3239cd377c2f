"""A party's node: each row of the table of its module, and what it accepts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.crashes.consortium import Consortium, remote_job
from support.runs.jobs import SITES

from secagg.core import canonical_encoding
from secagg.core.frames import write_frame
from secagg.core.identity import COORDINATOR, Identity, Role, Roster
from secagg.core.randomness import system_random
from secagg.core.version import __version__
from secagg.jobs.job import Job, parse_job
from secagg.runs.remote_run import plan_remote
from secagg.sessions.engines.site_node import OPEN, PartyNode
from secagg.sessions.homes.approvals import approve
from secagg.sessions.homes.home import Home
from secagg.sessions.planned_job import plan_sites, session_of

NONCE = b"0123456789abcdef"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Consortium]:
    consortium = Consortium.of(tmp_path)
    yield consortium
    for node in consortium.nodes.values():
        node.close()


def ask(made: Consortium, message: Any, party: str = "north") -> Any:
    return canonical_encoding.loads(made.nodes[party].answer(canonical_encoding.dumps(message)))


def opening(made: Consortium, **changed: Any) -> list[Any]:
    """Return the message that opens a session at north, with changed parts."""
    home = made.homes[COORDINATOR]
    roster, job = changed.get("roster", home.roster), changed.get("job", made.job)
    agreed = changed.get("sent", parse_job(job.agreed))
    session = changed.get("session", session_of(plan_remote(job), roster, NONCE))
    body = {"job": agreed.model_dump_json(), "roster": roster.to_plain(), "nonce": NONCE}
    frame = write_frame(
        changed.get("signer", home.identity), session, 0, changed.get("phase", OPEN),
        changed.get("recipient", "north"), body | changed.get("body", {}),
    )  # fmt: skip
    return ["open", session, frame]


def test_it_says_who_it_is(made: Consortium) -> None:
    public = made.homes["north"].identity.public
    hello = ["hello", __version__, "north", public.verify_key, public.seal_key]
    assert ask(made, ["hello"]) == hello


def test_an_opened_session_may_be_opened_again(made: Consortium) -> None:
    message = opening(made)
    for _ in range(2):
        assert ask(made, message) == ["opened", message[1]]
    made.restart("north")
    assert ask(made, ["handle", message[1], b"frame"]) == ["unknown"]
    assert ask(made, message) == ["opened", message[1]]
    assert ask(made, ["handle", message[1], b"frame"])[0] == "handled"


def test_the_oldest_of_many_sessions_waits_on_disk(made: Consortium) -> None:
    planned, roster = plan_remote(made.job), made.homes[COORDINATOR].roster
    nonces = [bytes([n]) * 16 for n in range(9)]
    messages = [
        opening(made, session=session_of(planned, roster, nonce), body={"nonce": nonce})
        for nonce in nonces
    ]
    for message in messages:
        assert ask(made, message) == ["opened", message[1]]
    first, *_, last = (message[1] for message in messages)
    assert ask(made, ["handle", last, b"frame"])[0] == "handled"
    assert ask(made, ["handle", first, b"frame"]) == ["unknown"]
    assert ask(made, messages[0]) == ["opened", first]


def other_roster(made: Consortium, change: str) -> Roster:
    """Return the pinned roster with another key of a site, or without a site."""
    parties = dict(made.homes[COORDINATOR].roster.parties)
    if change == "key":
        parties["south"] = Identity.generate("south", Role.SITE, system_random).public
    else:
        del parties["west"]
    return Roster(parties)


def test_an_opening_that_is_not_as_agreed_is_refused(made: Consortium) -> None:
    stranger = Identity.generate(COORDINATOR, Role.COORDINATOR, system_random)
    local = made.job.model_copy(
        update={"sites": made.job.sites.model_copy(update={"ledgers": Path("/tmp")})}
    )
    two = remote_job(sites={"max_rows": 100, "names": list(SITES[:2])})
    messages = {
        "signed by a stranger": opening(made, signer=stranger),
        "signed by a site": opening(made, signer=made.homes["south"].identity),
        "another phase": opening(made, phase="cohort"),
        "for another party": opening(made, recipient="south"),
        "another key": opening(made, roster=other_roster(made, "key")),
        "fewer sites than the job names": opening(made, roster=other_roster(made, "site")),
        "another session": opening(made, session=bytes(16)),
        "a job with a folder": opening(made, sent=local),
        "a title that rewrites the screen": opening(made, job=remote_job(title="A\x1b[2Jjob")),
        "a title that reads backwards": opening(made, job=remote_job(title="A \u202ejob")),
        "a job that is no job": opening(made, body={"job": "{}"}),
        "no roster": opening(made, body={"roster": [1]}),
        "no nonce": opening(made, body={"nonce": "text"}),
        "other sites than the roster's": opening(made, sent=two),
    }
    for what, message in messages.items():
        assert ask(made, message) == ["refused", "peer"], what
    for session in (message[1] for message in messages.values()):
        assert ask(made, ["handle", session, b""]) == ["unknown"]


@pytest.mark.attack
@pytest.mark.parametrize(
    ("rule", "colluding", "sites", "answer"),
    [
        ("stop", 0.0, "north south", "refused"),
        ("leave_out", 0.0, "north south", "refused"),  # a masked sum of five needs three
        ("leave_out", 0.0, "east north south", "refused"),  # without a part of a group
        ("leave_out", 0.0, "east north south up", "refused"),
        ("leave_out", 0.0, "east north up", "opened"),
        ("leave_out", 0.2, "east north up", "refused"),  # with one that colludes, four
        ("leave_out", 0.2, "east north south up west", "opened"),
    ],
)
def test_a_session_over_some_of_the_sites_needs_the_jobs_rule_and_whole_groups(
    tmp_path: Path, rule: str, colluding: float, sites: str, answer: str
) -> None:
    names = ["south", "west", "north", "east", "up"]  # two groups: of two sites, and of three
    job = remote_job(
        sites={"max_rows": 100, "names": names, "lost": rule},
        release={"min_sites": 2, "min_records": 2},
        protocol={"name": "masked", "colluding": colluding},
    )
    made = Consortium.of(tmp_path, job)
    pinned = made.homes[COORDINATOR].roster.parties
    roster = Roster({name: pinned[name] for name in (COORDINATOR, *sites.split())})
    planned = plan_sites(made.job, roster.with_role(Role.SITE), {})
    message = opening(made, roster=roster, session=session_of(planned, roster, NONCE))
    assert ask(made, message)[0] == answer
    for node in made.nodes.values():
        node.close()


@pytest.mark.parametrize("sites", [("north", "south", "west"), ("north",)])
def test_a_session_over_a_stranger_or_one_site_is_refused(
    tmp_path: Path, sites: tuple[str, ...]
) -> None:
    """All keys are pinned, and the job's rule lets sites be left out."""
    made = Consortium.of(tmp_path)
    two = remote_job(sites={"max_rows": 100, "names": list(SITES[:2]), "lost": "leave_out"},
                     release={"min_sites": 2, "min_records": 2})  # fmt: skip
    approve(made.homes["north"], two)
    pinned = made.homes[COORDINATOR].roster.parties
    roster = Roster({name: pinned[name] for name in (COORDINATOR, *sites)})
    session = session_of(plan_sites(two, sites, {}), roster, NONCE)
    assert ask(made, opening(made, job=two, roster=roster, session=session))[0] == "refused"
    roster = Roster({name: pinned[name] for name in (COORDINATOR, *SITES[:2])})
    assert ask(made, opening(made, job=two, roster=roster))[0] == "opened"
    for node in made.nodes.values():
        node.close()


def test_a_note_begins_one_line_and_moves_no_cursor(made: Consortium) -> None:
    home = made.homes["north"]
    home.note("first\x1b[2J\n2026-01-01T00:00:00 forged\rtoo")
    assert (home.folder / "log.txt").read_text().splitlines()[1:] == [
        "  2026-01-01T00:00:00 forged", "  too",
    ]  # fmt: skip
    assert "\x1b" not in (home.folder / "log.txt").read_text()


def test_a_roster_without_an_aggregator_of_the_job_is_refused(tmp_path: Path) -> None:
    """One aggregator alone would get a site's whole contribution as its share."""
    made = Consortium.of(tmp_path, remote_job(protocol={"name": "additive"}))
    parties = dict(made.homes[COORDINATOR].roster.parties)
    del parties["aggregator_1"]
    assert ask(made, opening(made, roster=Roster(parties))) == ["refused", "peer"]
    assert ask(made, opening(made))[0] == "opened"
    for node in made.nodes.values():
        node.close()


def test_an_unapproved_job_is_refused_and_waits(made: Consortium) -> None:
    job = remote_job(title="Another")
    assert ask(made, opening(made, job=job)) == ["refused", "policy"]
    approve(made.homes["north"], job)
    assert ask(made, opening(made, job=job))[0] == "opened"


def test_by_policy_no_job_waits(made: Consortium) -> None:
    home = made.homes["north"].folder
    settings = (home / "site.toml").read_text()
    (home / "site.toml").write_text(settings.replace('"each"', '"policy"'))
    made.restart("north")
    job = remote_job(title="Another")
    (home / "policy.toml").unlink()
    assert ask(made, opening(made, job=job)) == ["refused", "policy"]  # there is no policy
    (home / "policy.toml").write_text("min_sites = 2\nmin_records = 2\n")
    assert ask(made, opening(made, job=job))[0] == "opened"
    assert list((home / "waiting").iterdir()) == []


def test_a_session_that_another_process_holds_is_busy(
    made: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secagg.sessions.engines.site_node._LOCK_SECONDS", 0.0)
    message = opening(made)
    assert ask(made, message)[0] == "opened"
    first, made.nodes["north"] = (
        made.nodes["north"],
        PartyNode(Home.open(made.homes["north"].folder)),
    )
    assert ask(made, message) == ["busy"]
    first.close()
    assert ask(made, message)[0] == "opened"


def test_jobs_that_wait_cannot_fill_the_disk(
    made: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secagg.sessions.homes.approvals.MAX_WAITING", 2)
    for i in range(4):
        ask(made, opening(made, job=remote_job(title=f"Job {i}")))
    assert len(list((made.homes["north"].folder / "waiting").iterdir())) == 2


def test_a_job_that_is_too_long_does_not_wait(
    made: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secagg.sessions.homes.approvals.MAX_WAITING_BYTES", 5000)
    long = remote_job(title="x" * 5000)
    assert ask(made, opening(made, job=long)) == ["refused", "policy"]
    assert list((made.homes["north"].folder / "waiting").iterdir()) == []


def test_refused_messages_cannot_fill_the_disk(
    made: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secagg.sessions.homes.home.LOG_BYTES", 1000)
    home = made.homes["north"].folder
    for _ in range(100):
        ask(made, ["nonsense"])
        made.homes["north"].note("y" * 500)
    logs = sorted(home.glob("log*"))
    assert [path.name for path in logs] == ["log.1.txt", "log.txt"]
    assert all(
        1000 <= logs[0].stat().st_size < 2000 and path.stat().st_size < 2000 for path in logs
    )
    assert logs[1].read_text().endswith("y\n")
    assert all(path.stat().st_mode & 0o077 == 0 for path in logs)


def test_a_line_of_the_log_has_a_limit(made: Consortium) -> None:
    home = made.homes["north"]
    home.note("a lone surrogate \udc80 " + "z" * 1_000_000)
    assert (home.folder / "log.txt").stat().st_size < 100_000


def test_a_full_disk_sends_a_code_only(made: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    message = opening(made)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device: /secret/path")

    monkeypatch.setattr("secagg.sessions.engines.crash_safe_party.write_checked", full)
    monkeypatch.setattr("secagg.sessions.homes.home.open_private", full)
    assert ask(made, message) == ["refused", "internal"]


def test_too_long_a_message_is_not_decoded(made: Consortium) -> None:
    answer = made.nodes["north"].answer(bytes((1 << 22) + 1))
    assert canonical_encoding.loads(answer) == ["refused", "peer"]


@given(st.one_of(st.binary(max_size=60), st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["hello", "open", "handle"]) | st.binary(),
    lambda inner: st.lists(inner, max_size=4), max_leaves=6).map(canonical_encoding.dumps),
))  # fmt: skip
def test_any_bytes_have_an_answer(garbage: bytes) -> None:
    answer = canonical_encoding.loads(GARBAGE.answer(garbage))
    assert answer == ["refused", "peer"] or answer[0] in ("hello", "unknown")


class _NoHome:
    """Has what a node needs for a greeting."""

    name = "north"
    identity = Identity.generate("north", Role.SITE, system_random)
    roster = Roster({"coordinator": Identity.generate(COORDINATOR, Role.COORDINATOR,
                                                      system_random).public})  # fmt: skip

    def note(self, text: str) -> None:
        pass


GARBAGE = PartyNode(_NoHome())  # type: ignore[arg-type]


def test_a_job_is_the_same_after_it_was_sent() -> None:
    """So what was approved, from a file or from a message, has one digest."""
    job = remote_job()
    assert Job.model_validate_json(parse_job(job.agreed).model_dump_json()).agreed == job.agreed
