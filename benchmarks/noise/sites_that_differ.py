"""Within-site slopes under noise: coverage and width where sites differ in level.

    python -m benchmarks.noise.sites_that_differ run FILE [--draws 100] [--records 300]
    python -m benchmarks.noise.sites_that_differ table FILE

K sites with the same number of records: a and b are standard normal, a and the outcome shifted by
0.8 and -0.64 times the site's place (from -2 to 2); the outcome has slopes .3 and -.2 within sites.
Bounds are -6 to 6, typical ranges -1.5 to 1.5: nobody knows the shifts. Each draw makes new
records and runs each method with normal noise of the planned variance (delta 1e-5, one site
colluding). Coverage is of the slopes within sites, at 95 %; width is relative to that of within
least squares without noise. A line of FILE is one draw, method, number of sites and epsilon.
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
from secagg.evidence.feasibility.simulated_run import run_on
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.sessions.planned_job import plan_job

SLOPES = {"a": 0.3, "b": -0.2}
FIT = {"outcome": "y", "predictors": list(SLOPES)}
METHODS: dict[str, tuple[dict[str, Any], str]] = {
    "moments, pooled": ({"name": "moments", "analyses": [{"kind": "ols", **FIT}]}, "sum"),
    "moments, within sites": (
        {"name": "moments", "centre": "site", "analyses": [{"kind": "ols", **FIT}]}, "round",
    ),
    "one_step, within sites": ({"name": "one_step", "centre": "site", **FIT}, "round"),
}  # fmt: skip


def tables(sites: int, records: int, seed: int) -> dict[str, pd.DataFrame]:
    rng, found = np.random.default_rng([seed, sites, records]), {}
    for k, place in enumerate(np.linspace(-2, 2, sites)):
        a, b = rng.normal(0.8 * place, 1, records), rng.normal(size=records)
        y = 0.3 * a - 0.2 * b - 0.64 * place + rng.normal(size=records)
        found[f"s{k}"] = pd.DataFrame({"a": a, "b": b, "y": y}).clip(-6, 6)
    return found


def within(each: dict[str, pd.DataFrame]) -> float:
    """Return the mean standard error of within least squares without noise."""
    centred = pd.concat([t - t.mean() for t in each.values()])
    X, y = centred[list(SLOPES)].to_numpy(), centred["y"].to_numpy()
    inverse = np.linalg.inv(X.T @ X)
    r = y - X @ (inverse @ X.T @ y)
    return float(np.sqrt(np.diagonal(inverse) * (r @ r) / (len(y) - len(each) - 2)).mean())


def measure(args: argparse.Namespace) -> None:
    done = {(r["method"], r["sites"], r["epsilon"], r["draw"]) for r in stored_rows(args.file)}
    column = {"type": "continuous", "low": -6, "high": 6, "typical": [-1.5, 1.5]}
    for draw in range(args.draws):
        for sites in args.sites:
            each = tables(sites, args.records, draw)
            for epsilon in args.epsilons:
                for method in args.methods:
                    key = method, sites, epsilon, draw
                    if key in done:
                        continue
                    settings, placement = METHODS[method]
                    plan = plan_job(parse_job({
                        "title": "Sites", "sites": {"max_rows": 10_000},
                        "columns": {**dict.fromkeys(SLOPES, column), "y": column},
                        "method": settings, "protocol": {"name": "masked"},
                        "release": {"min_sites": 3, "min_records": 10},
                        "privacy": {"placement": placement, "epsilon": epsilon, "delta": 1e-5,
                                    "expected_records": sites * args.records},
                    }), each)  # fmt: skip
                    rows = [read_rows(plan.job.columns, t, plan.public, s) for s, t in each.items()]
                    rng = np.random.default_rng([draw, sites, round(100 * epsilon)])
                    found = run_on(plan, plan.public, rows, rng).summary
                    found = found["analyses"][0] if "analyses" in found else found
                    row = dict(zip(("method", "sites", "epsilon", "draw"), key, strict=True))
                    if "terms" in found:
                        terms = {t["term"]: t for t in found["terms"]}
                        ends = [(terms[s]["ci_low"], terms[s]["ci_high"]) for s in SLOPES]
                        row["covers"] = [
                            low <= b <= high
                            for (low, high), b in zip(ends, SLOPES.values(), strict=True)
                        ]
                        row["error"] = [terms[s]["estimate"] - b for s, b in SLOPES.items()]
                        width = float(np.mean([high - low for low, high in ends]))
                        row["width"] = width / (2 * 1.96 * within(each))
                    store_row(args.file, row)


def print_table(args: argparse.Namespace) -> None:
    cells: dict[tuple[str, int, float], list[dict[str, Any]]] = defaultdict(list)
    for row in stored_rows(args.file):
        cells[row["method"], row["sites"], row["epsilon"]].append(row)
    print("| method | sites | epsilon | draws | coverage | bias of a | error | width |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for (method, sites, epsilon), rows in sorted(cells.items()):
        made = [r for r in rows if "covers" in r]
        if not made:
            continue
        by_draw = np.mean([r["covers"] for r in made], axis=1)
        errors = np.array([r["error"] for r in made])
        n, coverage = len(made), float(by_draw.mean())
        least = math.sqrt(coverage * (1 - coverage) / (2 * n))
        print(
            f"| {method} | {sites} | {epsilon:g} | {n} | {coverage:.3f} ± {least:.3f} | "
            f"{errors[:, 0].mean():.4f} ± {errors[:, 0].std() / math.sqrt(n):.4f} | "
            f"{math.sqrt(float(np.mean(errors**2))):.4f} | "
            f"{np.mean([r['width'] for r in made]):.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--records", type=int, default=300)
    parser.add_argument("--sites", nargs="+", type=int, default=[3, 5, 10])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    args = parser.parse_args()
    measure(args) if args.what == "run" else print_table(args)


if __name__ == "__main__":
    main()
