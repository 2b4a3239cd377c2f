"""Spike or slab with the coefficient integrated out, against sums over a grid."""

import numpy as np
import pytest

from secagg.models.sparse_bayes.collapsed_slabs import choose_slabs
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab


@pytest.mark.parametrize("apart", [0.0, 0.3, 0.6])
def test_slab_and_coefficient_have_their_joint_distribution(apart: float) -> None:
    prior, many, t, rho, eta = SpikeSlab(ratio=0.04), 40_000, 0.5, 0.3, 0.6
    theta, mine = 0.1, np.array([0.2, 0.5]) + apart  # of two sites
    share = np.array([0.3, 0.8])  # their l
    d = mine - theta
    wide = np.ones((many, 1))
    common = Common(theta * wide, t * wide, wide, eta * wide, wide, rho * wide[:, 0], wide)
    one, total, squares = (np.sum(d**power / share) * wide for power in (0, 1, 2))
    rng = np.random.default_rng(1)
    drawn, new_d, new_dd = choose_slabs(common, one, total, squares, prior, rng)
    # The joint density by its definition: p(g) N(x; 0, e_g) PROD_k N(theta_k; x, l_k t).
    grid = np.linspace(-4, 4, 8001)
    sites = np.exp(-np.sum((mine[:, None] - grid) ** 2 / (2 * share * t)[:, None], axis=0))
    parts = [
        chance / np.sqrt(e) * np.exp(-(grid**2) / (2 * e)) * sites
        for chance, e in ((1 - rho, prior.ratio * eta), (rho, eta))
    ]
    spike, slab = (part.sum() for part in parts)
    expected = slab / (slab + spike)
    # 4.5 standard errors: for a share, and for means of two normal distributions
    assert drawn.g.mean() == pytest.approx(expected, abs=4.5 * np.sqrt(0.25 / many))
    for g, part in enumerate(parts):
        values = drawn.theta[drawn.g == g]
        mean = np.sum(grid * part) / part.sum()
        sd = np.sqrt(np.sum((grid - mean) ** 2 * part) / part.sum())
        assert values.mean() == pytest.approx(mean, abs=4.5 * sd / np.sqrt(len(values)))
        assert values.std() == pytest.approx(sd, rel=4.5 / np.sqrt(2 * len(values)))
    # The sums are those of the sites' differences from the new theta.
    for power, carried in ((1, new_d), (2, new_dd)):
        plain = np.sum((mine - drawn.theta) ** power / share, axis=1, keepdims=True)
        np.testing.assert_allclose(carried, plain, atol=1e-12)
