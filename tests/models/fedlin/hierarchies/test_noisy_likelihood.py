"""HM2's likelihood under noise once at the site, against numerical integration."""

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from secagg.contracts import NoisyMatrix, PublicFacts, Variable
from secagg.models.fedlin.design import Layout
from secagg.models.fedlin.hierarchies.base import PseudoObservations, SufficientStatistics
from secagg.models.fedlin.hierarchies.noisy_likelihood import (
    NoisyRegression,
    drawn_moments,
    predictors_scatter,
    uncorrelated_units,
)
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.models.numerics.natural_gaussian import Natural, triangle
from secagg.models.numerics.noise_posterior import PredictorsTarget, draw_predictors, factor_of

ERRORS = 5.0  # Monte Carlo errors by which a mean of draws may differ


def layout(q: int, intercept: Any = "site") -> Layout:
    names = ("y", *(f"x{j}" for j in range(q)))
    public = PublicFacts(tuple(Variable(n, n, 0.0, 1.0) for n in names), names, 900, ("a", "b"))
    return Layout.of(public, "y", None, intercept, 1)


def released(q: int, *, sd: float, sums_sd: float, seed: int = 0) -> NoisyMatrix:
    """Noisy moments of (1, y, x) of 400 records, with noise sd off the diagonal of x and y."""
    rng = np.random.default_rng(seed)
    X = 0.25 * rng.normal(size=(400, q))
    z = np.column_stack([np.ones(400), X @ np.full(q, 0.6) + 0.2 * rng.normal(size=400), X])
    variance = sd**2 * (1 + np.eye(q + 2))
    variance[0] = variance[:, 0] = sums_sd**2
    noise = np.triu(rng.normal(size=variance.shape) * np.sqrt(variance))
    return NoisyMatrix(z.T @ z + noise + np.triu(noise, 1).T, variance)


def likelihood(seen: PseudoObservations, theta: float) -> np.ndarray:
    """The density of each draw at theta, for one coefficient."""
    found: np.ndarray = np.exp(seen.log_factor - (seen.z[0] - seen.R[0, 0] * theta) ** 2 / 2)
    return found


@pytest.mark.parametrize(("intercept", "s"), [("site", 0.3), ("none", 0.3)])
def test_one_predictors_likelihood_is_the_integral_over_its_sum_of_squares(
    intercept: Any, s: float
) -> None:
    """Its sums are nearly exact, so only S and the products with y have noise; S's prior is flat.

    With intercept "site" it is S = sum of (x - mean)^2; with "none", y's sum tells of theta, too.
    """
    noisy, regression = released(1, sd=6.0, sums_sd=1e-3), layout(1, intercept)
    scale = np.array([2.0, 3.0])
    drawn = drawn_moments(noisy, regression, predictors_scatter(noisy, regression), 2)
    moments = NoisyRegression.of(noisy, regression, drawn, np.zeros(2), scale)
    seen = moments.observations(s)
    n, x, y = noisy.matrix[0, 0], noisy.matrix[0, 2], noisy.matrix[0, 1]
    own = intercept == "site"
    S_noisy = noisy.matrix[2, 2] - x**2 / n
    product = noisy.matrix[1, 2] - own * x * y / n
    v, w, s_scaled = noisy.variance[2, 2], noisy.variance[1, 2], s / scale[0] ** 2

    def density(S: float, theta: float) -> float:
        slope = theta * scale[1] / scale[0]
        if own:
            error = norm.pdf(product, slope * S, np.sqrt(s_scaled * S + w))
        else:
            raw = S + x**2 / n
            cov = s_scaled * np.array([[n, x], [x, raw]]) + np.diag([1e-6, w])
            off = np.array([y, product]) - slope * np.array([x, raw])
            error = np.exp(-off @ np.linalg.solve(cov, off) / 2) / np.sqrt(np.linalg.det(cov))
        return float(norm.pdf(S_noisy, S, np.sqrt(v)) * error)

    thetas = 0.4 + np.array([-0.5, -0.2, 0.0, 0.2, 0.5])
    top = S_noisy + 8 * np.sqrt(v)
    exact = np.array([quad(density, 1e-9, top, args=(t,), limit=200)[0] for t in thetas])
    each = np.array([likelihood(seen, t) for t in thetas])
    found, base = each.mean(axis=1), each[2].mean()
    error = (each / found[:, None] - each[2] / base).std(axis=1) / np.sqrt(each.shape[1])
    ratio = (found / base) / (exact / exact[2])
    assert np.all(np.abs(np.log(ratio)) <= ERRORS * 1.5 * error + 1e-9)  # 1.5: correlated draws
    assert np.max(error) < 0.05 and exact.min() < exact.max() / 3


