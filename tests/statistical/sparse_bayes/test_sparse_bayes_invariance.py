"""Exact invariance of federated sparse regression's sampler (Geweke 2004, "Getting it right").

Parameters are drawn from the prior, data from the parameters, then some rounds are run: if every
step leaves the posterior as it is, what comes out has the prior's law. Thousands of replicates are
the leading axis of all arrays; each statistic's mean is compared with that over fresh prior draws.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from secagg.models.numerics.gaussian_draws import inverse_gamma
from secagg.models.sparse_bayes import spike_slab
from secagg.models.sparse_bayes.collapsed_slabs import choose_slabs
from secagg.models.sparse_bayes.horseshoe import (
    NoisePrior,
    Regression,
    SiteDraw,
    draw_noise,
    marginal,
    sweep,
)
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab

Array = NDArray[np.float64]
Step = Callable[[Common, list[SiteDraw], list[Regression], SpikeSlab, np.random.Generator], Common]

REPLICATES, ROUNDS, Q = 40_000, 6, 2
RECORDS = (4, 1, 6)  # fewer than coefficients, too
NOISE = NoisePrior(shape=3.0, scale=2.0)


def fresh(prior: SpikeSlab, rng: np.random.Generator) -> tuple[Common, list[SiteDraw]]:
    """Draw all parameters from the prior, as the model states it."""
    wide = (REPLICATES, Q)
    rho = rng.beta(prior.a_r, prior.b_r, REPLICATES)
    g = (rng.random(wide) < rho[:, None]).astype(float)
    eta = inverse_gamma(prior.a_e, np.full(wide if prior.own else (REPLICATES, 1), prior.b_e), rng)
    eta = np.broadcast_to(eta, wide)
    theta = rng.standard_normal(wide) * np.sqrt(np.where(g > 0, eta, prior.narrow(eta)))
    tau = prior.spread * np.abs(rng.standard_cauchy(wide))
    # x | t of either way to draw t: both leave (t) half-Cauchy; see each step.
    common = Common(theta, tau**2, np.ones(wide), eta, g, rho, g)
    sites = []
    for _ in RECORDS:
        w = (tau * np.abs(rng.standard_cauchy(wide))) ** 2
        mine = theta + np.sqrt(w) * rng.standard_normal(wide)
        s = inverse_gamma(NOISE.shape, np.full(REPLICATES, NOISE.scale), rng)
        sites.append(SiteDraw(mine, s, w, inverse_gamma(1.0, 1 + tau**2 / w, rng)))
    return common, sites


def statistics(common: Common, sites: list[SiteDraw]) -> Array:
    """Return bounded or light-tailed statistics of all parameters, shape (statistics, replicates).

    Among them products: of what the steps draw together, and of what they draw apart.
    """
    theta, t = np.tanh(common.theta), np.log(common.t)
    found = [
        theta[:, 0], np.abs(theta[:, 0]), theta[:, 0] * theta[:, 1], t[:, 0], t[:, 1] ** 2,
        np.log(common.eta[:, 0]), np.log(common.eta[:, 1]) * common.g[:, 1], common.g[:, 0],
        common.rho, common.rho * common.g[:, 1], t[:, 0] * np.abs(theta[:, 0]),
    ]  # fmt: skip
    for site in sites:
        w = np.log(site.w)
        away = np.tanh(site.theta - common.theta)
        found += [
            away[:, 0], away[:, 1] ** 2, np.log(site.s), np.log(site.s) ** 2, w[:, 0],
            w[:, 1] * t[:, 1], np.log(site.v[:, 0]), np.tanh(site.theta[:, 0]) * theta[:, 0],
        ]  # fmt: skip
    return np.array(found)


def collapsed(common, sites, data, prior, rng):
    each = [(*marginal(d, s), common.t / (s.v * s.w)) for d, s in zip(data, sites, strict=True)]
    P, r, c = (sum(parts) for parts in zip(*each, strict=True))
    return spike_slab.collapsed(common, P, r, c, len(sites), prior, rng)


def paper(common, sites, data, prior, rng):
    shares = [(site.w / common.t, site.theta - common.theta) for site in sites]
    sums = [sum(d**power / share for share, d in shares) for power in (0, 1, 2)]
    drawn = spike_slab.paper(common, *sums, len(sites), prior, rng)
    for i, (share, _) in enumerate(shares):
        sites[i] = replace(sites[i], w=share * drawn.t)  # lambda is held
    return drawn


def slabs_first(common, sites, data, prior, rng):
    shares = [(site.w / common.t, site.theta - common.theta) for site in sites]
    one, d, dd = (sum(d**power / share for share, d in shares) for power in (0, 1, 2))
    chosen, d, dd = choose_slabs(common, one, d, dd, prior, rng)
    drawn = spike_slab.paper(chosen, one, d, dd, len(sites), prior, rng)
    for i, (share, _) in enumerate(shares):
        sites[i] = replace(sites[i], w=share * drawn.t)
    return drawn


def as_printed(common, sites, data, prior, rng):
    """Algorithm 3 with the scales of tau^2 and eta as they stand in print."""
    shares = [(site.w / common.t, site.theta - common.theta) for site in sites]
    sums = [sum(d**power / share for share, d in shares) for power in (0, 1, 2)]
    drawn = spike_slab.paper(common, sums[0], sums[1], 2 * sums[2], len(sites), prior, rng)
    scale = prior.b_e + np.sum(drawn.theta**2 / np.where(common.g > 0, 1, prior.ratio), axis=-1)
    eta = inverse_gamma(prior.a_e + Q / 2, scale[:, None] + np.zeros((1, Q)), rng)
    for i, (share, _) in enumerate(shares):
        sites[i] = replace(sites[i], w=share * drawn.t)
    return replace(drawn, eta=eta)


def swept(data, sites, common, rng):
    found = []
    for n, d, site in zip(RECORDS, data, sites, strict=True):
        noise = draw_noise(common.t.shape, n, NOISE, rng)
        found.append(sweep(d, site, common.theta, common.t, NOISE, noise))
    return found


def scores(step: Step, prior: SpikeSlab, seed: int) -> Array:
    """Return z of every statistic: what came out against fresh prior draws."""
    rng = np.random.default_rng(seed)
    common, sites = fresh(prior, rng)
    # x | t: for `collapsed` Gamma(1, A^2 + t); `paper` draws it first.
    x = rng.standard_gamma(1.0, common.t.shape) / (prior.spread**2 + common.t)
    common = replace(common, x=x)
    data = []
    for n, site in zip(RECORDS, sites, strict=True):
        X = rng.standard_normal((n, Q))
        y = site.theta @ X.T + np.sqrt(site.s)[:, None] * rng.standard_normal((REPLICATES, n))
        data.append(Regression(X.T @ X, y @ X, np.sum(y * y, axis=1)))
    for _ in range(ROUNDS):
        sites = swept(data, sites, common, rng)
        common = step(common, sites, data, prior, rng)
    # `collapsed` leaves theta_k behind: it is drawn before it is used
    sites = swept(data, sites, common, rng)
    after, before = statistics(common, sites), statistics(*fresh(prior, rng))
    error = np.sqrt((after.var(axis=1) + before.var(axis=1)) / REPLICATES)
    return (after.mean(axis=1) - before.mean(axis=1)) / error


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("step", [collapsed, paper])
def test_the_sampler_keeps_the_prior_invariant(step: Step, own: bool) -> None:
    # 35 statistics, two-sided: |z| > 4.5 in one of 4000 runs by chance
    z = scores(step, SpikeSlab(own=own, a_e=3.0, b_e=2.0), seed=1)
    assert np.max(np.abs(z)) < 4.5


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("step", [collapsed, slabs_first])
def test_a_fixed_spike_keeps_the_prior_invariant(step: Step, own: bool) -> None:
    prior = SpikeSlab(own=own, a_e=3.0, b_e=2.0, spike=0.05, spread=0.3)
    z = scores(step, prior, seed=2)
    assert np.max(np.abs(z)) < 4.5


def test_the_printed_formulas_do_not_keep_the_prior_invariant() -> None:
    z = scores(as_printed, SpikeSlab(a_e=3.0, b_e=2.0), seed=1)
    assert np.max(np.abs(z[[3, 5]])) > 30  # log tau^2 and log eta
