"""Tables of counts under noise: error by mechanism, in theory and as measured in whole runs.

    python -m benchmarks.noise.table_noise theory
    python -m benchmarks.noise.table_noise measure FILE [--runs 200]
    python -m benchmarks.noise.table_noise table FILE

`theory`: total variance of all asked cells at equal privacy (added or removed records), relative to
the method's. All are closed forms in one number for each set of columns (docs/math/tables.md).

    bound           the singular value bound of Li and Miklau (2013)
    noisy tables    HDMM's OPT_M for Gaussian noise: noise in any tables that are parts of the asked
                    ones, the best weights, then least squares
    asked tables    noise in the asked tables with equal weights, then least squares
    ... each alone  the same, each table from its own noise
    joint table     noise in one table of all columns, and its margins

The best weights are found by the multiplicative algorithm of optimal design (Yu 2010), which
lowers the convex objective in every step, until no step gains 10^-9. HDMM's published figures are
of pure epsilon (L1), and not comparable.

`measure`: whole runs of the product, with its exact sampler, on the hospitals' records of
examples/heart-disease: root mean square of error / stated standard error over cells, which should
be 1, and the share of 95 % intervals that hold the exact count. A line of FILE is one run.
"""

from __future__ import annotations

import argparse
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import store_row, stored_rows
from benchmarks.noise.studies import hospitals
from secagg.core.arrays import Array
from secagg.models.tables.strategy import Columns, Strategy
from secagg.runs.run import run

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
CPS = (100, 50, 7, 4, 2)


def up_to(columns: int, size: int, least: int = 1) -> tuple[Columns, ...]:
    return tuple(B for k in range(least, size + 1) for B in combinations(range(columns), k))


WORKLOADS: dict[str, tuple[tuple[int, ...], tuple[Columns, ...]]] = {
    "two separate columns, 2 and 2 levels": ((2, 2), ((0,), (1,))),
    "table one by sex: six columns of 2 to 4 levels": ((2, 2, 3, 4, 2, 3, 2),
                                                       tuple((0, j) for j in range(1, 7))),
    "outcome by sex, ward and age; pairs with the outcome": (
        (2, 2, 3, 4), ((0, 1, 2, 3), (0, 1), (0, 2), (0, 3))),
    "all pairs of 8 binary columns": ((2,) * 8, up_to(8, 2, 2)),
    "all pairs and triples of 8 binary columns": ((2,) * 8, up_to(8, 3, 2)),
    "CPS (100, 50, 7, 4, 2): all up to triples": (CPS, up_to(5, 3)),
    "Adult (14 columns): all single columns": (ADULT, up_to(14, 1)),
    "Adult (14 columns): all pairs": (ADULT, up_to(14, 2, 2)),
}  # fmt: skip


class Marginals:
    """Total variances, times the squared sensitivity, of noise in whole tables."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy, self.parts = strategy, strategy.parts
        asked = [set(B) for B in strategy.asked]
        of_table = np.array([1 / strategy.cells(B) for B in strategy.asked])
        inside = np.array([[set(A) <= B for B in asked] for A in self.parts])
        self.rank = np.array([float(strategy.rank(A)) for A in self.parts])
        self.a = inside @ of_table
        cells = np.array([float(strategy.cells(A)) for A in self.parts])
        self.measures = (
            np.array([[set(A) <= set(B) for B in self.parts] for A in self.parts]) / cells
        )  # theta_A / N = measures @ (1 / w)

    def total(self, shares: Array) -> float:
        """Return the total variance for noise in the parts' tables with these shares of privacy."""
        return float((self.rank * self.a / (self.measures @ shares)).sum() * shares.sum())

    def best(self) -> float:
        shares, last = np.full(len(self.parts), 1 / len(self.parts)), math.inf
        while (value := self.total(shares)) < last * (1 - 1e-9):
            last = value
            theta = self.measures @ shares
            gradient = self.measures.T @ (self.rank * self.a / theta**2)
            shares = shares * np.sqrt(gradient)
            shares /= shares.sum()
        return value

    def asked(self) -> float:
        return self.total(np.array([float(A in self.strategy.asked) for A in self.parts]))


