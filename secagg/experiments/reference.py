"""What the results of an experiment are compared with.

The reference is the sweep's job over all records, without noise, in one process. It is the truth
for every curve, so curves of different methods can be compared. With `records.draw = "bootstrap"`,
the records at hand stand for the population, and each run has a sample of it. For graphs, the job
may name the true graph instead; for simulated records, the truth is that of the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from secagg.contracts import Result
from secagg.core.randomness import replayable_random
from secagg.errors import UsageError
from secagg.experiments.measures.coefficients import Coefficients, distances, read_coefficients
from secagg.experiments.measures.found import Found
from secagg.experiments.measures.graphs import Graph, graph_distances, graph_of, read_graph
from secagg.experiments.measures.networks import (
    graph_is_given,
    module_predictions,
    predictions,
    read_module,
    read_network,
)
from secagg.experiments.measures.predictions import area_under_curve, unexplained_share
from secagg.experiments.records import Design, Drawn, Tables, digest_of, draw, read_tables
from secagg.experiments.simulators import Simulated
from secagg.experiments.sweep import Measure, Records
from secagg.jobs.job import Job
from secagg.jobs.registry import settings_of
from secagg.runs.simulate import simulate_planned
from secagg.sessions.planned_job import Planned, plan_job


@dataclass(frozen=True)
class Reference:
    """The reference, its records, and what is measured. tables: empty if records are simulated"""

    job: Job
    measure: Measure
    records: Records
    tables: Tables

    @classmethod
    def of(cls, job: str, place: str, measure: str, records: str) -> Reference:
        """Return the reference; it is read once in each process.

        job: JSON of `Job.agreed`; place: JSON of a job with the places of its records; measure,
        records: JSON of these tables of the sweep
        """
        return _reference(job, place, measure, records)

    def draw(self, seed: int) -> Drawn:
        """Return the records of the run with this seed."""
        return draw(self.job, self.outcome, self.records, self.tables, seed)

    def check(self, digest: str) -> None:
        """Raise `UsageError` if these are not the records that were planned, by their digest."""
        if digest != self._digest:
            what = "changed while the experiment ran"
            raise UsageError("records", what, "Run the same command again.")

    @cached_property
    def _digest(self) -> str:
        return digest_of(self.tables)

    @property
    def outcome(self) -> str:
        """The outcome of the regression that is measured; "" if it is none."""
        return str(self.measure.settings_in(self.job).get("outcome", ""))

    def truth(self, drawn: Drawn) -> Found:
        """Return what is true of these records."""
        if drawn.simulated is None:
            return self._truth
        return _simulated_truth(self.job, self.outcome, drawn.simulated)

    @cached_property
    def _truth(self) -> Found:
        """What the job finds in all records; or the graph that it names."""
        planned = plan_job(self.job, self.tables)
        result, _ = simulate_planned(planned, random=replayable_random(0))
        found = self.found(planned, result)
        if self.measure.truth == "records":
            return found
        edges = settings_of(planned.method).get("truth")
        if found.graph is None or not edges:
            what = 'is "job", and the method of the job names no true graph'
            raise UsageError("measure.truth", what, "Set `truth` in the job's [method].")
        return Found(None, graph_of(found.graph.names, edges))

    @cached_property
    def _scale(self) -> Mapping[str, float]:
        """Each variable's standard deviation over all records."""
        return Design.of(self.job, self.tables).deviations

    def found(self, planned: Planned, result: Result) -> Found:
        """Return what is measured of a result. Raises `UsageError` if it is not clear what."""
        method, summary = planned.method, result.summary
        tables = method.tables(planned.public)
        parts = list(zip(summary.get("analyses", [summary]), tables, strict=True))
        kinds = [str(part.get("method")) for part, _ in parts]
        part, table = parts[self.measure.position(kinds)]
        if "failed" in part:
            raise UsageError(str(part.get("method")), str(part["failed"]))
        return Found(
            read_coefficients(part, table.kind),
            None if graph_is_given(method) else read_graph(part, table.kind),
            str(part.get("outcome", "")), read_network(planned.job, result),
            read_module(planned.job, result),
        )  # fmt: skip

    def metrics(self, found: Found, drawn: Drawn) -> dict[str, float]:
        """Return the distances from the truth, and how well other records are predicted.

        Raises `UsageError` if the result cannot be compared with the truth.
        """
        if found.module is not None:
            return module_predictions(found.module, drawn.test)
        of_network = {} if found.network is None else predictions(found.network, drawn.test)
        if of_network and found.graph is None:
            return of_network
        true = self.truth(drawn)
        match found, true:
            case Found(Coefficients() as one), Found(Coefficients() as other):
                if set(one.names) >= set(other.names):
                    simulated = drawn.simulated is not None
                    scale = Design.of(self.job, drawn.test).deviations if simulated else self._scale
                    of_slopes = distances(one, other, scale)
                    return of_slopes | self._predictions(one, true.outcome, drawn)
            case Found(graph=Graph() as one), Found(graph=Graph() as other):
                if one.names == other.names:
                    return graph_distances(one, other) | of_network
        what = "its result cannot be compared with that of the sweep's job"
        advice = "Both need coefficients of the same predictors, or graphs of the same columns."
        raise UsageError(self.job.title, what, advice)

    def _predictions(self, found: Coefficients, outcome: str, drawn: Drawn) -> dict[str, float]:
        test = Design.of(self.job, drawn.test) if drawn.test else None
        if test is None or not len(test.values):
            return {}
        # The outcome of a regression is a column; its variable may have a level in its name.
        name = next(n for n in test.names if n == outcome or n.partition("=")[0] == outcome)
        y = test.column(name)
        predicted = 0.0 * y
        for variable, slope in zip(found.names, found.slopes, strict=True):
            predicted = predicted + slope * test.column(variable)
        case = set(y.tolist()) <= {0.0, 1.0}
        value = area_under_curve(predicted, y) if case else unexplained_share(predicted, y)
        return {} if value is None else {"auc" if case else "unexplained": value}


def _simulated_truth(job: Job, outcome: str, simulated: Simulated) -> Found:
    if simulated.edges:
        return Found(None, graph_of(tuple(job.columns), simulated.edges))
    names = tuple(simulated.slopes)
    slopes = np.array([simulated.slopes[name] for name in names])
    return Found(Coefficients(names, slopes), None, outcome)


@lru_cache(maxsize=4)
def _reference(job: str, place: str, measure: str, records: str) -> Reference:
    placed = place_records(Job.model_validate_json(job), place)
    asked = Records.model_validate_json(records)
    tables = {} if asked.simulate else read_tables(placed)
    return Reference(placed, Measure.model_validate_json(measure), asked, tables)


def place_records(job: Job, place: str) -> Job:
    """Return the job with the records of another. place: JSON of that job"""
    other = Job.model_validate_json(place).sites
    where = {key: getattr(other, key) for key in ("folder", "table", "site_column")}
    return job.model_copy(update={"sites": job.sites.model_copy(update=where)})
