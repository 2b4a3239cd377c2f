"""Exact moments as missing data: derivatives, both moves, and the limit without noise."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import wishart

from secagg.contracts import NoisyMatrix
from secagg.core.arrays import Array
from secagg.models.numerics.noise_posterior import factor_of
from secagg.models.numerics.site_covariances import SharedCovariance
from secagg.models.sparse_bayes.horseshoe import SiteDraw
from secagg.models.sparse_bayes.latent import moments as latent_moments
from secagg.models.sparse_bayes.latent.moments import (
    GivenCoefficients,
    begin_latent,
    draw_latent,
    latent_regression,
    line_terms,
    shift_latent,
)
from secagg.models.sparse_bayes.sums import Design

DESIGN = Design(np.array([2, 0]), np.array([[0, 1], [2, 1]]))
"""Two regressions, so that the order of rows matters."""
CHAINS, RECORDS = 3, 200.0
DIVIDED = np.array([4.0, 5.0, 3.0])
"""d: what a column analysed is in scaled units."""


PRECISION = np.array([[3.0, -0.5], [-0.5, 2.0]])


def one_prior(*shape: int) -> SharedCovariance:
    """Return the same prior of the predictors' scatter for all chains and regressions."""
    precision = np.broadcast_to(PRECISION, (*shape, 2, 2)).copy()
    return SharedCovariance(precision, np.full(shape, 0.25))


