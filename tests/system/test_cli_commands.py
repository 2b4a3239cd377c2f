"""The commands when all goes well: run, plan, verify, list; as text and as JSON."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.runs.jobs import write_job
from typer.testing import CliRunner

from secagg import __version__
from secagg.cli.main import app
from secagg.evidence.integrity import verify_folder

FILES = {"result.json", "arrays.npz", "run.json", "log.jsonl", "report.html", "sums.bin"}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("job"))


def call(*args: str | Path) -> tuple[str, str]:
    """Return what `secagg ARGS` prints on stdout and stderr."""
    done = CliRunner().invoke(app, list(map(str, args)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


@pytest.mark.parametrize("protocol", ["plain", "additive", "masked"])
def test_the_run_command_writes_and_shows_a_result(
    job: Path, tmp_path: Path, protocol: str
) -> None:
    folder = tmp_path / "a" / "b"
    out, err = call("run", job, "--out", folder, "--protocol", protocol)
    assert "36 complete records at 3 sites" in out and "age" in out
    assert "protects nothing" in out if protocol == "plain" else "protects nothing" not in out
    assert verify_folder(folder).head in out
    assert "round   0 cohort     sum over 3 sites released" in err
    assert {path.name for path in folder.iterdir()} == FILES
    assert [path.name for path in folder.parent.iterdir()] == ["b"]
    assert str(folder / "report.html") in out.replace("\n", "")


def test_the_run_command_prints_json(job: Path, tmp_path: Path) -> None:
    out, err = call("run", job, "--out", tmp_path / "x", "--json")
    printed = json.loads(out)
    assert printed["result"] == json.loads((tmp_path / "x" / "result.json").read_text())
    assert printed["log"]["head"] == verify_folder(tmp_path / "x").head
    assert printed["folder"] == str(tmp_path / "x") and err == ""
    assert printed["warnings"] == ["This run protects nothing"]  # under `plain`


def test_frequent_clipping_is_shown_and_written_to_no_file(tmp_path: Path) -> None:
    """With all sites in one process, their own remarks are on the screen and nowhere else.

    They appear before the first release.
    """
    job = write_job(tmp_path / "job")
    narrow = ("--set", "columns.age.high=75", "--out", tmp_path / "x")
    _, err = call("run", job, *narrow)
    (remark, *_) = json.loads(call("run", job, *narrow, "--overwrite", "--json")[0])["remarks"]
    assert "north" in remark and "'age'" in remark and remark in err
    assert err.index(remark) < err.index("released")
    for path in (tmp_path / "x").iterdir():
        assert remark.encode() not in path.read_bytes(), path


def test_settings_reach_the_run(job: Path, tmp_path: Path) -> None:
    settings = ("--set", "title=Other", "--set", "method.fraction_bits=40")
    call("run", job, "--out", tmp_path / "x", *settings)
    facts = json.loads((tmp_path / "x" / "run.json").read_text())
    assert facts["title"] == facts["job"]["title"] == "Other"
    assert facts["method"]["settings"]["fraction_bits"] == 40


def test_a_run_is_written_to_the_default_folder(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call("run", job)
    assert {path.name for path in (tmp_path / "runs" / "job").iterdir()} == FILES


def test_plan_reads_no_record(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    for number, path in enumerate((tmp_path / "data").iterdir()):
        path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n\xff%d\n" % number)
    out, _ = call("plan", job)
    assert "moments" in out and "bits needed" in out
    planned = json.loads(call("plan", job, "--protocol", "additive", "--json")[0])
    assert planned["sites"] == ["north", "south", "west"]
    assert [stage["stage"] for stage in planned["stages"]] == ["cohort", "moments"]
    assert planned["stages"][1]["messages_a_round"] == 2 * 3 + 2 * 2 * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "job.toml"]


def test_plan_lists_set_up_separately(job: Path) -> None:
    protocol = ["--set", 'protocol={name="paillier", key_bits=2048}']
    planned = json.loads(call("plan", job, *protocol, "--json")[0])
    # consent twice, one deals, two install
    assert planned["setup"]["messages"] == 2 * (2 * 3 + 1 + 2)
    assert [stage["messages_a_round"] for stage in planned["stages"]] == [8, 8]


def test_plan_states_the_messages_of_all_rounds(job: Path) -> None:
    method = 'method={name="logistic", outcome="sex", predictors=["age"], max_rounds=7}'
    cohort, rounds = json.loads(call("plan", job, "--set", method, "--json")[0])["stages"]
    assert rounds["bytes_at_most"] == 7 * rounds["bytes_a_round"]
    assert cohort["bytes_at_most"] == cohort["bytes_a_round"]
    assert f"at most {rounds['bytes_at_most']:,}" in call("plan", job, "--set", method)[0]


@pytest.mark.parametrize("protocol", ["plain", "additive", "masked"])
def test_a_run_sends_the_planned_messages_and_bytes(
    job: Path, tmp_path: Path, protocol: str
) -> None:
    planned = json.loads(call("plan", job, "--protocol", protocol, "--json")[0])
    call("run", job, "--out", tmp_path / "x", "--protocol", protocol)
    facts = json.loads((tmp_path / "x" / "run.json").read_text())
    sent = sum(row["messages"] for row in facts["phases"])
    size = sum(row["bytes"] for row in facts["phases"])
    parts = [planned["setup"], *planned["stages"]]
    assert sum(part.get("messages", 0) + part.get("messages_a_round", 0) for part in parts) == sent
    # Integers in messages are as long as they need be: one number of records in each invitation.
    total = sum(part.get("bytes", 0) + part.get("bytes_a_round", 0) for part in parts)
    assert abs(total - size) <= 3 * 8


def test_the_verify_command_accepts_intact_and_rejects_changed_runs(
    job: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "x"
    call("run", job, "--out", folder)
    head = verify_folder(folder).head
    assert "intact" in call("verify", folder)[0]
    assert "intact" in call("verify", folder, "--head", head)[0]
    found = json.loads(call("verify", folder, "--json")[0])
    assert (found["head"], found["releases"], found["signatures"]) == (head, 2, 12)


def test_a_folder_without_its_sums_is_not_called_intact(job: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    call("run", job, "--out", folder)
    (folder / "sums.bin").unlink()
    for options in ((), ("--no-recompute",)):
        *_, verdict = call("verify", folder, *options)[0].splitlines()
        assert "not checked: the result" in verdict and "intact" not in verdict


def test_the_list_command_describes_components() -> None:
    for what, name in (("methods", "moments"), ("protocols", "additive")):
        lines = call("list", what)[0].partition("\n\n")[0].splitlines()
        assert name in [line.split()[0] for line in lines]
        assert len({line.index(line.split(None, 1)[1]) for line in lines}) == 1  # a column
        assert name in json.loads(call("list", what, "--json")[0])


def test_a_run_without_a_usable_result_ends_with_its_own_code(job: Path, tmp_path: Path) -> None:
    method = 'method={name="logistic", outcome="sex", predictors=["age"], max_rounds=1}'
    args = ["run", str(job), "--out", str(tmp_path / "run"), "--set", method, "--json"]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 7
    assert json.loads(done.stdout)["result"]["converged"] is False
    assert (tmp_path / "run" / "report.html").is_file()


def test_the_version_is_printed() -> None:
    assert call("--version")[0] == f"secagg {__version__}\n"


@pytest.mark.parametrize("args", [["run"], ["run", "a", "b"], ["nonsense"], ["run", "--nonsense"],
                                  ["list", "wishes"], ["verify"]])  # fmt: skip
def test_wrong_arguments_are_usage_errors(args: list[str]) -> None:
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 2 and "Traceback" not in done.output


def test_the_installed_command_uses_exit_codes_and_channels(job: Path, tmp_path: Path) -> None:
    """Once as a user runs it: exit codes and channels of a real process."""
    secagg = [sys.executable, "-m", "secagg.cli"]
    target = tmp_path / "x"
    done = subprocess.run(
        [*secagg, "run", job, "--out", target, "--json"], check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout)["folder"] == str(target) and done.stderr == ""
    log = target / "log.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"round":0', b'"round":9', 1))
    done = subprocess.run([*secagg, "verify", target], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr.startswith("secagg: log.jsonl line 2: ") and done.stderr.count("\n") == 1


def test_the_arrays_file_agrees_with_the_result(job: Path, tmp_path: Path) -> None:
    call("run", job, "--out", tmp_path / "x")
    result = json.loads((tmp_path / "x" / "result.json").read_text())
    with np.load(tmp_path / "x" / "arrays.npz", allow_pickle=False) as arrays:
        assert int(arrays["n"]) == result["n"] == 36
        assert len(arrays["mean"]) == len(result["variables"]) == 4


def test_the_settings_command_shows_keys_and_names() -> None:
    out, _ = call("settings", "ols")
    assert out.startswith("outcome: text (required)\n    The outcome: ")
    assert "level: number (0.95)" in out and "`" not in out
    (setting,) = json.loads(call("settings", "additive", "--json")[0])
    assert (setting["name"], setting["type"]) == ("aggregators", "whole number")
    names = json.loads(call("settings", "--json")[0])
    listed = call("settings")[0]
    assert all(name in listed for group in names.values() for name in group)
    assert "ols" in names["analyses of the method moments"]
    assert call("settings", "plain")[0] == "plain has no keys\n"
