"""What the sums of NOTEARS-ADMM tell about single sites: more than their pooled moments do.

`NotearsAdmm.disclosure` says that the sums of enough rounds determine every site's own covariance
matrix, without saying which site has which. All parties see W and rho2 of every round, and the
coordinator sees the sums.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from secagg.audits.attacks.admm_covariance import (
    AdmmRound,
    predicted_sums,
    recover_covariances,
    smallest_singular_value,
    upper_triangles,
)
from secagg.models.graphs.linear_graph import LinearGraph
from secagg.models.notears_admm.coordinator import Schedule, advance, begin
from secagg.models.notears_admm.linear_site import answer, begin_site, spectrum, stack

ROUNDS = 40


def covariances(d: int, sites: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((sites, 12, d)) @ rng.normal(size=(sites, d, d))
    rows -= rows.mean(axis=1, keepdims=True)
    return rows.transpose(0, 2, 1) @ rows / (12 * sites)


def transcript(S: np.ndarray) -> list[AdmmRound]:
    """Run the method; return W, rho2 and the sum of every round."""
    sites, d, _ = S.shape
    schedule, graph = Schedule(rounds=ROUNDS), LinearGraph(d)
    roots = [np.linalg.cholesky(s).T for s in S]  # "records" with these scatter matrices
    site = begin_site(*stack([spectrum(root, 1) for root in roots]), d)
    state, seen = begin(schedule, np.zeros((d, d))), []
    while state["status"] == "running":
        W, rho2 = state["W"], state["rho2"]
        V, site = answer(site, W, rho2)
        seen.append(AdmmRound(W, rho2, V.sum(axis=0)))
        state = advance(state, seen[-1].total, sites, graph, schedule)
    return seen


@pytest.mark.parametrize(("d", "sites"), [(2, 2), (3, 3), (5, 4)])
def test_sums_determine_every_sites_covariance(d: int, sites: int) -> None:
    S = covariances(d, sites)
    seen = transcript(S)
    target = np.concatenate([each.total.ravel() for each in seen])
    # 40 rounds of two ways of rounding, on sums of the order of 1:
    found = predicted_sums(upper_triangles(S), seen, sites)
    np.testing.assert_allclose(found, target, rtol=0, atol=1e-9)
    # No direction is left open: a covariance off by 1e-6 shows as 1e-8 at least, in sums that are
    # known to 1e-12. Solutions are isolated points.
    assert smallest_singular_value(S, seen) > 0.01


def test_one_unmasked_message_reveals_a_sites_covariance() -> None:
    """What happens without a secure sum."""
    S = covariances(5, 1)
    found = recover_covariances(transcript(S)[:1], 1)
    assert np.max(np.abs(found.covariances - S)) < 1e-6 * np.max(np.abs(S))


def test_all_sums_together_reveal_every_sites_covariance() -> None:
    S = covariances(2, 2)
    found = recover_covariances(transcript(S), 2)
    assert found.misfit < 1e-20
    off = min(np.max(np.abs(found.covariances[list(o)] - S)) for o in permutations(range(2)))
    assert off < 1e-6 * np.max(np.abs(S))


def test_one_sum_of_moments_does_not_determine_covariances() -> None:
    S = covariances(3, 3)
    moved = S.copy()
    moved[0] += 0.01 * np.eye(3)
    moved[1] -= 0.01 * np.eye(3)
    np.testing.assert_allclose(moved.sum(axis=0), S.sum(axis=0), rtol=1e-12)  # all it tells
    seen = transcript(S)
    told = [predicted_sums(upper_triangles(of), seen, 3) for of in (S, moved)]
    assert np.max(np.abs(told[0] - told[1])) > 1e-4  # but those of ADMM differ
