"""The prior that sites learn together: densities and draws against scipy's Wishart distribution."""

from dataclasses import asdict

import numpy as np
import pytest
from scipy.stats import chi2, kstest, wishart

from secagg.contracts import Update
from secagg.errors import PeerError
from secagg.models.numerics.site_covariances import (
    PRIOR_VARIANCE,
    SHARES,
    SharedCovariance,
    begin_shared,
    draw_shared,
    read_shared,
    shared_spec,
    site_terms,
    wishart_log_density,
)

Q = 3
SIGMA = np.array([[0.05, 0.01, 0.0], [0.01, 0.04, -0.02], [0.0, -0.02, 0.08]])
COUNTS = (30, 80, 200)


def sums(now: SharedCovariance, share: float, seed: int = 0) -> tuple[Update, list[np.ndarray]]:
    """Return the sums of sites whose scatter matrices are drawn, and these."""
    rng, total, scatters = np.random.default_rng(seed), {}, []
    for n in COUNTS:
        nu = Q + share * n
        scatters.append(wishart(nu, n / nu * SIGMA).rvs(random_state=rng))
        for name, term in site_terms(scatters[-1][None], n, now).items():
            total[name] = total.get(name, 0) + term
    return total, scatters


def test_the_density_is_the_wishart_density() -> None:
    shape = (2,)
    precision = np.broadcast_to(np.linalg.inv(SIGMA), (*shape, Q, Q))
    scatter = wishart(20, SIGMA).rvs(random_state=1)
    shares = np.array([0.25, 1 / 64])
    found = wishart_log_density(scatter, 50, SharedCovariance(precision, shares))
    for value, share in zip(found, shares, strict=True):
        nu = Q + share * 50
        assert value == pytest.approx(wishart(nu, 50 / nu * SIGMA).logpdf(scatter))


def test_sigma_has_its_conditional_distribution() -> None:
    """Each form u' Sigma^-1 u of (4), divided by that of the scale, has a chi^2 distribution."""
    draws = 2000
    start = begin_shared((draws,), Q)
    total, scatters = sums(begin_shared((1,), Q), 0.25)
    total = {name: np.repeat(np.atleast_2d(term), draws, axis=0) for name, term in total.items()}
    total["log_density"][:] = np.where(SHARES == 1 / 16, 0.0, -1e9)  # omega is 1 / 16
    total["freedom"] = np.array([float(sum(COUNTS))])
    drawn = draw_shared(start, total, len(COUNTS), np.random.default_rng(2))
    assert np.all(drawn.share == 1 / 16)
    nus = [Q + n / 16 for n in COUNTS]
    parts = [nu / n * A for nu, n, A in zip(nus, COUNTS, scatters, strict=True)]
    scale = np.linalg.inv(PRIOR_VARIANCE * np.eye(Q) + sum(parts))
    for u in (*np.eye(Q), np.array([1.0, -2.0, 0.5])):
        ratios = np.einsum("i,dij,j->d", u, drawn.precision, u) / (u @ scale @ u)
        assert kstest(ratios, chi2(Q + 1 + sum(nus)).cdf).pvalue > 1e-3


def test_omega_has_its_conditional_distribution() -> None:
    now = SharedCovariance(np.linalg.inv(SIGMA)[None], np.array([0.25]))
    total, scatters = sums(now, 1 / 16, seed=4)
    logs = np.zeros(len(SHARES))
    for n, A in zip(COUNTS, scatters, strict=True):
        logs += [wishart(Q + w * n, n / (Q + w * n) * SIGMA).logpdf(A) for w in SHARES]
    expected = np.exp(logs - logs.max())
    expected /= expected.sum()
    rng, draws = np.random.default_rng(5), 4000
    drawn = np.array([draw_shared(now, total, 3, rng).share[0] for _ in range(draws)])
    found = np.array([np.mean(drawn == w) for w in SHARES])
    assert np.all(np.abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / draws) + 1e-9)
    assert np.sum(expected > 0.02) > 1  # so the test can fail


def test_a_scatter_matrix_that_no_table_has_is_made_smaller() -> None:
    now, n = begin_shared((1,), Q), 10
    found = site_terms(100 * np.eye(Q)[None], n, now)
    bounds = {field.name: field.bound for field in shared_spec((1,), Q, 10, 2)}
    for name, term in found.items():
        assert np.all(np.abs(term) <= bounds[name])
    assert found["scatter"][0, 0] == pytest.approx(n)


@pytest.mark.parametrize("fault", ["indefinite", "not symmetric", "share"])
def test_a_site_refuses_a_covariance_that_is_none(fault: str) -> None:
    state = asdict(begin_shared((2,), Q))
    if fault == "indefinite":
        state["precision"][1, 0, 0] = -1.0
    elif fault == "not symmetric":
        state["precision"][1, 0, 1] = 0.1
    else:
        state["share"][1] = 0.3
    with pytest.raises(PeerError):
        read_shared(state)
