"""Coverage of slopes within sites by one-step regressions, where sites differ.

    python -m benchmarks.noise.within_sites run FILE [--draws 200] [--sites 3 5 10]
        [--epsilons 1 4] [--families gaussian binomial] [--records 400]
    python -m benchmarks.noise.within_sites table FILE

Every site has as many records. Levels of a predictor and of the outcome shift from -1.6 to 1.6
standard deviations over sites, in opposite directions: within sites the slopes are .3 and -.2 (log
odds .6 and -.4), and that of all records together has the other sign. Normal noise of the planned
variance, of each site's own in its first sum (`secagg.evidence.feasibility.simulated_run.run_on`);
delta 1e-5, one site may collude. With `centre = "pooled"` beside it, a control that must fail.
Standard errors: of draws.
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
from benchmarks.noise.studies import number, share
from secagg.evidence.feasibility.simulated_run import run_on
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.sessions.planned_job import Planned, plan_job

TRUTH = {"gaussian": {"a": 0.3, "b": -0.2}, "binomial": {"a": 0.6, "b": -0.4}}


def planned(family: str, centre: str, epsilon: float, sites: int) -> Planned:
    columns = {"a": number(-5, 5, (-1, 1)), "b": number(-5, 5, (-1, 1))}
    columns["y"] = number(-5, 5, (-1, 1)) if family == "gaussian" else share(0.45)
    job = {
        "title": "Within sites",
        "sites": {"max_rows": 100_000},
        "columns": columns,
        "method": {
            "name": "one_step", "family": family, "outcome": "y", "predictors": ["a", "b"],
            "centre": centre,
        },
        "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 10},
        "privacy": {"placement": "round", "epsilon": epsilon, "delta": 1e-5},
    }  # fmt: skip
    empty = pd.DataFrame(columns=["a", "b", "y"], dtype=object)
    return plan_job(parse_job(job), {f"s{k}": empty for k in range(sites)})


def tables(family: str, sites: int, count: int, rng: np.random.Generator) -> list[pd.DataFrame]:
    found = []
    for level in np.linspace(-1.6, 1.6, sites):
        a, b = rng.normal(size=count) + level, rng.normal(size=count)
        if family == "gaussian":
            y = 0.3 * a - 0.2 * b - 0.8 * level + rng.normal(size=count)
        else:
            p = 1 / (1 + np.exp(-(0.6 * a - 0.4 * b - 1.2 * level)))
            y = (rng.random(count) < p).astype(float)
        found.append(pd.DataFrame({"a": a, "b": b, "y": y}).clip(-5, 5))
    return found


def measure(args: argparse.Namespace) -> None:
    keys = ("family", "centre", "sites", "epsilon", "draw")
    done = {tuple(row[key] for key in keys) for row in stored_rows(args.file)}
    for family in args.families:
        for sites in args.sites:
            for epsilon in args.epsilons:
                for centre in ("site", "pooled"):
                    plan = planned(family, centre, epsilon, sites)
                    for draw in range(args.draws if centre == "site" else args.draws // 10):
                        key = (family, centre, sites, epsilon, draw)
                        if key in done:
                            continue
                        rng = np.random.default_rng([draw, sites])
                        made = tables(family, sites, args.records, rng)
                        if family == "binomial":
                            made = [table.astype({"y": int}) for table in made]
                        rows = [
                            read_rows(plan.job.columns, table, plan.public, "s0") for table in made
                        ]
                        found = run_on(plan, plan.public, rows, rng).summary
                        terms = {t["term"]: t for t in found["terms"]}
                        line = {
                            "off": [terms[x]["estimate"] - v for x, v in TRUTH[family].items()],
                            "covers": [
                                terms[x]["ci_low"] <= v <= terms[x]["ci_high"]
                                for x, v in TRUTH[family].items()
                            ],
                            "width": found["widened"],
                        }
                        store_row(args.file, dict(zip(keys, key, strict=True)) | line)


def print_table(args: argparse.Namespace) -> None:
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in stored_rows(args.file):
        cells[row["family"], row["epsilon"], row["sites"], row["centre"]].append(row)
    print("| family | epsilon | sites | centre | runs | bias | error | coverage | width |")
    print("|---|--:|--:|---|--:|--:|--:|--:|--:|")
    for (family, epsilon, sites, centre), rows in sorted(cells.items()):
        off = np.array([r["off"] for r in rows])
        bias, error = np.abs(off.mean(axis=0)).max(), math.sqrt(float(np.mean(off**2)))
        by_run = np.mean([r["covers"] for r in rows], axis=1)
        root = math.sqrt(len(rows))
        print(
            f"| {family} | {epsilon:g} | {sites} | {centre} | {len(rows)} | {bias:.3f} ± "
            f"{off.std(axis=0).max() / root:.3f} | {error:.3f} | {by_run.mean():.3f} ± "
            f"{by_run.std() / root:.3f} | {np.mean([r['width'] for r in rows]):.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--sites", nargs="+", type=int, default=[3, 5, 10])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--families", nargs="+", default=["gaussian", "binomial"])
    parser.add_argument("--records", type=int, default=400)
    args = parser.parse_args()
    measure(args) if args.what == "run" else print_table(args)


if __name__ == "__main__":
    main()
