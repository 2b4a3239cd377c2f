"""A site that has most of the records: how precisely the sums show it, and who else is exposed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.runs.audited import job

from secagg.audits.attacks.statistics.site_accuracy import _relative_errors
from secagg.audits.audit import Attacked, audit_job
from secagg.audits.contract import Verdict
from secagg.audits.views import View
from secagg.contracts import SiteRecords

MOMENTS = {"name": "moments"}


def clinics(sizes: Sequence[int], levels: float = 0.3, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return sites of these sizes. levels: standard deviation of the sites' means"""
    rng = np.random.default_rng([seed, *sizes])
    mix = np.array([[0.6, 0.3, 0.0], [0.0, 0.5, 0.2], [0.0, 0.0, 0.7]])
    return {
        f"s{k}": pd.DataFrame(
            (rng.normal(size=(n, 3)) @ mix + levels * rng.normal(size=3)).clip(-4, 4),
            columns=["x0", "x1", "x2"],
        )
        for k, n in enumerate(sizes)
    }


def audited(
    sizes: Sequence[int], name: str = "site_accuracy", method: dict[str, Any] | None = None,
    protocol: str = "masked", levels: float = 0.3, seed: int = 0, **more: Any,
) -> dict[str, Attacked]:  # fmt: skip
    raw = job(method or MOMENTS, 3, protocol, **more)
    audit = audit_job(raw, clinics(sizes, levels, seed), attacks=[name], set_aside=0)
    return {str(each.who): each for each in audit.attacked}


@pytest.mark.attack
@pytest.mark.parametrize("others", [(40, 40), (20,) * 5, (15,) * 10])
@pytest.mark.parametrize("levels", [0.0, 0.3])
def test_a_site_with_most_records_is_shown_and_the_others_are_not(
    others: tuple[int, ...], levels: float
) -> None:
    found = audited([1900, *others], levels=levels)["coordinator"]
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value == pytest.approx(sum(others) / (1900 + sum(others)))
    by_site = found.finding.details["by_site"]
    assert [site for site in by_site if by_site[site]["leak"]] == ["s0"]
    for of in by_site.values():  # equation (1), for the true means
        assert of["error"]["means"] == pytest.approx(of["relative_error"] * of["guess"]["means"])


@pytest.mark.attack
@pytest.mark.parametrize(
    "sizes", [(60, 60, 60), (30,) * 6, (40, 30, 50, 20) * 3, (400, 30, 20, 50)]
)
def test_sites_of_like_sizes_are_not_shown(sizes: tuple[int, ...]) -> None:
    for who, found in audited(sizes, levels=0.0).items():
        assert found.verdict is Verdict.NO_LEAK_FOUND, who
        assert found.control is not None and found.control.value == 0


@pytest.mark.parametrize(
    ("sizes", "verdict"),
    [((890, 55, 55), Verdict.NO_LEAK_FOUND), ((920, 40, 40), Verdict.LEAK)],
)
def test_the_limit_is_nine_tenths_of_the_records(sizes: tuple[int, ...], verdict: Verdict) -> None:
    assert audited(sizes)["coordinator"].verdict is verdict


def test_without_protection_every_site_is_shown() -> None:
    found = audited((50, 40, 60), protocol="plain")["coordinator"]
    assert found.verdict is Verdict.LEAK and found.finding is not None and found.finding.value == 0


@pytest.mark.system
def test_it_applies_to_sums_over_records_and_to_many_rounds() -> None:
    outcome = {"outcome": "x0", "predictors": ["x1", "x2"]}
    gradient = {"name": "gradient", "family": "gaussian", "rounds": 3, **outcome}
    found = audited((40, 50, 45), method=gradient)["coordinator"]
    assert found.finding is not None and found.finding.value == pytest.approx(1 - 50 / 135)
    fedavg = {"name": "fedavg", "rounds": 2, **outcome}
    found = audited((40, 50, 45), method=fedavg)["coordinator"]
    assert found.finding is not None and 0.1 < found.finding.value < 1 - 50 / 135
    sampled = {"name": "fedlin_hm2", "rounds": 2, **outcome}
    found = audited((40, 50, 45), method=sampled)["coordinator"]
    assert found.verdict is Verdict.NOT_APPLICABLE


@pytest.mark.attack
def test_many_rounds_show_sites_of_like_sizes() -> None:
    """The sums of all rounds of ADMM determine every site's covariances."""
    method = {"name": "notears_admm", "rounds": 40}
    found = audited((40, 50, 45), method=method)["coordinator"]
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value < 0.01


def test_the_linear_model_agrees_with_the_shares_of_records(monkeypatch: Any) -> None:
    """Sums over records have 1 - n_k / n; so has (1) of `identified_share` with the sizes."""
    kept: list[tuple[View, dict[str, SiteRecords]]] = []

    def keep(view: View, sites: dict[str, SiteRecords], *, noisy: bool) -> dict[str, float]:
        kept.append((view, sites))
        return dict.fromkeys(sites, 1.0)

    monkeypatch.setattr("secagg.audits.attacks.statistics.site_accuracy._relative_errors", keep)
    audited((300, 40, 60), levels=0.0)
    view, sites = kept[0]
    found = _relative_errors(view, sites, noisy=True)  # so that the shares are not used
    assert isinstance(found, dict)
    assert found == {s: pytest.approx(1 - len(r.values) / 400, abs=0.12) for s, r in sites.items()}


def test_noise_that_is_larger_than_the_guess_hides_the_site() -> None:
    noise = {"placement": "sum", "delta": 1e-6, "record_norm": 1.0}
    found = {
        epsilon: audited((1900, 30, 30), privacy=noise | {"epsilon": epsilon})["coordinator"]
        for epsilon in (0.01, 8.0)
    }
    assert found[8.0].verdict is Verdict.LEAK
    assert found[0.01].verdict is Verdict.NO_LEAK_FOUND


@pytest.mark.attack
@pytest.mark.parametrize("seed", range(3))
def test_small_sites_beside_a_large_one_are_not_exposed_by_its_size(seed: int) -> None:
    """An attacker who did not know the sizes would have found a large error without the sum."""
    found = audited((2000, 15, 12), "last_site", seed=seed)["coalition"]
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.value == 2  # all other sites


def test_an_attacker_that_knows_the_sites_draws_shows_no_leak() -> None:
    """Sampled contributions have draws that only the site knows, which the derivatives ignore."""
    sampler = {"name": "sparse_regression", "outcome": "x2", "rounds": 12, "chains": 2}
    found = audited((40, 40, 40), method=sampler)["coordinator"]
    assert found.finding is not None and found.finding.value < 0.1 and found.finding.bound
    assert found.verdict is Verdict.INCONCLUSIVE