def moments(seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    u = 0.1 + rng.normal(size=(int(RECORDS), 3)) @ np.array(
        [[0.2, 0.1, 0.1], [0, 0.2, 0], [0, 0, 0.3]]
    )
    z = np.column_stack([np.ones(len(u)), u])
    return z.T @ z


def noisy(sd: float) -> NoisyMatrix:
    rng = np.random.default_rng(1)
    E = np.triu(rng.normal(size=(4, 4))) * sd * np.sqrt(1 + np.eye(4))
    return NoisyMatrix(moments() + E + np.triu(E, 1).T, sd**2 * (1 + np.eye(4)))


def parameters(sites: int, w: float = 0.05) -> SiteDraw:
    shape = (sites, CHAINS, 2, 2)
    theta = np.broadcast_to([[0.3, -0.1], [0.2, 0.1]], shape).copy()
    return SiteDraw(theta, np.full(shape[:-1], 1.2), np.full(shape, w), np.ones(shape))


def play(rounds: int, given: NoisyMatrix, seed: int = 0, sites: int = 1, w: float = 0.05) -> Any:
    """Return theta and X'y of every round, without the first tenth; theta is only moved."""
    latents = [begin_latent(given, DESIGN, CHAINS) for _ in range(sites)]
    rngs = [np.random.default_rng([seed, k]) for k in range(sites)]
    draw, seen = parameters(sites, w), []
    common = draw.theta[0]
    for number in range(rounds):
        warm = number < rounds // 10
        latents, draw = draw_latent(
            latents,
            [DIVIDED] * sites,
            DESIGN,
            [RECORDS - 1] * sites,
            draw,
            common,
            one_prior(CHAINS, 2),
            rngs,
            warmup=warm,
        )
        if not warm:
            data = latent_regression(latents, [DIVIDED] * sites, DESIGN, 1e9)
            seen.append((draw.theta.copy(), data.cross.copy(), data.square.copy()))
    return [np.array(each) for each in zip(*seen, strict=True)]


def test_the_gradient_is_that_of_the_density() -> None:
    given, draw = noisy(2.0), parameters(1)
    released = np.repeat(given.matrix[None], CHAINS, axis=0)
    s = np.array([0.05, 0.1, 0.2])
    target = GivenCoefficients(
        released, given.variance, draw.theta[0, :, 0], s, np.full(3, 197.0), np.full(3, 199.0),
        one_prior(CHAINS),
    )  # fmt: skip
    X = begin_latent(given, DESIGN, CHAINS)["X"][:, 0]
    _, gradient = target(X)
    for j, k in zip(*np.tril_indices(4), strict=True):
        step = np.zeros((4, 4))
        step[j, k] = 1e-6
        numeric = (target(X + step)[0] - target(X - step)[0]) / 2e-6
        assert gradient[:, j, k] == pytest.approx(numeric, rel=1e-5, abs=1e-4)


def test_the_density_of_the_last_row_is_that_of_regressions() -> None:
    """Simulated records: mean and variance of l and l_yy^2 by (1), where the noise says nothing."""
    rng, beta, s, n = np.random.default_rng(3), np.array([0.4, -0.2]), 0.3, 40
    x = rng.normal(size=(n, 2))
    z = x - x.mean(axis=0)
    L_x = np.linalg.cholesky(z.T @ z)
    y = x @ beta + np.sqrt(s) * rng.normal(size=(4000, n))
    y -= y.mean(axis=1, keepdims=True)
    l_ = np.linalg.solve(L_x, (y @ z).T)
    rest = (y**2).sum(axis=1) - (l_**2).sum(axis=0)
    error = np.sqrt(s / 4000)
    assert np.abs(l_.mean(axis=1) - L_x.T @ beta).max() < 4 * error
    dof = n - 1 - 2
    assert abs(rest.mean() / s - dof) < 4 * np.sqrt(2 * dof / 4000)
    # the density's derivative by l is zero at its mean, by log l_yy at root(dof s)
    released, wide = np.zeros((1, 4, 4)), np.full((4, 4), 1e12)
    flat = SharedCovariance(np.zeros((1, 2, 2)), np.ones(1))
    target = GivenCoefficients(
        released, wide, beta[None], np.array([s]), np.array([float(dof)]), np.ones(1), flat
    )
    X = np.zeros((1, 4, 4))
    X[0, 1:3, 1:3] = L_x
    X[0, 3, 1:3] = L_x.T @ beta
    diagonal = np.arange(4)
    X[:, diagonal, diagonal] = np.log([np.sqrt(n), L_x[0, 0], L_x[1, 1], np.sqrt(dof * s)])
    _, gradient = target(X)
    assert np.abs(gradient[0, 3, 1:]).max() < 1e-6


def test_without_noise_the_moments_are_the_exact_ones() -> None:
    _, cross, square = play(60, noisy(1e-6))
    exact = DESIGN.regression(centred(moments()) * np.outer(DIVIDED, DIVIDED))
    assert cross == pytest.approx(np.broadcast_to(exact.cross, cross.shape), abs=1e-3)
    assert square == pytest.approx(np.broadcast_to(exact.square, square.shape), abs=1e-3)


def centred(M: Array) -> Array:
    return M[1:, 1:] - np.outer(M[0, 1:], M[0, 1:]) / M[0, 0]


@pytest.mark.oracle
@pytest.mark.parametrize("sd", [1.0, 8.0])
def test_coefficients_have_the_posterior_of_a_normal_model(sd: float) -> None:
    """With the predictors' moments and s known, X'y / d^2 is normal, so is theta's posterior.

    An oracle for both moves together: theta moves only with the moments here, so it is drawn from
    its posterior given the noisy ones. The noise of all other entries is made small.
    """
    given = noisy(1e-3)
    wide = given.variance.copy()
    wide[3, 1:3] = wide[1:3, 3] = sd**2
    E = np.zeros((4, 4))
    E[3, 1:3] = E[1:3, 3] = sd * np.array([0.7, -1.1])
    wide[3, 3] = 1e4  # so the sum of squares says nothing
    given = NoisyMatrix(moments() + E, wide)
    theta, cross, _ = play(3000, given, w=0.05)
    exact = DESIGN.regression(centred(moments()) * np.outer(DIVIDED, DIVIDED))
    S = exact.gram[0] / np.outer(DIVIDED[[0, 1]], DIVIDED[[0, 1]])
    d_y = DIVIDED[2]
    unit, s = DIVIDED[[0, 1]] / d_y, 1.2 / d_y**2
    seen = given.matrix[3, 1:3] - given.matrix[3, 0] * given.matrix[0, 1:3] / given.matrix[0, 0]
    # c~ | beta ~ N(S beta, s S + N); beta ~ N(beta_0, W)
    precision = S @ np.linalg.inv(s * S + sd**2 * np.eye(2)) @ S + np.diag(1 / (0.05 * unit**2))
    start = np.array([0.3, -0.1]) * unit
    shift = S @ np.linalg.solve(s * S + sd**2 * np.eye(2), seen) + start / (0.05 * unit**2)
    cov = np.linalg.inv(precision)
    mean = cov @ shift
    found = theta[:, 0, :, 0] * unit  # (rounds, chains, q)
    sds = np.sqrt(np.diag(cov))
    batches = found.reshape(27, 100, CHAINS, 2).mean(axis=1)
    error = batches.std(axis=(0, 1), ddof=1) / np.sqrt(27 * CHAINS)
    assert np.all(error < 0.1 * sds)  # the chains mix
    assert np.all(np.abs(found.mean(axis=(0, 1)) - mean) < 4 * error)
    assert np.all(np.abs(found.std(axis=(0, 1)) / sds - 1) < 0.1)
    assert np.all(cross.std(axis=0) > 0)


@pytest.mark.oracle
def test_the_second_move_allows_for_the_sum_of_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle for (2): in place of the second move, theta is drawn given the moments."""
    given = noisy(3.0)
    given.variance[3, 3] = 1.0  # so y'y says much
    moved = play(2500, given, w=0.05)[0][:, 0]

    rng = np.random.default_rng(7)

    def theta_given_moments(
        X: Array, released: Array, variance: Array, beta: Array, common: Array, root: Array,
        *others: Array,
    ) -> tuple[Array, Array]:  # fmt: skip
        L = factor_of(X)
        L_x, s = L[:, 1:-1, 1:-1], 1.2 / np.tile([3.0, 4.0], CHAINS) ** 2
        precision = L_x @ L_x.swapaxes(1, 2) / s[:, None, None]
        precision += np.eye(2) / (root**2)[:, None, :]
        shift = np.einsum("cij,cj->ci", L_x, L[:, -1, 1:-1]) / s[:, None] + common / root**2
        cov = np.linalg.inv(precision)
        noise = np.einsum("cij,cj->ci", np.linalg.cholesky(cov), rng.normal(size=beta.shape))
        return X, np.einsum("cij,cj->ci", cov, shift) + noise - beta

    monkeypatch.setattr(latent_moments, "_slide", theta_given_moments)
    drawn = play(4000, given, seed=5, w=0.05)[0][:, 0]
    for power in (1, 2):
        means, errors = [], []
        for theta in (moved, drawn):
            batches = (theta**power).reshape(15, -1, *theta.shape[1:]).mean(axis=1)
            means.append(batches.mean(axis=(0, 1)))
            errors.append(batches.std(axis=(0, 1), ddof=1) / np.sqrt(15 * CHAINS))
        assert np.all(np.abs(means[0] - means[1]) < 4.5 * np.hypot(*errors))


def test_the_density_is_that_of_the_prior_in_other_coordinates() -> None:
    """With a numerical Jacobian from X to n, sums, A, l and l_yy^2; A's density is scipy's."""
    beta, s, dof, n = np.array([0.3, -0.2]), 0.4, 17.0, 9.0
    wide = np.full((4, 4), 1e12)
    target = GivenCoefficients(
        np.zeros((1, 4, 4)), wide, beta[None], np.array([s]), np.array([dof]), np.array([n]),
        one_prior(1),
    )  # fmt: skip
    at, nu = np.tril_indices(4), 2 + 0.25 * n
    A = wishart(nu, n / nu * np.linalg.inv(PRECISION))

    def natural(x: Array) -> Array:
        X = np.zeros((4, 4))
        X[at] = x
        L = factor_of(X)
        M = L @ L.T
        S = L[1:3, 1:3] @ L[1:3, 1:3].T
        return np.array([*M[:3, 0], S[0, 0], S[1, 1], S[0, 1], *L[3, :3], L[3, 3] ** 2])

    def log_density(x: Array) -> float:
        X = np.zeros((4, 4))
        X[at] = x
        L_x = factor_of(X)[1:3, 1:3]
        found, unit = natural(x), np.eye(len(x))
        jacobian = np.column_stack(
            [(natural(x + 1e-6 * e) - natural(x - 1e-6 * e)) / 2e-6 for e in unit]
        )
        error = found[7:9] - L_x.T @ beta
        rows = -error @ error / (2 * s) + (dof / 2 - 1) * np.log(found[9]) - found[9] / (2 * s)
        return float(A.logpdf(L_x @ L_x.T) + rows + np.linalg.slogdet(jacobian)[1])

    rng = np.random.default_rng(2)
    points = [0.4 * rng.normal(size=10) for _ in range(4)]
    values = []
    for x in points:
        X = np.zeros((1, 4, 4))
        X[0][at] = x
        values.append(float(target(X)[0][0]))
    for i, k in combinations(range(4), 2):
        expected = log_density(points[i]) - log_density(points[k])
        assert values[i] - values[k] == pytest.approx(expected, abs=1e-4)


def test_the_line_is_that_of_the_noise() -> None:
    """c_1 to c_5 against the density itself, which is a polynomial along the line."""
    given = noisy(3.0)
    latent, u = begin_latent(given, DESIGN, CHAINS), np.zeros((CHAINS, 2, 2))
    u[...] = np.random.default_rng(3).normal(size=u.shape)
    terms = line_terms([latent], [DIVIDED], DESIGN, u)[0]
    orders = np.array([[0, 1, 2, 3], [0, 3, 2, 1]])

    def log_density(a: float) -> Array:
        (moved,) = shift_latent([latent], [DIVIDED], DESIGN, a * u)
        L = factor_of(moved["X"])
        M = L @ L.swapaxes(-1, -2)
        found = np.empty((CHAINS, 2))
        for i, order in enumerate(orders):
            E = given.matrix[np.ix_(order, order)] - M[:, i]
            variance = given.variance[np.ix_(order, order)]
            found[:, i] = -np.sum(np.tril(np.ones((4, 4))) * E**2 / variance / 2, axis=(1, 2))
        return found

    for a in (-0.4, 0.7):
        powers = np.array([a, a**2, a**3, a**4, a**2])
        assert terms @ powers == pytest.approx(log_density(a) - log_density(0.0), rel=1e-9)
    assert np.all(terms[..., 1] < 0)


def test_a_shift_moves_cross_products_as_the_coefficients() -> None:
    latent, shift = begin_latent(noisy(3.0), DESIGN, CHAINS), np.full((CHAINS, 2, 2), 0.3)
    (moved,) = shift_latent([latent], [DIVIDED], DESIGN, shift)
    before, after = (latent_regression([x], [DIVIDED], DESIGN, 1e9) for x in (latent, moved))
    change = np.einsum("...ij,...j->...i", before.gram[0], shift)
    assert after.cross[0] - before.cross[0] == pytest.approx(change)
    assert np.array_equal(after.gram, before.gram)


def test_no_number_of_a_site_depends_on_the_other_sites() -> None:
    alone = play(4, noisy(3.0))
    together = play(4, noisy(3.0), sites=3)
    for one, many in zip(alone, together, strict=True):
        assert np.array_equal(one[:, 0], many[:, 0])


def test_columns_are_made_smaller_that_no_table_can_have() -> None:
    latent = begin_latent(noisy(3.0), DESIGN, CHAINS)
    free = latent_regression([latent], [DIVIDED], DESIGN, 1e9)
    most = float(free.square.max()) / 2
    limited = latent_regression([latent], [DIVIDED], DESIGN, most)
    assert limited.square.max() == pytest.approx(most)
    diagonal = np.diagonal(limited.gram, axis1=-2, axis2=-1)
    assert diagonal.max() <= most * (1 + 1e-12)
