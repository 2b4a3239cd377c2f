"""Events, caps and calibration of Poisson samples and of trainings at a site."""

import math
from collections import Counter
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution

from secagg.contracts import Field, Kind, LocalTraining, Stage
from secagg.contracts.noise import Adjacency, Clip, Placement
from secagg.errors import CapabilityError, JobError, PolicyRefusal, UsageError
from secagg.models.common.clipped_sums import gradient_sensitivity
from secagg.privacy.accounting.calibration import Calibrated, calibrate
from secagg.privacy.accounting.composition import FREE, Cap, Cost, check_caps
from secagg.privacy.accounting.events import (
    Gaussian,
    SampledGaussian,
    delta_of,
    epsilon_of,
    from_data,
    rdp_epsilon,
    sampled_event,
    times,
    to_data,
    with_less_noise,
)
from secagg.privacy.accounting.guarantee import guarantee
from secagg.privacy.accounting.terms import Terms

SAMPLED = SampledGaussian(0.8, 0.02, 500)
REPLACED = SampledGaussian(0.8, 0.02, 500, nu=1.6)
COUNT = Stage(
    "count", (Field("records", (1,), 1e4, 20, Kind.COUNT),), 1, "", gradient_sensitivity(1.0)
)


def terms(**changes: Any) -> Terms:
    given = {
        "placement": Placement.ROUND, "epsilon": 2.0, "delta": 1e-6, "count_share": 0.05,
        "adjacency": Adjacency.ADD_REMOVE, "colluding": 1,
    }  # fmt: skip
    return Terms(**(given | changes))


def stage(rate: float = 0.05, rounds: int = 200, **changes: Any) -> Stage:
    spec = (Field("change", (50,), 1e4, 32, Kind.BOUNDED),)
    return Stage(
        "train", spec, rounds, "", gradient_sensitivity(1.0), sampling_rate=rate, **changes
    )


def alone(rate: float = 0.05, steps: int = 200, rounds: int = 1) -> Stage:
    training = LocalTraining(steps, 50, gradient_sensitivity(1.0), 32, rate)
    return Stage(
        "local", (Field("trained", (1,), 1.0, 0, Kind.COUNT),), rounds, "", training=training
    )


def noise_for(*stages: Stage, **changes: Any) -> Calibrated:
    return calibrate(terms(**changes), (COUNT, *stages), 3, 1000, True)


# --- events -------------------------------------------------------------------------------------


def test_epsilon_and_delta_are_inverse() -> None:
    for event in (SAMPLED, REPLACED):
        epsilon = epsilon_of([event, Gaussian(0.3)], 1e-6)
        assert delta_of([event, Gaussian(0.3)], epsilon) <= 1e-6
        assert delta_of([event, Gaussian(0.3)], epsilon * 0.999) > 1e-6


def test_equal_events_are_counted_together() -> None:
    many = [SampledGaussian(0.8, 0.02, 100) for _ in range(5)]
    assert delta_of(many, 1.0) == delta_of([SAMPLED], 1.0) == delta_of([times(many[0], 5)], 1.0)


@pytest.mark.parametrize("order", [1, -1])
def test_the_worse_of_adding_and_removing_counts(order: int) -> None:
    theirs = privacy_loss_distribution.from_gaussian_mechanism(1.25, sampling_prob=0.02)
    exact = theirs.self_compose(500).get_delta_for_epsilon(0.7)
    assert delta_of([SAMPLED], 0.7) == pytest.approx(exact, rel=3e-3)


def test_a_record_replaced_at_another_site_is_removed_here_and_added_there() -> None:
    here = SampledGaussian(0.8, 0.02, 500, nu=0.8)  # near each other, so that moving is worse
    moved = SampledGaussian(0.8, 0.02, 500, nu=0.8, elsewhere=True)
    assert delta_of([moved], 1.0) > delta_of([here], 1.0)
    twice = SampledGaussian(0.8, 0.02, 1000)
    assert delta_of([moved], 1.0) == pytest.approx(delta_of([twice], 1.0), rel=0.2)


