"""Cells of simulated records in which one site deviates from all others.

At site k, y = level_k + X theta_k + e, with ten coefficients EFFECTS, standard normal X and e, and
RECORDS records. The last site deviates: its first coefficient, an effect at all other sites, is
smaller by delta, and its sixth, zero at all other sites, is delta. Cells with the same seed and
number of sites share X, e and levels for all values of delta.

Errors are root mean squares over the ten coefficients, in the data's own units: "error" relative to
EFFECTS, the coefficients of all other sites, and "site_error" relative to the deviating site's own.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from reproductions.harness.simulated_runs import simulated
from reproductions.sparse_bayes.tasks.sampler import (
    MAX_R_HAT,
    quantities,
    sampled,
    sampler,
    worst,
)
from secagg.contracts import Array, Result
from secagg.experiments.runner.types import CONVERGED, Settings

EFFECTS = np.array([1.0, -0.6, 0.3, 0, 0, 0, 0, 0, 0, 0])
LOST, GAINED = 0, 5  # positions of the coefficients that deviate at the last site
RECORDS = 60
_COLUMN_BOUND = 100.0  # public bound of every column, far larger than any value


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return errors and PIPs. Settings: sites, delta, seed; those of `sampler.sampler`.

    "federated": the sparse model; "pooled": least squares on all records, with an intercept for
    each site; "others": the same without the deviating site (possible only in a simulation);
    "alone": least squares at the deviating site. PIPs: "effect" of the first coefficient, "gained"
    of the sixth, "none" the mean over coefficients that are zero at all sites.
    """
    parts, deviating = draw(int(settings["sites"]), float(settings["delta"]), int(settings["seed"]))
    centred = [part - part.mean(axis=0) for part in parts]
    result, own = _fit(parts, settings)
    spread = np.sqrt(np.mean(np.concatenate(centred) ** 2, axis=0))
    units = spread[0] / spread[1:]
    theta, inclusion = sampled(result)
    r_hat, ess = worst([quantities(theta, inclusion, (j,)) for j in range(len(EFFECTS))])
    converged = {CONVERGED: float(r_hat <= MAX_R_HAT)}
    nowhere = (EFFECTS == 0) & (np.arange(len(EFFECTS)) != GAINED)
    fits = {"pooled": centred, "others": centred[:-1], "alone": centred[-1:]}
    least = {name: _least_squares(np.concatenate(each)) for name, each in fits.items()}
    return {
        "federated": {
            "error": _error(theta.mean * units, EFFECTS),
            "site_error": _error(own * units, deviating),
            "r_hat": r_hat,
            "ess": ess,
        } | converged,
        "pooled": {"error": _error(least["pooled"], EFFECTS), CONVERGED: 1.0},
        "others": {"error": _error(least["others"], EFFECTS), CONVERGED: 1.0},
        "alone": {"site_error": _error(least["alone"], deviating), CONVERGED: 1.0},
        "effect": {"pip": float(inclusion.mean[LOST])} | converged,
        "gained": {"pip": float(inclusion.mean[GAINED])} | converged,
        "none": {"pip": float(inclusion.mean[nowhere].mean())} | converged,
    }  # fmt: skip


def draw(sites: int, delta: float, seed: int) -> tuple[list[Array], Array]:
    """Return each site's records with y in the first column, and the last site's coefficients."""
    rng = np.random.default_rng([sites, seed])
    deviating = EFFECTS.copy()
    deviating[LOST] -= delta
    deviating[GAINED] += delta
    parts = []
    for site in range(sites):
        X = rng.standard_normal((RECORDS, len(EFFECTS)))
        theta = deviating if site == sites - 1 else EFFECTS
        y = rng.standard_normal() + X @ theta + rng.standard_normal(RECORDS)
        parts.append(np.column_stack([y, X]))
    return parts, deviating


def _fit(parts: list[Array], settings: Settings) -> tuple[Result, Array]:
    """Return the run's result, and the posterior mean of the last site's own coefficients."""
    names = ["y", *(f"x{j + 1}" for j in range(len(EFFECTS)))]
    bounds = {"type": "continuous", "low": -_COLUMN_BOUND, "high": _COLUMN_BOUND}
    tables = {f"site {k + 1}": pd.DataFrame(part, columns=names) for k, part in enumerate(parts)}
    outcome = {"name": "sparse_regression", "outcome": "y", "prior": "paper"}
    method = outcome | sampler(settings)
    columns = dict.fromkeys(names, bounds)
    result, own = simulated(method, columns, tables, int(settings["seed"]))
    [regression] = own[f"site {len(parts)}"].summary["regressions"]
    return result, np.array([row["mean"] for row in regression["coefficients"]])


def _least_squares(centred: Array) -> Array:
    return np.asarray(np.linalg.lstsq(centred[:, 1:], centred[:, 0])[0], dtype=np.float64)


def _error(estimate: Array, truth: Array) -> float:
    return float(np.sqrt(np.mean((estimate - truth) ** 2)))
