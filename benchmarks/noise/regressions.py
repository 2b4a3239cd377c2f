"""Regressions under noise: error, interval width and coverage on real records, by mechanism.

    python -m benchmarks.noise.regressions run FILE [--draws 200] [--studies nhefs ...]
        [--families gaussian binomial poisson] [--epsilons 0.5 1 2 4] [--sites 5]
        [--methods one_step ...]
    python -m benchmarks.noise.regressions table FILE
    python -m benchmarks.noise.regressions page FILE         # of decision 44

Each draw resamples a study's records with replacement (`simulated`: new records) and runs each
method with normal noise of the planned variance (`secagg.evidence.feasibility.simulated_run`).
Delta is 1e-5, one site may collude. Methods:

    one_step            scores at a first estimate
    moments, typical    least squares from one noisy sum of moments relative to typical ranges
    moments, norm R     least squares from one noisy sum of moments; R is `privacy.record_norm`, in
                        units of the mean norm of the records: the best of several is hindsight
    gradient            logistic regression in 20 noisy gradient rounds; it has no intervals

The error is the root mean square of (estimate less fit without noise) over draws and slopes, for
columns divided by their standard deviations, and for a linear outcome by its own. Coverage is of
the fit to all records (`simulated`: of the truth); the width is relative to that of classical
intervals without noise, of counts to that of a sandwich. A line of FILE is one draw, method and
epsilon.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import store_row, stored_rows
from benchmarks.noise.studies import COUNTS, STUDIES, Study, simulated
from secagg.contracts import SiteRecords
from secagg.core.arrays import Array
from secagg.evidence.feasibility.simulated_run import run_on
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import parse_job
from secagg.models.one_step.columns import FAMILIES
from secagg.sessions.planned_job import Planned, plan_job

TRUTH = {"gaussian": [0.4, -0.3, 0.2, 0.0, 0.1], "binomial": [0.6, -0.4, 0.3, 0.0, 0.2]}
ALL = STUDIES | COUNTS
_IN_WORDS = {"gaussian": "linear", "binomial": "logistic", "poisson": "Poisson"}
NORMS = (0.6, 0.8, 1.0, 1.4)


def methods(study: Study) -> list[str]:
    norms = [f"moments, norm {norm}" for norm in NORMS]
    if study.family == "binomial":
        return ["one_step", "gradient"]
    if study.family == "poisson":
        return ["one_step"]
    return ["one_step", "moments, typical", "moments", *norms]


def planned(study: Study, method: str, epsilon: float, sites: int, norm: float) -> Planned:
    """Return the plan; `moments` without typical ranges unless the method's name ends with that."""
    fit: dict[str, Any] = {"outcome": study.outcome, "predictors": study.predictors}
    privacy = {"placement": "round", "epsilon": epsilon, "delta": 1e-5}
    columns = study.columns
    if method == "one_step":
        settings = {"name": "one_step", "family": study.family, **fit}
    elif method == "gradient":
        settings = {"name": "gradient", "family": study.family, "rounds": 20, **fit}
    else:
        settings = {"name": "moments", "analyses": [{"kind": "ols", **fit}]}
        privacy["placement"] = "sum"
        if norm:
            privacy["record_norm"] = norm
        if method == "moments, typical":
            privacy["expected_records"] = len(study.table)
        else:
            columns = {name: {k: v for k, v in column.items() if k != "typical"}
                       for name, column in columns.items()}  # fmt: skip
    job = {
        "title": "Noise",
        "sites": {"max_rows": 100_000},
        "columns": columns,
        "method": settings,
        "protocol": {"name": "masked"},
        "release": {"min_sites": 3, "min_records": 10},
        "privacy": privacy,
    }
    empty = pd.DataFrame(columns=list(study.columns), dtype=object)
    return plan_job(parse_job(job), {f"s{k}": empty for k in range(sites)})


def own_units(plan: Planned, rows: SiteRecords, study: Study) -> tuple[Array, Array, list[str]]:
    """Return the design with its constant, the outcome, and the slopes' names, in own units."""
    variables, positions = plan.public.variables, plan.public.positions
    of_x = [i for name in study.predictors for i in positions[name]]
    values = [v.midpoint + v.half_range * rows.values[:, i] for i, v in enumerate(variables)]
    X = np.column_stack([np.ones(len(rows.values)), *(values[i] for i in of_x)])
    return X, values[positions[study.outcome][0]], [variables[i].name for i in of_x]


