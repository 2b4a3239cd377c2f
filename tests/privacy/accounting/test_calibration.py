"""Calibration: the noise of each stage keeps the promise, and rests on what it says."""

import math
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from secagg.contracts import Field, Kind, Stage
from secagg.contracts.noise import Adjacency, Placement, Placements, Sensitivity
from secagg.errors import CapabilityError, JobError, SecaggError
from secagg.privacy.accounting.calibration import Calibrated, calibrate, epsilon_at
from secagg.privacy.accounting.discretisation import distance, rounded_distance
from secagg.privacy.accounting.events import Gaussian
from secagg.privacy.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon, gaussian_mu
from secagg.privacy.accounting.terms import Terms

TERMS = Terms(Placement.SUM, 1.0, 1e-6, Adjacency.ADD_REMOVE, 1, 0.05)
COUNT = Stage(
    "cohort", (Field("records", (1,), 1e3, 32, Kind.COUNT),), 1, "", Sensitivity(1.0, 1.0)
)


def stage(rounds: int = 1, touch: Sensitivity | None = Sensitivity(3.0, 4.0)) -> Stage:  # noqa: B008  # frozen
    return Stage("moments", (Field("m", (10,), 1e3, 32, Kind.PSD),), rounds, "", touch)


def made(terms: Terms = TERMS, rounds: int = 1, least: int = 4, hides: bool = True) -> Calibrated:
    return calibrate(terms, (COUNT, stage(rounds)), least, 100, hides)


def costs(calibrated: Calibrated, touches: dict[str, float]) -> float:
    """Return mu, worked out anew from the variances and the touches of a record."""
    return math.sqrt(
        sum(
            m.rounds * touches[name] ** 2 / (m.noise.variance * 4.0**-m.noise.fraction_bits)
            for name, m in calibrated.mechanisms.items()
        )
    )


