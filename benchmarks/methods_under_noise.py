"""What noise costs under each method: one table of methods, placements and epsilons.

    make placements, or methods_under_noise.py [--repeat 3] [--epsilon 1 4 8] [--only regression]

Simulated: four sites of 500 records, four predictors (`noise_at_sites.records`) or six columns of a
random graph with six edges (`graphs_under_noise.simulated`, 1000 records a site). Hospitals: the
columns of examples/heart-disease/linear.toml. Every row is `--repeat` whole runs, with new records
in simulations and new noise at the hospitals. delta is 1e-5, the record norm 1.2.

error: |b - truth| / |truth| of the slopes, per standard deviation of the column; the median. The
    truth is known in simulations; at the hospitals it is the method's own result without noise
SHD: the structural Hamming distance from the true graph, or from the method's own graph without
    noise (sparse_markov: number of wrong pairs); the mean and its standard error
coverage: how often the 90 % intervals of slopes in common contain the truth; in simulations
"""

from __future__ import annotations

import argparse
import math
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from graphs_under_noise import simulated
from noise_at_sites import SLOPES, records

import secagg
from secagg.core.arrays import Array
from secagg.models.graphs.metrics import compare_graphs

HOSPITALS = Path(__file__).parents[1] / "examples" / "heart-disease"
SPARSE = {"rounds": 800, "level": 0.9}
ROUND = {"name": "gradient", "family": "gaussian", "rounds": 60}
REGRESSIONS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"name": "moments"}, "sum"),
    ({"name": "moments"}, "site"),
    (ROUND, "round"),
    ({"name": "fedavg"}, "site"),
    ({"name": "fedlin_hm1"}, "site"),
    ({"name": "fedlin_hm2", "level": 0.9}, "site"),
    ({"name": "sparse_regression", **SPARSE}, "site"),
)
GRAPHS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"name": "moments", "analyses": [{"kind": "notears"}]}, "sum"),
    ({"name": "moments", "analyses": [{"kind": "notears"}]}, "site"),
    ({"name": "notears_admm"}, "site"),
    ({"name": "local_graphs", "learner": "ges", "redraws": 0}, "site"),
    ({"name": "notears_mlp_admm"}, "round"),
    ({"name": "sparse_markov", "rounds": 400}, "site"),
    ({"name": "sparse_directed", "errors": "gaussian", "ordered": True, "rounds": 400}, "site"),
)
Tables = dict[str, pd.DataFrame]


def job_of(
    method: dict[str, Any], placement: str, epsilon: float, columns: dict[str, Any]
) -> dict[str, Any]:
    """Return a job; epsilon inf: without noise."""
    found: dict[str, Any] = {
        "title": "Placements",
        "sites": {"max_rows": 5000},
        "columns": columns,
        "method": method,
        "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 5},
    }
    if not math.isinf(epsilon):
        found["privacy"] = {
            "placement": placement, "epsilon": epsilon, "delta": 1e-5, "record_norm": 1.2,
        }  # fmt: skip
    return found


def for_outcome(method: dict[str, Any], outcome: str, predictors: list[str]) -> dict[str, Any]:
    """Return the method for this regression."""
    terms = {"outcome": outcome, "predictors": predictors}
    if method["name"] == "moments":
        return method | {"analyses": [{"kind": "ols", "level": 0.9, **terms}]}
    return method | terms


def slopes(summary: dict[str, Any]) -> tuple[Array, Array | None]:
    """Return the slopes in the columns' own units, and their intervals if there are any."""
    if "coefficients" in summary:
        rows = [row["own_units"] for row in summary["coefficients"]]
        return _column(rows, "mean"), np.array([_column(rows, "low"), _column(rows, "high")])
    if "across_sites" in summary:
        means = _column([row["own_units"] for row in summary["across_sites"]], "mean")
        shared = summary.get("shared", [])[: len(means)]
        if not shared:
            return means, None
        bounds = np.array([_column(shared, "low"), _column(shared, "high")])
        return _column(shared, "estimate"), bounds
    (analysis,) = summary.get("analyses", [summary])
    rows = [row for row in analysis["terms"] if row["term"] != "(intercept)"]
    if rows[0].get("ci_low") is None:
        return _column(rows, "estimate"), None
    return _column(rows, "estimate"), np.array([_column(rows, "ci_low"), _column(rows, "ci_high")])


def graph(arrays: dict[str, Array]) -> Array:
    """Return the arrows, [i, j] for i -> j; a pair without a direction has both."""
    if "edges" in arrays:
        return np.asarray(arrays["edges"], dtype=bool)
    directed, undirected = (
        next(value for name, value in arrays.items() if name.endswith(end))
        for end in ("_directed" if "directed" not in arrays else "directed", "undirected")
    )
    return np.asarray(directed | undirected, dtype=bool)


def distance(found: Array, truth: Array) -> float:
    """Return the SHD, or the number of wrong pairs if the truth has no directions."""
    if np.any(truth & truth.T):
        wrong = (found | found.T) ^ (truth | truth.T)
        return float(np.triu(wrong, 1).sum())
    both = found & found.T
    return float(compare_graphs(found & ~both, truth, both).shd)


