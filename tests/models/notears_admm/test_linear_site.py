"""Sites in eigenvectors against literal versions of (4), (7) and (10), in 60 digits."""

from collections.abc import Iterator

import mpmath as mp
import numpy as np
import pytest

from secagg.models.common.units import centred
from secagg.models.notears_admm.linear_site import answer, begin_site, spectrum, stack

ROUNDING = 2.0**-53


@pytest.fixture(autouse=True)
def sixty_digits():
    with mp.workdps(60):
        yield


def records(seed: int, rows: int, q: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, q)) @ rng.normal(size=(q, q)) + rng.normal(size=q)


def messages(q: int, d: int, rounds: int, *, settling: bool) -> Iterator[tuple[np.ndarray, float]]:
    """W and rho2 of each round: from 1e-3 to 1e16; W anything, or at rest as rho2 grows."""
    rng = np.random.default_rng(rounds)
    W = rng.normal(size=(q, d))
    for rho2 in np.geomspace(1e-3, 1e16, rounds).tolist():
        yield W + rng.normal(size=(q, d)) / (1 + rho2 if settling else 1), rho2


class Literal:
    """B_k and beta_k, as the paper keeps them."""

    def __init__(self, X: np.ndarray, n: int, d: int) -> None:
        X = mp.matrix(X.tolist()) if len(X) else mp.zeros(1, X.shape[1])
        self.S, self.d = X.T * X / n, d
        q = self.S.rows
        self.J = mp.eye(q)[:, :d]
        self.beta = self.B = mp.zeros(q, d)
        self.rho2 = 0.0  # of the round before

    def round(self, W: np.ndarray, rho2: float):
        """(7) of the round before, with the W that was made of it and comes now; (10); (V)."""
        exact = mp.matrix(W.tolist())
        self.beta = self.beta + self.rho2 * (self.B - exact)
        self.rho2 = rho2
        left = self.S + rho2 * mp.eye(self.S.rows)
        self.B = mp.inverse(left) * (rho2 * exact - self.beta + self.S * self.J)
        return self.beta + rho2 * (self.B - exact)


def as_floats(M) -> np.ndarray:
    return np.array([[float(x) for x in row] for row in M.tolist()])


@pytest.mark.parametrize("settling", [True, False])
@pytest.mark.parametrize(
    ("rows", "q", "d"), [(30, 4, 4), (3, 4, 4), (30, 6, 3), (4, 6, 2), (1, 3, 3), (0, 3, 3)]
)
def test_a_site_stays_within_its_error_bound_over_many_rounds(
    rows: int, q: int, d: int, settling: bool
) -> None:
    """The tolerance is a running error bound.

    V = L / (L + rho2) (rho2 (Q'J - Q'W) + Q'beta): sums and products of q terms, each within some
    q roundings of its size, on which L / (L + rho2) < 1 acts, as it does on the error of the V
    before. Eigenvectors and -values are those of a matrix within some q roundings of S, which moves
    V = S (J - B) by as much of |S| (|J| + |B|), and B by (S + rho2 I)^-1 times as much.
    """
    X, n = centred(records(rows, rows, q)), 50
    literal, site = Literal(X, n, d), begin_site(*spectrum(X, n), d)
    largest = float(np.linalg.norm(X.T @ X / n, 2))
    error = 0.0
    for W, rho2 in messages(q, d, 25, settling=settling):
        V, site = answer(site, W, rho2)
        expected = as_floats(literal.round(W, rho2))
        share = largest / (largest + rho2)
        size = rho2 * (1 + np.abs(W).max()) + float(mp.mnorm(literal.beta, "f"))
        B = float(mp.mnorm(literal.B, "f"))
        matrix = largest * (1 + B) * (1 + largest / (largest + rho2) * (1 + 1 / rho2))
        # 1e-40: sixty digits are rounded, too.
        error = 1e-40 + share * error + 20 * q * ROUNDING * (share * size + matrix)
        np.testing.assert_allclose(V, expected, rtol=0, atol=error)
        # (V) says what leaves: S_k (J - B_k), less what rounding of 1e16 B_k loses without it.
        slope = as_floats(literal.S * (literal.J - literal.B))
        np.testing.assert_allclose(V, slope, rtol=0, atol=error)
    assert (rows <= 1) == (not V.any())


def test_the_error_bound_is_small_compared_with_the_result() -> None:
    """At the end of a settling run the bound above is far below V; naive float64 is far above."""
    X, n, q = centred(records(30, 30, 4)), 50, 4
    site = begin_site(*spectrum(X, n), q)
    S, B, beta = X.T @ X / n, np.zeros((q, q)), np.zeros((q, q))
    rho2_before = 0.0
    for W, rho2 in messages(q, q, 25, settling=True):
        V, site = answer(site, W, rho2)
        beta += rho2_before * (B - W)
        B = np.linalg.solve(S + rho2 * np.eye(q), rho2 * W - beta + S)
        rho2_before = rho2
        if rho2 < 1:  # as written, while that can be computed
            np.testing.assert_allclose(V, beta + rho2 * (B - W), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(V, S @ (np.eye(q) - W), rtol=0, atol=1e-13 * np.abs(S).sum())
    assert np.abs(beta + rho2 * (B - W) - V).max() > 0.1


def test_stacked_sites_equal_single_sites() -> None:
    spectra = [
        spectrum(centred(records(k, rows, 5)), 60) for k, rows in enumerate((20, 3, 1, 0, 36))
    ]
    together = begin_site(*stack(spectra), 5)
    single = [begin_site(*pair, 5) for pair in spectra]
    for W, rho2 in messages(5, 5, 12, settling=True):
        V, together = answer(together, W, rho2)
        assert V.shape == (5, 5, 5)
        for k, site in enumerate(single):
            alone, single[k] = answer(site, W, rho2)
            # The same sums, in an order that BLAS may choose anew: 5 terms of |L| (1 + |W|).
            size = float(np.max(spectra[k][1], initial=0)) * (1 + np.abs(W).max())
            near = 100 * ROUNDING * size * (1 + 1 / rho2)
            np.testing.assert_allclose(V[k], alone, rtol=0, atol=near)


def test_memory_does_not_depend_on_the_number_of_records() -> None:
    sizes = {
        sum(np.asarray(value).nbytes for value in begin_site(*spectrum(X, 5), 5).values())
        for X in (records(0, 5, 5), records(0, 500, 5))
    }
    assert len(sizes) == 1


def test_no_eigenvalue_is_negative() -> None:
    """Rounding leaves -1e-17 where centring takes a dimension."""
    for seed in range(10):
        assert np.all(spectrum(centred(records(seed, 4, 4)), 20)[1] >= 0)
