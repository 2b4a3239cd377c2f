"""The penalties' sampler: its densities' slopes, its mixture, its start, and its invariance."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import gamma as gamma_law
from scipy.stats import invgauss, kstest
from support.fedlin.penalised_world import regression, sums

from secagg.models.fedlin.hierarchies.elastic_net import ElasticPenalty
from secagg.models.fedlin.hierarchies.gibbs import Chains, mixture
from secagg.models.fedlin.hierarchies.initial_draws import _chart
from secagg.models.fedlin.hierarchies.lasso import LaplacePenalty
from secagg.models.fedlin.hierarchies.penalised_density import (
    SAMPLED_COMPONENTS,
    Density,
    Mixing,
    Penalty,
)
from secagg.models.fedlin.hierarchies.ridge_likelihood import normal_start
from secagg.models.numerics.natural_gaussian import Natural

Array = NDArray[np.float64]
PENALTIES = [(LaplacePenalty(), 2), (ElasticPenalty(), 3)]


def cavity_of(p: int) -> Natural:
    """A proper cavity with correlations, log s about -1."""
    mean = np.linspace(0.5, -1, p)
    return Natural.of(mean, 0.25 * np.eye(p) + 0.05)


@pytest.mark.parametrize(("penalty", "p"), PENALTIES)
def test_gradients_agree_with_the_densities(penalty: Penalty, p: int) -> None:
    rng, step, many = np.random.default_rng(1), 1e-5, 20
    density = Density(penalty, sums(*regression(10, 3, seed=1)), cavity_of(p))
    phi, theta = rng.normal(0, 1, (many, p)), rng.normal(0, 1, (many, 3))
    at, mixing = density.sizes(theta), Mixing(rng.exponential(1, many), rng.exponential(9, many))
    none = np.zeros(many)
    along, given = density.joint_slope(phi, at), density.given_w_slope(phi, mixing)
    for i in range(p + 1):
        move = step * (np.arange(p) == i)
        grown = none + step * (i == p)
        values = [density.joint(phi + sign * move, sign * grown, at) for sign in (1, -1)]
        assert np.allclose(along[:, i], (values[0] - values[1]) / (2 * step), rtol=1e-5, atol=1e-5)
        if i < p and (i - p in SAMPLED_COMPONENTS or i in SAMPLED_COMPONENTS):
            values = [density.given_w(phi + sign * move, mixing) for sign in (1, -1)]
            exact = (values[0] - values[1]) / (2 * step)
            assert np.allclose(given[:, int(i > 0)], exact, rtol=1e-5, atol=1e-5)
    # growth is theta's own, and what depends on theta alone is all there
    growth = rng.normal(0, 0.3, many)
    grown = density.joint(phi, none, density.sizes(theta * np.exp(growth)[:, None])) + 3 * growth
    assert np.allclose(density.joint(phi, growth, at), grown, rtol=1e-9)


@pytest.mark.parametrize("t", [0.0, 1e-8, 0.3, 1e6])
def test_mixture_weights_have_their_distribution(t: float) -> None:
    """1 / w inverse Gaussian, of mean l1 / |v| and shape l1^2; at v = 0, w is l1^-2 chi^2_1."""
    l1, many = 1.7, 20_000
    drawn = mixture(np.full(many, t / l1), np.array(l1), np.random.default_rng(1))
    if t < 1e-6:
        assert kstest(drawn, gamma_law(0.5, scale=2 / l1**2).cdf).pvalue > 1e-3
    else:
        mean, shape = l1**2 / t, l1**2
        assert kstest(1 / drawn, invgauss(mean / shape, scale=shape).cdf).pvalue > 1e-3


@pytest.mark.parametrize(("penalty", "p"), PENALTIES)
def test_the_sampler_starts_at_the_mode(penalty: Penalty, p: int) -> None:
    density = Density(penalty, sums(*regression(25, 3, seed=3)), cavity_of(p))
    cavity, site = density.cavity, density.rotated

    def value(phi: Array) -> float:
        where = _chart(phi)[0]
        prior = cavity.r @ phi - phi @ cavity.Q @ phi / 2
        return float(prior + site.evidence(where[0], where[1]))

    mode, cov = normal_start(site, cavity, _chart)
    steps = np.linalg.cholesky(cov).T
    # a standard normal's log density falls by 1/2 at an sd; skewness makes it more or less
    falls = np.array(
        [value(mode) - value(mode + sign * each) for each in steps for sign in (1, -1)]
    )
    assert np.all((falls > 0.2) & (falls < 1))
    small = np.array([value(mode) - value(mode + 1e-3 * each) for each in steps])
    assert np.allclose(small, 5e-7, rtol=0.02)


def drawn_v(phi: Array, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return exact draws of the prior of v, by rejection from Laplace."""
    v = rng.laplace(size=shape) / np.exp(phi[:, :1])
    if phi.shape[1] == 2:
        return v
    left = rng.random(shape) > np.exp(-np.exp(phi[:, 1:2]) * v**2 / 2)
    while np.any(left):
        again = rng.laplace(size=shape) / np.exp(phi[:, :1])
        v = np.where(left, again, v)
        left &= rng.random(shape) > np.exp(-np.exp(phi[:, 1:2]) * v**2 / 2)
    return v


