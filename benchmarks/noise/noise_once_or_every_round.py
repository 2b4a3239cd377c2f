"""Linear graphs at equal epsilon: noise once in moments, or noise in the gradients of every round.

    python -m benchmarks.noise.noise_once_or_every_round --d 10 --repeat 10
    python -m benchmarks.noise.noise_once_or_every_round --d 20 --repeat 10

Random graphs of d columns and d edges (`graphs_under_noise.simulated`), four sites of `--rows`
records. delta is 1e-5; one colluding site, where noise is added in the sum.

sum: `moments` with analysis notears, noise once in the sum
site: `notears_admm`, noise once at each site
rounds: NOTEARS by proximal gradient steps, noise in each round's sum of clipped gradients

`rounds` has the same objective, penalty and threshold as `sum`. It is favoured three times: the
table has the best of several clipping norms and numbers of rounds, chosen with the truth; columns
are standardised without noise; the number of records is not released.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

import secagg
from benchmarks.noise.graphs_under_noise import (
    SITES,
    errors,
    job_of,
    noisy_sites,
    result_of,
    simulated,
)
from secagg.contracts import Result
from secagg.models.graphs.acyclicity import acyclic_edges, acyclicity
from secagg.privacy.accounting.gaussian_dp import gaussian_mu

PENALTY, THRESHOLD, DELTA, COLLUDING = 0.05, 0.15, 1e-5, 1
RHO = (0.01, 1e4)
CLIPS, ROUNDS = (0.5, 1.0, 2.0), (30, 100)


def by_rounds(X: Any, epsilon: float, clip: float, rounds: int, rng: np.random.Generator) -> Result:
    """Return the graph of proximal gradient steps; X: (records, d), columns of variance 1."""
    n, d = X.shape
    mu = math.inf if math.isinf(epsilon) else gaussian_mu(epsilon, DELTA)
    sd = clip * math.sqrt(rounds * SITES / (SITES - COLLUDING)) / mu
    W, kept = np.zeros((d, d)), np.zeros((d, d))
    length = np.linalg.norm(X, axis=1)
    curvature = float(np.linalg.eigvalsh(X.T @ X / n)[-1])
    for t in range(1, rounds + 1):
        residual = X - X @ W
        norm = length * np.linalg.norm(residual, axis=1)  # of x (x - W'x)'
        shrink = np.minimum(1.0, clip / np.maximum(norm, 1e-12))
        G = -(X * shrink[:, None]).T @ residual + sd * rng.normal(size=(d, d))
        h, slope = acyclicity(W)
        rho = RHO[0] * (RHO[1] / RHO[0]) ** (t / rounds)  # grows until no cycle is left
        # the pull is convex in each weight's size near W: a step that cannot pass zero
        pull = rho * h * np.where(W == 0, 0, slope / np.where(W == 0, 1, W))
        step = 1 / curvature
        W = (W - step * G / n) / (1 + step * pull)
        W = np.sign(W) * np.maximum(np.abs(W) - step * PENALTY / (1 + step * pull), 0)
        np.fill_diagonal(W, 0)
        if t > rounds - max(rounds // 4, 1):
            kept = kept + W / max(rounds // 4, 1)
    edges, _ = acyclic_edges(kept, THRESHOLD)
    return Result({}, {"directed": edges, "undirected": np.zeros_like(edges)})


def once_in_the_sum(X: Any, epsilon: float) -> Result:
    """Return the graph from pooled moments."""
    analysis = {"kind": "notears", "penalty": PENALTY, "threshold": THRESHOLD}
    job = job_of({"name": "moments", "analyses": [analysis]}, epsilon, X.shape[1], placement="sum")
    job["protocol"] = {"name": "masked"}
    if math.isinf(epsilon):
        del job["privacy"]
    data = {
        f"s{k}": {f"x{j}": part[:, j] for j in range(X.shape[1])}
        for k, part in enumerate(np.split(X, SITES))
    }
    arrays = secagg.run(job, data=data).result.arrays
    return Result({}, {name: arrays[f"1_notears_{name}"] for name in ("directed", "undirected")})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--d", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[1.0, 4.0, 8.0, math.inf])
    given = parser.parse_args()
    print("| epsilon | noise | SHD | wrong pairs |\n|---|---|---|---|")
    for epsilon in given.epsilon:
        found: dict[Any, list[Any]] = {}
        for seed in range(given.repeat):
            rng = np.random.default_rng(seed)
            truth, X = simulated(rng, given.d, given.rows, given.d)
            results = {"sum": once_in_the_sum(X, epsilon)}
            if not math.isinf(epsilon):
                job = job_of(
                    {"name": "notears_admm", "penalty": PENALTY, "threshold": THRESHOLD},
                    epsilon,
                    given.d,
                )
                results["site"] = result_of(*noisy_sites(job, X, rng), rng)
            for clip in CLIPS:
                for rounds in ROUNDS:
                    name = f"rounds (clip {clip:g}, {rounds} rounds)"
                    results[name] = by_rounds(X, epsilon, clip * math.sqrt(given.d), rounds, rng)
            for key, result in results.items():
                found.setdefault(key, []).append(errors(result, truth)[:2])
        best = min((k for k in found if k.startswith("rounds")),
                   key=lambda k: np.mean(found[k], axis=0)[0])  # fmt: skip
        for name in ("sum", *(["site"] if "site" in found else []), best):
            x = np.array(found[name])
            of, se = x.mean(axis=0), x.std(axis=0, ddof=1) / math.sqrt(len(x))
            cells = " | ".join(f"{m:.2f} ({e:.2f})" for m, e in zip(of, se, strict=True))
            print(f"| {epsilon:g} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
