"""One cell of an experiment: a run on drawn records, and how far its result is from the truth.

Nothing is released: records are in memory, and so are the ledgers. All random numbers come from the
cell's seed, so a cell can be repeated.

The baselines of a seed, on the same records:

no noise         the sweep's job without [privacy], at all sites
pooled           the same over all records as if they were one site's
each site alone  the same at each site; the mean over the sites at which it succeeds
nothing learned  slopes of zero, or a graph without edges. For `fedngm`, a network without edges:
                 each column on its own, fitted without noise. For `fedngr` and `torch_module`,
                 there is none: a metric of the latter is known without records
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from secagg.contracts import SiteRecords
from secagg.core.randomness import replayable_random
from secagg.errors import SecaggError
from secagg.experiments.measures.found import Found
from secagg.experiments.measures.graphs import Graph
from secagg.experiments.measures.networks import at_one_site, without_edges
from secagg.experiments.records import Drawn
from secagg.experiments.reference import Reference
from secagg.experiments.runner.types import Numbers, Settings
from secagg.jobs.job import Job
from secagg.runs.run import run
from secagg.runs.simulate import simulate_planned
from secagg.runs.site_baselines import fit_one_site
from secagg.sessions.parties import read_records
from secagg.sessions.planned_job import Planned, plan_job

RUN, NO_NOISE, POOLED = "run", "no noise", "pooled"
ALONE, NOTHING = "each site alone", "nothing learned"
BASELINES = (NO_NOISE, POOLED, ALONE, NOTHING)


def compute(settings: Settings) -> Numbers:
    """Return the metrics of a cell: of a run, or of each baseline.

    settings: `reference`, `place`, `measure`, `records` as for `Reference.of`; `digest`: of the
        records that were planned; `seed`; `job`: JSON of `Job.agreed`, or "" for the baselines
    Raises what `secagg.run` raises.
    """
    shared = ("reference", "place", "measure", "records")
    reference = Reference.of(*(str(settings[name]) for name in shared))
    reference.check(str(settings["digest"]))
    seed = int(settings["seed"])
    drawn = reference.draw(seed)
    if not settings["job"]:
        return _baselines(reference, drawn, seed)
    job = Job.model_validate_json(str(settings["job"]))
    finished = run(job, drawn.tables, random=replayable_random(seed))
    planned = plan_job(job, drawn.tables)
    found = reference.found(planned, finished.result)
    sent = {
        f"bytes sent by each {row['role']}": row["sent_bytes"] / row["parties"]
        for row in finished.facts["traffic"]
    }
    costs = {"rounds": float(finished.facts["rounds"]), **sent}
    return {RUN: {**reference.metrics(found, drawn), **costs}}


def _baselines(reference: Reference, drawn: Drawn, seed: int) -> dict[str, dict[str, float]]:
    planned = plan_job(reference.job, drawn.tables)
    public = planned.public
    rows = {name: read_records(planned, source) for name, source in planned.sources.items()}

    def alone(records: SiteRecords, who: Planned) -> dict[str, float]:
        method, facts = at_one_site(who.method, who.public)
        result = fit_one_site(method, facts, records, replayable_random(seed))
        return reference.metrics(reference.found(who, result), drawn)

    result, _ = simulate_planned(planned, random=replayable_random(seed))
    found = reference.found(planned, result)
    everything = SiteRecords(
        np.concatenate([each.values for each in rows.values()]), 0,
        np.zeros(len(public.columns)), clipped_share=np.zeros(len(public.columns)),
    )  # fmt: skip
    larger = replace(public, max_rows=public.max_rows * len(rows))
    each_site = list[dict[str, float]]()
    for records in rows.values():
        try:
            each_site.append(alone(records, planned))
        except SecaggError:  # too few records, or a constant column
            continue
    baselines = {
        NO_NOISE: reference.metrics(found, drawn),
        POOLED: alone(everything, replace(planned, public=larger)),
    }
    nothing = _nothing(reference, found, drawn, seed)
    if nothing is not None:
        baselines[NOTHING] = reference.metrics(nothing, drawn)
    if each_site:
        shared = set.intersection(*map(set, each_site))
        means = {name: float(np.mean([m[name] for m in each_site])) for name in sorted(shared)}
        baselines[ALONE] = {**means, "sites": float(len(each_site))}
    return baselines


def _nothing(reference: Reference, found: Found, drawn: Drawn, seed: int) -> Found | None:
    """Return what a method finds that learns nothing; None if there is no such network.

    found: by the sweep's job without noise
    """
    if found.module is not None:
        return None
    if found.network is not None:
        job = without_edges(reference.job)
        if job is None:
            return None
        planned = plan_job(job, drawn.tables)
        result, _ = simulate_planned(planned, random=replayable_random(seed))
        empty = reference.found(planned, result)
        return replace(empty, graph=found.graph and _empty(found.graph))
    true = reference.truth(drawn)
    coefficients, graph = true.coefficients, true.graph
    if coefficients is not None:
        none = np.zeros_like(coefficients.slopes)
        coefficients = replace(coefficients, slopes=none, low=None, high=None, inclusion=None)
    return replace(true, coefficients=coefficients, graph=graph and _empty(graph))


def _empty(graph: Graph) -> Graph:
    none = np.zeros_like(graph.directed)
    return replace(graph, directed=none, undirected=none)
