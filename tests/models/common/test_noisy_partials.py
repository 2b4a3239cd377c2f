"""Partial correlations and slopes from noisy moments, against noise that is drawn."""

import numpy as np
import pytest

from secagg.contracts import NoisyMatrix
from secagg.models.common.noisy_moments import NoisyMoments, repaired
from secagg.models.common.noisy_partials import NoisyPartials, noisy_partials
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.noise_size import scatter_noise
from secagg.models.graphs.pc_ges import PartialCorrelationTest

HALF = np.array([1.0, 2.0, 0.5, 4.0])
N = 4000


def released(seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Exact M of columns x, y, a, b in scaled units, and the variances of its noise.

    x and y depend on a and b, and are independent given them; means are not in the middle.
    """
    rng = np.random.default_rng(seed)
    a = rng.normal(size=N)
    b = 0.8 * a + 0.6 * rng.normal(size=N)
    X = np.column_stack([np.ones(N), a, b])
    noise, _ = np.linalg.qr(np.column_stack([X, rng.normal(size=(N, 2))]))
    ends = noise[:, 3:] * np.sqrt(N) * [0.5, 0.4]  # orthogonal to each other and to X
    x, y = (0.9 * a + 0.1 * b + ends[:, 0], -0.3 * a + 0.8 * b + ends[:, 1])
    u = np.array([0.3, -0.2, 0.1, 0.0]) + 0.2 * np.column_stack([x, y, a, b])
    z = np.column_stack([np.ones(N), u])
    variance = np.full((5, 5), 4.0) * (1 + np.eye(5))
    variance[0, 1:] = variance[1:, 0] = 16.0
    return z.T @ z, variance


def moments_of(M: np.ndarray, variance: np.ndarray) -> Moments:
    names, mean = tuple("xyab"), M[0, 1:] / M[0, 0]
    noisy = NoisyMoments(names, np.zeros(4), HALF, M, variance, np.array([2.0, 1, 1, 1, 1]))
    scatter = (M[1:, 1:] - M[0, 0] * np.outer(mean, mean)) * np.outer(HALF, HALF)
    return Moments(names, round(M[0, 0]), HALF * mean, scatter, noisy=noisy)


def partials_of(M: np.ndarray, variance: np.ndarray) -> NoisyPartials:
    found = noisy_partials(moments_of(M, variance))
    assert found is not None
    return found


def test_the_noise_of_partial_correlations_and_slopes_is_that_of_draws() -> None:
    """Variances of 1000 draws: Monte Carlo error 4.5 %, four of these.

    The noise is a tenth of that of `released`, so terms of second order are below 2 %.
    """
    M, variance = released()
    variance = variance / 10
    exact = partials_of(M, variance)
    rng, found = np.random.default_rng(4), list[np.ndarray]()
    for _ in range(1000):
        E = np.triu(rng.normal(size=M.shape) * np.sqrt(variance))
        E[0, 0] = 0
        noised = M + E + np.triu(E, 1).T
        some, sd = partials_of(noised, variance), moments_of(noised, variance).standard_deviation
        own = some.slopes(0, [2, 3])[0] * sd[0] / sd[2:]
        found.append(np.array([some.partial(0, 1, [2, 3])[0], *own]))
    drawn = np.var(found, axis=0)
    r, v = exact.partial(0, 1, (2, 3))
    assert abs(r) < 1e-9  # x and y are independent given a and b
    assert drawn[0] == pytest.approx(v, rel=0.18)
    slopes, variances = exact.slopes(0, [2, 3])
    S = exact.correlation[2:, 2:]
    chance = np.diagonal(np.linalg.inv(S)) * (1 - slopes @ S @ slopes) / N
    sd = moments_of(M, variance).standard_deviation
    expected = (variances - chance) * (sd[0] / sd[2:]) ** 2
    assert drawn[1:] == pytest.approx(expected, rel=0.18)
    # far more than the noise of a correlation
    assert v > 5 * exact.partial(0, 1, ())[1]


def test_the_variance_of_a_bilinear_form_is_summed_over_the_entries_of_the_noise() -> None:
    """a'E b, entry by entry of the upper triangle, for directions that share all columns."""
    M, variance = released()
    found, rng = partials_of(M, variance), np.random.default_rng(6)
    a, b = rng.normal(size=(2, 4))
    A, B = (np.array([-found.means @ each, *each]) for each in (a, b))
    total = 0.0
    for j in range(5):
        for k in range(j, 5):
            factor = A[j] * B[k] + (A[k] * B[j] if j < k else 0.0)
            total += found.variance[j, k] * factor**2
    assert found.noise(a, b) == pytest.approx(total, rel=1e-12)


def test_without_further_columns_it_is_the_noise_of_the_scatter_matrix() -> None:
    M, variance = released()
    found, moments = partials_of(M, variance), moments_of(M, variance)
    unit = HALF / moments.standard_deviation
    G2 = scatter_noise(NoisyMatrix(M, variance)) * np.outer(unit, unit) ** 2 / N**2
    for x, y in [(0, 1), (2, 3)]:
        assert found.partial(x, y, [])[1] == pytest.approx(G2[x, y], rel=1e-9)
    assert noisy_partials(Moments(*(getattr(moments, k) for k in ("names", "n", "mean", "scatter")))
                          ) is None  # fmt: skip


def test_a_test_of_independence_keeps_its_level_under_noise() -> None:
    """400 draws of noise and chance: 5 % with an error of 1.1 %; without the noise far more."""
    M, variance = released()
    rng, known, plain = np.random.default_rng(5), [], []
    S = M / N
    root = np.linalg.cholesky(S[1:, 1:] - np.outer(S[0, 1:], S[0, 1:]))
    for _ in range(400):
        u = S[0, 1:] + rng.normal(size=(N, 4)) @ root.T
        z = np.column_stack([np.ones(N), u])
        E = np.triu(rng.normal(size=M.shape) * np.sqrt(variance))
        E[0, 0] = 0
        moments = moments_of(z.T @ z + E + np.triu(E, 1).T, variance)
        for found, noisy in ((known, noisy_partials(moments)), (plain, None)):
            test = PartialCorrelationTest(moments.correlation, moments.n, noisy)
            found.append(test(0, 1, [2, 3]))
    known_share, plain_share = (np.mean(np.array(p) < 0.05) for p in (known, plain))
    assert known_share == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 400))
    assert plain_share > 0.2


def test_hardly_any_noise_gives_fishers_z() -> None:
    M, variance = released()
    moments = moments_of(M, variance * 1e-18)
    noisy = noisy_partials(moments)
    for pair in [(0, 2), (0, 3), (1, 2)]:
        for given in ([], [1 if pair[0] != 1 else 0]):
            p = PartialCorrelationTest(moments.correlation, 60, noisy)(*pair, given)
            q = PartialCorrelationTest(moments.correlation, 60)(*pair, given)
            assert p == pytest.approx(q, rel=1e-9)


def test_the_repair_is_used() -> None:
    """Moments with a small eigenvalue: the repaired ones have a finite partial correlation."""
    M, variance = released()
    large = variance * 900
    E = np.triu(np.random.default_rng(7).normal(size=M.shape) * np.sqrt(large))
    noisy = moments_of(M + E + np.triu(E, 1).T, large).noisy
    assert noisy is not None and np.linalg.eigvalsh(noisy.matrix)[0] < 0
    repair = repaired(noisy).matrix
    found = partials_of(repair, large)
    for y in range(4):
        slopes, variances = found.slopes(y, [j for j in range(4) if j != y])
        assert np.all(np.isfinite(slopes)) and np.all(variances > 0)
