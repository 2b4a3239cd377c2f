"""The joint distribution of parameters and records is that of the prior and the model.

Geweke ("Getting it right: joint distribution tests of posterior simulators", JASA 2004): parameters
are drawn from the prior, records given them, and parameters again from the posterior that the
sampler computes. If it is right, the second parameters have the prior's distribution, too (averaged
over records), and the first rank uniformly among them. Sites have one design, for which the
likelihood of equal sites is exact; designs that differ are compared with quadrature elsewhere. The
mean has a flat prior: it is fixed at 0, on which ranks of the mean do not depend.

The records say little (their errors have the variance 16), so that the posterior depends on the
prior: if the sampler takes half or twice its scale, the second sds are 6 to 10 standard errors off.
"""

import numpy as np
import pytest
from scipy.stats import t as student
from support.fedlin.full_covariance import converged, statistics

from secagg.models.fedlin.full.equal_sites import NU
from secagg.models.fedlin.full.hamiltonian import Target, draw_covariances
from secagg.models.fedlin.full.posterior import SharedDraws
from secagg.models.fedlin.full.site_sums import coefficient_draws

SETS, K, D, RECORDS, SCALE, KEPT, VARIANCE = 60, 4, 2, 8, 0.5, 60, 16.0
Means = dict[str, list[float]]


def covariance(rng: np.random.Generator) -> np.ndarray:
    """Draw Sigma from the prior: inverse Wishart given a, and a inverse gamma."""
    a = SCALE**-2 / rng.gamma(0.5, size=D)
    root = np.diag(np.sqrt(2 * NU / a))
    normals = rng.standard_normal((int(NU) + D - 1, D))
    return np.asarray(root @ np.linalg.inv(normals.T @ normals) @ root)


def shares(Sigma: np.ndarray) -> np.ndarray:
    """Return the prior probabilities below both sds and the correlation (n, 3)."""
    sd = np.sqrt(np.diagonal(Sigma, axis1=-2, axis2=-1))
    of_sd = 2 * student.cdf(sd / SCALE, NU) - 1
    return np.column_stack([of_sd, (1 + Sigma[:, 0, 1] / sd.prod(axis=1)) / 2])


def one_set(seed: int, taken: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean prior probabilities of the posterior's draws, and the ranks of the truth.

    taken: the scale that the sampler takes, divided by the true one
    """
    rng = np.random.default_rng([20, seed])
    Sigma, X = covariance(rng), rng.standard_normal((RECORDS, D))
    theta = rng.multivariate_normal(np.zeros(D), Sigma, K)
    errors = VARIANCE**0.5 * rng.standard_normal((K, RECORDS))
    sites = [
        statistics(X, X @ each + error, VARIANCE) for each, error in zip(theta, errors, strict=True)
    ]
    fitted, start = converged(sites, D, taken * SCALE, rounds=3)
    target = Target(fitted, taken * SCALE, 0.0)
    drawn = SharedDraws.of(draw_covariances(target, start, KEPT, rng), fitted, rng)
    own, _ = coefficient_draws(sites[0], drawn.mu, drawn.Sigma, drawn.ratio, rng)
    after, before = shares(drawn.Sigma), shares(Sigma[None])
    ranks = [after < before, drawn.mu < 0, own < theta[0]]
    return after.mean(axis=0), np.concatenate([np.mean(each, axis=0) for each in ranks])


def distances(taken: float, sets: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how far means and ranks are from 1/2, in standard errors over data sets."""
    found = [one_set(seed, taken) for seed in range(sets)]
    parts = [np.array(part) for part in zip(*found, strict=True)]
    return tuple(
        (part.mean(axis=0) - 0.5) / (part.std(axis=0, ddof=1) / sets**0.5) for part in parts
    )  # type: ignore[return-value]


def test_posteriors_over_records_average_to_the_prior() -> None:
    after, ranks = distances(1.0, SETS)
    assert np.all(np.abs(after) < 4), after
    assert np.all(np.abs(ranks) < 4), ranks


@pytest.mark.parametrize("taken", [0.5, 2.0])
def test_a_prior_of_another_scale_is_found(taken: float) -> None:
    """The test above can fail: both sds are more than 4 standard errors off."""
    after, _ = distances(taken, SETS // 3)
    assert np.all(np.sign(np.log(taken)) * after[:2] > 4), after
