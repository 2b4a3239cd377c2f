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
from secagg.models.notears_admm.mlp_pooled import pooled_fit, pooled_search
from secagg.models.notears_admm.mlp_simulation import MLP_RHO, learn
from secagg.models.notears_admm.variants import variant_settings

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
        return golem(
            moments_of(rows), standardise=False, penalty=penalty, equal_variances=ev, threshold=0.3
        )

    return learn


def golem_default(rows: Array, units: str, *, ev: bool) -> GraphFit:
    return golem(
        moments_of(rows), standardise=units == "standardised", equal_variances=ev, threshold=0.3
    )


GOLEM: Mapping[str, Callable[[Array, str], GraphFit]] = {
    "GOLEM-NV": partial(golem_default, ev=False),
    "GOLEM-EV": partial(golem_default, ev=True),
    "GOLEM-NV, the paper's penalty": golem_by(0.0),
    "GOLEM-EV, the paper's penalty": golem_by(0.0, ev=True),
    **{f"calibration NV {c:g}": golem_by(c) for c in (0.25, 0.5, 1.0, 1.5)},
    **{f"calibration EV {c:g}": golem_by(c, ev=True) for c in (0.25, 0.5, 1.0)},
    "NOTEARS": lambda rows, units: notears(moments_of(rows), standardise=False, threshold=0.3),
}


def admm(rows: Array, units: str, *, without: str = "") -> GraphFit:
    """Return ADMM with the settings of variant "fast"; without: one that is the paper's instead."""
    used = variant_settings("fast", networks=True)
    papers = variant_settings("paper", networks=True)
    growth = ("gamma1", "gamma2")
    changed = {"all": used, "growth": growth}.get(without, (without,)) if without else ()
    used |= {name: papers[name] for name in changed if name in _OF_NETWORKS}
    schedule = Schedule(rho1=MLP_RHO, rho2=used["rho2"], gamma1=used["gamma1"],
                        gamma2=used["gamma2"])  # fmt: skip
    return learn(
        split_rows(rows, SITES), schedule=schedule, penalty=used["penalty"], ridge=used["ridge"],
        zero_diagonal=used["zero_diagonal"],
    )  # fmt: skip


def by_gradients(rows: Array, units: str) -> GraphFit:
    """Return what solver = "gradient" finds, without the rounding of its sums."""
    networks = Networks(rows.shape[1], sparsity=0.01)
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


_OF_NETWORKS = ("gamma1", "gamma2", "rho2", "penalty", "ridge", "zero_diagonal")
NETWORKS: Mapping[str, Callable[[Array, str], GraphFit]] = {
    "ADMM": admm,
    "ADMM, before: the paper's numbers": partial(admm, without="all"),
    "solver = gradient": by_gradients,
    "NOTEARS-MLP on all records": lambda rows, units: notears_mlp(rows, standardise=False),
    **{f"ablation: {name} of the paper": partial(admm, without=name)
       for name in ("growth", "rho2", "penalty", "ridge", "zero_diagonal")},
}  # fmt: skip


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
    sizes, every = (LINEAR, GOLEM) if kind == "golem" else (NONLINEAR, NETWORKS)
    shown = ("GOLEM", "NOTEARS", "ADMM", "solver")
    rules = [rule for rule in every if (only in rule if only else rule.startswith(shown))]
    for d, n in [size for size in sizes if size[0] <= most]:
        for seed in seeds:
            for units in some:
                for rule in rules:
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
