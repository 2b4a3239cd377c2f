"""Cells of maximum heart rate at four hospitals: federated sparse regression, and least squares.

Coefficients are standardised: standard deviations of the outcome per standard deviation of the
predictor, both pooled within hospitals. Least squares has an intercept for each hospital and comes
from one secure sum of moments with centre = "site".
"""

from __future__ import annotations

from reproductions.data import heart_disease
from reproductions.harness.simulated_runs import simulated
from reproductions.sparse_bayes.tasks.sampler import (
    LEVEL,
    WHOLE_FIT,
    quantities,
    sampled,
    sampler,
    widths,
)
from secagg.experiments.runner.types import Settings

PREDICTORS = [name for name in heart_disease.COLUMNS if name != heart_disease.OUTCOME]


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the numbers of each common coefficient, by its name; each hospital's own posterior
    means, by the hospital's name; and the numbers of the whole fit.

    Settings: method ("sparse" or "least-squares"), seed; for "sparse" also those of
    `sampler.sampler`.
    """
    if settings["method"] == "least-squares":
        return _least_squares()
    method = {
        "name": "sparse_regression",
        "outcome": heart_disease.OUTCOME,
        "predictors": PREDICTORS,
        "prior": "paper",
    }
    result, own = simulated(
        method | sampler(settings),
        heart_disease.COLUMNS,
        heart_disease.hospitals(),
        int(settings["seed"]),
    )
    theta, inclusion = sampled(result)
    terms = [row["term"] for row in result.summary["coefficients"]]
    by_hospital = {
        name: {row["term"]: row["mean"] for row in each.summary["regressions"][0]["coefficients"]}
        for name, each in own.items()
    }
    by_term = {term: quantities(theta, inclusion, (j,)) for j, term in enumerate(terms)}
    fit = {"records": result.summary["n"]} | widths(result.arrays["draws_eta"])
    return by_term | by_hospital | {WHOLE_FIT: fit}


def _least_squares() -> dict[str, dict[str, float]]:
    fit = {
        "kind": "ols",
        "outcome": heart_disease.OUTCOME,
        "predictors": PREDICTORS,
        "level": LEVEL,
    }
    moments = {
        "name": "moments", "centre": "site", "analyses": [{"kind": "describe"}, fit],
    }  # fmt: skip
    summary = simulated(moments, heart_disease.COLUMNS, heart_disease.hospitals(), 0)[0].summary
    described, fitted = summary["analyses"]
    sd = {row["column"]: row["sd"] for row in described["columns"]}
    by_term = {
        row["term"]: {
            name: row[key] * sd[row["term"]] / sd[heart_disease.OUTCOME]
            for name, key in (("mean", "estimate"), ("low", "ci_low"), ("high", "ci_high"))
        }
        for row in fitted["terms"]
    }
    return by_term | {WHOLE_FIT: {"records": fitted["n"]}}
