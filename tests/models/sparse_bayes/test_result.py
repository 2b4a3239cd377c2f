"""What the results of sparse regression and of Markov random fields say, against their own draws
and against the records.
"""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from secagg.contracts import Result
from secagg.core.randomness import replayable_random
from secagg.errors import CapabilityError, JobError
from secagg.models.sparse_bayes.markov_random_field import expected_fdr, partial_correlation
from secagg.models.sparse_bayes.result import undecided, with_note_on_undecided
from secagg.runs.run import run
from secagg.runs.simulate import simulate as simulate_with

COLUMNS = ("y", "a", "b", "c")
HALF = {"y": 60.0, "a": 6.0, "b": 6.0, "c": 6.0}


def records(sizes: tuple[int, ...] = (80, 120, 100)) -> dict[str, pd.DataFrame]:
    """A field y - a - b, and c separate; y in units ten times as large, site-specific means."""
    rng = np.random.default_rng(11)
    found = {}
    for k, n in enumerate(sizes):
        b = rng.standard_normal(n)
        a = 0.8 * b + 0.6 * rng.standard_normal(n)
        y = 0.8 * a + 0.6 * rng.standard_normal(n)
        z = np.column_stack([10 * y, a, b, rng.standard_normal(n)]) + rng.uniform(-1, 1, 4)
        found[f"s{k}"] = pd.DataFrame(z, columns=list(COLUMNS))
    return found


def simulate(raw: dict[str, Any], data: dict[str, pd.DataFrame]) -> Result:
    """Simulate with known draws, to test their summaries."""
    return simulate_with(raw, data, random=replayable_random(5))


def job(**method: Any) -> dict[str, Any]:
    settings = {"name": "sparse_regression", "rounds": 200} | method
    if settings["name"] == "sparse_regression":
        settings |= {"outcome": "y"}
    return {
        "title": "t",
        "sites": {"max_rows": 500},
        "columns": {
            name: {"type": "continuous", "low": -half, "high": half} for name, half in HALF.items()
        },
        "method": settings,
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 1},
    }


@pytest.fixture(scope="module")
def regression() -> Result:
    return simulate(job(), records())


@pytest.fixture(scope="module")
def field() -> Result:
    return simulate(job(name="sparse_markov", fdr=0.1, rounds=400), records())


def within_deviations(data: dict[str, pd.DataFrame]) -> np.ndarray[Any, Any]:
    centred = np.concatenate([(each - each.mean()).to_numpy() for each in data.values()])
    return np.sqrt(np.mean(centred**2, axis=0))


