"""FedLin's table 1 and figure 3: what is simulated, the dense oracle, cells, and the command."""

import json
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from reproductions.__main__ import app
from reproductions.fedlin import table_1, tables
from reproductions.fedlin.tasks import centralised, hm1, hm1_by_round, runs, simulated_cases
from secagg.models.fedlin.hm1 import FedLinHm1
from secagg.models.fedlin.hm2 import FedLinHm2

Array = NDArray[np.float64]


# --- records --------------------------------------------------------------------------------------


def test_cases_have_the_papers_sizes() -> None:
    for name, devices, d, judged in (
        ("I", {20: 1, 200: 1}, 5, 1),
        ("II", {40: 30, 275: 70}, 8, 30),
        ("III", {20: 100}, 8, 100),
        ("IV", {200: 100}, 8, 100),
    ):
        drawn = simulated_cases.draw(name, 0.1, 0)
        sizes, many = np.unique([len(x) for x in drawn.X], return_counts=True)
        assert dict(zip(sizes.tolist(), many.tolist(), strict=True)) == devices
        assert drawn.theta.shape == (d, sum(devices.values()))
        assert len(drawn.test) == judged and drawn.test[0].shape == (1000, d)
    assert (
        len(simulated_cases.draw("II", 0.1, 0).X[29])
        == 40
        < len(simulated_cases.draw("II", 0.1, 0).X[30])
    )


def test_omega_agrees_with_the_paper() -> None:
    """Case I as printed; II to IV with eigenvalues from 1 to 10; V of rank 2."""
    root = simulated_cases.draw("I", 0.1, 0).root
    np.testing.assert_allclose(root @ root.T, [[1, 0.7], [0.7, 1]], atol=1e-15)
    for name in ("II", "III", "IV"):
        root = simulated_cases.draw(name, 0.1, 0).root
        w = np.linalg.eigvalsh(root @ root.T)
        assert w[0] >= 1 - 1e-9 and w[-1] <= 10 + 1e-9
        # 100 uniform values: the extremes are within 9 * 0.15 of the ends but for (0.85)^100.
        assert w[0] < 2.35 and w[-1] > 8.65
    root = simulated_cases.draw("V", 0.1, 0).root
    assert np.linalg.matrix_rank(root @ root.T) == simulated_cases.RANK


def test_rows_of_theta_have_the_covariance_omega() -> None:
    """Whitened by Omega they are 8 x 100 standard normals a draw: their mean square is 1, with
    standard error sqrt(2 / 2400) over three draws.
    """
    white = []
    for seed in range(3):
        drawn = simulated_cases.draw("III", 0.1, seed)
        white.append(np.linalg.solve(drawn.root, drawn.theta.T))
    squares = np.mean(np.square(white))
    assert abs(squares - 1) < 4.5 * np.sqrt(2 / np.size(white))


def test_noise_levels_share_all_other_draws_of_a_seed() -> None:
    """The residuals' mean square has standard error sqrt(2 / n) of the variance."""
    small, large = simulated_cases.draw("IV", 0.1, 1), simulated_cases.draw("IV", 0.316, 1)
    assert np.array_equal(small.theta, large.theta)
    assert all(map(np.array_equal, small.X, large.X))
    assert all(map(np.array_equal, small.test, large.test))
    for drawn, sd in ((small, 0.1), (large, 0.316)):
        fits = zip(drawn.X, drawn.y, drawn.theta.T, strict=True)
        noise = np.concatenate([y - x @ t for x, y, t in fits])
        assert abs(np.mean(noise**2) / sd**2 - 1) < 4.5 * np.sqrt(2 / noise.size)


def test_errors_are_averaged_over_the_scored_devices() -> None:
    """Coefficients off by e in one place are off by |e| |x| there: A-RMSE about |e|, noise-free."""
    drawn = simulated_cases.draw("II", 0.1, 0)
    off = drawn.theta.copy()
    off[0, :30] += 0.5
    off[1, 30:] += 100  # devices that are not scored
    found = simulated_cases.errors(drawn, off)
    by_hand = [np.sqrt(np.mean((0.5 * x[:, 0]) ** 2)) for x in drawn.test]
    assert found["free"] == pytest.approx(np.mean(by_hand), rel=1e-12)
    # sqrt(.25 + .01) = .5099; the mean square of 1000 points has error sqrt(2 / 1000), of 30 less.
    assert abs(found["noisy"] / np.sqrt(0.26) - 1) < 4.5 * np.sqrt(2 / 1000) / 2 / np.sqrt(30)
    exact = simulated_cases.errors(drawn, drawn.theta)
    assert exact["free"] == 0 and exact["noisy"] == pytest.approx(0.1, rel=0.02)


# --- with all records at hand ---------------------------------------------------------------------


