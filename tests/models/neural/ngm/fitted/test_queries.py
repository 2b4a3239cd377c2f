"""Answers against closed forms, within the errors that they report."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.methods.fitted_ngms import (
    MEANS,
    PRECISION,
    SDS,
    conditionals,
    coupled,
    coupled_table,
    gaussian,
    linear_arrays,
    mixed,
    model_of,
    shares_given,
)

from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.queries import Answer, predict, query
from secagg.models.neural.ngm.fitted.sampling import Effort

NAN = np.nan
EFFORT = Effort(chains=50, warm_up=30, sweeps=60)
RNG = np.random.default_rng
Ask = Callable[[list[Conditional], Array, Effort, int], Answer]


def ask_one(columns: list[Conditional], values: Array, effort: Effort, seed: int) -> Answer:
    """Ask for y, given the first record."""
    return query(columns, values[0], [2], effort, RNG(seed))[0]


def ask_many(columns: list[Conditional], values: Array, effort: Effort, seed: int) -> Answer:
    """Ask for y, given each record."""
    return predict(columns, values, [2], effort, RNG(seed))[0]


def mixture(shares: np.ndarray, column: int) -> tuple[float, float]:
    mean = float(shares @ MEANS[column])
    return mean, float(np.sqrt(shares @ (MEANS[column] ** 2) + SDS[column] ** 2 - mean**2))


def check(answer: Answer, mean: float, sd: float) -> None:
    assert answer.mean is not None and answer.mean_error is not None
    assert answer.sd is not None and answer.sd_error is not None
    assert 0 < answer.mean_error[0] < 0.1 and 0 < answer.sd_error[0] < 0.1
    assert abs(answer.mean[0] - mean) < 4.5 * answer.mean_error[0]
    assert abs(answer.sd[0] - sd) < 4.5 * answer.sd_error[0]


def test_with_all_neighbours_the_answer_is_exact() -> None:
    given = np.array([NAN, 0.7, NAN])
    (answer,) = query(gaussian(), given, [0], EFFORT, RNG(0))
    assert answer.mean == pytest.approx([0.8 / 2 * 0.7]) and answer.sd == pytest.approx([0.5**0.5])
    assert answer.mean_error == [0] and answer.sd_error == [0] and answer.r_hat is None


def test_a_gaussian_with_an_unknown_column_between() -> None:
    cov = np.linalg.inv(PRECISION)
    (answer,) = query(gaussian(), np.array([1.3, NAN, NAN]), [2], EFFORT, RNG(0))
    slope = cov[2, 0] / cov[0, 0]
    check(answer, 1.3 * slope, float(np.sqrt(cov[2, 2] - slope * cov[0, 2])))
    assert answer.r_hat is not None and answer.r_hat < 1.05 and answer.ess and answer.ess > 100


@pytest.mark.parametrize("x", [None, 0.8])
def test_levels_and_columns_beyond_them(x: float | None) -> None:
    given = np.array([NAN if x is None else x, NAN, NAN])
    levels, y = query(mixed(), given, [1, 2], EFFORT, RNG(1))
    shares = shares_given(x)
    check(y, *mixture(shares, 1))
    assert levels.probabilities is not None and levels.probabilities_error is not None
    error = levels.probabilities_error[0]
    assert np.all(error > 0) and np.all(np.abs(levels.probabilities[0] - shares) < 4.5 * error)


def test_probabilities_agree_with_enumeration() -> None:
    joint = coupled_table()
    (answer,) = query(coupled(), np.array([NAN, NAN, 1.0]), [0], EFFORT, RNG(0))
    exact = sum(joint[1, b, 1] for b in (0, 1)) / sum(
        joint[a, b, 1] for a in (0, 1) for b in (0, 1)
    )
    assert answer.probabilities is not None and answer.probabilities_error is not None
    assert abs(answer.probabilities[0, 1] - exact) < 4.5 * answer.probabilities_error[0, 1]


@pytest.mark.parametrize("ask", [ask_one, ask_many])
def test_the_errors_are_the_spread_of_repeated_answers(ask: Ask) -> None:
    found = [ask(mixed(), np.array([[0.8, NAN, NAN]]), Effort(8, 10, 20), s) for s in range(25)]
    for value, error in (("mean", "mean_error"), ("sd", "sd_error")):
        spread = np.std([getattr(a, value)[0] for a in found], ddof=1)
        told = np.mean([getattr(a, error)[0] for a in found])
        # The spread of 25 answers has a relative error of 1 / sqrt(48) = 0.14.
        assert 0.4 < spread / told < 1.6


def test_spread_and_errors_do_not_depend_on_the_origin_of_a_unit() -> None:
    values = np.array([[0.8, NAN, NAN], [-1.0, NAN, NAN]])
    model = mixed()[0].model
    *others, y = model.variables
    moved = conditionals(replace(model, variables=(*others, replace(y, midpoint=500.0))))
    for ask in (ask_one, ask_many):
        here, there = (ask(columns, values, EFFORT, 0) for columns in (mixed(), moved))
        np.testing.assert_allclose(there.mean, here.mean + 500, rtol=1e-9)
        for name in ("mean_error", "sd", "sd_error"):
            np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-5)


def test_chains_that_cannot_move_disagree() -> None:
    """a and b are equal, and no single draw can change both."""
    coupling = np.array([[0.0, 80.0], [80.0, 0.0]])
    columns = {"a": 2, "b": 2}
    arrays = linear_arrays(columns, "a-b", coupling, np.full(2, -40.0), [])
    stuck = conditionals(model_of(columns, arrays))
    (answer,) = query(stuck, np.full(2, NAN), [0], EFFORT, RNG(0))
    assert answer.r_hat is not None and answer.r_hat > 2
    assert answer.probabilities_error is not None and answer.probabilities_error[0, 1] > 0.03


def test_many_records_each_with_its_own_missing_values() -> None:
    """Exact rows, rows with g unknown, and a row with nothing known."""
    values = np.array([[0.8, 1, 5.0], [0.8, NAN, 5.0], [-1.0, NAN, NAN], [NAN, NAN, 5.0]])
    y, g = predict(mixed(), values, [2, 1], Effort(100, 20, 40), RNG(0))
    expected = [mixture(shares_given(x), 1) for x in (0.8, 0.8, -1.0, None)]
    assert y.mean is not None and y.mean_error is not None and y.sd is not None
    assert y.sd_error is not None and g.probabilities is not None
    assert g.probabilities_error is not None
    for i, (mean, sd) in enumerate(expected):
        assert abs(y.mean[i] - mean) < 4.5 * y.mean_error[i]
        assert abs(y.sd[i] - sd) < 4.5 * y.sd_error[i]
        shares = shares_given((0.8, 0.8, -1.0, None)[i])
        assert np.all(np.abs(g.probabilities[i] - shares) < 4.5 * g.probabilities_error[i])
    (alone,) = predict(mixed(), values, [2], Effort(100, 20, 40), RNG(0))
    assert alone.mean is not None and alone.mean_error is not None
    assert alone.mean[0] == pytest.approx(MEANS[1, 1], rel=1e-8)
    assert alone.mean_error[0] == 0 < alone.mean_error[1]


def test_memory_is_bounded_by_parts_with_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.full((7, 3), NAN)
    values[:, 0] = np.linspace(-2, 2, 7)
    monkeypatch.setattr("secagg.models.neural.ngm.fitted.queries._MAX_STATES", 60)
    (y,) = predict(mixed(), values, [2], Effort(30, 20, 30), RNG(0))
    assert y.mean is not None and y.mean_error is not None
    for i, x in enumerate(values[:, 0]):
        assert abs(y.mean[i] - mixture(shares_given(x), 1)[0]) < 4.5 * y.mean_error[i]
