"""`notears_mlp_admm` with noise in every round: settings, what a record moves, samples, runs."""

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.methods.noisy_mlp import COLUMNS, job, tables
from support.methods.playing import play, rows_of
from support.methods.wrong_settings import wrong_settings

from secagg.contracts import PublicFacts, RecordCount
from secagg.core.randomness import replayable_random, system_random
from secagg.errors import CapabilityError, JobError, PeerError
from secagg.evidence.planned_facts import method_facts
from secagg.jobs.job import parse_job
from secagg.models.common.sampled_gradients import poisson_sample
from secagg.models.graphs.proximal_newton import graph_constraint
from secagg.models.notears_admm.mlp_gradients import clipped_gradient_sum
from secagg.models.notears_admm.mlp_private import GRADIENT, UNITS
from secagg.privacy.accounting.events import Gaussian, SampledGaussian, epsilon_of
from secagg.runs.run import run
from secagg.sessions.planned_job import Planned, plan_job


def planned(raw: dict[str, Any]) -> Planned:
    return plan_job(parse_job(raw), tables())


def asked(plan: Planned, stage: str, u: np.ndarray, message: dict[str, Any], seed: int = 1):
    """Return a site's contribution."""
    update, memory = plan.method.contribute(
        stage, rows_of(u), message, {}, plan.public, replayable_random(seed)
    )
    assert memory == {}  # sites keep no state
    return update


def sent(plan: Planned, rng: np.random.Generator) -> dict[str, Any]:
    """A message of a round of gradients."""
    size = plan.method.networks(plan.public).size
    return {"W": rng.normal(size=size), "centre": rng.uniform(-1, 1, 3), "scale": np.full(3, 2.0)}


# --- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "where"),
    wrong_settings(
        variant=["paper"],
        solver=["subgradient", "proximal"],
        rho2=[0.2],
        gamma1=[1.3],
        gamma2=[1.1],
        clip=[0.0, 1e-7, 1e6],
        learning_rate=[0.0, 2.0],
        sampling_rate=[0.0, 1.5, float("nan")],
        penalty=[-1.0],
        rounds=[0],
        hidden=[0],
        truth=[[["x", "z"]]],
    ),
)
def test_settings_without_a_meaning_or_out_of_range_are_refused(settings, where):
    with pytest.raises(JobError) as caught:
        planned(job(**settings))
    assert caught.value.where == where


def test_a_forbidden_edge_has_no_weight_under_noise_either() -> None:
    weights = run(job(forbidden=[["x", "y"]]), tables(), random=replayable_random(1)).result.arrays[
        "weights"
    ]
    assert weights[0, 1] == 0 and np.all(weights[[0, 1], [2, 0]] > 0)


@pytest.mark.parametrize("name", ["clip", "learning_rate", "sampling_rate"])
def test_settings_of_noise_are_refused_without_it(name):
    raw = job(**{name: 0.5})
    del raw["privacy"]
    with pytest.raises(JobError) as caught:
        planned(raw)
    assert caught.value.where == f"method.{name}"


def test_units_that_are_too_wide_need_standardising():
    raw = job(standardise=False)
    raw["columns"] = {**COLUMNS, "x": {"type": "continuous", "low": -1e9, "high": 1e9}}
    with pytest.raises(JobError) as caught:
        planned(raw)
    assert caught.value.where == "method.standardise"
    planned({**raw, "method": {**raw["method"], "standardise": True}})


@pytest.mark.parametrize("placement", ["sum", "site"])
def test_noise_elsewhere_than_in_rounds_is_refused(placement):
    with pytest.raises(CapabilityError):
        planned(job(privacy={"placement": placement}))


def test_a_persons_records_cannot_be_sampled_each_on_its_own():
    raw = job(privacy={"max_records_per_person": 2}, sampling_rate=0.5)
    raw["columns"] = {**COLUMNS, "id": {"type": "identifier"}}
    raw["sites"] = {**raw["sites"], "person": "id"}
    with pytest.raises(JobError):
        planned(raw)


