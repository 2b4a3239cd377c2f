"""A finished run at a site that took no part: its coefficients, predictions and files."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import secagg
from secagg.cli.main import app
from secagg.cli.output import show_adapted, show_doubts
from secagg.core.randomness import replayable_random
from secagg.errors import DataError, EvidenceError, UsageError
from secagg.evidence.run_folder import RunFolder
from secagg.runs.adapt.sparse_bayes import FinishedSparseRun, adapt

LEVELS = ["low", "high"]


def site(n: int, seed: int, slope: float = 2.0, level: float = 50.0) -> pd.DataFrame:
    """y = level + slope x - 5 [group = high] + noise; z has no effect."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(10, 3, n), rng.normal(size=n)
    group = rng.choice(LEVELS, n)
    y = level + slope * x - 5 * (group == "high") + rng.normal(size=n)
    return pd.DataFrame({"z": z, "group": group, "y": y, "x": x})


def job(**method: Any) -> dict[str, Any]:
    wide = {"type": "continuous", "low": -50, "high": 150}
    return {
        "title": "three sites",
        "sites": {"max_rows": 500},
        "columns": {
            "z": {"type": "continuous", "low": -8, "high": 8},
            "group": {"type": "categorical", "levels": LEVELS},
            "y": wide,
            "x": wide,
        },
        "method": {
            "name": "sparse_regression",
            "outcome": "y",
            "rounds": 200,
            "chains": 2,
            **method,
        },
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1},
        "simulation": {"site_alone": False},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "out"
    data = {f"s{k}": site(60, k) for k in range(3)}
    secagg.run(job(), data, out=out, random=replayable_random(1))
    return out


@pytest.fixture(scope="module")
def run(folder: Path) -> FinishedSparseRun:
    return opened(folder)


def opened(folder: Path) -> FinishedSparseRun:
    return FinishedSparseRun.read(RunFolder.open_finished(folder))


def test_typical_and_atypical_new_sites_are_fitted(run: FinishedSparseRun) -> None:
    assert run.deviations is not None
    factor = run.deviations[0] / run.deviations[3]  # y's units for one of x
    for table, slope in ((site(80, 7), 2.0), (site(80, 8, slope=-2.0), -2.0)):
        found = adapt(run, table, random=replayable_random(2)).summary()["coefficients"]
        assert [row["term"] for row in found] == ["z", "group=high", "x"]
        assert abs(found[2]["own_units"]["mean"] - slope) < 0.15
        for name in ("mean", "sd", "median", "low", "high"):
            assert found[2]["own_units"][name] == pytest.approx(found[2][name] * factor)
    assert abs(found[0]["mean"]) < 0.05


def test_a_site_without_records_has_the_common_coefficients(run: FinishedSparseRun) -> None:
    empty = adapt(run, site(0, 1), random=replayable_random(3))
    middle = np.median(empty.newcomer.theta, axis=0)
    common = np.median(run.theta, axis=(0, 1))
    np.testing.assert_allclose(middle, common, atol=0.05)
    with pytest.raises(UsageError):
        empty.predictions(site(3, 2))


def test_predictions_are_in_the_outcomes_unit(run: FinishedSparseRun) -> None:
    adapted = adapt(run, site(40, 11, level=70.0), random=replayable_random(4))
    further = site(300, 12, level=70.0)
    found = adapted.predictions(further.drop(columns="y"), random=replayable_random(5))
    error = further["y"] - found["median"]
    assert abs(error.mean()) < 0.6 and error.std() < 1.3  # noise has 1; 40 records place the rest
    inside = np.mean((found["low"] < further["y"]) & (further["y"] < found["high"]))
    assert inside > 0.9
    shuffled = further[["x", "group", "z"]]
    again = adapted.predictions(shuffled, random=replayable_random(5))
    np.testing.assert_array_equal(again["median"], found["median"])


def test_with_site_scales_the_new_site_has_its_own_scale(tmp_path: Path) -> None:
    data = {f"s{k}": site(60, k) for k in range(3)}
    secagg.run(
        job(scale="site", rounds=50), data, out=tmp_path / "out", random=replayable_random(1)
    )
    run = opened(tmp_path / "out")
    assert run.deviations is None
    adapted = adapt(run, site(60, 9), random=replayable_random(2))
    found = adapted.predictions(site(100, 10), random=replayable_random(3))
    assert np.std(site(100, 10)["y"] - found["median"]) < 1.3


