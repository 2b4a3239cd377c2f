"""Attacks on the records of networks: gradients, chosen parameters, and released models."""

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from support.methods import networks
from support.runs.audited import job, tables

from secagg.audits.attacks.records.gradient_inversion import MOST_RECORDS, GradientInversion
from secagg.audits.attacks.records.gradient_view import slopes_of_each
from secagg.audits.attacks.records.membership import groups, likelihood_ratios
from secagg.audits.attacks.records.membership_finding import membership_finding
from secagg.audits.audit import Attacked, audit_job
from secagg.audits.contract import Truth, Verdict
from secagg.audits.membership import area_under_roc
from secagg.audits.views import View
from secagg.models.graphs.mlp import Networks, squared_loss

MLP = {"name": "notears_mlp_admm"}
MODULE = {"name": "torch_module", "outcome": "x0", "rounds": 6}
NOISE = {"placement": "round", "epsilon": 1.0, "delta": 1e-5}


def inverted(
    method: dict[str, Any], records: int, protocol: str = "plain", **more: Any
) -> Attacked:
    """Audit two sites with so many records of three columns each."""
    return inverted_at((records, records), method, protocol, **more)


def inverted_at(
    sizes: tuple[int, ...], method: dict[str, Any], protocol: str = "plain", **more: Any
) -> Attacked:
    """Audit sites with so many records each."""
    release = {"min_sites": 2, "min_records": 1, "min_level_sites": 1}
    raw = job(method, 3, protocol, release=release) | more
    raw["sites"] = {"max_rows": 64}
    drawn = tables(len(sizes), 3, rows=max(sizes)).items()
    data = {name: table[:size] for (name, table), size in zip(drawn, sizes, strict=True)}
    (found,) = audit_job(raw, data, attacks=["gradient_inversion"], set_aside=0.0).attacked
    return found


# --- gradients ------------------------------------------------------------------------------------


def test_slopes_of_each_record_add_up_to_those_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    for zero_diagonal in (True, False):
        net = Networks(3, 4, 0.1, zero_diagonal=zero_diagonal)
        theta, X = rng.normal(size=net.size), rng.normal(size=(5, 3))
        expected = -5 * squared_loss(net, X, 5)(theta)[1]
        np.testing.assert_allclose(slopes_of_each(net, X, theta).sum(axis=0), expected, rtol=1e-12)


@pytest.mark.attack
def test_local_optima_in_clear_are_solved_for_eight_records() -> None:
    growth = {"rho2": 0.1, "gamma1": 1.75, "gamma2": 1.25}
    papers = {"zero_diagonal": False, "penalty": 0.001, "ridge": 0.0, **growth}
    found = inverted(MLP | papers, 8)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert set(found.finding.details["errors"]) == {"s0", "s1"}
    assert max(found.finding.details["errors"].values()) < 1e-6 < found.finding.baseline


@pytest.mark.attack
@pytest.mark.parametrize("more", [{}, {"solver": "gradient", "rounds": 60}], ids=["admm", "pooled"])
def test_a_masked_sum_over_few_records_is_solved_and_one_over_more_is_not(
    more: dict[str, Any],
) -> None:
    method = MLP | more
    few = inverted(method, 3, "masked")
    assert few.verdict is Verdict.LEAK and few.finding is not None
    assert few.finding.details["errors"].keys() == {"all sites"} and few.finding.value < 1e-6
    many = inverted(method, 5, "masked")  # ten together: nothing is tried
    assert many.verdict is Verdict.NOT_APPLICABLE and "8 records or fewer" in many.why


@pytest.mark.neural
def test_a_small_site_in_clear_is_tried_among_large_ones() -> None:
    found = inverted_at((1, 40), MODULE)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.details["errors"].keys() == {"s0"} and found.finding.value < 1e-6
    masked = inverted_at((1, 40), MODULE, "masked")
    assert masked.verdict is Verdict.NOT_APPLICABLE and "8 records or fewer" in masked.why


def test_a_guess_of_nothing_is_no_finding() -> None:
    found = GradientInversion().score({}, cast("View", None), Truth({}))
    assert "8 records or fewer" in found.why_not


@pytest.mark.neural
@pytest.mark.attack
@pytest.mark.parametrize("records", [1, 3])
def test_gradients_of_a_module_are_solved_for_every_record(records: int) -> None:
    found = inverted(MODULE, records)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert max(found.finding.details["errors"].values()) < 1e-6 < found.finding.baseline


@pytest.mark.neural
def test_clipped_gradients_and_many_records_are_not_tried() -> None:
    noised = inverted(MODULE, 4, "masked", privacy=NOISE)
    assert noised.verdict is Verdict.NOT_APPLICABLE and "exact gradients" in noised.why
    many = inverted(MODULE, MOST_RECORDS + 4)
    assert many.verdict is Verdict.NOT_APPLICABLE and "8 records or fewer" in many.why


# --- chosen parameters ----------------------------------------------------------------------------


def robbed(method: dict[str, Any], **more: Any) -> Attacked:
    settings = {"name": "torch_module", "outcome": "y", "rounds": 30} | method
    raw = networks.job(settings, "masked") | more
    (found,) = audit_job(raw, networks.tables(3), attacks=["largest_record"]).attacked
    return found


@pytest.mark.neural
@pytest.mark.parametrize(
    "method",
    [
        {"predictors": ["x", "w", "case"]},
        {"predictors": ["x", "w"], "outcome": "case"},
    ],
    ids=["tanh", "levels"],
)  # fmt: skip
def test_a_masked_sum_at_chosen_parameters_is_one_record(method: dict[str, Any]) -> None:
    found = robbed(method)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value < 0.01 < found.finding.baseline


