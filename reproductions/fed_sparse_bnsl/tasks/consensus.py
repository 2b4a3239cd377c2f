"""Fed-Sparse-BNSL: consensus of the participants' sparse matrices on an acyclic graph, by ADMM.

The problem is that of Ng and Zhang (AISTATS 2022) with the l1 penalty moved from W to the B_p
(see `reproductions.fed_sparse_bnsl.tasks.mechanism`, whose (1) is a participant's problem):

    minimise  sum_p 1/(2 n_p) |X_p - X_p B_p|^2 + lambda |B_p|_1   subject to  B_p = W, h(W) = 0.

A round: the coordinator sends W; each participant makes a few steps of (DP-)PGCD from its last B_p
and sends the entries that it changed; the coordinator solves for W (Ng and Zhang's (5) with
lambda = 0, secagg's solver) and all update beta_p += rho2 (B_p - W). The coordinator knows every
B_p, so it can compute every beta_p: nothing else is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from reproductions.fed_sparse_bnsl.tasks.mechanism import Array, LocalProblem, descend, step_noise
from secagg.models.graphs.acyclicity import acyclic_edges
from secagg.models.graphs.proximal_newton import LinearGraph
from secagg.models.notears_admm.coordinator import Schedule, advance, begin

ENTRY_BYTES = 12
"""An entry that is sent: its value as a double, its place as a 32-bit number."""


@dataclass(frozen=True)
class Choices:
    """What the sources do not state.

    rounds, steps: of ADMM, and of PGCD in each round; penalty: lambda
    clip: C_jk in units of the public scales of columns j and k; selection: share of rho for (4)
    threshold: smallest |W| of an edge
    rho1, rho2: first penalties; their growth a round is such that they end at `last1`, `last2`
    """

    rounds: int
    steps: int
    penalty: float
    clip: float
    selection: float
    threshold: float
    rho1: float
    rho2: float
    last1: float
    last2: float

    def schedule(self) -> Schedule:
        """Return the schedule of the penalties."""
        growing = max(self.rounds - 1, 1)
        return Schedule(
            rho1=self.rho1,
            rho2=self.rho2,
            gamma1=(self.last1 / self.rho1) ** (1 / growing),
            gamma2=(self.last2 / self.rho2) ** (1 / growing),
            rounds=self.rounds,
        )


@dataclass(frozen=True, eq=False)
class Learned:
    """directed: (d, d), acyclic; W: the consensus; sent: bytes that each participant sent, mean"""

    directed: NDArray[np.bool_]
    W: Array
    sent: float


def learn(
    sites: Sequence[Array], scale: Array, rho: float, choices: Choices, rng: Generator
) -> Learned:
    """Run Fed-Sparse-BNSL; with finite rho, each participant's messages are rho-zCDP.

    sites: (n_p, d) records of each participant; scale: (d,), public scales; rho: inf for no noise,
        and then no clipping either
    """
    schedule, d = choices.schedule(), len(scale)
    noise = step_noise(rho, choices.rounds * choices.steps, choices.selection)
    width = choices.clip if np.isfinite(rho) else np.inf
    clip = width * np.outer(scale, scale)
    problems = [LocalProblem(X, len(X), scale, clip, choices.penalty) for X in sites]
    B = np.zeros((len(sites), d, d))
    beta = np.zeros_like(B)
    G = np.stack([np.column_stack([p.gradients(b, k) for k in range(d)])
                  for p, b in zip(problems, B, strict=True)])  # fmt: skip
    graph = LinearGraph(d, penalties=(0.0, 0.0), zero_diagonal=True)
    state, entries = begin(schedule, np.zeros((d, d))), 0
    # Every round is played: without a penalty on W, an acyclic W agrees with the mean of B at once,
    # which is what secagg's rule for stopping NOTEARS-ADMM looks at.
    for _ in range(choices.rounds):
        W, rho2 = state["W"], state["rho2"]
        for p, problem in enumerate(problems):
            B[p], G[p], changed = descend(
                problem, B[p], G[p], beta[p], W, rho2, choices.steps, noise, rng
            )
            entries += len(changed)
        V = beta + rho2 * (B - W)
        state = advance(state, V.sum(axis=0), len(sites), graph, schedule)
        beta += rho2 * (B - state["W"])
    directed, _ = acyclic_edges(state["W"], choices.threshold)
    return Learned(directed, state["W"], ENTRY_BYTES * entries / len(sites))
