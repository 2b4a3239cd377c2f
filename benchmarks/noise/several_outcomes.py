"""Several outcomes: one release of moments against one_step, which is paid for each outcome.

    python -m benchmarks.noise.several_outcomes run FILE [--draws 20]
    python -m benchmarks.noise.several_outcomes table FILE

The same predictors explain q outcomes. `moments` has all columns in one noisy sum relative to
typical ranges; `one_step` runs once for each outcome, with mu / root(q) each, so both cost the same
epsilon (delta 1e-5, five sites, one colluding). Errors are those of slopes, in standard
deviations, to least squares without noise: root mean squares over draws, slopes and (studies)
outcomes. Simulated outcomes are exchangeable, so only the first is analysed. A line of FILE is one
draw of a case, number of outcomes and epsilon.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import store_row, stored_rows
from benchmarks.noise.studies import STUDIES, number
from secagg.core.arrays import Array
from secagg.evidence.feasibility.simulated_run import run_on
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from secagg.sessions.planned_job import plan_job

DELTA, SITES = 1e-5, 5
SIMULATED = [(5, 1000), (5, 10_000), (15, 10_000)]
"""Predictors and records."""
OUTCOMES = {
    "nhefs": ["wt82_71", "sbp", "smokeintensity", "wt71"],
    "care": ["log_visits", "chronic", "school"],
}
"""Of studies: the first q are outcomes; the columns that are never outcomes are predictors."""


def case(name: str, q: int, draw: int) -> tuple[pd.DataFrame, dict[str, Any], list[str], list[str]]:
    """Return records, columns, outcomes and predictors."""
    rng = np.random.default_rng([draw, 17])
    if name.startswith("simulated"):
        p, n = map(int, name.split()[1:])
        X = rng.multivariate_normal(np.zeros(p), 0.3 + 0.7 * np.eye(p), size=n)
        B = rng.normal(size=(p, q))
        Y = X @ (B / (X @ B).std(axis=0)) * 0.5 + math.sqrt(0.75) * rng.normal(size=(n, q))
        names = [f"x{j}" for j in range(p)], [f"y{j}" for j in range(q)]
        table = pd.DataFrame(np.hstack([X, Y]), columns=[*names[0], *names[1]]).clip(-5, 5)
        return table, dict.fromkeys(table, number(-5, 5, (-1, 1))), names[1], names[0]
    study, outcomes = STUDIES[name]("gaussian"), OUTCOMES[name]
    predictors = [each for each in study.columns if each not in outcomes]
    columns = {each: study.columns[each] for each in (*predictors, *outcomes[:q])}
    rows = rng.integers(len(study.table), size=len(study.table))
    return study.table.iloc[rows].reset_index(drop=True), columns, outcomes[:q], predictors


def terms(
    table: pd.DataFrame, columns: dict[str, Any], method: dict[str, Any], epsilon: float, seed: int
) -> list[dict[str, float]]:
    """Return the estimates of each regression, by term."""
    once = method["name"] == "moments"
    nobody = pd.DataFrame(columns=list(columns), dtype=object)
    plan = plan_job(parse_job({
        "title": "Several outcomes", "sites": {"max_rows": 100_000},
        "columns": columns, "method": method, "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 10},
        "privacy": {"placement": "sum" if once else "round", "epsilon": epsilon, "delta": DELTA,
                    "expected_records": len(table)},
    }), {f"s{k}": nobody for k in range(SITES)})  # fmt: skip
    rows = read_rows(plan.job.columns, table, plan.public, "s0")
    found = run_on(plan, plan.public, [rows], np.random.default_rng(seed)).summary
    fits = found.get("analyses", [found])
    return [{t["term"]: t["estimate"] for t in fit.get("terms", ())} for fit in fits]


def measure(args: argparse.Namespace) -> None:
    done = {(r["case"], r["outcomes"], r["epsilon"], r["draw"]) for r in stored_rows(args.file)}
    for draw in range(args.draws):
        for name in args.cases:
            for q in args.outcomes:
                if q > len(OUTCOMES.get(name, range(8))):
                    continue
                for epsilon in args.epsilons:
                    if (name, q, epsilon, draw) not in done:
                        store_row(args.file, _draw(name, q, epsilon, draw))


def _draw(name: str, q: int, epsilon: float, draw: int) -> dict[str, Any]:
    table, columns, outcomes, predictors = case(name, q, draw)
    judged = outcomes[:1] if name.startswith("simulated") else outcomes
    analyses = [{"kind": "ols", "outcome": y, "predictors": predictors} for y in judged]
    once = terms(table, columns, {"name": "moments", "analyses": analyses}, epsilon, draw)
    each = gaussian_epsilon(gaussian_mu(epsilon, DELTA) / math.sqrt(q), DELTA)
    row: dict[str, Any] = {"case": name, "outcomes": q, "epsilon": epsilon, "draw": draw}
    squares: dict[str, list[Array]] = defaultdict(list)
    for i, y in enumerate(judged):
        part = {c: columns[c] for c in (*predictors, y)}
        settings = {"name": "one_step", "outcome": y, "predictors": predictors}
        (alone,) = terms(table[list(part)], part, settings, each, 100 + draw)
        X = table[predictors].to_numpy(float)
        design = np.column_stack([np.ones(len(X)), X])
        b = np.linalg.lstsq(design, table[y].to_numpy(float), rcond=None)[0][1:]
        unit = X.std(axis=0) / table[y].to_numpy(float).std()
        for method, found in (("moments", once[i]), ("one_step", alone)):
            if found:
                estimate = np.array([found[x] for x in predictors])
                squares[method].append((unit * (estimate - b)) ** 2)
    return row | {method: float(np.mean(found)) for method, found in squares.items()}


def print_table(args: argparse.Namespace) -> None:
    cells: dict[tuple[str, float, int], list[dict[str, Any]]] = defaultdict(list)
    for row in stored_rows(args.file):
        cells[row["case"], row["epsilon"], row["outcomes"]].append(row)
    print("| case | epsilon | outcomes | draws | moments | one_step | ratio |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for (name, epsilon, q), rows in sorted(cells.items()):
        both = [r for r in rows if "moments" in r and "one_step" in r]
        if not both:
            continue
        squares = np.array([[r["moments"], r["one_step"]] for r in both])
        error = np.sqrt(squares.mean(axis=0))
        se = squares.std(axis=0) / math.sqrt(len(both)) / (2 * error)
        print(
            f"| {name} | {epsilon:g} | {q} | {len(both)} | {error[0]:.4f} ± {se[0]:.4f} | "
            f"{error[1]:.4f} ± {se[1]:.4f} | {error[0] / error[1]:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("file", type=Path)
    names = [f"simulated {p} {n}" for p, n in SIMULATED] + list(OUTCOMES)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--cases", nargs="+", default=names, choices=names)
    parser.add_argument("--outcomes", nargs="+", type=int, default=[1, 2, 3, 4, 8])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    args = parser.parse_args()
    measure(args) if args.what == "run" else print_table(args)


if __name__ == "__main__":
    main()
