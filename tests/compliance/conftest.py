"""A compliance report, written once, and copies of it that a test may change."""

import json
import shutil
from pathlib import Path

import pytest
from support.runs.compliance import FORM, experiment
from support.runs.jobs import raw_job, tables

import secagg
from secagg.audits.audit import audit_job
from secagg.audits.audit_file import as_plain
from secagg.compliance.report_folder import write_report
from secagg.jobs.job import parse_job


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without noise, one with noise, an audit, an experiment, a form."""
    place = tmp_path_factory.mktemp("evidence")
    data, job = tables(60), raw_job(protocol={"name": "masked"})
    secagg.run(job, data, out=place / "exact")
    private = {"placement": "sum", "epsilon": 4, "delta": 1e-5, "record_norm": 1.5}
    secagg.run({**job, "privacy": private}, data, out=place / "private")
    audit = audit_job(
        parse_job({**job, "privacy": private}),
        data,
        attacks=["clear_contributions", "identified_share"],
    )
    (place / "audit").mkdir()
    (place / "audit" / "audit.json").write_text(json.dumps(as_plain(audit)))
    (place / "experiment").mkdir()
    (place / "experiment" / "summary.json").write_text(json.dumps(experiment()))
    (place / "form.toml").write_text(FORM)
    return place


@pytest.fixture(scope="module")
def written(folders: Path) -> Path:
    write_report(
        folders / "report", [folders / "private"], [folders / "audit"], [folders / "experiment"],
        form=folders / "form.toml",
    )  # fmt: skip
    return folders / "report"


@pytest.fixture
def report(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(written, tmp_path / "report")
    return tmp_path / "report"
