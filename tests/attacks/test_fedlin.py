"""What FedLin's sums tell a coordinator of single sites: one that only looks, and one that departs.

The one that departs runs the method's own code, on sums that it makes up: whatever it sends, an
honest one could have sent, over other sites. So no check of messages at a site could refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from support.fedlin import Tables, bounds, fedlin_job, linear_tables

from secagg.audits.attacks.statistics import hm1_solved_sums as hm1
from secagg.audits.attacks.statistics import hm2_solved_sums as hm2
from secagg.contracts import State, Update
from secagg.core.arrays import Array
from secagg.core.randomness import seeded_random
from secagg.core.ring import total
from secagg.jobs.job import parse_job
from secagg.models.numerics.natural_gaussian import Natural, symmetric
from secagg.runtime.fixed_point import decode, encode
from secagg.runtime.parties import read_records
from secagg.runtime.planned_job import plan_job
from secagg.runtime.sum_plan import plan_sum


class Sites:
    """Sites, of which a coordinator gets sums only."""

    def __init__(self, method: Mapping[str, Any], tables: Tables) -> None:
        planned = plan_job(parse_job(fedlin_job(method, bounds(tables))), tables)
        self.method: Any = planned.method
        self.public = planned.public
        self.rows = [read_records(planned, planned.sources[name]) for name in tables]
        self.randoms = [seeded_random(bytes([k + 1]) * 32) for k in range(len(tables))]
        self.memories: list[State] = [{} for _ in tables]
        stages = self.method.stages(self.public)
        self.plans = {stage.name: plan_sum(stage.spec, len(tables)) for stage in stages}

    def ask(self, stage: str, message: Mapping[str, Any]) -> Update:
        """Return the sum over sites of what they answer."""
        answers = [
            self.method.contribute(stage, rows, message, memory, self.public, random)
            for rows, memory, random in zip(self.rows, self.memories, self.randoms, strict=True)
        ]
        self.memories = [memory for _, memory in answers]
        plan = self.plans[stage]
        vectors = [encode(plan, update) for update, _ in answers]
        summed, clipped = decode(plan, total(vectors, plan.length, plan.ring_bits))
        assert not clipped.any()
        return summed

    def truth(self, name: str) -> Array:
        """Return what the sites keep of their records by that name, one row a site."""
        return np.array([memory["site"][name] for memory in self.memories])


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


@pytest.mark.parametrize(("K", "d", "median", "most"), [(3, 3, 1e-9, 1e-9), (8, 5, 1e-4, 0.1)])
def test_two_rounds_of_hm1_reveal_every_sites_coefficients(
    K: int, d: int, median: float, most: float
) -> None:
    """To a coordinator that only looks, at default settings, of six data sets.

    The sum of coefficients at the end chooses the two rounds, and the signs. With eight sites, some
    eigenvalues are near each other, so the largest error depends on the processor's rounding: 0.01
    to 0.03 were seen.
    """
    wrong = []
    for seed in range(6):
        sites = sites_of({"name": "fedlin_hm1"}, K, d, seed)
        rounds, final = hm1.query_sites(sites.method, sites.public, sites.ask, K)
        true = np.array([memory["own"]["theta"] for memory in sites.memories])
        _, last = placed(hm1.recover_coefficients(rounds, final, 0.1, K), true)
        wrong.append(np.max(np.abs(last - true), axis=1) / np.max(np.abs(true)))
    assert np.median(wrong) < median
    assert np.max(wrong) < most


@pytest.mark.parametrize("steps", [1, 20])
def test_a_dishonest_coordinator_recovers_many_sites_from_hm1s_sums(steps: int) -> None:
    """Twelve sites, four coefficients: their least squares; X'X where steps do not come to an end.

    a_k is the noise times the mean over directions of (1 - (1 - 2 eta w)^T) / w, eta = 1 / (2 max).
    """
    sites = sites_of({"name": "fedlin_hm1", "steps": steps}, 12, 4)
    rounds, _ = hm1.query_sites(sites.method, sites.public, sites.ask, 12, invented_size=1.0)
    enough = (each for each in hm1.separations(rounds, 0.1, 12) if len(each.theta) > 8)
    found = max(enough, key=lambda each: each.separation)
    least, P = hm1.recover_least_squares(found, rounds, 0.1)
    gram, cross, true = (sites.truth(name) for name in ("gram", "cross", "separate"))
    order, least = placed(least, true, (1, -1))
    assert off(least, true) < 1e-5
    if steps == 1:
        share = np.eye(4) - P[order]  # X'X / max
        noise = float(rounds[0][0]["noise"][0])
        solved = share * (noise / found.a[order])[:, None, None]
        assert off(solved, gram) < 1e-5
        assert off(np.einsum("kij,kj->ki", solved, least), cross) < 1e-5


# --- HM2 ------------------------------------------------------------------------------------------


def truth_over_noise(sites: Sites) -> tuple[Array, Array]:
    """Return every site's X'X and X'y over sigma^2, in the order of X'X's traces."""
    noise = float(sites.memories[0]["noise"][0])
    gram, cross = sites.truth("gram") / noise, sites.truth("cross") / noise
    order = np.argsort(np.trace(gram, axis1=1, axis2=2))
    return gram[order], cross[order]


@pytest.mark.parametrize(
    ("K", "d", "many", "rounds"),
    [(3, 2, 12, 23), (5, 3, 30, 41)],
)
def test_a_dishonest_coordinator_recovers_single_sites_from_hm2s_sums(
    K: int, d: int, many: int, rounds: int
) -> None:
    """X'X and X'y of three sites with two coefficients in 23 rounds, five with three in 41."""
    sites = sites_of({"name": "fedlin_hm2"}, K, d)
    rng = np.random.default_rng(5)
    points = [*rng.uniform(-10, -1, (many - 1, d)), np.full(d, -40.0)]
    sums, took = hm2.query_sites(sites.method, sites.public, sites.ask, K, points)
    assert took == rounds <= sites.method.rounds
    gram, cross = truth_over_noise(sites)
    A, c = hm2.recover_moments(sums, K, starts=8)
    assert off(A, gram) < 1e-5
    assert off(c, cross) < 1e-4


def test_importance_points_of_an_honest_hm2_run_reveal_single_sites() -> None:
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
    sums = hm2.sums_at_points(q, summed)
    gram, cross = truth_over_noise(sites)
    A, c = hm2.recover_moments(sums, K, starts=4)
    assert off(A, gram) < 1e-5
    assert off(c, cross) < 1e-4