@pytest.mark.neural
@pytest.mark.attack
def test_noise_hides_the_record() -> None:
    release = {"min_sites": 3, "min_records": 20}
    found = robbed({"predictors": ["x", "w", "case"]}, privacy=NOISE, release=release)
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.value > 0.5 and found.control is not None
    assert found.control.value < 0.01


@pytest.mark.neural
def test_a_linear_module_has_no_hidden_unit() -> None:
    found = robbed({"predictors": ["x"], "module_settings": {"hidden": []}})
    assert found.verdict is Verdict.NOT_APPLICABLE


# --- membership -----------------------------------------------------------------------------------


def few_or_many(rows: int) -> dict[str, pd.DataFrame]:
    """Return two sites with ten columns, of which the first depends on the second."""
    rng, found = np.random.default_rng(5), {}
    for k in range(2):
        x = rng.normal(size=(rows, 10)).clip(-4, 4)
        x[:, 0] = (0.5 * x[:, 1] + rng.normal(size=rows)).clip(-4, 4)
        found[f"s{k}"] = pd.DataFrame(x, columns=[f"x{j}" for j in range(10)])
    return found


def traced(method: dict[str, Any], rows: int, **more: Any) -> Attacked:
    raw = job(method, 10, **more)
    data = few_or_many(rows)
    (found,) = audit_job(raw, data, attacks=["membership"], set_aside=0.5).attacked
    return found


OVERFITTED: dict[str, Any] = {
    "name": "torch_module", "outcome": "x0", "rounds": 80, "module_settings": {"hidden": [20]},
}  # fmt: skip


@pytest.mark.neural
@pytest.mark.attack
@pytest.mark.parametrize(
    "method",
    [
        OVERFITTED,
        {"name": "fedngm", "edges": "all", "hidden": [20], "penalty": 0.01, "rounds": 40},
    ],
    ids=["torch_module", "fedngm"],
)
def test_an_overfitted_network_shows_who_took_part(method: dict[str, Any]) -> None:
    found = traced(method, 40)
    assert found.verdict is Verdict.LEAK and found.finding is not None
    assert found.finding.value > 0.95 and found.finding.low > 0.9
    assert found.finding.details["members"] == found.finding.details["others"] == 40


@pytest.mark.neural
@pytest.mark.attack
def test_noise_hides_who_took_part() -> None:
    """Of 200 records, so that the interval tells 1/2 from .6."""
    release = {"min_sites": 2, "min_records": 5}
    method = OVERFITTED | {"sampling_rate": 0.25}  # a quarter of the gradients of records
    found = traced(method, 200, privacy=NOISE, release=release)
    assert found.verdict is Verdict.NO_LEAK_FOUND and found.finding is not None
    assert found.finding.value < 0.55 and found.finding.high < 0.6
    assert found.control is not None and found.control.value > 0.65 and found.control.low > 0.6


@pytest.mark.neural
def test_jobs_whose_shadow_runs_would_take_long_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """8 shadow runs, 4 rounds, 200 records: as many as 500, or with noise 2000, gradients each."""
    monkeypatch.setattr("secagg.audits.attacks.records.membership._MOST_WORK", 20_000)
    method, release = OVERFITTED | {"rounds": 4}, {"min_sites": 2, "min_records": 5}
    noised = traced(method, 200, privacy=NOISE, release=release)
    assert noised.verdict is Verdict.NOT_APPLICABLE and "6e+04" in noised.why
    assert traced(method, 200).finding is not None
    longer = traced(method | {"rounds": 6}, 200)
    assert longer.verdict is Verdict.NOT_APPLICABLE and "8 shadow runs" in longer.why


@pytest.mark.parametrize(("members", "persons"), [(40, 80), (40, 50), (7, 9), (40, 400), (99, 100)])
def test_every_person_is_left_out_and_about_as_many_are_left_as_took_part(
    members: int, persons: int
) -> None:
    left_out = groups(members, persons, np.random.default_rng(0))
    # A mean over shadow runs with or without a person needs two of them.
    assert 8 <= len(left_out) <= 20
    assert np.all(left_out.sum(axis=0) >= 2) and np.all((~left_out).sum(axis=0) >= 2)
    assert np.all(np.abs((~left_out).sum(axis=1) - members) <= persons / 8 + 1)


@pytest.mark.parametrize(("members", "persons"), [(40, 80), (360, 400), (40, 400)])
def test_likelihood_ratios_tell_as_much_with_few_shadows(members: int, persons: int) -> None:
    """Losses are normal, and lower by one standard deviation with the person: AUC .76."""
    rng, areas = np.random.default_rng(1), []
    for _ in range(20):
        left_out, took_part = groups(members, persons, rng), np.arange(persons) < members
        own, shadows = rng.normal(size=persons) - took_part, rng.normal(size=left_out.shape)
        scores = likelihood_ratios(own, shadows - ~left_out, left_out)
        areas.append(area_under_roc(scores[took_part], scores[~took_part]).value)
    assert 0.6 < np.mean(areas) < 0.77


def test_an_area_that_may_be_chance_is_no_leak() -> None:
    for members, bound in ((20, True), (2000, False)):
        others = np.linspace(-1, 1, members)
        found = membership_finding(others + 0.3, others)
        assert found.value > 0.6 and (found.low < 0.5) == bound == ("0.5" in found.bound)