class TestRegression:
    def test_summary_numbers_agree_with_the_draws(self, regression: Result) -> None:
        theta, inclusion = (regression.arrays[f"draws_{k}"] for k in ("theta", "inclusion"))
        assert theta.shape == inclusion.shape == (100, 4, 3)
        assert regression.arrays["draws_tau_squared"].shape == (100, 4, 3)
        assert regression.arrays["draws_eta"].shape == (100, 4)  # one for all
        for j, row in enumerate(regression.summary["coefficients"]):
            assert row["term"] == COLUMNS[1 + j]
            draws = theta[:, :, j].ravel()
            assert row["mean"] == pytest.approx(draws.mean(), rel=1e-12)
            assert row["pip"] == pytest.approx(inclusion[:, :, j].mean(), rel=1e-12)
            assert [row["low"], row["high"]] == pytest.approx(np.quantile(draws, [0.025, 0.975]))

    def test_results_in_own_units_use_the_columns_units(self, regression: Result) -> None:
        deviation = within_deviations(records())
        for row, each in zip(regression.summary["coefficients"], deviation[1:], strict=True):
            # sums of squares are sent in steps of 2^-80 of the bounds' squares
            assert row["deviation"] == pytest.approx(each, rel=1e-9)
            for name in ("mean", "sd", "low", "high", "mcse_mean"):
                factor = deviation[0] / each
                assert row["own_units"][name] == pytest.approx(factor * row[name], rel=1e-9)
        assert regression.summary["outcome_deviation"] == pytest.approx(deviation[0], rel=1e-9)
        truth = 10 * 0.8  # y of a, in the columns' units
        own = regression.summary["coefficients"][0]["own_units"]
        assert abs(own["mean"] - truth) < 4 * own["sd"]

    def test_site_scales_give_no_results_in_own_units(self) -> None:
        summary = simulate(job(scale="site", rounds=12), records()).summary
        assert summary["scale"] == "site"
        assert not any("own_units" in row for row in summary["coefficients"])

    def test_prior_sampler_and_widths_are_in_the_summary(self) -> None:
        prior = {"own_eta": True, "slab_shape": 2.0, "slab_scale": 0.5, "spike_ratio": 0.04,
                "rho_a": 1.5, "rho_b": 3.0, "noise_shape": 1.1, "noise_scale": 0.9}  # fmt: skip
        shared = {"prior": "paper", **prior}
        result = simulate(job(**shared, rounds=20, warmup=8, thin=3, chains=2, sweeps=2), records())
        assert result.summary["prior"] == prior
        assert result.summary["sampler"] == {
            "chains": 2, "rounds": 20, "warmup": 8, "sweeps": 2, "thin": 3, "kept": 4
        }  # fmt: skip
        eta = result.arrays["draws_eta"]
        assert eta.shape == (4, 2, 3)  # one for each coefficient
        found = result.summary["diagnostics"]
        assert found["slab_sd"] == pytest.approx(np.median(np.sqrt(eta)))
        assert found["spike_sd"] == pytest.approx(0.2 * found["slab_sd"])

    def test_the_calibrated_prior_is_in_the_summary(self) -> None:
        summary = simulate(job(rounds=12), records()).summary
        assert "spike_ratio" not in summary["prior"]
        assert summary["prior"]["spike_variance"] == pytest.approx(0.1 / 300)
        assert summary["prior"]["spread_scale"] == 0.05
        assert summary["diagnostics"]["spike_sd"] == pytest.approx(np.sqrt(0.1 / 300))

    def test_the_r_hat_of_one_chain_is_null(self) -> None:
        summary = simulate(job(chains=1, rounds=40), records()).summary
        json.dumps(summary, allow_nan=False)
        assert all(row["r_hat"] is None for row in summary["coefficients"])
        assert summary["diagnostics"]["largest_r_hat"] is None
        assert summary["converged"] is None and summary["notes"]

    def test_disagreeing_chains_are_reported_as_unusable(self) -> None:
        """After eight rounds the chains are still near their different starts."""
        summary = simulate(job(rounds=8, warmup=0), records((10, 12))).summary
        assert summary["diagnostics"]["largest_r_hat"] > 1.1 and not summary["converged"]


