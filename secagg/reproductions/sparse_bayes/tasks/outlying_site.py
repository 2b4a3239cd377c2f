"""Cells of one site that deviates from all others, simulated.

At every site y = level + X theta_k + e, with EFFECTS for ten coefficients, standard normal X and e,
RECORDS records, and a level of its own. The last site's first coefficient, which is an effect at
all others, is smaller by delta, and its sixth, which is none at all others, is delta. Cells of one
seed and number of sites share X, e and levels, whatever delta is.

Errors are root mean squares over the ten coefficients, in the data's own units: "error" against
EFFECTS, which all other sites have, "site_error" against those of the deviating site.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from secagg.contracts import Result
from secagg.core.arrays import Array
from secagg.models.common.posterior_summary import MAX_R_HAT
from secagg.models.sparse_bayes.regression import SparseRegression
from secagg.reproductions.harness.simulated_runs import simulated
from secagg.reproductions.harness.types import CONVERGED, Settings
from secagg.reproductions.sparse_bayes.tasks.sampler import quantities, sampled, sampler, worst

EFFECTS = np.array([1.0, -0.6, 0.3, 0, 0, 0, 0, 0, 0, 0])
LOST, GAINED = 0, 5  # positions of the coefficients in which the last site deviates
RECORDS = 60
_COLUMN_BOUND = 100.0  # public bound of every column; no value comes near it


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return errors and PIPs. Settings: sites, delta, seed; those of `sampled.sampler`.

    "federated": the sparse model; "pooled": least squares on all records, with an intercept for
    each site; "others": the same without the deviating site, which only a simulation can leave out;
    "alone": least squares at the deviating site. PIPs: "effect" of the first coefficient, "gained"
    of the sixth, "none" the mean of those that are none anywhere.
    """
    parts, deviating = draw(int(settings["sites"]), float(settings["delta"]), int(settings["seed"]))
    centred = [part - part.mean(axis=0) for part in parts]
    result, own = _fit(parts, settings)
    spread = np.sqrt(np.mean(np.concatenate(centred) ** 2, axis=0))
    units = spread[0] / spread[1:]
    theta, inclusion = sampled(result)
    found = [quantities(theta, inclusion, (j,)) for j in range(len(EFFECTS))]
    r_hat, ess = worst(found)
    good = {CONVERGED: float(r_hat <= MAX_R_HAT)}
    nowhere = (EFFECTS == 0) & (np.arange(len(EFFECTS)) != GAINED)
    fits = {"pooled": centred, "others": centred[:-1], "alone": centred[-1:]}
    least = {name: _least_squares(np.concatenate(each)) for name, each in fits.items()}
    return {
        "federated": {
            "error": _error(theta.mean * units, EFFECTS),
            "site_error": _error(own * units, deviating),
            "r_hat": r_hat,
            "ess": ess,
        } | good,
        "pooled": {"error": _error(least["pooled"], EFFECTS), CONVERGED: 1.0},
        "others": {"error": _error(least["others"], EFFECTS), CONVERGED: 1.0},
        "alone": {"site_error": _error(least["alone"], deviating), CONVERGED: 1.0},
        "effect": {"pip": float(inclusion.mean[LOST])} | good,
        "gained": {"pip": float(inclusion.mean[GAINED])} | good,
        "none": {"pip": float(inclusion.mean[nowhere].mean())} | good,
    }  # fmt: skip


def draw(sites: int, delta: float, seed: int) -> tuple[list[Array], Array]:
    """Return each site's records, y first, and the coefficients of the last site."""
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
    method = {"name": SparseRegression.name, "outcome": "y", **sampler(settings)}
    columns = dict.fromkeys(names, bounds)
    result, own = simulated(method, columns, tables, int(settings["seed"]))
    [regression] = own[f"site {len(parts)}"].summary["regressions"]
    return result, np.array([row["mean"] for row in regression["coefficients"]])


def _least_squares(centred: Array) -> Array:
    return np.asarray(np.linalg.lstsq(centred[:, 1:], centred[:, 0])[0], dtype=np.float64)


def _error(found: Array, truth: Array) -> float:
    return float(np.sqrt(np.mean((found - truth) ** 2)))
