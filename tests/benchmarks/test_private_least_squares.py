"""Peers under noise, from papers: against least squares, their formulas and enumeration."""

from importlib import import_module

import numpy as np
import pytest
from scipy import stats


@pytest.fixture
def peer():
    return import_module("benchmarks.peers.private_least_squares")


@pytest.mark.parametrize("ridge", [True, False])
def test_with_little_noise_it_is_least_squares(peer, ridge: bool) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, size=(500, 3)), rng.uniform(-1, 1, size=500)
    found = peer.adassp(X, y, np.sqrt(3), 1.0, 1e6, 1e-5, rng, ridge=ridge)
    np.testing.assert_allclose(found, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-3)


class Constant:
    """Gives the same number for every draw."""

    def __init__(self, value: float) -> None:
        self.value = value

    def normal(self, size=()):
        return np.full(size, self.value)


@pytest.mark.parametrize("drawn", [0.0, 0.5])
def test_noise_and_ridge_of_adassp_are_wangs(peer, drawn: float) -> None:
    rng, d, norm, bound = np.random.default_rng(2), 2, 2.0, 3.0
    X, y = rng.uniform(-1, 1, size=(500, d)), rng.uniform(-1, 1, size=500)
    sd = norm**2 * np.sqrt(3) / 0.268051  # mu at epsilon 1 and delta 1e-5, in thirds of its square
    least = np.linalg.eigvalsh(X.T @ X)[0] + sd * (drawn - np.sqrt(np.log(6e5)))
    added = sd * np.sqrt(d * np.log(2 * d**2 / 0.05)) - max(least, 0)
    expected = np.linalg.solve(
        X.T @ X + sd * drawn + added * np.eye(d), X.T @ y + sd * drawn * bound / norm
    )
    found = peer.adassp(X, y, norm, bound, 1.0, 1e-5, Constant(drawn))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_distance_to_unsafety_of_known_volumes(peer) -> None:
    """The figures are those of the authors' own tests."""
    dense = np.log([128, 64, 1, *np.linspace(0.999, 0.987, 13)])
    assert peer.distance_to_unsafety(dense, 1.1, 0.5, 6) == 1
    assert peer.distance_to_unsafety(np.log(2.0 ** np.arange(7, -1, -1)), 1.1, 0.5, 4) == -1
    assert peer.distance_to_unsafety(np.zeros(200), 4.0, 0.5, 50) == 48  # V_1 is the first


def test_a_point_is_uniform_among_those_of_its_depth(peer) -> None:
    rng = np.random.default_rng(3)
    S = np.sort(rng.normal(size=(9, 2)), axis=0)
    for depth in (1, 3, 4):
        points = np.array([peer._of_depth(S, depth, rng) for _ in range(1500)])
        below = (points[:, None] > S).sum(axis=1)
        assert np.all(np.minimum(below, 9 - below).min(axis=1) == depth)
        box = rng.uniform(S[depth - 1], S[9 - depth], size=(20_000, 2))
        below = (box[:, None] > S).sum(axis=1)
        kept = box[np.minimum(below, 9 - below).min(axis=1) == depth]
        for j in range(2):
            assert stats.ks_2samp(points[:, j], kept[:, j]).pvalue > 1e-4


def test_depths_have_the_probabilities_of_the_exponential_mechanism(peer, monkeypatch) -> None:
    rng, fits = np.random.default_rng(4), np.random.default_rng(5).normal(size=(12, 2))
    monkeypatch.setattr(peer, "distance_to_unsafety", lambda *_: 1000)  # passes
    S, depths = np.sort(fits, axis=0), []
    for _ in range(4000):
        point = peer.chosen_by_depth(fits, 2.0, 1e-5, rng)
        below = (point > S).sum(axis=0)
        depths.append(int(np.minimum(below, 12 - below).min()))
    volumes = np.prod(S[::-1][:6] - S[:6], axis=1)
    exact = (volumes - np.append(volumes[1:], 0.0)) * np.exp(np.arange(1, 7))
    exact = exact[2:] / exact[2:].sum()  # depths of at least 12 / 4
    counts = np.bincount(depths, minlength=7)[3:]
    assert min(depths) >= 3
    assert stats.chisquare(counts, 4000 * exact).pvalue > 1e-4


def test_few_models_fail_the_check_and_many_equal_ones_pass(peer) -> None:
    rng = np.random.default_rng(6)
    assert peer.chosen_by_depth(rng.normal(size=(40, 3)), 1.0, 1e-5, rng) is None
    assert peer.chosen_by_depth(rng.normal(size=(1000, 3)), 4.0, 1e-5, rng) is not None


@pytest.mark.parametrize("know", ["bounds", "typical"])
@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_slopes_of_peers_units_are_turned_into_own_units(know: str, family: str) -> None:
    ours = import_module("benchmarks.noise.regressions")
    theirs = import_module("benchmarks.peers.private_regressions")
    study = import_module("benchmarks.noise.studies").hospitals(family)
    plan, rows = ours.unclipped(study, study.table)
    X, y, _ = ours.own_units(plan, rows, study)
    r = theirs.records(study, plan, rows.values, know)
    b, _ = ours.exact(np.column_stack([np.ones(len(r.z)), r.z]), r.y, family)
    np.testing.assert_allclose(b, ours.exact(X, y, family)[0], rtol=1e-6)
    assert np.all((r.low - 1e-9 <= r.z) & (r.z <= r.high + 1e-9))
