"""Coverage of the intervals of sparse_regression with noise once at the site.

    python benchmarks/noise_at_sites.py --epsilon 1 --repeat 40 --rounds 1000

Four sites of 400 records each, four predictors with correlations of 0.3, true slopes 0.5, 0.3, 0
and 0.2, columns within -4 to 4, record_norm 1.2, nominal level 90 %.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd

import secagg

SITES, ROWS = 4, 400
SLOPES = np.array([0.5, 0.3, 0.0, 0.2])


def records(rng: np.random.Generator) -> pd.DataFrame:
    """Return the records of one site."""
    root = np.linalg.cholesky(0.3 + 0.7 * np.eye(len(SLOPES)))
    X = rng.normal(size=(ROWS, len(SLOPES))) @ root.T
    y = X @ SLOPES + rng.normal(size=ROWS)
    names = [*(f"x{j}" for j in range(len(SLOPES))), "y"]
    return pd.DataFrame(np.column_stack([X, y]), columns=names).clip(-4, 4)


def main() -> None:
    """Print coverage, mean width and root mean squared error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--epsilon", type=float, default=1.0, help="inf: no noise")
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=1000)
    given = parser.parse_args()
    covered, widths, errors, began = [], [], [], time.perf_counter()
    for seed in range(given.repeat):
        rng = np.random.default_rng(seed)
        data = {f"s{k}": records(rng) for k in range(SITES)}
        column = {"type": "continuous", "low": -4, "high": 4}
        job: dict[str, Any] = {
            "title": "Coverage",
            "sites": {"max_rows": 5000},
            "columns": dict.fromkeys(data["s0"].columns, column),
            "method": {
                "name": "sparse_regression", "outcome": "y", "rounds": given.rounds, "level": 0.9,
            },
            "protocol": {"name": "plain"},
            "release": {"min_sites": 2, "min_records": 5},
            "privacy": {
                "placement": "site", "epsilon": given.epsilon, "delta": 1e-5, "record_norm": 1.2,
            },
        }  # fmt: skip
        if given.epsilon == np.inf:
            del job["privacy"]
        found = secagg.run(job, data=data).result.summary["coefficients"]
        for row, true in zip((each["own_units"] for each in found), SLOPES, strict=True):
            covered.append(row["low"] <= true <= row["high"])
            widths.append(row["high"] - row["low"])
            errors.append(row["mean"] - true)
    by_set = np.mean(np.reshape(covered, (given.repeat, -1)), axis=1)
    print(
        f"epsilon {given.epsilon:g}, {given.repeat} data sets: coverage {np.mean(covered):.3f} "
        f"+- {np.std(by_set) / np.sqrt(given.repeat):.3f}, width {np.mean(widths):.3f}, root mean "
        f"squared error {np.sqrt(np.mean(np.square(errors))):.3f}; "
        f"{(time.perf_counter() - began) / given.repeat:.1f} s a run"
    )


if __name__ == "__main__":
    main()