# --- what one record moves --------------------------------------------------------------------


def in_steps(update: dict[str, np.ndarray], bits: int) -> list[int]:
    values = np.concatenate(list(update.values())) * 2.0**bits
    assert np.array_equal(values, np.rint(values))
    return [int(v) for v in values]


def squared_move(one: list[int], other: list[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def grid(rng: np.random.Generator) -> np.ndarray:
    """Records of three variables: corners, zeros, random ones; scaled, as clipped records are."""
    corners = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=3)))
    return np.vstack([corners, rng.uniform(-1, 1, (6, 3))])


@pytest.mark.parametrize("stage", [UNITS, GRADIENT])
def test_neighbouring_tables_differ_by_at_most_the_sensitivity(stage):
    """Add, remove and replace, in exact integers, among other records."""
    plan, rng = planned(job(clip=0.7)), np.random.default_rng(3)
    declared = {each.name: each for each in plan.method.stages(plan.public)}[stage]
    bits = declared.spec[0].fraction_bits
    assert all(field.fraction_bits == bits for field in declared.spec)
    assert declared.sensitivity is not None
    add, replaced = (
        (Fraction(t) * 2**bits) ** 2
        for t in (declared.sensitivity.add, declared.sensitivity.replace)
    )
    others, most_added, most_replaced = rng.uniform(-1, 1, (5, 3)), 0, 0
    for message in [{}] if stage == UNITS else [sent(plan, rng) for _ in range(3)]:
        without = in_steps(asked(plan, stage, others, message), bits)
        tables_with = [
            in_steps(asked(plan, stage, np.vstack([others, u]), message), bits) for u in grid(rng)
        ]
        most_added = max(most_added, *(squared_move(each, without) for each in tables_with))
        pairs = itertools.combinations(tables_with, 2)
        most_replaced = max(most_replaced, *(squared_move(a, b) for a, b in pairs))
    assert most_added <= add
    assert max(most_replaced, most_added) <= replaced
    assert most_added > 0.99 * add
    # Two complete records of a round have one size; the bound allows for an incomplete one.
    assert most_replaced > (0.99 if stage == UNITS else 0.5) * replaced


def test_the_clip_holds_in_units_that_a_coordinator_makes_up():
    """The bound does not depend on the message: parameters and units at their limits."""
    plan, rng = planned(job(clip=0.7)), np.random.default_rng(4)
    (stage,) = (s for s in plan.method.stages(plan.public) if s.name == GRADIENT)
    bits = stage.spec[0].fraction_bits
    assert stage.sensitivity is not None
    limit = (Fraction(stage.sensitivity.add) * 2**bits) ** 2
    for size in (0.0, 1e-9, 1.0, 1e6):
        for scale in (1e-12, 1.0, 1000.0):
            message = sent(plan, rng) | {"scale": np.full(3, scale)}
            message["W"] = np.clip(message["W"] * size, -1e6, 1e6)
            for u in grid(rng):
                alone = in_steps(asked(plan, GRADIENT, u[None], message), bits)
                assert sum(v * v for v in alone) <= limit


@pytest.mark.parametrize(
    "wrong",
    [
        {"W": None}, {"W": np.zeros(3)}, {"W": np.nan}, {"W": 2e6},
        {"centre": np.full(3, 1.5)}, {"centre": np.full(3, np.nan)}, {"centre": np.zeros(2)},
        {"scale": np.full(3, 1e9)}, {"scale": np.full(3, np.inf)}, {"scale": np.ones(3, dtype=int)},
    ],
)  # fmt: skip
def test_a_message_out_of_range_gets_no_answer(wrong):
    plan = planned(job())
    message = sent(plan, np.random.default_rng(0))
    for name, value in wrong.items():
        message[name] = np.full_like(message["W"], value) if isinstance(value, float) else value
    with pytest.raises(PeerError):
        asked(plan, GRADIENT, np.zeros((2, 3)), message)


