"""What the results of an experiment are compared with: the sweep's job over all records, no noise.

The reference is computed in one process without a protocol. It is the truth for every curve, so
curves of different methods can be compared. For graphs, the job may name the true graph instead.
With `measure.records = "bootstrap"`, the records at
hand stand for the population, and each run has a sample of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from secagg.contracts import Method, PublicFacts
from secagg.core.randomness import replayable_random
from secagg.errors import UsageError
from secagg.experiments.measures.coefficients import Coefficients, distances, read_coefficients
from secagg.experiments.measures.graphs import Graph, graph_distances, graph_of, read_graph
from secagg.experiments.measures.predictions import area_under_curve, unexplained_share
from secagg.experiments.records import Design, Tables, read_tables
from secagg.jobs.job import Job
from secagg.jobs.registry import settings_of
from secagg.runs.simulate import simulate_planned
from secagg.runtime.planned_job import Planned, plan_job

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """What is measured of a result: coefficients for an outcome, or a graph."""

    coefficients: Coefficients | None
    graph: Graph | None
    outcome: str = ""


@dataclass(frozen=True)
class Reference:
    """The reference and its records.

    analysis: the kind of the analysis that is measured, or ""; named: whether the job names the
    true graph
    """

    job: Job
    analysis: str
    named: bool
    tables: Tables

    @classmethod
    def of(cls, job: str, place: str, analysis: str, truth: str) -> Reference:
        """Return the reference; it is read once in each process.

        job: JSON of `Job.agreed`; place: JSON of a job with the records; analysis, truth: as in
        `secagg.experiments.sweep.Measure`
        """
        return _reference(job, place, analysis, truth)

    @cached_property
    def planned(self) -> Planned:
        """The plan of the job."""
        return plan_job(self.job, self.tables)

    @cached_property
    def scale(self) -> Mapping[str, float]:
        """Each variable's standard deviation over all records."""
        return Design.of(self.job, self.tables).deviations

    @cached_property
    def truth(self) -> Found:
        """What the job finds in all records; or the graph that it names."""
        result, _ = simulate_planned(self.planned, random=replayable_random(0))
        found = self.found(self.planned.method, self.planned.public, result.summary)
        if not self.named:
            return found
        edges = settings_of(self.planned.method).get("truth")
        if found.graph is None or not edges:
            what = 'is "job", and the method of the job names no true graph'
            raise UsageError("measure.truth", what, "Set `truth` in the job's [method].")
        return Found(None, graph_of(found.graph.names, edges))

    def found(self, method: Method, public: PublicFacts, summary: Summary) -> Found:
        """Return what is measured of a result. Raises `UsageError` if it is not clear what."""
        parts = list(zip(summary.get("analyses", [summary]), method.tables(public), strict=True))
        kinds = [str(part.get("method")) for part, _ in parts]
        if len(parts) > 1:
            parts = [part for part in parts if part[0].get("method") == self.analysis]
        if len(parts) != 1:
            advice = f"Name one: {', '.join(kinds)}."
            raise UsageError("measure.analysis", "names no single analysis of the job", advice)
        ((part, table),) = parts
        if "failed" in part:
            raise UsageError(kinds[0], str(part["failed"]))
        return Found(
            read_coefficients(part, table.kind), read_graph(part, table.kind),
            str(part.get("outcome", "")),
        )  # fmt: skip

    def metrics(self, found: Found, test: Design | None) -> dict[str, float]:
        """Return the distances from the truth, and how well other records are predicted.

        test: records that took no part; None if there are none
        Raises `UsageError` if the result cannot be compared with the reference.
        """
        true = self.truth
        match found, true:
            case Found(Coefficients() as one), Found(Coefficients() as other):
                if set(one.names) >= set(other.names):
                    of_slopes = distances(one, other, self.scale)
                    return of_slopes | _predictions(one, true.outcome, test)
            case Found(graph=Graph() as one), Found(graph=Graph() as other):
                if one.names == other.names:
                    return graph_distances(one, other)
        what = "its result cannot be compared with that of the sweep's job"
        advice = "Both need coefficients of the same predictors, or graphs of the same columns."
        raise UsageError(self.job.title, what, advice)


def _predictions(found: Coefficients, outcome: str, test: Design | None) -> dict[str, float]:
    if test is None or not len(test.values):
        return {}
    # The outcome of a regression is a column; its variable may have a level in its name.
    name = next(n for n in test.names if n == outcome or n.partition("=")[0] == outcome)
    y = test.column(name)
    predicted = sum(
        (b * test.column(n) for n, b in zip(found.names, found.slopes, strict=True)),
        start=0.0 * y,
    )
    case = set(y.tolist()) <= {0.0, 1.0}
    value = area_under_curve(predicted, y) if case else unexplained_share(predicted, y)
    return {} if value is None else {"auc" if case else "unexplained": value}


@lru_cache(maxsize=1)
def _reference(job: str, place: str, analysis: str, truth: str) -> Reference:
    placed = place_records(Job.model_validate_json(job), place)
    return Reference(placed, analysis, truth == "job", read_tables(placed))


def place_records(job: Job, place: str) -> Job:
    """Return the job with the records of another. place: JSON of that job"""
    other = Job.model_validate_json(place).sites
    where = {key: getattr(other, key) for key in ("folder", "table", "site_column")}
    return job.model_copy(update={"sites": job.sites.model_copy(update=where)})
