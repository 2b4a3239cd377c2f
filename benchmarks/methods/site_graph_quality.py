"""How well merged graphs of sites agree with a known graph of mixed columns: a table of F1.

    python -m benchmarks.methods.site_graph_quality --replicates 25 --cache FILE

Each replicate has a random graph of d columns with two neighbours on average, and a normal
distribution with this graph (precision entries of size 0.3 to 0.6 times a sign, before the matrix
is made positive definite). 40 % of the columns are normal variables, 30 % are cut at one point and
30 % at two. K sites have 200 to 1000 records each, unless --records is given. F1 of pairs of
columns, with Monte Carlo errors: of the union of the sites' graphs, of edges with two votes, of
edges that most sites have, and of all records in one place; there also of scikit-learn's graphical
lasso with its cross-validation.

Cut variables that are independent given the normal ones behind them are not quite independent given
the cut ones. So with many records every recovery finds more pairs than the graph has.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import GraphicalLassoCV

from secagg.models.neural.graph_votes import vote_level
from secagg.models.neural.site_graphs import Recovery, site_graph

Array = NDArray[np.float64]
Graph = NDArray[np.bool_]

COLUMNS, SITES = (10, 20), (3, 10)
FALSE_EDGES, PC_ALPHA = 0.2, 0.01
RECOVERIES = ("partial_correlation", "graphical_lasso", "pc")


def network(rng: np.random.Generator, d: int) -> tuple[Graph, Array]:
    """Return a random graph and a covariance matrix with this graph."""
    half = np.triu(rng.random((d, d)) < 2 / (d - 1), 1)
    entries = rng.choice([-1, 1], (d, d)) * rng.uniform(0.3, 0.6, (d, d))
    precision = np.where(half, entries, 0.0)
    precision += precision.T
    precision += np.eye(d) * (max(0.0, -np.linalg.eigvalsh(precision)[0]) + 0.3)
    return half | half.T, np.linalg.inv(precision)


def records(rng: np.random.Generator, S: Array, n: int) -> tuple[Array, list[list[int]]]:
    """Return the variables of n records, and the positions of each column's variables."""
    d = len(S)
    z = rng.normal(size=(n, d)) @ np.linalg.cholesky(S).T / np.sqrt(np.diagonal(S))
    cut = 3 * d // 10
    variables: list[Array] = []
    columns: list[list[int]] = []
    for j, kind in enumerate([0] * (d - 2 * cut) + [1] * cut + [2] * cut):
        x = z[:, j]
        levels = [x, x > 0.5, (x > -0.5) & (x <= 0.6), x > 0.6]
        new = [levels[:1], levels[1:2], levels[2:]][kind]
        columns.append(list(range(len(variables), len(variables) + len(new))))
        variables += [np.asarray(level, dtype=np.float64) for level in new]
    return np.column_stack(variables), columns


def f1(graph: Graph, truth: Graph) -> float:
    """Return the harmonic mean of precision and recall of pairs."""
    return 2 * float(np.sum(graph & truth)) / max(float(np.sum(graph) + np.sum(truth)), 1.0)


def cross_validated(values: Array, columns: Sequence[Sequence[int]]) -> Graph:
    """Return the graph of scikit-learn's graphical lasso; a pair counts if any entry does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GraphicalLassoCV().fit((values - values.mean(axis=0)) / values.std(axis=0))
    used = np.abs(model.precision_) > 1e-8
    graph = np.array([[np.any(used[np.ix_(a, b)]) for b in columns] for a in columns])
    np.fill_diagonal(graph, False)
    return graph


def replicate(seed: Sequence[int], d: int, sizes: Sequence[int]) -> dict[str, float]:
    """Return the F1 of every recovery and rule. sizes: numbers of records of the sites."""
    rng = np.random.default_rng(seed)
    truth, S = network(rng, d)
    sites, K = [records(rng, S, n) for n in sizes], len(sizes)
    columns, pairs = sites[0][1], d * (d - 1) // 2
    pooled = np.concatenate([values for values, _ in sites])
    scores = {"scikit-learn, pooled": f1(cross_validated(pooled, columns), truth)}
    for name in RECOVERIES:
        recovery = cast(Recovery, name)
        for rule, votes in (("union", 1), ("two votes", 2), ("majority", K // 2 + 1)):
            level = vote_level(pairs, K, votes, FALSE_EDGES)
            alpha = level if name == "partial_correlation" else PC_ALPHA
            if rule == "union" or name == "partial_correlation":
                graphs = [site_graph(values, columns, recovery, alpha=alpha) for values, _ in sites]
            scores[f"{name}, {rule}"] = f1(np.sum(graphs, axis=0) >= votes, truth)
        alpha = vote_level(pairs, 1, 1, FALSE_EDGES) if name == "partial_correlation" else PC_ALPHA
        scores[f"{name}, pooled"] = f1(site_graph(pooled, columns, recovery, alpha=alpha), truth)
    return scores


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=25)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--records", type=int, nargs=2, default=(200, 1000))
    parser.add_argument("--cache", type=Path, required=True)
    given = parser.parse_args()
    low, high = given.records
    done = json.loads(given.cache.read_text()) if given.cache.exists() else {}
    for number in range(given.replicates):
        for d in COLUMNS:
            for K in SITES:
                key = f"{d} {K} {low} {high} {given.seed} {number}"
                if key not in done:
                    seed = [given.seed, number, d, K, low, high]
                    sizes = np.random.default_rng(seed).integers(low, high, K, endpoint=True)
                    done[key] = replicate([*seed, 1], d, sizes.tolist())
                    given.cache.write_text(json.dumps(done))
    table: dict[str, list[str]] = defaultdict(list)
    for d in COLUMNS:
        for K in SITES:
            cell = f"{d} {K} {low} {high} {given.seed} "
            rows = [row for key, row in done.items() if key.startswith(cell)]
            for name in rows[0]:
                x = np.array([row[name] for row in rows])
                table[name].append(f"{x.mean():.3f} ({x.std(ddof=1) / np.sqrt(len(x)):.3f})")
    print("| F1 |", " | ".join(f"d = {d}, K = {K}" for d in COLUMNS for K in SITES), "|")
    for name, cells in table.items():
        print("|", name, "|", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
