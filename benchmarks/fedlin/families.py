"""`fedlin_full` with binary outcomes and counts: bias and coverage, beside simpler estimates.

    python -m benchmarks.fedlin.families run FILE [--seeds 100] [--cells ...]
    python -m benchmarks.fedlin.families table FILE
    python -m benchmarks.fedlin.families scales FILE [--seeds 30] [--cells ...]

Sites have an intercept and two slopes, theta_k ~ N(mu, Sigma) with mu = (-1, 0.8, 0), standard
deviations (0.8, 0.6, 0.3) between sites and correlations 0.4, and standard normal predictors. Cells
are a family, a number of sites and of records at each: with 15 binary outcomes a site, those of
many sites are separated. Jobs are as a user writes them (500 draws).

`mode`: largest posterior density of Sigma after the rounds, whose limit is maximum likelihood.
`quasi`: the same with the sites' modes and curvatures instead of posterior moments (penalised
quasi-likelihood). `error`: a site's |theta_hat - theta|; `common`: of the posterior mean of mu;
`separate`: of each site's own regression with the prior N(0, 2.5^2) of each coefficient. Coverage
is that of 95 % intervals. After +- are standard errors over data sets. `scales`: the mode only,
with several scales of the prior and without a prior.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.harness import store_row, stored_rows
from secagg.core.randomness import replayable_random
from secagg.models.fedlin.full.equal_sites import EqualSites
from secagg.models.fedlin.full.families import FAMILIES, Records, observation
from secagg.models.fedlin.full.site_sums import round_sums
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.numerics.natural_gaussian import symmetric
from secagg.runs.simulate import simulate_sites

Array = NDArray[Any]
MU, SD, RHO, D = np.array([-1.0, 0.8, 0.0]), np.array([0.8, 0.6, 0.3]), 0.4, 3
SIGMA = np.outer(SD, SD) * (RHO + (1 - RHO) * np.eye(D))
CELLS = {
    f"{family} {sites} x {n}": (family, sites, n)
    for family in ("binomial", "poisson")
    for sites, n in ((10, 60), (30, 15), (30, 60))
}


class Data:
    """Sites' theta (K, d), X and y."""

    def __init__(self, cell: str, seed: int) -> None:
        self.family, sites, n = CELLS[cell]
        rng = np.random.default_rng([list(CELLS).index(cell), seed, 4])
        self.theta = rng.multivariate_normal(MU, SIGMA, sites)
        self.X, self.y = list[Array](), list[Array]()
        for theta in self.theta:
            X = np.column_stack([np.ones(n), rng.standard_normal((n, D - 1))])
            eta = X @ theta
            y = rng.random(n) < expit(eta) if self.family == "binomial" else None
            self.X.append(X)
            self.y.append(np.asarray(rng.poisson(np.exp(eta)) if y is None else y, dtype=float))

    def records(self) -> list[Records]:
        return [Records(FAMILIES[self.family], X, y) for X, y in zip(self.X, self.y, strict=True)]

    def job(self) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
        """Return a job whose units are the columns' own, and its tables."""
        names = [f"x{j}" for j in range(1, D)]
        tables = {
            f"s{k:03d}": pd.DataFrame(X[:, 1:], columns=names).assign(y=y.astype(int))
            for k, (X, y) in enumerate(zip(self.X, self.y, strict=True))
        }
        columns: dict[str, Any] = {n: {"type": "continuous", "low": -6, "high": 6} for n in names}
        most = max(1000, int(max(y.max() for y in self.y)))
        count = {"type": "count", "high": most}
        columns["y"] = {"type": "binary"} if self.family == "binomial" else count
        method = {"name": "fedlin_full", "outcome": "y", "family": self.family, "draws": 500}
        method |= {"intercept": "modelled", "scale": "own", "sd_scale": 1.0}
        return {
            "title": "families",
            "sites": {"max_rows": 1000},
            "columns": columns,
            "release": {"min_sites": 2, "min_records": 1},
            "method": method,
            "protocol": {"name": "plain"},
        }, tables


def quasi(records: Records, mu: Array, Sigma: Array) -> SufficientStatistics:
    """Return the normal likelihood with the mode and curvature of the posterior."""
    P = np.linalg.inv(Sigma)
    mode, H = records.mode(mu, P)
    return SufficientStatistics(H - P, H @ mode - P @ mu, 0.0, len(records.y), 1.0)


Observe = Callable[[Records, Array, Array], SufficientStatistics]


def mode(
    sites: list[Records], observe: Observe, scale: float | None = 1.0, rounds: int = 20
) -> tuple[Array, Array]:
    """Return mu and Sigma after the rounds; scale: of the prior, None without one."""
    mu: Array = np.zeros(D)
    spread: Array = np.zeros((D, D))
    Sigma: Array = 0.25 * np.eye(D)
    for _ in range(rounds):
        each = [round_sums(observe(site, mu, Sigma), mu, spread, Sigma) for site in sites]
        total = {name: np.sum([one[name] for one in each], axis=0) for name in each[0]}
        likelihood = EqualSites.of(total, mu, spread, Sigma, len(sites))
        mu, Sigma = likelihood.mean, likelihood.mode(Sigma, scale)
        spread = np.asarray(np.linalg.inv(symmetric(total["precision"], D)))
    return mu, Sigma


