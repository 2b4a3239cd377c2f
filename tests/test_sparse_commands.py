"""The commands on the example of sparse regression, and on a field over the same columns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.checkout import ROOT
from typer.testing import CliRunner

from secagg.cli import app
from secagg.errors import CapabilityError
from secagg.verifying import verify_folder

SHORT = ("--set", "method.rounds=40", "--set", "method.chains=2")
FIELD = ("--set", "method={ name = 'sparse_markov', rounds = 24, chains = 2, fdr = 0.9 }")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    example = ROOT / "examples" / "heart-disease"
    shutil.copy(example / "sparse.toml", folder)
    shutil.copytree(example / "data", folder / "data", ignore=shutil.ignore_patterns("ledgers"))
    return folder / "sparse.toml"


def call(*args: str | Path) -> str:
    """Return what `secagg ARGS` prints on stdout and stderr, line breaks taken out."""
    done = CliRunner().invoke(app, list(map(str, args)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(f"{done.stdout} {done.stderr}".split())


def test_plan_tells_rounds_sizes_and_what_leaves(job: Path) -> None:
    plan = json.loads(call("plan", job, "--json"))
    (draws,) = (stage for stage in plan["stages"] if stage["stage"] == "draws")
    assert draws["max_rounds"] == 3000 and draws["bytes_a_round"] > 0
    values = {field["name"]: field["values"] for field in draws["fields"]}
    assert values["P"] == 4 * 9 * 10 // 2 and values["r"] == values["c"] == 4 * 9
    assert "All sums together may tell of single sites" in plan["warnings"]


def test_run_prints_a_table_its_prior_and_its_warnings(job: Path, tmp_path: Path) -> None:
    printed = call("run", job, *SHORT, "--out", tmp_path / "x")
    summary = json.loads((tmp_path / "x" / "result.json").read_text())
    for row in summary["coefficients"]:
        assert row["term"] in printed
        assert f"{row['pip']:.3f} +- {row['pip_mcse']:.3f}" in printed
    assert "95% interval" in printed and "in own units" in printed
    assert "η ~ IG(1, 1), one for all coefficients" in printed
    assert "2 chains of 40 rounds" in printed
    assert "do not rely on this result" in printed  # too few rounds, and it says so
    assert "Few independent draws" in printed
    assert verify_folder(tmp_path / "x").head in printed


def test_run_prints_the_pairs_of_a_field(job: Path, tmp_path: Path) -> None:
    printed = call("run", job, *FIELD, "--out", tmp_path / "x")
    summary = json.loads((tmp_path / "x" / "result.json").read_text())
    edges = [pair for pair in summary["pairs"] if pair["edge"]]
    assert f"{len(edges)} of {len(summary['pairs'])} pairs are edges" in printed
    first = summary["pairs"][0]
    sides = " / ".join(f"{side['pip']:.2f}" for side in first["sides"])
    assert f"{' - '.join(first['between'])} " in printed and sides in printed
    left = len(summary["pairs"]) - len(edges) - 10
    assert (f"{left} less likely pairs are in result.json" in printed) is (left > 0)


def test_sites_alone_have_a_table_of_their_own(job: Path, tmp_path: Path) -> None:
    alone = ("--set", "simulation.site_alone=true", "--set", "protocol.name=plain")
    printed = call("run", job, *SHORT, *alone, "--out", tmp_path / "x")
    summary = json.loads((tmp_path / "x" / "result.json").read_text())
    own = summary["simulation"]["site_alone"]
    for site, result in own.items():
        if result["converged"]:
            assert "each site by itself: mean, and PIP" in printed
            assert f"{result['coefficients'][0]['pip']:.2f}" in printed
        else:
            assert f"{site} alone gets no fit: Chains disagree" in printed


def test_plan_refuses_noise(job: Path) -> None:
    noise = "privacy={ placement = 'sum', epsilon = 8, delta = 1e-6, record_norm = 1.0 }"
    with pytest.raises(CapabilityError, match=r"'draws' has no bound .* Noise goes with moments"):
        call("plan", job, "--set", noise)


def test_methods_are_listed() -> None:
    printed = call("list", "methods")
    assert "sparse_regression" in printed and "sparse_markov" in printed
