"""Opacus alone at a site: what it computes, what noise it adds, and what it says that it spent."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, norm

from secagg.core.arrays import Array
from secagg.errors import DataError, JobError
from secagg.models.neural.gradients import clipped_gradient_sum
from secagg.models.neural.module_learner import ModuleLearner, module_learner
from secagg.models.neural.opacus_training import train_with_opacus
from secagg.models.neural.parameters import Blocks
from secagg.models.neural.rounds import NetworkRounds

pytestmark = pytest.mark.neural
STEP = NetworkRounds(rounds=1, optimiser="sgd", learning_rate=1.0, clip=0.3, seed=1)
DELTA, SIGMA = 1e-5, 1.3
VALUES = np.random.default_rng(2).uniform(-1, 1, (40, 3))


@pytest.fixture(scope="module")
def network() -> ModuleLearner:
    settings = b'{"hidden":[3]}'
    return module_learner(
        "secagg.models.neural.built_in:mlp", settings, (0, 1), (2,), "squared_error"
    )


class OnlyLosses:
    """The same network, of which only the losses are known: a learner of another kind."""

    def __init__(self, network: ModuleLearner) -> None:
        self.network = network

    @property
    def blocks(self) -> Blocks:
        return self.network.blocks

    def initial(self, seed: int) -> Array:
        return self.network.initial(seed)

    def losses(self, parameters: Any, records: Any) -> Any:
        return self.network.losses(parameters, records)


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise is given, so that no search for it takes the time."""
    from opacus.accountants import utils

    monkeypatch.setattr(utils, "get_noise_multiplier", lambda **_: SIGMA)


def trained(learner: Any, rounds: NetworkRounds, seed: int, **more: Any) -> Array:
    return train_with_opacus(
        learner, VALUES, rounds, epsilon=1.0, delta=DELTA, seed=seed, **more
    )[0]  # fmt: skip


@pytest.mark.usefixtures("noise")
def test_a_step_is_the_sum_of_clipped_gradients_with_the_stated_noise(
    network: ModuleLearner,
) -> None:
    """The sum is that of secagg's own gradients, which differ from Opacus' by truncation."""
    start, n, runs = network.initial(1), len(VALUES), 60
    found = np.array([trained(network, STEP, seed) for seed in range(runs)])
    exact = start - clipped_gradient_sum(network, start, VALUES, 0.3, 32) / n
    z = (found - exact) / (SIGMA * 0.3 / n)
    # Opacus divides norms by 1e-6 more, which moves a sum of 40 gradients by less than 1e-4 sd.
    assert np.max(np.abs(z.mean(axis=0))) < 4.5 / np.sqrt(runs)
    low, high = chi2.ppf([1e-4, 1 - 1e-4], z.size)
    assert low < np.sum(z**2) < high


@pytest.mark.usefixtures("noise")
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_learner_with_losses_only_gets_the_same_parameters(
    network: ModuleLearner, optimiser: Any
) -> None:
    rounds = replace(STEP, rounds=8, optimiser=optimiser, learning_rate=0.1, sampling_rate=0.25)
    one = trained(network, rounds, 5)
    np.testing.assert_allclose(trained(OnlyLosses(network), rounds, 5), one, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(trained(network, rounds, 5), one)
    assert not np.allclose(trained(network, rounds, 6), one)


@pytest.mark.usefixtures("noise")
def test_the_penalty_is_added_after_the_noise(network: ModuleLearner) -> None:
    start = network.initial(1)
    without = trained(network, STEP, 3)

    def penalty(theta: Array, records: float) -> tuple[float, Array]:
        return 0.0, theta / records

    found = trained(network, STEP, 3, penalty=penalty)
    np.testing.assert_allclose(found, without - start / len(VALUES), rtol=0, atol=1e-14)


@pytest.mark.usefixtures("noise")
def test_a_batch_without_records_is_a_step_of_noise(network: ModuleLearner) -> None:
    rounds = replace(STEP, rounds=40, sampling_rate=0.5)
    found = train_with_opacus(
        network, VALUES[:2], rounds, epsilon=1.0, delta=DELTA, seed=0
    )  # a quarter of the batches are empty  # fmt: skip
    assert np.all(np.isfinite(found[0]))


def test_the_stated_epsilon_is_that_of_the_gaussian_mechanism(
    network: ModuleLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Balle and Wang (ICML 2018), theorem 8, for T releases: mu = root(T) / sigma."""
    from opacus.accountants import utils

    used = list[float]()
    search = utils.get_noise_multiplier

    def spy(**given: Any) -> float:
        used.append(search(**given))
        return used[-1]

    monkeypatch.setattr(utils, "get_noise_multiplier", spy)
    rounds = replace(STEP, rounds=4)
    _, spent = train_with_opacus(network, VALUES, rounds, epsilon=2.0, delta=DELTA, seed=0)
    mu = np.sqrt(4) / used[0]

    def delta(epsilon: float) -> float:
        tail = norm.cdf(-mu / 2 - epsilon / mu)
        return float(norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * tail)

    assert spent <= 2.0  # the search ends at most 0.01 below
    # Opacus' bound is above the true epsilon by at most 0.01 (its own error) plus delta's share.
    assert delta(spent) <= DELTA <= delta(spent - 0.02)


def test_a_site_with_one_record_fails(network: ModuleLearner) -> None:
    with pytest.raises(DataError):
        train_with_opacus(network, VALUES[:1], STEP, epsilon=1.0, delta=DELTA, seed=0)


def test_without_opacus_it_is_refused(
    network: ModuleLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(JobError):
        trained(network, STEP, 0)