def test_rate_one_and_no_move_are_gaussian() -> None:
    assert sampled_event(0.5, 1.0, 1) == Gaussian(0.5)
    assert sampled_event(0.5, 1.0, 1, 0.9) == Gaussian(0.9)
    several = sampled_event(0.5, 1.0, 16)
    assert isinstance(several, Gaussian) and 2.0 <= several.mu <= 2.0 + 1e-12
    assert sampled_event(0.0, 0.1, 5) == Gaussian(0.0)


def test_less_noise_scales_mu_and_not_the_rate() -> None:
    assert with_less_noise(REPLACED, 2.0) == SampledGaussian(1.6, 0.02, 500, nu=3.2)
    assert with_less_noise(Gaussian(0.5), 2.0) == Gaussian(1.0)


@pytest.mark.parametrize("event", [SAMPLED, REPLACED, SampledGaussian(1.0, 0.5, 1, 2.0, True)])
def test_data_of_an_event_restores_it(event: SampledGaussian) -> None:
    assert from_data(to_data(event)) == event


@pytest.mark.parametrize(
    "changes",
    [{"rate": 1.0}, {"rate": 0.0}, {"mu": -1.0}, {"steps": 0}, {"nu": float("nan")}, {"mu": True},
     {"steps": 1.5}, {"elsewhere": 1}, {"law": "sampled"}, {"more": 1}],
)  # fmt: skip
def test_other_data_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        from_data({**to_data(SAMPLED), **changes})


@pytest.mark.oracle
@pytest.mark.parametrize("mu", [0.9, 3.0, 8.0, 20.0])
def test_samples_after_releases_of_all_records_cost_more_than_either(mu: float) -> None:
    """Also where the Gaussian's loss is far below 0, as with several jobs in one ledger."""
    both = epsilon_of([Gaussian(mu), SAMPLED], 1e-5)
    apart = epsilon_of([Gaussian(mu)], 1e-5), epsilon_of([SAMPLED], 1e-5)
    assert max(apart) < both < sum(apart)


@pytest.mark.oracle
@pytest.mark.parametrize("mu", [5.0, 20.0, 50.0])
def test_hardly_any_noise_in_a_sample_costs_without_bound(mu: float) -> None:
    assert epsilon_of([SampledGaussian(mu, 0.5, 100)], 1e-5) == math.inf
    assert epsilon_of([SampledGaussian(50, 0.01, 1)], 1e-5) == math.inf


def test_edge_cases() -> None:
    assert epsilon_of([SAMPLED], 1.0) == 0.0
    assert epsilon_of([SAMPLED], 0.0) == math.inf
    assert delta_of([SAMPLED], math.inf) == 0.0
    assert delta_of([SampledGaussian(math.inf, 0.1)], 1.0) == 1.0
    assert delta_of([SAMPLED, Gaussian(math.inf)], 1.0) == 1.0
    assert rdp_epsilon([SAMPLED], 1e-6) == math.inf
    with pytest.raises(UsageError):
        delta_of([SAMPLED], -1.0)


# --- caps ---------------------------------------------------------------------------------------


@pytest.mark.oracle  # three seconds
def test_a_cap_allows_what_fits_and_says_what_would() -> None:
    cost = Cost(SAMPLED, REPLACED)
    epsilon = epsilon_of([SAMPLED], 1e-6)
    roomy = Cap(epsilon * 1.01, 1e-6, adjacency=Adjacency.ADD_REMOVE)
    assert roomy.holds(Counter([cost])) and not roomy.holds(Counter([cost, cost]))
    with pytest.raises(PolicyRefusal) as caught:
        check_caps("north", [roomy], lambda _: Counter([cost]), Counter([cost]), 1e-6,
                   Adjacency.ADD_REMOVE)  # fmt: skip
    assert "privacy.epsilon 0." in caught.value.advice
    said = float(caught.value.advice.split("privacy.epsilon ")[1].split()[0])
    half = times(with_less_noise(SAMPLED, 0.5), 1)
    assert 0 < said < epsilon and epsilon_of([SAMPLED, half], 1e-6) > epsilon


