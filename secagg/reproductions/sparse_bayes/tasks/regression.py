"""Cells of maximum heart rate at four hospitals: federated sparse regression, and least squares.

Coefficients are in standard deviations of the outcome for one of the predictor, both pooled within
hospitals. Least squares has an intercept for each hospital: it is what one secure sum of moments
with centre = "site" gives.
"""

from __future__ import annotations

from secagg.models.moments.method import PooledMoments
from secagg.models.sparse_bayes.regression import SparseRegression
from secagg.reproductions.data import heart_disease
from secagg.reproductions.harness.simulated_runs import simulated
from secagg.reproductions.harness.types import Settings
from secagg.reproductions.sparse_bayes.tasks.sampler import (
    LEVEL,
    WHOLE_FIT,
    quantities,
    sampled,
    sampler,
    widths,
)

PREDICTORS = [name for name in heart_disease.COLUMNS if name != heart_disease.OUTCOME]


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the numbers of each coefficient in common, by its name, each hospital's own posterior
    means, by the hospital's name, and what is of the whole fit.

    Settings: method ("sparse" or "least-squares"), seed; of the first those of `sampled.sampler`.
    """
    if settings["method"] == "least-squares":
        return _least_squares()
    chosen = {
        "name": SparseRegression.name,
        "outcome": heart_disease.OUTCOME,
        "predictors": PREDICTORS,
    }
    result, own = simulated(
        chosen | sampler(settings),
        heart_disease.COLUMNS,
        heart_disease.hospitals(),
        int(settings["seed"]),
    )
    theta, inclusion = sampled(result)
    terms = [row["term"] for row in result.summary["coefficients"]]
    at_hospitals = {
        name: {row["term"]: row["mean"] for row in kept.summary["regressions"][0]["coefficients"]}
        for name, kept in own.items()
    }
    found = {term: quantities(theta, inclusion, (j,)) for j, term in enumerate(terms)}
    whole = {"records": result.summary["n"]} | widths(result.arrays["draws_eta"])
    return found | at_hospitals | {WHOLE_FIT: whole}


def _least_squares() -> dict[str, dict[str, float]]:
    fit = {
        "kind": "ols",
        "outcome": heart_disease.OUTCOME,
        "predictors": PREDICTORS,
        "level": LEVEL,
    }
    moments = {
        "name": PooledMoments.name, "centre": "site", "analyses": [{"kind": "describe"}, fit],
    }  # fmt: skip
    summary = simulated(moments, heart_disease.COLUMNS, heart_disease.hospitals(), 0)[0].summary
    described, fitted = summary["analyses"]
    sd = {row["column"]: row["sd"] for row in described["columns"]}
    found = {
        row["term"]: {
            name: row[key] * sd[row["term"]] / sd[heart_disease.OUTCOME]
            for name, key in (("mean", "estimate"), ("low", "ci_low"), ("high", "ci_high"))
        }
        for row in fitted["terms"]
    }
    return found | {WHOLE_FIT: {"records": fitted["n"]}}
