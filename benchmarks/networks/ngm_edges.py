"""What the graph of `fedngm` finds, and what it costs: behind edges = "pooled", inputs = "aic".

    python -m benchmarks.networks.ngm_edges graphs --seeds 0-9 --cache FILE        5 minutes
    python -m benchmarks.networks.ngm_edges predictions --seeds 0-9 --cache FILE   1 hour

`graphs`: F1 of the graph against the truth, K sites of n records, 10 columns: normal variables;
normal variables of which 60 % are cut into two or three levels; and columns of a random directed
graph, half of them logistic and half linear, whose truth is the moral graph (of what is observed;
for cut variables the truth is that of the variables before they are cut).
`predictions`: of each column given all others, of records that no site has. Births of three tables,
heart patients of four hospitals, and the directed graphs above, with 20 columns and few records.
Area under the ROC curve (AUC) of two levels, R^2 of numbers, negative log pseudo-likelihood; beside
logistic regression and least squares on all columns of all records. Finished cells are kept in
FILE, one line of JSON each. Errors are standard errors of means over seeds.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.methods.site_graph_quality import f1, network, records
from reproductions.data import births
from reproductions.harness.simulated_runs import job_of, simulated
from secagg.jobs.job import read_job
from secagg.models.graphs.pdag import moral_graph
from secagg.models.neural.graph_votes import vote_level
from secagg.models.neural.site_graphs import site_graph
from secagg.runs.networks.finished_ngm import FinishedNgmRun

Array = NDArray[np.float64]
Columns = Mapping[str, Mapping[str, object]]
Tables = dict[str, pd.DataFrame]

SORTS, SITES, SIZES, FALSE_EDGES = ("normal", "cut", "directed"), (3, 10), (60, 200, 1000), 0.2
MODELS: dict[str, dict[str, object]] = {
    "votes (former default)": {"edges": "votes"},
    "pooled, neighbours": {"inputs": "neighbours"},
    "pooled, aic (default)": {},
    "all pairs": {"edges": "all"},
}
LINEAR = "regressions on all columns"
HEART = Path("examples/heart-disease")
DATA = ("births14", "heart", "birthwt", "bwght2", "directed, 3 x 60", "directed, 3 x 200")
_TESTED = 0.2


class Directed:
    """A random directed graph of d columns, half of them with two levels."""

    def __init__(self, rng: np.random.Generator, d: int) -> None:
        self.order, self.binary = rng.permutation(d), rng.random(d) < 0.5
        edges = np.zeros((d, d), dtype=np.bool_)
        for i, cause in enumerate(self.order):
            edges[cause, self.order[i + 1 :]] = rng.random(d - i - 1) < 1.5 / (d - 1)
        self.weights = edges * rng.choice([-1, 1], (d, d)) * rng.uniform(0.5, 1.0, (d, d))
        self.moral = moral_graph(edges, np.zeros_like(edges))

    def rows(self, rng: np.random.Generator, n: int) -> Array:
        """Return records; levels are -1 and 1."""
        x = np.zeros((n, len(self.order)))
        for j in self.order:
            eta = x @ self.weights[:, j]
            if self.binary[j]:
                x[:, j] = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * eta)), 1, -1)
            else:
                x[:, j] = eta + rng.normal(size=n)
        return x


def graphs(sort: str, K: int, n: int, seed: int) -> dict[str, float]:
    """Return F1 by rule."""
    rng, d = np.random.default_rng([5, seed, K, n, len(sort)]), 10
    columns = [[j] for j in range(d)]
    if sort == "directed":
        graph = Directed(rng, d)
        truth, sites = graph.moral, [graph.rows(rng, n) for _ in range(K)]
    else:
        truth, S = network(rng, d)
        if sort == "cut":
            drawn = [records(rng, S, n) for _ in range(K)]
            sites, columns = [values for values, _ in drawn], drawn[0][1]
        else:
            sites = [rng.multivariate_normal(np.zeros(d), S, n) for _ in range(K)]
    pooled, pairs = np.concatenate(sites), d * (d - 1) // 2
    alpha, single = (vote_level(pairs, k, v, FALSE_EDGES) for k, v in ((K, 2), (1, 1)))
    votes = [site_graph(x, columns, "partial_correlation", alpha=alpha) for x in sites]
    lasso = [site_graph(x, columns, "graphical_lasso") for x in sites]
    return {
        "votes (former default)": f1(np.sum(votes, axis=0) >= 2, truth),
        "pooled, tests (default)": f1(
            site_graph(pooled, columns, "partial_correlation", alpha=single), truth
        ),
        "pooled, graphical lasso": f1(site_graph(pooled, columns, "graphical_lasso"), truth),
        "union of graphical lassos": f1(np.any(lasso, axis=0), truth),
    }


def tables(data: str, seed: int) -> tuple[Columns, Tables, pd.DataFrame]:
    """Return columns, the sites' tables, and records that no site has."""
    rng = np.random.default_rng([7, seed])
    if data == "heart":
        job = tomllib.loads((HEART / "fedngm.toml").read_text())
        parts = {
            file.stem: pd.read_csv(file)[list(job["columns"])].dropna()
            for file in sorted((HEART / "data").glob("*.csv"))
        }
        chosen = {name: rng.random(len(table)) < _TESTED for name, table in parts.items()}
        sites = {name: table[~chosen[name]] for name, table in parts.items()}
        return job["columns"], sites, pd.concat(t[chosen[n]] for n, t in parts.items())
    if data.startswith("directed"):
        graph, n = Directed(rng, 20), int(data.rpartition(" ")[2])
        names = [f"x{j}" for j in range(20)]
        level = {"type": "binary", "levels": ["low", "high"]}
        number = {"type": "continuous", "low": -40, "high": 40}
        columns = {x: level if b else number for x, b in zip(names, graph.binary, strict=True)}
        drawn = []
        for size in (n, n, n, 1000):
            table = pd.DataFrame(graph.rows(rng, size), columns=names)
            for name in [x for x, b in zip(names, graph.binary, strict=True) if b]:
                table[name] = np.where(table[name] > 0, "high", "low")
            drawn.append(table)
        return columns, dict(zip("abc", drawn, strict=False)), drawn[3]
    found = getattr(births, data)()
    n = {"births14": 180, "bwght2": 300, "birthwt": 36}[data]
    table, columns = found.table, dict(found.columns)
    if data == "bwght2":
        table = table.assign(cigs=np.where(table["cigs"] > 0, "yes", "no"))
        columns["cigs"] = {"type": "binary", "levels": ["no", "yes"]}
    table = table.iloc[rng.permutation(len(table))].reset_index(drop=True)
    sites = {name: table.iloc[k * n : (k + 1) * n] for k, name in enumerate("abc")}
    return columns, sites, table.iloc[3 * n :]


