"""Sites with noisy moments: repetitions with fresh noise, votes on them, raised settings."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secagg.contracts import NoisyMatrix, PublicFacts, RecordCount, SiteRecords, Variable
from secagg.core.randomness import seeded_random
from secagg.errors import JobError
from secagg.models.common.pooled_moments import Moments
from secagg.models.common.surrogate_records import surrogate_records
from secagg.models.graphs.noise_size import quantile, single_level
from secagg.models.local_graphs.learners import EDGES, Learner
from secagg.models.local_graphs.method import LocalGraphs
from secagg.models.local_graphs.noisy_site import REDRAWN, VARIANCE, level_of_a_site
from secagg.models.local_graphs.scatter_noise import SiteNoise, redrawn

NAMES, SITES = ("a", "b", "c"), ("s", "t", "u")
HALF = np.array([5.0, 50.0, 0.5])
PUBLIC = PublicFacts(
    tuple(Variable(n, n, 0.0, h) for n, h in zip(NAMES, HALF, strict=True)),
    NAMES, 10_000, SITES, min_sites=3, site_moments=True,
)  # fmt: skip


def noisy_site(sd: float, seed: int = 1, n: int = 600) -> SiteRecords:
    """a -> b, c alone, with noise of one standard deviation in each product of columns."""
    rng = np.random.default_rng(seed)
    u = 0.2 * rng.normal(size=(n, 3))
    u[:, 1] = 0.6 * u[:, 0] + 0.8 * u[:, 1]
    z = np.column_stack([np.ones(n), u])
    variance = np.full((4, 4), sd**2) * (1 + np.eye(4))
    variance[0, 1:] = variance[1:, 0] = 4 * sd**2
    E = np.triu(rng.normal(size=(4, 4)) * np.sqrt(variance))
    M = z.T @ z + E + np.triu(E, 1).T
    values = surrogate_records(M, round(M[0, 0]), np.ones(3))
    return SiteRecords(values, 0, np.zeros(3), noisy=NoisyMatrix(M, variance))


def play(method: LocalGraphs, rows: list[SiteRecords], public: PublicFacts = PUBLIC) -> Any:
    draws = [seeded_random(bytes([k]) * 32) for k in range(len(rows))]
    found = [
        method.contribute("graphs", r, {}, {}, public, draw)[0]
        for r, draw in zip(rows, draws, strict=True)
    ]
    total = {name: sum(update[name] for update in found) for name in found[0]}
    state = method.aggregate({}, total, len(rows))
    return found, total, method.result(state, public, RecordCount(1800.0, 1.0))


def test_a_repetition_has_fresh_noise_of_the_stated_variance() -> None:
    """3000 draws: variances to 5 %, two Monte Carlo errors of 2.6 %; the mean is that of the table.

    The noise is far below the eigenvalues, so nothing is repaired.
    """
    rows, rng = noisy_site(0.3), np.random.default_rng(4)
    assert rows.noisy is not None
    draws = [redrawn(rows.values, rows.noisy, rng) for _ in range(3000)]
    scatter = np.array([d.scatter for d in draws])
    centred = rows.values - rows.values.mean(axis=0)
    upper = np.triu_indices(3)
    assert scatter.std(axis=0)[upper] ** 2 / 0.09 == pytest.approx(1 + np.eye(3)[upper], rel=0.1)
    assert scatter.mean(axis=0) == pytest.approx(centred.T @ centred, abs=5 * 0.42 / 3000**0.5)


def test_the_stability_is_the_share_of_repetitions_whose_vote_has_the_edge() -> None:
    method = LocalGraphs(redraws=4)
    found, total, result = play(method, [noisy_site(3.5, seed) for seed in range(3)])
    votes = np.array([update[REDRAWN] for update in found])  # (site, repetition, from, to)
    assert votes.shape == (3, 4, 3, 3) and total[REDRAWN].max() <= 3
    assert not np.array_equal(votes[:, 0], votes[:, 1])  # fresh noise each time
    has = votes.sum(axis=0) >= 2
    assert np.array_equal(result.arrays["stability"], has.mean(axis=0))
    either = (has | has.transpose(0, 2, 1)).mean(axis=0)
    assert np.array_equal(result.arrays["stability_either_way"], either)
    share = result.arrays["stability"]
    assert np.any((share > 0) & (share < 1))
    for edge in result.summary["edges"]:
        i, j = NAMES.index(edge["from"]), NAMES.index(edge["to"])
        assert edge["stability"] == has[:, i, j].mean()
        assert edge["stability_either_way"] == either[i, j]
    assert any("4 repetitions" in note for note in result.summary["notes"])


def products_noise(variance: np.ndarray, half: np.ndarray, n: int, level: float) -> SiteNoise:
    """Return noise in the products of the columns alone, of this variance in the records' units."""
    whole = np.zeros((len(half) + 1,) * 2)
    whole[1:, 1:] = variance / np.outer(half, half) ** 2
    matrix = np.zeros_like(whole)
    matrix[0, 0] = n
    return SiteNoise(NoisyMatrix(matrix, whole), half, level)