def test_own_units_are_the_jobs_and_not_the_coordinators():
    plan = planned(job(standardise=False))
    stage, message = plan.method.next_request(plan.method.initial_state(plan.public)) or ("", {})
    assert stage == GRADIENT
    np.testing.assert_array_equal(message["scale"], [v.half_range for v in plan.public.variables])
    asked(plan, stage, np.zeros((2, 3)), message)
    for wrong in ({"scale": 2 * message["scale"]}, {"centre": np.full(3, 0.1)}):
        with pytest.raises(PeerError):
            asked(plan, stage, np.zeros((2, 3)), message | wrong)


# --- samples and accounting -------------------------------------------------------------------


def test_each_round_sums_over_a_fresh_poisson_sample():
    """The sums are those of the records that the site's random numbers name, and of no others."""
    plan, rng = planned(job(sampling_rate=0.3)), np.random.default_rng(5)
    u, message = rng.uniform(-1, 1, (400, 3)), sent(plan, rng)
    random, again = replayable_random(7), replayable_random(7)
    sizes = []
    for _ in range(30):
        update, _ = plan.method.contribute(GRADIENT, rows_of(u), message, {}, plan.public, random)
        chosen = u[poisson_sample(400, 0.3, again)]
        X = (chosen - message["centre"]) * message["scale"]
        bits = plan.plans.stages[GRADIENT].spec[0].fraction_bits
        networks = plan.method.networks(plan.public)
        expected = clipped_gradient_sum(networks, X, message["W"], 2.0, bits)
        assert update["change"].tobytes() == expected.tobytes()
        sizes.append(round(float(update["size"][0]) * 2))  # a quarter of the clip for each
        assert sizes[-1] == len(chosen)
    # Binomial: mean 120, deviation 9.2; the variance of 30 is within a factor 2.5 of its mean.
    assert abs(np.mean(sizes) - 120) < 5 * 9.2 / np.sqrt(30)
    assert 84 / 2.5 < np.var(sizes, ddof=1) < 84 * 2.5
    update, _ = plan.method.contribute(UNITS, rows_of(u), {}, {}, plan.public, random)
    chosen = u[poisson_sample(400, 0.3, again)]
    assert update["size"][0] == len(chosen)
    np.testing.assert_allclose(update["sums"], chosen.sum(axis=0), atol=len(chosen) * 2.0**-16)


@pytest.mark.parametrize(
    ("standardise", "steps", "adjacency"), [(True, 5, "add_remove"), (False, 4, "replace")]
)
def test_the_ledger_is_charged_for_every_sampled_sum(standardise, steps, adjacency):
    raw = job(privacy={"adjacency": adjacency}, sampling_rate=0.25, standardise=standardise)
    private = planned(raw).private
    assert private is not None and private.sampled
    sampled = [e for e in private.events() if isinstance(e, SampledGaussian)]
    assert sum(e.steps for e in sampled) == steps
    assert {e.rate for e in sampled} == {0.25}
    assert len(private.events()) - len(sampled) == 1  # the count of records
    assert 0.9 * 8 < private.epsilon(1e-6) <= 8
    # Without samples the same noise would protect less.
    whole = [e if isinstance(e, Gaussian) else replace(e, rate=1 - 1e-9) for e in private.events()]
    assert epsilon_of(whole, 1e-6) > 1.5 * 8