def theory() -> None:
    heads = ("tables", "cells", "numbers sent", "bound", "noisy tables", "asked tables",
             "... each alone", "joint table")  # fmt: skip
    print("| " + " | ".join(heads) + " |\n|---" + "|--:" * (len(heads) - 1) + "|")
    for name, (sizes, asked) in WORKLOADS.items():
        strategy = Strategy(sizes, asked)
        marginals = Marginals(strategy)
        cells = sum(map(strategy.cells, asked))
        add = sum(strategy.cells(A) * strategy.rank(A) / strategy.weights[A]
                  for A in strategy.parts)  # fmt: skip
        own = add * sum(strategy.cells(B) * strategy.variance_of_cell(B) for B in asked)
        bound = float((marginals.rank * np.sqrt(marginals.a)).sum() ** 2)
        alone, joint = len(asked) * cells, len(asked) * math.prod(sizes)
        ratios = [each / own for each in (bound, marginals.best(), marginals.asked(), alone, joint)]
        shown = (f"{ratio:.3g}" if ratio > 1.1 else f"{ratio:.4f}" for ratio in ratios)
        print(f"| {name} | {cells:,} | {strategy.numbers:,} | {' | '.join(shown)} |", flush=True)


def job(epsilon: float) -> dict[str, Any]:
    study = hospitals("binomial")
    names = ("age", "sex", "exercise_angina", "disease")
    return {
        "title": "Tables",
        "sites": {"max_rows": 5000},
        "columns": {name: study.columns[name] for name in names},
        "method": {
            "name": "tables",
            "columns": [["sex", "disease"], ["age", "disease"],
                        ["sex", "exercise_angina", "disease"]],
            "cut_points": {"age": [45, 55, 65]},
        },
        "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 10},
        "privacy": {"placement": "sum", "epsilon": epsilon, "delta": 1e-5},
    }  # fmt: skip


def exact(columns: list[str]) -> Array:
    table = hospitals("binomial").table
    codes = [
        np.digitize(table[name], [45, 55, 65]) if name == "age" else
        (table[name].astype(str).isin(["1", "1.0", "male"])).to_numpy(dtype=np.int64)
        for name in columns
    ]  # fmt: skip
    found = np.zeros([4 if name == "age" else 2 for name in columns])
    np.add.at(found, tuple(codes), 1)
    return found


def measure(file: Path, runs: int) -> None:
    done = {(row["epsilon"], row["seed"]) for row in stored_rows(file)}
    table = hospitals("binomial").table
    sites = {f"s{k}": table.iloc[k::4].reset_index(drop=True) for k in range(4)}
    for epsilon in (0.5, 1.0, 4.0):
        for seed in range(runs):
            if (epsilon, seed) in done:
                continue
            summary = run(job(epsilon), sites).result.summary
            row: dict[str, Any] = {"epsilon": epsilon, "seed": seed}
            for each in summary["tables"]:
                error = (np.array(each["counts"]) - exact(each["columns"])) / each["std_error"]
                row[" by ".join(each["columns"])] = {
                    "square": float(np.mean(error**2)),
                    "covered": float(np.mean(np.abs(error) < 1.959964)),
                    "std_error": each["std_error"],
                }
            store_row(file, row)


def show(file: Path) -> None:
    print("| table | epsilon | standard error | measured / stated | coverage | runs |")
    print("|---|--:|--:|--:|--:|--:|")
    rows = list(stored_rows(file))
    for name in [key for key in rows[0] if key not in ("epsilon", "seed")]:
        for epsilon in sorted({row["epsilon"] for row in rows}):
            found = [row[name] for row in rows if row["epsilon"] == epsilon]
            square = np.array([each["square"] for each in found])
            covered = np.array([each["covered"] for each in found])
            n, ratio = len(found), math.sqrt(square.mean())
            error = square.std(ddof=1) / math.sqrt(n) / (2 * ratio)
            of_share = covered.std(ddof=1) / math.sqrt(n)
            print(
                f"| {name} | {epsilon:g} | {found[0]['std_error']:.3g} | {ratio:.3f} ± {error:.3f} "
                f"| {covered.mean():.3f} ± {of_share:.3f} | {n} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["theory", "measure", "table"])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--runs", type=int, default=200)
    given = parser.parse_args()
    if given.what == "theory":
        theory()
    elif given.file is None:
        parser.error("measure and table need a file")
    elif given.what == "measure":
        measure(given.file, given.runs)
    else:
        show(given.file)


if __name__ == "__main__":
    main()
