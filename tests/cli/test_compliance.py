"""The commands `secagg report`, `secagg sign` and `secagg verify` of a report."""

import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.runs.jobs import raw_job, tables
from typer.testing import CliRunner

import secagg
from secagg.cli.failures import exit_with
from secagg.cli.main import app
from secagg.errors import EvidenceError, UsageError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "private"
    private = {"placement": "sum", "epsilon": 4, "delta": 1e-5, "record_norm": 1.5}
    secagg.run({**raw_job(protocol={"name": "masked"}), "privacy": private}, tables(60), out=place)
    return place


def call(*args: str | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, args)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_report_is_written_verified_and_signed(run: Path, tmp_path: Path) -> None:
    report, key = tmp_path / "report", tmp_path / "key"
    out = call("report", run, "--out", report)
    assert "evidence missing" in out and str(report / "report.html") in out
    assert "1 run intact" in call("verify", report)
    call("key", key)
    call("sign", report, "--key", key)
    checked: Any = json.loads(call("verify", report, "--json"))
    assert [(s["name"], s["known"]) for s in checked["signed"]] == [("coordinator", False)]


def test_the_twin_fits_its_published_schema(run: Path, tmp_path: Path) -> None:
    schema = json.loads(call("report", "--schema"))
    packaged = resources.files("secagg.compliance").joinpath("report.schema.json").read_text()
    assert schema == json.loads(packaged)
    jsonschema.Draft202012Validator.check_schema(schema)
    report: Any = json.loads(call("report", run, "--out", tmp_path / "report", "--json"))
    jsonschema.Draft202012Validator(schema).validate(report)
    assert report["registry"]
    report["sections"][0]["statements"][0]["status"] = "compliant"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(report)


def test_nobody_signs_a_report_that_does_not_hold(run: Path, tmp_path: Path) -> None:
    report, key = tmp_path / "report", tmp_path / "key"
    call("report", run, "--out", report)
    call("key", key)
    page = report / "report.html"
    page.write_text(page.read_text().replace("e⁴", "e¹"))
    with pytest.raises(EvidenceError):
        call("sign", report, "--key", key)
    assert not (report / "signatures").exists()


@pytest.mark.parametrize("arguments", [[], ["--home", "a", "--key", "b"]])
def test_a_signature_needs_one_key(run: Path, tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        call("sign", tmp_path, *arguments)


def test_a_report_needs_runs_and_a_new_folder(run: Path, tmp_path: Path) -> None:
    for arguments in (["--out", tmp_path / "new"], [run], [run, "--out", tmp_path]):
        with pytest.raises(UsageError):
            call("report", *arguments)


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_report_is_printed(run: Path, tmp_path: Path) -> None:
    call("report", run, "--out", tmp_path / "report", "--pdf")
    assert (tmp_path / "report" / "report.pdf").read_bytes().startswith(b"%PDF")
    call("verify", tmp_path / "report")


def test_names_in_a_folder_of_others_reach_no_terminal(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("report", run, "--out", tmp_path / "report")
    (tmp_path / "report" / "\x1b[2J\x9b.txt").touch()
    with pytest.raises(EvidenceError) as caught:
        call("verify", tmp_path / "report")
    with pytest.raises(SystemExit):
        exit_with(caught.value)
    said = capsys.readouterr().err
    assert "was added" in said and said.rstrip("\n").isprintable()