def test_all_declared_rounds_are_run_and_none_ends_early():
    plan = planned(job())
    stages = plan.method.stages(plan.public)
    assert [(s.name, s.max_rounds, s.ends_early) for s in stages] == [
        (UNITS, 1, False),
        (GRADIENT, 4, False),
    ]
    asked_for, rng = [], np.random.default_rng(0)
    state = plan.method.initial_state(plan.public)
    while (request := plan.method.next_request(state)) is not None:
        asked_for.append(request[0])
        update = asked(plan, request[0], rng.uniform(-1, 1, (0, 3)), request[1])
        state = plan.method.aggregate(state, update, 3)
    assert asked_for == [UNITS, *[GRADIENT] * 4]
    result = plan.method.result(state, plan.public, RecordCount(0.0, 0.0))
    assert result.summary["status"] == "finished" and "converged" not in result.summary


# --- results ----------------------------------------------------------------------------------


def without_noise(plan: Planned) -> PublicFacts:
    """The facts of a run under noise whose sums are exact, for `play`."""
    return replace(plan.public, noise={})


def scaled(plan: Planned, data: dict[str, pd.DataFrame]) -> list[np.ndarray]:
    middle = np.array([v.midpoint for v in plan.public.variables])
    half = np.array([v.half_range for v in plan.public.variables])
    return [(table.to_numpy() - middle) / half for table in data.values()]


