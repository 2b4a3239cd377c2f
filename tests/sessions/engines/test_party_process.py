"""A party's process: it repeats its reply to a repeated request, and answers nothing twice."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.runs.jobs import SITES, write_job

from secagg.core import canonical_encoding
from secagg.core.frames import read_frame, write_frame
from secagg.core.identity import COORDINATOR, Identity, Role, Roster
from secagg.core.private_files import write_checked
from secagg.core.randomness import system_random
from secagg.errors import DataError, PeerError, RecordsRefusal
from secagg.jobs.job import Job, load_job
from secagg.models.moments.method import PooledMoments
from secagg.sessions.coordinator import Coordinator, Step
from secagg.sessions.coordinator_state import CoordinatorState, Status
from secagg.sessions.engines.party_process import PartyProcess
from secagg.sessions.parties import make_coordinator
from secagg.sessions.party import REFUSED
from secagg.sessions.planned_job import plan_job, session_of


class Table:
    """A coordinator and three sites with their folders, all in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job: Job = load_job(write_job(folder), {"release.min_sites": "2"})
        self.sites = {site: self.restarted(site) for site in SITES}
        self.planned = plan_job(self.job)
        self.keys = Identity.generate(COORDINATOR, Role.COORDINATOR, system_random)
        public = {site: process.identity.public for site, process in self.sites.items()}
        self.roster = Roster({COORDINATOR: self.keys.public} | public)
        self.opening = ["open", self.roster.to_plain(), b"nonce"]
        self.session = session_of(self.planned, self.roster, b"nonce")
        for process in self.sites.values():
            assert process.answer(self.opening) == ["opened", self.session]

    @property
    def coordinator(self) -> Coordinator:
        return make_coordinator(self.planned, self.keys, self.roster, self.session, system_random)

    def restarted(self, site: str) -> PartyProcess:
        place = self.folder / "parties" / site
        place.mkdir(parents=True, exist_ok=True)
        return PartyProcess(place, site, Role.SITE, self.job)

    def ask(self, site: str, request: bytes) -> bytes:
        """Ask the site's process as it stands; check that the answer names the request."""
        said, _, reply = self.sites[site].answer(["handle", request])
        assert said == "handled"
        return reply

    def phase(self, site: str, reply: bytes) -> str:
        return read_frame(reply, self.roster, COORDINATOR, self.session).header.phase

    def play_until(
        self, done: Callable[[CoordinatorState], bool], before: Callable[[], None] = lambda: None
    ) -> Step:
        """Play until a state that is `done`; call `before` before each exchange."""
        step = self.coordinator.start()
        while not done(step.state):
            before()
            replies = [self.ask(site, request) for site, request in step.requests.items()]
            step = self.coordinator.advance(step.state, replies)
        return step

    def play(self, before: Callable[[], None] = lambda: None) -> Step:
        return self.play_until(lambda state: state.status is Status.DONE, before)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_restarts_between_phases_do_not_change_the_result(table: Table) -> None:
    step, second = table.play(), Table(table.folder / "again")

    def restart() -> None:
        second.sites = {site: second.restarted(site) for site in SITES}

    same = second.play(restart)
    assert canonical_encoding.dumps(same.state.method) == canonical_encoding.dumps(
        step.state.method
    )
    assert same.state.counts["records"] == step.state.counts["records"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_repeated_request_has_the_same_reply(table: Table, restart: bool) -> None:
    step = table.play_until(lambda state: state.phase != "consent")  # with consent, it may repeat
    request = step.requests["north"]
    first = table.ask("north", request)
    if restart:
        table.sites["north"] = table.restarted("north")
    assert table.ask("north", request) == first
    assert table.phase("north", first) != REFUSED


@pytest.mark.parametrize("restart", [False, True])
def test_no_reply_is_sent_if_the_state_cannot_be_saved(
    table: Table, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    """The disk is full: there is no reply. Once there is space, the request is answered."""
    import secagg.sessions.engines.crash_safe_party as module

    written: list[str] = []

    def write(path: Path, value: Any, **how: Any) -> None:
        if path.name == "state" and full:
            raise OSError(28, "No space left on device")
        write_checked(path, value, **how)
        written.append(path.name)

    request = table.coordinator.start().requests["north"]
    monkeypatch.setattr(module, "write_checked", write)
    full = True
    with pytest.raises(OSError, match="No space"):
        table.ask("north", request)
    full = False
    if restart:
        table.sites["north"] = table.restarted("north")
    written.clear()
    assert table.phase("north", table.ask("north", request)) != REFUSED
    assert "state" in written  # a reply that is only in memory would be given twice


def test_a_different_request_for_the_same_phase_is_refused(table: Table) -> None:
    step = table.play_until(lambda state: state.phase != "consent")
    table.ask("north", step.requests["north"])
    frame = read_frame(step.requests["north"], table.roster, "north", table.session)
    other = write_frame(
        table.keys, table.session, 0, frame.header.phase, "north", {**frame.body, "more": 1}
    )
    for _ in range(2):
        assert table.phase("north", table.ask("north", other)) == REFUSED
        table.sites["north"] = table.restarted("north")
    assert table.ask("north", step.requests["north"])  # the last one answered is still remembered


@pytest.mark.parametrize(
    "garbage", [b"", b"garbage", b"\xff" * 99, canonical_encoding.dumps(["x", b"", b""])]
)
def test_garbage_instead_of_a_request_is_refused(table: Table, garbage: bytes) -> None:
    assert table.phase("north", table.ask("north", garbage)) == REFUSED
    request = table.coordinator.start().requests["north"]
    assert table.phase("north", table.ask("north", request)) != REFUSED


@pytest.mark.parametrize(
    "message", [None, [], ["handle"], ["handle", 1], ["open", [], b""], ["go"], b"handle", {}]
)
def test_malformed_messages_are_refused(table: Table, message: Any) -> None:
    with pytest.raises(PeerError):
        table.sites["north"].answer(message)


def test_after_a_data_error_is_fixed_the_request_is_answered(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the data is fixed, the same request is answered; the error text is in its log only."""
    path = table.folder / "data/north.csv"
    text = path.read_text()
    path.write_text(text.replace(",male", ",mael"))
    request = table.coordinator.start().requests["north"]
    reply = table.ask("north", request)
    assert table.phase("north", reply) == REFUSED and b"mael" not in reply
    assert "'mael' is not a declared level" in capsys.readouterr().err
    path.write_text(text)
    assert table.phase("north", table.ask("north", request)) != REFUSED


@pytest.mark.parametrize("failing", [PeerError("moments", "no"), ValueError("no")])
def test_a_refusal_by_the_method_is_remembered(
    table: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: Any
) -> None:
    """It may depend on records and message, so the session ends, even after a restart."""
    step = table.play_until(lambda state: state.round == 1 and state.phase != "consent")
    request = step.requests["north"]

    def refuse(*_: object) -> None:
        raise failing

    with monkeypatch.context() as patch:
        patch.setattr(PooledMoments, "contribute", refuse)
        reply = table.ask("north", request)
    body = read_frame(reply, table.roster, COORDINATOR, table.session).body
    assert body == {"code": "records"}
    log = capsys.readouterr().err  # with the traceback of an internal error
    assert ("Traceback" in log) == isinstance(failing, ValueError)
    asked = read_frame(request, table.roster, "north", table.session)
    phase, other = asked.header.phase, {**asked.body, "other": 1}
    for round_, body in ((1, asked.body), (1, other), (2, other)):
        table.sites["north"] = table.restarted("north")
        data = write_frame(table.keys, table.session, round_, phase, "north", body)
        again = read_frame(table.ask("north", data), table.roster, COORDINATOR, table.session)
        assert again.header.phase == REFUSED and again.body == {"code": "policy"}


def test_only_one_announced_number_of_records_is_accepted(table: Table) -> None:
    """A rule compares with the announced total, and the site remembers it after a restart."""
    step = table.play_until(lambda state: state.round == 1)
    policy = table.folder / "data/north.policy.toml"
    policy.write_text("min_sites = 2\nmin_records = 2\nmax_site_share = 0.5\n")
    honest = read_frame(step.requests["north"], table.roster, "north", table.session)
    assert honest.header.phase == "consent" and honest.body["records"] == 36
    said: list[str] = []
    for records in (13, 24, 36):  # of which north has 12
        table.sites["north"] = table.restarted("north")
        body = {**honest.body, "records": records}
        data = write_frame(table.keys, table.session, 1, "consent", "north", body)
        said.append(table.phase("north", table.ask("north", data)))
    assert said == [REFUSED] * 3


def test_records_may_not_change_between_rounds(table: Table) -> None:
    step = table.play_until(lambda state: state.round == 1)
    path = table.folder / "data/north.csv"
    text = path.read_text()
    path.write_text(text.rpartition("\n")[0].rpartition("\n")[0] + "\n")  # without its last record
    table.sites["north"] = table.restarted("north")
    reply = table.ask("north", step.requests["north"])
    body = read_frame(reply, table.roster, COORDINATOR, table.session).body
    assert body == {"code": RecordsRefusal.code}
    path.write_text(text)
    table.sites["north"] = table.restarted("north")
    reply = table.ask("north", step.requests["north"])
    assert table.phase("north", reply) != REFUSED


def test_a_party_accepts_one_opening_of_a_session(table: Table) -> None:
    """No second opening, with another roster or nonce, before or after a restart."""
    others = Table(table.folder / "others")
    for process in (table.sites["north"], table.restarted("north")):
        assert process.answer(table.opening) == ["opened", table.session]
        for opening in (others.opening, [*table.opening[:2], b"other"]):
            with pytest.raises(PeerError):
                process.answer(opening)
        assert process.session == table.session


def test_an_opening_with_another_key_job_or_data_is_refused(table: Table) -> None:
    """Another key or a missing file is an error; another job gives another session name."""
    shutil.rmtree(table.folder / "parties/north")
    with pytest.raises(PeerError):
        table.restarted("north").answer(table.opening)
    (table.folder / "data/south.csv").unlink()
    with pytest.raises(DataError):
        table.restarted("south")
    table.job = table.job.model_copy(update={"title": "Another"})
    west = table.restarted("west")
    assert west.session != table.session


def test_a_partys_files_are_private(table: Table) -> None:
    table.play()
    files = sorted((table.folder / "parties/north").iterdir())
    assert [path.name for path in files] == ["keys", "seconds", "session", "state"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
