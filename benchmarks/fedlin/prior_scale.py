"""Which scale of the prior between sites `fedlin_full` should take: coverage and width by scale.

    python -m benchmarks.fedlin.prior_scale run FILE [--seeds 100] [--sites 3 4 6 10]
    python -m benchmarks.fedlin.prior_scale table FILE
    python -m benchmarks.fedlin.prior_scale exact

The prior of each sd between sites is half-t with 2 degrees of freedom and scale A, in the units
analysed: standard deviations of the outcome for one of the predictor. Cells are a number of sites,
the mean number of records at a site (each site has between 2/3 and 4/3 of it), and the true sd tau
of both slopes between sites, with correlation 0.5. Predictors have variance 1 and correlation 0.3,
the slopes' means are 0.3 and 0, and the outcome has variance 1 within sites on average. So a
slope's standard error at a site is about 0.21 with 20 records, and 0.06 with 200. The residual
variance is estimated.

For each data set the posterior is drawn once, at A = 0.5, from the likelihood to which the rounds
converge. Draws are weighted for the other scales by the ratio of the priors, which is bounded. So
scales are compared on the same draws; `ess` is the smallest effective sample size. Beside them:

    t      m +- t(K - 1) root(T / K), the interval that belongs to the test of a mean (f_tests)
    reml   statsmodels' MixedLM of the centred records: its estimate +- t(K - 1) standard errors

Coverage is that of 95 % intervals, +- its standard error over data sets. Widths are those of the
intervals of a mean, divided by the width for a known Sigma, 2 x 1.96 root(T_jj / K): their medians.

`exact` has no Monte Carlo error: one coefficient and equal designs with a standard error s at a
site, by quadrature over tau, and over the law of the sites' scatter. Its widths are divided by that
of the t interval, which has exactly the stated coverage there. "s to 1" is a prior whose scale
comes from the data: flat below s, as 1 / tau up to about 1, and as tau^-3 beyond.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import chi2
from scipy.stats import t as student
from statsmodels.regression.mixed_linear_model import MixedLM  # type: ignore[import-untyped]

from benchmarks.harness import store_row, stored_rows
from secagg.models.fedlin.full.equal_sites import NU, EqualSites
from secagg.models.fedlin.full.hamiltonian import Target, draw_covariances
from secagg.models.fedlin.full.posterior import SharedDraws
from secagg.models.fedlin.full.site_sums import coefficient_draws, round_sums
from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.numerics.natural_gaussian import symmetric

Array = NDArray[Any]
SCALES, PROPOSAL, LEVEL = (0.1, 0.25, 0.5, 1.0), 0.5, 0.95
D, ROUNDS, DRAWS = 2, 12, 100
MU, X_COV = np.array([0.3, 0.0]), np.array([[1, 0.3], [0.3, 1]])
R: Array = np.array([[1, 0.5], [0.5, 1]])
RECORDS, SPREADS, SITES = (20, 200), (0.0, 0.05, 0.3), (3, 4, 6, 10)
QUANTITIES = ("mu", "theta", "sd")


class Data:
    """Sites' theta (K, 2), centred X and y, and their sufficient statistics."""

    def __init__(self, sites: int, records: int, tau: float, seed: int) -> None:
        rng = np.random.default_rng([sites, records, round(100 * tau), seed, 40])
        explained = MU @ X_COV @ MU + tau**2 * np.trace(R @ X_COV)
        self.Sigma, noise = tau**2 * R, np.sqrt(1 - explained)
        self.theta = MU + tau * rng.standard_normal((sites, D)) @ np.linalg.cholesky(R).T
        self.X, self.y = list[Array](), list[Array]()
        for theta in self.theta:
            n = int(rng.integers(2 * records // 3, 4 * records // 3 + 1))
            X = rng.standard_normal((n, D)) @ np.linalg.cholesky(X_COV).T
            y = X @ theta + noise * rng.standard_normal(n)
            self.X.append(X - X.mean(axis=0))
            self.y.append(y - y.mean())
        least = [np.linalg.lstsq(X, y, rcond=None) for X, y in zip(self.X, self.y, strict=True)]
        self.freedom = float(sum(len(y) - 1 - D for y in self.y))
        self.variance = float(sum(one[1][0] for one in least)) / self.freedom
        self.own = np.array([one[0] for one in least])
        self.statistics = [
            SufficientStatistics(X.T @ X, X.T @ y, float(y @ y), len(y) - 1, self.variance)
            for X, y in zip(self.X, self.y, strict=True)
        ]
        each = [np.linalg.inv(self.Sigma + noise**2 * np.linalg.inv(X.T @ X)) for X in self.X]
        self.known = 2 * 1.96 * np.sqrt(np.diagonal(np.linalg.inv(np.sum(each, axis=0))))

    def fitted(self) -> tuple[EqualSites, Array]:
        """Return the likelihood of equal sites after the rounds, and their Sigma."""
        mu, spread, Sigma = np.zeros(D), np.zeros((D, D)), 0.05 * np.eye(D)
        for _ in range(ROUNDS):
            each = [round_sums(site, mu, spread, Sigma) for site in self.statistics]
            total = {name: np.sum([one[name] for one in each], axis=0) for name in each[0]}
            likelihood = EqualSites.of(total, mu, spread, Sigma, len(each))
            mu, Sigma = likelihood.mean, likelihood.mode(Sigma, 0.25)
            spread = np.linalg.inv(symmetric(total["precision"], D))
        return likelihood, Sigma


def log_prior(Sigma: Array, scale: float) -> Array:
    """Return the prior's log density at draws (n, d, d), up to what does not depend on A."""
    precision = np.diagonal(np.linalg.inv(Sigma), axis1=1, axis2=2)
    tails = (NU + D) / 2 * np.log(NU * precision + scale**-2.0)
    return np.asarray(-np.sum(tails + np.log(scale), axis=1))


def ends(values: Array, weights: Array) -> tuple[Array, Array]:
    """Return the ends of the intervals of the columns of values (n, q)."""
    low, high = [], []
    for column in values.T:
        order = np.argsort(column)
        shares = np.cumsum(weights[order]) - weights[order] / 2
        at = np.interp([(1 - LEVEL) / 2, (1 + LEVEL) / 2], shares, column[order])
        low.append(at[0])
        high.append(at[1])
    return np.array(low), np.array(high)


def reml(data: Data) -> tuple[Array, Array]:
    """Return MixedLM's means and standard errors."""
    groups = np.repeat(np.arange(len(data.y)), [len(y) for y in data.y])
    X, y = np.concatenate(data.X), np.concatenate(data.y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = MixedLM(y, X, groups, exog_re=X).fit(reml=True)
    return np.asarray(found.fe_params), np.asarray(found.bse_fe)


def measure(sites: int, records: int, tau: float, seed: int) -> dict[str, Any]:
    """Return what one data set's intervals hold, and their widths."""
    data = Data(sites, records, tau, seed)
    likelihood, Sigma = data.fitted()
    rng = np.random.default_rng([seed, 41])
    target = Target(likelihood, PROPOSAL, data.freedom)
    drawn = SharedDraws.of(draw_covariances(target, Sigma, DRAWS, rng), likelihood, rng)
    theta = np.column_stack(
        [
            coefficient_draws(site, drawn.mu, drawn.Sigma, drawn.ratio, rng)[0]
            for site in data.statistics
        ]
    )
    sd = np.sqrt(np.diagonal(drawn.Sigma, axis1=1, axis2=2))
    found: dict[str, Any] = {"ess": np.inf}
    for scale in SCALES:
        log = log_prior(drawn.Sigma, scale) - log_prior(drawn.Sigma, PROPOSAL)
        weights = np.exp(log - log.max())
        weights /= weights.sum()
        found["ess"] = min(found["ess"], float(1 / (weights @ weights)))
        truths = (MU, data.theta.ravel(), np.full(D, tau))
        for name, values, truth in zip(QUANTITIES, (drawn.mu, theta, sd), truths, strict=True):
            low, high = ends(values, weights)
            found[f"{name} {scale:g}"] = float(np.mean((low <= truth) & (truth <= high)))
            if name == "mu":
                found[f"width {scale:g}"] = float(np.mean((high - low) / data.known))
        estimate = (weights @ theta).reshape(-1, D)
        error, least = estimate - data.theta, data.own - data.theta
        found[f"error {scale:g}"] = float(np.sqrt(np.mean(error**2) / np.mean(least**2)))
    reach = float(student.ppf((1 + LEVEL) / 2, sites - 1))
    errors = np.sqrt(np.diagonal(likelihood.wide) / sites)
    others = {"t": (likelihood.mean, errors)}
    try:
        mean, error = reml(data)
        if np.all(np.isfinite(error)):
            others["reml"] = mean, error
    except (np.linalg.LinAlgError, ValueError):  # its optimiser failed
        pass
    for name, (mean, error) in others.items():
        found[f"mu {name}"] = float(np.mean(np.abs(mean - MU) <= reach * error))
        found[f"width {name}"] = float(np.mean(2 * reach * error / data.known))
    return found


def exact(K: int, error: float, tau: float) -> list[tuple[float, float]]:
    """Return coverage, and mean width over that of the t interval, of each prior of tau."""
    grid = np.geomspace(1e-4, 100, 600)
    T, true = error**2 + grid**2, error**2 + tau**2
    S = true * chi2.ppf((np.arange(200) + 0.5) / 200, K - 1)
    log = np.log(grid) - (K - 1) / 2 * np.log(T) - S[:, None] / 2 / T
    densities = [-1.5 * np.log1p(grid**2 / (NU * A**2)) for A in SCALES]
    densities.append(-np.log(error**2 + grid**2) / 2 - np.log1p(grid**2 / NU))
    found = []
    for density in densities:
        weights = np.exp(log + density - np.max(log + density, axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        low, high = np.zeros(len(S)), np.full(len(S), 1e3)
        for _ in range(40):  # bisection
            middle = (low + high) / 2
            below = np.sum(weights * ndtr(middle[:, None] / np.sqrt(T / K)), axis=1)
            low, high = (
                np.where(below < (1 + LEVEL) / 2, middle, low),
                np.where(below < (1 + LEVEL) / 2, high, middle),
            )
        reach = student.ppf((1 + LEVEL) / 2, K - 1) * np.mean(np.sqrt(S / (K - 1) / K))
        covered = np.mean(2 * ndtr(high / np.sqrt(true / K)) - 1)
        found.append((float(covered), float(np.mean(high) / reach)))
    return found


def print_exact() -> None:
    """Print a row for each number of sites, standard error and tau."""
    print("| sites | s | tau |" + "".join(f" A = {A:g} |" for A in SCALES) + " s to 1 |")
    print("|--:" * (4 + len(SCALES)) + "|")
    for K in SITES:
        for error in (0.2, 0.05):
            for tau in (0.0, 0.1, 0.3):
                cells = [f"{held:.3f} ({width:.2f})" for held, width in exact(K, error, tau)]
                print(f"| {K} | {error:g} | {tau:g} | {' | '.join(cells)} |")


def run(file: Path, seeds: int, sites: list[int]) -> None:
    """Run what FILE lacks."""
    done = {(row["sites"], row["records"], row["tau"], row["seed"]) for row in stored_rows(file)}
    for seed in range(seeds):
        for cell in ((K, n, tau) for K in sites for n in RECORDS for tau in SPREADS):
            if (*cell, seed) not in done:
                names = dict(zip(("sites", "records", "tau"), cell, strict=True))
                store_row(file, names | {"seed": seed} | measure(*cell, seed))


def table(file: Path) -> None:
    """Print a row for each cell."""
    groups = defaultdict(list)
    for row in stored_rows(file):
        groups[row["sites"], row["records"], row["tau"]].append(row)
    scales = [f"{scale:g}" for scale in SCALES]
    head = [f"mu, A = {s}" for s in scales] + ["mu, t", "mu, REML"]
    head += [f"width {s}" for s in [*scales, "t", "REML"]]
    head += [f"{name}, {s}" for name in ("theta", "sd", "error") for s in ("0.25", "1")]
    print("| sites | records | tau | sets | ess | " + " | ".join(head) + " |")
    print("|--:" * (5 + len(head)) + "|")
    columns = [f"mu {s}" for s in [*scales, "t", "reml"]]
    columns += [f"width {s}" for s in [*scales, "t", "reml"]]
    columns += [f"{name} {s}" for name in ("theta", "sd", "error") for s in ("0.25", "1")]
    for (K, n, tau), rows in sorted(groups.items()):
        cells = []
        for key in columns:
            values = np.array([row[key] for row in rows if key in row])
            if key.startswith("width"):
                cells.append(f"{np.median(values):.2f}")
            else:
                cells.append(f"{values.mean():.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}")
        ess = np.median([row["ess"] for row in rows])
        print(f"| {K} | {n} | {tau:g} | {len(rows)} | {ess:.0f} | " + " | ".join(cells) + " |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "table", "exact"])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--sites", type=int, nargs="+", default=list(SITES))
    asked = parser.parse_args()
    if asked.what == "exact":
        print_exact()
        return
    if asked.file is None:
        parser.error("FILE is missing")
    if asked.what == "run":
        run(asked.file, asked.seeds, asked.sites)
    table(asked.file)


if __name__ == "__main__":
    main()
