"""What differential privacy costs here: error, interval coverage and time, for each placement.

    make placements, or placements.py [--repeat 40] [--epsilon 1 4 8] [--norm 1.2] [--seed 1]

One regression (linear.toml: maximum heart rate on six predictors, four hospitals) is fitted without
noise, with noise once in the secure sum, once at each site, and in every round of a gradient
method. The records represent the population, and the fit to all of them without noise is the truth.
Each repetition resamples every hospital's records with replacement (the bootstrap) and fits under
each placement. So error and coverage include the sampling error that an interval must cover.

error: |b - truth| / |truth|, slopes in standard deviations; the median over the repetitions
coverage: how often the 90 % intervals of the slopes cover the truth, with its Monte Carlo error
width: the median width of the intervals, divided by that of the fit without noise
"""

from __future__ import annotations

import argparse
import math
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import secagg

HERE = Path(__file__).parent
LEVEL = 0.9
ROUNDS = 60
DELTA = 1e-5
Job = dict[str, Any]


def jobs(base: Job, epsilons: list[float], norm: float) -> dict[tuple[str, float], Job]:
    """Return the job of each row of the table, by (placement, epsilon)."""
    common = {k: base[k] for k in ("title", "sites", "columns", "protocol", "release")}
    (ols,) = (a for a in base["method"]["analyses"] if a["kind"] == "ols")
    moments = {"name": "moments", "analyses": [ols | {"level": LEVEL}]}
    found: dict[tuple[str, float], Job] = {("none", math.inf): common | {"method": moments}}
    terms = {k: ols[k] for k in ("outcome", "predictors")}
    gradient = {"name": "gradient", "family": "gaussian", "rounds": ROUNDS, **terms}
    for placement, method in (("sum", moments), ("site", moments), ("round", gradient)):
        for epsilon in epsilons:
            privacy = {
                "placement": placement, "epsilon": epsilon, "delta": DELTA, "record_norm": norm,
            }  # fmt: skip
            found[placement, epsilon] = common | {"method": method, "privacy": privacy}
    return found


def fit(job: Job, tables: Mapping[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """Return the rows of the fit's coefficient table, without the intercept."""
    summary = secagg.run(job, tables).result.summary
    (analysis,) = summary.get("analyses", [summary])
    if "failed" in analysis:
        raise SystemExit(analysis["failed"])
    return [term for term in analysis["terms"] if term["term"] != "(intercept)"]


def complete(tables: Mapping[str, pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    """Return all complete records, binary columns as 0 and 1, for their standard deviations."""
    pooled = pd.concat(tables.values())[columns].dropna()
    return pooled.apply(lambda c: c if c.dtype.kind in "if" else (c == "male").astype(float))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0, 8.0])
    parser.add_argument("--norm", type=float, default=1.2)
    parser.add_argument("--seed", type=int, default=1, help="of the bootstrap; noise has none")
    asked = parser.parse_args()
    base = tomllib.loads((HERE / "linear.toml").read_text(encoding="utf-8"))
    tables = {p.stem: pd.read_csv(p) for p in sorted((HERE / "data").glob("*.csv"))}
    rows = jobs(base, asked.epsilon, asked.norm)
    reference = fit(rows["none", math.inf], tables)
    names = [term["term"] for term in reference]
    truth = np.array([term["estimate"] for term in reference])
    records = complete(tables, list(base["columns"]))
    scale = np.array([records[name.partition("=")[0]].std() for name in names])
    rng = np.random.default_rng(asked.seed)
    fits: dict[tuple[str, float], list[list[dict[str, Any]]]] = {key: [] for key in rows}
    seconds = dict.fromkeys(rows, 0.0)
    for _ in range(asked.repeat):
        drawn = {
            name: table.iloc[rng.integers(0, len(table), len(table))]
            for name, table in tables.items()
        }
        for key, job in rows.items():
            began = time.process_time()
            fits[key].append(fit(job, drawn))
            seconds[key] += time.process_time() - began
    baseline = median_width(fits["none", math.inf])
    print(f"{len(records)} complete records at {len(tables)} hospitals, {len(names)} slopes;")
    print(f"delta {DELTA:g}, record norm {asked.norm:g}; {asked.repeat} repetitions;")
    print(f"{ROUNDS} rounds of gradients; CPU seconds of one run, all parties together")
    print()
    print("| placement | epsilon | error | coverage of 90 % intervals | width | seconds |")
    print("|---|---|---|---|---|---|")
    for (placement, epsilon), found in fits.items():
        estimates = np.array([[term["estimate"] for term in one] for one in found])
        errors = np.linalg.norm((estimates - truth) * scale, axis=1)
        error = np.median(errors) / np.linalg.norm(truth * scale)
        covered, width = coverage(found, truth), median_width(found)
        wide = "" if width is None or baseline is None else f"{np.median(width / baseline):.1f}"
        spent = seconds[placement, epsilon] / asked.repeat
        print(f"| {placement} | {epsilon:g} | {error:.2f} | {covered} | {wide} | {spent:.2f} |")


def coverage(fits: list[list[dict[str, Any]]], truth: np.ndarray) -> str:
    """Return how often intervals cover, with the error over repetitions; nothing without any."""
    if fits[0][0]["ci_low"] is None:
        return "no intervals"
    low, high = (np.array([[t[k] for t in one] for one in fits]) for k in ("ci_low", "ci_high"))
    each = ((low <= truth) & (truth <= high)).mean(axis=1)
    return f"{each.mean():.2f} ± {each.std(ddof=1) / math.sqrt(len(each)):.2f}"


def median_width(fits: list[list[dict[str, Any]]]) -> np.ndarray | None:
    """Return the median width of each slope's interval."""
    if fits[0][0]["ci_low"] is None:
        return None
    widths: np.ndarray = np.median(
        [[t["ci_high"] - t["ci_low"] for t in one] for one in fits], axis=0
    )
    return widths


if __name__ == "__main__":
    main()
