"""Choose penalty and threshold of NOTEARS under noise as Fed-Sparse-BNSL's settings are chosen.

    python -m benchmarks.peers.notears_choices

The grid is PENALTIES and the THRESHOLDS of `fed_sparse_choices`, and the graphs are the same. Each
line is the best for one number of variables and one epsilon, with noise at the sites. A minute of
processor time.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.peers.fed_sparse_choices import DELTA, EPSILONS, FIRST_SEED, THRESHOLDS
from reproductions.data.linear_graphs import records_of
from reproductions.fed_sparse_bnsl.tasks.own import NOTEARS, run_job
from secagg.models.graphs.acyclicity import acyclic_edges
from secagg.models.graphs.metrics import compare_graphs

PENALTIES = (0.1, 0.2, 0.4, 0.8)


def main() -> None:
    """Print the choices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--variables", type=int, nargs="*", default=[10, 20, 50])
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    method: dict[str, Any] = {
        "name": "moments", "analyses": [{**NOTEARS, "penalty": p} for p in PENALTIES],
    }  # fmt: skip
    print("| d | epsilon | SHD | penalty | threshold |\n|---|---|---|---|---|")
    for d in given.variables:
        for epsilon in EPSILONS[:-1]:
            shd = np.zeros((len(PENALTIES), len(THRESHOLDS)))
            for seed in range(given.seeds):
                settings = {"d": d, "sites": 10, "each": 1000, "seed": FIRST_SEED + seed}
                records = records_of(settings)
                noise = {"placement": "site", "epsilon": epsilon, "delta": DELTA}
                arrays = run_job(records, {**settings, **noise}, method).result.arrays
                for i in range(len(PENALTIES)):
                    W = arrays[f"{i + 1}_notears_weights"]
                    for j, threshold in enumerate(THRESHOLDS):
                        edges = acyclic_edges(W, threshold)[0]
                        shd[i, j] += compare_graphs(edges, records.truth).shd / given.seeds
            i, j = np.unravel_index(np.argmin(shd), shd.shape)
            print(f"| {d} | {epsilon:g} | {shd[i, j]:.1f} | {PENALTIES[i]} | {THRESHOLDS[j]} |")


if __name__ == "__main__":
    main()
