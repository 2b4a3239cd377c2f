"""Summaries of draws: against laws that are known, and where nothing can be known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secagg.contracts import Result
from secagg.errors import UsageError
from secagg.models.common.posterior_summary import (
    chains_agree,
    median,
    number,
    sampling_warnings,
    summarise,
    to_arviz,
    worst_diagnostics,
)

RNG = np.random.default_rng(3)
INDEPENDENT = RNG.standard_normal((500, 4, 2))


def correlated(phi: float) -> np.ndarray[Any, Any]:
    """An autoregression of unit variance, 4 chains of 4000."""
    rng = np.random.default_rng(5)
    draws = rng.standard_normal((4000, 4, 1))
    for i in range(1, len(draws)):
        draws[i] = phi * draws[i - 1] + np.sqrt(1 - phi**2) * draws[i]
    return draws


def test_independent_draws_are_summarised_correctly() -> None:
    found = summarise(INDEPENDENT, level=0.9)
    flat = INDEPENDENT.reshape(-1, 2)
    assert np.allclose(found.mean, flat.mean(axis=0))
    assert np.allclose(found.sd, flat.std(axis=0, ddof=1))
    assert np.allclose([found.low, found.high], np.quantile(flat, [0.05, 0.95], axis=0))
    # Estimates of an effective size of 2000 from 2000 draws: some 10 per cent off
    assert np.allclose(found.ess_bulk, 2000, rtol=0.3)
    assert np.allclose(found.mcse_mean, found.sd / np.sqrt(found.ess_bulk), rtol=0.1)
    assert np.all(found.r_hat < 1.01)


def test_the_error_of_the_median_is_correct() -> None:
    draws = np.random.default_rng(6).standard_normal((500, 4, 60))
    middle, error = median(draws)
    assert np.array_equal(middle, np.median(draws, axis=(0, 1)))
    # sqrt(pi / 2) / sqrt(2000) of normal draws. It is read off the spacing of some 45 draws, so one
    # is 15 per cent off, and the mean of 60 two
    assert np.mean(error) == pytest.approx(np.sqrt(np.pi / 2 / 2000), rel=0.08)
    assert median(np.ones((100, 4, 1)))[1] == 0


def test_correlated_draws_have_a_smaller_effective_sample_size() -> None:
    """An autoregression's mean has the variance of N (1 - phi) / (1 + phi) independent draws."""
    found = summarise(correlated(0.9))
    assert found.ess_bulk[0] == pytest.approx(16000 * 0.1 / 1.9, rel=0.2)


def test_separated_chains_are_detected() -> None:
    apart = INDEPENDENT + np.arange(4)[:, None]
    found = summarise(apart)
    assert np.all(found.r_hat > 1.3)
    (disagree, few) = sampling_warnings({"means": found}, 4, ["'a'", "'b'"])
    assert f"{found.r_hat.max():.3f} for {['a', 'b'][found.r_hat.argmax()]!r}" in disagree
    assert f"{min(found.ess_bulk.min(), found.ess_tail.min()):.0f} for " in few
    assert all("method.rounds" in note for note in (disagree, few))


@pytest.mark.parametrize("chains", [2, 4])
def test_convergence_needs_a_hundred_independent_draws_per_chain(chains: int) -> None:
    for bulk, tail in ((1.01, 0.99), (0.99, 1.01), (1.01, 1.01)):
        found = replace(
            summarise(INDEPENDENT[:, :, 0]),
            ess_bulk=np.array(bulk * 100 * chains),
            ess_tail=np.array(tail * 100 * chains),
        )
        notes = sampling_warnings({"means": found}, chains, ["'a'"])
        assert len(notes) == (min(bulk, tail) < 1)


