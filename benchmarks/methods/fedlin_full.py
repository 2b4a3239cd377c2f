"""`fedlin_full` beside HM1, HM2, separate least squares and an oracle: errors and coverage.

    python -m benchmarks.methods.fedlin_full run FILE [--seeds 30] [--sites 4 10 100]
        [--cases low ...] [--methods full points hm1 hm2]
    python -m benchmarks.methods.fedlin_full table FILE

Sites have coefficients theta_k (d = 8) and standard normal predictors. Cases:

    low         theta_k ~ N(mu, L L') with L (8, 2) normal: rank 2; 20 records each, noise 1
    unequal     the same, with 12 to 200 records, evenly spaced in logarithms
    spread      theta_k ~ N(mu, Sigma) with full rank: standard deviations from 0.2 to 1, and the
                correlations of d + 4 normal vectors; 20 records each, noise 1
    alike       theta_k = mu: Sigma = 0; 20 records each, noise 1
    I to IV     records as in table 1 of Yue, Al Kontar and Estrada Gomez (2022), in these
                proportions of the sites: I: half 20, half 200, d = 5, noise 0.224, Omega with
                correlations 0.7; II: three tenths 40, others 275; III: 20; IV: 200; noise 0.1 and
                the Omega of `reproductions.fedlin.tasks.simulated_cases`

The error is a site's |theta_hat - theta|, the root mean squared error of noise-free predictions,
averaged over sites. The oracle knows mu, Sigma (or Omega) and the error variance. Coverage is that
of intervals of 95 %: of theta_k, mu, standard deviations between sites and correlations. Tests: how
often a test at level 0.05 rejects. Jobs are as a user writes them; units, variances and means are
estimated. Each line of FILE is one data set and method; finished ones are skipped.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.harness import store_row, stored_rows
from secagg.core.randomness import replayable_random
from secagg.runs.simulate import simulate_sites

Array = NDArray[np.float64]
METHODS: dict[str, dict[str, Any]] = {
    "full": {"name": "fedlin_full", "draws": 500},
    "points": {"name": "fedlin_full", "draws": 500, "points": 1000},
    "hm1": {"name": "fedlin_hm1"},
    "hm2": {"name": "fedlin_hm2"},
}
CASES = ("low", "unequal", "alike", "I", "II", "III", "IV", "spread")
LEVEL = 0.95


class Data:
    """A data set: sites' theta (K, d), X and y; the truth; and the oracle's theta (K, d)."""

    def __init__(self, case: str, sites: int, seed: int) -> None:
        rng = np.random.default_rng([CASES.index(case), sites, seed])
        self.d = d = 5 if case == "I" else 8
        self.noise = {"I": 0.224, "II": 0.1, "III": 0.1, "IV": 0.1}.get(case, 1.0)
        self.Sigma: Array | None = None
        self.mu = np.zeros(d)
        if case in ("low", "unequal", "alike", "spread"):
            self.mu = rng.standard_normal(d)
            rank = d + 4 if case == "spread" else 2
            L = rng.standard_normal((d, rank)) * (case != "alike") / np.sqrt(2)
            if case == "spread":
                L *= (rng.uniform(0.2, 1, d) / np.linalg.norm(L, axis=1))[:, None]
            self.Sigma = L @ L.T
            self.theta = self.mu + rng.standard_normal((sites, rank)) @ L.T
        else:
            omega = _omega(case, sites, rng)
            self.theta = np.linalg.cholesky(omega) @ rng.standard_normal((sites, d))
        counts = {
            "unequal": np.geomspace(12, 200, sites).astype(int),
            "I": np.where(np.arange(sites) % 2 == 0, 20, 200),
            "II": np.where(np.arange(sites) < 0.3 * sites, 40, 275),
            "IV": np.full(sites, 200),
        }.get(case, np.full(sites, 20))
        self.X = [rng.standard_normal((int(n), d)) for n in counts]
        self.y = [
            x @ t + self.noise * rng.standard_normal(len(x))
            for x, t in zip(self.X, self.theta, strict=True)
        ]
        if self.Sigma is None:
            self.oracle = self._given_omega(omega)
        else:
            self.oracle = self._given_sigma(self.Sigma)

    def _given_sigma(self, Sigma: Array) -> Array:
        found = []
        for X, y in zip(self.X, self.y, strict=True):
            W = X @ Sigma @ X.T + self.noise**2 * np.eye(len(X))
            found.append(self.mu + Sigma @ X.T @ np.linalg.solve(W, y - X @ self.mu))
        return np.array(found)

    def _given_omega(self, omega: Array) -> Array:
        K, d = self.theta.shape
        P = np.kron(np.linalg.inv(omega), np.eye(d))
        for k, X in enumerate(self.X):
            at = slice(k * d, (k + 1) * d)
            P[at, at] += X.T @ X / self.noise**2
        h = np.concatenate([X.T @ y for X, y in zip(self.X, self.y, strict=True)])
        return np.asarray(np.linalg.solve(P, h / self.noise**2).reshape(K, d))

    def job(self, method: dict[str, Any]) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
        names = [f"x{j}" for j in range(self.d)]
        tables = {
            f"s{k:03d}": pd.DataFrame(X, columns=names).assign(y=y)
            for k, (X, y) in enumerate(zip(self.X, self.y, strict=True))
        }
        columns = {name: {"type": "continuous", "low": -6, "high": 6} for name in names}
        columns["y"] = {"type": "continuous", "low": -100, "high": 100}
        level = {"level": LEVEL} if method["name"] != "fedlin_hm1" else {}
        return {
            "title": "fedlin_full",
            "sites": {"max_rows": 1000},
            "columns": columns,
            "release": {"min_sites": 2, "min_records": 1},
            "method": {"outcome": "y", **level, **method},
            "protocol": {"name": "plain"},
        }, tables


def _omega(case: str, sites: int, rng: np.random.Generator) -> Array:
    if case == "I":
        return np.asarray(0.3 * np.eye(sites) + 0.7)
    Q, R = np.linalg.qr(rng.standard_normal((sites, sites)))
    root = Q * np.sign(np.diag(R)) * np.sqrt(rng.uniform(1, 10, sites))
    return np.asarray(root @ root.T)


def measure(data: Data, name: str, seed: int) -> dict[str, Any]:
    """Return the numbers of one run."""
    start = time.process_time()
    job, tables = data.job(METHODS[name])
    result, own = simulate_sites(job, tables, random=replayable_random(seed))
    found: dict[str, Any] = {"seconds": time.process_time() - start}
    short = str(result.summary["method"]).removeprefix("fedlin-")
    rows = [own[site].summary["coefficients"][1:] for site in sorted(own)]

    def of(key: str) -> Array:
        return np.array([[row[key] for row in each] for each in rows])

    estimates = {"error": of(short), "separate": of("site_ols"), "oracle": data.oracle}
    for key, value in estimates.items():
        found[key] = float(np.mean(np.linalg.norm(value - data.theta, axis=1)))
    found["rounds"] = result.summary["rounds"]
    found["converged"] = result.summary.get("converged")
    if "shared" not in result.summary:
        return found
    inside = (of("low") < data.theta) & (data.theta < of("high"))
    found["theta"] = float(np.mean(inside))
    if data.Sigma is not None and np.any(data.Sigma):
        sd = np.sqrt(np.diagonal(data.Sigma))
        pairs = np.triu_indices(data.d, 1)
        truth = np.concatenate([data.mu, sd, (data.Sigma / np.outer(sd, sd))[pairs]])
        shared = [r for r in result.summary["shared"] if not r["component"].startswith("log sig")]
        ends = np.array([[row["low"], row["high"]] for row in shared])
        held = (ends[:, 0] < truth[: len(ends)]) & (truth[: len(ends)] < ends[:, 1])
        d = data.d
        parts = {"mu": held[:d], "sd": held[d : 2 * d], "correlation": held[2 * d :]}
        found |= {key: float(np.mean(part)) for key, part in parts.items() if len(part)}
    if "tests" in result.summary:
        found["largest_r_hat"] = result.summary["largest_r_hat"]
        found["effective"] = result.summary.get("points", {}).get("effective")
        tests = {row["name"]: row["p"] for row in result.summary["tests"]}
        each = [p < 0.05 for n, p in tests.items() if n.startswith("sites agree on x")]
        found["rejects_all"] = float(tests["sites agree on all coefficients"] < 0.05)
        found["rejects_each"] = float(np.mean(each))
    return found


def run(file: Path, cases: list[str], sites: list[int], seeds: int, methods: list[str]) -> None:
    """Run what FILE lacks."""
    done = {_key(row) for row in stored_rows(file)}
    for seed in range(seeds):
        for count in sites:
            for case in cases:
                data = None
                for name in methods:
                    if (case, count, seed, name) in done:
                        continue
                    data = data or Data(case, count, seed)
                    row = {"case": case, "sites": count, "seed": seed, "method": name}
                    row |= measure(data, name, seed)
                    store_row(file, row)


def _key(row: dict[str, Any]) -> tuple[str, int, int, str]:
    return row["case"], row["sites"], row["seed"], row["method"]


def table(file: Path) -> None:
    """Print errors and gains, then coverages, with standard errors over data sets."""
    groups = defaultdict(list)
    for row in stored_rows(file):
        groups[row["case"], row["sites"], row["method"]].append(row)

    def cell(rows: list[dict[str, Any]], key: str, digits: int) -> str:
        values = np.array([row[key] for row in rows if row.get(key) is not None])
        if not len(values):
            return ""
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        return f"{values.mean():.{digits}f} ± {error:.{digits}f}"

    print(
        "| case | sites | method | data sets | error | least squares | oracle | gain | rounds | s |"
    )
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    for (case, sites, name), rows in sorted(groups.items()):
        for row in rows:
            row["gain"] = row["separate"] - row["error"]
            row["possible"] = row["separate"] - row["oracle"]
        gain = sum(row["gain"] for row in rows) / sum(row["possible"] for row in rows)
        cells = [cell(rows, key, 4) for key in ("error", "separate", "oracle")]
        cells += [f"{100 * gain:.0f} %", cell(rows, "rounds", 1), cell(rows, "seconds", 1)]
        print(f"| {case} | {sites} | {name} | {len(rows)} | {' | '.join(cells)} |")
    keys = ("theta", "mu", "sd", "correlation", "rejects_all", "rejects_each", "effective")
    print("\n| case | sites | method |" + " | ".join(keys) + " | converged |")
    print("|---|--:|---|" + "--:|" * (len(keys) + 1))
    for (case, sites, name), rows in sorted(groups.items()):
        if name != "hm1":
            digits = {"effective": 0}
            cells = [cell(rows, key, digits.get(key, 3)) for key in keys]
            cells.append(f"{sum(bool(row['converged']) for row in rows)} of {len(rows)}")
            print(f"| {case} | {sites} | {name} | {' | '.join(cells)} |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--sites", type=int, nargs="+", default=[4, 10, 100])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    asked = parser.parse_args()
    if asked.what == "run":
        run(asked.file, asked.cases, asked.sites, asked.seeds, asked.methods)
    table(asked.file)


if __name__ == "__main__":
    main()