def _column(rows: list[dict[str, Any]], name: str) -> Array:
    return np.array([row[name] for row in rows], dtype=np.float64)


class Data:
    """A source of records: what is drawn in each repetition, and what is true."""

    def __init__(self, where: str, kind: str) -> None:
        self.where, self.kind = where, kind
        if where == "hospitals":
            job = tomllib.loads((HOSPITALS / "linear.toml").read_text(encoding="utf-8"))
            names = sorted((HOSPITALS / "data").glob("*.csv"))
            self.tables = {path.stem: pd.read_csv(path) for path in names}
            self.columns = job["columns"]
            ols = next(a for a in job["method"]["analyses"] if a["kind"] == "ols")
            self.outcome, self.predictors = ols["outcome"], ols["predictors"]
            pooled = pd.concat(self.tables.values())[self.predictors].dropna()
            numbers = pooled.apply(
                lambda c: c if c.dtype.kind in "if" else c.astype("category").cat.codes
            )
            self.scale = numbers.std().to_numpy()
            return
        many, limit = (5, 4) if kind == "regression" else (6, 5)
        names = [*(f"x{j}" for j in range(many - 1)), "y"]
        if kind == "graph":
            names = [f"x{j}" for j in range(many)]
        self.columns = {
            name: {"type": "continuous", "low": -limit, "high": limit} for name in names
        }
        self.outcome, self.predictors, self.scale = "y", names[:-1], np.ones(many - 1)

    def draw(self, seed: int) -> tuple[Tables, Array | None]:
        """Return records, and the true slopes or graph; None if the method's own result is it."""
        if self.where == "hospitals":
            return self.tables, None
        rng = np.random.default_rng(seed)
        if self.kind == "regression":
            return {f"s{k}": records(rng, 500, SLOPES) for k in range(4)}, SLOPES
        truth, X = simulated(rng, 6, 1000, 6)
        order = causal_order(truth)  # for `ordered`; other methods do not use it
        parts = np.split(X[:, order], 4)
        names = list(self.columns)
        tables = {f"s{k}": pd.DataFrame(part, columns=names) for k, part in enumerate(parts)}
        return tables, truth[np.ix_(order, order)]


def causal_order(truth: Array) -> list[int]:
    """Return the columns, causes first."""
    left, found = list(range(len(truth))), list[int]()
    while left:
        j = next(j for j in left if not truth[left, j].any())
        found.append(j)
        left.remove(j)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0, 8.0])
    parser.add_argument("--only", choices=("regression", "graph"))
    asked = parser.parse_args()
    print("| records | method | placement | epsilon | error or SHD | coverage | seconds |")
    print("|---|---|---|---|---|---|---|")
    for kind, methods in (("regression", REGRESSIONS), ("graph", GRAPHS)):
        if asked.only in (None, kind):
            for where in ("simulated", "hospitals"):
                for method, placement in methods:
                    rows(Data(where, kind), method, placement, asked.epsilon, asked.repeat)


def rows(
    data: Data, method: dict[str, Any], placement: str, epsilons: list[float], repeat: int
) -> None:
    """Print the rows of one method and placement."""
    regression = data.kind == "regression"
    if regression:
        method = for_outcome(method, data.outcome, data.predictors)
    own: Array | None = None
    for epsilon in (math.inf, *epsilons):
        errors, covered, took = list[float](), list[Array](), list[float]()
        for seed in range(1 if own is None and data.where == "hospitals" else repeat):
            tables, truth = data.draw(seed)
            began = time.process_time()
            result = secagg.run(job_of(method, placement, epsilon, data.columns), tables).result
            took.append(time.process_time() - began)
            if regression:
                found, bounds = slopes(result.summary)
                truth = found if truth is None and own is None else own if truth is None else truth
                assert truth is not None
                errors.append(float(np.linalg.norm((found - truth) * data.scale)
                                    / np.linalg.norm(truth * data.scale)))  # fmt: skip
                if bounds is not None and data.where == "simulated":
                    covered.append((bounds[0] <= truth) & (truth <= bounds[1]))
            else:
                found = graph(result.arrays)
                if truth is not None and method["name"] == "sparse_markov":
                    truth = moral(truth)
                truth = found if truth is None and own is None else own if truth is None else truth
                assert truth is not None
                errors.append(distance(found, truth))
            if data.where == "hospitals" and own is None:
                own = found
        se = np.std(errors, ddof=1) / math.sqrt(repeat) if len(errors) > 1 else 0.0
        error = f"{np.median(errors):.2f}" if regression else f"{np.mean(errors):.1f} ({se:.1f})"
        cover = f"{np.mean(covered):.2f}" if covered else ""
        name = "none" if math.isinf(epsilon) else f"{epsilon:g}"
        print(f"| {data.where} | {method['name']} | {placement} | {name} | {error} | {cover} | "
              f"{np.mean(took):.1f} |", flush=True)  # fmt: skip


def moral(truth: Array) -> Array:
    """Return the pairs that are dependent given all others: edges, and causes of one column."""
    arrows = truth.astype(np.int64)
    pairs: Array = (truth | truth.T | (arrows @ arrows.T > 0)) & ~np.eye(len(truth), dtype=bool)
    return pairs


if __name__ == "__main__":
    main()
