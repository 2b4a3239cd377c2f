"""Choose what the sources of Fed-Sparse-BNSL do not state, on seeds that the comparison never uses.

    python -m benchmarks.peers.fed_sparse_choices --out runs/fed-sparse-choices.jsonl

For each number of variables and each epsilon, draws `--draws` settings at random from GRID and
takes the one with the smallest mean SHD over `--seeds` graphs. With more than 20 variables, it
takes the best `--keep` settings of 20 variables at the same epsilon instead of new draws. The
choice costs no privacy, so it favours the method. Each line of the file is one run; the same
command continues an interrupted search.

The choices are in `reproductions.fed_sparse_bnsl.choices`. 24 draws and 2 seeds: two minutes of
processor time.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from reproductions.data.linear_graphs import records_of
from reproductions.fed_sparse_bnsl.tasks.consensus import Choices, learn
from reproductions.fed_sparse_bnsl.tasks.zcdp import rho_of
from secagg.core.threads import single_threaded_blas
from secagg.models.graphs.acyclicity import acyclic_edges
from secagg.models.graphs.metrics import compare_graphs

GRID: dict[str, tuple[float, ...]] = {
    "rounds": (10, 20, 40, 80),
    "steps": (1, 2, 5, 10),
    "penalty": (0.02, 0.05, 0.1, 0.2, 0.4),
    "clip": (0.25, 0.5, 1, 2, 4),
    "selection": (0.25, 0.5, 0.75),
    "rho1": (1e-3, 1e-1),
    "rho2": (1e-2, 1e-1, 1.0),
    "last1": (1e2, 1e5),
    "last2": (10, 100, 1000),
}
THRESHOLDS = (0.2, 0.3, 0.4)
FIRST_SEED = 100_000
DELTA = 1e-5
EPSILONS = (1.0, 4.0, 8.0, math.inf)


def drawn(number: int, epsilon: float) -> dict[str, float]:
    """Return one setting; without noise, ten times as many steps."""
    rng = np.random.default_rng([number, 1])
    setting = {name: float(rng.choice(values)) for name, values in GRID.items()}
    if math.isinf(epsilon):
        setting["steps"] *= 10
    return setting


def shd_by_threshold(setting: dict[str, float], d: int, epsilon: float, seed: int) -> list[int]:
    """Return the SHD of one run at each of THRESHOLDS."""
    records = records_of({"d": d, "sites": 10, "each": 1000, "seed": FIRST_SEED + seed})
    whole = {name: int(setting[name]) for name in ("rounds", "steps")}
    choices = Choices(**{**setting, **whole, "threshold": THRESHOLDS[0]})  # type: ignore[arg-type]
    rho = math.inf if math.isinf(epsilon) else rho_of(epsilon, DELTA)
    with single_threaded_blas():
        W = learn(records.sites, records.scale, rho, choices, np.random.default_rng(seed)).W
    return [compare_graphs(acyclic_edges(W, t)[0], records.truth).shd for t in THRESHOLDS]


def ranked(lines: list[dict[str, Any]], d: int, epsilon: float) -> list[tuple[float, int, float]]:
    """Return (mean SHD, number of the setting, threshold), the best first."""
    of: dict[int, list[list[int]]] = defaultdict(list)
    for line in lines:
        if line["d"] == d and line["epsilon"] == epsilon:
            of[line["setting"]].append(line["shd"])
    return sorted(
        (float(np.mean([shd[i] for shd in runs])), number, threshold)
        for number, runs in of.items()
        for i, threshold in enumerate(THRESHOLDS)
    )


def main() -> None:
    """Search; print the best setting of each number of variables and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("runs/fed-sparse-choices.jsonl"))
    parser.add_argument("--variables", type=int, nargs="*", default=[10, 20, 50])
    parser.add_argument("--draws", type=int, default=24)
    parser.add_argument("--keep", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    text = given.out.read_text("utf-8") if given.out.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    done = {(line["d"], line["epsilon"], line["setting"], line["seed"]) for line in lines}
    with given.out.open("a", encoding="utf-8") as file:
        for d in given.variables:
            for epsilon in EPSILONS:
                numbers = list(range(given.draws))
                if d > 20:
                    best = [number for _, number, _ in ranked(lines, 20, epsilon)]
                    numbers = list(dict.fromkeys(best))[: given.keep]
                for number in numbers:
                    for seed in range(given.seeds):
                        if (d, epsilon, number, seed) in done:
                            continue
                        shd = shd_by_threshold(drawn(number, epsilon), d, epsilon, seed)
                        place = {"d": d, "epsilon": epsilon, "setting": number, "seed": seed}
                        lines.append({**place, "shd": shd})
                        file.write(json.dumps(lines[-1]) + "\n")
                        file.flush()
    print("| d | epsilon | SHD | threshold | setting |")
    print("|---|---|---|---|---|")
    for d in given.variables:
        for epsilon in EPSILONS:
            for shd, number, threshold in ranked(lines, d, epsilon)[:1]:
                setting = drawn(number, epsilon)
                print(f"| {d} | {epsilon:g} | {shd:.1f} | {threshold:g} | {setting} |")


if __name__ == "__main__":
    main()
