"""How well a neural graphical model describes records that took no part in the run.

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

from secagg.contracts import Method, PublicFacts, Result
from secagg.experiments.sweep import Records, changed
from secagg.jobs.job import Job
from secagg.jobs.registry import make_method
from secagg.models.neural.ngm.method import FedNgm
from secagg.models.neural.ngm.revealer import FedNgr
from secagg.runs.networks.finished_ngm import FinishedNgmRun

Tables = Mapping[str, pd.DataFrame]


def read_network(job: Job, result: Result) -> FinishedNgmRun | None:
    """Return the model in a result; None if the job's method gives no probabilities."""
    method = make_method(job.method)
    refitted = isinstance(method, FedNgr) and method.refit
    if refitted or (isinstance(method, FedNgm) and method.network == "masked"):
        return FinishedNgmRun.of(job, result)
    return None


def graph_is_given(method: Method) -> bool:
    """Return whether a network's graph is a setting, and not a result."""
    return isinstance(method, FedNgm) and method.edges != "votes"


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
    if records.draw == "bootstrap" or records.simulate or job.method.name != FedNgm.name:
        return True
    return bool(job.method.settings.get("edges", "votes") == "votes")  # then its graph is measured