def some_devices(seed: int = 0) -> tuple[list[Array], list[Array], Array]:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((4, 3))
    X = [rng.standard_normal((n, 2)) for n in (3, 5, 9, 4)]
    y = [rng.standard_normal(len(x)) + x @ [1.0, -1.0] for x in X]
    return X, y, root


def test_the_posterior_mean_agrees_with_the_dense_regression() -> None:
    """Against the dense regression of every record on vec(Theta), prior covariance Omega x I."""
    X, y, root = some_devices()
    omega, noise = root @ root.T + 0.2 * np.eye(4), 0.7
    root = np.asarray(np.linalg.cholesky(omega), dtype=np.float64)
    found = centralised.posterior_mean(X, y, root, noise)
    design = np.zeros((sum(map(len, X)), 8))
    at = 0
    for k, x in enumerate(X):
        design[at : at + len(x), 2 * k : 2 * k + 2] = x
        at += len(x)
    prior = np.kron(omega, np.eye(2))
    marginal = design @ prior @ design.T + noise**2 * np.eye(len(design))
    mean = prior @ design.T @ np.linalg.solve(marginal, np.concatenate(y))
    np.testing.assert_allclose(found, mean.reshape(4, 2).T, rtol=1e-9, atol=1e-12)


def test_rounds_equal_gradient_steps_with_implicit_shrinkage() -> None:
    """Step by step, with inverses where `dense` solves."""
    X, y, _ = some_devices()
    eta, a, alpha = np.array([0.02, 0.03, 0.01, 0.05]), np.array([0.1, 0.2, 0.05, 1.0]), 0.3
    found = list(islice(centralised.rounds(centralised.quadratics(X, y), eta, a, 3, alpha), 4))
    theta, omega = np.zeros((2, 4)), np.eye(4)
    for each in found:
        for k, (x, v) in enumerate(zip(X, y, strict=True)):
            for _ in range(3):
                theta[:, k] += 2 * eta[k] * x.T @ (v - x @ theta[:, k])
        theta = theta @ np.linalg.inv(np.eye(4) + np.linalg.inv(omega) @ np.diag(a))
        np.testing.assert_allclose(each, theta, rtol=1e-9)
        omega = (1 - alpha) * omega + alpha / 2 * theta.T @ theta


@pytest.mark.parametrize("weight", ["posterior", "steps", "printed"])
def test_rounds_agree_with_the_method_under_secure_sums(weight: str) -> None:
    """The noise is summed in steps of 2^-80 of squared half widths, all else in steps of 2^-56."""
    X, y, _ = some_devices()
    variant = hm1.PrintedWeightHm1 if weight == "printed" else None
    method = {**runs.HM1, "rounds": 6, "weight": "steps" if variant else weight}
    result, own = runs.regressions(method, X, y, 0, variant)
    devices = centralised.quadratics(X, y)
    eta = np.array([runs.STEP_SHARE / each.steepest for each in devices])
    a = 2 * eta
    if weight != "printed":
        variance = centralised.noise_variance(X, y)
        assert result.summary["noise_sd"] == pytest.approx(np.sqrt(variance), rel=1e-9)
        a = 2 * eta * runs.STEPS * variance
    if weight == "posterior":
        pairs = zip(devices, eta, strict=True)
        a = variance * np.array([each.answer(rate, runs.STEPS) for each, rate in pairs])
    expected = next(islice(centralised.rounds(devices, eta, a, runs.STEPS, runs.ALPHA), 5, None))
    np.testing.assert_allclose(runs.coefficients(own, "hm1"), expected, rtol=1e-8)
    separate = runs.coefficients(own, "site_ols")
    np.testing.assert_allclose(separate, centralised.least_squares(X, y), rtol=1e-8)


def test_only_one_step_a_round_converges_to_the_posterior_mean() -> None:
    """With Omega fixed (alpha = 0: it stays I) the fixed point of steps of gradient eta and
    shrinkage 2 eta sigma^2 solves the normal equations of ridge regression with sigma^2; with 20
    steps before it, and 20 times the shrinkage, coefficients are drawn further to 0.
    """
    X, y, _ = some_devices()
    devices = centralised.quadratics(X, y)
    eta = np.array([0.5 / each.steepest for each in devices])
    fits = zip(X, y, strict=True)
    ridge = np.column_stack([np.linalg.solve(x.T @ x + 0.3 * np.eye(2), x.T @ v) for x, v in fits])
    one = next(islice(centralised.rounds(devices, eta, 2 * eta * 0.3, 1, 0.0), 2000, None))
    np.testing.assert_allclose(one, ridge, rtol=1e-9)
    twenty = next(islice(centralised.rounds(devices, eta, 2 * eta * 0.3 * 20, 20, 0.0), 2000, None))
    assert np.all(np.linalg.norm(twenty, axis=0) < 0.9 * np.linalg.norm(ridge, axis=0))


# --- cells ----------------------------------------------------------------------------------------