def test_unsuitable_tables_are_errors(run: FinishedSparseRun, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'x' is missing"):
        adapt(run, site(5, 1).drop(columns="x"))
    broken = site(5, 1)
    broken.loc[2, "x"] = np.nan
    adapted = adapt(run, site(5, 1), random=replayable_random(1))
    with pytest.raises(DataError):
        adapted.predictions(broken)
    for broken_facts in ("{}", "[]", '{"method": {}, "session": 1}'):
        (tmp_path / "run.json").write_text(broken_facts)
        (tmp_path / "result.json").write_text("{}")
        with pytest.raises(EvidenceError):
            opened(tmp_path)
    with pytest.raises(UsageError):
        adapt(run, site(5, 1), sweeps=1)
    out = tmp_path / "moments"
    secagg.run(job() | {"method": {"name": "moments"}}, {"a": site(9, 1), "b": site(9, 2)}, out=out)
    with pytest.raises(UsageError, match="'moments'"):
        opened(out)


@pytest.mark.parametrize("name", ["run.json", "log.jsonl", "result.json", "arrays.npz"])
def test_a_changed_or_missing_file_is_not_used(name: str, folder: Path, tmp_path: Path) -> None:
    """The error says how to go on. Files that are not used may be missing."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "report.html").unlink()
    (copy / "sums.bin").unlink()
    opened(copy)
    (copy / name).write_bytes((copy / name).read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(EvidenceError) as caught:
        opened(copy)
    assert "secagg verify" in caught.value.advice
    (copy / name).unlink()
    with pytest.raises((EvidenceError, UsageError)):
        opened(copy)


def test_predictions_for_rows_outside_the_bounds_are_not_clipped(run: FinishedSparseRun) -> None:
    adapted = adapt(run, site(20, 1), random=replayable_random(1))
    far = site(3, 2)
    far.loc[1, "x"] = 1000.0
    with pytest.raises(DataError, match="'x'"):
        adapted.predictions(far)
    beyond = site(20, 1)
    beyond["x"] += 1000.0
    assert "clipped" in adapt(run, beyond, random=replayable_random(1)).remarks[0]
    many = adapted.predictions(site(700, 3), random=replayable_random(1))  # max_rows is 500
    assert len(many["median"]) == 700


def test_predictions_undo_the_logarithm_of_the_outcome(tmp_path: Path) -> None:
    def positive(n: int, seed: int) -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=n)
        return pd.DataFrame({"x": x, "y": np.exp(1 + x + 0.1 * rng.normal(size=n))})

    columns = {
        "x": {"type": "continuous", "low": -8, "high": 8},
        "y": {"type": "continuous", "low": 1e-3, "high": 1e4, "transform": "log"},
    }
    data = {f"s{k}": positive(50, k) for k in range(3)}
    out, random = tmp_path / "out", replayable_random(1)
    secagg.run(job(rounds=50) | {"columns": columns}, data, out=out, random=random)
    adapted = adapt(opened(out), positive(40, 8), random=random)
    further = positive(50, 9)
    found = adapted.predictions(further, random=random)
    assert adapted.summary()["logarithms"] == ["y"]
    assert np.all(found["low"] > 0)
    assert np.corrcoef(found["median"], further["y"])[0, 1] > 0.98
    assert abs(np.log(found["median"] / further["y"]).mean()) < 0.1


def test_one_record_under_a_vague_prior_gives_finite_numbers(tmp_path: Path) -> None:
    data = {f"s{k}": site(40, k) for k in range(3)}
    vague = {"noise_shape": 1e-3, "noise_scale": 1e-3, "rounds": 50}
    secagg.run(job(**vague), data, out=tmp_path / "out", random=replayable_random(1))
    adapted = adapt(opened(tmp_path / "out"), site(1, 3), random=replayable_random(1))
    json.dumps(adapted.summary(), allow_nan=False)
    assert np.all(np.isfinite(adapted.predictions(site(3, 4))["median"]))


def test_fewer_than_two_records_have_no_mean(run: FinishedSparseRun) -> None:
    for m in (0, 1, 2):
        table = site(m, 3).assign(group=LEVELS[:m])
        adapted = adapt(run, table, random=replayable_random(1))
        found = adapted.summary()
        for j, row in enumerate(found["coefficients"]):
            draws = adapted.newcomer.theta[:, j]
            assert row["low"] < row["median"] == np.median(draws) < row["high"]
            assert (row["mean"] is None) == (row["sd"] is None) == (row["mcse_mean"] is None)
            assert row["mean"] == (pytest.approx(draws.mean()) if m == 2 else None)
        assert ("neither a mean" in " ".join(found["notes"])) is (m < 2)


def test_a_column_constant_at_the_new_site_has_no_mean(run: FinishedSparseRun) -> None:
    found = adapt(run, site(30, 3).assign(group="low"), random=replayable_random(1)).summary()
    none = [row["term"] for row in found["coefficients"] if row["mean"] is None]
    assert none == ["group=high"]
    assert "'group=high'" in found["notes"][-1]


def test_warnings_of_an_unconverged_run_are_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {f"s{k}": site(60, k) for k in range(3)}
    short = secagg.run(job(rounds=10), data, out=tmp_path / "out", random=replayable_random(1))
    assert not short.result.summary["converged"]
    found = adapt(opened(tmp_path / "out"), site(30, 5), random=replayable_random(1)).summary()
    assert found["run"] == {"converged": False, "notes": short.result.summary["notes"]}
    show_adapted(found)
    printed = " ".join(capsys.readouterr().out.split())
    assert "! the run: do not rely on this result" in printed
    assert " ".join(found["run"]["notes"][0].split()) in printed
    show_doubts(found)  # of predictions, which go to standard output
    told = capsys.readouterr()
    assert "! the run: do not rely on this result" in told.err and not told.out
    show_adapted(found | {"run": {"converged": True, "notes": ["a note on it"]}})
    printed = capsys.readouterr().out
    assert "the run: do not" not in printed and "notes on the run:\n  - a note on it" in printed


def test_disagreeing_chains_are_reported_for_the_new_site(run: FinishedSparseRun) -> None:
    """One of the run's chains is elsewhere: no number of sweeps would help."""
    apart = run.theta + 10.0 * np.array([0, 1])[:, None]
    elsewhere = replace(run, theta=apart)
    found = adapt(elsewhere, site(0, 5), random=replayable_random(1)).summary()
    assert found["enough_sweeps"] and not found["converged"]
    assert "R-hat is" in found["notes"][0] and "method.rounds" in found["notes"][0]
    q, order = run.t.shape[-1], np.random.default_rng(1).permutation(run.t[..., 0].size)
    theta, t = (x.reshape(-1, q)[order].reshape(x.shape) for x in (run.theta, run.t))
    shuffled = replace(run, theta=theta, t=t)  # of independent draws, all from one law
    assert adapt(shuffled, site(0, 5), random=replayable_random(1)).summary()["converged"]


def test_the_table_is_shown_without_own_units_or_means(
    run: FinishedSparseRun, capsys: pytest.CaptureFixture[str]
) -> None:
    found = adapt(run, site(30, 5), random=replayable_random(1)).summary()
    show_adapted(found)
    assert "own units" in capsys.readouterr().out
    for row in found["coefficients"]:
        del row["own_units"]
    show_adapted(found | {"scale": "site", "enough_sweeps": False, "logarithms": ["x"]})
    printed = " ".join(capsys.readouterr().out.split())
    assert "own units" not in printed and "--sweeps" in printed
    show_adapted(adapt(run, site(1, 5)).summary() | {"logarithms": ["x"]})
    printed = " ".join(capsys.readouterr().out.split())
    assert " sd " not in printed and "log(x)" in printed


def test_the_adapt_command_writes_a_private_result(folder: Path, tmp_path: Path) -> None:
    here, expected, out = tmp_path / "here.csv", tmp_path / "wanted.csv", tmp_path / "own"
    site(30, 5).to_csv(here, index=False)
    site(4, 6).drop(columns="y").to_csv(expected, index=False)
    called = CliRunner().invoke(app, ["adapt", str(folder), str(here), "--out", str(out)])
    assert called.exit_code == 0 and "group=high" in called.output
    assert out.stat().st_mode & 0o777 == 0o600
    assert json.loads(out.read_text())["records_here"] == 30
    called = CliRunner().invoke(app, ["adapt", str(folder), str(here), "--predict", str(expected)])
    assert called.stdout.splitlines()[0].endswith("predicted_median,predicted_low,predicted_high")
    assert len(called.stdout.splitlines()) == 5  # doubts go to standard error
    again = CliRunner().invoke(app, ["adapt", str(folder), str(here), "--out", str(out)])
    assert isinstance(again.exception, UsageError)
