"""Choose what the sources of Fed-Sparse-BNSL do not state, on seeds that the comparison never uses.

    python -m benchmarks.peers.fed_sparse_choices --out runs/fed-sparse-choices.jsonl

For each number of variables and each epsilon: `--draws` settings at random from GRID, then (with
noise) the neighbours on the grid of the one with the smallest mean SHD over `--seeds` graphs. With
more than 20 variables: the best `--keep` settings of 20 variables at the same epsilon. The choice
costs no privacy, so it favours the method. Each line of the file is one run; the same command
continues an interrupted search.

The choices are in `reproductions.fed_sparse_bnsl.choices`. With 24 draws and 2 seeds, the search
takes three minutes of processor time.
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
EPSILONS = (1.0, 8.0, math.inf)


Setting = dict[str, float]


def drawn(number: int) -> Setting:
    """Return one setting."""
    rng = np.random.default_rng([number, 1])
    return {name: float(rng.choice(values)) for name, values in GRID.items()}


def neighbours(setting: Setting) -> list[Setting]:
    """Return the settings that differ in one value, by one place on the grid."""
    found: list[Setting] = []
    for name, values in GRID.items():
        place = values.index(setting[name])
        found += [{**setting, name: float(v)} for v in values[max(place - 1, 0) : place + 2]]
    return [each for each in found if each != setting]


def shd_by_threshold(setting: Setting, d: int, epsilon: float, seed: int) -> list[int]:
    """Return the SHD of one run at each of THRESHOLDS; without noise, with ten times the steps."""
    records = records_of({"d": d, "sites": 10, "each": 1000, "seed": FIRST_SEED + seed})
    choices = choices_of(setting, epsilon, THRESHOLDS[0])
    rho = math.inf if math.isinf(epsilon) else rho_of(epsilon, DELTA)
    with single_threaded_blas():
        W = learn(records.sites, records.scale, rho, choices, np.random.default_rng(seed)).W
    return [compare_graphs(acyclic_edges(W, t)[0], records.truth).shd for t in THRESHOLDS]


def choices_of(setting: Setting, epsilon: float, threshold: float) -> Choices:
    """Return the setting as the method takes it."""
    rounds, steps = int(setting["rounds"]), int(setting["steps"])
    rest = {name: value for name, value in setting.items() if name not in ("rounds", "steps")}
    more = 10 if math.isinf(epsilon) else 1
    return Choices(rounds, steps * more, threshold=threshold, **rest)


Lines = list[dict[str, Any]]


def ranked(lines: Lines, d: int, epsilon: float) -> list[tuple[float, Setting, float]]:
    """Return (mean SHD, setting, threshold) of all settings that were run, the best first."""
    of: dict[str, list[list[int]]] = defaultdict(list)
    for line in lines:
        if line["d"] == d and line["epsilon"] == epsilon:
            of[json.dumps(line["setting"])].append(line["shd"])
    means = [
        (float(np.mean([shd[i] for shd in runs])), setting, threshold)
        for setting, runs in of.items()
        for i, threshold in enumerate(THRESHOLDS)
    ]
    return [(shd, json.loads(setting), threshold) for shd, setting, threshold in sorted(means)]


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
    lines: Lines = [json.loads(line) for line in text.splitlines()]

    def add(settings: list[Setting], d: int, epsilon: float) -> None:
        for setting in settings:
            for seed in range(given.seeds):
                line = {"d": d, "epsilon": epsilon, "setting": setting, "seed": seed}
                if any(line.items() <= each.items() for each in lines):
                    continue
                lines.append({**line, "shd": shd_by_threshold(setting, d, epsilon, seed)})
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")

    print("| d | epsilon | SHD | choices |")
    print("|---|---|---|---|")
    for d in given.variables:
        for epsilon in EPSILONS:
            if d > 20:
                best = [setting for _, setting, _ in ranked(lines, 20, epsilon)]
                distinct = {json.dumps(each): each for each in best}
                add(list(distinct.values())[: given.keep], d, epsilon)
            else:
                add([drawn(number) for number in range(given.draws)], d, epsilon)
                if epsilon < math.inf:
                    add(neighbours(ranked(lines, d, epsilon)[0][1]), d, epsilon)
            shd, setting, threshold = ranked(lines, d, epsilon)[0]
            found = choices_of(setting, epsilon, threshold)
            print(f"| {d} | {epsilon:g} | {shd:.1f} | {found} |", flush=True)


if __name__ == "__main__":
    main()
