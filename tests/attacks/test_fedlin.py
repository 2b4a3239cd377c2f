"""What FedLin's sums tell a coordinator of single sites: one that only looks, and one that departs.

The one that departs runs the method's own code, on sums that it makes up: whatever it sends, an
honest one could have sent, over other sites. So no check of messages at a site could refuse it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from support.fedlin import linear_tables
from support.solved_sums import Asked, Quadratics, Separated, Sites, separations, shrunk_again

from secagg.contracts import Update
from secagg.models.fedlin.importance_points import quasi_random_points as points_of
from secagg.models.numerics.natural_gaussian import Natural, symmetric, triangle

Array = np.ndarray[Any, np.dtype[np.float64]]


def sites_of(
    method: dict[str, Any], K: int, d: int, seed: int = 0, noise: float = 0.3, spread: float = 1.0
) -> Sites:
    sizes = tuple(np.random.default_rng(seed).integers(8, 60, K).tolist())
    return Sites(method, linear_tables(sizes, d, seed, noise=noise, spread=spread))


def off(found: Array, true: Array) -> float:
    """Return the largest error of any site's, relative to the site's largest number."""
    axes = tuple(range(1, true.ndim))
    return float(np.max(np.max(np.abs(found - true), axes) / np.max(np.abs(true), axes)))


def placed(found: Array, true: Array, signs: tuple[int, ...] = (1,)) -> tuple[list[int], Array]:
    """Return which of the found (K, d) is nearest to each of the true, up to a sign, and these."""
    both = np.array([sign * found for sign in signs])  # (signs, K, d)
    away = np.max(np.abs(both[:, :, None] - true), axis=3)
    order = np.argmin(np.min(away, axis=0), axis=0).tolist()
    assert sorted(order) == list(range(len(true)))
    best = np.argmin(away[:, order, range(len(true))], axis=0)
    return order, both[best, order]


# --- HM1 ------------------------------------------------------------------------------------------


def hm1(sites: Sites, size: float = 0.0) -> tuple[list[Asked], Asked]:
    """Run HM1; return its rounds, and the end.

    size: of M's entries if the coordinator departs, which makes up sums that M and a noise as large
    as the outcome's deviation follow from
    """
    rng, many = np.random.default_rng(0), len(sites.rows)
    state, rounds = sites.method.initial_state(sites.public), list[Asked]()
    while (following := sites.method.next_request(state)) is not None:
        stage, message = following
        summed = sites.ask(stage, message)
        said: Update = summed
        if stage == "noise" and size:
            said = {**summed, "residual": summed["freedom"] / state["scale"][0] ** 2}
        if stage == "fit":
            rounds.append((message, summed))
            d, m = summed["S"].shape
            G = symmetric(summed["G"], m)
            if size:
                said = {**summed, "S": size * rng.standard_normal((d, m)) @ (G + np.eye(m))}
        state = sites.method.aggregate(state, said, many)
        if stage == "finish":
            return rounds, (message, summed)
    raise AssertionError


@pytest.mark.parametrize(("K", "d", "median", "most"), [(3, 3, 1e-9, 1e-9), (8, 5, 1e-4, 0.02)])
def test_two_rounds_of_hm1_tell_every_sites_coefficients(
    K: int, d: int, median: float, most: float
) -> None:
    """To a coordinator that only looks, at default settings, of six data sets.

    The sum of coefficients at the end chooses the two rounds, and the signs.
    """
    signs, wrong = np.array(list(product([-1, 1], repeat=K))), []
    for seed in range(6):
        sites = sites_of({"name": "fedlin_hm1"}, K, d, seed)
        asked, (message, ended) = hm1(sites)
        best, last = np.inf, np.empty(0)
        for found in separations(asked, 0.1, K):
            each = shrunk_again(found, len(asked) - 1, message["M"], 0.1)
            away = np.max(np.abs(signs @ each - ended["coefficients"]), axis=1)
            if np.min(away) < best:
                best, last = np.min(away), signs[np.argmin(away)][:, None] * each
        true = np.array([memory["own"]["theta"] for memory in sites.memories])
        _, last = placed(last, true)
        wrong.append(np.max(np.abs(last - true), axis=1) / np.max(np.abs(true)))
    assert np.median(wrong) < median
    assert np.max(wrong) < most


def least_and_steps(found: Separated, asked: list[Asked], alpha: float) -> tuple[Array, Array]:
    """Return each site's least squares, and P: a round's steps take u to P u + (I - P) least."""
    K, d = found.theta.shape[1:]
    least, steps = np.empty((K, d)), np.empty((K, d, d))
    last = found.first + len(found.theta) - 1
    before = [shrunk_again(found, s, asked[s + 1][0]["M"], alpha) for s in range(found.first, last)]
    for k in range(K):
        u = np.array([each[k] for each in before])
        size = np.median(np.abs(u))
        design = np.column_stack([u, np.full(len(u), size)])
        weight = 1 / np.linalg.norm(design, axis=1)[:, None]
        solved = np.linalg.lstsq(design * weight, found.theta[1:, k] * weight, rcond=None)[0]
        steps[k] = (solved[:d].T + solved[:d]) / 2
        least[k] = np.linalg.solve(np.eye(d) - steps[k], size * solved[d])
    return least, steps


@pytest.mark.parametrize("steps", [1, 20])
def test_departing_makes_hm1s_sums_tell_of_many_sites(steps: int) -> None:
    """Twelve sites, four coefficients: their least squares; X'X where steps do not come to an end.

    a_k is the noise times the mean over directions of (1 - (1 - 2 eta w)^T) / w, eta = 1 / (2 max).
    """
    sites = sites_of({"name": "fedlin_hm1", "steps": steps}, 12, 4)
    asked, _ = hm1(sites, size=1.0)
    enough = (each for each in separations(asked, 0.1, 12) if len(each.theta) > 8)
    found = max(enough, key=lambda each: each.apart)
    least, P = least_and_steps(found, asked, 0.1)
    gram, cross, true = (sites.truth(name) for name in ("gram", "cross", "separate"))
    order, least = placed(least, true, (1, -1))
    assert off(least, true) < 1e-5
    if steps == 1:
        share = np.eye(4) - P[order]  # X'X / max
        noise = float(asked[0][0]["noise"][0])
        solved = share * (noise / found.a[order])[:, None, None]
        assert off(solved, gram) < 1e-5
        assert off(np.einsum("kij,kj->ki", solved, least), cross) < 1e-5


# --- HM2 ------------------------------------------------------------------------------------------


def hm2_by_choice(sites: Sites, d: int, points: list[Array]) -> tuple[Quadratics, int]:
    """Return sums at points log tau of the coordinator's choice, and how many rounds it took.

    It makes up sums that leave q close about a point: tenfold a round is what is taken whole.
    """
    many, method, state = len(sites.rows), sites.method, sites.method.initial_state(sites.public)
    while state["status"] != "fit":
        stage, message = method.next_request(state)
        state = method.aggregate(state, sites.ask(stage, message), many)
    precision, close = np.diagonal(symmetric(state["Q"], 2 * d)), np.repeat([1e5, 1e10], d)
    chosen: list[Natural] = []
    while not np.array_equal(precision, close):
        precision = np.minimum(9.9 * precision, close)
        chosen.append(about(points[0], precision))
    before = len(chosen) - 1
    chosen += [about(point, close) for point in points[1:]]
    factors, told = Natural(np.zeros(2 * d), np.zeros((2 * d, 2 * d))), list[Natural]()
    for following in [*chosen, None]:
        stage, message = method.next_request(state)
        assert stage == "fit"
        summed, q = sites.ask(stage, message), Natural(state["r"], symmetric(state["Q"], 2 * d))
        factors = factors + Natural(summed["r"], symmetric(summed["Q"], 2 * d))
        told.append(factors)
        if following is not None:
            change = following - q
            said = {**summed, "r": change.r, "Q": triangle(change.Q)}
            state = method.aggregate(state, said, many)
            assert state["taken"] == 1
    at = np.array(points)
    last = told[before + 1 :]
    slopes = [
        each.r - each.Q @ np.concatenate([np.zeros(d), point])
        for each, point in zip(last, points, strict=True)
    ]
    found = Quadratics(
        np.exp(at), np.array([each.Q[:d, :d] for each in last]), np.array(slopes)[:, :d]
    )
    return found, len(told)


def about(log_tau: Array, precision: Array) -> Natural:
    """Return a normal density of phi about mu = 0 and log tau, without covariances."""
    return Natural(precision * np.concatenate([0 * log_tau, log_tau]), np.diag(precision))


def truth_over_noise(sites: Sites) -> tuple[Array, Array]:
    """Return every site's X'X and X'y over sigma^2, in the order of X'X's traces."""
    noise = float(sites.memories[0]["noise"][0])
    gram, cross = sites.truth("gram") / noise, sites.truth("cross") / noise
    order = np.argsort(np.trace(gram, axis1=1, axis2=2))
    return gram[order], cross[order]


