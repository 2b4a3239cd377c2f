"""What the plan says about graphs and regressions with noise once at the site."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

from secagg.contracts import EdgeRule
from secagg.contracts.noise import Placement
from secagg.core.randomness import seeded_random
from secagg.evidence.feasibility.edges import graph_feasibility
from secagg.evidence.planned_facts import feasibility_facts
from secagg.jobs.job import parse_job
from secagg.models.common.clipped_moments import CONSTANT
from secagg.models.graphs.noise_size import scatter_noise
from secagg.privacy.accounting.gaussian_dp import gaussian_mu
from secagg.privacy.expected_error import Assumptions, PlannedNoise, Verdict
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import plan_job
from secagg.sessions.site_moments import draw_site_moments

D, SITES = 6, "abcd"


def planned(
    method: dict[str, Any],
    epsilon: float = 4.0,
    data: Any = None,
    protocol: str = "plain",
    **more: Any,
) -> Any:
    column = {"type": "continuous", "low": -5, "high": 5}
    raw = {
        "title": "t",
        "sites": {"max_rows": 20_000},
        "columns": {f"x{j}": column for j in range(D)},
        "method": method,
        "protocol": {"name": protocol},
        "release": {"min_sites": 2, "min_records": 5},
        "privacy": {
            "placement": "site", "epsilon": epsilon, "delta": 1e-5, "expected_records": 4000,
            "record_norm": 1.2, **more,
        },
    }  # fmt: skip
    empty = {site: {f"x{j}": np.array([]) for j in range(D)} for site in SITES}
    return plan_job(parse_job(raw), data or empty)


def judged(method: dict[str, Any], epsilon: float = 4.0, **more: Any) -> dict[str, Any]:
    found = feasibility_facts(planned(method, epsilon, **more))
    assert found is not None
    return found


REGRESSION = {"name": "sparse_regression", "outcome": "x0"}
GRAPH = {"name": "notears_admm"}


@pytest.mark.parametrize("norm_", [1.2, 2.4])  # with the larger one, the count's weight is smaller
def test_noise_once_at_the_site_is_judged_like_the_same_noise_of_moments(norm_: float) -> None:
    """It was judged by the unit of its weights, a quarter of the noise."""
    once = judged(REGRESSION, record_norm=norm_, count_share=0.3)
    moments = judged({"name": "moments"}, record_norm=norm_, count_share=0.3)
    assert once["error"] == pytest.approx(moments["error"], rel=0.04)  # the weights are rounded


def test_a_regression_is_judged_on_its_own_columns() -> None:
    some = judged({**REGRESSION, "predictors": ["x1", "x2"]})
    assert list(some["assumed_deviations"]) == ["x0", "x1", "x2"]
    assert some["error"] < judged(REGRESSION)["error"]
    assert list(judged(REGRESSION)["assumed_deviations"]) == [f"x{j}" for j in range(D)]


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ({"name": "fedlin_hm1"}, True), ({"name": "fedlin_hm2"}, True),
        ({"name": "fedavg", "personal": 1.0}, True), ({"name": "fedavg"}, False),
        ({"name": "sparse_regression"}, False),
    ],
)  # fmt: skip
def test_a_sites_own_coefficients_have_the_error_of_its_own_records(
    method: dict[str, Any], own: bool
) -> None:
    """By (1), with K sites: n / K records, and noise smaller by root(K): root(K) times as much."""
    found = judged({**method, "outcome": "x0", "predictors": ["x1", "x3"]})
    assert ("error_at_a_site" in found) == own == ("own 1000 records" in found["words"])
    if own:
        first_order = [e / math.sqrt(1 - e * e) for e in (found["error"], found["error_at_a_site"])]
        assert first_order[1] == pytest.approx(2 * first_order[0])


def test_graphs_are_judged_by_their_smallest_edge() -> None:
    found = judged(GRAPH, 1.5)
    begin = "amber: an edge is likely to be found if its weight is about 0.49 standard deviations"
    assert found["words"].startswith(begin)
    assert "(0.40 without noise)" in found["words"] and "related to no third" in found["assumes"]
    assert "more than half of such edges were found in simulations" in found["assumes"]
    assert judged(GRAPH, 8.0)["verdict"] == "green" and judged(GRAPH, 0.2)["verdict"] == "red"
    assert "records" in judged(GRAPH, 0.2)["words"]
    some = judged({**GRAPH, "variables": ["x1", "x4"]})
    assert list(some["assumed_deviations"]) == ["x1", "x4"]
    votes = judged({"name": "local_graphs"}, 1.5)
    assert votes["weight_error"] == pytest.approx(2 * found["weight_error"])  # root of 4 sites
    assert votes["majority"] == (3, 4) and "likely to be found by 3 of 4 sites if" in votes["words"]
    assert judged({"name": "local_graphs", "combine": "average"})["majority"] is None
    half = D // 2
    names = [f"x{j}" for j in range(2 * half)]
    lagged = {**GRAPH, "standardise": True, "variables": names[:half], "lags": [names[half:]]}
    assert list(judged(lagged)["assumed_deviations"]) == names
    hopeless = judged(GRAPH, 0.2)
    assert hopeless["smallest_edge"] > 1
    assert hopeless["words"].startswith("red: hardly any edge is likely to be found: its weight")


@pytest.mark.parametrize(
    "method",
    [
        {"name": "sparse_markov"},
        {"name": "sparse_directed", "errors": "gaussian", "ordered": True},
        {"name": "sparse_directed", "errors": "gaussian"},
    ],
)
def test_probabilities_of_edges_are_not_judged_and_no_regression_in_their_place(
    method: dict[str, Any],
) -> None:
    found = judged(method)
    assert found["verdict"] is None and "number of sites" in found["words"]
    assert found.keys() == {"verdict", "words"}


@pytest.mark.parametrize("name", ["notears_admm", "local_graphs"])
def test_graphs_in_own_units_are_not_judged(name: str) -> None:
    found = judged({"name": name, "standardise": False})
    assert found["verdict"] is None and "own units" in found["words"]


def pooled(*kinds: str, placement: str = "site", **keys: Any) -> dict[str, Any]:
    analyses = [{"kind": kind, **keys} for kind in kinds]
    method = {"name": "moments", "analyses": analyses}
    return judged(method, 1.5, protocol="masked", placement=placement)


def test_graphs_of_pooled_moments_are_judged() -> None:
    """Noise at four sites has four times the variance of one; in the sum, 4 / 3 (one colludes)."""
    at_sites, in_sum = pooled("notears"), pooled("notears", placement="sum")
    once = judged(GRAPH, 1.5)["weight_error"]
    assert at_sites["weight_error"] == pytest.approx(once, rel=0.04)  # weights are rounded
    assert in_sum["weight_error"] == pytest.approx(at_sites["weight_error"] / math.sqrt(3), rel=0.1)
    assert at_sites["words"].startswith("the graph by notears: ")
    # of several, the one that needs the largest effects
    assert pooled("pc", "notears")["smallest_edge"] == at_sites["smallest_edge"]
    tested, scored = pooled("pc", alpha=0.01), pooled("ges")
    assert tested["smallest_edge"] < scored["smallest_edge"] < at_sites["smallest_edge"]
    likelihood = pooled("golem", threshold=0.0)
    universal = math.sqrt(2 * math.log(D)) * max(likelihood["weight_error"], 1 / math.sqrt(4000))
    level = math.hypot(likelihood["weight_error"], 1 / math.sqrt(4000)) * norm.isf(0.05 / 30)
    assert likelihood["smallest_edge"] == pytest.approx(1.3 * max(universal, level), rel=1e-3)


@pytest.mark.parametrize("kind", ["ols", "ridge"])  # on simulated records; by the formula
def test_regressions_beside_a_graph_are_judged_first(kind: str) -> None:
    fit = {"kind": kind, "outcome": "x0", "predictors": ["x1"]}
    fit |= {"penalty": 0.1} if kind == "ridge" else {}
    graph = {"kind": "pc", "variables": ["x1", "x2"]}
    both = judged({"name": "moments", "analyses": [fit, graph]})
    alone = judged({"name": "moments", "analyses": [fit]})
    assert ("sampling" in alone) is (kind == "ols")
    assert (both["error"], both["verdict"]) == (alone["error"], alone["verdict"])
    assert both["graph"]["smallest_edge"] > 0 and "the graph by pc" in both["words"]
    assert both["assumed_deviations"] == alone["assumed_deviations"]
    own = pooled("notears", standardise=False)
    assert own["verdict"] is None and "own units" in own["words"]


ASSUMED = Assumptions(4000, 5, 0, 100.0)
NOISED = PlannedNoise((CONSTANT**2 + 1.44) / math.sqrt(2), 1.0, 1e-5, Placement.SITE, 4)
ADMM = EdgeRule(None, 0.01, 0.3, pooled=True)
RULES = [
    ADMM,
    EdgeRule(None, 0.1, 0.05, pooled=False),
    EdgeRule(None, 0.0, 0.0, pooled=False, vote=True, level=0.01),
    EdgeRule(None, 0.0, 0.0, pooled=False, vote=True, level=0.05, level_of_vote=True),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_smallest_edge_agrees_with_its_formula(rule: EdgeRule, epsilon: float) -> None:
    """By hand, with scipy's laws."""
    found = graph_feasibility(ASSUMED, replace(NOISED, epsilon=epsilon), rule)
    K, n = (4, 4000) if rule.pooled else (1, 1000)
    sd = NOISED.sensitivity / gaussian_mu(epsilon, 1e-5)
    error = sd * math.sqrt(K) / (n * 0.04)
    assert found.weight_error == pytest.approx(error)
    level = rule.level or 0.05 / 10
    if rule.level_of_vote or (rule.level is None and not rule.pooled):
        # p with P(Bin(4, p) >= 3) = level
        grid = np.linspace(1e-4, 0.5, 200_001)
        level = grid[np.argmin(np.abs(binom.sf(2, 4, grid) - level))]
    z = norm.isf(level / 2)
    penalty = max(rule.penalty, math.sqrt(2 * math.log(5)) * error)
    both = math.sqrt(error**2 + 1 / n)
    expected = 1.3 * (penalty + max(rule.threshold, z * both - penalty))
    assert found.smallest_edge == pytest.approx(expected, rel=1e-4)
    assert found.smallest_edge > found.without_noise
    assert found.if_narrow is not None and found.if_narrow > found.smallest_edge


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_least_epsilon_and_records_are_just_enough(rule: EdgeRule) -> None:
    noised = replace(NOISED, epsilon=0.2)
    found = graph_feasibility(ASSUMED, noised, rule)
    assert found.verdict is Verdict.RED
    limit = max(0.5, 1.1 * found.without_noise)
    enough = graph_feasibility(ASSUMED, replace(noised, epsilon=found.least_epsilon), rule)
    assert enough.smallest_edge == pytest.approx(limit, rel=1e-6)
    more = graph_feasibility(replace(ASSUMED, records=found.least_records), noised, rule)
    assert limit * 0.999 < more.smallest_edge <= limit * (1 + 1e-9)


