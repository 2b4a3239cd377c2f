"""Bias and coverage of queries of `fedngm` and `fedngr` against known conditional distributions.

    python -m benchmarks.networks.query_coverage CELLS [--seeds N] [--records N ...] [--methods M]

CELLS is a file to which each cell is appended as a line of JSON: one method, number of records and
seed. Cells in the file are not computed again. A table of all cells is printed at the end.

Records are those of seven columns at three sites of equal size:

    x1 ~ N(0, 1),  x2 ~ N(1.2 sin(1.5 x1), .5^2),  P(b3 = 1) = s(2 x2),  x4 ~ N(b3 - .5, .7^2),
    c5 has the scores (0, 1.5 x4, x4^2 / 2 - 1),  x6 ~ N(.6 x1, .8^2),  P(b7 = 1) = .3

with s the logistic function. The conditional distributions of the queries follow by quadrature. The
first queries give all neighbours of the target; for the others, neighbours are drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, softmax
from scipy.stats import norm

from benchmarks.harness import store_row, stored_rows, table, with_error
from reproductions.harness.simulated_runs import job_of, simulated
from secagg.contracts import Array
from secagg.core.randomness import replayable_random
from secagg.jobs.job import parse_job
from secagg.runs.networks.finished_ngm import FinishedNgmRun

SITES = 3
RECORDS = (300, 1000, 2000)
EDGES = [["x1", "x2"], ["x2", "b3"], ["b3", "x4"], ["x4", "c5"], ["x1", "x6"]]
METHODS: dict[str, dict[str, Any]] = {
    "fedngr": {"name": "fedngr"},
    "fedngm": {"name": "fedngm"},
    "fedngm, penalty = 20": {"name": "fedngm", "penalty": 20.0},
}
WIDE = {"type": "continuous", "low": -5, "high": 5}
BINARY = {"type": "binary"}
COLUMNS: dict[str, Mapping[str, object]] = {
    "x1": WIDE, "x2": WIDE, "b3": BINARY, "x4": WIDE,
    "c5": {"type": "categorical", "levels": ["p", "q", "r"]}, "x6": WIDE, "b7": BINARY,
}  # fmt: skip


def drawn(n: int, rng: np.random.Generator) -> pd.DataFrame:
    x1 = rng.normal(size=n)
    x2 = 1.2 * np.sin(1.5 * x1) + 0.5 * rng.normal(size=n)
    b3 = (rng.random(n) < expit(2 * x2)).astype(int)
    x4 = b3 - 0.5 + 0.7 * rng.normal(size=n)
    shares = level_shares(x4)
    c5 = np.array(["p", "q", "r"])[(rng.random(n)[:, None] > shares.cumsum(axis=1)).sum(axis=1)]
    x6 = 0.6 * x1 + 0.8 * rng.normal(size=n)
    b7 = (rng.random(n) < 0.3).astype(int)
    found = {"x1": x1.clip(-4.9, 4.9), "x2": x2, "b3": b3, "x4": x4, "c5": c5}
    return pd.DataFrame({**found, "x6": x6.clip(-4.9, 4.9), "b7": b7})


# --- the truth ------------------------------------------------------------------------------------

_Z = np.linspace(-8, 8, 4001)
_W = norm.pdf(_Z) / norm.pdf(_Z).sum()


def level_shares(x4: Array) -> Array:
    scores = np.stack([np.zeros_like(x4), 1.5 * x4, -1 + 0.5 * x4**2], axis=-1)
    return np.asarray(softmax(scores, axis=-1))


def _x2(x1: float) -> Array:
    return 1.2 * np.sin(1.5 * x1) + 0.5 * _Z


def _case(x1: float) -> float:
    return float(_W @ expit(2 * _x2(x1)))


def _tilted(x1: float) -> float:
    """Return E[x2 | x1, b3 = 1]."""
    w = _W * expit(2 * _x2(x1))
    return float(w @ _x2(x1) / w.sum())


def _level(x1: float, level: int) -> float:
    p = _case(x1)
    of = [float(_W @ level_shares(b - 0.5 + 0.7 * _Z)[:, level]) for b in (0, 1)]
    return (1 - p) * of[0] + p * of[1]


QUERIES: dict[str, tuple[dict[str, Any], str, str | None, float]] = {
    "E(x2) given x1 = 1, b3 = 1": ({"x1": 1, "b3": 1}, "x2", None, _tilted(1)),
    "E(x2) given x1 = -1.5, b3 = 1": ({"x1": -1.5, "b3": 1}, "x2", None, _tilted(-1.5)),
    "E(x6) given x1 = 1": ({"x1": 1}, "x6", None, 0.6),
    "P(b3 = 1) given x2 = .5, x4 = .5": (
        {"x2": 0.5, "x4": 0.5}, "b3", "1",
        float(expit(1 + norm.logpdf(0.5, 0.5, 0.7) - norm.logpdf(0.5, -0.5, 0.7))),
    ),
    "P(c5 = r) given x4 = 1.5": (
        {"x4": 1.5}, "c5", "r", float(level_shares(np.array([1.5]))[0, 2]),
    ),
    "P(b7 = 1) given x1 = 1": ({"x1": 1}, "b7", "1", 0.3),
    "E(x2) given x1 = 1": ({"x1": 1}, "x2", None, 1.2 * float(np.sin(1.5))),
    "E(x2) given x1 = 0": ({"x1": 0}, "x2", None, 0.0),
    "P(b3 = 1) given x1 = 1": ({"x1": 1}, "b3", "1", _case(1)),
    "P(b3 = 1) given x2 = .5": ({"x2": 0.5}, "b3", "1", float(expit(1))),
    "E(x4) given x1 = 1": ({"x1": 1}, "x4", None, _case(1) - 0.5),
    "P(c5 = q) given x1 = 1": ({"x1": 1}, "c5", "q", _level(1, 1)),
}  # fmt: skip


# --- cells ----------------------------------------------------------------------------------------


def cell(name: str, records: int, seed: int) -> dict[str, Any]:
    """Return, for each query, the estimate, the ends of its interval and the Monte Carlo error."""
    rng = np.random.default_rng([seed, records])
    tables = {f"s{k}": drawn(records // SITES, rng) for k in range(SITES)}
    method = METHODS[name]
    result, _ = simulated(method, COLUMNS, tables, seed)
    run = FinishedNgmRun.of(parse_job(job_of(method, COLUMNS, tables)), result)
    answers = {
        query: _answer(run, given, of, level) for query, (given, of, level, _) in QUERIES.items()
    }
    edges = sorted(sorted(edge["between"]) for edge in result.summary["edges"])
    missed = len([edge for edge in EDGES if sorted(edge) not in edges])
    return {"method": name, "records": records, "seed": seed, "missed": missed,
            "edges": len(edges), "answers": answers}  # fmt: skip


def _answer(
    run: FinishedNgmRun, given: Mapping[str, Any], of: str, level: str | None
) -> list[float]:
    (row,) = run.query(given, [of], random=replayable_random(0))["columns"]
    if level is None:
        return [row["mean"], *row["mean_interval"], row["mean_error"]]
    (found,) = (each for each in row["levels"] if each["level"] == level)
    return [found["probability"], *found["interval"], found["error"]]


# --- the table ------------------------------------------------------------------------------------


def shown(cells: list[dict[str, Any]]) -> str:
    """Return the tables of all cells: for each query, and over all queries."""
    rows, totals = [], []
    names = [name for name in METHODS if any(c["method"] == name for c in cells)]
    for name, records in product(names, sorted({c["records"] for c in cells})):
        chosen = [c for c in cells if c["method"] == name and c["records"] == records]
        if not chosen:
            continue
        covered, inside = [], []
        for query, (*_, truth) in QUERIES.items():
            found = np.array([c["answers"][query] for c in chosen])
            error, hit = found[:, 0] - truth, (found[:, 1] <= truth) & (truth <= found[:, 2])
            width = np.mean(found[:, 2] - found[:, 1]) / 2
            covered.append(hit)
            inside.append(error)
            rows.append([name, records, query, _number(truth), with_error(error, 3),
                         _number(np.std(error, ddof=1) if len(error) > 1 else np.nan),
                         _number(width), with_error(hit, 2)])  # fmt: skip
        each = np.mean(covered, axis=0)  # of a seed, over queries, which share the records
        totals.append([name, records, len(chosen), with_error(each, 3),
                       with_error([c["missed"] for c in chosen], 1)])  # fmt: skip
    head = ("method", "records", "query", "truth", "bias", "sd", "half the interval", "covers")
    overall = ("method", "records", "seeds", "coverage over all queries", "true edges missed")
    return f"{table(head, rows)}\n\n{table(overall, totals)}"


def _number(value: float) -> str:
    return f"{value:.3f}"


def main(say: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--records", type=int, nargs="+", default=list(RECORDS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    asked = parser.parse_args()
    cells = stored_rows(asked.cells)
    done = {(c["method"], c["records"], c["seed"]) for c in cells}
    for seed, records, name in product(range(asked.seeds), asked.records, asked.methods):
        if (name, records, seed) not in done:
            cells.append(cell(name, records, seed))
            store_row(asked.cells, cells[-1])
    say(shown(cells))


if __name__ == "__main__":
    main()
