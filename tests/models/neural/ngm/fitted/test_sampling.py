"""Samples against joint distributions that are known."""

import numpy as np
from support.methods.fitted_ngms import (
    MEANS,
    MIXED,
    PRECISION,
    SDS,
    SHARES,
    conditionals,
    coupled,
    coupled_table,
    gaussian,
    linear_arrays,
    mixed,
    mixed_arrays,
    model_of,
)

from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.sampling import shifts, start, sweep, unknown_for

N, SWEEPS = 10_000, 25


def sampled(columns: list[Conditional], seed: int = 0) -> Array:
    model, rng = columns[0].model, np.random.default_rng(seed)
    states = model.states_of(np.full((N, model.layout.d), np.nan))
    start(columns, states, rng)
    for _ in range(SWEEPS):
        sweep(columns, states, rng)
    return model.values_of(states)


def test_samples_of_a_gaussian_have_its_means_and_covariances() -> None:
    found, cov = sampled(gaussian()), np.linalg.inv(PRECISION)
    sd = np.sqrt(np.diag(cov))
    assert np.all(np.abs(found.mean(axis=0)) < 4 * sd / np.sqrt(N))
    assert np.all(np.abs(found.std(axis=0) / sd - 1) < 4 / np.sqrt(2 * N))
    true = cov / np.outer(sd, sd)
    assert np.all(np.abs(np.corrcoef(found.T) - true) <= 4 * (1 - true**2) / np.sqrt(N) + 1e-12)


def test_samples_of_coupled_levels_have_their_joint_probabilities() -> None:
    found = sampled(coupled())
    for s, p in coupled_table().items():
        share = np.mean(np.all(found == s, axis=1))
        assert abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / N)


def test_samples_of_mixed_columns_have_levels_and_moments_of_each_level() -> None:
    found = sampled(mixed())
    for level, p in enumerate(SHARES):
        here = found[found[:, 1] == level]
        assert abs(len(here) / N - p) < 4.5 * np.sqrt(p * (1 - p) / N)
        for column, mean, sd in zip((0, 2), MEANS[:, level], SDS, strict=True):
            assert abs(here[:, column].mean() - mean) < 4.5 * sd / np.sqrt(len(here))
            assert abs(here[:, column].std() / sd - 1) < 4.5 / np.sqrt(2 * len(here))


def test_shifts_lead_to_the_pooled_shares() -> None:
    """With wrong intercepts; a model without pooled means, or with right ones, has no shifts."""
    assert shifts(mixed(), np.random.default_rng(0)) == {}
    arrays = mixed_arrays()
    arrays["centre"][1:3] = 2 * SHARES[1:] - 1
    arrays["output.bias"] += arrays["linear.weight"] @ arrays["centre"]  # read as u - centre
    right = shifts(conditionals(model_of(MIXED, arrays)), np.random.default_rng(0))[1]
    assert np.all(np.abs(right) < 0.1)
    arrays["output.bias"][1:3] += [0.7, -0.4]
    columns = conditionals(model_of(MIXED, arrays))
    found = shifts(columns, np.random.default_rng(0))
    np.testing.assert_allclose(found[1], [-0.7, 0.4], atol=0.1)
    model, rng = columns[0].model, np.random.default_rng(1)
    states = model.states_of(np.full((N, 3), np.nan))
    start(columns, states, rng)
    for _ in range(SWEEPS):
        sweep(columns, states, rng, shifted=found)
    shares = np.bincount(states.level[1], minlength=3) / N
    assert np.all(np.abs(shares - SHARES) < 4.5 * np.sqrt(SHARES * (1 - SHARES) / N) + 0.01)


def test_only_columns_that_are_not_separated_from_the_targets_are_drawn() -> None:
    columns = dict.fromkeys("abcde", 0)
    arrays = linear_arrays(columns, "a-b b-c c-d", np.zeros((5, 5)), np.zeros(5), [1.0] * 5)
    model = conditionals(model_of(columns, arrays))[0].model
    nothing = np.zeros(5, dtype=bool)
    assert list(unknown_for(model, nothing, [0])) == [0, 1, 2, 3]
    assert list(unknown_for(model, nothing, [4])) == [4]
    assert list(unknown_for(model, np.array([0, 0, 1, 0, 0]) > 0, [0])) == [0, 1]