@given(
    st.sampled_from(list(Adjacency)), st.floats(0.05, 8), st.floats(1e-10, 1e-3),
    st.floats(0.001, 0.5), st.integers(1, 4), st.integers(1, 3), st.integers(2, 50),
)  # fmt: skip
def test_the_run_costs_what_was_promised_and_hardly_less(
    adjacency: Adjacency, epsilon: float, delta: float, share: float, records: int, sites: int,
    rounds: int,
) -> None:  # fmt: skip
    terms = Terms(Placement.ROUND, epsilon, delta, adjacency, 1, share, records, sites)
    calibrated = made(terms, rounds)
    group = records * sites
    moved = {"cohort": group * 1.0, "moments": group * (3.0 if adjacency == "add_remove" else 4.0)}
    mu = costs(calibrated, moved)
    assert calibrated.mu() == pytest.approx(mu, rel=1e-12) and calibrated.mu() >= mu
    spent = gaussian_delta(mu, epsilon) + calibrated.remainder(epsilon)
    assert 0.998 * delta < spent <= delta  # a thousandth is kept for the remainder
    assert calibrated.epsilon(delta) == pytest.approx(epsilon, rel=1e-3)
    counted = calibrated.mechanisms["cohort"]
    assert counted.mu(adjacency) ** 2 == pytest.approx(share * mu**2, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_variances_are_rounded_up(epsilon: float) -> None:
    """In exact arithmetic: in float64 a variance of 10^20 steps and the next one are the same."""
    calibrated = made(replace(TERMS, epsilon=epsilon))
    mu = gaussian_mu(epsilon, TERMS.delta * (1 - 1e-3))
    for name, share, sensitivity in (("cohort", 0.05, 1), ("moments", 0.95, 3)):
        noise = calibrated.mechanisms[name].noise
        exact = (Fraction(sensitivity * 2**32) / Fraction(math.sqrt(share * mu**2))) ** 2
        assert 0 <= noise.variance - exact < 1


def test_shares_are_enough_without_colluders_whatever_the_cohort() -> None:
    noise = made(replace(TERMS, colluding=2)).mechanisms["moments"].noise
    for cohort in range(4, 40):
        assert (cohort - 2) * noise.site_variance(cohort) >= noise.variance
        assert (cohort - 2) * (noise.site_variance(cohort) - 1) < noise.variance


def test_placement_site() -> None:
    """Each site adds all of it; colluders change nothing; a record may be replaced elsewhere."""
    calibrated = made(replace(TERMS, placement=Placement.SITE), hides=False, least=1)
    noise = calibrated.mechanisms["moments"].noise
    assert noise.site_variance(4) == noise.site_variance(40) == noise.variance
    assert noise.sum_variance(9, noise.variance) == pytest.approx(9 * noise.variance * 4.0**-32)
    assert calibrated.if_more_collude(5, 0) == []
    count = calibrated.mechanisms["cohort"]  # removed here and added there, under own noise each
    assert count.replace == pytest.approx(math.sqrt(2) * count.add)


def test_a_person_at_several_sites_costs_less_where_sites_noise_alone() -> None:
    person = replace(TERMS, records=2, sites=4)
    assert person.group(Placement.ROUND) == 8
    assert person.group(Placement.SITE) == 4  # 2 root(4)


def test_if_more_collude() -> None:
    """With K = 5 shares sized for none, eps 1 becomes 1.13 if one colludes (research: 5, 1)."""
    rows = dict(made(replace(TERMS, colluding=0), least=5).if_more_collude(5, 5))
    assert rows[0] == pytest.approx(1.0, rel=1e-2)
    for colluding, factor in ((1, 5 / 4), (2, 5 / 3), (4, 5)):
        mu = gaussian_mu(1.0, 1e-6) * math.sqrt(factor)
        assert rows[colluding] == pytest.approx(gaussian_epsilon(mu, 1e-6), rel=1e-2)
    assert rows[1] == pytest.approx(1.13, abs=0.01) and rows[4] == pytest.approx(2.4, abs=0.05)
    assert len(rows) == 5


def test_beyond_what_the_protocol_withstands_a_site_has_its_own_share_only() -> None:
    calibrated = made(replace(TERMS, colluding=1), least=5)
    within, beyond = (dict(calibrated.if_more_collude(5, most)) for most in (4, 1))
    assert [within[c] == beyond[c] for c in range(5)] == [True, True, False, False, True]
    assert beyond[2] == beyond[3] == within[4] > within[3]


def test_the_curve_pays_for_discreteness() -> None:
    fine = made()
    coarse = {n: replace(m, distance=1e-9) for n, m in fine.mechanisms.items()}
    calibrated = Calibrated(fine.terms, coarse)
    for delta in (1e-5, 1e-6, 1e-7):
        epsilon = calibrated.epsilon(delta)
        spent = gaussian_delta(calibrated.mu(), epsilon) + calibrated.remainder(epsilon)
        assert spent <= delta * (1 + 1e-9) and epsilon > gaussian_epsilon(calibrated.mu(), delta)
    assert calibrated.epsilon(1e-300) == math.inf


def test_at_sites_each_release_that_a_unit_moves_is_off_for_itself() -> None:
    """A person at s sites, replaced by one at s others, moves 2 s of the releases."""
    for touch in (1, 2, 5):
        terms = replace(TERMS, placement=Placement.SITE, records=3, sites=touch)
        for name, m in made(terms).mechanisms.items():
            each = rounded_distance(math.sqrt(m.noise.variance))  # a share alone, drawn exactly
            assert m.numbers == (1 if name == "cohort" else 10)
            assert m.distance == pytest.approx(2 * touch * m.numbers * each, rel=1e-12, abs=0)
            assert m.cost().distance == m.distance


def test_in_one_sum_a_person_at_many_sites_moves_one_release() -> None:
    for name, m in made(replace(TERMS, sites=5)).mechanisms.items():
        sigma = math.sqrt(m.noise.variance)
        least = distance(sigma, 4 - TERMS.colluding)
        assert m.distance == pytest.approx(
            (1 if name == "cohort" else 10) * least, rel=1e-12, abs=0
        )


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("apart", [0.0, 1e-20, 1e-12, 1e-8])
def test_epsilon_pays_for_discreteness_at_itself(mu: float, apart: float) -> None:
    """At the least epsilon that holds all of delta is spent: bisected here, where there is one."""

    def over(epsilon: float) -> float:
        return gaussian_delta(mu, epsilon) + (1 + math.exp(epsilon)) * apart - 1e-6

    lowest = min((i / 64 for i in range(1, 64 * 45)), key=over)  # it falls, and then rises
    assert (over(lowest) > 0) == ((mu, apart) in [(4.0, 1e-12), (1.0, 1e-8), (4.0, 1e-8)])
    # gaussian_delta is good to parts in 1e10 of delta, by which epsilon is off less than delta is
    least = math.inf if over(lowest) > 0 else pytest.approx(brentq(over, 1e-6, lowest), rel=1e-8)
    assert epsilon_at([Gaussian(mu)], 1e-6, apart) == least


@pytest.mark.parametrize(
    ("changes", "settings", "kind", "where"),
    [
        ({}, {"least": 1}, JobError, "privacy.colluding"),
        ({"colluding": 4}, {}, JobError, "privacy.colluding"),
        ({}, {"hides": False}, CapabilityError, "privacy.placement"),
        ({}, {"rounds": 2}, CapabilityError, "privacy.placement"),
        ({"placement": Placement.ROUND}, {}, CapabilityError, "privacy.placement"),
        ({"placement": Placement.SITE}, {"rounds": 2}, CapabilityError, "privacy.placement"),
        ({"delta": 0.01}, {}, JobError, "privacy.delta"),
    ],
)
def test_terms_that_cannot_be_met_are_refused(
    changes: dict[str, Any], settings: dict[str, Any], kind: type[SecaggError], where: str
) -> None:
    with pytest.raises(kind) as caught:
        made(replace(TERMS, **changes), **settings)
    assert caught.value.where == where


def test_the_rounds_that_cannot_be_noised_are_named() -> None:
    """Not the count before them, which has no bound declared either."""
    count = replace(stage(touch=None), name="records")
    rounds = replace(stage(touch=None), name="consensus", max_rounds=200)
    with pytest.raises(CapabilityError) as caught:
        calibrate(TERMS, (COUNT, count, rounds), 4, 100, hides=True)
    assert "'consensus'" in caught.value.what


@pytest.mark.parametrize("placement", [Placement.SUM, Placement.SITE, Placement.ROUND])
def test_advice_names_what_the_method_has(placement: Placement) -> None:
    terms = replace(TERMS, placement=placement)
    two = Placements((Placement.SITE, Placement.ROUND), "Only so.", "Use another method.")
    for each, advised in ((two, "Use another method."), (replace(two, instead=""), "'")):
        with pytest.raises(CapabilityError) as caught:
            calibrate(terms, (COUNT, stage(2, None)), 4, 100, True, each)
        assert advised in caught.value.advice
        assert repr(placement.value) not in caught.value.advice


def test_a_method_with_noise_in_every_round_may_have_one_round() -> None:
    """It is not told that it has one release, but that the job's settings leave one."""
    terms, advice = replace(TERMS, placement=Placement.ROUND), []
    for where in (Placement.ROUND, Placement.SITE):
        with pytest.raises(CapabilityError) as caught:
            calibrate(terms, (COUNT, stage(1)), 4, 100, True, Placements((where,), ""))
        advice.append(caught.value.advice)
    assert "several rounds" in advice[0]
    assert "method.rounds" not in advice[1] and "'site'" in advice[1]


def test_a_grid_too_coarse_for_delta_is_refused() -> None:
    coarse = Stage("m", (Field("m", (10,), 1e3, 2, Kind.PSD),), 1, "", Sensitivity(3.0, 4.0))
    with pytest.raises(JobError) as caught:
        calibrate(TERMS, (COUNT, coarse), 4, 100, hides=True)
    assert caught.value.where == "privacy.delta"


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate"), [(30, 1e-5, 1), (100, 1e-5, 1), (20, 1e-9, 1), (30, 1e-5, 0.5)]
)
def test_an_epsilon_too_large_for_the_grid_is_refused_with_the_largest(
    epsilon: float, delta: float, rate: float
) -> None:
    terms = replace(TERMS, epsilon=epsilon, delta=delta, placement=Placement.ROUND)
    stages = (COUNT, replace(stage(3), sampling_rate=rate))
    with pytest.raises(JobError) as caught:
        calibrate(terms, stages, 4, 100, hides=True)
    assert caught.value.where == "privacy.epsilon"
    (largest,) = map(float, re.findall(r"At most ([0-9.]+) ", caught.value.advice))
    calibrate(replace(terms, epsilon=largest), stages, 4, 100, hides=True)
    with pytest.raises(JobError):
        calibrate(replace(terms, epsilon=largest + 0.2), stages, 4, 100, hides=True)