def exact(X: Array, y: Array, family: str) -> tuple[Array, Array]:
    """Return the slopes of the fit without noise, and their standard errors."""
    if family == "gaussian":
        b = np.linalg.lstsq(X, y, rcond=None)[0]
        r = y - X @ b
        inverse = np.linalg.inv(X.T @ X) * (r @ r) / (len(y) - X.shape[1])
    else:
        law = FAMILIES[family]
        unit = np.array([1.0, *X[:, 1:].std(axis=0)])
        Z, b = (X - [0.0, *X[:, 1:].mean(axis=0)]) / unit, np.zeros(X.shape[1])
        b[0] = math.log(y.mean()) if family == "poisson" else 0.0
        for _ in range(30):
            inverse = np.linalg.inv((Z.T * law.weight(Z @ b)) @ Z)
            b = b + inverse @ (Z.T @ law.score(y, Z @ b))
        if family == "poisson":
            inverse = inverse @ (Z.T * law.score(y, Z @ b) ** 2) @ Z @ inverse
        b, inverse = b / unit, inverse / np.outer(unit, unit)
    return b[1:], np.sqrt(np.diagonal(inverse))[1:]


def measure(args: argparse.Namespace) -> None:
    done = {(r["study"], r["family"], r["method"], r["epsilon"], r["draw"])
            for r in stored_rows(args.file)}  # fmt: skip
    for draw in range(args.draws):
        for name in args.studies:
            for family in args.families:
                if name in (COUNTS if family == "poisson" else STUDIES):
                    _draw(args, done, name, family, draw)


def resampled(
    study: Study, name: str, family: str, draw: int
) -> tuple[pd.DataFrame, np.random.Generator]:
    """Return the records of a draw, and where its random numbers go on."""
    rng = np.random.default_rng([draw, list(ALL).index(name)])
    if name == "simulated":
        return simulated(family, 1000 + draw).table, rng
    return study.table.iloc[rng.integers(len(study.table), size=len(study.table))], rng


def _draw(args: argparse.Namespace, done: set[Any], name: str, family: str, draw: int) -> None:
    study = _study(name, family)
    table, rng = resampled(study, name, family, draw)
    for method in methods(study):
        if args.methods and method.split(",")[0] not in args.methods:
            continue
        for epsilon in args.epsilons:
            key = (name, family, method, epsilon, draw)
            if key in done:
                continue
            plan = _plan(name, family, method, epsilon, args.sites)
            truth = np.array(TRUTH[family]) if name == "simulated" else _of_all(name, family)
            line = dict(zip(("study", "family", "method", "epsilon", "draw"), key, strict=True))
            store_row(args.file, line | one_fit(plan, study, table, truth, rng))


@cache
def _study(name: str, family: str) -> Study:
    return (COUNTS if family == "poisson" else STUDIES)[name](family)


@cache
def _plan(name: str, family: str, method: str, epsilon: float, sites: int) -> Planned:
    plan = planned(_study(name, family), method, epsilon, sites, 0.0)
    if method.startswith("moments, norm"):
        guesses = planned(_study(name, family), "one_step", epsilon, sites, 0.0).public.variables
        spread = [v.typical_spread**2 + v.typical_centre**2 for v in guesses]
        norm = float(method.rsplit(maxsplit=1)[-1]) * math.sqrt(sum(spread))
        return planned(_study(name, family), method, epsilon, sites, norm)
    return plan


@cache
def _of_all(name: str, family: str) -> Array:
    study = _study(name, family)
    X, y, _ = own_units(*unclipped(study, study.table), study)
    return exact(X, y, family)[0]


