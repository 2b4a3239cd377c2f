"""What the sums of NOTEARS-ADMM tell about single sites: more than their pooled moments do.

`NotearsAdmm.leaves` says that sums of enough rounds can be solved for every site's own covariance,
up to which site has which. Here they are, with W and rho2 of every round, which all parties see,
and the sums, which the coordinator sees.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import least_squares

from secagg.models.graphs.linear_graph import LinearGraph
from secagg.models.notears_admm.coordinator import Schedule, advance, begin
from secagg.models.notears_admm.linear_site import answer, begin_site, spectrum, stack

ROUNDS = 40
Round = tuple[np.ndarray, float, np.ndarray]


def covariances(d: int, sites: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((sites, 12, d)) @ rng.normal(size=(sites, d, d))
    rows -= rows.mean(axis=1, keepdims=True)
    return rows.transpose(0, 2, 1) @ rows / (12 * sites)


def transcript(S: np.ndarray) -> list[Round]:
    """Run the method; return W, rho2 and the sum of every round."""
    sites, d, _ = S.shape
    schedule, graph = Schedule(rounds=ROUNDS), LinearGraph(d)
    roots = [np.linalg.cholesky(s).T for s in S]  # "records" with these scatter matrices
    site = begin_site(*stack([spectrum(root, 1) for root in roots]), d)
    state, seen = begin(schedule, np.zeros((d, d))), []
    while state["status"] == "running":
        W, rho2 = state["W"], state["rho2"]
        V, site = answer(site, W, rho2)
        seen.append((W, rho2, V.sum(axis=0)))
        state = advance(state, seen[-1][2], sites, graph, schedule)
    return seen


def sums(unknown: np.ndarray, seen: list[Round], sites: int) -> np.ndarray:
    """Return what sites with these covariances' upper triangles would have sent, by (4) and (7)."""
    d = len(seen[0][0])
    S = np.zeros((sites, d, d))
    S[:, *np.triu_indices(d)] = unknown.reshape(sites, -1)
    S += np.triu(S, 1).transpose(0, 2, 1)
    beta, said = np.zeros_like(S), []
    following = [W for W, _, _ in seen[1:]] + [seen[-1][0]]
    for (W, rho2, _), after in zip(seen, following, strict=True):
        B = np.linalg.solve(S + rho2 * np.eye(d), rho2 * W - beta + S)
        V = beta + rho2 * (B - W)
        said.append(V.sum(axis=0))
        beta = V + rho2 * (W - after)
    return np.concatenate([total.ravel() for total in said])


@pytest.mark.parametrize(("d", "sites"), [(2, 2), (3, 3), (5, 4)])
def test_sums_are_regular_equations_in_every_sites_covariance(d: int, sites: int) -> None:
    S = covariances(d, sites)
    seen = transcript(S)
    true = S[:, *np.triu_indices(d)].ravel()
    target = np.concatenate([total.ravel() for _, _, total in seen])
    # 40 rounds of two ways of rounding, on sums of the order of 1:
    np.testing.assert_allclose(sums(true, seen, sites), target, rtol=0, atol=1e-9)
    step = 1e-6  # error of a central difference: some 1e-10
    slopes = [
        (sums(true + step * e, seen, sites) - sums(true - step * e, seen, sites)) / (2 * step)
        for e in np.eye(len(true))
    ]
    # No direction is left open: a covariance off by 1e-6 shows as 1e-8 at least, in sums that are
    # known to 1e-12. Solutions are isolated points.
    assert np.linalg.svd(np.array(slopes), compute_uv=False)[-1] > 0.01


def test_they_can_be_solved() -> None:
    S = covariances(2, 2)
    seen = transcript(S)
    target = np.concatenate([total.ravel() for _, _, total in seen])
    upper = np.triu_indices(2)
    rng = np.random.default_rng(0)
    solved = []
    for _ in range(8):  # the pooled covariance, shared out at random, is where a search can start
        start = (rng.dirichlet(np.ones(2) * 5)[:, None] * S.sum(axis=0)[upper]).ravel()
        found = least_squares(
            lambda x: sums(x, seen, 2) - target, start * rng.uniform(0.8, 1.2, len(start)),
            xtol=1e-15, ftol=1e-15, gtol=1e-15, x_scale="jac",
        )  # fmt: skip
        solved.append((found.cost, found.x.reshape(2, -1)))
    _, guess = min(solved, key=lambda pair: pair[0])
    off = min(np.max(np.abs(guess[list(o)] - S[:, *upper])) for o in permutations(range(2)))
    assert off < 1e-6 * np.max(np.abs(S))


def test_one_sum_of_moments_cannot() -> None:
    S = covariances(3, 3)
    moved = S.copy()
    moved[0] += 0.01 * np.eye(3)
    moved[1] -= 0.01 * np.eye(3)
    np.testing.assert_allclose(moved.sum(axis=0), S.sum(axis=0), rtol=1e-12)  # all it tells
    upper = np.triu_indices(3)
    seen = transcript(S)
    told = [sums(of[:, *upper].ravel(), seen, 3) for of in (S, moved)]
    assert np.max(np.abs(told[0] - told[1])) > 1e-4  # but those of ADMM differ
