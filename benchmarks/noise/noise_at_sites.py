"""Coverage of intervals of regressions with noise once at the site.

    python -m benchmarks.noise.noise_at_sites --epsilon 1 --repeat 40 --rounds 1000
    python -m benchmarks.noise.noise_at_sites --method fedlin_hm2 --epsilon 1 --sites 6 --spread 0.2
    python -m benchmarks.noise.noise_at_sites --method fedlin_hm2 --epsilon 1 --as-if-exact

Four sites of 400 records each (or `--sites`, `--rows`), four predictors with correlations of 0.3,
slopes with means 0.5, 0.3, 0 and 0.2 (with `--drawn`, normal ones with standard deviation 0.3) and
normal differences between sites with the standard deviation `--spread`, columns within -4 to 4,
record_norm 1.2 (or `--typical` ranges of -1 to 1), nominal level 90 %. A site's own interval under
sparse_regression, whose result has no quantiles there, is the mean plus and minus 1.645 standard
deviations.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd

import secagg
from secagg.core.arrays import Array
from secagg.models.fedlin.hm2 import FedLinHm2

SLOPES = np.array([0.5, 0.3, 0.0, 0.2])
METHODS = ("sparse_regression", "fedlin_hm2")
NORMAL = 1.645  # half of the width of a 90 % interval, in standard deviations


def records(rng: np.random.Generator, rows: int, slopes: Array) -> pd.DataFrame:
    """Return the records of one site."""
    root = np.linalg.cholesky(0.3 + 0.7 * np.eye(len(slopes)))
    X = rng.normal(size=(rows, len(slopes))) @ root.T
    y = X @ slopes + rng.normal(size=rows)
    names = [*(f"x{j}" for j in range(len(slopes))), "y"]
    return pd.DataFrame(np.column_stack([X, y]), columns=names).clip(-4, 4)


def job(given: argparse.Namespace, columns: list[str]) -> dict[str, Any]:
    """Return the job."""
    column: dict[str, Any] = {"type": "continuous", "low": -4, "high": 4}
    norm: dict[str, Any] = {"record_norm": 1.2}
    if given.typical:
        column["typical"], norm = [-1.0, 1.0], {"expected_records": given.sites * given.rows}
    more = {"rounds": given.rounds} if given.method == "sparse_regression" else {}
    found: dict[str, Any] = {
        "title": "Coverage",
        "sites": {"max_rows": 5000},
        "columns": dict.fromkeys(columns, column),
        "method": {"name": given.method, "outcome": "y", "level": 0.9, **more},
        "protocol": {"name": "plain"},
        "release": {"min_sites": 2, "min_records": 5},
        "privacy": {"placement": "site", "epsilon": given.epsilon, "delta": 1e-5, **norm},
    }  # fmt: skip
    if given.epsilon == np.inf:
        del found["privacy"]
    return found


class Coverage:
    """Intervals and the true values, by data set."""

    def __init__(self) -> None:
        self.covered: list[Array] = []
        self.widths: list[Array] = []
        self.errors: list[Array] = []

    def add(self, low: Array, high: Array, estimate: Array, true: Array) -> None:
        """Add those of one data set."""
        self.covered.append(((low <= true) & (true <= high)).astype(np.float64))
        self.widths.append(high - low)
        self.errors.append(estimate - true)

    def __str__(self) -> str:
        many, by_set = len(self.covered), np.mean(self.covered, axis=1)
        squares = np.mean(np.square(self.errors), axis=1)
        error = np.sqrt(np.mean(squares))
        of_error = np.std(squares) / np.sqrt(many) / (2 * error)
        return (
            f"coverage {np.mean(by_set):.3f} +- {np.std(by_set) / np.sqrt(many):.3f}, width "
            f"{np.mean(self.widths):.3f}, root mean squared error {error:.3f} +- {of_error:.3f}"
        )


def main() -> None:
    """Print coverage, mean width and root mean squared error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--method", choices=METHODS, default=METHODS[0])
    parser.add_argument("--epsilon", type=float, default=1.0, help="inf: no noise")
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="the first data set's seed")
    parser.add_argument("--rounds", type=int, default=1000, help="of sparse_regression")
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--spread", type=float, default=0.0)
    parser.add_argument("--as-if-exact", action="store_true", help="fedlin_hm2 ignores the noise")
    parser.add_argument("--drawn", action="store_true", help="the means of slopes are drawn")
    parser.add_argument("--typical", action="store_true", help="typical ranges, no record_norm")
    given = parser.parse_args()
    if given.as_if_exact:
        FedLinHm2.knows_noise = property(lambda _: False)  # type: ignore[method-assign, assignment]
    common, own, began = Coverage(), Coverage(), time.perf_counter()
    for seed in range(given.first, given.first + given.repeat):
        rng = np.random.default_rng(seed)
        means = 0.3 * rng.standard_normal(len(SLOPES)) if given.drawn else SLOPES
        slopes = means + given.spread * rng.standard_normal((given.sites, len(SLOPES)))
        data = {f"s{k}": records(rng, given.rows, each) for k, each in enumerate(slopes)}
        outcome = secagg.run(job(given, list(data["s0"].columns)), data=data)
        if given.method == "sparse_regression":
            rows = [each["own_units"] for each in outcome.result.summary["coefficients"]]
            common.add(*_of(rows, "mean"), means)
            found = [
                each["own_units"]
                for site in data
                for each in outcome.own[site].summary["regressions"][0]["coefficients"]
            ]
            mean, sd = (np.array([row[name] for row in found]) for name in ("mean", "sd"))
            own.add(mean - NORMAL * sd, mean + NORMAL * sd, mean, slopes.ravel())
            continue
        common.add(*_of(outcome.result.summary["shared"][: len(SLOPES)], "estimate"), means)
        each = [outcome.own[site].summary["coefficients"][1:] for site in data]
        own.add(*_of([row for rows in each for row in rows], "mean"), slopes.ravel())
    took = (time.perf_counter() - began) / given.repeat
    print(
        f"{given.method}, epsilon {given.epsilon:g}, {given.sites} sites of {given.rows}, spread "
        f"{given.spread:g}, {given.repeat} data sets, {took:.1f} s each"
    )
    print(f"  common: {common}")
    print(f"  sites' own: {own}", flush=True)


def _of(rows: list[dict[str, Any]], estimate: str) -> tuple[Array, Array, Array]:
    low, high, found = (np.array([row[name] for row in rows]) for name in ("low", "high", estimate))
    return low, high, found


if __name__ == "__main__":
    main()
