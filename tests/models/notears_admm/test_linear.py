"""The method's functions, called directly: what a site answers and what it refuses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.methods.playing import play, rows_of

from secagg.contracts import Kind, PublicFacts, Result, SiteRecords, State, Variable
from secagg.core.randomness import system_random
from secagg.errors import DataError, JobError, PeerError, UsageError
from secagg.experiments.simulated_graphs import edge_weights, erdos_renyi_dag, linear_gaussian_rows
from secagg.models.notears_admm.coordinator import Schedule
from secagg.models.notears_admm.linear import CONSENSUS, NotearsAdmm
from secagg.models.notears_admm.linear_simulation import learn

HALF = np.array([20.0, 30.0, 25.0, 40.0])
NAMES = ("a", "b", "c", "d")
MIDDLE = 5.0


PUBLIC = PublicFacts(
    tuple(Variable(name, name, MIDDLE, half) for name, half in zip(NAMES, HALF, strict=True)),
    NAMES,
    1000,
    ("north", "south", "west"),
)


def simulated(seed: int, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """Records of the sites in their own units, with different means at each site."""
    rng = np.random.default_rng(seed)
    rows = linear_gaussian_rows(edge_weights(erdos_renyi_dag(4, 4, rng), rng), sum(sizes), rng)
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    return [part + MIDDLE + rng.normal(size=4) for part in parts]


def carried(part: np.ndarray) -> SiteRecords:
    return rows_of((part - MIDDLE) / HALF)


def run(method: NotearsAdmm, parts: list[np.ndarray]) -> tuple[Result, list[State]]:
    """Return the result, and the coordinator's state after each round."""
    states: list[State] = []
    played = play(
        method, [*map(carried, parts)], PUBLIC, [system_random] * len(parts),
        after=lambda state, _: states.append(state),
    )  # fmt: skip
    return played.result, states


@pytest.mark.parametrize(
    ("variant", "sizes"),
    [("paper", (20, 30, 50)), ("paper", (1, 40)), ("fast", (20, 30, 50)), ("fast", (0, 1, 40)),
     ("fast", (1, 1, 3)), ("fast", (3, 3, 3, 3))],
)  # fmt: skip
def test_a_run_equals_the_simulation_without_parties(variant, sizes: tuple[int, ...]) -> None:
    """Sites without a record, with one, with fewer than variables, and of unequal size."""
    parts = simulated(sum(sizes), sizes)
    rounds = 30 if variant == "paper" else 200
    method = NotearsAdmm(variant=variant, rounds=rounds, standardise=False)
    result, _ = run(method, parts)
    fit = learn(parts, schedule=Schedule(method.schedule.solver, rounds=rounds), names=NAMES)
    # The same numbers but for rounding of V_k to 2^-41 in units of up to half^2. What (5) makes of
    # that is bounded by where its solvers stop: changes of W of 1e-6; L-BFGS, whose every bit
    # counts at a kink, stops at slopes of up to 2 lambda, and the curvature is K rho2.
    near = 1e-5 if variant == "fast" else 0.02 / (len(parts) * 1e-3 * 1.25**29)
    assert result.summary["diagnostics"]["rounds"] == fit.diagnostics["rounds"]
    np.testing.assert_allclose(result.arrays["weights"], fit.weights, rtol=0, atol=near)


def test_the_last_sum_gives_the_pooled_covariance() -> None:
    """As docstring and disclosure say: S = sum V_k (I - W)^-1, from public numbers alone."""
    parts = simulated(1, (20, 30, 50))
    result, states = run(NotearsAdmm(standardise=False), parts)
    inverse = np.linalg.inv(np.eye(4) - result.arrays["weights"])
    within = sum((X - X.mean(axis=0)).T @ (X - X.mean(axis=0)) for X in parts) / 100
    # V = sum S_k (I - B_k), each B_k within 1e-7 of W.
    near = 1e-7 * 4 * np.linalg.norm(within, 2) * np.linalg.norm(inverse, 2)
    np.testing.assert_allclose(states[-1]["total"] @ inverse, within, rtol=0, atol=near)
    # And not before: in the first round the sum is that of rho2 S_k (S_k + rho2)^-1.
    assert np.abs(states[1]["total"] - within).max() > 0.1


def test_sites_send_only_declared_numbers() -> None:
    count, answers = NotearsAdmm(lags=(("c", "d"),), rounds=9, standardise=True).stages(PUBLIC)
    fields = [(f.name, f.shape, f.kind) for f in (*count.spec, *answers.spec)]
    assert fields == [
        ("records", (1,), Kind.COUNT),
        ("squares", (4,), Kind.WEIGHT),
        ("responses", (4, 2), Kind.BOUNDED),
    ]
    assert (count.max_rounds, answers.max_rounds) == (1, 9)
    assert count.sensitivity is answers.sensitivity is None


def test_columns_constant_at_every_site_have_no_edges() -> None:
    parts = simulated(2, (30, 40))
    parts[0][:, 1] = 3.0
    weights = run(NotearsAdmm(standardise=False), parts)[0].arrays["weights"]
    np.testing.assert_allclose(weights, learn(parts).weights, rtol=0, atol=1e-5)  # as above
    parts[1][:, 1] = 4.0  # constant at each site, but not over both
    directed = run(NotearsAdmm(standardise=False), parts)[0].arrays["directed"]
    assert not directed[1].any() and not directed[:, 1].any()
    with pytest.raises(UsageError, match="'b' does not vary"):
        run(NotearsAdmm(), parts)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 1)])