@pytest.mark.parametrize("learner", ["pc", "ges"])
def test_tests_and_scores_allow_for_the_noise(learner: Any) -> None:
    """15 unrelated pairs with noise of 0.15 in each correlation: more than a few edges, or none."""
    rng = np.random.default_rng(5)
    u = rng.normal(size=(4000, 6))
    E = np.triu(0.15 * rng.normal(size=(6, 6)), 1)
    S = np.corrcoef(u.T) + E + E.T
    values = surrogate_records(
        np.block([[np.full((1, 1), 4000.0), np.zeros((1, 6))], [np.zeros((6, 1)), 40 * S]]),
        4000, np.ones(6),
    )  # fmt: skip
    names = tuple("abcdef")
    blind = Learner(algorithm=learner)
    level, ones = 0.05 if learner == "pc" else single_level(6), np.ones(6)
    sees = products_noise(np.full((6, 6), (40 * 0.15) ** 2), ones, 4000, level)
    without, knowing = blind.fit(values, names), blind.fit(values, names, sees)
    count = [int((f.directed | f.undirected).sum()) for f in (without, knowing)]
    assert count[0] > 8 and count[1] <= 2
    if learner == "pc":  # the tests are the same then; GES also needs each edge beyond chance
        exact = blind.fit(values, names, products_noise(np.zeros((6, 6)), ones, 4000, level))
        assert exact.directed.tolist() == without.directed.tolist()


def test_a_site_drops_edges_within_its_noise() -> None:
    """A weight below z errors is no vote, and the job's threshold stays the smallest one."""
    rows = noisy_site(0.1).values * HALF
    scale = 600 * 0.04 * np.outer(HALF, HALF)  # of the scatter, per unit of correlation
    learner = Learner(standardise=True, penalty=0.0, threshold=0.1)
    for error, edges in ((0.01, 1), (0.3, 0)):
        noise = products_noise((error * scale) ** 2, HALF, 600, single_level(3))
        fit = learner.fit(rows, NAMES, noise)
        assert int(fit.directed.sum()) == edges
    strict = replace(learner, threshold=0.9)
    noise = products_noise((0.01 * scale) ** 2, HALF, 600, 0.05)
    assert not strict.fit(rows, NAMES, noise).directed.any()


def test_the_threshold_of_an_average_is_raised_by_the_variances_of_all_sites() -> None:
    method = LocalGraphs(combine="average", redraws=0)
    found, total, result = play(method, [noisy_site(3.5, seed) for seed in range(3)])
    assert all(REDRAWN not in update for update in found)
    # by hand: root of the sum of variances over sites, divided by their number
    floor = quantile(single_level(3)) * np.sqrt(total[VARIANCE]) / 3
    assert floor.max() > 0.3
    expected = np.abs(total[EDGES] / 3) > np.maximum(0.3, floor)
    assert np.array_equal(result.arrays["directed"], expected)
    assert result.summary["noise"]["threshold"]["largest"] == pytest.approx(floor.max())
    # correlations with noise sd s / (n var): s = 3.5, n var = 24, and chance 1 / 600
    about = (3.5 / 24) ** 2 + 1 / 600
    assert np.median(total[VARIANCE][~np.eye(3, dtype=bool)]) / 3 == pytest.approx(about, rel=0.5)


