"""HM1 from sums over sites, against the dense algorithm written plainly."""

from __future__ import annotations

import numpy as np
import pytest

from secagg.models.shared_covariance import (
    Covariance,
    gradient_steps,
    remembered,
    shrinkage,
    shrunk,
    smoothed,
)


def sites(K: int, d: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(K):
        X = rng.standard_normal((int(rng.integers(d + 2, 40)), d))
        found.append((X.T @ X, X.T @ (X @ rng.standard_normal(d) + rng.standard_normal(len(X)))))
    return found


def steps_written_out(gram, cross, theta, eta, steps):
    for _ in range(steps):
        theta = theta + 2 * eta * (cross - gram @ theta)
    return theta


def dense(data, alpha: float, eta: float, steps: int, a: float, rounds: int):
    """Algorithm 1 with the implicit step (2): the server holds Theta and Omega."""
    K, d = len(data), len(data[0][1])
    Theta, Omega = np.zeros((d, K)), np.eye(K)
    for _ in range(rounds):
        columns = [
            steps_written_out(g, c, Theta[:, k], eta, steps) for k, (g, c) in enumerate(data)
        ]
        Theta = np.linalg.solve((Omega + a * np.eye(K)).T, (np.column_stack(columns) @ Omega).T).T
        Omega = (1 - alpha) * Omega + alpha / d * Theta.T @ Theta
    return Theta, Omega


def by_sums(data, alpha: float, eta: float, steps: int, a: float, rounds: int):
    """The same, each site with its own theta_k and v_k, the server with sums."""
    d = len(data[0][1])
    theta, v = [np.zeros(d) for _ in data], [np.zeros(0) for _ in data]
    omega = Covariance.first()
    for _ in range(rounds):
        theta = [
            gradient_steps(g, c, th, eta, steps) for (g, c), th in zip(data, theta, strict=True)
        ]
        S = sum(np.outer(th, vk) for th, vk in zip(theta, v, strict=True))
        Q = sum(np.outer(th, th) for th in theta)
        M, r = shrinkage(omega, S, a)
        omega = smoothed(omega, S, Q, M, r, alpha)
        theta = [shrunk(th, vk, M, r) for th, vk in zip(theta, v, strict=True)]
        v = [remembered(vk, th, alpha) for th, vk in zip(theta, v, strict=True)]
    V = np.column_stack(v)
    return np.column_stack(theta), omega.c * np.eye(len(data)) + V.T @ V, omega, V


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize(("K", "d"), [(2, 3), (12, 4), (40, 2)])
def test_sums_give_what_the_dense_algorithm_does(alpha: float, K: int, d: int) -> None:
    data = sites(K, d, K)
    eta = 0.4 / max(np.linalg.eigvalsh(gram)[-1] for gram, _ in data)
    a = 2 * eta * 1.0 * 5
    Theta, Omega = dense(data, alpha, eta, 5, a, 25)
    ours, omega, kept, V = by_sums(data, alpha, eta, 5, a, 25)
    np.testing.assert_allclose(ours, Theta, rtol=0, atol=1e-10 * np.abs(Theta).max())
    np.testing.assert_allclose(omega, Omega, rtol=0, atol=1e-10 * np.abs(Omega).max())
    np.testing.assert_allclose(kept.G, V @ V.T, rtol=0, atol=1e-10 * np.abs(kept.G).max())


@pytest.mark.parametrize("records", [2, 4, 30])
def test_gradient_steps_in_closed_form(records: int) -> None:
    rng = np.random.default_rng(records)
    X, theta = rng.standard_normal((records, 4)), rng.standard_normal(4)  # fewer than columns, too
    gram, cross = X.T @ X, X.T @ rng.standard_normal(records)
    eta = 0.9 / np.linalg.eigvalsh(gram)[-1]
    for steps in (0, 1, 7, 200):
        expected = steps_written_out(gram, cross, theta, eta, steps)
        found = gradient_steps(gram, cross, theta, eta, steps)
        np.testing.assert_allclose(
            found, expected, rtol=0, atol=1e-11 * (1 + np.abs(expected).max())
        )


def test_without_shrinkage_sites_are_by_themselves() -> None:
    data = sites(5, 3, 1)
    eta = 0.4 / max(np.linalg.eigvalsh(gram)[-1] for gram, _ in data)
    ours, *_ = by_sums(data, 0.3, eta, 20, 0.0, 60)
    for k, (gram, cross) in enumerate(data):
        np.testing.assert_allclose(ours[:, k], np.linalg.solve(gram, cross), atol=1e-8)
