"""The coordinator of NOTEARS-ADMM: one W for all sites, from secure sums alone.

Algorithm 1 of Ng and Zhang (AISTATS 2022) for problem (3): minimise sum_k l(B_k) + lambda |W|_1
subject to h(W) = 0 and B_k = W. The sites keep B_k and beta_k; in round t they receive W, know rho2
from the schedule, and contribute

    V_k = beta_k + rho2 (B_k - W),                                                            (V)

with B_k their solution of (4). The sum of V_k is the paper's sum of rho2 B_k + beta_k minus
K rho2 W, which all parties know. So the coordinator needs nothing else from the sites to solve (5).
If (4) is solved exactly, V_k = -grad l(B_k). V_k keeps the order of size of the data while rho2
grows from 1e-3 to 1e16, so the same number of fraction bits suits all rounds. From the sum of V_k
the coordinator computes

    C = W + sum V_k / (K rho2), the target of (5);
    sum of beta_k after (7) = sum V_k + K rho2 (W - W'), W' the new W;
    mean over sites of B_k - W' = its change / (K rho2): the mean consensus residual.

The largest residual of a single site is not a sum, so the coordinator cannot know it. With mean
residual r it is at most r plus the opposite movements of the sites' duals, divided by rho2.

Two solvers:

===========  ===================================================================================
subgradient  the paper's: problem (5) by `subgradient_step`; stops when both penalties are at 1e16
             (197 rounds with gamma2 = 1.25 from 1e-3), whatever h and the residual are
proximal     problem (5) by `proximal_step`; stops as soon as h <= 1e-6 and the mean residual is
             <= 1e-8, otherwise as above. While h is above 1e-6, W is perturbed by up to 1/1000
             before each step (`break_ties`). Without this, two interchangeable variables would
             keep both directions or lose both.
===========  ===================================================================================

If W cannot be made finite, the run ends with the last finite W and the status "diverged".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.graphs.acyclicity import break_ties
from secagg.models.graphs.proximal_newton import GraphParameters, Multipliers
from secagg.models.notears_admm.w_step import Pull, ScaledPull, proximal_step, subgradient_step

Solver = Literal["proximal", "subgradient"]

RHO_MIN, RHO_MAX = 1e-12, 1e16  # RHO_MAX is that of appendix B
H_TOLERANCE = 1e-6
CONSENSUS_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Schedule:
    """How penalties grow, and when to stop; the defaults are appendix B's for linear graphs.

    rho1, rho2: first penalties of h and of consensus; gamma1, gamma2: their growth, (8) and (9)
    rounds: largest number of rounds
    """

    solver: Solver = "proximal"
    rho1: float = 1e-3
    rho2: float = 1e-3
    gamma1: float = 1.75
    gamma2: float = 1.25
    rounds: int = 200

    def check(self) -> None:
        """Raise `JobError` for a value out of range."""
        for name in ("rho1", "rho2"):
            if not RHO_MIN <= getattr(self, name) <= RHO_MAX:
                raise JobError(f"method.{name}", f"must be between {RHO_MIN:g} and {RHO_MAX:g}")
        for name in ("gamma1", "gamma2"):
            if not 1 < getattr(self, name) <= 100:
                raise JobError(f"method.{name}", "must be above 1 and at most 100")
        if not 1 <= self.rounds <= 10_000:
            raise JobError("method.rounds", "must be between 1 and 10000")

    def next_rho2(self, rho2: float) -> float:
        """Return the rho2 that follows this one, (9); the first one after 0.

        The sites compute it too, so the coordinator cannot choose it, except through the scale that
        it sends if columns are standardised.
        """
        return min(self.gamma2 * rho2, RHO_MAX) if rho2 > 0 else self.rho2


SLOWER_SCHEDULE = Schedule(gamma1=1.3, gamma2=1.1, rounds=500)
"""Slower growth, which ends closer to a local optimum."""


def begin(schedule: Schedule, W: Array) -> State:
    return {
        "status": "running",
        "rounds": 0,
        "W": W,
        "alpha": 0.0,
        "rho1": schedule.rho1,
        "rho2": schedule.rho2,
        "dual": np.zeros_like(W),  # sum of beta_k
        "h": 0.0,
        "residual": 0.0,
        "total": np.zeros_like(W),  # sum of V_k
        "evaluations": 0,
    }


def advance(
    state: State,
    total: Array,
    sites: int,
    graph: GraphParameters,
    schedule: Schedule,
    ridge: Array | None = None,
) -> State:
    """Process the sum of V_k over the sites: (5), (6), (8), (9), and the stopping rule.

    ridge: r of a term 1/2 sum r W^2 in (5), shaped like W, for the solver "proximal"; None for 0
    """
    W, dual, rho1, alpha = state["W"], state["dual"], state["rho1"], state["alpha"]
    strength = sites * state["rho2"]
    multipliers = Multipliers(alpha, rho1)
    pull: Pull | ScaledPull = Pull(W + total / strength, strength)
    if ridge is not None and np.any(ridge):
        pull = ScaledPull(pull.target * strength / (strength + ridge), strength + ridge)
    if schedule.solver == "subgradient":
        step = subgradient_step(graph, W, pull, multipliers)
    else:
        perturbed = state["rounds"] == 0 or state["h"] > H_TOLERANCE
        step = proximal_step(graph, break_ties(W) if perturbed else W, pull, multipliers)
    state = {
        **state,
        "rounds": state["rounds"] + 1,
        "evaluations": state["evaluations"] + step.evaluations,
    }
    if not step.finite:
        return {**state, "status": "diverged"}
    new_dual = total + strength * (W - step.W)
    state |= {
        "W": step.W,
        "h": step.h,
        "dual": new_dual,
        "residual": float(np.max(np.abs(new_dual - dual))) / strength,
        "total": total,
        "alpha": alpha + rho1 * step.h,
        "rho1": min(schedule.gamma1 * rho1, RHO_MAX),
        "rho2": schedule.next_rho2(state["rho2"]),
    }
    converged = state["h"] <= H_TOLERANCE and state["residual"] <= CONSENSUS_TOLERANCE
    at_limit = state["rho1"] == RHO_MAX == state["rho2"]
    if (
        (converged and schedule.solver == "proximal")
        or at_limit
        or state["rounds"] == schedule.rounds
    ):
        reason = "penalty limit reached" if at_limit else "out of rounds"
        state["status"] = "converged" if converged else reason
    return state


def failure(state: State) -> str | None:
    """Return why W must not be trusted, or None."""
    match state["status"]:
        case "converged":
            return None
        case "diverged":
            return f"no finite step could be made in round {state['rounds']}"
        case _:
            return (
                f"{state['status']}: after {state['rounds']} rounds h is {state['h']:.2g} and the "
                f"mean consensus residual {state['residual']:.2g}"
            )