@pytest.mark.parametrize("intercept", ["site", "modelled", "none"])
def test_each_draw_gives_the_density_of_the_noisy_products(intercept: Any) -> None:
    """Exactly, up to one factor for all draws; a site's own intercept is integrated numerically."""
    q, s, rng = 2, 2.0, np.random.default_rng(8)
    regression, noisy = layout(q, intercept), released(q, sd=3.0, sums_sd=4.0)
    centre, scale = np.array([0.2, -0.1, 0.3]), np.array([4.0, 2.0, 3.0])
    if intercept == "none":
        centre = np.zeros(3)
    exact = []
    for shrink in (0.5, 1.0, 2.0):
        X = np.column_stack([np.ones(60), shrink * rng.normal(0.1, 0.3, (60, q))])
        exact.append(X.T @ X)
    drawn = np.array([np.linalg.cholesky(M)[np.tril_indices(q + 1)] for M in exact])
    moments = NoisyRegression.of(noisy, regression, drawn, centre, scale)
    seen = moments.observations(s)
    b, V = noisy.matrix[1, [0, 2, 3]], np.diag(noisy.variance[1, [0, 2, 3]])

    def log_density(M: np.ndarray, alpha: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """y = centre + (alpha + theta' (x - centre) scale) / scale of y: b given these."""
        slopes = theta * scale[1:] / scale[0]
        level = centre[0] + alpha / scale[0] - slopes @ centre[1:]
        beta = np.vstack([level, np.repeat(slopes[:, None], len(alpha), axis=1)])
        cov = s / scale[0] ** 2 * M + V
        off = b[:, None] - M @ beta
        return -np.sum(off * np.linalg.solve(cov, off), axis=0) / 2 - np.linalg.slogdet(cov)[1] / 2

    found, expected = [], []
    for theta in rng.normal(0, 1, (4, len(seen.R[0]))):
        slopes = theta[1:] if intercept == "modelled" else theta
        for i, M in enumerate(exact):
            off = seen.z[:, i] - seen.R[:, :, i] @ theta
            found.append(seen.log_factor[i] - off @ off / 2)
            if intercept == "site":
                grid = np.linspace(-60, 60, 60_001)
                values = log_density(M, grid, slopes)
                expected.append(values.max() + np.log(np.exp(values - values.max()).sum()))
            else:
                alpha = theta[:1] if intercept == "modelled" else np.zeros(1)
                expected.append(log_density(M, alpha, slopes)[0])
    assert np.array(found) - found[0] == pytest.approx(np.array(expected) - expected[0], abs=1e-6)


class Same:
    """A generator whose normal numbers all have one value."""

    def __init__(self, value: float) -> None:
        self.value = value

    def standard_normal(self, many: int) -> np.ndarray:
        return np.full(many, self.value)


def test_a_sites_own_intercept_is_drawn_given_its_coefficients_and_moments() -> None:
    """Its mean and standard deviation against the joint density on a grid."""
    q, s, rng = 2, 2.0, np.random.default_rng(9)
    regression, noisy = layout(q, "site"), released(q, sd=3.0, sums_sd=4.0)
    centre, scale = np.array([0.2, -0.1, 0.3]), np.array([4.0, 2.0, 3.0])
    X = np.column_stack([np.ones(60), rng.normal(0.1, 0.3, (60, q))])
    exact = np.array([X.T @ X, 1.5 * X.T @ X])
    drawn = np.array([np.linalg.cholesky(M)[np.tril_indices(q + 1)] for M in exact])
    moments = NoisyRegression.of(noisy, regression, drawn, centre, scale)
    b, V = noisy.matrix[1, [0, 2, 3]], np.diag(noisy.variance[1, [0, 2, 3]])
    theta, which = rng.normal(size=(4, q)), np.array([0, 1, 0, 1])
    mean = moments.intercepts(theta, which, s, Same(0.0))  # type: ignore[arg-type]
    sd = moments.intercepts(theta, which, s, Same(1.0)) - mean  # type: ignore[arg-type]
    grid = np.linspace(-60, 60, 60_001)
    for i, k in enumerate(which):
        slopes = theta[i] * scale[1:] / scale[0]
        level = centre[0] + grid / scale[0] - slopes @ centre[1:]
        beta = np.vstack([level, np.repeat(slopes[:, None], len(grid), axis=1)])
        off = b[:, None] - exact[k] @ beta
        cov = s / scale[0] ** 2 * exact[k] + V
        log = -np.sum(off * np.linalg.solve(cov, off), axis=0) / 2
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        found = weight @ grid
        assert mean[i] == pytest.approx(found, abs=1e-6)
        assert sd[i] == pytest.approx(np.sqrt(weight @ (grid - found) ** 2), rel=1e-6)


def test_directions_that_the_noise_hides_have_the_size_of_the_noise() -> None:
    """The scatter of two predictors over 4 sites, with a negative eigenvalue along (1, -1)."""
    axes = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
    scatter = triangle(axes @ np.diag([90.0, -20.0]) @ axes)
    variance = 9.0 * (1 + np.eye(3))
    floor = np.sqrt(4 * 9 * 6 / 2)  # of 4 sites: the sum of the variances over two rows
    expected = axes @ np.diag([90.0, floor]) @ axes
    unit = uncorrelated_units(scatter, variance, 4)
    sizes = [expected[0, 0], expected[1, 1] - expected[0, 1] ** 2 / expected[0, 0]]
    assert unit[1:, 1:] @ np.diag(sizes) @ unit[1:, 1:].T == pytest.approx(expected)
    assert unit[0] == pytest.approx([1, 0, 0]) and unit[:, 0] == pytest.approx([1, 0, 0])


def test_the_outcomes_centre_is_subtracted_with_its_noise() -> None:
    noisy, regression = released(2, sd=3.0, sums_sd=4.0), layout(2)
    drawn = drawn_moments(noisy, regression, predictors_scatter(noisy, regression), 2)
    centre = np.array([0.7, 0.0, 0.0])
    moments = NoisyRegression.of(noisy, regression, drawn, centre, np.ones(3))
    n = moments.M[:, 0, 0].mean()
    assert moments.square == pytest.approx(
        noisy.matrix[1, 1] - 2 * 0.7 * noisy.matrix[1, 0] + 0.7**2 * n
    )
    assert moments.square_variance == pytest.approx(
        noisy.variance[1, 1] + (2 * 0.7) ** 2 * noisy.variance[1, 0]
    )


@pytest.mark.parametrize(
    ("noise", "worth"), [(0.0, 30.0), (60 * 0.5**2, 15.0), (1e30, 0.0)]
)  # noise as large as chance halves the degrees of freedom
def test_a_sites_error_variance_is_shrunk_by_four_records_and_its_noise(
    monkeypatch: pytest.MonkeyPatch, noise: float, worth: float
) -> None:
    noisy, regression = released(2, sd=3.0, sums_sd=4.0), layout(2)
    drawn = drawn_moments(noisy, regression, predictors_scatter(noisy, regression), 2)
    scale = np.array([2.0, 1.0, 1.0])
    moments = NoisyRegression.of(noisy, regression, drawn, np.zeros(3), scale)
    monkeypatch.setattr(NoisyRegression, "error_variance", lambda _: (0.1, noise))
    found = moments.own_error_variance(2.0, 30)  # pooled: 0.5 in the outcome's scaled unit
    assert found == pytest.approx((worth * 0.4 + 4 * 2.0) / (worth + 4))


def test_density_of_the_predictors_moments_is_the_prior_times_the_noise() -> None:
    """Against (1) and (2) of `noise_posterior`, with a numerical Jacobian of X -> M."""
    q, rng = 2, np.random.default_rng(3)
    unit = np.eye(3)
    unit[2, 1] = 0.7
    M = np.array([[50.0, 3.0, -2.0], [3.0, 9.0, 4.0], [-2.0, 4.0, 8.0]])
    variance = rng.uniform(1, 4, (3, 3))
    variance = (variance + variance.T) / 2
    target = PredictorsTarget(M[None], variance, unit)

    def moments(x: np.ndarray) -> np.ndarray:
        X = np.zeros((1, 3, 3))
        X[0][np.tril_indices(3)] = x
        L = unit @ factor_of(X)[0]
        return triangle(L @ L.T)

    def log_density(x: np.ndarray) -> float:
        found = np.zeros((3, 3))
        found[np.triu_indices(3)] = moments(x)
        found = found + np.triu(found, 1).T
        centred = found[1:, 1:] - np.outer(found[0, 1:], found[0, 1:]) / found[0, 0]
        inner = np.linalg.solve(unit[1:, 1:], np.linalg.solve(unit[1:, 1:], centred).T)
        size = np.sqrt(np.diagonal(inner))
        det = np.linalg.det(inner / np.outer(size, size))
        a = np.geomspace(1.0, 4.5 * 3, 12)
        norms = [quad(lambda r, e=e: (1 - r * r) ** (e - 0.5), -1, 1)[0] for e in a]
        prior = np.sum(a**6 * det ** (a - 0.5) / norms)
        noise = np.sum(triangle((found - M) ** 2 / variance)) / 2
        step = 1e-5
        jacobian = [(moments(x + step * e) - moments(x - step * e)) / (2 * step) for e in np.eye(6)]
        change = np.linalg.slogdet(np.array(jacobian))[1]
        return float(-noise + np.log(prior) - (q - 1) / 2 * np.sum(np.log(size**2)) + change)

    points = np.array([1.9, 0.3, 1.1, -0.2, 0.8, 0.9]) + 0.2 * rng.normal(size=(4, 6))
    X = np.zeros((4, 3, 3))
    X[:, np.tril_indices(3)[0], np.tril_indices(3)[1]] = points
    value, gradient = target(X)
    expected = np.array([log_density(x) for x in points])
    assert value - value[0] == pytest.approx(expected - expected[0], abs=1e-5)
    for i, j in zip(*np.tril_indices(3), strict=True):
        moved = X.copy()
        moved[:, i, j] += 1e-6
        slope = (target(moved)[0] - value) / 1e-6
        assert gradient[:, i, j] == pytest.approx(slope, rel=1e-3, abs=1e-3)


def test_much_noise_leaves_the_correlation_of_all_sites() -> None:
    variance = np.full((3, 3), 400.0)
    variance[0] = variance[:, 0] = 1.0
    M = np.diag([400.0, 25.0, 25.0])
    found = []
    for slope in (0.0, 0.8):
        unit = np.eye(3)
        unit[2, 1] = slope
        L = draw_predictors(np.repeat(M[None], 32, axis=0), variance, unit, 20)
        S = L[..., 1:, 1:] @ L[..., 1:, 1:].swapaxes(-1, -2)
        found.append(np.mean(S[..., 0, 1] / np.sqrt(S[..., 0, 0] * S[..., 1, 1])))
    assert abs(found[0]) < 0.1 and found[1] > 0.4


def mixture() -> tuple[PseudoObservations, Natural]:
    R, z = np.array([[[1.5, 4.0, 2.0]]]), np.array([[1.0, -1.5, 2.4]])
    cavity = Natural.of(np.array([0.2, -1.0]), np.array([[0.3, 0.1], [0.1, 0.8]]))
    return PseudoObservations(R, z, np.log([0.2, 0.5, 1.3])), cavity


def grid_moments() -> tuple[np.ndarray, np.ndarray, float, float]:
    """Mean and covariance of phi, mean and sd of theta, on a grid."""
    seen, cavity = mixture()
    mu, log_tau = np.meshgrid(np.linspace(-4, 4, 401), np.linspace(-7, 5, 401), indexing="ij")
    phi, tau = np.stack([mu, log_tau], axis=-1), np.exp(log_tau)
    prior = np.exp(phi @ cavity.r - np.sum((phi @ cavity.Q) * phi, axis=-1) / 2)
    total, first, second = np.zeros_like(mu), 0.0, 0.0
    for R, z, factor in zip(seen.R[0, 0], seen.z[0], np.exp(seen.log_factor), strict=True):
        weight = prior * factor * norm.pdf(z, R * mu, np.sqrt(1 + R**2 * tau))
        v = 1 / (R**2 + 1 / tau)
        mean = v * (R * z + mu / tau)
        total = total + weight
        first, second = first + np.sum(weight * mean), second + np.sum(weight * (v + mean**2))
    at, shares = phi.reshape(-1, 2), total.ravel() / total.sum()
    centre = shares @ at
    mean = float(first / total.sum())
    cov = (at - centre).T @ ((at - centre) * shares[:, None])
    return centre, cov, mean, float(np.sqrt(second / total.sum() - mean**2))


def test_tilted_moments_of_a_mean_of_densities_agree_with_a_grid() -> None:
    seen, cavity = mixture()
    site = SufficientStatistics(np.eye(1), np.ones(1), 1.0, 9, 1.0, noisy=seen)
    found = NormalHierarchy().tilted(site, cavity, np.random.default_rng(1))
    mean, cov, _, _ = grid_moments()
    sd = np.sqrt(np.diagonal(cov))
    assert np.all(np.abs(found.mean - mean) <= 0.02 * sd)
    assert np.all(np.abs(found.cov - cov) <= 0.05 * np.outer(sd, sd))


def test_draws_of_a_mean_of_densities_agree_with_a_grid() -> None:
    seen, cavity = mixture()
    site = SufficientStatistics(np.eye(1), np.ones(1), 1.0, 9, 1.0, noisy=seen)
    many = 8000
    drawn = NormalHierarchy().draw(site, cavity, many, np.random.default_rng(2))
    mean, cov, theta, sd = grid_moments()
    error = ERRORS * 1.5 / np.sqrt(many)  # 1.5: candidates are drawn more than once
    assert np.all(np.abs(drawn.phi.mean(axis=0) - mean) <= error * np.sqrt(np.diagonal(cov)))
    assert abs(drawn.theta.mean() - theta) <= error * sd
    assert abs(drawn.theta.std() / sd - 1) <= error
    assert drawn.which is not None and len(np.unique(drawn.which)) == 3


def test_error_variance_is_unbiased_where_that_of_noisy_least_squares_is_not() -> None:
    """Of 200 releases with the same exact M: (2) against the true s, and its own variance."""
    q, n, sd, s = 3, 400, 4.0, 0.04
    rng, regression = np.random.default_rng(5), layout(3)
    X = np.column_stack([np.ones(n), 0.25 * rng.normal(size=(n, q))])
    M, beta = X.T @ X, np.array([0.1, 0.5, 0.3, -0.2])
    drawn = np.repeat(np.linalg.cholesky(M)[np.tril_indices(q + 1)][None], 2, axis=0)
    variance = np.full((q + 2, q + 2), sd**2)
    found, naive = [], []
    for _ in range(200):
        y = X @ beta + np.sqrt(s) * rng.normal(size=n)
        b, square = X.T @ y + sd * rng.normal(size=q + 1), y @ y + sd * rng.normal()
        matrix = np.zeros((q + 2, q + 2))
        at = [0, 2, 3, 4]
        matrix[np.ix_(at, at)], matrix[1, at], matrix[at, 1], matrix[1, 1] = M, b, b, square
        noisy = NoisyMatrix(matrix, variance)
        moments = NoisyRegression.of(noisy, regression, drawn, np.zeros(q + 1), np.ones(q + 1))
        value, noise = moments.error_variance()
        found.append(value)
        naive.append((square - b @ np.linalg.solve(M, b)) / (n - q - 1))
    mcse = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - s) <= 3 * mcse
    assert s - np.mean(naive) > 3 * mcse
    assert np.var(found) * n**2 == pytest.approx(noise + 2 * n * s**2, rel=0.3)


