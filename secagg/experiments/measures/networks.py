"""How well a network describes or predicts records that took no part in the run.

Of `torch_module`: `auc` or `unexplained` (`secagg.experiments.measures.predictions`), and for an
outcome of several levels `log_loss`, the mean of minus the log probability of the level, in nats.
Of a neural graphical model:

neg_log_pl     the mean over records of minus the log pseudo-likelihood (Besag 1975): minus the sum
               over columns of the log probability of the column given all others, in nats. For a
               continuous column it is the log density in the column's own unit; so the number
               depends on units, and can be below 0. Only differences between models have a meaning

Of a network without edges, this is the mean of each column's own negative log density, added over
columns. Without noise, a network also counts the residuals of continuous columns, with noise it
takes them as normal. `count_fit = false` in the job makes them normal in all runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.special import log_softmax

from secagg.contracts import Method, PublicFacts, Result
from secagg.experiments.measures.predictions import area_under_curve, unexplained_share
from secagg.experiments.sweep import Records, changed
from secagg.jobs.design_matrix import read_rows
from secagg.jobs.job import Job
from secagg.jobs.registry import make_method
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.ngm.revealer import FedNgr
from secagg.models.neural.torch_module import TorchModule
from secagg.runs.networks.finished_module import FinishedModuleRun
from secagg.runs.networks.finished_ngm import FinishedNgmRun

Tables = Mapping[str, pd.DataFrame]
_FOUND = ("pooled", "votes")
"""Settings of `edges` with which the graph is a result."""


def read_network(job: Job, result: Result) -> FinishedNgmRun | None:
    """Return the model in a result; None if the job's method gives no probabilities."""
    method = make_method(job.method)
    refitted = isinstance(method, FedNgr) and method.refit
    if refitted or (isinstance(method, FedNgm) and method.network == "masked"):
        return FinishedNgmRun.of(job, result)
    return None


def graph_is_given(method: Method) -> bool:
    """Return whether a network's graph is a setting, and not a result."""
    return isinstance(method, FedNgm) and method.edges not in _FOUND


def predictions(network: FinishedNgmRun, others: Tables) -> dict[str, float]:
    """Return the metric over the complete records of these tables; nothing without any."""
    if not others:
        return {}
    table = pd.concat(others.values(), ignore_index=True)
    missing = np.isnan(network.cells.read(table, "other records")).any(axis=1)
    complete = table.iloc[np.flatnonzero(~missing)]
    if complete.empty:
        return {}
    return {"neg_log_pl": -float(np.mean(network.log_pseudo_likelihood(complete)))}


def read_module(job: Job, result: Result) -> FinishedModuleRun | None:
    """Return the module in a result; None if the job's method has none."""
    if job.method.name != TorchModule.name:
        return None
    return FinishedModuleRun.of(job, result)


def module_predictions(module: FinishedModuleRun, others: Tables) -> dict[str, float]:
    """Return the metric over the complete records of these tables; nothing without any."""
    read = [read_rows(module.job.columns, table, module.public, n) for n, table in others.items()]
    values = np.concatenate(
        [np.zeros((0, len(module.public.variables))), *(r.values for r in read)]
    )
    if not len(values):
        return {}
    outputs = module.learner.outputs_for(module.arrays, values)
    truth = values[:, list(module.learner.outcome)]
    if not module.levels:
        value = unexplained_share(outputs[:, 0], truth[:, 0])
        return {} if value is None else {"unexplained": value}
    level = np.where((truth > 0).any(axis=1), truth.argmax(axis=1) + 1, 0)
    if len(module.levels) == 2:
        value = area_under_curve(outputs[:, 1] - outputs[:, 0], level.astype(np.float64))
        return {} if value is None else {"auc": value}
    of_truth = log_softmax(outputs, axis=1)[np.arange(len(level)), level]
    return {"log_loss": -float(np.mean(of_truth))}


def without_edges(job: Job) -> Job | None:
    """Return the job whose network has no edges: each column on its own. None if it cannot be."""
    if not isinstance(make_method(job.method), FedNgm):
        return None
    return changed(job, {"method.edges": []}, job.title)


def at_one_site(method: Method, public: PublicFacts) -> tuple[Method, PublicFacts]:
    """Return method and facts for one site alone, which has the only vote on edges."""
    if not isinstance(method, FedNgm):
        return method, public
    return replace(method, votes=1, public_sites=()), replace(public, sites=public.sites[:1])


def is_measured(job: Job, records: Records) -> bool:
    """Return whether a job's result can be measured on such records: networks need other ones."""
    apart = records.draw == "bootstrap" or bool(records.simulate)
    if apart or job.method.name not in (FedNgm.name, TorchModule.name):
        return True
    if job.method.name == TorchModule.name:
        return False
    return job.method.settings.get("edges", FedNgm.edges) in _FOUND  # then its graph is measured
