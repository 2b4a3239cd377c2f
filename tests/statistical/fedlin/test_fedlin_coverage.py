"""HM2's intervals hold what they say, over data sets drawn from its priors.

From the records of 20 sites to the intervals in the columns' own units, as a run makes them. Of N
data sets, and of as many with 4 sites, without and with weighed points:
PYTHONPATH=tests:. python tests/statistical/fedlin/test_fedlin_coverage.py N
"""

import sys

import numpy as np
import pandas as pd
from support.fedlin.written_out import continuous, fedlin_job

from secagg.core.randomness import replayable_random
from secagg.runs.simulate import simulate_sites

SETS, K, D, NOISE = 15, 20, 2, 1.0
FEW, POINTS = 4, 512
COMPONENTS = ("theta", "mu", "tau")
CENTRE, SPREAD = -3.0, 2.0  # of log tau: the method's default
COLUMNS = {"a": continuous(-10, 10), "b": continuous(-10, 10), "y": continuous(-1e4, 1e4)}
METHOD = {
    "name": "fedlin_hm2", "scale": "own", "intercept": "none", "noise_sd": NOISE, "draws": 500,
    "log_tau_mean": CENTRE, "log_tau_sd": SPREAD, "level": 0.9,
}  # fmt: skip


def held(seed: int, sites: int = K, points: int = 0) -> list[float]:
    """Return the shares of a data set's theta, mu and log tau that their intervals hold."""
    rng = np.random.default_rng((7, seed))
    mu = rng.standard_normal(D)
    tau = np.exp(CENTRE + SPREAD * rng.standard_normal(D))
    theta = mu + np.sqrt(tau) * rng.standard_normal((sites, D))
    tables = {}
    for k in range(sites):
        X = rng.standard_normal((int(rng.integers(5, 31)), D))
        y = X @ theta[k] + NOISE * rng.standard_normal(len(X))
        tables[f"s{k:02d}"] = pd.DataFrame(X, columns=["a", "b"]).assign(y=y)
    job = fedlin_job({**METHOD, "points": points}, COLUMNS)
    result, own = simulate_sites(job, tables, random=replayable_random(seed))
    rows = [own[name].summary["coefficients"][1:] for name in sorted(own)]
    low, high = (np.array([[row[end] for row in each] for each in rows]) for end in ("low", "high"))
    shared = np.array([[row["low"], row["high"]] for row in result.summary["shared"]])
    truth = np.concatenate([mu, np.sqrt(tau)])
    inside = (shared[:, 0] < truth) & (truth < shared[:, 1])
    each = (low < theta) & (theta < high), inside[:D], inside[D:]
    return [float(np.mean(one)) for one in each]


def test_intervals_of_all_sites_cover_90_percent_of_coefficients() -> None:
    """Coefficients of one data set may be held together or not: errors are of data sets."""
    shares = np.array([held(seed)[0] for seed in range(SETS)])
    error = shares.std(ddof=1) / np.sqrt(SETS)
    assert error < 0.015  # so that intervals a third too short (0.73) are found
    assert abs(shares.mean() - 0.9) < 4.5 * error


if __name__ == "__main__":
    for sites, points in ((K, 0), (FEW, 0), (FEW, POINTS)):
        found = np.array([held(seed, sites, points) for seed in range(int(sys.argv[1]))])
        errors = found.std(axis=0, ddof=1) / np.sqrt(len(found))
        print(f"{sites} sites, {points} points")
        for name, share, error in zip(COMPONENTS, found.mean(axis=0), errors, strict=True):
            print(f"    {name}: {100 * share:.1f} +- {100 * error:.1f} %")
