"""The coordinator's round: what it computes from the sum, when it stops, what a failure keeps."""

from typing import Any

import numpy as np
import pytest

from secagg.errors import JobError
from secagg.models.graphs.acyclicity import break_ties
from secagg.models.graphs.proximal_newton import LinearGraph, Multipliers, Step
from secagg.models.notears_admm import coordinator
from secagg.models.notears_admm.coordinator import Schedule, advance, begin, failure
from secagg.models.notears_admm.w_step import Pull

GRAPH = LinearGraph(3)
NEXT = np.array([[0, 0.4, 0], [0, 0, -0.3], [0, 0, 0]])


def scripted(monkeypatch, *steps: Step) -> list[dict[str, Any]]:
    """Let both solvers of (5) return these steps in turn; return their arguments."""
    requests: list[dict[str, Any]] = []
    coming = iter(steps)

    def solver(name: str):
        def solve(graph, start, pull: Pull, multipliers: Multipliers) -> Step:
            requests.append({"by": name, "start": start, "pull": pull, "multipliers": multipliers})
            return next(coming)

        return solve

    monkeypatch.setattr(coordinator, "subgradient_step", solver("subgradient"))
    monkeypatch.setattr(coordinator, "proximal_step", solver("proximal"))
    return requests


def sites(seed: int, W: np.ndarray, rho2: float) -> tuple[np.ndarray, ...]:
    """Any B_k and beta_k of four sites, and the sum of V_k by its definition."""
    rng = np.random.default_rng(seed)
    B, beta = rng.normal(size=(4, 3, 3)), rng.normal(size=(4, 3, 3))
    return B, beta, np.sum(beta + rho2 * (B - W), axis=0)


def test_a_ridge_is_part_of_the_coordinators_problem(monkeypatch) -> None:
    """(5) with 1/2 sum r W^2 more, up to a constant; the duals are those of (7) without it."""
    schedule, rng = Schedule(rho2=0.5), np.random.default_rng(2)
    before = begin(schedule, rng.normal(size=(3, 3)))
    ridge, total = rng.uniform(0, 2, (3, 3)), rng.normal(size=(3, 3))
    step = Step(NEXT, 0.25, True, 7)
    requests = scripted(monkeypatch, step, step)
    plain = advance(before, total, 4, GRAPH, schedule)
    shrunk = advance(before, total, 4, GRAPH, schedule, ridge)
    np.testing.assert_array_equal(plain["dual"], shrunk["dual"])
    without, with_ridge = (request["pull"] for request in requests)
    A, B = rng.normal(size=(2, 3, 3))
    expected = without.value(A)[0] - without.value(B)[0] + 0.5 * np.sum(ridge * (A**2 - B**2))
    assert with_ridge.value(A)[0] - with_ridge.value(B)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("solver", ["subgradient", "proximal"])
def test_a_round_agrees_with_the_papers_equations(monkeypatch, solver) -> None:
    """(5)'s target, (6), (7) summed, (8), (9) and the mean residual, from B_k and beta_k."""
    schedule = Schedule(solver, rho1=0.2, rho2=0.5, gamma1=1.5, gamma2=1.1)
    before = begin(schedule, np.random.default_rng(0).normal(size=(3, 3)))
    before |= {"alpha": 0.7, "h": 0.4, "rounds": 5}
    B, beta, total = sites(1, before["W"], 0.5)
    before["dual"] = beta.sum(axis=0)
    requests = scripted(monkeypatch, Step(NEXT, 0.25, True, 7))
    copy = {name: np.copy(value) for name, value in before.items()}
    after = advance(before, total, 4, GRAPH, schedule)
    for name, value in copy.items():
        np.testing.assert_array_equal(before[name], value)

    (request,) = requests
    assert request["by"] == solver
    assert request["multipliers"] == Multipliers(0.7, 0.2)
    # Sums of four numbers near 1, in another order: some 1e-15.
    assert request["pull"].strength == 4 * 0.5
    mean = np.mean(B + beta / 0.5, axis=0)
    np.testing.assert_allclose(request["pull"].target, mean, rtol=0, atol=1e-14)
    moved = before["W"] if solver == "subgradient" else break_ties(before["W"])
    np.testing.assert_array_equal(request["start"], moved)

    np.testing.assert_array_equal(after["W"], NEXT)
    np.testing.assert_array_equal(after["total"], total)
    assert after["alpha"] == pytest.approx(0.7 + 0.2 * 0.25, rel=1e-15)  # (6)
    new_beta = beta + 0.5 * (B - NEXT)  # (7)
    np.testing.assert_allclose(after["dual"], new_beta.sum(axis=0), rtol=0, atol=1e-14)
    assert after["rho1"] == pytest.approx(1.5 * 0.2, rel=1e-15)  # (8)
    assert after["rho2"] == pytest.approx(1.1 * 0.5, rel=1e-15)  # (9)
    residual = np.abs(np.mean(B, axis=0) - NEXT).max()
    assert after["residual"] == pytest.approx(residual, rel=1e-13)
    assert (after["rounds"], after["evaluations"], after["h"]) == (6, 7, 0.25)
    assert after["status"] == "running"


