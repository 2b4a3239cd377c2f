"""The plan's expected error of regressions under noise, beside the error that is measured.

    python -m benchmarks.noise.predicted_error FILE --seeds 20 [--method NAME]...

Every method that fits a linear regression under noise, at four sites of 300, 1000 and 3000 records
and at epsilon 1 and 8; four predictors with correlations of 0.3 that explain a fifth of the
outcome's variance. Columns have mean 0 and standard deviation 1. Their bounds are -5 to 5, as
`secagg plan` assumes; in the design "wide", the outcome's are -20 to 20; in "aside", all are -2 to
8. The table has two predictions: without and with `privacy.expected_columns`, which states means
and standard deviations. Slopes have the standard deviation 0.03 between sites.

The error is the root mean square, over seeds, of |b~ - b| / |b| with the slopes b of the same
method without noise on the same records; a square above 1 counts as 1, which is the error of
slopes of zero and the largest that the plan predicts. Each seed appends a line to FILE, and those
that are there are not run again.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import secagg
from benchmarks.harness import table
from secagg.core.arrays import Array

SITES, BETWEEN = 4, 0.03
ROWS, EPSILONS = (300, 1000, 3000), (1, 8)
DESIGNS = {
    "assumed": ((-5.0, 5.0), (-5.0, 5.0)),
    "wide": ((-5.0, 5.0), (-20.0, 20.0)),
    "aside": ((-2.0, 8.0), (-2.0, 8.0)),
}
PREDICTORS = ("x0", "x1", "x2", "x3")
METHODS = {
    "moments": "site",
    "moments, one sum": "sum",
    "gradient": "round",
    "sparse_regression": "site",
    "fedavg": "site",
    "fedlin_hm1": "site",
    "fedlin_hm2": "site",
    "fedlin_full": "site",
}
"""Each method with its placement of noise."""


def records(seed: int, rows: int) -> dict[str, pd.DataFrame]:
    """Return the records of all sites."""
    rng = np.random.default_rng(seed)
    C = 0.3 + 0.7 * np.eye(len(PREDICTORS))
    mean = rng.normal(size=len(PREDICTORS))
    mean *= np.sqrt(0.2 / (mean @ C @ mean))
    found = {}
    for k in range(SITES):
        X = rng.normal(size=(rows, len(PREDICTORS))) @ np.linalg.cholesky(C).T
        slopes = mean + BETWEEN * rng.normal(size=len(PREDICTORS))
        y = X @ slopes + np.sqrt(0.8) * rng.normal(size=rows)
        found[f"s{k}"] = pd.DataFrame(np.column_stack([X, y]), columns=[*PREDICTORS, "y"])
    return found


def job(
    method: str, design: str, rows: int, epsilon: float | None, stated: bool = False
) -> dict[str, Any]:
    """Return the job; epsilon None: without noise; stated: whether it states the columns."""
    of_predictors, of_outcome = DESIGNS[design]
    bounds = dict.fromkeys(PREDICTORS, of_predictors) | {"y": of_outcome}
    name = method.split(",", maxsplit=1)[0]
    settings: dict[str, Any] = {"outcome": "y", "predictors": list(PREDICTORS)}
    if name == "moments":
        settings = {"analyses": [{"kind": "ols", **settings}]}
    if name == "gradient":
        settings |= {"family": "gaussian", "rounds": 100}
    if name == "sparse_regression":
        settings["rounds"] = 400
    columns = {
        name: {"type": "continuous", "low": low, "high": high}
        for name, (low, high) in bounds.items()
    }
    found: dict[str, Any] = {
        "title": "Predicted error",
        "sites": {"max_rows": 5000},
        "columns": columns,
        "method": {"name": name, **settings},
        "protocol": {"name": "plain" if METHODS[method] == "site" else "masked"},
        "release": {"min_sites": 2, "min_records": 5},
    }
    if epsilon is not None:
        found["privacy"] = {
            "placement": METHODS[method], "epsilon": epsilon, "delta": 1e-5,
            "expected_records": SITES * rows,
        }  # fmt: skip
    if stated:
        found["privacy"]["expected_columns"] = {name: {"mean": 0, "sd": 1} for name in columns}
    return found


def slopes(method: str, run: Any) -> tuple[Array, Array]:
    """Return the common slopes, and those of each site, shape (sites, 4); (0, 4) if none."""
    summary, d = run.result.summary, len(PREDICTORS)
    own = np.zeros((0, d))
    if method.startswith("moments"):
        found = [row["estimate"] for row in summary["analyses"][0]["terms"][1:]]
    elif method == "gradient":
        found = [row["estimate"] for row in summary["terms"][1:]]
    elif method == "sparse_regression":
        found = [row["own_units"]["mean"] for row in summary["coefficients"]]
    else:
        found = [row["own_units"]["mean"] for row in summary["across_sites"][-d:]]
        column = method.removeprefix("fedlin_")
        rows = [site.summary["coefficients"][-d:] for site in run.own.values()]
        own = np.array([[row[column] for row in each] for each in rows])
    return np.array(found, np.float64), own


def relative(found: Array, exact: Array) -> float:
    """Return |found - exact| / |exact|; columns have standard deviation 1."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def cell(method: str, design: str, rows: int, epsilon: int, seed: int) -> dict[str, Any]:
    """Run a job twice, without and with noise."""
    data = records(seed, rows)
    exact, own_exact = slopes(method, secagg.run(job(method, design, rows, None), data=data))
    found, own = slopes(method, secagg.run(job(method, design, rows, epsilon), data=data))
    own_errors = [relative(a, b) for a, b in zip(own, own_exact, strict=True)]
    return {"error": relative(found, exact), "own_errors": own_errors}


