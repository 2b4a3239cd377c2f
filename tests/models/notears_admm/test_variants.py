"""Variants: what holds for settings that a job leaves out, and that a job's own settings win."""

from typing import Any

import numpy as np
import pytest
from support.methods.playing import play, rows_of

from secagg.contracts import PublicFacts, Result, Variable
from secagg.core.randomness import system_random
from secagg.errors import JobError
from secagg.models.notears_admm.coordinator import Schedule
from secagg.models.notears_admm.linear import NotearsAdmm
from secagg.models.notears_admm.linear_simulation import learn
from secagg.models.notears_admm.mlp import NotearsMlpAdmm
from secagg.models.notears_admm.mlp_simulation import MLP_RHO
from secagg.models.notears_admm.mlp_simulation import learn as learn_networks

NAMES = ("a", "b")
HALF = 8.0
PUBLIC = PublicFacts(
    tuple(Variable(name, name, 0.0, HALF) for name in NAMES), NAMES, 100, ("north", "south")
)
FOUR = PublicFacts(
    tuple(Variable(name, name, 0.0, HALF) for name in "abcd"), tuple("abcd"), 100, ("north",)
)
ROUNDS = 8


def records() -> list[np.ndarray]:
    """Two sites' records in own units, far from standardised."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=60)
    rows = np.column_stack([a, 2 * a + rng.normal(size=60)])
    return np.split(np.clip(rows, -HALF, HALF), [25])


def run(method: NotearsAdmm | NotearsMlpAdmm) -> Result:
    rows = [rows_of(part / HALF) for part in records()]
    return play(method, rows, PUBLIC, [system_random] * 2).result


def test_the_papers_variant_is_the_papers_algorithm_in_own_units() -> None:
    result = run(NotearsAdmm(variant="paper", rounds=ROUNDS))
    schedule = Schedule("subgradient", 1e-3, 1e-3, 1.75, 1.25, ROUNDS)  # appendix B
    fit = learn(records(), schedule=schedule, penalty=0.01)
    np.testing.assert_allclose(result.arrays["weights"], fit.weights, rtol=0, atol=1e-3)
    assert result.summary["settings"]["standardise"] is False
    assert "deviations" not in result.arrays


def test_the_papers_networks_start_with_random_first_layers_in_own_units() -> None:
    method = {"hidden": 2, "rounds": 3, "seed": 4}
    result = run(NotearsMlpAdmm(variant="paper", **method))  # type: ignore[arg-type]
    schedule = Schedule("subgradient", MLP_RHO, MLP_RHO, rounds=3)
    fits = [
        learn_networks(records(), schedule=schedule, hidden=2, random_inputs=random, seed=4)
        for random in (True, False)
    ]
    weights = result.arrays["weights"]
    assert np.max(np.abs(weights - fits[0].weights)) < 1e-2  # L-BFGS at the kinks of |W|
    assert np.max(np.abs(weights - fits[1].weights)) > 0.1
    settings = result.summary["settings"]
    assert settings["random_inputs"] is True and settings["standardise"] is False


def test_networks_have_their_own_settings_of_each_variant() -> None:
    """Those of the paper are its appendix B's; with noise, it is no variant of ADMM."""
    paper, fast = NotearsMlpAdmm(variant="paper"), NotearsMlpAdmm()
    assert paper.schedule == Schedule("subgradient", MLP_RHO, MLP_RHO, 1.75, 1.25, 200)
    assert fast.schedule == Schedule("proximal", MLP_RHO, 0.02, 1.5, 1.15, 200)
    assert (paper.in_force["ridge"], fast.in_force["ridge"]) == (0.0, 0.01)
    layouts = [method.networks(PUBLIC) for method in (paper, fast)]
    assert [(each.sparsity, each.zero_diagonal) for each in layouts] == [
        (0.001, False), (0.01, True),
    ]  # fmt: skip
    noisy = fast.networks_of(2, {}, noised=True)
    assert (noisy.sparsity, noisy.zero_diagonal) == (0.01, False)


@pytest.mark.parametrize("kind", [NotearsAdmm, NotearsMlpAdmm])
@pytest.mark.parametrize("variant", ["fast", "paper"])
@pytest.mark.parametrize("value", [False, True])
def test_a_jobs_own_settings_win(kind: Any, variant: str, value: bool) -> None:
    hidden = {} if kind is NotearsAdmm else {"hidden": 2, "random_inputs": value}
    given = {"standardise": value, "gamma1": 1.5, "rounds": 2, **hidden}
    settings = run(kind(variant=variant, **given)).summary["settings"]
    assert {name: settings[name] for name in given} == given


@pytest.mark.parametrize("kind", [NotearsAdmm, NotearsMlpAdmm])
def test_the_solver_can_be_chosen_apart_from_the_variant(kind: Any) -> None:
    results = [
        run(kind(rounds=2, **settings)).summary
        for settings in ({}, {"solver": "subgradient"}, {"variant": "paper", "standardise": True})
    ]
    assert [each["settings"]["standardise"] for each in results] == [True] * 3
    assert results[0]["method"] != results[1]["method"] == results[2]["method"]


def test_a_title_names_departures_from_the_paper() -> None:
    assert NotearsAdmm(variant="paper").title.endswith("variant “paper”")
    assert "standardise" not in NotearsAdmm(variant="paper", standardise=False).title
    assert "except standardise" in NotearsAdmm(variant="paper", standardise=True).title
    assert "except gamma1" in NotearsMlpAdmm(variant="paper", gamma1=1.3).title
    assert NotearsAdmm(standardise=False).title.endswith("variant “fast”")


@pytest.mark.parametrize(
    ("given", "gammas"),
    [
        ({"variant": "fast", "standardise": True}, (1.3, 1.1)),
        ({"variant": "paper"}, (1.75, 1.25)),
        ({"variant": "fast", "standardise": "common", "gamma1": 2.0}, (2.0, 1.1)),
    ],
)
def test_penalties_of_time_series_grow_more_slowly_except_in_the_paper(
    given: dict[str, Any], gammas: tuple[float, float]
) -> None:
    method = NotearsAdmm(lags=(("c", "d"),), **given)
    rows = np.hstack([records()[1], records()[1][::-1]])
    result = play(method, [rows_of(rows / HALF)], FOUR, [system_random]).result
    settings = result.summary["settings"]
    assert (settings["gamma1"], settings["gamma2"]) == gammas
    assert result.summary["diagnostics"]["rounds"] <= settings["rounds"]
    assert settings["rounds"] == (200 if given["variant"] == "paper" else 500)
    static = run(NotearsAdmm(rounds=2)).summary["settings"]
    assert (static["gamma1"], static["gamma2"]) == (1.75, 1.25)


def test_a_job_must_say_how_the_columns_of_time_series_are_scaled() -> None:
    lags = (("c", "d"),)
    with pytest.raises(JobError) as caught:
        NotearsAdmm(lags=lags).stages(FOUR)
    assert caught.value.where == "method.standardise"
    NotearsAdmm(lags=lags, variant="paper").stages(FOUR)  # own units
    for value in (True, False, "common"):
        NotearsAdmm(lags=lags, standardise=value).stages(FOUR)
