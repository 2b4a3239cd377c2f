"""How far learned graphs are from the truth, by setting: the tables behind two methods' defaults.

    python -m benchmarks.methods.graph_defaults golem --seeds 100-129 --cache FILE
    python -m benchmarks.methods.graph_defaults networks --seeds 100-129 --cache FILE

Graphs are Erdos-Renyi with as many edges as variables, as in Ng and Zhang (AISTATS 2022, section
6). `golem`: linear Gaussian records, as in a job by default (standardised) and in own units, where
all errors have variance 1. `networks`: records of perceptrons, split over four sites. Settings were
chosen on seeds 0 to 19 (d = 10); the tables are of seeds from 100 on. Finished cells are kept in
FILE, one line of JSON each, so a run can be resumed. Errors are standard errors of means over
seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.experiments.simulated_graphs import (
    edge_weights,
    erdos_renyi_dag,
    linear_gaussian_rows,
    mlp_rows,
    split_rows,
)
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.golem import golem
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.mlp import Networks, squared_loss
from secagg.models.graphs.notears import notears
from secagg.models.graphs.notears_mlp import notears_mlp
from secagg.models.graphs.result import GraphFit
from secagg.models.notears_admm.coordinator import Schedule
from secagg.models.notears_admm.mlp_pooled import PENALTY, pooled_fit, pooled_search
from secagg.models.notears_admm.mlp_simulation import learn

Array = NDArray[np.float64]
Cell = dict[str, Any]

SITES = 4
LINEAR = [(d, round(ratio * d)) for d in (10, 20) for ratio in (1.5, 3, 10, 30, 100)]
NONLINEAR = [(10, 512), (20, 512)]
UNITS = ("standardised", "own")


def moments_of(rows: Array) -> Moments:
    centred = rows - rows.mean(axis=0)
    names = tuple(f"x{j}" for j in range(rows.shape[1]))
    return Moments(names, len(rows), rows.mean(axis=0), centred.T @ centred)


def golem_by(factor: float, *, ev: bool = False) -> Callable[[Array, str], GraphFit]:
    """Return GOLEM with the penalty factor root(2 log d / n), at least the paper's."""

    def learn(rows: Array, units: str) -> GraphFit:
        n, d = rows.shape
        least = 0.02 if ev else 0.002
        penalty = max(least, factor * math.sqrt(2 * math.log(d) / n))
        return golem(moments_of(rows), standardise=False, penalty=penalty, equal_variances=ev)

    return learn


def golem_default(rows: Array, units: str, *, ev: bool) -> GraphFit:
    return golem(moments_of(rows), standardise=units == "standardised", equal_variances=ev)


GOLEM: Mapping[str, Callable[[Array, str], GraphFit]] = {
    "GOLEM-NV": partial(golem_default, ev=False),
    "GOLEM-EV": partial(golem_default, ev=True),
    "GOLEM-NV, the paper's penalty": golem_by(0.0),
    "GOLEM-EV, the paper's penalty": golem_by(0.0, ev=True),
    **{f"calibration NV {c:g}": golem_by(c) for c in (0.25, 0.5, 1.0, 1.5)},
    **{f"calibration EV {c:g}": golem_by(c, ev=True) for c in (0.25, 0.5, 1.0)},
    "NOTEARS": lambda rows, units: notears(moments_of(rows), standardise=False),
}


def admm(rows: Array, units: str, *, gamma1: float, gamma2: float, rho2: float = 0.1) -> GraphFit:
    schedule = Schedule(rho1=0.1, rho2=rho2, gamma1=gamma1, gamma2=gamma2, rounds=500)
    return learn(split_rows(rows, SITES), schedule=schedule)


def by_gradients(rows: Array, units: str) -> GraphFit:
    """Return what solver = "gradient" finds, without the rounding of its sums."""
    networks = Networks(rows.shape[1], sparsity=PENALTY)
    search, loss = pooled_search(networks), squared_loss(networks, rows, len(rows))
    state = search.begin(networks.initial(np.random.default_rng(0), random_inputs=True))
    while not state["done"]:
        state = search.told(state, *loss(state["trial"]))
    finished = {
        "search": state, "status": "converged", "rounds": state["evaluations"],
    }  # fmt: skip
    names = [f"x{j}" for j in range(rows.shape[1])]
    return pooled_fit(
        finished, names, search, 0.3, acyclic=False, standardised=False, rounds=0
    )[0]  # fmt: skip