class TestField:
    def test_pairs_of_both_orders_form_the_matrix(self, field: Result) -> None:
        names, pip = field.summary["names"], field.arrays["pip"]
        assert np.all(np.diagonal(pip) == 0)
        seen = set()
        for pair in field.summary["pairs"]:
            assert [side["outcome"] for side in pair["sides"]] == pair["between"]
            for side in pair["sides"]:
                j, h = names.index(side["outcome"]), names.index(side["predictor"])
                assert pip[j, h] == side["pip"] and field.arrays["mean"][j, h] == side["mean"]
                seen.add((j, h))
        assert len(seen) == 4 * 3

    @pytest.mark.parametrize(("combine", "chosen"), [("union", max), ("intersection", min)])
    def test_pairs_are_combined_by_the_configured_rule(self, combine: str, chosen: Any) -> None:
        summary = simulate(job(name="sparse_markov", combine=combine, rounds=20), records()).summary
        for pair in summary["pairs"]:
            assert pair["pip"] == chosen(side["pip"] for side in pair["sides"])
        assert summary["combine"] == combine

    def test_edges_agree_with_the_field(self, field: Result) -> None:
        edges = {tuple(pair["between"]) for pair in field.summary["pairs"] if pair["edge"]}
        assert edges == {("y", "a"), ("a", "b")}
        assert field.summary["expected_fdr"] <= field.summary["fdr_at_most"] == 0.1
        assert np.array_equal(field.arrays["edges"], field.arrays["edges"].T)

    def test_a_certain_relation_without_an_edge_is_undecided(self) -> None:
        """A correlation of 0.35 at each of three sites of 500 records: t of about 8 at each."""
        rng, data = np.random.default_rng(3), {}
        for k in range(3):
            y = rng.standard_normal(500)
            a = 0.35 * y + np.sqrt(1 - 0.35**2) * rng.standard_normal(500)
            data[f"s{k}"] = pd.DataFrame({"y": 10 * y, "a": a})
        raw = job(name="sparse_markov", rounds=2400)
        raw["columns"] = {name: raw["columns"][name] for name in ("y", "a")}
        summary = simulate(raw, data).summary
        (pair,) = summary["pairs"]
        assert summary["converged"]
        assert pair["undecided"] and not pair["edge"]
        assert all(side["low"] > 0 for side in pair["sides"])
        *_, note = summary["notes"]
        assert note.startswith("Undecided") and "'y' - 'a'" in note and "sparse_regression" in note

    def test_edges_and_pairs_without_an_effect_are_decided(self, field: Result) -> None:
        assert not any(pair["undecided"] for pair in field.summary["pairs"])
        assert not any("Undecided" in note for note in field.summary["notes"])

    def test_partial_correlations_agree_with_the_precision_matrix(self, field: Result) -> None:
        data = records()
        centred = np.concatenate([(each - each.mean()).to_numpy() for each in data.values()])
        omega = np.linalg.inv(centred.T @ centred)
        exact = -omega / np.sqrt(np.outer(np.diagonal(omega), np.diagonal(omega)))
        for pair in field.summary["pairs"]:
            i, j = (COLUMNS.index(name) for name in pair["between"])
            if pair["edge"]:
                wide = 4 * max(side["sd"] for side in pair["sides"])
                assert pair["partial_correlation"] == pytest.approx(exact[i, j], abs=wide)

    def test_a_warning_names_the_pair(self) -> None:
        summary = simulate(job(name="sparse_markov", rounds=8, warmup=0), records((10, 12))).summary
        worst = max((side for pair in summary["pairs"] for side in pair["sides"]),
                    key=lambda side: side["r_hat"])  # fmt: skip
        names = [repr(worst[name]) for name in ("predictor", "outcome")]
        assert any(all(name in note for name in names) for note in summary["notes"])

    def test_draws_name_their_columns(self, field: Result) -> None:
        theta, others = field.arrays["draws_theta"], field.arrays["predictors"]
        assert theta.shape == (200, 4, 4, 3) and others.tolist()[1] == [0, 2, 3]
        assert field.arrays["draws_eta"].shape == (200, 4, 4)
        assert theta[..., 1, 2].mean() == pytest.approx(field.arrays["mean"][1, 3], rel=1e-12)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(0.5, 0.5, 0.5), (-2.0, -0.125, -0.5), (0.5, -0.5, None), (0.0, 0.5, None), (1.5, 1.0, 1.0)],
)
def test_partial_correlations_are_correct(one: float, other: float, expected: float | None) -> None:
    assert partial_correlation(one, other) == expected


def test_the_expected_fdr_is_correct() -> None:
    assert expected_fdr(np.array([1.0, 0.5])) == 0.25
    assert expected_fdr(np.array([])) is None


@pytest.mark.parametrize(
    ("method", "placement"),
    [("sparse_regression", "sum"), ("sparse_markov", "round"), ("sparse_directed", "site")],
)
def test_jobs_with_noise_in_sums_are_refused(method: str, placement: str) -> None:
    private = {"placement": placement, "epsilon": 8.0, "delta": 1e-6, "record_norm": 1.0}
    if placement == "round":
        private |= {"expected_records": 300}
    with pytest.raises(CapabilityError):
        run(job(name=method) | {"privacy": private, "protocol": {"name": "masked"}}, records())


def test_unsupported_ways_of_centring_are_refused() -> None:
    with pytest.raises(JobError) as caught:
        simulate(job(centre="site"), records())
    assert caught.value.where == "method.centre"


@pytest.mark.parametrize(
    ("edge", "intervals", "expected"),
    [
        (False, [(0.1, 0.3), (0.2, 0.4)], True),
        (False, [(-0.3, -0.1)], True),
        (True, [(0.1, 0.3), (0.2, 0.4)], False),
        (False, [(0.1, 0.3), (-0.1, 0.4)], False),
        (False, [(None, None)], False),
    ],
)
def test_undecided_is_no_edge_with_intervals_that_exclude_zero(
    edge: bool, intervals: list[tuple[float | None, float | None]], expected: bool
) -> None:
    assert undecided(edge, [{"low": low, "high": high} for low, high in intervals]) is expected


def test_undecided_pairs_are_named_only_if_the_draws_may_be_used() -> None:
    summary: dict[str, Any] = {"converged": True, "notes": ["first"]}
    first, note = with_note_on_undecided(summary, [f"p{i}" for i in range(7)], " Do so.")["notes"]
    assert first == "first" and note.endswith(" Do so.")
    assert "p0, p1, p2, p3, p4, and others" in note and "p5" not in note
    assert with_note_on_undecided(summary, [], "") == summary
    unusable = summary | {"converged": False}
    assert with_note_on_undecided(unusable, ["p0"], "") == unusable
