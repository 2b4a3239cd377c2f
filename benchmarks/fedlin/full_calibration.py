"""Whether the posterior of `fedlin_full` is calibrated: ranks of the truth among its draws.

    python -m benchmarks.fedlin.full_calibration run FILE [--seeds 100] [--cells ...]
    python -m benchmarks.fedlin.full_calibration table FILE

Talts, Betancourt, Simpson, Vehtari and Gelman ("Validating Bayesian inference algorithms with
simulation-based calibration", 2018): if the truth is drawn from the prior and the posterior is
exact, the share of draws below the truth is uniform. Where the truth is fixed by hand, coverage may
differ for a correct posterior, too. Sites have d = 8 coefficients, 20 records with standard normal
predictors and an intercept; errors have variance 1. Cells:

    prior, K      Sigma drawn from the prior of `equal_sites` with A = 0.5; sites' designs differ
    equal, K      the same with one design for all sites, where the likelihood is exact
    spread, K     Sigma of full rank as in `benchmarks.methods.fedlin_full`, A = 1
    estimated, K  the same, with the residual variance estimated from the sites' own least squares
    low, K        Sigma of rank 2 as there

A line of FILE is one data set. `of_mu`, `of_sd`, `of_correlation`: shares of draws below the truth;
`exact_...`: the same with importance weights, which make the likelihood exact, where at least 50
draws are effective. The mean is fixed at 0 in `prior` and `equal`: its prior is flat, and ranks do
not depend on it. Monte Carlo errors are over data sets.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chisquare

from benchmarks.harness import store_row, stored_rows
from benchmarks.methods.fedlin_full import Data
from secagg.models.fedlin.full.equal_sites import NU, EqualSites
from secagg.models.fedlin.full.hamiltonian import Target, draw_covariances
from secagg.models.fedlin.full.posterior import SharedDraws, agreement_of_chains, weights_of
from secagg.models.fedlin.full.site_sums import log_likelihoods, round_sums
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.numerics.natural_gaussian import symmetric

Array = NDArray[Any]
CELLS = ("prior", "equal", "spread", "estimated", "low")
D, RECORDS, ROUNDS, DRAWS, MIN_EFFECTIVE = 8, 20, 15, 300, 50
KINDS = ("mu", "sd", "correlation")


def prior_covariance(scale: float, rng: np.random.Generator) -> Array:
    """Draw Sigma | a ~ IW(nu + d - 1, 2 nu diag(1 / a)), a_j ~ IG(1/2, 1 / A^2)."""
    a = scale**-2 / rng.gamma(0.5, size=D)
    normals = rng.standard_normal((int(NU) + D - 1, D))
    root = np.sqrt(2 * NU / a)
    return np.asarray(root[:, None] * np.linalg.inv(normals.T @ normals) * root)


class Truth:
    """mu (d,), Sigma (d, d), and the sites' X and y."""

    def __init__(self, cell: str, sites: int, seed: int) -> None:
        if cell not in ("prior", "equal"):
            data = Data("low" if cell == "low" else "spread", sites, seed)
            self.mu, self.X, self.y, self.scale = data.mu, data.X, data.y, 1.0
            assert data.Sigma is not None
            self.Sigma = data.Sigma
            return
        rng = np.random.default_rng([CELLS.index(cell), sites, seed, 40])
        self.mu, self.scale = np.zeros(D), 0.5
        self.Sigma = prior_covariance(self.scale, rng)
        shape = (1 if cell == "equal" else sites, RECORDS, D)
        X: Array = np.broadcast_to(rng.standard_normal(shape), (sites, RECORDS, D))
        self.X = list(X)
        theta = rng.standard_normal((sites, D)) @ np.linalg.cholesky(self.Sigma).T
        self.y = [x @ t + rng.standard_normal(RECORDS) for x, t in zip(self.X, theta, strict=True)]

    def statistics(self, *, estimated: bool) -> tuple[list[SufficientStatistics], float]:
        """Return the sites' cross products about their means, and the freedom of s^2 (0: known)."""
        rows = [(x - x.mean(axis=0), y - y.mean()) for x, y in zip(self.X, self.y, strict=True)]
        variance, freedom = 1.0, 0.0
        if estimated:
            left = [y - x @ np.linalg.lstsq(x, y, rcond=None)[0] for x, y in rows]
            freedom = float(sum(len(r) - 1 - D for r in left))
            variance = sum(float(r @ r) for r in left) / freedom
        found = [
            SufficientStatistics(x.T @ x, x.T @ y, float(y @ y), len(y) - 1, variance)
            for x, y in rows
        ]
        return found, freedom


