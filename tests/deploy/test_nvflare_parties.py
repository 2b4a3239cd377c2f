"""The object at a client of NVFLARE, without NVFLARE's processes."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from secagg.core import canonical_encoding
from secagg.core.identity import COORDINATOR, Role
from secagg.core.randomness import system_random
from secagg.sessions.homes.home import Home

pytestmark = pytest.mark.nvflare
HELLO = canonical_encoding.dumps(["hello"])


@pytest.fixture
def parties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module, in the kit of a client called north."""
    from secagg.deploy import nvflare_parties

    workspace = SimpleNamespace(get_site_config_dir=lambda: str(tmp_path))
    here = SimpleNamespace(site_name="north", workspace=workspace)
    monkeypatch.setattr(nvflare_parties, "collab", here)
    return nvflare_parties


def kit_of(folder: Path, home: str) -> None:
    records = folder / "records.csv"
    records.touch()
    made = Home.create(folder / home, home, Role.SITE, system_random, records)
    (folder / "secagg.home").write_text(f"{made.folder}\n")


def test_a_client_answers_from_the_home_that_its_kit_names(parties: Any, tmp_path: Path) -> None:
    kit_of(tmp_path, "north")
    party = parties.PartyObject()
    assert canonical_encoding.loads(party.answer(HELLO))[::2] == ["hello", "north", Home.open(
        tmp_path / "north").identity.public.seal_key]  # fmt: skip
    party._node.close()


@pytest.mark.parametrize("home", ["", "south"], ids=["none", "another party's"])
def test_a_client_without_its_own_home_refuses_and_tells_its_officer_only(
    parties: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], home: str
) -> None:
    if home:
        kit_of(tmp_path, home)
    assert canonical_encoding.loads(parties.PartyObject().answer(HELLO)) == ["refused", "usage"]
    assert str(tmp_path) in capfd.readouterr().err


def test_the_text_of_an_unforeseen_error_goes_nowhere(
    parties: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> None:
        raise ValueError("SECRET-4711")

    monkeypatch.setattr(parties, "_home", fail)
    answer = parties.PartyObject().answer(HELLO)
    said = capfd.readouterr()
    assert canonical_encoding.loads(answer) == ["refused", "usage"] and said.err
    assert "SECRET-4711" not in said.err + said.out


@pytest.mark.parametrize("aborts", [True, False])
def test_the_log_says_that_the_engine_ended_the_job(
    parties: Any, tmp_path: Path, aborts: bool
) -> None:
    home = Home.create(tmp_path / "home", COORDINATOR, Role.COORDINATOR, system_random)
    ended = threading.Event()
    if not aborts:
        ended.set()
    parties.note_abort(lambda: aborts, ended, home, "bp")
    log = home.folder / "log.txt"
    assert ("NVFLARE ended the job" in log.read_text()) if aborts else not log.exists()