def test_moments_that_no_records_have_and_few_records_give_proper_draws() -> None:
    """The noisy M has a negative eigenvalue; the error variance stays within its limits."""
    noisy, regression = released(2, sd=3.0, sums_sd=3.0), layout(2)
    noisy.matrix[2, 2] = -4.0
    scatter = predictors_scatter(noisy, regression)
    drawn = drawn_moments(noisy, regression, scatter, 2)
    for square in (-5.0, 1e4):
        noisy.matrix[1, 1] = square
        moments = NoisyRegression.of(noisy, regression, drawn, np.zeros(3), np.ones(3))
        assert np.linalg.eigvalsh(moments.M).min() > 0
        s, noise = moments.error_variance()
        assert 0 < s <= max(square, 1e-300) / moments.M[:, 0, 0].mean() and noise > 0
        seen = moments.observations(max(s, 1e-12))
        assert np.all(np.isfinite(seen.R)) and np.all(np.isfinite(seen.log_factor))


@pytest.mark.parametrize(
    ("settings", "known"), [({}, True), ({"prior": "lasso"}, False), ({"points": 64}, False)]
)
def test_settings_whose_intervals_know_the_noise(settings: dict[str, Any], known: bool) -> None:
    assert FedLinHm2(outcome="y", **settings).knows_noise is known