def test_means_of_indicators_add_noise_and_means_of_continuous_columns_do_not() -> None:
    """E_ij - m_j E_0i - m_i E_0j with m^2 = 1/4 - 0.4^2; E_0i has four times the variance."""
    assumed = Assumptions(4000, 0, 2, 100.0)
    sd = NOISED.sensitivity / gaussian_mu(1.0, 1e-5)
    by_hand = sd * 2 / (4000 * 0.16) * math.sqrt(1 + 4 * 0.09 * 2)
    assert graph_feasibility(assumed, NOISED, ADMM).weight_error == pytest.approx(by_hand)


def test_the_predicted_error_of_a_weight_agrees_with_noise_that_is_drawn() -> None:
    """Correlations of unrelated columns, before and after the noise, 15 pairs in 8 draws.

    120 numbers, of which the root mean square has a Monte Carlo error of 6.5 %; clipping and the
    first order add some: 20 % covers both.
    """
    rng, squares, known = np.random.default_rng(6), [], []
    predicted = judged(GRAPH, 2.0)["weight_error"]
    for _ in range(8):
        data = {s: {f"x{j}": rng.normal(size=1000) for j in range(D)} for s in SITES}
        plan = planned(GRAPH, 2.0, data)
        total = [np.zeros((D, D)), np.zeros((D, D))]
        variance = np.zeros((D, D))
        for source in plan.sources.values():
            records = read_records(plan, source)
            drawn = draw_site_moments([records], plan.public, seeded_random(rng.bytes(32)))
            for i, table in enumerate((records.values, drawn.repaired.values)):
                total[i] += (table - table.mean(axis=0)).T @ (table - table.mean(axis=0))
            assert drawn.repaired.noisy is not None
            variance += scatter_noise(drawn.repaired.noisy)
        exact, noisy = (S / np.sqrt(np.outer(np.diagonal(S), np.diagonal(S))) for S in total)
        pairs, scale = np.triu_indices(D, 1), np.diagonal(total[0]).mean()
        squares.append(np.mean((noisy - exact)[pairs] ** 2))
        known.append(np.mean(variance[pairs]) / scale**2)
    measured = math.sqrt(np.mean(squares))
    assert predicted == pytest.approx(measured, rel=0.2)
    assert math.sqrt(np.mean(known)) == pytest.approx(measured, rel=0.2)
