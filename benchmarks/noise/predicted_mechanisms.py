"""The errors that `secagg plan` predicts of each mechanism, beside those on real records.

    python -m benchmarks.noise.predicted_mechanisms run FILE [--draws 20] [--studies nhefs ...]
        [--families gaussian binomial] [--epsilons 0.5 1 2 4] [--sites 5]
    python -m benchmarks.noise.predicted_mechanisms table FILE [--studies nhefs ...]
    python -m benchmarks.noise.predicted_mechanisms page FILE        # of docs/privacy-cost.md

For each study of `benchmarks.noise.studies` and each epsilon, the plan of a job with `one_step`
chooses the settings of every mechanism and predicts its error (`chosen_ways`). The same jobs then
run on records that are drawn again with replacement, with normal noise of the planned variance.
Measured is the root mean square, over draws and slopes for columns divided by their standard
deviations, of the estimate less the fit without noise, divided by the root mean square of that
fit's slopes. `sampling` is the same of the fits' own standard errors: what a statistician could not
know better with these records and no noise at all. Moments are fitted to first order. A line of
FILE is one study, family, epsilon and mechanism.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import store_row, stored_rows
from benchmarks.noise.regressions import exact, own_units, planned
from benchmarks.noise.studies import STUDIES, Study
from secagg.evidence.feasibility.mechanisms import Way, chosen_ways
from secagg.evidence.feasibility.simulated import FIRST_RUNS, RUNS, RelativeError, fitted
from secagg.jobs.design_matrix import read_rows
from secagg.privacy.expected_error import Verdict
from secagg.sessions.planned_job import Planned, plan_sites


def plan_of(study: Study, epsilon: float, sites: int) -> Planned:
    """Return the plan of a job with `one_step`, which says how many records there are."""
    job = planned(study, "one_step", epsilon, sites, 0.0).job
    privacy = job.privacy.model_copy(update={"expected_records": len(study.table)})
    names = tuple(f"s{k}" for k in range(sites))
    return plan_sites(job.model_copy(update={"privacy": privacy}), names, {})


def measured(way: Way, study: Study, draws: int) -> dict[str, float]:
    """Return the relative error of a way on drawn records, and the relative sampling error."""
    (plan,), squares, sizes, sampling = way.jobs, [], [], []
    rows = read_rows(plan.job.columns, study.table, plan.public, "s0")
    reference = planned(study, "one_step", 1.0, 3, 0.0)
    public = replace(reference.public, clip=None, max_rows=len(study.table))
    whole = read_rows(plan.job.columns, study.table, public, "s0")
    X, y, slopes = own_units(reference, whole, study)
    for draw in range(draws):
        rng = np.random.default_rng([4, draw])
        at = rng.integers(len(y), size=len(y))
        b, errors = exact(X[at], y[at], study.family)
        unit = X[at, 1:].std(axis=0)
        constants = rows.constants[at] if len(rows.constants) else rows.constants
        drawn = replace(rows.part(0, 0), values=rows.values[at], constants=constants)
        found = fitted(plan, plan.public, drawn, 0, rng)
        estimate = np.array([found[name]["estimate"] for name in slopes])
        squares.append(float(np.mean((unit * (estimate - b)) ** 2)))
        sizes.append(float(np.mean((unit * b) ** 2)))
        sampling.append(float(np.mean((unit * errors) ** 2)))
    size = float(np.mean(sizes))
    error = math.sqrt(float(np.mean(squares)) / size)
    se = float(np.std(squares)) / size / math.sqrt(draws) / (2 * error)
    return {"measured": error, "se": se, "sampling": math.sqrt(float(np.mean(sampling)) / size)}


def run(args: argparse.Namespace) -> None:
    done = {(r["study"], r["family"], r["epsilon"]) for r in stored_rows(args.file)}
    for name in args.studies:
        for family in args.families:
            study = STUDIES[name](family)
            for epsilon in args.epsilons:
                if (name, family, epsilon) in done:
                    continue
                found = chosen_ways(plan_of(study, epsilon, args.sites))
                assert found is not None
                trials, lines = found[0], list[dict[str, Any]]()
                for way in found[1]:
                    predicted = trials.error(way.jobs, RUNS, start=FIRST_RUNS)
                    line = {"study": name, "family": family, "epsilon": epsilon}
                    line |= {"method": " ".join(way.kind), "predicted": predicted.error}
                    line |= {"widened": predicted.widened}
                    line |= {"predicted_sampling": predicted.sampling}
                    lines.append(line | measured(way, study, args.draws))
                for line in lines:
                    store_row(args.file, line)


def _verdict(error: float, sampling: float) -> str:
    return RelativeError(error, 0.0, sampling, None).verdict.value


def print_table(args: argparse.Namespace) -> None:
    rows = [r for r in stored_rows(args.file) if r["study"] in args.studies]
    print("| study | epsilon | mechanism | predicted | measured | ratio | sampling error |")
    print("|---|--:|---|--:|--:|--:|--:|")
    for r in rows:
        print(
            f"| {r['study']}, {r['family']} | {r['epsilon']:g} | {r['method']} | "
            f"{r['predicted']:.2f} | {r['measured']:.2f} ± {r['se']:.2f} | "
            f"{r['predicted'] / r['measured']:.2f} | {r['sampling']:.2f} |"
        )
    shares = [f"{what}: within {x}" for what in ("error", "over sampling") for x in ("1.5", "2")]
    print(f"\n| mechanism | cells | {' | '.join(shares)} |\n|---|--:|--:|--:|--:|--:|")
    for method in sorted({r["method"] for r in rows}):
        of_method = [r for r in rows if r["method"] == method]
        ratios = [r["predicted"] / r["measured"] for r in of_method]
        of_sampling = [r["sampling"] / r["predicted_sampling"] for r in of_method]
        found = []
        for logs in (np.log(ratios), np.log(ratios) + np.log(of_sampling)):
            found += [f"{np.mean(np.abs(logs) <= math.log(x)):.2f}" for x in (1.5, 2)]
        print(f"| {method} | {len(of_method)} | {' | '.join(found)} |")
    print("\n| verdict predicted \\ measured | green | amber | red |\n|---|--:|--:|--:|")
    colours = [each.value for each in Verdict]
    pairs = Counter(
        (_verdict(r["predicted"], r["predicted_sampling"]), _verdict(r["measured"], r["sampling"]))
        for r in rows
    )
    for said in colours:
        print(f"| {said} | {' | '.join(str(pairs[said, found]) for found in colours)} |")
    cells: dict[Any, list[dict[str, Any]]] = {}
    for r in rows:
        cells.setdefault((r["study"], r["family"], r["epsilon"]), []).append(r)
    costs = []
    for of_cell in cells.values():
        best = min(of_cell, key=lambda r: r["predicted"])
        costs.append(best["measured"] / min(r["measured"] for r in of_cell))
    print(
        f"\nThe mechanism predicted to be best has {np.mean(costs):.2f} times the least measured "
        f"error (largest {max(costs):.2f}); it is the best in {sum(c == 1 for c in costs)} of "
        f"{len(costs)} cells."
    )


_SHOWN = {"one_step round": "one_step", "moments sum": "moments", "gradient round": "gradient"}
_AT = (1.0, 4.0)


def print_page(args: argparse.Namespace) -> None:
    """Print the measured errors of the mechanisms, and (standard errors), by regression."""
    cells = {
        (r["study"], r["family"], r["epsilon"], r["method"]): r for r in stored_rows(args.file)
    }
    names = [f"ε {epsilon:g}: {name}" for epsilon in _AT for name in _SHOWN.values()]
    print(f"| regression | sampling error | {' | '.join(names)} |")
    print(f"|---|{'--:|' * (1 + len(names))}")
    for study, family in dict.fromkeys((study, family) for study, family, *_ in cells):
        row = [cells.get((study, family, epsilon, m)) for epsilon in _AT for m in _SHOWN]
        found = ["–" if r is None else f"{r['measured']:.2f} ({r['se']:.2f})" for r in row]
        sampling = next(r["sampling"] for r in row if r is not None)
        kind = "linear" if family == "gaussian" else "logistic"
        print(f"| {study}, {kind} | {sampling:.2f} | {' | '.join(found)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table", "page"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--studies", nargs="+", default=list(STUDIES), choices=list(STUDIES))
    parser.add_argument("--families", nargs="+", default=["gaussian", "binomial"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--sites", type=int, default=5)
    args = parser.parse_args()
    {"run": run, "table": print_table, "page": print_page}[args.what](args)


if __name__ == "__main__":
    main()
