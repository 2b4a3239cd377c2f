"""Attacks on the sparse methods' contributions, sums and messages, and what limits them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.runs.audited import attacked, tables

from secagg.audits.attacks.samplers.sampler_information import Simulated
from secagg.audits.audit import Attacked
from secagg.audits.contract import Finding, Verdict

SPARSE: dict[str, Any] = {"name": "sparse_regression", "outcome": "x0", "rounds": 20, "warmup": 4}
AFTER = "rounds_and_median_errors_of_least_squares_and_gram"


def found(*args: Any, verdict: Verdict, **more: Any) -> Finding:
    result: Attacked = attacked(*args, **more)
    assert result.verdict is verdict and result.finding is not None, result.why
    return result.finding


@pytest.mark.attack
def test_one_contribution_in_clear_is_the_sites_least_squares() -> None:
    data, settings = tables(3, 3), SPARSE | {"rounds": 40}
    clear = found(data, "gibbs_messages", settings, protocol="plain", verdict=Verdict.LEAK)
    rounds, coefficients, _ = clear.details[AFTER][0]
    assert rounds == 1 and coefficients < 1e-7
    assert max(clear.details["errors"].values()) < 1e-9 < clear.baseline
    first, last = clear.details[AFTER][0][2], clear.details[AFTER][-1][2]
    assert last < 0.1 * first and last < clear.details["gram_baseline"]
    masked = found(data, "gibbs_messages", settings, verdict=Verdict.NO_LEAK_FOUND)
    assert masked.value > 1


@pytest.mark.attack
def test_the_papers_step_shows_draws_from_which_least_squares_follow_in_time() -> None:
    settings = SPARSE | {"step": "paper", "rounds": 150}
    data = tables(3, 4, 200)
    clear = found(data, "gibbs_messages", settings, protocol="plain", verdict=Verdict.LEAK)
    after = {rounds: errors for rounds, *errors in clear.details[AFTER]}
    assert np.isinf(after[1][0])  # one draw is no estimate
    assert after[150][0] < after[10][0] and after[150][1] < 0.5 * after[10][1]


@pytest.mark.parametrize(
    ("protocol", "method"),
    [("additive", SPARSE), ("plain", {"name": "moments"})],
)
def test_without_readable_contributions_there_is_nothing_to_solve(
    protocol: str, method: dict[str, Any]
) -> None:
    result = attacked(tables(3, 2), "gibbs_messages", method, protocol=protocol)
    assert result.verdict is Verdict.NOT_APPLICABLE


@pytest.mark.attack
def test_a_chosen_message_isolates_a_site_only_where_a_column_is_constant() -> None:
    data = tables(3, 4)
    everywhere = attacked(data, "sparse_invented", SPARSE)
    assert everywhere.verdict is Verdict.NOT_APPLICABLE and "varies" in everywhere.why
    data["s1"]["x2"] = 1.0
    one = found(data, "sparse_invented", SPARSE, verdict=Verdict.LEAK)
    (isolated,) = one.details["isolated"]
    assert isolated["site"] == "s1" and one.value < 1e-4 < one.baseline
    data["s2"]["x2"] = 1.0
    no_rule = {"min_sites": 2, "min_records": 5, "min_level_sites": 1}
    two = attacked(data, "sparse_invented", SPARSE, release=no_rule)
    assert two.verdict is Verdict.NOT_APPLICABLE


@pytest.mark.attack
def test_a_samplers_sums_determine_more_of_each_site_than_one_sum() -> None:
    some = found(tables(3, 2), "gibbs_sums", SPARSE, verdict=Verdict.LEAK)
    shares = {r: each["cross products"] for r, each in some.details["mean_shares"].items()}
    assert some.low > 0 and shares["1"] < shares["20"] < 1
    clear = found(tables(2, 2), "gibbs_sums", SPARSE, protocol="plain", verdict=Verdict.LEAK)
    assert clear.value > 0.9


def test_derivatives_that_are_noise_are_no_information() -> None:
    """8 unknown statistics and 20 numbers, whose derivatives are noise, or known with noise."""
    exact, blocks, nothing, excess = np.zeros((1, 8)), [slice(0, 4), slice(4, 8)], [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        noise, T = rng.normal(size=(24, 5, 1, 4, 8)), rng.normal(size=(24, 5, 1, 4))
        empty = Simulated(T, 3 * noise, exact, blocks, 50, 50)
        nothing.append(np.mean(empty.shares(50)))
        J = rng.normal(size=(5, 1, 4, 8))
        F = np.einsum("bide,bidf->ef", J, J)
        best = 1 - np.trace(np.linalg.inv(np.eye(8) + F)) / 8
        known = replace(empty, J=J + 0.1 * noise)
        excess.append(np.mean(known.shares(50)) - best)
    for errors in (nothing, excess):
        assert np.mean(errors) < 3 * np.std(errors) / np.sqrt(40)
    assert np.mean(excess) > -0.2
