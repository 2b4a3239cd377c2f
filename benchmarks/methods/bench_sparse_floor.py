"""The effect of the floor of step `paper` on the posterior of federated sparse regression.

    python -m benchmarks.methods.bench_sparse_floor [--quick]

Step `paper` sums 1 / lambda^2 over sites, which has no bound, and therefore raises lambda to at
least `lambda_floor`; `collapsed` has no floor and is exact. Both sample one simulated case in many
independent chains, so that errors need no theory of Markov chains: `+-` is the standard deviation
of the chains' means, divided by the root of their number. A difference within its error is no
evidence of bias.

There are no parties and no fixed point: only the sampler runs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import section, table
from secagg.contracts import PublicFacts, SiteRecords, Variable
from secagg.core.randomness import seeded_random
from secagg.models.sparse_bayes.base import DRAWS
from secagg.models.sparse_bayes.regression import SparseRegression

Array = NDArray[np.float64]

FLOORS = (1e-4, 1e-2, 3e-2, 1e-1)
RECORDS = (40, 25, 35, 20)
COLUMNS = ("y", "x1", "x2", "x3")
HALF = 16.0  # columns are carried in these units
PUBLIC = PublicFacts(
    tuple(Variable(name, name, 0.0, HALF) for name in COLUMNS),
    COLUMNS,
    max(RECORDS),
    tuple(f"s{k}" for k in range(len(RECORDS))),
)
QUANTITIES = (
    *(f"{kind} of {name}" for kind in ("mean of theta", "PIP", "mean of log tau",
      "mean of log^2 tau") for name in COLUMNS[1:]),
    "mean of theta_k of x3 at the last site",
)  # fmt: skip


@dataclass(frozen=True)
class Estimate:
    """Posterior expectations of QUANTITIES, and their Monte Carlo errors."""

    value: Array
    error: Array


def simulated() -> list[SiteRecords]:
    """An effect that all sites share, none, and one that the last site has alone."""
    rng, parts = np.random.default_rng(7), []
    for k, n in enumerate(RECORDS):
        X = rng.standard_normal((n, 3))
        effects = [0.6, 0.0, 1.0 if k == len(RECORDS) - 1 else 0.0]
        rows = np.column_stack([X @ effects + rng.standard_normal(n), X])
        parts.append(SiteRecords(rows / HALF, 0, np.zeros(len(COLUMNS))))
    return parts


def sampled(step: Any, floor: float, chains: int, rounds: int) -> Estimate:
    """Run the chains; the first third of each is discarded."""
    method = SparseRegression(
        outcome="y", prior="paper", step=step, lambda_floor=floor, chains=chains, rounds=rounds,
        warmup=rounds // 3, thin=rounds // 8,
    )  # fmt: skip
    rows = simulated()
    randoms = [seeded_random(bytes([k]) * 32) for k in range(len(rows))]
    state, memories = method.initial_state(PUBLIC), [dict[str, Any]() for _ in rows]
    total, count = np.zeros((chains, len(QUANTITIES))), 0
    while (following := method.next_request(state)) is not None:
        stage, message = following
        done = method.contribute_batched(stage, rows, message, memories, PUBLIC, randoms)
        memories = [memory for _, memory in done]
        sums = {name: np.sum([update[name] for update, _ in done], axis=0) for name in done[0][0]}
        state = method.aggregate(state, sums, len(rows))
        if stage == DRAWS and state["round"] > method.discarded:
            now, log_tau = state["common"], np.log(state["common"]["t"][:, 0]) / 2
            own = memories[-1]["theta"][:, 0, -1:]
            kinds = (now["theta"][:, 0], now["inclusion"][:, 0], log_tau, log_tau**2, own)
            total, count = total + np.concatenate(kinds, axis=1), count + 1
    means = total / count
    return Estimate(means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(chains))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few short chains")
    chains, rounds = (8, 60) if parser.parse_args().quick else (256, 3000)
    exact = sampled("collapsed", FLOORS[0], chains, rounds)
    found = [sampled("paper", floor, chains, rounds) for floor in FLOORS]
    rows = []
    for i, name in enumerate(QUANTITIES):
        cells = [f"{exact.value[i]:.4f} +- {exact.error[i]:.4f}"]
        for each in found:
            apart = each.value[i] - exact.value[i]
            cells.append(f"{apart:+.4f} +- {np.hypot(each.error[i], exact.error[i]):.4f}")
        rows.append([name, *cells])
    section(
        "Step paper: bias by the floor of lambda",
        f"{len(RECORDS)} sites of {', '.join(map(str, RECORDS))} records, {chains} chains of "
        f"{rounds} rounds, of which the first third is left out. The columns after `collapsed` "
        "show differences from it.",
        table(["", "collapsed", *(f"floor {floor:g}" for floor in FLOORS)], rows),
    )


if __name__ == "__main__":
    main()
