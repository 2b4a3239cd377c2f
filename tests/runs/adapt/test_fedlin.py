"""A new site after a run of HM2: against closed forms, and from a run's folder."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.fedlin.written_out import bounds, fedlin_job, linear_tables
from support.runs.run_folders import log_files
from typer.testing import CliRunner

import secagg
from secagg.cli.main import app
from secagg.cli.output.new_site import show_adapted
from secagg.core.arrays import Array
from secagg.core.randomness import replayable_random, seeded_random
from secagg.errors import DataError, UsageError
from secagg.evidence.run_folder import RunFolder
from secagg.jobs.job import parse_job
from secagg.runs.adapt.fedlin import DRAWS, FinishedHm2Run, NewSitePosterior, fit_new_site
from secagg.runs.simulate import simulate

MU, TAU, NOISE = 0.7, 0.4, 0.3
KNOWN = {
    "name": "fedlin_hm2", "intercept": "none", "scale": "own", "noise_sd": NOISE**0.5,
    "mu_mean": MU, "mu_sd": 1e-4, "log_tau_mean": np.log(TAU), "log_tau_sd": 1e-4, "draws": 100,
    "level": 0.9,
}  # fmt: skip
"""What sites share is as good as known: theta ~ N(MU, TAU I)."""


def shared(method: dict[str, object], d: int = 2, **changed: object) -> FinishedHm2Run:
    tables = linear_tables((20, 25), d=d)
    wide = {name: {**c, "low": -60.0, "high": 60.0} for name, c in bounds(tables).items()}
    job = fedlin_job(method, wide, **changed)
    return FinishedHm2Run.of(parse_job(job), simulate(job, tables, random=replayable_random(1)))


@pytest.fixture(scope="module")
def known() -> FinishedHm2Run:
    return shared(KNOWN)


def records(n: int) -> pd.DataFrame:
    return linear_tables((n,), d=2, seed=7)["s000"]


@pytest.mark.parametrize("n", [0, 1, 5, 50])
def test_the_new_sites_posterior_agrees_with_the_closed_form(known: FinishedHm2Run, n: int) -> None:
    """theta ~ N(P^-1 (X'y / s + MU / TAU), P^-1), P = X'X / s + I / TAU; else the prior."""
    table = records(n)
    X, y = table[["x0", "x1"]].to_numpy(), table["y"].to_numpy()
    cov = np.linalg.inv(X.T @ X / NOISE + np.eye(2) / TAU)
    mean, sd = cov @ (X.T @ y / NOISE + MU / TAU), np.sqrt(np.diagonal(cov))
    check_slopes(fit_new_site(known, table, random=seeded_random(bytes(32))), mean, sd)


def check_slopes(found: NewSitePosterior, mean: Array, sd: Array) -> None:
    for j, row in enumerate(found.table()[1:]):
        assert abs(row["mean"] - mean[j]) < 4.5 * sd[j] / np.sqrt(DRAWS) + 1e-3 * sd[j]
        assert abs(row["sd"] / sd[j] - 1) < 4.5 / np.sqrt(2 * DRAWS) + 1e-3


def test_the_new_sites_intercept_agrees_with_the_closed_form() -> None:
    """With slopes as good as known, N(mean of y - mu' mean of x, variance / n)."""
    run = shared({**KNOWN, "intercept": "site", "log_tau_mean": np.log(1e-8)})
    table, n = records(12), 12
    row = fit_new_site(run, table, random=seeded_random(bytes(32))).table()[0]
    mean, sd = table["y"].mean() - MU * (table["x0"] + table["x1"]).mean(), np.sqrt(NOISE / n)
    assert abs(row["mean"] - mean) < 4.5 * sd / np.sqrt(DRAWS) + 1e-2 * sd
    assert abs(row["sd"] / sd - 1) < 4.5 / np.sqrt(2 * DRAWS) + 1e-3


POOLED = {"name": "fedlin_hm2", "draws": 100}


@pytest.mark.parametrize("n", [0, 3, 40])
def test_with_site_variances_the_new_site_estimates_its_own_noise(n: int) -> None:
    """(Squared residuals + 4 pooled) / (degrees of freedom + 4), in the outcome's unit."""
    run, table = shared({**POOLED, "variance": "site"}), records(n)
    table["y"] *= 3  # noisier than the run's sites
    pooled = run.noise * (run.layout.half_range[0] / run.scale[0]) ** 2
    X = table[["x0", "x1"]] - table[["x0", "x1"]].mean()
    y = table["y"] - table["y"].mean()
    squares, left = 0.0, max(n - 3, 0)
    if left:
        squares = float(np.linalg.lstsq(X.to_numpy(), y.to_numpy(), rcond=None)[1][0])
    told = fit_new_site(run, table, random=seeded_random(bytes(32))).summary()
    expected = (squares + 4 * pooled) / (left + 4)
    assert told["error_sd"] ** 2 == pytest.approx(expected, rel=1e-9)


def test_the_new_sites_slopes_use_its_own_noise() -> None:
    """The closed form above, with the noise of a site whose outcomes are 3 times the others'."""
    method: dict[str, object] = {k: v for k, v in KNOWN.items() if k != "noise_sd"}
    run, table = shared({**method, "variance": "site"}), records(8)
    X, y = table[["x0", "x1"]].to_numpy(), 3 * table["y"].to_numpy()
    squares = float(np.linalg.lstsq(X, y, rcond=None)[1][0])
    noise = (squares + 4 * run.noise) / (8 - 2 + 4)  # in own units, in which it is analysed
    assert noise > 2 * run.noise
    cov = np.linalg.inv(X.T @ X / noise + np.eye(2) / TAU)
    mean, sd = cov @ (X.T @ y / noise + MU / TAU), np.sqrt(np.diagonal(cov))
    check_slopes(fit_new_site(run, table.assign(y=y), random=seeded_random(bytes(32))), mean, sd)


@pytest.mark.parametrize("settings", [{}, {"variance": "site", "noise_sd": 0.45}])
def test_pooled_or_known_noise_is_taken_from_the_run(settings: dict[str, object]) -> None:
    run = shared({**POOLED, **settings})
    pooled = run.noise**0.5 * run.layout.half_range[0] / run.scale[0]
    told = fit_new_site(run, records(40), random=seeded_random(bytes(32))).summary()
    assert told["error_sd"] == pytest.approx(settings.get("noise_sd", pooled), rel=1e-12)


def test_prediction_intervals_use_the_new_sites_own_noise() -> None:
    """A site with 7 times the others' noise: 90 % of 200 further records, if it is read rightly."""
    run = shared({**POOLED, "variance": "site"})
    noisy = linear_tables((300,), d=2, noise=2.0, seed=9)["s000"]
    told = fit_new_site(run, noisy.iloc[:100], random=seeded_random(bytes(32)))
    further = noisy.iloc[100:]
    ends = told.predictions(further, random=seeded_random(bytes(32)))
    held = np.mean((ends["low"] < further["y"]) & (further["y"] < ends["high"]))
    # of 200 records; and ends move by 0.34 of an error of log sd, which is 1 / sqrt(2 n)
    assert abs(held - 0.9) < 4.5 * np.sqrt(0.09 / 200 + 0.34**2 / 200)


def test_a_new_site_may_have_more_records_than_max_rows() -> None:
    run = shared(KNOWN, sites={"max_rows": 30})
    assert fit_new_site(run, records(40)).records == 40


def test_predictions_include_noise_and_posterior_uncertainty(known: FinishedHm2Run) -> None:
    table, further = records(5), records(30)
    X, y = table[["x0", "x1"]].to_numpy(), table["y"].to_numpy()
    cov = np.linalg.inv(X.T @ X / NOISE + np.eye(2) / TAU)
    mean = cov @ (X.T @ y / NOISE + MU / TAU)
    adapted = fit_new_site(known, table, random=seeded_random(bytes(32)))
    told = adapted.predictions(further.drop(columns="y"), random=seeded_random(bytes(32)))
    Z = further[["x0", "x1"]].to_numpy()
    sd = np.sqrt(np.einsum("ij,jk,ik->i", Z, cov, Z) + NOISE)
    error = 2.2 * sd / np.sqrt(DRAWS)  # of a 5 % quantile: 1 / density there
    assert np.all(np.abs(told["median"] - Z @ mean) < 4.5 * error)
    assert np.all(np.abs(told["high"] - Z @ mean - 1.645 * sd) < 4.5 * error)
    assert np.all(np.abs(told["low"] - Z @ mean + 1.645 * sd) < 4.5 * error)


@pytest.mark.statistical
@pytest.mark.parametrize("prior", ["normal", "ridge"])
def test_prediction_intervals_cover_90_percent_of_further_records(prior: str) -> None:
    """90 % of further records of sites like the run's; own intercepts, pooled units."""
    tables = linear_tables((30,) * 12, d=2, spread=0.4)
    method = {"name": "fedlin_hm2", "prior": prior, "draws": 100}
    everything = linear_tables((60,) * 24, d=2, spread=0.4)
    job = fedlin_job(method, bounds(everything))
    run = FinishedHm2Run.of(parse_job(job), simulate(job, tables, random=replayable_random(1)))
    held, many = 0, 0
    for k, site in enumerate(sorted(everything)[12:]):
        table = everything[site]
        told = fit_new_site(run, table.iloc[:10], draws=1000, random=seeded_random(bytes([k] * 32)))
        further = table.iloc[10:]
        ends = told.predictions(further, random=seeded_random(bytes([k] * 32)))
        inside = (ends["low"] < further["y"]) & (further["y"] < ends["high"])
        held, many = held + int(inside.sum()), many + len(further)
    # Twelve sites' records are no independent draws: each site's intercept and slopes err together.
    assert abs(held / many - 0.9) < 4.5 * np.sqrt(0.09 / (many / 5))


def test_adapting_works_from_a_run_folder_and_by_command(tmp_path: Path) -> None:
    tables = linear_tables((20, 25), d=2)
    job = fedlin_job({"name": "fedlin_hm2", "prior": "ridge", "draws": 100}, bounds(tables))
    ran = secagg.run(job, tables, out=tmp_path / "run", random=replayable_random(1))
    read = FinishedHm2Run.read(RunFolder.open(tmp_path / "run"))
    np.testing.assert_array_equal(read.mean, ran.result.arrays["shared_mean"])
    assert read.converged
    records(6).to_csv(tmp_path / "new.csv", index=False)
    call = ["adapt", str(tmp_path / "run"), str(tmp_path / "new.csv")]
    shown = CliRunner().invoke(app, call)
    assert shown.exit_code == 0
    printed = " ".join(shown.stdout.split())
    assert "of 6 records" in printed
    assert "they count twice" in printed
    assert re.search(r"-?[\d.]+ to -?[\d.]+", printed)  # an interval, as a run prints it
    records(6).iloc[:0].to_csv(tmp_path / "none.csv", index=False)
    nobody = CliRunner().invoke(app, ["adapt", str(tmp_path / "run"), str(tmp_path / "none.csv")])
    told = " ".join(nobody.stdout.split())
    assert nobody.exit_code == 0 and "count twice" not in told
    plain = CliRunner().invoke(app, [*call, "--json"])
    assert len(json.loads(plain.stdout)["coefficients"]) == 3
    predicted = CliRunner().invoke(app, [*call, "--predict", str(tmp_path / "new.csv")])
    assert "predicted_median" in predicted.stdout.splitlines()[0]
    assert len(predicted.stdout.splitlines()) == 7


def test_a_run_with_an_invalid_covariance_is_an_error(tmp_path: Path) -> None:
    tables = linear_tables((20, 25, 30), d=2)
    secagg.run(fedlin_job(POOLED, bounds(tables)), tables, out=tmp_path / "run")
    records(6).to_csv(tmp_path / "new.csv", index=False)
    with np.load(tmp_path / "run" / "arrays.npz") as kept:
        arrays = dict(kept)
    for wrong in (-1.0, np.nan, 0.0):
        covariance = wrong * arrays["shared_covariance"]
        np.savez(tmp_path / "run" / "arrays.npz", **arrays | {"shared_covariance": covariance})
        log_files(tmp_path / "run")
        shown = CliRunner().invoke(app, ["adapt", str(tmp_path / "run"), str(tmp_path / "new.csv")])
        assert isinstance(shown.exception, UsageError)


def test_a_site_without_usable_posterior_draws_is_an_error() -> None:
    """Slopes known to 1e-8 and noise of 1e-6: records that say otherwise have no weight at all."""
    far = {"log_tau_mean": -37.0, "log_tau_sd": 3.0, "mu_sd": 1e-6, "noise_sd": 1e-6}
    known = shared({**KNOWN, "noise_sd": 0.5})
    method = known.method.__class__(**{**vars(known.method), **far})
    cov = np.diag([1e-12, 1e-12, 9.0, 9.0])
    mean = np.array([0.7, 0.7, -37.0, -37.0])
    run = replace(known, method=method, mean=mean, cov=cov, noise=1e-12)
    with pytest.raises(UsageError):
        fit_new_site(run, records(50), random=seeded_random(bytes(32)))


def test_predictions_undo_the_logarithm_of_the_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    tables = linear_tables((20, 25), d=2)
    grown = {site: table.assign(y=np.exp(table["y"] / 3)) for site, table in tables.items()}
    columns = bounds(tables)
    columns["y"] = {"type": "continuous", "low": 1e-3, "high": 1e3, "transform": "log"}
    job = fedlin_job({"name": "fedlin_hm2", "prior": "ridge", "draws": 100}, columns)
    run = FinishedHm2Run.of(parse_job(job), simulate(job, grown, random=replayable_random(1)))
    new = grown["s000"]
    posterior = fit_new_site(run, new, random=seeded_random(bytes(32)))
    told = posterior.predictions(new)
    assert np.all(told["low"] > 0)
    assert np.mean((told["low"] < new["y"]) & (new["y"] < told["high"])) > 0.7
    assert posterior.summary()["logarithms"] == ["y"]
    show_adapted(posterior.summary())  # coefficients stay on the log scale
    assert "coefficients for log(y)" in " ".join(capsys.readouterr().out.split())


def test_unsuitable_tables_are_errors(known: FinishedHm2Run) -> None:
    with pytest.raises(DataError, match="'x1' is missing"):
        fit_new_site(known, records(3).drop(columns="x1"))
    with pytest.raises(DataError):
        fit_new_site(known, records(3)).predictions(records(3).assign(x0=np.nan))
    own = shared({"name": "fedlin_hm2", "prior": "ridge", "draws": 100})
    nobody = fit_new_site(own, records(3).iloc[:0])
    assert nobody.table()[0]["mean"] is None
    assert np.isfinite(nobody.table()[1]["mean"])
    with pytest.raises(UsageError):
        nobody.predictions(records(3))
