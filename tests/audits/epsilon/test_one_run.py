"""Bounds from canaries in one run: by hand, by simulation of a known mechanism, and of networks."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from secagg.audits.epsilon.one_run import one_run_epsilon
from secagg.contracts import Field, Kind, Stage
from secagg.contracts.noise import Adjacency, Placement
from secagg.errors import UsageError
from secagg.models.common.clipped_sums import gradient_sensitivity
from secagg.privacy.accounting.calibration import calibrate
from secagg.privacy.accounting.terms import Terms


def test_without_delta_it_is_a_binomial_test() -> None:
    """90 of 100 right: the excluded epsilon has P(B >= 90) = .05."""
    found = one_run_epsilon(90, 100, 100, 0.0)
    assert binom.sf(89, 100, 1 / (1 + math.exp(-found))) == pytest.approx(0.05, rel=1e-6)


def test_guessing_excludes_nothing() -> None:
    assert one_run_epsilon(50, 100, 100, 0.0) == 0.0
    assert one_run_epsilon(0, 0, 10, 1e-5) == 0.0


def test_delta_and_more_canaries_weaken_the_bound() -> None:
    base = one_run_epsilon(95, 100, 100, 0.0)
    assert base > one_run_epsilon(95, 100, 100, 1e-4) > one_run_epsilon(95, 100, 1000, 1e-4)
    assert one_run_epsilon(95, 100, 100, 0.5) == 0.0


def test_randomised_response_is_bounded_by_its_epsilon() -> None:
    """Each canary is answered truthfully with e^eps / (1 + e^eps): the bound is tight for it."""
    epsilon, canaries = 1.5, 2000
    answers = binom(canaries, 1 / (1 + math.exp(-epsilon)))

    def bound(correct: int) -> float:
        return one_run_epsilon(correct, canaries, canaries, 0.0)

    assert 1.2 < bound(int(answers.median())) <= epsilon
    # The bound rises with the right guesses, and is wrong with a probability just below .05.
    wrong = next(v for v in range(int(answers.ppf(0.94)), canaries) if bound(v) > epsilon)
    assert 0.04 < answers.sf(wrong - 1) <= 0.05


@pytest.mark.parametrize(
    "wrong", [(5, 4, 10, 0.0), (1, 11, 10, 0.0), (-1, 4, 10, 0.0), (1, 2, 3, -1.0)]
)
def test_impossible_numbers_are_refused(wrong: tuple[int, int, int, float]) -> None:
    with pytest.raises(UsageError):
        one_run_epsilon(*wrong)


@pytest.mark.neural
@pytest.mark.attack
@pytest.mark.parametrize(("epsilon", "missing"), [(1.0, 1), (4.0, 1), (1.0, 50)])
def test_canaries_in_noisy_training_stay_below_the_claim(epsilon: float, missing: int) -> None:
    """One run of noisy training with 200 canaries, seen by an auditor who knows all records.

    missing: by how much the noise is too small. With a fiftieth of it, the same auditor refutes the
    claim: the positive control.
    """
    from secagg.models.neural.gradients import clipped_gradient_sum
    from secagg.models.neural.module_learner import module_learner
    from secagg.models.neural.record_gradients import record_gradients

    rng, delta, rounds, features, canaries = np.random.default_rng(7), 1e-4, 30, 300, 200
    path = "secagg.models.neural.built_in:mlp"
    predictors = tuple(range(features))
    learner = module_learner(path, b'{"hidden":[]}', predictors, (features,), "squared_error")
    records = rng.uniform(-0.05, 0.05, (100, features + 1))
    # A canary has one feature of its own, so its gradient is nearly orthogonal to all others.
    marked = np.zeros((canaries, features + 1))
    marked[np.arange(canaries), np.arange(canaries)] = 1.0
    marked[:, features] = 1.0
    inside = rng.random(canaries) < 0.5
    data = np.vstack([records, marked[inside]])
    stages = [
        Stage("count", (Field("n", (1,), 1e4, 20, Kind.COUNT),), 1, "", gradient_sensitivity(1.0)),
        Stage("train", (Field("change", (features + 2,), 1e4, 32, Kind.BOUNDED),), rounds, "",
              gradient_sensitivity(1.0)),
    ]  # fmt: skip
    terms = Terms(Placement.ROUND, epsilon, delta, Adjacency.ADD_REMOVE, 1, 0.001)
    noise = calibrate(terms, stages, 3, 100, True).mechanisms["train"].noise
    sigma = float(noise.variance) ** 0.5 * 2.0**-noise.fraction_bits / missing
    theta, scores = learner.initial(1), np.zeros(canaries)
    for _ in range(rounds):
        total = clipped_gradient_sum(learner, theta, data, 1.0, 30)
        seen = total + sigma * rng.standard_normal(len(total))
        gradients = np.vstack(list(record_gradients(learner, theta, marked)))
        unit = gradients / np.linalg.norm(gradients, axis=1, keepdims=True)
        unit[:, -1] = 0.0  # the bias is shared by all records
        scores += unit @ seen
        theta = theta - 0.001 * seen
    order = np.argsort(scores)
    guessed = np.concatenate([order[:40], order[-40:]])  # the surest ones
    correct = int(np.sum(inside[guessed] == (np.arange(80) >= 40)))
    bound = one_run_epsilon(correct, 80, canaries, delta)
    print(f"epsilon {epsilon:g}: at least {bound:.2f}, {correct} of 80 right")
    assert (bound <= epsilon) == (missing == 1)
