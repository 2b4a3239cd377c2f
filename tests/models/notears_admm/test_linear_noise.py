"""NOTEARS-ADMM with noise once at the site: what it raises, and the score of an edge."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from secagg.contracts import NoisyMatrix, PublicFacts, RecordCount, SiteRecords, Variable
from secagg.core.randomness import seeded_random
from secagg.models.common.surrogate_records import surrogate_records
from secagg.models.graphs.noise_size import scatter_noise
from secagg.models.graphs.proximal_newton import LinearGraph
from secagg.models.notears_admm.coordinator import Schedule
from secagg.models.notears_admm.linear import NotearsAdmm
from secagg.models.notears_admm.result import consensus_fit

NAMES, SITES = ("a", "b", "c"), ("s", "t")
PUBLIC = PublicFacts(
    tuple(Variable(n, n, 0.0, h) for n, h in zip(NAMES, (5.0, 50.0, 0.5), strict=True)),
    NAMES, 10_000, SITES, site_moments=True,
)  # fmt: skip


def noisy_site(sd: float, seed: int, n: int = 1000) -> SiteRecords:
    """a -> b, c alone, with exact moments; the noise is only declared."""
    rng = np.random.default_rng(seed)
    u = 0.2 * rng.normal(size=(n, 3)) + 0.3
    u[:, 1] = 0.5 * u[:, 0] + 0.2 * u[:, 1]
    z = np.column_stack([np.ones(n), u])
    variance = np.full((4, 4), sd**2) * (1 + np.eye(4))
    variance[0, 1:] = variance[1:, 0] = 4 * sd**2
    values = surrogate_records(z.T @ z, n, np.ones(3))
    return SiteRecords(values, 0, np.zeros(3), noisy=NoisyMatrix(z.T @ z, variance))


def play(method: NotearsAdmm, rows: list[SiteRecords], public: PublicFacts = PUBLIC) -> Any:
    state: Any = method.initial_state(public)
    memories: list[Any] = [{} for _ in rows]
    while (request := method.next_request(state)) is not None:
        found = [
            method.contribute(request[0], r, request[1], m, public, seeded_random(b"s" * 32))
            for r, m in zip(rows, memories, strict=True)
        ]
        memories = [memory for _, memory in found]
        total = {name: sum(update[name] for update, _ in found) for name in found[0][0]}
        state = method.aggregate(state, total, len(rows))
    return state, method.result(state, public, RecordCount(2000.0, 1.0))


def standardised_noise(rows: list[SiteRecords]) -> np.ndarray:
    """By hand: root of the summed variances, per record and pooled deviation within sites."""
    variance = sum(scatter_noise(r.noisy) for r in rows if r.noisy is not None)
    squares = sum(((r.values - r.values.mean(axis=0)) ** 2).sum(axis=0) for r in rows)
    deviation = np.sqrt(squares / 2000)
    found: np.ndarray = np.sqrt(variance) / 2000 / np.outer(deviation, deviation)
    return found


BARE = NotearsAdmm(threshold=0.0, zero_diagonal=True)
OFF = ~np.eye(3, dtype=bool)


def test_the_penalty_and_the_threshold_are_raised_to_the_noise() -> None:
    rows = [noisy_site(5.0, seed) for seed in range(2)]
    _, result = play(BARE, rows)
    G = standardised_noise(rows)
    facts = result.summary["noise"]
    assert result.arrays["weight_error"][OFF] == pytest.approx(G[OFF], rel=1e-6)
    raised = np.sqrt(2 * np.log(3)) * G[OFF]
    assert facts["penalty"]["in_force"] == pytest.approx([raised.min(), raised.max()])
    assert facts["penalty"]["job"] == 0.01 < raised.min()
    floor = facts["threshold"]["in_force"][1]
    assert floor > 0 and any("It raised penalty from 0.01" in n for n in result.summary["notes"])
    weights = np.abs(result.arrays["weights"])
    dropped = weights[OFF & ~result.arrays["directed"]]
    assert weights[result.arrays["directed"]].min() > 0.1 and dropped.max() <= floor
    for edge in result.summary["edges"]:
        at = NAMES.index(edge["from"]), NAMES.index(edge["to"])
        assert edge["times_noise"] == pytest.approx(abs(edge["weight"]) / G[at], rel=1e-6)


def test_the_penalty_in_force_shrinks_weights_in_every_round() -> None:
    """With penalties that remove a correlation of 0.45 by themselves, no weight is left."""
    rows = [noisy_site(25.0, seed) for seed in range(2)]
    G = standardised_noise(rows)
    assert (np.sqrt(2 * np.log(3)) * G[OFF]).min() > 0.5
    _, result = play(BARE, rows)
    assert not result.arrays["weights"][OFF].any()


def test_the_jobs_own_values_are_the_smallest_possible() -> None:
    rows = [noisy_site(1e-3, seed) for seed in range(2)]
    _, result = play(NotearsAdmm(penalty=0.05, threshold=0.2), rows)
    bare = [replace(each, noisy=None) for each in rows]
    public = replace(PUBLIC, site_moments=False)
    _, plain = play(NotearsAdmm(penalty=0.05, threshold=0.2), bare, public)
    assert np.array_equal(result.arrays["weights"], plain.arrays["weights"])
    assert result.summary["noise"]["penalty"]["in_force"] == [0.05, 0.05]
    assert any("It raised no setting" in note for note in result.summary["notes"])
    assert "noise" not in plain.summary and "weight_error" not in plain.arrays


LAGGED = PublicFacts(
    tuple(Variable(n, n, 0.0, 5.0) for n in ("x", "y", "x_1", "y_1")),
    ("x", "y", "x_1", "y_1"), 10_000, SITES, site_moments=True,
)  # fmt: skip


def lagged_site(sd: float, seed: int, n: int = 1000) -> SiteRecords:
    """x -> y, and x_1 -> x and y_1 -> y; columns differ in size, so the noise differs, too."""
    rng = np.random.default_rng(seed)
    e = rng.normal(size=(n, 4)) * np.array([0.1, 0.1, 0.2, 0.25])
    x = 0.5 * e[:, 2] + e[:, 0]
    u = np.column_stack([x, 0.6 * x + 0.5 * e[:, 3] + e[:, 1], e[:, 2:]])
    z = np.column_stack([np.ones(n), u])
    variance = np.full((5, 5), sd**2) * (1 + np.eye(5))
    variance[0, 1:] = variance[1:, 0] = 4 * sd**2
    values = surrogate_records(z.T @ z, n, np.ones(4))
    return SiteRecords(values, 0, np.zeros(4), noisy=NoisyMatrix(z.T @ z, variance))


def test_effects_of_earlier_steps_have_penalties_and_thresholds_of_their_own_noise() -> None:
    """By hand: rows are causes, x, y, x_1, y_1; columns are effects, x and y.

    One pair of variables, and four of a lagged copy and a variable.
    """
    rows = [lagged_site(2.0, seed) for seed in range(2)]
    method = NotearsAdmm(
        variables=("x", "y"), lags=(("x_1", "y_1"),), standardise=True, threshold=0.0,
        lag_penalty=0.0, zero_diagonal=True, rounds=150,
    )  # fmt: skip
    state, result = play(method, rows, LAGGED)
    G = standardised_noise(rows)[:, :2]
    raised, facts = np.sqrt(2 * np.log(4)) * G, result.summary["noise"]
    assert facts["penalty"]["in_force"] == pytest.approx([raised[0, 1]] * 2)
    in_force = raised[2:].min(), raised[2:].max()
    assert facts["lag_penalty"]["in_force"] == pytest.approx(in_force)
    assert in_force[0] < 0.95 * in_force[1]
    note = f"lag_penalty from 0 to between {in_force[0]:.2g} and {in_force[1]:.2g}, and threshold"
    assert any(note in each for each in result.summary["notes"])
    z = norm.isf(0.05 / 5 / 2)
    floor = z * np.sqrt(G**2 + 1 / 2000) - raised
    pairs = np.array([[False, True], [True, False], [True, True], [True, True]])
    assert facts["threshold"]["in_force"] == pytest.approx([floor[pairs].min(), floor[pairs].max()])
    assert result.arrays["weight_error"] == pytest.approx(G[:2])
    assert result.arrays["lagged_weight_error"] == pytest.approx(G[None, 2:])
    weights = result.arrays["lagged_weights"][0]
    beyond = np.argwhere(np.abs(weights) > floor[2:])
    found = {(e["from"], e["to"]): e["times_noise"] for e in result.summary["lagged_edges"]}
    assert found == pytest.approx(
        {(f"{'xy'[i]}_1", "xy"[j]): abs(weights[i, j]) / G[2 + i, j] for i, j in beyond}
    )
    assert set(found) == {("x_1", "x"), ("y_1", "y")}
    few = method.result({**state, "records": 8.0}, LAGGED, RecordCount(8.0, 1.0))
    assert not few.summary["lagged_edges"] and few.arrays["lagged_weights"].any()
    heavy = replace(method, lag_penalty=0.9).result(state, LAGGED, RecordCount(8.0, 1.0))
    facts = heavy.summary["noise"]
    assert facts["lag_penalty"]["in_force"] == [0.9, 0.9] and facts["penalty"]["in_force"][0] < 0.5
    assert facts["threshold"]["in_force"] == pytest.approx([0, floor[0, 1]])
    at = state["W"]  # the penalty is in force in every round: large noise leaves nothing
    _, none = play(method, [lagged_site(40.0, seed) for seed in range(2)], LAGGED)
    assert at[2:].any() and not none.arrays["lagged_weights"].any()


def test_a_weight_over_the_threshold_but_within_the_noise_is_no_edge() -> None:
    rows = [noisy_site(8.0, seed) for seed in range(2)]
    state, result = play(BARE, rows)
    assert result.arrays["directed"].any()
    state = {**state, "records": 8.0}  # then chance alone is larger than any weight
    again = BARE.result(state, PUBLIC, RecordCount(8.0, 1.0))
    assert not again.arrays["directed"].any() and again.arrays["weights"].any()
    (note,) = (n for n in again.summary["notes"] if n.startswith("no edge"))
    low, high = again.summary["noise"]["threshold"]["in_force"]
    assert f"the threshold, which the noise raised from 0 to between {low:.2g} and" in note
    assert f"{high:.2g}; the largest in size is" in note
    assert note.endswith("The noise of differential privacy can cause weights of such sizes")


def test_the_largest_weight_of_an_empty_graph_is_none_of_a_variable_on_itself() -> None:
    """With the threshold in force, also where no weight is beyond the job's own."""
    W = np.array([[-0.25, 0.1, 0.0], [0.2, 0.0, 0.0], [0.0, 0.0, 0.0]])
    state = {"W": W, "total": np.zeros((3, 3)), "status": "converged"}
    state |= dict.fromkeys(("h", "residual", "rounds", "evaluations"), 0.0)

    def note(weights: np.ndarray, floor: np.ndarray | None) -> str:
        fit = consensus_fit(
            state, LinearGraph(3), Schedule(), NAMES, method="m", weights=weights, threshold=0.3,
            acyclic=False, units=None, standardised=True, settings={}, floor=floor,
        )  # fmt: skip
        (found,) = (n for n in fit.notes if n.startswith("no edge"))
        return found

    largest = "; the largest in size is 0.2 (b -> a)"
    assert note(W, None) == f"no edge: no weight exceeds the threshold 0.3{largest}"
    assert note(W, np.full((3, 3), 0.1)) == note(W, None)
    raised = "no edge: no weight exceeds the threshold, which the noise raised from 0.3 to 2.8"
    assert note(W, np.full((3, 3), 2.8)) == f"{raised}{largest}"
    own = np.diag([0.2, 0.1, 0.0])
    assert note(own, None).startswith("no edge: no slope of the loss exceeds the penalty")


