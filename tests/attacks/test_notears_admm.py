"""What the sums of NOTEARS-ADMM tell about single sites: more than their pooled moments do.

`NotearsAdmm.disclosure` says that the sums of enough rounds determine every site's own covariance
matrix, without saying which site has which. All parties see W and rho2 of every round, and the
coordinator sees the sums. Run with -s to read the errors.
"""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linear_sum_assignment
from support.runs.checkout import ROOT

import secagg
from secagg.audits.attacks.statistics.admm_solved_sums import (
    AdmmRound,
    predicted_sums,
    recover_covariances,
    smallest_singular_value,
    upper_triangles,
)
from secagg.contracts import State, Update
from secagg.models.graphs.proximal_newton import LinearGraph
from secagg.models.notears_admm.coordinator import Schedule, advance, begin
from secagg.models.notears_admm.linear import NotearsAdmm
from secagg.models.notears_admm.linear_site import answer, begin_site, spectrum, stack

ROUNDS = 40


def covariances(d: int, sites: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((sites, 12, d)) @ rng.normal(size=(sites, d, d))
    rows -= rows.mean(axis=1, keepdims=True)
    return rows.transpose(0, 2, 1) @ rows / (12 * sites)


def transcript(S: np.ndarray, lags: int = 0) -> list[AdmmRound]:
    """Run the method; return W, rho2 and the sum of every round."""
    sites, d = len(S), S.shape[1] // (1 + lags)
    schedule, graph = Schedule(rounds=ROUNDS), LinearGraph(d, lags)
    roots = [np.linalg.cholesky(s).T for s in S]  # "records" with these scatter matrices
    site = begin_site(*stack([spectrum(root, 1) for root in roots]), d)
    state, seen = begin(schedule, np.zeros(graph.shape)), []
    while state["status"] == "running":
        W, rho2 = state["W"], state["rho2"]
        V, site = answer(site, W, rho2)
        seen.append(AdmmRound(W, rho2, V.sum(axis=0)))
        state = advance(state, seen[-1].total, sites, graph, schedule)
    return seen


@pytest.mark.parametrize(
    ("q", "sites", "lags"), [(2, 2, 0), (3, 3, 0), (5, 4, 0), (4, 3, 1), (6, 3, 1)]
)
def test_sums_determine_every_sites_covariance(q: int, sites: int, lags: int) -> None:
    S = covariances(q, sites)
    seen = transcript(S, lags)
    target = np.concatenate([each.total.ravel() for each in seen])
    # 40 rounds of two ways of rounding, on sums of the order of 1:
    found, _ = predicted_sums(upper_triangles(S), seen)
    np.testing.assert_allclose(found, target, rtol=0, atol=1e-9)
    # No direction is left open: a covariance off by 1e-6 shows as 1e-9 at least, in sums that are
    # known to 1e-12. Solutions are isolated points.
    assert smallest_singular_value(S, seen) > 0.001


def test_the_attacks_derivatives_are_those_of_the_predicted_sums() -> None:
    S = covariances(3, 2)
    seen, unknown, step = transcript(S), upper_triangles(S), 1e-6
    _, jacobian = predicted_sums(unknown, seen)
    for column, direction in zip(jacobian.T, np.eye(len(unknown)), strict=True):
        ahead, behind = (
            predicted_sums(unknown + sign * step * direction, seen)[0] for sign in (1, -1)
        )
        # Rounding of sums of the order of 1, and the square of the step times third derivatives.
        np.testing.assert_allclose((ahead - behind) / (2 * step), column, rtol=0, atol=1e-5)


def test_one_unmasked_message_reveals_a_sites_covariance() -> None:
    """What happens without a secure sum."""
    S = covariances(5, 1)
    found = recover_covariances(transcript(S)[:1], 1, np.random.default_rng(0))
    assert np.max(np.abs(found.covariances - S)) < 1e-6 * np.max(np.abs(S))


def test_all_sums_together_reveal_every_sites_covariance() -> None:
    S = covariances(2, 2)
    found = recover_covariances(transcript(S), 2, np.random.default_rng(0))
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
    told = [predicted_sums(upper_triangles(of), seen)[0] for of in (S, moved)]
    assert np.max(np.abs(told[0] - told[1])) > 1e-4  # but those of ADMM differ


# --- the records of four hospitals ----------------------------------------------------------------

HOSPITALS = ("cleveland", "hungary", "switzerland", "va_long_beach")
BOUNDS = {
    "age": (18.0, 100.0),
    "rest_bp": (60.0, 260.0),
    "max_heart_rate": (40.0, 230.0),
    "st_depression": (-5.0, 10.0),
}


def masked_run(
    hospitals: Sequence[str], columns: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[AdmmRound], np.ndarray]:
    """Run a masked job with default settings; return what its coordinator knows, and the truth.

    The coordinator alone calls `aggregate`, with its own state and the sum that was opened. The
    truth is computed here from the files, in the units of the run.
    """
    seen: list[AdmmRound] = []
    aggregate = NotearsAdmm.aggregate

    def recording(self: NotearsAdmm, state: State, total: Update, sites: int) -> State:
        if state["status"] == "running":
            seen.append(AdmmRound(state["W"], state["rho2"], total["responses"]))
        return aggregate(self, state, total, sites)

    monkeypatch.setattr(NotearsAdmm, "aggregate", recording)
    folder = ROOT / "examples" / "heart-disease" / "data"
    tables = {name: pd.read_csv(folder / f"{name}.csv") for name in hospitals}
    job = {
        "title": "t",
        "sites": {"max_rows": 1000},
        "columns": {
            name: {"type": "continuous", "low": BOUNDS[name][0], "high": BOUNDS[name][1]}
            for name in columns
        },
        "method": {"name": "notears_admm"},
        "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 10},
    }
    secagg.run(job, tables)
    low, high = np.transpose([BOUNDS[name] for name in columns])
    rows = [np.clip(t[list(columns)].dropna().to_numpy(), low, high) for t in tables.values()]
    scatter = np.array([np.cov(each.T, bias=True) * len(each) for each in rows])
    pooled = np.sqrt(np.diagonal(scatter.sum(axis=0)))
    return seen, scatter / np.outer(pooled, pooled)


def largest_error(found: np.ndarray, S: np.ndarray) -> float:
    """Return the largest error relative to the site's largest entry, for the best order of sites.

    Variances and covariances on the scale of correlations.
    """
    apart = (
        np.max(np.abs(found - S[:, None]), axis=(2, 3)) / np.max(np.abs(S), axis=(1, 2))[:, None]
    )
    return float(np.max(apart[linear_sum_assignment(apart)]))


@pytest.mark.parametrize(
    ("hospitals", "variables"),
    [(HOSPITALS[:3], 3), ((*HOSPITALS[:2], HOSPITALS[3]), 3), (HOSPITALS, 3)],
)
def test_an_honest_coordinator_recovers_every_hospitals_covariance_from_a_masked_run(
    hospitals: Sequence[str], variables: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums are rounded to 2^-40 at each site: 1e-12, over a smallest singular value of 0.002.

    That allows errors of 1e-9 in matrices with entries up to 0.5.
    """
    seen, S = masked_run(hospitals, list(BOUNDS)[:variables], monkeypatch)
    sites = len(hospitals)
    # Control: at the true matrices, the attack's equations hold but for rounding.
    target = np.concatenate([each.total.ravel() for each in seen])
    predicted, _ = predicted_sums(upper_triangles(S), seen)
    np.testing.assert_allclose(predicted, target, rtol=0, atol=1e-11)
    # Control: pooled numbers alone do not give these matrices.
    guess = np.broadcast_to(S.mean(axis=0), S.shape)
    assert largest_error(guess, S) > 0.1
    found = recover_covariances(seen, sites, np.random.default_rng(0))
    error = largest_error(found.covariances, S)
    print(
        f"\n{sites} hospitals, {variables} variables, {len(seen)} sums: largest error {error:.1e}"
    )
    assert found.misfit < 1e-19
    assert error < 1e-8
    # The attacker sees that it has failed, for example with a wrong number of sites.
    assert recover_covariances(seen, sites - 1, np.random.default_rng(0), starts=2).misfit > 1e-12