NETWORKS: Mapping[str, Callable[[Array, str], GraphFit]] = {
    "ADMM, growth 1.75 and 1.25": partial(admm, gamma1=1.75, gamma2=1.25),
    "ADMM, growth 1.3 and 1.1": partial(admm, gamma1=1.3, gamma2=1.1),
    "solver = gradient": by_gradients,
    "NOTEARS-MLP on all records": lambda rows, units: notears_mlp(rows, standardise=False),
    "calibration rho2 = 0.02": partial(admm, gamma1=1.75, gamma2=1.25, rho2=0.02),
    "calibration 1.15 and 1.05": partial(admm, gamma1=1.15, gamma2=1.05),
}


def linear_cell(d: int, n: int, seed: int, units: str) -> tuple[NDArray[np.bool_], Array]:
    rng = np.random.default_rng([41, d, n, seed])
    truth = erdos_renyi_dag(d, d, rng)
    rows = linear_gaussian_rows(edge_weights(truth, rng), n, rng)
    return truth, rows / rows.std(axis=0) if units == "standardised" else rows


def network_cell(d: int, n: int, seed: int, units: str) -> tuple[NDArray[np.bool_], Array]:
    rng = np.random.default_rng([42, d, n, seed])
    truth = erdos_renyi_dag(d, d, rng)
    rows = mlp_rows(truth, n, rng)
    rows = rows - rows.mean(axis=0)
    return truth, rows / rows.std(axis=0) if units == "standardised" else rows


def measured(truth: NDArray[np.bool_], fit: GraphFit, seconds: float) -> dict[str, float]:
    directed = fit.directed & ~np.eye(len(truth), dtype=np.bool_)
    found = compare_graphs(directed, truth, fit.undirected)
    return {
        "shd": found.shd, "tpr": found.tpr, "extra": found.extra, "reversed": found.reversed,
        "converged": float(fit.converged), "rounds": float(fit.diagnostics.get("rounds", 0)),
        "seconds": seconds,
    }  # fmt: skip


def cells(kind: str, seeds: range, only: str, some: tuple[str, ...], most: int) -> Iterator[Cell]:
    sizes, rules = (LINEAR, GOLEM) if kind == "golem" else (NONLINEAR, NETWORKS)
    for d, n in [size for size in sizes if size[0] <= most]:
        for seed in seeds:
            for units in some:
                for rule in rules:
                    if only in rule and (only or "calibration" not in rule):
                        yield {"kind": kind, "d": d, "n": n, "units": units, "rule": rule,
                               "seed": seed}  # fmt: skip


def compute(cell: Cell) -> Cell:
    of = (cell["d"], cell["n"], cell["seed"], cell["units"])
    truth, rows = linear_cell(*of) if cell["kind"] == "golem" else network_cell(*of)
    learn = (GOLEM if cell["kind"] == "golem" else NETWORKS)[cell["rule"]]
    start = time.process_time()
    fit = learn(rows, cell["units"])
    return {**cell, **measured(truth, fit, time.process_time() - start)}


def table(found: list[Cell]) -> str:
    groups: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for cell in found:
        groups[cell["units"], cell["d"], cell["n"], cell["rule"]].append(cell)
    lines = ["| units | d, n | setting | SHD | TPR | extra | reversed | seconds | seeds |",
             "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for (units, d, n, rule), some in groups.items():
        shown = [f"{units}", f"{d}, {n}", rule]
        for key, digits in (("shd", 2), ("tpr", 2)):
            values = [cell[key] for cell in some]
            error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
            shown.append(f"{np.mean(values):.{digits}f} ({error:.{digits}f})")
        shown += [f"{np.mean([cell[key] for cell in some]):.1f}" for key in ("extra", "reversed")]
        shown += [f"{np.mean([cell['seconds'] for cell in some]):.2f}", f"{len(some)}"]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("golem", "networks"))
    parser.add_argument("--seeds", default="100-129")
    parser.add_argument("--units", choices=UNITS, help="only these; all if not set")
    parser.add_argument("--most", type=int, default=20, help="the largest d")
    parser.add_argument("--only", default="", help="part of the settings' names")
    parser.add_argument("--cache", type=Path, required=True)
    given = parser.parse_args()
    units = (given.units,) if given.units else UNITS
    low, high = map(int, given.seeds.split("-"))
    lines = given.cache.read_text().splitlines() if given.cache.exists() else []
    done = [json.loads(line) for line in lines]
    keys = ("kind", "d", "n", "units", "rule", "seed")
    known = {tuple(cell[key] for key in keys) for cell in done}
    wanted = list(cells(given.kind, range(low, high + 1), given.only, units, given.most))
    with given.cache.open("a") as file:
        for cell in wanted:
            if tuple(cell[key] for key in keys) not in known:
                done.append(compute(cell))
                file.write(json.dumps(done[-1]) + "\n")
                file.flush()
    asked = {tuple(cell[key] for key in keys) for cell in wanted}
    print(table([cell for cell in done if tuple(cell[key] for key in keys) in asked]))


if __name__ == "__main__":
    main()