@pytest.mark.parametrize(("smallest", "lags"), [(0.5, 0), (0.1, 0), (0.5, 1)])
def test_an_empty_graph_advises_a_lower_penalty_only_if_noise_did_not_set_it(
    smallest: float, lags: int
) -> None:
    """Effects of earlier steps have a penalty of their own, and none on itself is raised."""
    graph = LinearGraph(3, lags, penalties=(0.2, 0.2))
    at_least = np.full(graph.shape, smallest)
    if lags:
        at_least[:3] = np.diag(at_least[:3].diagonal())
    raised = replace(graph, at_least=at_least)
    assert not graph.raised and raised.raised == (smallest > 0.2 and not lags)
    state = {"W": np.zeros(graph.shape), "total": np.zeros(graph.shape), "status": "converged"}
    state |= dict.fromkeys(("h", "residual", "rounds", "evaluations"), 0.0)
    fit = consensus_fit(
        state, raised, Schedule(), NAMES, method="m", weights=np.zeros((3, 3)), threshold=0.3,
        acyclic=False, units=None, standardised=True, settings={},
    )  # fmt: skip
    (note,) = (n for n in fit.notes if n.startswith("no edge"))
    assert note.endswith("lower method.penalty") != raised.raised
    assert ("epsilon" in note) == raised.raised


def test_the_noise_is_summed_only_with_noise_at_the_sites() -> None:
    first, _ = NotearsAdmm().stages(PUBLIC)
    assert [field.name for field in first.spec] == ["records", "squares", "noise"]
    assert "variances of the noise" in first.sees
    first, _ = NotearsAdmm().stages(replace(PUBLIC, site_moments=False))
    assert [field.name for field in first.spec] == ["records", "squares"]