# --- calibration --------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_the_noise_of_samples_uses_up_epsilon_and_no_more(
    adjacency: Adjacency, rate: float
) -> None:
    found = noise_for(stage(rate), adjacency=adjacency)
    assert found.mu() is None
    assert 1.98 < found.epsilon(1e-6) <= 2.0
    whole = noise_for(stage(1.0), adjacency=adjacency)
    assert found.mechanisms["train"].noise.variance < whole.mechanisms["train"].noise.variance


@pytest.mark.oracle
def test_the_noise_is_that_of_dp_accounting() -> None:
    found = noise_for(stage(0.05, 200), count_share=0.001)
    part = found.mechanisms["train"]
    theirs = privacy_loss_distribution.from_gaussian_mechanism(1 / part.add, sampling_prob=0.05)
    assert 1.9 < theirs.self_compose(200).get_epsilon_for_delta(1e-6) <= 2.0


def test_a_training_at_the_site_costs_all_its_steps_in_one_release() -> None:
    found = noise_for(alone(0.05, 200), placement=Placement.SITE)
    part = found.mechanisms["local"]
    assert (part.rounds, part.steps, part.numbers) == (1, 200, 50)
    event = part.cost().add_remove
    assert isinstance(event, SampledGaussian) and event.steps == 200
    replaced = part.cost().replace
    assert isinstance(replaced, SampledGaussian) and replaced.elsewhere
    assert 1.98 < found.epsilon(1e-6) <= 2.0


def test_a_stage_without_records_costs_nothing_and_needs_no_noise() -> None:
    later = Stage("later", (Field("x", (3,), 1.0, 20, Kind.BOUNDED),), 500, "", reads_records=False)
    with_later = noise_for(alone(), later, placement=Placement.SITE)
    assert with_later.mechanisms.keys() == {"count", "local"}
    assert with_later.cost("later") == FREE
    assert with_later == noise_for(alone(), placement=Placement.SITE)


def test_a_person_with_several_records_is_refused() -> None:
    with pytest.raises(JobError) as caught:
        noise_for(stage(0.1), person="patient", records=2)
    assert caught.value.where == "method.sampling_rate"
    noise_for(stage(1.0), person="patient", records=2)
    noise_for(stage(0.1), person="patient", pinned=True)
    with pytest.raises(JobError) as caught:  # a column of the job's choice
        noise_for(stage(0.1), person="patient")
    assert caught.value.where == "privacy.person"


def test_a_training_alone_needs_noise_at_the_site() -> None:
    with pytest.raises(CapabilityError):
        noise_for(alone(), placement=Placement.ROUND)


@pytest.mark.parametrize("placement", [Placement.ROUND, Placement.SITE])
def test_the_facts_of_the_guarantee_say_that_records_are_sampled(placement: Placement) -> None:
    kind = stage() if placement is Placement.ROUND else alone()
    facts = guarantee(noise_for(kind, placement=placement), Clip(4.0, 16), 3, 1)
    assert facts["mu"] is None and "Poisson" in facts["accountant"]
    assert any("took part" in text for text in facts["unprotected"])
    assert facts["mechanisms"][1]["sampling_rate"] == 0.05
    events = [from_data(event) for event in facts["events"]["add_remove"]]
    assert epsilon_of(events, 1e-6) <= 2.0


def test_more_colluding_sites_leave_less_noise() -> None:
    rows = noise_for(stage()).if_more_collude(4, 2)
    epsilons = [epsilon for _, epsilon in rows]
    assert epsilons == sorted(epsilons) and epsilons[1] <= 2.0 < epsilons[-1]


@pytest.mark.neural
@pytest.mark.parametrize(
    ("noise", "rate", "steps"), [(1.1, 0.01, 10_000), (2.0, 0.1, 500), (0.8, 0.004, 2500)]
)
def test_epsilon_is_that_of_opacus(noise: float, rate: float, steps: int) -> None:
    """Its accountant of privacy random variables adds the error of .01 that it is asked for."""
    from opacus.accountants.prv import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(noise, rate, steps)]
    theirs = accountant.get_epsilon(1e-5, eps_error=0.01, delta_error=1e-8)
    ours = epsilon_of([SampledGaussian(1 / noise, rate, steps)], 1e-5)
    assert theirs - 0.02 <= ours <= theirs
