"""The models of FedNGM's tables: each is fitted to tables of sites, and predicts any table.

Chajewska and Shrivastava (2023). A target is predicted given all other columns of its record.

    own         a neural graphical model (NGM) of one site
    distilled   the global NGM of the paper: the union of the sites' graphs, trained on samples from
                the sites' own networks (section 2.3)
    federated   the same graph, trained on the sites' records over sums of gradients
    votes       as `federated`, with another graph: tests of partial correlations, two votes
    all         as `federated`, without a graph: each column reads all others
    linear      least squares and logistic regression on all records
    boosting    gradient boosting on all records
    constant    the mean, and the shares of the levels, of all records

The paper recovers graphs by uGLAD, a trained form of the graphical lasso; here it is the graphical
lasso. Networks are those of the method `fedngm` (masked); the paper's network copies its inputs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproductions.fedngm.tasks.records import Predicted, Study
from reproductions.harness.simulated_runs import job_of, simulated
from secagg.contracts import Array
from secagg.jobs.job import read_job
from secagg.runs.networks.finished_ngm import FinishedNgmRun

Sites = Mapping[str, pd.DataFrame]

OWN = "own"
STRONG = {"penalty": 20.0}  # the default of `fedngm` when the tables were computed
VOTES: dict[str, object] = {"edges": "votes", **STRONG}
PAPER_GRAPH: dict[str, object] = {"recovery": "graphical_lasso", **VOTES, "votes": 1}
NGMS: dict[str, dict[str, object]] = {
    OWN: PAPER_GRAPH,
    "distilled": {**PAPER_GRAPH, "learn_from": "samples"},
    "federated": PAPER_GRAPH,
    "votes": VOTES,
    "all": {"edges": "all"},
}
ROUNDS = 1000  # largest number, far more than training needs


@dataclass(frozen=True)
class Fit:
    """predict: from a table to the predictions of all targets; converged: whether the fit did"""

    predict: Callable[[pd.DataFrame], Predicted]
    converged: bool


def fit(name: str, study: Study, sites: Sites, seed: int) -> Fit:
    """Fit a model to the sites' tables. name: one of those above; `own` has one site"""
    if name in NGMS:
        return _ngm(NGMS[name], study, sites, seed)
    table = pd.concat(list(sites.values()), ignore_index=True)
    if name == "constant":
        return _constant(study, table)
    return _regressions(name, study, table, seed)


# --- neural graphical models ----------------------------------------------------------------------


def _ngm(settings: Mapping[str, object], study: Study, sites: Sites, seed: int) -> Fit:
    columns = study.births.columns
    if len(sites) == 1:  # a job needs two sites: the other one has no records
        sites = {**sites, "none": next(iter(sites.values())).iloc[:0]}
    method = {"name": "fedngm", **settings, "rounds": ROUNDS, "seed": seed}
    if method.get("learn_from") == "samples":
        method["samples"] = study.samples
    result, _ = simulated(method, columns, sites, seed)
    run = FinishedNgmRun.of(read_job(job_of(method, columns, sites)), result)

    def predict(table: pd.DataFrame) -> Predicted:
        # One target at a time: all others are given, so that the predictions are exact.
        return {target: _given_others(study, run, target, table) for target in study.targets}

    return Fit(predict, result.summary["status"] == "converged")


def _given_others(study: Study, run: FinishedNgmRun, target: str, table: pd.DataFrame) -> Array:
    """Return a column's means, or the probabilities of its levels."""
    estimates = run.predict(table, [target])[target].estimates
    return (estimates if study.levels(target) else estimates["mean"]).to_numpy()


# --- regressions on all records -------------------------------------------------------------------


def _constant(study: Study, table: pd.DataFrame) -> Fit:
    values: Predicted = {}
    for target in study.targets:
        if levels := study.levels(target):
            counts = np.bincount(study.codes(table, target), minlength=len(levels))
            values[target] = counts[None] / len(table)
        else:
            values[target] = np.array([table[target].mean()])

    def predict(records: pd.DataFrame) -> Predicted:
        return {name: np.repeat(each, len(records), axis=0) for name, each in values.items()}

    return Fit(predict, True)


def _regressions(name: str, study: Study, table: pd.DataFrame, seed: int) -> Fit:
    fits: dict[str, Callable[[Array], Array]] = {}
    for target in study.targets:
        inputs = _inputs(study, table, target)
        if levels := study.levels(target):
            codes = study.codes(table, target)
            fits[target] = _classifier(_classifier_of(name, seed), inputs, codes, len(levels))
        else:
            fitted = _regressor_of(name, seed).fit(inputs, table[target].to_numpy(np.float64))
            fits[target] = fitted.predict

    def predict(records: pd.DataFrame) -> Predicted:
        return {
            target: np.asarray(found(_inputs(study, records, target)))
            for target, found in fits.items()
        }

    return Fit(predict, True)


def _inputs(study: Study, table: pd.DataFrame, target: str) -> Array:
    """Return all other columns, with an indicator for each level but the first."""
    parts: list[Array] = []
    for name in study.births.columns:
        if name == target:
            continue
        if levels := study.levels(name):
            parts.append(np.eye(len(levels))[study.codes(table, name)][:, 1:])
        else:
            parts.append(table[[name]].to_numpy(dtype=np.float64))
    return np.hstack(parts)


def _regressor_of(name: str, seed: int) -> Any:
    if name == "linear":
        return _sklearn("linear_model").LinearRegression()
    return _sklearn("ensemble").HistGradientBoostingRegressor(random_state=seed)


def _classifier_of(name: str, seed: int) -> Any:
    """Return the classifier; the prior of logistic regression is that of the NGMs, N(0, 1)."""
    if name == "linear":
        scaled = _sklearn("preprocessing").StandardScaler()
        logistic = _sklearn("linear_model").LogisticRegression(C=1.0, max_iter=1000)
        return _sklearn("pipeline").make_pipeline(scaled, logistic)
    return _sklearn("ensemble").HistGradientBoostingClassifier(random_state=seed)


def _sklearn(module: str) -> Any:
    return importlib.import_module(f"sklearn.{module}")


def _classifier(
    model: Any, inputs: Array, codes: NDArray[np.intp], levels: int
) -> Callable[[Array], Array]:
    """Fit; the probability of a level that is not among the records is 0."""
    present = np.unique(codes)
    if len(present) > 1:
        model.fit(inputs, codes)

    def probabilities(records: Array) -> Array:
        found = np.zeros((len(records), levels))
        found[:, present] = model.predict_proba(records) if len(present) > 1 else 1.0
        return found

    return probabilities