def one_fit(
    plan: Planned, study: Study, table: pd.DataFrame, truth: Array, rng: np.random.Generator
) -> dict[str, Any]:
    """Return errors, whether intervals cover the truth, and the width, of one run on a table."""
    rows = read_rows(plan.job.columns, table.reset_index(drop=True), plan.public, "s0")
    X, y, slopes = own_units(*unclipped(study, table), study)
    b, errors = exact(X, y, study.family)
    result = run_on(plan, plan.public, [rows], rng).summary
    found = result["analyses"][0] if "analyses" in result else result
    line: dict[str, Any] = {"caution": "caution" in found}
    if "terms" in found:
        terms = {t["term"]: t for t in found["terms"]}
        unit = X[:, 1:].std(axis=0) / (y.std() if study.family == "gaussian" else 1.0)
        estimate = np.array([terms[s]["estimate"] for s in slopes])
        line["error"] = (unit * (estimate - b)).tolist()
        if terms[slopes[0]].get("ci_low") is not None:
            low, high = (np.array([terms[s][e] for s in slopes]) for e in ("ci_low", "ci_high"))
            line["covers"] = ((low <= truth) & (truth <= high)).tolist()
            line["width"] = float(np.median((high - low) / (2 * 1.96 * errors)))
    return line


def unclipped(study: Study, table: pd.DataFrame) -> tuple[Planned, SiteRecords]:
    """Return a plan, and the records as a job without noise reads them."""
    plan = planned(study, "one_step", 1.0, 3, 0.0)
    public = replace(plan.public, clip=None, max_rows=len(table))
    return plan, read_rows(plan.job.columns, table.reset_index(drop=True), public, "s0")


def root_mean_square(errors: list[list[float]]) -> tuple[float, float]:
    """Return the root mean square over draws and slopes, and its standard error over draws."""
    squares = np.mean(np.square(errors), axis=1)
    found = math.sqrt(float(np.mean(squares)))
    return found, float(np.std(squares)) / math.sqrt(len(squares)) / (2 * max(found, 1e-300))


def print_table(args: argparse.Namespace) -> None:
    cells: dict[tuple[str, str, float, str], list[dict[str, Any]]] = defaultdict(list)
    for row in stored_rows(args.file):
        cells[row["study"], row["family"], row["epsilon"], row["method"]].append(row)
    print("| study | epsilon | method | draws | error | coverage (least of a slope) | width |")
    print("|---|--:|---|--:|--:|--:|--:|")
    for (study, family, epsilon, method), rows in sorted(cells.items()):
        made = [r for r in rows if "error" in r]
        if not made:
            continue
        error, se = root_mean_square([r["error"] for r in made])
        covers = [r["covers"] for r in made if "covers" in r]
        by_slope = np.mean(covers, axis=0) if covers else np.array([np.nan])
        width = np.mean([r["width"] for r in made if "width" in r]) if covers else np.nan
        print(
            f"| {study}, {family} | {epsilon:g} | {method} | {len(made)} | {error:.4f} ± {se:.4f} "
            f"| {by_slope.mean():.3f} ({by_slope.min():.2f}) | {width:.2f} |"
        )


def print_page(args: argparse.Namespace) -> None:
    """Print the table of docs/adr/044-regressions-by-one-step.md."""
    cells: dict[tuple[str, str], dict[float, list[dict[str, Any]]]] = defaultdict(dict)
    for row in stored_rows(args.file):
        if row["method"] == "one_step" and "covers" in row:
            cells[row["family"], row["study"]].setdefault(row["epsilon"], []).append(row)
    print(f"| study | {' | '.join(f'epsilon {epsilon:g}' for epsilon in args.epsilons)} |")
    print("|---" * (1 + len(args.epsilons)) + "|")
    for family, in_words in _IN_WORDS.items():
        for study in ALL:
            found = cells[family, study]
            if found:
                told = [_cell(found.get(epsilon, [])) for epsilon in args.epsilons]
                print(f"| {study}, {in_words} | {' | '.join(told)} |")


def _cell(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    error, se = root_mean_square([row["error"] for row in rows])
    covers, width = (np.mean([np.mean(row[key]) for row in rows]) for key in ("covers", "width"))
    return f"{_short(error, 2)} ± {_short(se, 1)}; {covers:.2f}; {width:.1f}".replace("; 0.", "; .")


def _short(value: float, significant: int) -> str:
    """Return so many significant digits, without the zero before the point."""
    digits = max(0, significant - 1 - math.floor(math.log10(max(value, 1e-9))))
    return f"{value:.{digits}f}".removeprefix("0")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table", "page"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--studies", nargs="+", default=list(ALL), choices=list(ALL))
    parser.add_argument("--families", nargs="+", default=["gaussian", "binomial", "poisson"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=["one_step", "moments", "gradient"])
    args = parser.parse_args()
    {"run": measure, "table": print_table, "page": print_page}[args.what](args)


if __name__ == "__main__":
    main()
