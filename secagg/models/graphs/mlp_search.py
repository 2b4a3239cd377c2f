"""The search of NOTEARS-MLP (Zheng, Dan, Aragam, Ravikumar and Xing, AISTATS 2020).

    minimise  l(theta) + penalty * sum |A_ijk| + ridge/2 (|A|^2 + |C|^2)   subject to  h(theta) = 0

l is the loss of all records, with the networks of `secagg.models.graphs.mlp`. An augmented
Lagrangian as in linear NOTEARS: a problem has alpha h + rho/2 h^2 in place of the constraint, and
is solved by OWL-QN. If h has fallen to a quarter of its value after the problem before, alpha grows
by rho h; otherwise rho grows tenfold and the problem is solved again from the same start.

The search gets l and its gradient at the networks `trial` of its state. One process computes them
from its own records (`secagg.models.graphs.notears_mlp`), a federation by one secure sum for
each (`secagg.models.notears_admm.mlp_pooled`). Both then take the same steps. Everything else here
is a function of theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import State
from secagg.core.arrays import Array
from secagg.models.graphs.mlp import Networks
from secagg.models.graphs.notears import DECREASE, GROWTH, MAX_ROUNDS, RHO_MAX
from secagg.models.graphs.proximal_newton import graph_constraint
from secagg.models.numerics.owlqn import Stopping, begin_search, told

RIDGE = 0.01  # of the authors' program


@dataclass(frozen=True)
class MlpSearch:
    """A search over networks, whose `sparsity` is the penalty.

    ridge: at least 0; tolerance: the search ends when h is at most this; stopping: of a problem
    """

    networks: Networks
    ridge: float
    tolerance: float
    stopping: Stopping

    def begin(self, start: Array) -> State:
        """Return the search before the first evaluation, at `start` without forbidden edges."""
        theta = np.where(self._free, start, 0)
        return {
            "done": False, "failed": "", "theta": theta, "h": np.inf, "alpha": 0.0, "rho": 1.0,
            "problems": 0, "evaluations": 0, "trial": theta, "at_theta": {}, "at_x": {},
            "search": begin_search(theta[self._free]),
        }  # fmt: skip

    def told(self, state: State, loss: float, slopes: Array) -> State:
        """Return the search after l and its gradient at `trial`; `theta` holds the result if done.

        failed: why the search has failed, or ""
        """
        state = {**state, "evaluations": state["evaluations"] + 1}
        known: State = {"loss": loss, "slopes": slopes}
        while True:
            before = state["search"]
            value, gradient = self._smooth(state, known["loss"], known["slopes"])
            search = told(before, value, gradient, self._penalty, self.stopping)
            if search["x"] is before["trial"]:
                state = {**state, "at_x": known}
            state = {**state, "search": search, "trial": self._embedded(search["trial"])}
            if not search["done"]:
                return state
            state = self._after_problem(state)
            if state["done"]:
                return state
            known = state["at_theta"]

    def _after_problem(self, state: State) -> State:
        """Return the state with the next problem, or done."""
        theta, rho = self._embedded(state["search"]["x"]), state["rho"]
        h = graph_constraint(self.networks, theta)[0]
        finite = state["search"]["finite"]
        if finite and h > DECREASE * state["h"] and rho < RHO_MAX:
            theta = state["theta"]
            state = {**state, "rho": rho * GROWTH}
        else:
            state = {
                **state, "theta": theta, "h": h, "alpha": state["alpha"] + rho * h,
                "at_theta": state["at_x"], "problems": state["problems"] + 1,
            }  # fmt: skip
            if not finite:
                return {**state, "done": True, "failed": "no finite step could be made"}
            if h <= self.tolerance or rho >= RHO_MAX or state["problems"] >= MAX_ROUNDS:
                failed = "" if h <= self.tolerance else f"h stayed at {h:.3g}"
                return {**state, "done": True, "failed": failed}
        search = begin_search(theta[self._free])
        return {**state, "trial": theta, "search": search, "at_x": state["at_theta"]}

    def _smooth(self, state: State, loss: float, slopes: Array) -> tuple[float, Array]:
        """Return the problem's smooth part and its gradient by the free entries."""
        theta, alpha, rho = state["trial"], state["alpha"], state["rho"]
        with np.errstate(all="ignore"):  # overflow gives values that are not finite
            h, E = graph_constraint(self.networks, theta)
            shrunk = self._ridge * theta
            value = loss + 0.5 * float(shrunk @ theta) + (alpha + 0.5 * rho * h) * h
            gradient = slopes + shrunk + (alpha + rho * h) * 2 * theta * E
        return value, gradient[self._free]

    def _embedded(self, x: Array) -> Array:
        """Return theta with these free entries, and zeros."""
        theta = np.zeros(self.networks.size)
        theta[self._free] = x
        return theta

    @cached_property
    def _free(self) -> NDArray[np.bool_]:
        return np.isfinite(self.networks.penalty)

    @cached_property
    def _penalty(self) -> Array:
        return self.networks.penalty[self._free]

    @cached_property
    def _ridge(self) -> Array:
        return self.networks.ridge(self.ridge)
