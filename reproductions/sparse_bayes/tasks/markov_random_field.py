"""Cells of the Markov random field of 20 genes: federated, and by partial correlations.

The partial correlations come from the covariance within studies, which one secure sum of moments
with centre = "site" gives. Fisher's transformation tests each of them: for n records, K studies and
p genes, atanh(r) sqrt(n - K - (p - 2) - 2) is approximately standard normal if there is no edge.
Benjamini and Hochberg's false discovery rate selects the edges; the field's Bayesian false
discovery rate has the same value.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, norm

from reproductions.data import ovarian
from reproductions.harness.simulated_runs import simulated
from reproductions.sparse_bayes.tasks.sampler import (
    WHOLE_FIT,
    quantities,
    sampled,
    sampler,
    widths,
)
from secagg.experiments.runner.types import Settings

FDR = 0.1
PAIR_SEPARATOR = " - "  # between two genes; no gene's name contains it


def side(outcome: str, predictor: str) -> str:
    """Return the name of the coefficient of `predictor` in the regression of `outcome`."""
    return f"{outcome} on {predictor}"


def pair(one: str, other: str) -> str:
    """Return the name of an edge; `one` comes first in the file's order."""
    return f"{one}{PAIR_SEPARATOR}{other}"


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the numbers of each `side` of the field, or of each `pair` of partial correlations.

    Settings: method ("sparse" or "partial"), seed; for "sparse" also those of `sampler.sampler`.
    """
    tables = ovarian.studies()
    columns = ovarian.columns(tables)
    if settings["method"] == "partial":
        moments = {
            "name": "moments", "centre": "site", "analyses": [{"kind": "describe"}],
        }  # fmt: skip
        summary = simulated(moments, columns, tables, 0)[0].summary
        [described] = summary["analyses"]
        correlation = np.array(described["correlation"])
        return partial(list(columns), correlation, described["n"], len(tables))
    method = {"name": "sparse_markov", "variables": list(columns), "fdr": FDR}
    result, _ = simulated(method | sampler(settings), columns, tables, int(settings["seed"]))
    theta, inclusion = sampled(result)
    names, predictors = result.summary["names"], result.arrays["predictors"]
    sides = {
        side(names[j], names[h]): quantities(theta, inclusion, (j, i))
        for j, others in enumerate(predictors)
        for i, h in enumerate(others)
    }
    return sides | {
        WHOLE_FIT: {"records": result.summary["n"]} | widths(result.arrays["draws_eta"])
    }


def partial(
    names: list[str], correlation: NDArray[np.float64], n: int, sites: int
) -> dict[str, dict[str, float]]:
    """Return each pair's partial correlation, its p value, and whether it is an edge (1 or 0)."""
    p = len(names)
    precision = np.linalg.inv(correlation)
    root = np.sqrt(np.diagonal(precision))
    r = -precision / np.outer(root, root)
    upper = np.triu_indices(p, 1)
    z = np.arctanh(r[upper]) * np.sqrt(n - sites - (p - 2) - 2)
    p_value = 2 * norm.sf(np.abs(z))
    edge = false_discovery_control(p_value) <= FDR
    pairs = {
        pair(one, other): {"r": float(r), "p_value": float(q), "edge": float(is_edge)}
        for (one, other), r, q, is_edge in zip(
            itertools.combinations(names, 2), r[upper], p_value, edge, strict=True
        )
    }
    return pairs | {WHOLE_FIT: {"records": float(n)}}