def predictions(data: str, model: str, seed: int) -> dict[str, float]:
    """Return the measures of a model."""
    columns, sites, test = tables(data, seed)
    if model == LINEAR:
        return regressions(columns, pd.concat(sites.values()), test)
    method = {"name": "fedngm", **MODELS[model], "seed": seed}
    result, _ = simulated(method, columns, sites, seed)
    run = FinishedNgmRun.of(read_job(job_of(method, columns, sites)), result)
    found: dict[str, list[float]] = defaultdict(list)
    for name in columns:
        estimates = run.predict(test, [name])[name].estimates
        numbers = estimates["mean"] if "mean" in estimates else estimates.iloc[:, 1]
        score(found, name, columns[name], test[name], numbers.to_numpy())
    pseudo = -float(np.mean(run.log_pseudo_likelihood(test)))
    summary = result.summary
    more = {"neg_log_pl": pseudo, "edges": len(summary["edges"]), "rounds": summary["rounds"]}
    if "linear_inputs" in summary:
        more["linear_inputs"] = len(summary["linear_inputs"])
    return {name: float(np.mean(values)) for name, values in found.items()} | more


def score(
    found: dict[str, list[float]], name: str, column: Any, truth: pd.Series[Any], numbers: Array
) -> None:
    """Add the measure of a column; of three levels and more there is none."""
    if column["type"] in ("continuous", "count"):
        found["r2"].append(float(r2_score(truth.astype(float), numbers)))
        return
    levels = [str(level) for level in column.get("levels", ("0", "1"))]
    if len(levels) == 2 and 0 < (of_level := with_level(truth, levels[1])).mean() < 1:
        area = float(roc_auc_score(of_level, numbers))
        found["auc"].append(area)
        if name in ("habit", "cigs", "smoke", "disease"):
            found["auc_target"].append(area)


