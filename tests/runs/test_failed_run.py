"""What a run leaves that fails after a release: its log, which can be verified and not forged."""

import json
from pathlib import Path

import pytest
from support.jobs import write_job
from typer.testing import CliRunner

import secagg
from secagg.cli.main import app
from secagg.core.frames import peek_header
from secagg.errors import EvidenceError, ProtocolAbort
from secagg.jobs.job import read_job
from secagg.runs.plan import plan_run
from secagg.runtime.planned_job import plan_job


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A run whose first site falls silent after the cohort round."""
    job = write_job(tmp_path)
    silent = sorted((tmp_path / "data").glob("*.csv"))[0].stem

    def tamper(sender, recipient, frame):
        return [] if sender == silent and peek_header(frame)[0] > 0 else [frame]

    with pytest.raises(ProtocolAbort, match="dropped out"):
        secagg.run(job, out=tmp_path / "out", tamper=tamper)
    assert not (tmp_path / "out").exists()
    (folder,) = tmp_path.glob("out.failed-*")
    return folder


def test_its_log_verifies(kept: Path) -> None:
    verified = secagg.verify_folder(kept)
    assert verified.releases == 1
    assert verified.signatures >= 3
    assert secagg.verify_folder(kept, verified.head) == verified


def test_it_is_not_taken_for_a_result(kept: Path) -> None:
    assert secagg.verify_folder(kept).failed == "abort"
    done = CliRunner().invoke(app, ["verify", str(kept)])
    told = f"{kept}: the log of a run that failed (abort) and has no result. The log is intact."
    assert done.exit_code == 0 and done.stdout.startswith(told)
    assert json.loads(CliRunner().invoke(app, ["verify", str(kept), "--json"]).stdout)["failed"]


def test_a_cut_log_does_not(kept: Path) -> None:
    log = kept / "log.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(EvidenceError, match=r"run\.json: is missing"):
        secagg.verify_folder(kept)


def test_another_head_does_not(kept: Path) -> None:
    with pytest.raises(EvidenceError, match="not the one that you gave"):
        secagg.verify_folder(kept, "0" * 64)


def test_plan_says_which_rule_will_refuse(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    assert plan_run(plan_job(read_job(job)))["refusals"] == []
    site = sorted((tmp_path / "data").glob("*.csv"))[0].stem
    (tmp_path / "data" / f"{site}.policy.toml").write_text("min_sites = 50\nmin_records = 1\n")
    planned = plan_run(plan_job(read_job(job)))
    assert planned["own_rules"][site]["min_sites"] == 50
    assert planned["refusals"] == [f"{site}, by its policy: min_sites: 3 sites, 50 needed"]
