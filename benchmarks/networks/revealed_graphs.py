"""Which edges `fedngr` and `fedngm` find by default: weak and strong effects of mixed columns.

    python -m benchmarks.networks.revealed_graphs CELLS [--seeds N] [--records N ...]

CELLS is a file to which each cell is appended as a line of JSON; finished cells are not computed
again. Records of a random directed graph at three sites: 40 % of the columns have two levels, and
with eight columns or more one has three; 1.5 edges a column on average, effects uniform from .2 to
1 in either direction, a third of those of numbers quadratic. The truth is the moral graph. TPR: the
share of its edges that is found; FDR: the share of found edges that it lacks; SHD: their sum, in
edges. Errors are standard errors over seeds. Defaults were chosen on other seeds. "Settled": in how
many runs the search of `fedngr` says that its graph has settled. With 50 rounds it should not.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, softmax

from benchmarks.harness import store_row, stored_rows, table, with_error
from reproductions.harness.simulated_runs import simulated
from secagg.models.graphs.pdag import moral_graph

SITES = 3
RECORDS, COLUMNS = (300, 1000, 2000), (6, 12)
METHODS: dict[str, dict[str, Any]] = {
    "fedngr": {"name": "fedngr", "refit": False},
    "fedngr, 50 rounds": {"name": "fedngr", "refit": False, "rounds": 50},
    "fedngm": {"name": "fedngm", "rounds": 1, "count_fit": False},
}
_WIDE = {"type": "continuous", "low": -8, "high": 8}
_KINDS: dict[str, Mapping[str, object]] = {
    "number": _WIDE, "binary": {"type": "binary"},
    "levels": {"type": "categorical", "levels": ["p", "q", "r"]},
}  # fmt: skip


class Mixed:
    """A random directed graph of d columns."""

    def __init__(self, rng: np.random.Generator, d: int) -> None:
        self.order = rng.permutation(d)
        self.kind = np.where(rng.random(d) < 0.4, "binary", "number").astype(object)
        if d >= 8:
            self.kind[rng.integers(d)] = "levels"
        edges = np.zeros((d, d), dtype=np.bool_)
        for i, cause in enumerate(self.order):
            edges[cause, self.order[i + 1 :]] = rng.random(d - i - 1) < 1.5 / (d - 1)
        self.edges = edges
        self.weights = edges * rng.choice([-1, 1], (d, d)) * rng.uniform(0.2, 1.0, (d, d))
        self.curved = edges & (rng.random((d, d)) < 1 / 3)
        self.moral = moral_graph(edges, np.zeros_like(edges))

    def columns(self) -> dict[str, Mapping[str, object]]:
        return {f"v{j}": _KINDS[kind] for j, kind in enumerate(self.kind)}

    def rows(self, rng: np.random.Generator, n: int) -> pd.DataFrame:
        d = len(self.order)
        x, cells = np.zeros((n, d)), {}
        for j in self.order:
            eta = np.zeros(n)
            for cause in np.flatnonzero(self.edges[:, j]):
                read = x[:, cause]
                if self.curved[cause, j] and self.kind[cause] == "number":
                    read = (read**2 - 1) / 1.4
                eta += self.weights[cause, j] * read
            if self.kind[j] == "number":
                drawn = (eta + rng.normal(size=n)) / np.sqrt(1 + np.var(eta))
                x[:, j], cells[j] = drawn, drawn.clip(-7.9, 7.9)
            elif self.kind[j] == "binary":
                cells[j] = (rng.random(n) < expit(2 * eta)).astype(int)
                x[:, j] = 2 * cells[j] - 1
            else:
                shares = softmax(np.stack([0 * eta, 1.5 * eta, eta**2 / 2 - 1], axis=1), axis=1)
                level = (rng.random(n)[:, None] > shares.cumsum(axis=1)).sum(axis=1).clip(0, 2)
                x[:, j], cells[j] = level - 1, np.array(["p", "q", "r"])[level]
        return pd.DataFrame({f"v{j}": cells[j] for j in range(d)})


def cell(name: str, d: int, records: int, seed: int) -> dict[str, Any]:
    graph = Mixed(np.random.default_rng([31, seed, d]), d)
    drawn = graph.rows(np.random.default_rng([32, seed, d, records]), records)
    tables = {f"s{k}": drawn.iloc[k::SITES] for k in range(SITES)}
    result, _ = simulated(METHODS[name], graph.columns(), tables, seed)
    found = np.zeros((d, d), dtype=np.bool_)
    for edge in result.summary["edges"]:
        i, j = (int(column[1:]) for column in edge["between"])
        found[i, j] = found[j, i] = True
    pairs = np.triu_indices(d, 1)
    got, true = found[pairs], graph.moral[pairs]
    return {
        "method": name, "columns": d, "records": records, "seed": seed,
        "true": int(true.sum()), "found": int(got.sum()), "right": int((got & true).sum()),
        "settled": result.summary.get("converged") is not False,
    }  # fmt: skip


def shown(cells: list[dict[str, Any]]) -> str:
    """Return the table of all cells."""
    groups = sorted({(c["method"], c["columns"], c["records"]) for c in cells})
    rows = []
    for group in groups:
        chosen = [c for c in cells if (c["method"], c["columns"], c["records"]) == group]
        tpr = [c["right"] / c["true"] for c in chosen if c["true"]]
        fdr = [1 - c["right"] / c["found"] if c["found"] else 0.0 for c in chosen]
        shd = [c["true"] + c["found"] - 2 * c["right"] for c in chosen]
        settled = sum(c["settled"] for c in chosen) if group[0].startswith("fedngr") else "–"
        rows.append([*group, len(chosen), with_error(tpr, 2), with_error(fdr, 2),
                     with_error(shd, 1), settled])  # fmt: skip
    return table(("method", "columns", "records", "seeds", "TPR", "FDR", "SHD", "settled"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--records", type=int, nargs="+", default=list(RECORDS))
    parser.add_argument("--columns", type=int, nargs="+", default=list(COLUMNS))
    asked = parser.parse_args()
    cells = stored_rows(asked.cells)
    done = {(c["method"], c["columns"], c["records"], c["seed"]) for c in cells}
    for key in product(range(asked.seeds), METHODS, asked.columns, asked.records):
        seed, name, d, records = key
        if (name, d, records, seed) not in done:
            cells.append(cell(name, d, records, seed))
            store_row(asked.cells, cells[-1])
    print(shown(cells))


if __name__ == "__main__":
    main()