def fitted(sites: list[SufficientStatistics], scale: float) -> tuple[EqualSites, Array]:
    """Return what the coordinator has after its rounds."""
    mu: Array = np.zeros(D)
    spread: Array = np.zeros((D, D))
    Sigma: Array = 0.25 * scale**2 * np.eye(D)
    for _ in range(ROUNDS):
        each = [round_sums(site, mu, spread, Sigma) for site in sites]
        total = {name: np.sum([one[name] for one in each], axis=0) for name in each[0]}
        likelihood = EqualSites.of(total, mu, spread, Sigma, len(sites))
        mu, Sigma = likelihood.mean, likelihood.mode(Sigma, scale)
        spread = np.linalg.inv(symmetric(total["precision"], D))
    return likelihood, Sigma


def measure(cell: str, sites: int, seed: int) -> dict[str, Any]:
    """Return the shares of draws below the truth."""
    start = time.process_time()
    truth = Truth(cell, sites, seed)
    data, freedom = truth.statistics(estimated=cell == "estimated")
    likelihood, Sigma = fitted(data, truth.scale)
    rng = np.random.default_rng(seed)
    drawn = draw_covariances(Target(likelihood, truth.scale, freedom), Sigma, DRAWS, rng)
    shared = SharedDraws.of(drawn, likelihood, rng)
    exact = np.sum(
        [log_likelihoods(s, shared.mu, shared.Sigma, shared.ratio) for s in data], axis=0
    )
    weights = weights_of(shared, likelihood, exact)
    at = SharedDraws(truth.mu[None], truth.Sigma[None], np.ones(1)).quantities()[0]
    below = shared.quantities() < at
    found = {
        "r_hat": float(np.nanmax(agreement_of_chains(shared).r_hat)),
        "acceptance": drawn.acceptance,
        "effective": float(1 / (weights @ weights)),
        "seconds": time.process_time() - start,
    }
    parts = (slice(0, D), slice(D, 2 * D), slice(2 * D, -1))
    for kind, part in zip(KINDS, parts, strict=True):
        found[f"of_{kind}"] = np.round(below.mean(axis=0)[part], 4).tolist()
        if found["effective"] >= MIN_EFFECTIVE:
            found[f"exact_{kind}"] = np.round((weights @ below)[part], 4).tolist()
    return found


def run(file: Path, cells: list[str], sites: list[int], seeds: int) -> None:
    """Run what FILE lacks."""
    done = {(row["cell"], row["sites"], row["seed"]) for row in stored_rows(file)}
    for seed in range(seeds):
        for count in sites:
            for cell in cells:
                if (cell, count, seed) in done:
                    continue
                row = {"cell": cell, "sites": count, "seed": seed, **measure(cell, count, seed)}
                store_row(file, row)


def table(file: Path) -> None:
    """Print coverages of 95 and 50 % intervals, and a test that shares are uniform.

    The test is chi-squared with 10 classes, of one component of each data set (the first): those
    of one data set are not independent.
    """
    groups = defaultdict(list)
    for row in stored_rows(file):
        groups[row["cell"], row["sites"]].append(row)
    print("| cell | sites | quantity | likelihood | sets | 95 % | 50 % | mean share | uniform, p |")
    print("|---|--:|---|---|--:|--:|--:|--:|--:|")
    for (cell, sites), rows in sorted(groups.items()):
        for kind in KINDS:
            for how, key in (("equal sites", f"of_{kind}"), ("exact", f"exact_{kind}")):
                shares = np.array([row[key] for row in rows if key in row])
                if len(shares) < 10:
                    continue
                cells = [_mean(np.abs(shares - 0.5) < level / 2) for level in (0.95, 0.5)]
                counts = np.histogram(shares[:, 0], bins=10, range=(0, 1))[0]
                cells += [_mean(shares), f"{chisquare(counts).pvalue:.2f}"]
                print(
                    f"| {cell} | {sites} | {kind} | {how} | {len(shares)} | {' | '.join(cells)} |"
                )
    print(
        "\n| cell | sites | data sets | R-hat: median, 90 %, largest | above 1.05 | effective | s |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    for (cell, sites), rows in sorted(groups.items()):
        hat = np.array([row["r_hat"] for row in rows])
        effective = np.median([row["effective"] for row in rows])
        seconds = np.mean([row["seconds"] for row in rows])
        size = f"{cell} | {sites} | {len(rows)}"
        told = f"{np.median(hat):.3f}, {np.quantile(hat, 0.9):.3f}, {hat.max():.3f}"
        above = f"{np.sum(hat > 1.05)} of {len(hat)}"
        print(f"| {size} | {told} | {above} | {effective:.0f} | {seconds:.0f} |")


def _mean(shares: NDArray[Any]) -> str:
    """Return a mean over data sets and components, and its standard error over data sets."""
    values = shares.mean(axis=1)
    return f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    asked = parser.parse_args()
    if asked.what == "run":
        run(asked.file, asked.cells, asked.sites, asked.seeds)
    table(asked.file)


if __name__ == "__main__":
    main()
