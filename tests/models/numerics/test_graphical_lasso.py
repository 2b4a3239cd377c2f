import numpy as np
import pytest
from sklearn.covariance import graphical_lasso as sklearn_lasso

from secagg.errors import UsageError
from secagg.models.numerics.graphical_lasso import TOLERANCE, graphical_lasso


def correlation(p: int, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mixing = np.eye(p) + rng.normal(size=(p, p)) * (rng.random((p, p)) < 0.3)
    return np.corrcoef(rng.normal(size=(n, p)) @ mixing, rowvar=False)


def objective(R: np.ndarray, penalty: float, Theta: np.ndarray) -> float:
    off = np.abs(Theta).sum() - np.abs(np.diagonal(Theta)).sum()
    return float(np.sum(R * Theta) - np.linalg.slogdet(Theta)[1] + penalty * off)


@pytest.mark.parametrize(("p", "n"), [(2, 50), (6, 40), (15, 300), (12, 8)])
@pytest.mark.parametrize("penalty", [0.5, 0.1, 0.03])
def test_the_optimality_conditions_hold(p: int, n: int, penalty: float) -> None:
    R = correlation(p, n, seed=p)
    P = np.full((p, p), penalty)
    Theta = graphical_lasso(R, P)
    assert np.array_equal(Theta, Theta.T)
    assert np.linalg.eigvalsh(Theta)[0] > 0
    # Written out here once more: (K) of the module.
    off = np.linalg.inv(Theta) - R
    pairs = ~np.eye(p, dtype=bool)
    assert np.all(np.abs(np.diagonal(off)) <= TOLERANCE)
    assert np.all(np.abs(off[pairs]) <= penalty + TOLERANCE)
    used = pairs & (Theta != 0)
    assert np.all(np.abs(off[used] - penalty * np.sign(Theta[used])) <= TOLERANCE)


@pytest.mark.parametrize("penalty", [0.4, 0.1, 0.02])
def test_agrees_with_scikit_learn(penalty: float) -> None:
    """Both objectives are near the minimum f*, and f has curvature m = 1 / largest eigenvalue^2.

    So the squared distance is at most 2 (f - f*) / m for each. scikit-learn's f - f* is at most its
    dual gap. Ours is at most the squared norm of the violations over 2 m.
    """
    p, gap = 12, 1e-9
    R = correlation(p, 200, seed=3)
    ours = graphical_lasso(R, np.full((p, p), penalty))
    theirs = sklearn_lasso(R, penalty, tol=gap, enet_tol=1e-10, max_iter=1000)[1]
    largest = max(np.linalg.eigvalsh(ours)[-1], np.linalg.eigvalsh(theirs)[-1])
    allowed = np.sqrt(2 * gap) * largest + p * TOLERANCE * largest**2
    assert np.linalg.norm(ours - theirs) <= allowed
    assert objective(R, penalty, ours) <= objective(R, penalty, theirs) + 1e-12


def test_two_variables_in_closed_form() -> None:
    Theta = graphical_lasso(np.array([[1, -0.6], [-0.6, 1]]), np.full((2, 2), 0.2))
    assert Theta == pytest.approx(np.linalg.inv([[1, -0.4], [-0.4, 1]]), abs=10 * TOLERANCE)
    empty = graphical_lasso(np.array([[1, -0.6], [-0.6, 1]]), np.full((2, 2), 0.6))
    assert np.array_equal(empty != 0, np.eye(2, dtype=bool))


def test_the_maximum_likelihood_of_a_chain() -> None:
    """Without penalty, on x - y - z: W matches R on edges, and W_xz = R_xy R_yz."""
    R = correlation(3, 30, seed=1)
    free = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=bool)
    Theta = graphical_lasso(R, np.zeros((3, 3)), free=free)
    expected = R.copy()
    expected[0, 2] = expected[2, 0] = R[0, 1] * R[1, 2]
    assert np.linalg.inv(Theta) == pytest.approx(expected, abs=10 * TOLERANCE)
    assert Theta[0, 2] == 0


def test_the_start_does_not_matter() -> None:
    R = correlation(10, 60, seed=2)
    P = np.full((10, 10), 0.2)
    cold = graphical_lasso(R, P)
    for other in (0.5, 0.001):
        assert np.any((graphical_lasso(R, np.full((10, 10), 0.001)) != 0) & (cold == 0))
        warm = graphical_lasso(R, P, start=graphical_lasso(R, np.full((10, 10), other)))
        assert np.array_equal(cold != 0, warm != 0)
        largest = np.linalg.eigvalsh(cold)[-1]
        assert np.linalg.norm(cold - warm) <= 2 * 10 * TOLERANCE * largest**2


def test_entries_without_penalty_stay_and_others_leave() -> None:
    R = correlation(6, 100, seed=4)
    P = np.full((6, 6), 1.0)
    P[0, 1] = P[1, 0] = 0
    Theta = graphical_lasso(R, P)
    expected = np.eye(6, dtype=bool)
    expected[0, 1] = expected[1, 0] = True
    assert np.array_equal(Theta != 0, expected)


def test_no_minimum_without_penalty_on_determined_variables() -> None:
    with pytest.raises(UsageError):
        graphical_lasso(np.ones((2, 2)), np.zeros((2, 2)))
    with pytest.raises(UsageError):
        graphical_lasso(correlation(8, 5, seed=5), np.zeros((8, 8)))