def measure(cell: str, seed: int) -> dict[str, Any]:
    """Return the numbers of one data set."""
    data, start = Data(cell, seed), time.process_time()
    job, tables = data.job()
    result, own = simulate_sites(job, tables, random=replayable_random(seed))
    found: dict[str, Any] = {"seconds": time.process_time() - start}
    found["rounds"] = result.summary["rounds"]
    found["converged"] = result.summary["converged"]
    shared = {row["component"]: row for row in result.summary["shared"]}
    names = ["intercept", *(f"x{j}" for j in range(1, D))]
    pairs = [(i, j) for i in range(D) for j in range(i + 1, D)]
    truth = {f"mu[{n}]": float(v) for n, v in zip(names, MU, strict=True)}
    truth |= {f"log tau[{n}]": float(v) for n, v in zip(names, SD, strict=True)}
    truth |= {f"correlation[{names[i]}, {names[j]}]": RHO for i, j in pairs}
    for kind in ("mu", "log tau", "correlation"):
        ends = [(shared[n], v) for n, v in truth.items() if n.startswith(kind)]
        found[kind] = float(np.mean([row["low"] < v < row["high"] for row, v in ends]))
    rows = [own[name].summary["coefficients"] for name in sorted(own)]
    low, high, mean = (
        np.array([[row[key] for row in each] for each in rows]) for key in ("low", "high", "full")
    )
    found["theta"] = float(np.mean((low < data.theta) & (data.theta < high)))
    separate = [r.mode(np.zeros(D), np.eye(D) / 2.5**2)[0] for r in data.records()]
    centre = np.array([shared[f"mu[{n}]"]["estimate"] for n in names])
    for key, estimate in (("error", mean), ("common", centre), ("separate", np.array(separate))):
        found[key] = float(np.mean(np.linalg.norm(estimate - data.theta, axis=1)))
    for how, observe in (("mode", observation), ("quasi", quasi)):
        mu, Sigma = mode(data.records(), observe)
        found[f"{how}_mu"] = (mu - MU).tolist()
        found[f"{how}_sd"] = (np.sqrt(np.diagonal(Sigma)) - SD).tolist()
    return found


def run_scales(file: Path, cells: list[str], seeds: int) -> None:
    """Run the modes that FILE lacks, and print the biases of the sds."""
    done = {(row["cell"], row["seed"]) for row in stored_rows(file)}
    scales = {"none": None, "0.5": 0.5, "1": 1.0}
    for seed in range(seeds):
        for cell in (cell for cell in cells if (cell, seed) not in done):
            records, row = Data(cell, seed).records(), {"cell": cell, "seed": seed}
            for name, scale in scales.items():
                _, Sigma = mode(records, observation, scale)
                row[name] = (np.sqrt(np.diagonal(Sigma)) - SD).tolist()
            store_row(file, row)
    print("| cell | sets | scale | bias of sd: intercept | x1 | x2 |\n|---|--:|--:|--:|--:|--:|")
    for cell in cells:
        for name in scales:
            found = np.array([row[name] for row in stored_rows(file) if row["cell"] == cell])
            errors = found.std(axis=0, ddof=1) / np.sqrt(len(found))
            biases = zip(found.mean(axis=0), errors, strict=True)
            texts = " | ".join(f"{bias:.3f} ± {error:.3f}" for bias, error in biases)
            print(f"| {cell} | {len(found)} | {name} | {texts} |")


def run(file: Path, cells: list[str], seeds: int) -> None:
    """Run what FILE lacks."""
    done = {(row["cell"], row["seed"]) for row in stored_rows(file)}
    for seed in range(seeds):
        for cell in cells:
            if (cell, seed) not in done:
                row = {"cell": cell, "seed": seed, **measure(cell, seed)}
                store_row(file, row)


def table(file: Path) -> None:
    """Print biases, then coverages and errors."""
    groups = defaultdict(list)
    for row in stored_rows(file):
        groups[row["cell"]].append(row)

    def cell(values: Array) -> str:
        return f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}"

    print(
        "| cell | sets | estimate | bias of mu: intercept | x1 | x2 | of sd: intercept | x1 | x2 |"
    )
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|")
    for name, rows in groups.items():
        for how in ("mode", "quasi"):
            each = np.array([row[f"{how}_mu"] + row[f"{how}_sd"] for row in rows])
            biases = " | ".join(cell(column) for column in each.T)
            print(f"| {name} | {len(rows)} | {how} | {biases} |")
    keys = ("theta", "mu", "log tau", "correlation", "error", "common", "separate", "rounds")
    print(f"\n| cell | {' | '.join(keys)} | converged | s |")
    print("|---|" + "--:|" * (len(keys) + 2))
    for name, rows in groups.items():
        cells = [cell(np.array([row[key] for row in rows], dtype=float)) for key in keys]
        ended = f"{sum(bool(row['converged']) for row in rows)} of {len(rows)}"
        seconds = np.mean([row["seconds"] for row in rows])
        print(f"| {name} | {' | '.join(cells)} | {ended} | {seconds:.0f} |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table", "scales"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    asked = parser.parse_args()
    if asked.what == "scales":
        run_scales(asked.file, asked.cells, asked.seeds)
        return
    if asked.what == "run":
        run(asked.file, asked.cells, asked.seeds)
    table(asked.file)


if __name__ == "__main__":
    main()
