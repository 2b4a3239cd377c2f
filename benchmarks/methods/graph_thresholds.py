"""Which weights of NOTEARS and GOLEM become edges: wrong edges and edges found, by threshold.

    python -m benchmarks.methods.graph_thresholds --seeds 200-229 --cache FILE

Graphs are Erdos-Renyi with as many edges as variables d, and normal errors of variance 1. Effects
are strong (0.5 to 2, as in Ng and Zhang, AISTATS 2022) or weak (0.1 to 0.5). Of each fit, edges are
those with a weight above 0.3 (the paper's) or 0.1; those that the extended BIC keeps among the
causes found ("ebic", `secagg.models.graphs.support`); and those that it keeps among all variables
before the effect in an order of the graph ("ebic, order"). Finished cells are kept in FILE, one
line of JSON each, so a run can be resumed. Errors are standard errors of means over seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.graph_defaults import moments_of
from secagg.experiments.simulated_graphs import erdos_renyi_dag, linear_gaussian_rows
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.acyclicity import acyclic_edges
from secagg.models.graphs.golem import golem
from secagg.models.graphs.metrics import compare_graphs
from secagg.models.graphs.notears import notears
from secagg.models.graphs.result import GraphFit
from secagg.models.graphs.support import Support, heaviest_dag

Cell = dict[str, Any]
Graph = NDArray[np.bool_]

SIZES, RECORDS = (10, 20), (300, 1000, 3000)
EFFECTS = {"strong": (0.5, 2.0), "weak": (0.1, 0.5)}
UNITS = ("standardised", "own")
LEARNERS: dict[str, Callable[[Moments, bool], GraphFit]] = {
    "NOTEARS": lambda m, scaled: notears(m, standardise=scaled, threshold=0.0),
    "GOLEM-NV": lambda m, scaled: golem(m, standardise=scaled, threshold=0.0),
    "GOLEM-EV": lambda m, scaled: golem(
        m, standardise=scaled, threshold=0.0, equal_variances=True
    ),
}  # fmt: skip
RULES = ("0.3", "0.1", "ebic", "ebic, order")
KEYS = ("units", "learner", "effects", "d", "n", "seed")


def graphs(fit: GraphFit, moments: Moments, scaled: bool) -> dict[str, Graph]:
    """Return the graph by each rule."""
    assert fit.weights is not None
    W = np.where(np.eye(len(fit.names), dtype=np.bool_), 0, fit.weights)
    support = Support(moments.correlation if scaled else moments.covariance, moments.n)
    found = heaviest_dag(W)
    order = list(nx.topological_sort(nx.from_numpy_array(found, create_using=nx.DiGraph)))
    place = np.argsort(order)
    return {
        "0.3": acyclic_edges(W, 0.3)[0],
        "0.1": acyclic_edges(W, 0.1)[0],
        "ebic": support.supported(found),
        "ebic, order": support.supported(place[:, None] < place),
    }


def compute(cell: Cell) -> list[Cell]:
    d, n, scaled = cell["d"], cell["n"], cell["units"] == "standardised"
    rng = np.random.default_rng([43, d, cell["seed"], list(EFFECTS).index(cell["effects"])])
    truth = erdos_renyi_dag(d, d, rng)
    sizes = rng.uniform(*EFFECTS[cell["effects"]], truth.shape)
    W = truth * np.where(rng.random(truth.shape) < 0.5, -sizes, sizes)
    moments = moments_of(linear_gaussian_rows(W, max(RECORDS), rng)[:n])
    start = time.process_time()
    fit = LEARNERS[cell["learner"]](moments, scaled)
    seconds = time.process_time() - start
    scores = {
        rule: compare_graphs(graph, truth, np.zeros_like(graph))
        for rule, graph in graphs(fit, moments, scaled).items()
    }
    return [
        {**cell, "rule": rule, "shd": s.shd, "tpr": s.tpr, "extra": s.extra, "reversed": s.reversed,
         "seconds": seconds}
        for rule, s in scores.items()
    ]  # fmt: skip


def table(found: list[Cell]) -> str:
    """Return SHD with standard errors and, after the semicolon, the share of edges found."""
    groups = defaultdict[tuple[Any, ...], list[Cell]](list)
    for cell in found:
        groups[(*(cell[key] for key in KEYS[:-1]), cell["rule"])].append(cell)
    rows = list(dict.fromkeys(key[:-1] for key in sorted(groups)))
    lines = [f"| units | learner | effects | d | n | {' | '.join(RULES)} | seeds |",
             f"|{'---|' * (len(RULES) + 6)}"]  # fmt: skip
    for row in rows:
        shown = [f"{value}" for value in row]
        for rule in RULES:
            some = groups[(*row, rule)]
            shd, tpr = ([cell[key] for cell in some] for key in ("shd", "tpr"))
            shown.append(
                f"{np.mean(shd):.1f} ({error(shd):.1f}); {np.mean(tpr):.2f} ({error(tpr):.2f})"
            )
        lines.append(f"| {' | '.join(shown)} | {len(groups[(*row, RULES[0])])} |")
    return "\n".join(lines)


def error(values: list[float]) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def main() -> None:
    """Compute the cells that are not in the cache, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="200-229")
    parser.add_argument("--cache", type=Path, required=True)
    given = parser.parse_args()
    low, high = map(int, given.seeds.split("-"))
    lines = given.cache.read_text().splitlines() if given.cache.exists() else []
    found = [json.loads(line) for line in lines]
    done = {tuple(cell[key] for key in KEYS) for cell in found}
    with given.cache.open("a") as file:
        for seed in range(low, high + 1):
            for values in product(UNITS, LEARNERS, EFFECTS, SIZES, RECORDS):
                cell = dict(zip(KEYS, (*values, seed), strict=True))
                if tuple(cell.values()) not in done:
                    new = compute(cell)
                    found += new
                    file.writelines(json.dumps(each) + "\n" for each in new)
                    file.flush()
    print(table(found))


if __name__ == "__main__":
    main()