def test_rounds_find_an_effect_that_is_not_linear_and_the_units():
    """Its direction is often wrong, also without noise, so it is not tested here."""
    raw = job(rounds=80, hidden=3)
    plan, data = plan_job(parse_job(raw), tables(200)), tables(200)
    rows = [rows_of(u) for u in scaled(plan, data)]
    played = play(plan.method, rows, without_noise(plan), [system_random] * 3)
    edges = {frozenset((e["from"], e["to"])) for e in played.result.summary["edges"]}
    assert edges == {frozenset("xy")}
    pooled = pd.concat(data.values()).to_numpy()
    np.testing.assert_allclose(played.result.arrays["means"], pooled.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(played.result.arrays["deviations"], pooled.std(axis=0), rtol=1e-3)
    notes = " ".join(played.result.summary["notes"])
    assert "not ADMM" in notes and "norm 2" in notes and "last 20 rounds" in notes


def test_the_first_step_is_adams():
    """Without penalty each entry moves by the learning rate against its gradient."""
    raw = job(penalty=0.0, rho1=1e-12, learning_rate=0.01, standardise=False, rounds=10)
    plan = planned(raw)
    method, state = plan.method, plan.method.initial_state(plan.public)
    start = state["W"]
    gradient = np.random.default_rng(3).normal(size=start.shape)
    total = {"change": gradient * 90, "size": np.array([90 / 2])}
    after = method.aggregate(state, total, 3)
    # W moves towards ties broken by 1/1000 of it only in the start of the search, not in its end
    np.testing.assert_allclose(after["W"] - start, -0.01 * np.sign(gradient), atol=2e-6)
    np.testing.assert_allclose(after["mean"], 0.1 * gradient)
    last = after
    for _ in range(9):
        last = method.aggregate(last, total, 3)
    np.testing.assert_allclose(last["W"] - start, -0.1 * np.sign(gradient), atol=2e-5)
    mean_of_last = method.result(last, plan.public, RecordCount(9.0, 0.0)).arrays["parameters"]
    np.testing.assert_allclose(mean_of_last - start, -0.095 * np.sign(gradient), atol=2e-5)


def test_multipliers_grow_as_in_the_augmented_lagrangian():
    """alpha += rho h(W), rho grows to its last value evenly in the logarithm; v_t is Adam's."""
    plan = planned(job(rho1=0.01, standardise=False, rounds=10))
    method, state = plan.method, plan.method.initial_state(plan.public)
    networks = method.networks_of(len(state["centre"]), state, noised=True)
    state |= {"W": np.random.default_rng(4).normal(size=state["W"].shape)}
    alpha, square, before = 0.0, 0.0, np.zeros_like(state["W"])
    gradients = np.random.default_rng(5).normal(size=(3, *before.shape))
    for t, gradient in enumerate(gradients, start=1):
        rho = 0.01 * 1e5 ** ((t - 1) / 10)
        assert state["rho"] == pytest.approx(rho, rel=1e-12)
        total = {"change": gradient * 90 * t, "size": np.array([90 / 2])}
        state = method.aggregate(state, total, 3)
        alpha += rho * graph_constraint(networks, state["W"])[0]
        assert alpha > 0 and state["alpha"] == pytest.approx(alpha, rel=1e-9)
        sent = (state["mean"] - 0.9 * before) / 0.1
        before, square = state["mean"], 0.99 * square + 0.01 * sent**2
        np.testing.assert_allclose(state["square"], square, rtol=1e-9)


def test_variances_that_the_noise_hides_are_raised_and_named():
    plan = planned(job(epsilon=0.5))
    state = plan.method.initial_state(plan.public)
    error = state["unit_error"]
    noise = plan.public.noise[UNITS]
    assert error == pytest.approx(np.sqrt(noise.variance * 3 / 2) * 2.0**-noise.fraction_bits, 1e-6)
    size = 100 * error
    total = {
        "sums": np.array([0.0, 0.0, 5 * size]),  # beyond what records can have: noise
        "squares": size * np.array([0.25, 0.015, 0.5]),
        "size": np.array([size]),
    }
    after = plan.method.aggregate(state, total, 3)
    np.testing.assert_allclose(after["scale"], [2, 1 / np.sqrt(0.02), 1 / np.sqrt(0.02)])
    np.testing.assert_array_equal(after["centre"], [0, 0, 1])
    assert after["hidden_variances"] == [1, 2]
    after |= {"status": "finished", "rounds": 4}
    summary = plan.method.result(after, plan.public, RecordCount(9.0, 0.0)).summary
    assert "'y', 'case'" in summary["caution"] and summary["notes"][0] == summary["caution"]
    after["hidden_variances"] = []
    assert "caution" not in plan.method.result(after, plan.public, RecordCount(9, 0.0)).summary


def test_it_is_called_admm_only_without_noise():
    """Terminal and report show these titles."""
    noised, raw = planned(job()), job(sampling_rate=1.0)
    exact = planned({key: raw[key] for key in raw if key != "privacy"})
    for plan, admm in ((noised, False), (exact, True)):
        facts = method_facts(plan)
        titles = {facts["title"], *(table["title"] for table in facts["tables"])}
        assert len(titles) == 1 and ("NOTEARS-ADMM" in titles.pop()) is admm


def test_steps_that_are_not_finite_are_left_out_and_counted():
    plan = planned(job(standardise=False))
    state = plan.method.initial_state(plan.public)
    far = state | {"W": np.full_like(state["W"], 1e6)}  # h overflows
    total = {"change": np.ones_like(state["W"]), "size": np.array([50.0])}
    after = plan.method.aggregate(far, total, 3)
    np.testing.assert_array_equal(after["W"], far["W"])
    assert after["failed_steps"] == 1 and after["rounds"] == 1 and after["status"] == GRADIENT


def test_the_noise_reaches_every_number_of_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each site draws its share for all numbers of a round: units, then gradient and size."""
    drawn = list[int]()

    def sampled(variance: int, weights: tuple[int, ...], numbers: int, random: Any) -> np.ndarray:
        drawn.append(numbers)
        return np.full(numbers, round(8 * variance**0.5) if numbers > 8 else 0)

    monkeypatch.setattr("secagg.sessions.site_steps.sample_weighted", sampled)
    result = run(job(rounds=3, epsilon=0.5), tables()).result
    size = len(result.arrays["parameters"])
    assert drawn.count(size + 1) == 3 * 3 and drawn.count(3 + 3 + 1) == 3
    start = plan_job(parse_job(job(rounds=3)), tables())
    before = start.method.initial_state(start.public)["W"]
    assert np.all(result.arrays["parameters"][-3:] < before[-3:] - 0.05)
