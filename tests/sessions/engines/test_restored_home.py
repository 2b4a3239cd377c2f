"""A party's home that is restored from an old copy, or has lost its state, answers nothing twice.

Each row of the table of `secagg.sessions.engines.progress` is a test.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.crashes.consortium import Consortium, remote_job

from secagg.core import canonical_encoding
from secagg.core.frames import peek_header, read_frame, write_frame
from secagg.core.identity import COORDINATOR
from secagg.errors import SecaggError
from secagg.sessions.engines import crash_safe_party, progress

PROTOCOLS = {
    "masked": {"name": "masked", "colluding": 0.0},
    "additive": {"name": "additive"},
    "threshold_paillier": {"name": "threshold_paillier", "key_bits": 2048},
}


@dataclass
class Recorded:
    """A finished run; north's home before each message to it, and after all of them."""

    made: Consortium
    session: bytes
    messages: list[bytes]
    answers: list[bytes]
    copies: list[Path]

    @property
    def home(self) -> Path:
        return self.made.homes["north"].folder

    def restore(self, at: int, *parts: str) -> None:
        """Put parts of the home back as they were before this message; all without `parts`."""
        self.made.nodes.pop("north").close()
        for part in parts or [path.name for path in self.home.iterdir()]:
            old, new = self.copies[at] / part, self.home / part
            shutil.rmtree(new) if new.is_dir() else new.unlink(missing_ok=True)
            if old.is_dir():
                shutil.copytree(old, new)
            elif old.exists():
                shutil.copy2(old, new)
        self.made.restart("north")

    def ask(self, message: bytes) -> Any:
        return canonical_encoding.loads(self.made.nodes["north"].answer(message))

    @property
    def opening(self) -> bytes:
        return next(m for m in self.messages if canonical_encoding.loads(m)[0] == "open")

    def phases(self) -> dict[tuple[int, str], int]:
        """Return the number of the message of each round and phase."""
        found = {}
        for n, message in enumerate(self.messages):
            match canonical_encoding.loads(message):
                case ["handle", _, bytes(frame)]:
                    found[peek_header(frame)] = n
        return found

    def changed(self, at: int, **body: Any) -> bytes:
        """Return a message of the coordinator with other content."""
        _, session, frame = canonical_encoding.loads(self.messages[at])
        keys = self.made.homes[COORDINATOR]
        asked = read_frame(frame, keys.roster, "north", session, key_phases=("deal", "install"))
        header = asked.header
        other = write_frame(
            keys.identity, session, header.round, header.phase, "north", asked.body | body
        )
        return canonical_encoding.dumps(["handle", session, other])


def record(folder: Path, protocol: str) -> Recorded:
    folder.mkdir()
    job = remote_job(protocol=PROTOCOLS[protocol], release={"min_sites": 2, "min_records": 2})
    made = Consortium.of(folder / "run", job)
    found = Recorded(made, b"", [], [], [])

    def before(_: Consortium, party: str, message: bytes) -> bytes:
        if party == "north":
            copy = folder / f"copy-{len(found.copies)}"
            shutil.copytree(found.home, copy)
            found.copies.append(copy)
            found.messages.append(message)
        return message

    def after(_: Consortium, party: str, answer: bytes) -> bytes:
        if party == "north":
            found.answers.append(answer)
        return answer

    made.before, made.after = before, after
    found.session = bytes.fromhex(made.lead().facts["session"])
    made.before = made.after = lambda _, __, message: message
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Recorded]]:
    known: dict[str, Recorded] = {}
    folder = tmp_path_factory.mktemp("restored")

    def get(protocol: str) -> Recorded:
        if protocol not in known:
            known[protocol] = record(folder / protocol, protocol)
            shutil.copytree(known[protocol].home, folder / protocol / "copy-end")
            known[protocol].copies.append(folder / protocol / "copy-end")
        known[protocol].restore(-1)
        return known[protocol]

    yield get
    for each in known.values():
        for node in each.made.nodes.values():
            node.close()


def old_steps(found: Recorded) -> list[int]:
    """Return the messages before which the state was older than at the end."""
    name = f"runs/{found.session.hex()}/state"
    end = (found.copies[-1] / name).read_bytes()
    states = [(copy / name) for copy in found.copies]
    return [n for n, path in enumerate(states) if path.exists() and path.read_bytes() != end]


@pytest.mark.attack
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_old_state_answers(runs: Callable[[str], Recorded], protocol: str) -> None:
    found = runs(protocol)
    assert len(old_steps(found)) >= 5
    for at in old_steps(found):
        found.restore(at, "runs")
        assert found.ask(found.opening) == ["refused", "evidence"]
        assert found.ask(found.messages[at]) in (["unknown"], ["refused", "evidence"])
    assert "old copy" in (found.home / "log.txt").read_text()


@pytest.mark.attack
def test_a_site_does_not_sign_a_second_list_of_survivors(runs: Callable[[str], Recorded]) -> None:
    """Two lists would open two sums, whose difference is one site's counts."""
    found = runs("masked")
    at = next(n for (_, phase), n in found.phases().items() if phase == "agree")
    found.restore(at, "runs")
    found.ask(found.opening)
    answer = found.ask(found.changed(at, survivors=["north", "south"]))
    assert answer == ["unknown"]


