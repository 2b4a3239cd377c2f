"""What a run leaves that fails after a release: its log, which can be verified and not forged."""

import json
from pathlib import Path

import pytest
from support.runs.jobs import write_job
from typer.testing import CliRunner

import secagg
from secagg.cli.main import app
from secagg.core.frames import peek_header
from secagg.errors import EvidenceError, ProtocolAbort


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A run whose first site falls silent after the cohort round."""
    job = write_job(tmp_path)
    silent = sorted((tmp_path / "data").glob("*.csv"))[0].stem

    def tamper(sender, recipient, frame):
        return [] if sender == silent and peek_header(frame)[0] > 0 else [frame]

    with pytest.raises(ProtocolAbort):
        secagg.run(job, out=tmp_path / "out", tamper=tamper)
    assert not (tmp_path / "out").exists()
    (folder,) = tmp_path.glob("out.failed-*")
    return folder


def test_a_failed_runs_log_verifies_as_failed(kept: Path) -> None:
    verified = secagg.verify_folder(kept)
    assert (verified.releases, verified.failed) == (1, "abort") and verified.signatures >= 3
    assert secagg.verify_folder(kept, verified.head) == verified
    done = CliRunner().invoke(app, ["verify", str(kept)])
    assert done.exit_code == 0 and "abort" in done.stdout
    assert json.loads(CliRunner().invoke(app, ["verify", str(kept), "--json"]).stdout)["failed"]


def test_a_failed_run_with_another_head_or_a_cut_log_is_rejected(kept: Path) -> None:
    with pytest.raises(EvidenceError):
        secagg.verify_folder(kept, "0" * 64)
    log = kept / "log.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(EvidenceError, match=r"run\.json"):
        secagg.verify_folder(kept)
