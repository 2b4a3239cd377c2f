"""HM1 from sums over sites, against the dense algorithm written plainly."""

import numpy as np
import pytest

from secagg.models.fedlin.gradient_steps import Quadratic, batch_steps
from secagg.models.fedlin.site_covariance import (
    history_length,
    parts,
    remembered,
    shrinkage,
    shrunk,
)

Records = list[tuple[np.ndarray, np.ndarray]]


def sites(K: int, d: int, seed: int) -> Records:
    """X'X and X'y of sites with few records and many, some with fewer than coefficients."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(K):
        X = rng.standard_normal((int(rng.integers(1, 40)), d))
        found.append((X.T @ X, X.T @ (X @ rng.standard_normal(d) + rng.standard_normal(len(X)))))
    return found


def steps_written_out(gram, cross, theta, eta, steps):
    for _ in range(steps):
        theta = theta + 2 * eta * (cross - gram @ theta)
    return theta


def dense(data: Records, alpha: float, eta, a, steps: int, rounds: int, took_part):
    """Algorithm 1 with the implicit step (2): the server holds Theta and Omega."""
    K, d = len(data), len(data[0][1])
    Theta, Omega = np.zeros((d, K)), np.eye(K)
    for c in range(rounds):
        moved = Theta.copy()
        for k, (gram, cross) in enumerate(data):
            if took_part[c, k]:
                moved[:, k] = steps_written_out(gram, cross, Theta[:, k], eta[k], steps)
        shrunk_ = np.linalg.solve((Omega + np.diag(a)).T, moved.T).T @ Omega
        Theta = np.where(took_part[c], shrunk_, moved)
        Omega = (1 - alpha) * Omega + alpha / d * Theta.T @ Theta
    return Theta, Omega


def by_sums(data: Records, alpha: float, eta, a, steps: int, rounds: int, took_part):
    """The same, each site with its own theta_k and v_k, the server with sums."""
    K, d = len(data), len(data[0][1])
    shapes = [Quadratic.of(*each) for each in data]
    m = history_length(d, K, rounds)
    theta, v = [np.zeros(d)] * K, [np.zeros(m)] * K
    for t in range(rounds):
        b = (1 - alpha) ** t + a
        theta = [
            shape.stepped(theta[k], eta[k], steps) if took_part[t, k] else theta[k]
            for k, shape in enumerate(shapes)
        ]
        each = [parts(theta[k], v[k], b[k]) for k in range(K)]
        M, U = shrinkage(sum(S for S, _ in each), sum(G for _, G in each))
        theta = [
            shrunk(theta[k], v[k], M, a[k] / b[k]) if took_part[t, k] else theta[k]
            for k in range(K)
        ]
        v = [remembered(v[k], theta[k], U, alpha) for k in range(K)]
    V = np.column_stack(v)
    return np.column_stack(theta), (1 - alpha) ** rounds * np.eye(K) + V.T @ V


@pytest.mark.parametrize(
    ("K", "d", "rounds", "alpha", "share"),
    [(2, 3, 40, 0.1, 1.0), (12, 4, 60, 0.99, 0.6), (40, 2, 25, 0.5, 1.0), (100, 8, 40, 0.9, 0.6),
     (100, 8, 40, 0.1, 0.6)],
)  # fmt: skip
def test_sums_give_the_same_covariance_as_the_dense_algorithm(
    K: int, d: int, rounds: int, alpha: float, share: float
) -> None:
    data = sites(K, d, K)
    eta = np.array([0.5 / np.linalg.eigvalsh(gram)[-1] for gram, _ in data])
    a = 2 * eta * 5 * np.random.default_rng(1).uniform(0.2, 2, K)
    took_part = np.random.default_rng(2).random((rounds, K)) < share
    Theta, Omega = dense(data, alpha, eta, a, 5, rounds, took_part)
    ours, omega = by_sums(data, alpha, eta, a, 5, rounds, took_part)
    np.testing.assert_allclose(ours, Theta, rtol=0, atol=1e-10 * np.abs(Theta).max())
    np.testing.assert_allclose(omega, Omega, rtol=0, atol=1e-10 * np.abs(Omega).max())


def test_the_history_has_the_smallest_possible_size() -> None:
    assert history_length(8, 100, 100) == 108
    assert history_length(8, 100, 5) == 40
    assert history_length(3, 2, 1000) == 5


@pytest.mark.parametrize("records", [1, 2, 4, 30])
def test_gradient_steps_agree_with_the_closed_form(records: int) -> None:
    rng = np.random.default_rng(records)
    X, theta = rng.standard_normal((records, 4)), rng.standard_normal(4)  # fewer than columns, too
    gram, cross = X.T @ X, X.T @ rng.standard_normal(records)
    shape = Quadratic.of(gram, cross)
    eta = 0.9 / shape.steepest
    for steps in (0, 1, 7, 200):
        expected = steps_written_out(gram, cross, theta, eta, steps)
        found, largest = shape.stepped(theta, eta, steps), np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * (1 + largest))
    assert np.sum(shape.w > 0) == min(records, 4)
    nobody = Quadratic.of(0 * gram, 0 * cross)  # stays where it is
    assert nobody.steepest == 0.0
    np.testing.assert_array_equal(nobody.stepped(theta, 0.1, 9), theta)


def test_scaled_batch_gradients_average_to_the_full_gradient() -> None:
    rng = np.random.default_rng(0)
    X, y, theta = rng.standard_normal((20, 3)), rng.standard_normal(20), rng.standard_normal(3)
    eta, many = 0.001, 4000
    full = batch_steps(X, y, theta, eta, 1, 20, 1.0, rng) - theta
    stepped = Quadratic.of(X.T @ X, X.T @ y).stepped(theta, eta, 1)
    np.testing.assert_allclose(theta + full, stepped, atol=1e-12)
    drawn = np.array([batch_steps(X, y, theta, eta, 1, 4, 5.0, rng) for _ in range(many)]) - theta
    error = drawn.std(axis=0) / np.sqrt(many)
    assert np.all(np.abs(drawn.mean(axis=0) - full) < 4.5 * error)
    assert np.max(np.abs(full) / error) > 20  # the test can tell