def with_level(values: pd.Series[Any], level: str) -> NDArray[np.bool_]:
    """Return which records have a level; 1.0 is the level "1"."""
    if pd.api.types.is_numeric_dtype(values):
        return (values == float(level)).to_numpy()
    return (values.astype(str) == level).to_numpy()


def regressions(columns: Columns, train: pd.DataFrame, test: pd.DataFrame) -> dict[str, float]:
    """Return the measures of least squares and logistic regression, one for each column."""
    found: dict[str, list[float]] = defaultdict(list)
    for name, column in columns.items():
        inputs = [_encoded(columns, table, name) for table in (train, test)]
        if column["type"] in ("continuous", "count"):
            fit = LinearRegression().fit(inputs[0], train[name].astype(float))
            score(found, name, column, test[name], fit.predict(inputs[1]))
            continue
        levels = column.get("levels", ("0", "1"))
        assert isinstance(levels, list | tuple)
        if len(levels) > 2:
            continue
        outcome = with_level(train[name], str(levels[1]))
        logistic = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=1000))
        shares = logistic.fit(inputs[0], outcome).predict_proba(inputs[1])[:, 1]
        score(found, name, column, test[name], shares)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _encoded(columns: Columns, table: pd.DataFrame, left_out: str) -> Array:
    parts: list[Array] = []
    for name, column in columns.items():
        if name == left_out:
            continue
        if column["type"] in ("continuous", "count"):
            parts.append(table[[name]].to_numpy(dtype=np.float64))
            continue
        levels = column.get("levels", ("0", "1"))
        assert isinstance(levels, list | tuple)
        parts += [with_level(table[name], str(x)).astype(float)[:, None] for x in levels[1:]]
    return np.hstack(parts)


def cells(kind: str, seeds: range) -> Iterator[tuple[str, str, int]]:
    """Return (column of the table, row, seed); a row of "" gives all rows at once."""
    if kind == "graphs":
        tables = [(f"{sort}, {K} x {n}", "") for sort in SORTS for K in SITES for n in SIZES]
    else:
        tables = [(data, model) for data in DATA for model in (*MODELS, LINEAR)]
    for column, row in tables:
        for seed in seeds:
            yield column, row, seed


def main() -> None:
    """Compute what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("graphs", "predictions"))
    parser.add_argument("--seeds", default="0-9")
    parser.add_argument("--cache", type=Path, required=True)
    given = parser.parse_args()
    low, high = map(int, given.seeds.split("-"))
    lines = given.cache.read_text().splitlines() if given.cache.exists() else []
    done = {tuple(cell["key"]): cell["found"] for cell in map(json.loads, lines)}
    wanted = [(given.kind, *cell) for cell in cells(given.kind, range(low, high + 1))]
    for key in wanted:
        if key in done:
            continue
        _, column, row, seed = key
        if given.kind == "graphs":
            sort, _, size = column.partition(", ")
            K, n = map(int, size.split(" x "))
            done[key] = graphs(sort, K, n, seed)
        else:
            done[key] = predictions(column, row, seed)
        with given.cache.open("a") as file:
            file.write(json.dumps({"key": key, "found": done[key]}) + "\n")
    table: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for key in wanted:
        for name, value in done[key].items():
            at = (key[1], name, "F1") if given.kind == "graphs" else (key[1], key[2], name)
            table[at].append(value)
    measures = list(dict.fromkeys(at[2] for at in table))
    rows = list(dict.fromkeys((at[0], at[1]) for at in table))
    print("| | |", " | ".join(measures), "|")
    print("|---|---|" + "--:|" * len(measures))
    for column, row in rows:
        shown = (_mean(table.get((column, row, name))) for name in measures)
        print("|", column, "|", row, "|", " | ".join(shown), "|")


def _mean(values: list[float] | None) -> str:
    if not values:
        return ""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.3f} ({error:.3f})"


if __name__ == "__main__":
    main()