def test_ties_are_broken_until_the_graph_is_acyclic(monkeypatch) -> None:
    requests = scripted(monkeypatch, *[Step(NEXT, 1e-7, True, 1)] * 2)
    state = begin(Schedule(), NEXT)
    for _ in range(2):
        state = advance(state, np.ones((3, 3)), 2, GRAPH, Schedule())
    np.testing.assert_array_equal(requests[0]["start"], break_ties(NEXT))  # h is not known yet
    np.testing.assert_array_equal(requests[1]["start"], NEXT)


def reached(state, W: np.ndarray) -> np.ndarray:
    """A sum for which the residual is zero: beta does not change."""
    return state["dual"] - 2 * state["rho2"] * (state["W"] - W)


@pytest.mark.parametrize(("h", "status"), [(1e-6, "converged"), (1.1e-6, "running")])
def test_the_fast_schedule_stops_at_both_goals(monkeypatch, h: float, status: str) -> None:
    scripted(monkeypatch, *[Step(NEXT, h, True, 1)] * 2)
    state = begin(Schedule(), np.zeros((3, 3)))
    assert advance(state, reached(state, NEXT), 2, GRAPH, Schedule())["status"] == status
    # The run must not stop at a residual of 1e-3 / (2 rho2) = 0.5.
    far = reached(state, NEXT) + 1e-3
    assert advance(state, far, 2, GRAPH, Schedule())["status"] == "running"


def test_the_paper_schedule_continues_until_both_penalties_end(monkeypatch) -> None:
    scripted(monkeypatch, *[Step(NEXT, 0.0, True, 1)] * 300)
    schedule = Schedule("subgradient")
    state = begin(schedule, np.zeros((3, 3)))
    while state["status"] == "running":
        assert state["rho1"] < 1e16 or state["rho2"] < 1e16
        state = advance(state, reached(state, NEXT), 2, GRAPH, schedule)
    # 1e-3 * 1.25^t >= 1e16 first for t = 197; rho1 reaches it after 79.
    assert state["rounds"] == 197 == int(np.ceil(np.log(1e19) / np.log(1.25)))
    assert state["rho1"] == state["rho2"] == 1e16
    assert state["status"] == "converged"


@pytest.mark.parametrize("solver", ["subgradient", "proximal"])
def test_reaching_the_last_round_is_not_convergence(monkeypatch, solver) -> None:
    scripted(monkeypatch, *[Step(NEXT, 0.5, True, 1)] * 3)
    schedule = Schedule(solver, rounds=3)
    state = begin(schedule, np.zeros((3, 3)))
    for _ in range(3):
        assert state["status"] == "running"
        state = advance(state, reached(state, NEXT), 2, GRAPH, schedule)
    assert state["status"] == "out of rounds"
    assert failure(state) is not None


@pytest.mark.parametrize("solver", ["subgradient", "proximal"])
def test_divergence_keeps_the_last_finite_weights(monkeypatch, solver) -> None:
    scripted(monkeypatch, Step(NEXT, 0.5, True, 1), Step(NEXT + 9, np.inf, False, 4))
    schedule = Schedule(solver)
    state = begin(schedule, np.zeros((3, 3)))
    state = advance(state, np.ones((3, 3)), 2, GRAPH, schedule)
    last = advance(state, 7 * np.ones((3, 3)), 2, GRAPH, schedule)
    assert last["status"] == "diverged"
    for name in ("W", "h", "residual", "alpha", "dual", "total"):
        np.testing.assert_array_equal(last[name], state[name])
    assert (last["rounds"], last["evaluations"]) == (2, 5)
    assert failure(last) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [("rho1", 0.0), ("rho1", np.nan), ("rho2", 1.1e16), ("rho2", -1.0), ("gamma1", 1.0),
     ("gamma1", np.nan), ("gamma2", 1.0), ("gamma2", 101.0), ("rounds", 0), ("rounds", 10_001)],
)  # fmt: skip
def test_settings_out_of_range_are_refused(name: str, value: float) -> None:
    Schedule(rho1=1e-12, rho2=1e16, gamma1=100.0, rounds=10_000).check()
    with pytest.raises(JobError) as caught:
        Schedule(**{name: value}).check()
    assert caught.value.where == f"method.{name}"