def test_constant_draws_have_error_zero() -> None:
    """As of a PIP that is 1 in every draw: known, without error."""
    found = summarise(np.ones((100, 4, 1)))
    assert np.isnan(found.r_hat[0]) and found.mcse_mean[0] == 0 and found.ess_bulk[0] == 400
    assert sampling_warnings({"PIPs": found}, 4, ["'a'"]) == []
    assert worst_diagnostics([found])[0] is None


def test_one_chain_has_no_r_hat() -> None:
    found = summarise(INDEPENDENT[:, :1])
    assert np.all(np.isnan(found.r_hat)) and np.all(found.ess_bulk > 100)
    assert len(sampling_warnings({"means": found}, 1, ["'a'", "'b'"])) == 1


def test_the_worst_of_several_quantities_is_reported() -> None:
    good, bad = summarise(INDEPENDENT), summarise(INDEPENDENT + 0.2 * np.arange(4)[:, None])
    agreement, bulk, tail, error = worst_diagnostics([bad, good])
    assert agreement == bad.r_hat.max() and bulk == bad.ess_bulk.min()
    assert tail == min(bad.ess_tail.min(), good.ess_tail.min())
    assert error == good.mcse_mean.max()  # of PIPs, which come last
    assert number(np.nan) is None and number(np.inf) is None and number(np.float64(2)) == 2.0


class TestArviz:
    @pytest.fixture(autouse=True)
    def extra(self) -> None:
        pytest.importorskip("arviz_base", reason="the extra arviz is not installed")

    def regression(self) -> Result:
        theta = RNG.standard_normal((5, 3, 2))  # draws, chains, terms
        summary = {"coefficients": [{"term": "age"}, {"term": "sex=male"}]}
        return Result(summary, {"draws_theta": theta, "draws_eta": theta[..., 0]})

    def test_draws_of_a_regression_by_name(self) -> None:
        result = self.regression()
        posterior = to_arviz(result)["posterior"]
        assert dict(posterior.sizes) == {"chain": 3, "draw": 5, "term": 2}
        male = posterior["theta"].sel(term="sex=male", chain=2, draw=4).item()
        assert male == result.arrays["draws_theta"][4, 2, 1]
        assert posterior["eta"].dims == ("chain", "draw")

    def test_draws_of_a_field_by_both_names(self) -> None:
        theta, names = RNG.standard_normal((5, 2, 3, 2)), ["x", "y", "z"]
        others = np.array([[1, 2], [0, 2], [0, 1]])
        arrays = {"draws_theta": theta, "draws_eta": theta[..., 0], "predictors": others}
        posterior = to_arviz(Result({"names": names}, arrays))["posterior"]
        found = posterior["theta"].sel(outcome="y", predictor="z", chain=1, draw=3).item()
        assert found == theta[3, 1, 1, 1]
        assert np.isnan(posterior["theta"].sel(outcome="y", predictor="y")).all()
        assert posterior["eta"].dims == ("chain", "draw", "outcome")

    def test_draws_of_a_directed_graph(self) -> None:
        theta, names = RNG.standard_normal((5, 2, 1, 6)), ["x", "y", "z"]
        targets, sources = np.array([0, 0, 1, 1, 2, 2]), np.array([1, 2, 0, 2, 0, 1])
        arrays = {"draws_theta": theta, "draws_eta": theta[..., 0], "targets": targets}
        arrays |= {"sources": sources}
        posterior = to_arviz(Result({"names": names}, arrays))["posterior"]
        found = posterior["theta"].sel(outcome="y", predictor="z", chain=1, draw=3).item()
        assert found == theta[3, 1, 0, 3]
        assert posterior["eta"].dims == ("chain", "draw")

    def test_a_result_without_draws(self) -> None:
        with pytest.raises(UsageError):
            to_arviz(Result({"terms": []}))


def test_chains_agree_up_to_an_r_hat_of_1_05_and_without_r_hat_nobody_knows() -> None:
    """The limit that pages state; of quantities without an R-hat nothing speaks against it."""
    assert chains_agree(1.05) and chains_agree(None) is None and not chains_agree(1.0501)
