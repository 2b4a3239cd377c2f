"""The commands on the example of sparse regression, and on a field over the same columns."""

import json
import shutil
from pathlib import Path

import pytest
from support.runs.checkout import ROOT
from typer.testing import CliRunner

from secagg.cli.main import app
from secagg.errors import CapabilityError, UnusableResult
from secagg.evidence.integrity import verify_folder

SHORT = ("--set", "method.rounds=40", "--set", "method.chains=2")
FIELD = ("--set", "method={ name = 'sparse_markov', rounds = 24, chains = 2, fdr = 0.9 }")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    example = ROOT / "examples" / "heart-disease"
    shutil.copy(example / "sparse.toml", folder)
    shutil.copytree(example / "data", folder / "data", ignore=shutil.ignore_patterns("ledgers"))
    return folder / "sparse.toml"


def call(*args: str | Path, code: int = 0) -> str:
    """Return what `secagg ARGS` prints on stdout and stderr, line breaks taken out."""
    done = CliRunner().invoke(app, list(map(str, args)), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return " ".join(f"{done.stdout} {done.stderr}".split())


def test_plan_states_rounds_sizes_and_disclosure(job: Path) -> None:
    plan = json.loads(call("plan", job, "--json"))
    (draws,) = (stage for stage in plan["stages"] if stage["stage"] == "draws")
    assert draws["max_rounds"] == 3000 and draws["bytes_a_round"] > 0 and draws["all_run"]
    values = {field["name"]: field["values"] for field in draws["fields"]}
    assert values["P"] == 4 * 9 * 10 // 2 and values["r"] == values["c"] == 4 * 9
    assert "The sums together may reveal single sites" in plan["warnings"]


def test_plan_states_all_rounds_and_the_size_of_messages(job: Path) -> None:
    plan = json.loads(call("plan", job, "--json"))
    (draws,) = (stage for stage in plan["stages"] if stage["stage"] == "draws")
    # four sites send the same, and are sent as much as theta and t are, which is less
    assert draws["bytes_at_most"] / 8 < draws["a_site_sends_at_most"] < draws["bytes_at_most"] / 4
    printed = call("plan", job)
    assert "exactly 3,000" in printed
    assert f"sends about {plan['a_site_sends_at_most'] / 1e6:.1f} MB." in printed
    assert "In 3,002 rounds" in printed and "at most 3,000" not in printed


def test_plan_warns_of_very_large_messages(job: Path) -> None:
    longer = ("--set", "method.rounds=1000000")
    warned = json.loads(call("plan", job, *longer, "--json"))["warnings"]
    assert any("GB in all rounds together" in line for line in warned)


def test_run_prints_a_table_its_prior_and_its_warnings(job: Path, tmp_path: Path) -> None:
    printed = call("run", job, *SHORT, "--out", tmp_path / "x", code=UnusableResult.exit_code)
    summary = json.loads((tmp_path / "x" / "result.json").read_text())
    for row in summary["coefficients"]:
        assert row["term"] in printed
        assert f"{row['pip']:.3f} ± {row['pip_mcse']:.3f}" in printed
    assert "95 % interval" in printed and "in own units" in printed
    assert f"Sparse Bayesian regression of {summary['outcome']}" in printed
    assert "η ~ IG(1, 1)" in printed and "2 chains of 40 rounds" in printed
    assert "! Sparse Bayesian regression" in printed  # too few rounds, and it says so
    assert verify_folder(tmp_path / "x").head in printed


def test_run_prints_the_pairs_of_a_field(job: Path, tmp_path: Path) -> None:
    printed = call("run", job, *FIELD, "--out", tmp_path / "x", code=UnusableResult.exit_code)
    summary = json.loads((tmp_path / "x" / "result.json").read_text())
    edges = [pair for pair in summary["pairs"] if pair["edge"]]
    assert f"{len(edges)} of {len(summary['pairs'])} pairs are edges" in printed
    first = summary["pairs"][0]
    sides = " / ".join(f"{side['pip']:.2f}" for side in first["sides"])
    first_name, second_name = (name.split()[0] for name in first["between"])
    table = printed.split("R-hat tail")[1]  # which pair is first is random; long names wrap
    assert first_name in table.split(sides)[0] and second_name in table and sides in table
    assert [side["outcome"] for side in first["sides"]] == first["between"]
    left = len(summary["pairs"]) - len(edges) - 10
    assert (f"{left} less likely pairs are in result.json" in printed) is (left > 0)


def test_plan_refuses_noise(job: Path) -> None:
    noise = "privacy={ placement = 'sum', epsilon = 8, delta = 1e-6, record_norm = 1.0 }"
    with pytest.raises(CapabilityError) as caught:
        call("plan", job, "--set", noise)
    assert caught.value.where == "privacy.placement" and "site" in caught.value.advice
