"""A coordinator's own keys: made once, read again, private, never overwritten."""

import json
import stat
from pathlib import Path

import pytest
from support.runs.jobs import small_job, tables

import secagg
from secagg.cli import main
from secagg.core.key_file import make_key, read_key
from secagg.core.randomness import replayable_random
from secagg.errors import UsageError

RANDOM = replayable_random(1)


def test_a_created_key_file_is_read_again(tmp_path: Path) -> None:
    made = make_key(tmp_path / "key", "coordinator", RANDOM)
    again = read_key(tmp_path / "key", "coordinator")
    assert again == made
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_a_key_file_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    """No file is overwritten, no link is followed, and no folder is created."""
    (tmp_path / "file").write_text("something else")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in ("file", "link", "no/key"):
        with pytest.raises(UsageError):
            make_key(tmp_path / path, "coordinator", RANDOM)
    assert (tmp_path / "file").read_text() == "something else"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_a_file_that_is_not_a_key_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(UsageError):
        read_key(tmp_path / "key", "coordinator")


def test_runs_with_one_key_show_one_coordinator(tmp_path: Path) -> None:
    own = make_key(tmp_path / "key", "coordinator", RANDOM).public.verify_key.hex()
    shown = []
    for key in (tmp_path / "key", tmp_path / "key", None):
        run = secagg.run(small_job(), tables(), key=key)
        shown += [p["verify_key"] for p in run.facts["roster"] if p["role"] == "coordinator"]
    assert shown[0] == shown[1] == own != shown[2]


def test_the_key_command_keeps_an_existing_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def key(*more: str) -> str:
        monkeypatch.setattr("sys.argv", ["secagg", "key", str(tmp_path / "key"), *more])
        with pytest.raises(SystemExit) as ended:
            main.main()
        assert not ended.value.code
        return capsys.readouterr().out

    first = json.loads(key("--json"))
    assert first["made"] and not json.loads(key("--json"))["made"]
    assert key().strip() == first["key"]
