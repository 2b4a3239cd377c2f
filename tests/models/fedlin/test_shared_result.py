"""What HM2 says of what sites share: of weighed points, and with what cautions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from support.fedlin.ep_rounds import run
from support.fedlin.few_sites import exact_sites
from support.fedlin.written_out import bounds, linear_tables, simulated

from secagg.models.fedlin import hm2
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.fedlin.hierarchies.normal import NormalHierarchy
from secagg.models.fedlin.posterior.importance_points import Mixture, points_sums
from secagg.models.fedlin.posterior.site_posterior import posterior_draws
from secagg.models.fedlin.shared_result import (
    cautions,
    importance_rows,
    importance_summary,
    importance_weighted,
    shared_rows,
)
from secagg.models.numerics.natural_gaussian import Natural

WIDE = NormalHierarchy(0.0, 1.0, -3.0, 2.0)


def mixture(weights: np.ndarray) -> Mixture:
    """One coefficient; means and log tau are 0, 1, 2, .."""
    many = len(weights)
    at = np.arange(many, dtype=float)
    return Mixture(at[None], weights / weights.sum(), at[:, None], np.full((many, 1, 1), 0.01))


def test_too_few_effective_importance_points_give_a_note() -> None:
    told, _ = importance_summary(mixture(np.ones(800)))
    assert (told["many"], told["effective"]) == (800, pytest.approx(800))
    few = np.full(800, 1e-9)
    few[:20] = 1
    told, notes = importance_summary(mixture(few))
    assert told["effective"] == pytest.approx(20, rel=1e-3)
    assert told["error"] is None  # it would say 0.2, whatever the truth
    assert len(notes) == 1


def test_errors_are_given_in_posterior_standard_deviations() -> None:
    """Two halves that lie apart: batches are of one or the other, so means are uncertain."""
    told, notes = importance_summary(mixture(np.ones(800)))
    at = np.arange(800.0)  # mu is as uncertain at each point as the points are apart
    vague = Mixture(at[None], np.full(800, 1 / 800), at[:, None], np.full((800, 1, 1), 1e5))
    told, _ = importance_summary(vague)
    errors = vague.error() / np.sqrt(np.diagonal(vague.moments()[1]))
    assert errors[0] < 0.8 * errors[1] == pytest.approx(0.8 * told["error"])
    assert told["error"] > 0.1
    assert len(notes) == 1
    at = np.random.default_rng(0).permutation(800).astype(float)
    mixed = Mixture(at[None], np.full(800, 1 / 800), at[:, None], np.full((800, 1, 1), 0.01))
    told, notes = importance_summary(mixed)
    assert told["error"] < 0.1
    assert notes == []


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_table_rows_have_the_quantiles_of_the_mixture(level: float) -> None:
    found = mixture(np.ones(801))
    plain = shared_rows(("mu[x]", "log tau[x]"), np.zeros(2), np.ones(2), 0.9)
    for row in importance_rows(plain, found, level):
        assert row.mean == pytest.approx(400)
        assert row.median == pytest.approx(400, abs=0.5)
        assert row.low == pytest.approx(800 * (1 - level) / 2, abs=1)
        assert row.high == pytest.approx(800 * (1 + level) / 2, abs=1)
        assert row.sd == pytest.approx(801 / np.sqrt(12), rel=1e-3)


@pytest.mark.parametrize("name", ["precision", "level"])
def test_impossible_importance_sums_are_reported(name: str) -> None:
    q = Natural(np.zeros(2), np.eye(2))
    good = points_sums(SufficientStatistics(np.eye(1), np.ones(1), 1.0, 5, 1.0), np.zeros((1, 64)))
    assert importance_weighted(WIDE, q, good)[0] is not None
    bad = {**good, name: np.full_like(good[name], -1e6 if name == "precision" else np.nan)}
    found, notes = importance_weighted(WIDE, q, bad)
    assert found is None
    assert len(notes) == 1


def test_a_run_continues_after_impossible_importance_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """One site's; all else is released by then, and reported as without points. With points all
    that a result says of phi is of them.
    """
    tables = linear_tables((20, 30, 25), d=1)

    def wrong(site: SufficientStatistics, log_tau: np.ndarray) -> Mapping[str, Any]:
        sums = dict(points_sums(site, log_tau))
        return sums | {"precision": sums["precision"] - 1e6 * (site.records > 28)}

    method = {"name": "fedlin_hm2", "points": 64, "draws": 100}
    result, _ = simulated(method, bounds(tables), tables)
    rows, sd = result.summary["shared"], np.sqrt(np.diagonal(result.arrays["shared_covariance"]))
    assert [row["mean"] for row in rows] == result.arrays["shared_mean"].tolist()
    np.testing.assert_allclose([row["sd"] for row in rows], sd)
    monkeypatch.setattr(hm2, "points_sums", wrong)
    summary = simulated(method, bounds(tables), tables)[0].summary
    plain = simulated({**method, "points": 0}, bounds(tables), tables)[0].summary
    assert "points" not in summary
    assert summary["shared"] == plain["shared"]
    assert set(summary["notes"]) > set(plain["notes"]) != set()


def test_cautions_concern_sites_with_records_only() -> None:
    assert cautions(15, weighed=False, own_units=False, noisy=False) == []
    assert len(cautions(14, weighed=False, own_units=False, noisy=False)) == 1
    assert cautions(14, weighed=True, own_units=False, noisy=False) == []
    tables = linear_tables((20,) * 14 + (0,))
    method = {"name": "fedlin_hm2", "rounds": 1, "draws": 100}
    notes = simulated(method, bounds(tables), tables)[0].summary["notes"]
    assert any("fewer than 15" in note for note in notes)


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(6))
def test_a_site_posterior_removes_its_own_factor_correctly(seed: int) -> None:
    """Two sites: the right powers of q_k and f_k; else means are 0.06 sds off and more, or sds.

    Expectation propagation's own error is below 0.03; the rest is of 30,000 draws, one in 16
    candidates.
    """
    rng = np.random.default_rng(seed)
    b, s = np.array([rng.normal(0.5, 1.0), rng.normal(0.5, 1.0)]), np.array([0.02, 0.01])
    sites = [
        SufficientStatistics(np.array([[1 / v]]), np.array([e / v]), e * e / v, 20, 1.0)
        for e, v in zip(b, s, strict=True)
    ]
    ended = run(WIDE, sites, 0.005)
    mean, sd = exact_sites(b, s, WIDE)
    for k, (site, own) in enumerate(zip(sites, ended.factors, strict=True)):
        drawn, apart = posterior_draws(WIDE, site, ended.q, own, 30_000, rng)
        assert apart
        allowed = 0.03 + 4.5 * 1.15 / np.sqrt(30_000)
        assert abs(drawn.theta.mean() - mean[k]) < allowed * sd[k]
        assert abs(np.log(drawn.theta.std() / sd[k])) < allowed


def test_a_note_says_if_no_share_of_a_factor_can_be_removed() -> None:
    """Even an eighth of q_k leaves no density: q stands in for the cavity."""
    site = SufficientStatistics(np.eye(1), np.ones(1), 1.0, 5, 1.0)
    q = Natural(np.zeros(2), np.eye(2))
    _, apart = posterior_draws(WIDE, site, q, q.times(9.0), 100, np.random.default_rng(0))
    assert not apart
    _, apart = posterior_draws(WIDE, site, q, q.times(7.0), 100, np.random.default_rng(0))
    assert apart