def predicted(key: tuple[Any, ...], stated: bool) -> tuple[str, str]:
    """Return what the plan predicts of the common slopes and of a site's own, in words."""
    names = {f"s{k}": pd.DataFrame(columns=[*PREDICTORS, "y"]) for k in range(SITES)}
    plan = secagg.plan(job(*key, stated=stated), names)
    judged = plan["differential_privacy"]["feasibility"]
    bound = "" if judged.get("known", True) else "at least "
    own = judged.get("error_at_a_site")
    return f"{bound}{judged['error']:.2f}", "" if own is None else f"{bound}{own:.2f}"


def root_mean_square(errors: list[float]) -> tuple[float, float]:
    """Return the root mean square of errors of at most 1, and its standard error."""
    squares = np.minimum(np.square(errors), 1.0)
    root = float(np.sqrt(squares.mean()))
    return root, float(squares.std(ddof=1) / np.sqrt(len(squares)) / (2 * root))


def printed(path: Path) -> str:
    """Return the table of all cells of the file."""
    cells = defaultdict(list)
    for line in path.read_text().splitlines():
        found = json.loads(line)
        cells[tuple(found["key"][:4])].append(found)
    lines = []
    for key, runs in sorted(cells.items()):
        if len(runs) < 2:
            continue
        root, error = root_mean_square([run["error"] for run in runs])
        (usual, _), (stated, at_a_site) = predicted(key, False), predicted(key, True)
        row = (*key, usual, stated, f"{root:.2f} ({error:.2f})")
        own = ("", "")
        if runs[0]["own_errors"]:
            squares = [float(np.mean(np.minimum(np.square(r["own_errors"]), 1))) for r in runs]
            of_own, error = root_mean_square(list(np.sqrt(squares)))
            own = (at_a_site, f"{of_own:.2f} ({error:.2f})")
        lines.append((*row, *own))
    head = ("method", "design", "records a site", "epsilon", "as assumed", "stated", "measured")
    return table((*head, "a site's own, stated", "measured"), lines)


def main() -> None:
    """Run the cells that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--method", choices=list(METHODS), action="append")
    parser.add_argument("--design", choices=list(DESIGNS), action="append")
    given = parser.parse_args()
    given.file.touch()
    done = {tuple(json.loads(line)["key"]) for line in given.file.read_text().splitlines()}
    methods, designs = given.method or METHODS, given.design or DESIGNS
    for key in product(methods, designs, ROWS, EPSILONS, range(given.seeds)):
        if key not in done:
            line = json.dumps({"key": key, **cell(*key)})
            with given.file.open("a") as file:
                file.write(f"{line}\n")
    print(printed(given.file))


if __name__ == "__main__":
    main()
