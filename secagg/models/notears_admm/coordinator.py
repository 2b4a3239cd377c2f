"""The coordinator of NOTEARS-ADMM: one W for all sites, from secure sums alone.

Algorithm 1 of Ng and Zhang (AISTATS 2022) for problem (3): minimise sum_k l(B_k) + lambda |W|_1
subject to h(W) = 0 and B_k = W. The sites keep B_k and beta_k; in round t they receive W, know rho2
from the schedule, and contribute

    V_k = beta_k + rho2 (B_k - W),                                                            (V)

B_k their solution of (4). The sum of V_k is what the paper's sum of rho2 B_k + beta_k is, less
K rho2 W, which everybody knows: (5) needs no more of the sites. Where (4) is solved exactly,
V_k = -grad l(B_k): of the size of the data while rho2 grows from 1e-3 to 1e16, so that one fixed
point serves all rounds. From the sum of V_k the coordinator takes

    C = W + sum V_k / (K rho2), the target of (5);
    sum of beta_k after (7) = sum V_k + K rho2 (W - W'), W' the new W;
    mean over sites of B_k - W' = its change / (K rho2): the mean consensus residual.

The largest residual of a single site is not a sum, so it is not known. With mean residual r it is
at most r plus what sites' duals still move in opposite directions, divided by rho2.

Two settings:

=======  =======================================================================================
paper    problem (5) by `subgradient_step`; stops when both penalties are at 1e16 (197 rounds with
         gamma2 = 1.25 from 1e-3), whatever h and the residual are
fast     problem (5) by `proximal_step`; stops as soon as h <= 1e-6 and the mean residual is
         <= 1e-8, else as paper. W is moved by up to a per mille before each step while h is
         above that (`break_ties`): of two variables that look alike, both directions would else
         be kept or dropped together.
=======  =======================================================================================

A W that cannot be made finite ends the run: the last finite one is kept, marked "diverged".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.graphs.acyclicity import break_ties
from secagg.models.graphs.proximal_newton import Graphed, Multipliers
from secagg.models.notears_admm.w_step import Pull, proximal_step, subgradient_step

Variant = Literal["fast", "paper"]

RHO_MIN, RHO_MAX = 1e-12, 1e16  # the last is appendix B's
H_TOLERANCE = 1e-6
CONSENSUS_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Schedule:
    """How penalties grow, and when to stop; the defaults are appendix B's for linear graphs.

    rho1, rho2: first penalties of h and of consensus; gamma1, gamma2: their growth, (8) and (9)
    rounds: at most
    """

    variant: Variant = "fast"
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

    def growing(self, rho2: float) -> float:
        """Return the rho2 that follows one, (9), or the first after 0.

        The sites compute it too: a coordinator cannot choose it, but through the scale that it
        sends where columns are standardised.
        """
        return min(self.gamma2 * rho2, RHO_MAX) if rho2 > 0 else self.rho2


def begin(schedule: Schedule, W: Array) -> State:
    """Return the first state, with the first W."""
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


def advance(state: State, total: Array, sites: int, graphed: Graphed, schedule: Schedule) -> State:
    """Take the sum of V_k over the sites: (5), (6), (8), (9), and whether to go on."""
    W, dual, rho1, alpha = state["W"], state["dual"], state["rho1"], state["alpha"]
    strength = sites * state["rho2"]
    pull, multipliers = Pull(W + total / strength, strength), Multipliers(alpha, rho1)
    if schedule.variant == "paper":
        step = subgradient_step(graphed, W, pull, multipliers)
    else:
        tied = state["rounds"] == 0 or state["h"] > H_TOLERANCE
        step = proximal_step(graphed, break_ties(W) if tied else W, pull, multipliers)
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
        "rho2": schedule.growing(state["rho2"]),
    }
    reached = state["h"] <= H_TOLERANCE and state["residual"] <= CONSENSUS_TOLERANCE
    at_the_end = state["rho1"] == RHO_MAX == state["rho2"]
    if (reached and schedule.variant == "fast") or at_the_end or state["rounds"] == schedule.rounds:
        ended = "penalties at their end" if at_the_end else "out of rounds"
        state["status"] = "converged" if reached else ended
    return state


def failure(state: State) -> str | None:
    """Return why W is not to be relied on, or None."""
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