@pytest.mark.attack
@pytest.mark.parametrize("what", ["session", "state", "folder", "all"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_deleted_state_does_not_start_anew(
    runs: Callable[[str], Recorded], protocol: str, what: str
) -> None:
    found = runs(protocol)
    found.made.nodes.pop("north").close()
    folder = found.home / "runs" / found.session.hex()
    if what in ("session", "state"):
        (folder / what).unlink()
    else:
        shutil.rmtree(folder if what == "folder" else folder.parent)
    (found.home / "runs").mkdir(exist_ok=True)
    found.made.restart("north")
    assert found.ask(found.opening) == ["refused", "evidence"]
    for message in found.messages:
        assert found.ask(message)[0] in ("hello", "unknown", "refused")


def test_a_deleted_witness_is_noticed(runs: Callable[[str], Recorded]) -> None:
    found = runs("masked")
    found.made.nodes.pop("north").close()
    shutil.rmtree(found.home / "ledgers" / "sessions")
    found.made.restart("north")
    assert found.ask(found.opening) == ["refused", "evidence"]


def test_a_state_of_another_history_is_noticed(runs: Callable[[str], Recorded]) -> None:
    """As many steps, but not the same."""
    found = runs("masked")
    path = found.home / "ledgers" / "sessions" / found.session.hex()
    steps, head, before = progress.read_checked(path)
    progress.write_checked(path, [steps, head[::-1], before])
    assert found.ask(found.opening) == ["refused", "evidence"]
    progress.write_checked(path, [steps + 1, head, before])
    assert found.ask(found.opening) == ["refused", "evidence"]


@pytest.mark.parametrize(
    "killed",
    [pytest.param("before the state", marks=pytest.mark.system), "between",
     pytest.param("after the witness", marks=pytest.mark.system)],
)  # fmt: skip
def test_a_process_that_is_killed_at_any_write_goes_on(
    tmp_path: Path, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """North is killed in each message once, and the run has the bits of one that nobody killed."""
    job = remote_job(protocol=PROTOCOLS["masked"], release={"min_sites": 2, "min_records": 2})
    made, whole = Consortium.of(tmp_path / "a", job), Consortium.of(tmp_path / "b", job)
    written = crash_safe_party.write_checked
    seen: set[bytes] = set()
    armed = [False]
    kills = [0]

    def write(path: Path, value: Any, **options: Any) -> None:
        mine = armed[0] and made.homes["north"].folder in path.parents
        if mine and path.name == "state" and killed == "before the state":
            raise OSError("killed")
        if mine and path.parent.name == "sessions":
            if killed == "between":
                raise OSError("killed")
            written(path, value, **options)
            raise OSError("killed")
        written(path, value, **options)

    monkeypatch.setattr(crash_safe_party, "write_checked", write)

    def after(_: Consortium, party: str, answer: bytes) -> bytes:
        if party == "north" and armed[0]:
            armed[0] = False
            if canonical_encoding.loads(answer) == ["refused", "internal"]:
                kills[0] += 1
                made.restart("north")
                raise ConnectionError
        return answer

    def before(_: Consortium, party: str, message: bytes) -> bytes:
        if (
            party == "north"
            and canonical_encoding.loads(message)[0] == "handle"
            and message not in seen
        ):
            seen.add(message)
            armed[0] = True
        return message

    made.before, made.after = before, after
    run, other = made.lead(), whole.lead()
    assert kills[0] >= 5
    assert run.folder is not None and other.folder is not None
    assert (run.folder / "result.json").read_bytes() == (other.folder / "result.json").read_bytes()


@pytest.mark.attack
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_others_notice_a_home_that_is_restored_whole(tmp_path: Path, protocol: str) -> None:
    """State, ledger and witness are those before the count: it answers, and nothing is opened."""
    job = remote_job(
        protocol=PROTOCOLS[protocol], release={"min_sites": 2, "min_records": 2},
        method={"name": "gradient", "outcome": "sex", "predictors": ["age"], "family": "binomial",
                "rounds": 6},
    )  # fmt: skip
    made = Consortium.of(tmp_path / "run", job)
    home, copy = made.homes["north"].folder, tmp_path / "copy"
    restored = False

    def before(_: Consortium, party: str, message: bytes) -> bytes:
        nonlocal restored
        match canonical_encoding.loads(message):
            case ["handle", _, bytes(frame)] if party == "north":
                round_, _phase = peek_header(frame)
                if round_ == 1 and not copy.exists():
                    shutil.copytree(home, copy)
                if round_ == 3 and not restored:
                    restored = True
                    made.nodes.pop("north").close()
                    shutil.rmtree(home)
                    shutil.copytree(copy, home)
                    made.restart("north")
        return message

    made.before = before
    with pytest.raises(SecaggError) as caught:
        made.lead()
    assert restored and "different requests" in caught.value.line(), caught.value.line()