def test_every_method_setting_is_set_explicitly() -> None:
    """A setting that one gets in future has to be decided here, or by a cell (prior and level).

    Tests of hypotheses are further results, and change no other.
    """
    names = {field.name for field in fields(FedLinHm1) if field.name != "tests"} | {"name"}
    assert names == runs.PLAIN.keys() | runs.HM1.keys()
    names = {field.name for field in fields(FedLinHm2)} | {"name"}
    assert names - {"prior", "level", "tests"} == runs.PLAIN.keys() | runs.HM2.keys()


def test_a_cell_of_table_1_is_computed() -> None:
    found = hm1.compute({"case": "I", "noise": 0.05, "seed": 3})
    assert found.keys() == {method.name for method in table_1.METHODS}
    drawn = simulated_cases.draw("I", 0.05, 3)
    theta = np.linalg.lstsq(drawn.X[0], drawn.y[0])[0]
    [test], [noise] = drawn.test, drawn.test_noise
    wrong = test @ (theta - drawn.theta[:, 0])
    assert found["least"]["free"] == pytest.approx(np.sqrt(np.mean(wrong**2)), rel=1e-9)
    expected = np.sqrt(np.mean((wrong - noise) ** 2))
    assert found["least"]["noisy"] == pytest.approx(expected, rel=1e-9)
    # 600 steps by 0.01 of the mean's gradient, one by one.
    x, y, theta = drawn.X[0], drawn.y[0], np.zeros(5)
    for _ in range(600):
        theta += 2 * 0.01 / 20 * x.T @ (y - x @ theta)
    wrong = test @ (theta - drawn.theta[:, 0])
    expected = np.sqrt(np.mean(wrong**2))
    assert found["separate-printed"]["free"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("case", "noise", "low", "high"), [("III", 0.1, 0.99, 1), ("V", 1, 0, 0.2)]
)
def test_sharing_gains_nothing_in_case_iii_and_much_in_case_v(
    case: str, noise: float, low: float, high: float
) -> None:
    """The finding that the page rests on: A-RMSE of the exact posterior mean, of least squares'."""
    drawn = simulated_cases.draw(case, noise, 0)
    exact = centralised.posterior_mean(drawn.X, drawn.y, drawn.root, noise)
    least = centralised.least_squares(drawn.X, drawn.y)
    assert (
        low
        < simulated_cases.errors(drawn, exact)["free"]
        / simulated_cases.errors(drawn, least)["free"]
        < high
    )


@pytest.mark.system
def test_a_cell_of_figure_3_agrees_with_a_round_of_table_1() -> None:
    """The distance of HM1 from the truth, by the method itself."""
    found = hm1_by_round.compute({"case": "II", "noise": 0.1, "round": 3, "seed": 0})
    drawn = simulated_cases.draw("II", 0.1, 0)
    _, own = runs.regressions({**runs.HM1, "rounds": 3}, drawn.X, drawn.y, 0)
    wrong = runs.coefficients(own, "hm1") - drawn.theta
    assert found["hm1"]["distance"] == pytest.approx(np.linalg.norm(wrong) / 10, rel=1e-7)
    assert found.keys() == {method.name for method in table_1.FIGURE_METHODS}


# --- the figures ----------------------------------------------------------------------------------


def test_published_numbers_agree_with_the_papers_table() -> None:
    stated = {(s.place.panel, s.place.method): s.value for s in tables.table(1, 1, None).stated}
    assert stated["case II", "hm1"] == 0.050 and stated["case III", "separate-printed"] == 0.072
    assert len(stated) == 8


# --- the command ----------------------------------------------------------------------------------


def call(*args: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["fedlin", *map(str, args)])
    return done.exit_code, done.stdout, done.stderr or str(done.exception)


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ([], "--table or --figure"),
        (["--table", "1", "--figure", "3"], "--table or --figure"),
        (["--table", "5"], "--table"),
        (["--figure", "1"], "--figure"),
        (["--table", "1", "--data", "."], "--data"),
        (["--figure", "3", "--data", "."], "--data"),
    ],
)
def test_invalid_command_arguments_are_refused(args: list[str], line: str, tmp_path: Path) -> None:
    code, _, err = call(*args, "--out", tmp_path / "out")
    assert code and line in err
    assert not (tmp_path / "out").exists()


@pytest.mark.system
def test_the_command_writes_figure_3(tmp_path: Path) -> None:
    args: list[Any] = ["--figure", "3", "--quick", "--seeds", "1", "--jobs", "1", "--out", tmp_path]
    code, out, err = call(*args)
    assert code == 0 and "8 of 8 cells" in err and "sqrt(K), case III" in out
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"cells", *(f"figure3-quick.{ending}" for ending in ("md", "svg", "json"))}
    code, out, _ = call(*args, "--json")
    assert code == 0 and json.loads(out)["computed"] == 0
