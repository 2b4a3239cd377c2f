import numpy as np
import pytest

from secagg.models.graphs.mlp import Networks, squared_loss
from secagg.models.notears_admm.mlp_site import answer, begin_site

NETWORKS = Networks(3, 4)


def site(seed: int = 0, n: int = 30):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[:, 2] += np.sin(2 * X[:, 0])
    return squared_loss(NETWORKS, X, 2 * n), NETWORKS.initial(rng, random_inputs=True)


def test_a_sites_answer_solves_problem_4() -> None:
    loss, W = site()
    beta = np.zeros(NETWORKS.size)
    memory = begin_site(NETWORKS.size)
    rho2 = 0.1
    for _ in range(5):
        V, memory = answer(memory, loss, W, rho2)
        B = memory["B"]
        np.testing.assert_array_equal(V, -loss(B)[1])
        # First-order condition of (4). The search ends at a decrease of 2.2e-9 of a value near 1,
        # where a slope g with a curvature of 10 at most has g^2 / (2 * 10) of that order.
        np.testing.assert_allclose(V, beta + rho2 * (B - W), rtol=0, atol=1e-3)
        # (7), with the difference that V stands for.
        following = W + 0.01 * np.random.default_rng(3).normal(size=W.shape)
        beta = V + rho2 * (W - following)
        W, rho2 = following, 1.25 * rho2


def test_a_site_continues_from_its_own_networks() -> None:
    """It stays in its minimum of the loss, although W moves closer to another one."""

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:  # a minimum at each whole number
        turned = 2 * np.pi * theta
        return float(np.sum(1 - np.cos(turned))), 2 * np.pi * np.sin(turned)

    _, memory = answer(begin_site(1), loss, np.zeros(1), 0.1)
    assert memory["B"] == pytest.approx(0, abs=1e-9)
    _, near = answer(begin_site(1), loss, np.array([0.8]), 0.1)
    assert near["B"] == pytest.approx(1, abs=0.01)
    # The pull of W is 0.1 * 0.8, that of the multiplier as much; the curvature is 4 pi^2.
    _, memory = answer(memory, loss, np.array([0.8]), 0.1)
    assert memory["B"] == pytest.approx(0, abs=0.01)


def test_the_largest_penalty_loses_no_digits() -> None:
    loss, W = site(2)
    V, memory = answer(begin_site(NETWORKS.size), loss, W, 1e16)
    # B - W is V / 1e16, less than a unit in the last place of most entries of W.
    np.testing.assert_allclose(V, -loss(W)[1], rtol=0, atol=1e-13)
    again, memory = answer(memory, loss, W, 1e16)
    np.testing.assert_allclose(again, V, rtol=0, atol=1e-13)
    assert np.all(np.isfinite(memory["B"]))


def test_a_site_without_records_answers_zero() -> None:
    loss = squared_loss(NETWORKS, np.empty((0, 3)), 10)
    W = NETWORKS.initial(np.random.default_rng(0))
    V, _ = answer(begin_site(NETWORKS.size), loss, W, 0.1)
    np.testing.assert_array_equal(V, 0)


@pytest.mark.parametrize("X", [np.array([[1.0, -2.0, 0.5]]), np.ones((5, 3))])
def test_one_record_or_constant_columns_give_finite_answers(X: np.ndarray) -> None:
    W = NETWORKS.initial(np.random.default_rng(0))
    V, memory = answer(begin_site(NETWORKS.size), squared_loss(NETWORKS, X, 10), W, 0.1)
    assert np.all(np.isfinite(V))
    assert np.any(V != 0)
    assert np.all(np.isfinite(memory["B"]))