def test_too_few_records_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(UsageError):
        run(NotearsAdmm(), simulated(0, sizes))


@pytest.mark.parametrize("unit", [0.05, 1.0, 20.0])
def test_a_common_scale_does_not_depend_on_the_unit_of_all_columns(unit: float) -> None:
    parts = simulated(1, (40, 30, 50))
    variables = tuple(
        replace(v, midpoint=v.midpoint * unit, half_range=v.half_range * unit)
        for v in PUBLIC.variables
    )
    result = play(
        NotearsAdmm(standardise="common"), [*map(carried, parts)],
        replace(PUBLIC, variables=variables), [system_random] * len(parts),
    ).result  # fmt: skip
    within = sum(np.sum((X - X.mean(axis=0)) ** 2, axis=0) for X in parts) / 120
    smallest = np.sqrt(np.min(within))
    fit = learn([X / smallest for X in parts], names=NAMES)
    np.testing.assert_allclose(result.arrays["weights"], fit.weights, rtol=0, atol=1e-5)
    assert result.summary["settings"]["standardise"] == "common"
    assert "deviations" not in result.arrays  # weights are in the columns' own units


def test_one_scale_for_columns_of_very_different_size_is_refused() -> None:
    parts = simulated(1, (40, 30, 50))
    for part in parts:
        part[:, 2] = MIDDLE + 0.01 * (part[:, 2] - MIDDLE)
    with pytest.raises(UsageError) as caught:
        run(NotearsAdmm(standardise="common"), parts)
    assert caught.value.where == "analysis"


# --- messages that make no sense -----------------------------------------------------------------


def request(**changed: Any) -> dict[str, Any]:
    return {"W": np.zeros((4, 4)), "records": 60, "scale": HALF.copy()} | changed


SITE = carried(simulated(3, (20,))[0])


def respond(message: dict[str, Any], memory: dict[str, Any] | None = None, **settings: Any):
    method = NotearsAdmm(**settings)
    return method.contribute(CONSENSUS, SITE, message, memory or {}, PUBLIC, system_random)


@pytest.mark.parametrize(
    "changed",
    [
        {"W": np.where(np.eye(4) > 0, np.nan, 0.0)},
        {"scale": -HALF},
        *[{"records": n} for n in (1, 19, 60.0, True, 10**400)],
        # Finite, but a product of a few of them would not be. pytest forbids warnings.
        *[{"scale": np.full(4, size)} for size in (1e-300, 1e-60, 1e60, 1e307)],
        {"W": np.full((4, 4), 1e60)},
    ],
)
def test_messages_out_of_range_are_refused(changed: dict[str, Any]) -> None:
    respond(request(records=20))  # all records are here
    with pytest.raises(PeerError):
        respond(request(**changed))


def test_a_total_of_one_record_is_refused() -> None:
    empty, message = carried(np.zeros((0, 4))), request(records=1)
    with pytest.raises(PeerError):
        NotearsAdmm().contribute(CONSENSUS, empty, message, {}, PUBLIC, system_random)


@pytest.mark.parametrize("changed", [{"records": 61}, {"scale": HALF * 1.01}])
def test_changed_facts_between_rounds_are_refused(changed: dict[str, Any]) -> None:
    _, memory = respond(request())
    respond(request(), memory)
    with pytest.raises(PeerError):
        respond(request(**changed), memory)


def test_another_scale_in_own_units_is_refused() -> None:
    """Another scale acts as another rho2, which a coordinator must not choose."""
    respond(request(), standardise=False)
    with pytest.raises(PeerError) as caught:
        respond(request(scale=100 * HALF), standardise=False)
    assert caught.value.where == CONSENSUS


@pytest.mark.parametrize("W", [1e9, 1e49])
def test_an_answer_beyond_its_bound_is_not_sent(W: float) -> None:
    with pytest.raises(DataError) as caught:
        respond(request(W=np.full((4, 4), W)))
    assert caught.value.where == "this site"


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("penalty", -1.0), ("lag_penalty", np.inf), ("threshold", np.nan), ("rho2", 1e17),
     ("gamma2", np.nan), ("rounds", 0)]
    + [("variables", names) for names in (("a", "a"), ("a", "q"), ("a",), ())]
    + [("lags", lags) for lags in ((("a",),), (("q",) * 2,), ((),), (("b", "c"), ("d",)))]
    + [("truth", truth) for truth in ((("a", "q"),), (("a", "b"), ("b", "a")))],
)  # fmt: skip
def test_settings_out_of_range_are_refused(name: str, value: Any) -> None:
    NotearsAdmm().stages(PUBLIC)
    with pytest.raises(JobError) as caught:
        NotearsAdmm(**{name: value}).stages(PUBLIC)
    assert caught.value.where == f"method.{name}"


def test_a_column_used_twice_is_refused() -> None:
    with pytest.raises(JobError) as caught:
        NotearsAdmm(variables=("a", "b"), lags=(("b", "c"),)).stages(PUBLIC)
    assert caught.value.where == "method.lags"
    alone = replace(PUBLIC, variables=PUBLIC.variables[:1])
    with pytest.raises(JobError) as caught:
        NotearsAdmm().stages(alone)
    assert caught.value.where == "method.variables"