@pytest.mark.parametrize(
    ("K", "d", "many", "rounds"),
    [(3, 2, 12, 23), pytest.param(5, 3, 30, 41, marks=pytest.mark.slow)],
)
def test_departing_makes_hm2s_sums_tell_single_sites(
    K: int, d: int, many: int, rounds: int
) -> None:
    """X'X and X'y of three sites with two coefficients in 23 rounds, five with three in 41."""
    sites = sites_of({"name": "fedlin_hm2"}, K, d)
    rng = np.random.default_rng(5)
    points = [*rng.uniform(-10, -1, (many - 1, d)), np.full(d, -40.0)]
    sums, took = hm2_by_choice(sites, d, points)
    assert took == rounds <= sites.method.rounds
    gram, cross = truth_over_noise(sites)
    A, c = sums.solved(K, starts=8)
    assert off(A, gram) < 1e-5
    assert off(c, cross) < 1e-4


def test_points_of_an_honest_run_of_hm2_tell_single_sites() -> None:
    """Their X'X and X'y, to a coordinator that only looks, where sites may be alike.

    Points of tau then reach the size of (X'X)^-1 sigma^2, about which these sums bend.
    """
    K, d, many = 3, 2, 512
    sites = sites_of({"name": "fedlin_hm2", "points": many}, K, d, noise=1.0, spread=0.2)
    state = sites.method.initial_state(sites.public)
    while state["status"] != "points":
        stage, message = sites.method.next_request(state)
        state = sites.method.aggregate(state, sites.ask(stage, message), K)
    stage, message = sites.method.next_request(state)
    q, summed = Natural(state["r"], symmetric(state["Q"], 2 * d)), sites.ask(stage, message)
    rows = summed["precision"].reshape(many, -1)
    sums = Quadratics(
        np.exp(points_of(q, many).T),
        np.array([symmetric(row, d) for row in rows]),
        summed["shift"].reshape(many, d),
    )
    gram, cross = truth_over_noise(sites)
    A, c = sums.solved(K, starts=4)
    assert off(A, gram) < 1e-5
    assert off(c, cross) < 1e-4
