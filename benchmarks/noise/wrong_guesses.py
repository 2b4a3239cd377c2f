"""What wrong guesses of typical ranges cost a one-step regression.

    python -m benchmarks.noise.wrong_guesses run FILE [--draws 100] [--epsilons 1 4]
        [--families gaussian binomial] [--sizes 5 20]
    python -m benchmarks.noise.wrong_guesses table FILE

3000 normal records of 5 or 20 predictors with correlations of .3 (bounds -10 to 10, true typical
ranges -1 to 1), five sites, one of which may collude, delta 1e-5. One predictor, all of them, the
outcome, or all columns have a typical range of half or of twice the true width, or a middle that is
one or two standard deviations off ("outcome x 0.6" is the case of an earlier report). A 0/1 outcome
has a guessed share of half or twice the true one. Errors and coverage as in
`benchmarks.noise.regressions`, coverage of the true slopes. A line of FILE is one draw.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import store_row, stored_rows
from benchmarks.noise.regressions import one_fit, planned
from benchmarks.noise.studies import Study, number, share
from secagg.core.arrays import Array
from secagg.sessions.planned_job import Planned

_RECORDS = 3000
_SHARE = 0.35
GUESSES = (
    "right",
    *(f"{which} x {f}" for f in (0.5, 2.0) for which in ("first", "predictors", "outcome", "all")),
    "outcome x 0.6",
    *(f"{which} + {d}" for d in (1.0, 2.0) for which in ("first", "predictors", "outcome", "all")),
)


def slopes(size: int, family: str) -> Array:
    pattern = np.array([0.4, -0.3, 0.2, 0.0, 0.1] * (size // 5)) * math.sqrt(5 / size)
    return pattern if family == "gaussian" else 1.5 * pattern


def study_of(size: int, family: str, guess: str, seed: int) -> Study:
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(np.zeros(size), 0.3 + 0.7 * np.eye(size), size=_RECORDS)
    eta = x @ slopes(size, family)
    names = [f"x{j}" for j in range(size)]
    table = pd.DataFrame(x, columns=names)
    if family == "gaussian":
        table["y"] = eta + 0.8 * rng.normal(size=_RECORDS)
    else:
        p = 1 / (1 + np.exp(0.7 - eta))
        table["y"] = (rng.random(_RECORDS) < p).astype(int)
    which, change, value = guess.split() if guess != "right" else ("", "x", "1")
    width, middle = (float(value), 0.0) if change == "x" else (1.0, float(value))
    touched = {"first": names[:1], "predictors": names, "outcome": ["y"], "all": [*names, "y"]}
    columns: dict[str, Any] = {}
    for name in [*names, "y"]:
        w, m = (width, middle) if name in touched.get(which, []) else (1.0, 0.0)
        if name == "y" and family == "binomial":
            columns[name] = share(min(_SHARE * w, 0.9) if not m else min(_SHARE + 0.2 * m, 0.9))
        else:
            columns[name] = number(-10, 10, (m - w, m + w))
    return Study(table.clip(-10, 10), columns, "y", family)


@cache
def plan_of(size: int, family: str, guess: str, epsilon: float) -> Planned:
    return planned(study_of(size, family, guess, 0), "one_step", epsilon, 5, 0.0)


def measure(args: argparse.Namespace) -> None:
    keys = ("size", "family", "guess", "epsilon", "draw")
    done = {tuple(row[key] for key in keys) for row in stored_rows(args.file)}
    for draw in range(args.draws):
        for size in args.sizes:
            for family in args.families:
                for guess in GUESSES:
                    study = study_of(size, family, guess, 1000 + draw)
                    for epsilon in args.epsilons:
                        key = (size, family, guess, epsilon, draw)
                        if key not in done:
                            plan = plan_of(size, family, guess, epsilon)
                            rng = np.random.default_rng([draw, 7])
                            truth = slopes(size, family)
                            line = one_fit(plan, study, study.table, truth, rng)
                            store_row(args.file, dict(zip(keys, key, strict=True)) | line)


def print_table(args: argparse.Namespace) -> None:
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in stored_rows(args.file):
        cells[row["size"], row["family"], row["epsilon"], row["guess"]].append(row)
    print("| predictors | epsilon | guess | draws | error | coverage | width | cautions |")
    print("|---|--:|---|--:|--:|--:|--:|--:|")
    order = {guess: i for i, guess in enumerate(GUESSES)}
    for key, rows in sorted(cells.items(), key=lambda c: (*c[0][:3], order[c[0][3]])):
        size, family, epsilon, guess = key
        squares = np.mean(np.square([r["error"] for r in rows]), axis=1)
        error = math.sqrt(float(np.mean(squares)))
        error_se = float(np.std(squares)) / math.sqrt(len(rows)) / (2 * error)
        covers = np.mean([r["covers"] for r in rows], axis=1)
        cover_se = float(np.std(covers)) / math.sqrt(len(rows))
        print(
            f"| {size}, {family} | {epsilon:g} | {guess} | {len(rows)} | {error:.4f} ± "
            f"{error_se:.4f} | {np.mean(covers):.3f} ± {cover_se:.3f} "
            f"| {np.mean([r['width'] for r in rows]):.2f} "
            f"| {np.mean([r['caution'] for r in rows]):.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--sizes", nargs="+", type=int, default=[5, 20])
    parser.add_argument("--families", nargs="+", default=["gaussian", "binomial"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    args = parser.parse_args()
    measure(args) if args.what == "run" else print_table(args)


if __name__ == "__main__":
    main()