@pytest.mark.statistical
@pytest.mark.parametrize("n", [6, 2])
@pytest.mark.parametrize(("penalty", "p"), PENALTIES)
@pytest.mark.parametrize("wrong", [False, True])
def test_the_sampler_keeps_the_joint_distribution_invariant(
    penalty: Penalty, p: int, n: int, wrong: bool
) -> None:
    """Geweke (2004): parameters of the prior, data of the parameters, then sweeps: the prior again.

    Replicates are the chains, each with its own y. Four sweeps; some 20 statistics. With a record
    more than there is (wrong) it must fail.
    """
    rng, many, d = np.random.default_rng(5), 20_000, 3
    cavity = cavity_of(p)
    mean, cov = cavity.moments()
    X, _ = regression(n, d, seed=n)

    def fresh() -> tuple[Array, Array]:
        phi = rng.multivariate_normal(mean, cov, many)
        return phi, drawn_v(phi, (many, d), rng) * np.exp(phi[:, -1:] / 2)

    def statistics(phi: Array, theta: Array) -> Array:
        v = theta * np.exp(-phi[:, -1:] / 2)
        each = [*phi.T, *(phi**2).T, phi[:, 0] * phi[:, -1], *np.tanh(v).T, *np.log(np.abs(v)).T]
        crossed = [phi[:, 0] * np.log(np.abs(v[:, 0])), phi[:, -1] * np.abs(np.tanh(theta[:, 1]))]
        return np.array([*each, *crossed, np.tanh(v[:, 0]) * np.tanh(v[:, 1])])

    phi, theta = fresh()
    y = theta @ X.T + np.exp(phi[:, -1:] / 2) * rng.standard_normal((many, n))
    site = sums(X, y[0])
    if wrong:
        site = replace(site, records=n + 1)
    chains = Chains(penalty, site, cavity, many, rng)
    rotated = chains.density.rotated
    fitted = y @ X @ np.linalg.pinv(rotated.R)
    left = np.maximum(np.sum(y**2, axis=1) - np.sum(fitted**2, axis=1), 0.0)
    chains.density.rotated = replace(rotated, t=fitted, left=left)  # type: ignore[arg-type]
    chains._site = replace(site, cross=y @ X)
    chains._phi, chains._theta = phi, theta
    for visit in chains.visits(4, learn=True):
        state = visit
    ends = [(state.phi, state.theta), (chains._phi, chains._theta)]
    before = statistics(*fresh())
    for end in ends:
        after = statistics(*end)
        error = np.sqrt((after.var(axis=1) + before.var(axis=1)) / many)
        z = np.max(np.abs(after.mean(axis=1) - before.mean(axis=1)) / error)
        assert z > 10 if wrong else z < 4.5
