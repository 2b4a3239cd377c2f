"""A site's sums of its draws give the same summaries as the draws."""

import numpy as np
import pytest

from secagg.core import canonical_encoding
from secagg.models.sparse_bayes.site_posterior import BATCHES, add_draw, begin_sums, own_posterior


def sums_of(draws: np.ndarray) -> dict[str, np.ndarray]:
    held = begin_sums({"x": draws.shape[1:]})
    for at, draw in enumerate(draws):
        held = canonical_encoding.loads(
            canonical_encoding.dumps(add_draw(held, {"x": draw}, at, len(draws)))
        )
    return own_posterior(held["x"])


@pytest.mark.parametrize("rounds", [4, BATCHES, 37, 400])
def test_means_and_deviations_agree_with_all_draws(rounds: int) -> None:
    draws = np.random.default_rng(rounds).normal(3.0, 2.0, (rounds, 3, 5))
    found = sums_of(draws)
    np.testing.assert_allclose(found["mean"], draws.mean(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(found["sd"], draws.std(axis=(0, 1)), rtol=1e-9)
    assert np.all(found["mcse"] > 0)


def test_the_stated_error_is_that_of_the_mean() -> None:
    """Autoregressive chains, whose means have a known variance, 400 quantities at once."""
    rng, phi, rounds = np.random.default_rng(0), 0.8, 4000
    draws = np.zeros((rounds, 4, 400))
    for i in range(1, rounds):
        draws[i] = phi * draws[i - 1] + rng.normal(size=(4, 400))
    known = np.sqrt(1 / (1 - phi) ** 2 / (rounds * 4))
    estimated = np.sqrt(np.mean(sums_of(draws)["mcse"] ** 2))
    # 40 batches of 400 rounds; their variance is 1 - (1 + phi) / (1 - phi) / 400 of the limit: 2 %
    # low; of 400 estimates with 39 degrees of freedom each, the mean square errs by 0.5 % or so
    assert 0.97 < estimated / known < 1.02