def test_without_noise_nothing_is_sent_that_was_not_sent_before() -> None:
    public = replace(PUBLIC, site_moments=False)
    rows = [replace(noisy_site(0.1, seed), noisy=None) for seed in range(3)]
    found, _, result = play(LocalGraphs(), rows, public)
    fields = [field.name for stage in LocalGraphs().stages(public) for field in stage.spec]
    assert set(found[0]) == set(fields) == {"edges", "abstained"}
    assert "noise" not in result.summary


def test_the_number_of_repetitions_is_limited() -> None:
    with pytest.raises(JobError, match="between 0 and 1000"):
        LocalGraphs(redraws=1001).stages(PUBLIC)


def test_noise_is_among_the_reasons_for_which_sites_learn_no_graph() -> None:
    rows = [replace(noisy_site(0.3, k), values=np.zeros((1, 3))) for k in range(3)]
    for noised in (True, False):
        method, public = LocalGraphs(redraws=0), replace(PUBLIC, site_moments=noised)
        given = rows if noised else [replace(each, noisy=None) for each in rows]
        *_, result = play(method, given, public)
        (note,) = (n for n in result.summary["notes"] if "could not learn a graph" in n)
        assert note.startswith("3 of 3 sites") and ("Possible reasons: noise" in note) == noised
        assert ("the analyses of 'moments'" in note) != noised


@pytest.mark.usefixtures("causal_learn")
def test_noise_that_columns_hide_from_one_another_makes_no_edge() -> None:
    """a and b nearly equal: noise of .01 in correlations is large in their partial ones with c.

    Records that suit the correlations alone, 4000 / (1 + 4000 * .01^2), gave 9 such edges.
    """
    rng = np.random.default_rng(11)
    false = 0
    for _ in range(20):
        x = rng.normal(size=(4000, 3))
        x[:, 1] = x[:, 0] + 0.3 * x[:, 1]
        x[:, 2] = 0.7 * x[:, 0] + 0.7 * x[:, 2]  # c depends on b through a alone
        S = np.corrcoef(x.T) + np.triu(0.01 * rng.normal(size=(3, 3)), 1)
        S = np.triu(S) + np.triu(S, 1).T
        units = np.outer(HALF, HALF)
        moments = Moments(NAMES, 4000, np.zeros(3), 4000 * S * units)
        noise = products_noise((40 * units) ** 2, HALF, 4000, single_level(3))
        fit = Learner(algorithm="pc").fit_moments(moments, replace(noise, level=0.01))
        assert fit.converged
        false += int((fit.directed | fit.directed.T | fit.undirected)[1, 2])
    # At the level of 1 %, two or more of 20 have a probability of 1.7 %.
    assert false <= 1


def test_the_level_of_pc_is_that_of_the_vote() -> None:
    """Of three sites two decide: P(Bin(3, p) >= 2) = 3 p^2 - 2 p^3."""
    p = level_of_a_site(PUBLIC, 3, Learner(algorithm="pc", alpha=0.1))
    assert 3 * p**2 - 2 * p**3 == pytest.approx(0.1)
    p = level_of_a_site(PUBLIC, 3, Learner(algorithm="ges", alpha=0.1))
    assert 3 * p**2 - 2 * p**3 == pytest.approx(single_level(3))


@pytest.mark.usefixtures("causal_learn")
@pytest.mark.parametrize(("level", "edges"), [(0.05, 1), (0.001, 0)])
def test_ges_adds_edges_beyond_the_sites_own_level(level: float, edges: int) -> None:
    """r = .8 with noise of .3 and chance of .1: 6.4 squared deviations; log n is 4.6."""
    S = np.eye(3)
    S[0, 1] = S[1, 0] = 0.8
    noise = products_noise(np.full((3, 3), 30.0**2), np.ones(3), 100, level)
    moments = Moments(NAMES, 100, np.zeros(3), 100 * S)
    fit = Learner(algorithm="ges").fit_moments(moments, noise)
    assert fit.converged and np.triu(fit.undirected | fit.directed | fit.directed.T).sum() == edges
