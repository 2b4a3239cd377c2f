"""Intervals of `fedlin_full` hold what they say, over data sets drawn from its prior.

Four sites of 8 to 40 records and two coefficients, from records to intervals in the columns' own
units, as a run makes them. Of N data sets, without points and with:
PYTHONPATH=tests:. python tests/statistical/fedlin/test_full_coverage.py N
"""

import sys

import numpy as np
import pandas as pd
from support.fedlin.written_out import continuous, fedlin_job

from secagg.core.randomness import replayable_random
from secagg.runs.simulate import simulate_sites

SETS, K, D, SCALE, POINTS = 15, 4, 2, 0.5, 500
COMPONENTS = ("theta", "mu", "sd", "correlation")
COLUMNS = {"a": continuous(-10, 10), "b": continuous(-10, 10), "y": continuous(-1e4, 1e4)}
METHOD = {
    "name": "fedlin_full", "scale": "own", "intercept": "none", "sd_scale": SCALE, "level": 0.9,
    "draws": 200,
}  # fmt: skip


def covariance(rng: np.random.Generator) -> np.ndarray:
    """Draw Sigma from the prior: inverse Wishart given a, and a inverse gamma."""
    a = SCALE**-2 / rng.gamma(0.5, size=D)
    root = np.diag(np.sqrt(4 / a))  # 2 nu / a_j, nu = 2
    normals = rng.standard_normal((D + 1, D))  # nu + d - 1 degrees of freedom
    return np.asarray(root @ np.linalg.inv(normals.T @ normals) @ root)


def held(seed: int, points: int = 0) -> list[float]:
    """Return the shares of theta, mu, sds and correlations that their intervals hold."""
    rng = np.random.default_rng((11, seed))
    mu, Sigma = rng.standard_normal(D), covariance(rng)
    theta = rng.multivariate_normal(mu, Sigma, K)
    tables = {}
    for k in range(K):
        X = rng.standard_normal((int(rng.integers(8, 41)), D))
        tables[f"s{k}"] = pd.DataFrame(X, columns=["a", "b"]).assign(
            y=X @ theta[k] + rng.standard_normal(len(X))
        )
    job = fedlin_job({**METHOD, "points": points}, COLUMNS)
    result, own = simulate_sites(job, tables, random=replayable_random(seed))
    rows = [own[name].summary["coefficients"][1:] for name in sorted(own)]
    low, high = (np.array([[row[end] for row in each] for each in rows]) for end in ("low", "high"))
    sd = np.sqrt(np.diagonal(Sigma))
    truth = np.concatenate([mu, sd, [Sigma[0, 1] / np.prod(sd)]])
    shared = [row for row in result.summary["shared"] if row["component"] != "log sigma^2"]
    ends = np.array([[row["low"], row["high"]] for row in shared])
    inside = (ends[:, 0] < truth) & (truth < ends[:, 1])
    each = (low < theta) & (theta < high), inside[:D], inside[D:-1], inside[-1:]
    return [float(np.mean(one)) for one in each]


def test_intervals_of_four_sites_cover_90_percent() -> None:
    """Components of one data set may be held together or not: errors are of data sets."""
    shares = np.array([held(seed) for seed in range(SETS)])
    for name, values in zip(COMPONENTS, shares.T, strict=True):
        error = max(values.std(ddof=1), 0.15) / np.sqrt(SETS)
        assert abs(values.mean() - 0.9) < 4.5 * error, name


if __name__ == "__main__":
    for points in (0, POINTS):
        found = np.array([held(seed, points) for seed in range(int(sys.argv[1]))])
        errors = found.std(axis=0, ddof=1) / np.sqrt(len(found))
        print(f"{points} points")
        for name, share, error in zip(COMPONENTS, found.mean(axis=0), errors, strict=True):
            print(f"    {name}: {100 * share:.1f} +- {100 * error:.1f} %", flush=True)
