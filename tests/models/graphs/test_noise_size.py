"""The noise's size against simulated noise, and the levels against scipy and simulation."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from secagg.contracts import NoisyMatrix
from secagg.models.graphs.noise_size import (
    FALSE_GRAPHS,
    NoiseSize,
    quantile,
    raised_facts,
    raised_note,
    scatter_noise,
    single_level,
    vote_level,
)
from secagg.models.graphs.proximal_newton import LinearGraph
from secagg.models.numerics.column_lassos import ColumnLassos


def test_the_scatter_noise_agrees_with_noise_that_is_drawn() -> None:
    """Variances of 20,000 draws, Monte Carlo error 1 %; the noise is small, so (1) is exact."""
    rng, p, n = np.random.default_rng(2), 3, 1000.0
    mean = np.array([0.6, -0.3, 0.0])
    u = np.column_stack([np.ones(4000), mean + 0.2 * rng.normal(size=(4000, p))])
    M = u.T @ u * (n / 4000)
    sd = np.triu(np.array([[0.3, 0.2, 0.2, 0.2], *[[0.2, 0.1, 0.1, 0.1]] * p]))
    draws = rng.normal(size=(20_000, p + 1, p + 1)) * sd
    noisy = M + draws + np.swapaxes(np.triu(draws, 1), 1, 2)
    s = noisy[:, 0, 1:]
    scatter = noisy[:, 1:, 1:] - s[:, :, None] * s[:, None, :] / noisy[:, :1, :1]
    full = sd**2 + np.triu(sd**2, 1).T
    assert scatter_noise(NoisyMatrix(M, full)) == pytest.approx(scatter.var(axis=0), rel=0.05)


def test_a_negative_count_and_means_beyond_the_bounds_give_a_finite_size() -> None:
    found = scatter_noise(NoisyMatrix(np.full((3, 3), -7.0), np.ones((3, 3))))
    assert np.all(found <= 1 + 4 + 1)


@pytest.mark.parametrize("sites", [1, 2, 3, 4, 7])
def test_a_vote_has_the_level_of_all_pairs_together(sites: int) -> None:
    p = vote_level(6, [sites])
    assert binom.sf(sites // 2, sites, p) * 15 == pytest.approx(FALSE_GRAPHS)
    assert vote_level(6, [1, sites]) <= p


def test_unrelated_columns_have_an_edge_in_five_per_cent_of_graphs() -> None:
    """Lassos of unrelated columns with noise in their correlations, 4000 graphs: error 0.35 %."""
    rng, d, n = np.random.default_rng(3), 8, 900.0
    G = np.triu(rng.uniform(0.08, 0.2, (d, d)), 1)
    G += G.T
    size, pairs = NoiseSize(G, np.ones(d), n), np.triu_indices(d, 1)
    job_penalty = 0.2
    penalty = np.maximum(job_penalty, size.penalty)[pairs]
    floor = size.threshold(job_penalty)[pairs]
    S = rng.normal(size=(4000, len(penalty))) * np.sqrt(G[pairs] ** 2 + 1 / n)
    weights = np.maximum(np.abs(S) - penalty, 0)
    share = float((weights > floor).any(axis=1).mean())
    assert share == pytest.approx(0.05, abs=0.012)
    assert floor.any() and np.any(penalty > job_penalty) and np.any(penalty == job_penalty)


def test_the_weight_of_a_lasso_under_noise_is_as_stated() -> None:
    """In own units too: (2) against the solver, for two columns, one the cause of the other."""
    S = np.array([[4.0, 0.9], [0.9, 0.25]])
    size = NoiseSize(np.array([[0.0, 0.2], [0.2, 0.0]]), np.diagonal(S), 100)
    graph = LinearGraph(2, 0, (0.01, 0.0), zero_diagonal=True, at_least=size.penalty)
    assert graph.penalty[0, 1] == pytest.approx(0.2 * np.sqrt(2 * np.log(2)))
    free = np.array([[False, True], [False, False]])
    W = ColumnLassos(S, np.where(free, graph.penalty, 0), free).minimise(
        np.zeros((2, 2)), np.zeros((2, 2))
    )
    assert W[0, 1] == pytest.approx((0.9 - graph.penalty[0, 1]) / 4)
    assert size.weight_error[0, 1] == pytest.approx(0.2 / 4)
    assert size.weight_error[1, 0] == pytest.approx(0.2 / 0.25)
    z = norm.isf(FALSE_GRAPHS / 2)
    beyond = z * np.sqrt(0.04 + 4 * 0.25 / 100) - graph.penalty[0, 1]
    assert size.threshold(0.01)[0, 1] == pytest.approx(beyond / 4)
    assert size.threshold(0.01)[1, 0] == pytest.approx(beyond / 0.25)
    assert quantile(single_level(2)) == pytest.approx(z)


def test_effective_records_have_the_error_of_chance_and_noise_together() -> None:
    S = np.array([4.0, 0.25, 1.0])
    correlation_noise = np.array([[0, 0.1, 0.2], [0.1, 0, 0.3], [0.2, 0.3, 0]])
    size = NoiseSize(correlation_noise * np.sqrt(np.outer(S, S)), S, 50)
    expected = np.mean([0.1**2 + 1 / 50, 0.2**2 + 1 / 50, 0.3**2 + 1 / 50])
    assert 1 / size.effective_records == pytest.approx(expected)


def test_the_note_says_what_was_raised_and_what_was_not() -> None:
    size = NoiseSize(0.1 * (1 - np.eye(3)), np.ones(3), 500)
    facts = raised_facts(size, 0.01, 0.3)
    assert facts["penalty"]["in_force"] == pytest.approx([0.1 * np.sqrt(2 * np.log(3))] * 2)
    assert raised_note(facts).endswith(
        "by 0.1 (one standard deviation). It raised penalty from 0.01 to 0.15."
    )
    facts = raised_facts(size, 0.5, 0.3)
    assert raised_note(facts).endswith("It raised no setting.")
