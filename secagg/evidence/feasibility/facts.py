"""Whether the result of a planned job will be usable, from public numbers only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from secagg.contracts import EdgeRule, FisherLaw, MethodFacts, PublicFacts, Variable
from secagg.contracts.noise import SITE_MOMENTS, Adjacency, Placement
from secagg.evidence.feasibility.edges import graph_feasibility
from secagg.evidence.feasibility.simulated import simulated_feasibility
from secagg.evidence.feasibility.tables import table_feasibility
from secagg.jobs.columns import Number
from secagg.jobs.job import Job
from secagg.privacy.expected_error import (
    USABLE_ERROR,
    Assumptions,
    Feasibility,
    PlannedNoise,
    Verdict,
    feasibility,
    percent,
)
from secagg.sessions.planned_job import Planned

_MOST_LISTED = 8  # columns whose assumed standard deviation is printed; run.json has all


def prospect(planned: Planned, guarantee: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the result will be usable, given the public guess of the number of records.

    guarantee: from `secagg.privacy.accounting.guarantee`, for all sites of the job
    """
    job, facts = planned.job, planned.facts
    if facts.cell_errors is not None:
        return table_feasibility(job.privacy, facts.cell_errors(planned.public))
    if job.privacy.expected_records is None:
        return {"verdict": None, "words": "not judged: set privacy.expected_records"}
    if (
        facts.regression is None
        and not facts.moments_only
        and any(
            stage.training or (stage.sensitivity and stage.max_rounds > 1)
            for stage in planned.plans.stages.values()
        )
    ):
        words = "not judged: no error is predicted for a network; try it with simulated records"
        return {"verdict": None, "words": words}
    rule = facts.edge_rule
    if isinstance(rule, str):
        return {"verdict": None, "words": f"not judged: {rule}"}
    if facts.asked:
        return _of_regressions(planned, guarantee, job.privacy.expected_records)
    used, regression = _columns(facts), facts.regression
    law = FisherLaw() if regression is None else regression.family.fisher
    if law is None:
        words = f"not judged: no error is predicted for {planned.method.title.lower()}"
        return {"verdict": None, "words": words}
    variables = _named(planned, used)
    if len(variables) < 2:
        return {"verdict": None, "words": "not judged: a regression needs at least two variables"}
    outcome = "" if regression is None else regression.outcome
    assumed = _assumptions(planned, job.privacy.expected_records, variables, law, outcome)
    noised = _planned_noise(planned, guarantee)
    found, of_graph = _by_formula(assumed, noised, rule)
    if regression is not None and planned.public.site_moments:
        alone = _alone(assumed, noised)
        found["known"] = facts.knows_noise or alone.error <= USABLE_ERROR
        if not found["known"]:
            found |= {"verdict": Verdict.RED.value, "words": _not_known(found["error"], alone)}
        elif regression.own_at_sites:
            found |= _at_a_site(assumed, noised, found["words"])
    deviations = _deviations(job, variables)
    statement = _graph_statement if of_graph else _statement
    narrow = found["if_narrow" if of_graph else "error_if_narrow"]
    return found | {
        "assumed_deviations": {name: sd for name, (sd, _) in deviations.items()},
        "assumes": statement(assumed, narrow, deviations),
    }


def _of_regressions(planned: Planned, guarantee: Mapping[str, Any], records: int) -> dict[str, Any]:
    """Return the verdict about a method that runs on simulated records.

    The formula says only whether more rounds of a search are needed, and about a graph that is
    estimated beside the regressions.
    """
    facts = planned.facts
    found = simulated_feasibility(planned, records)
    names = {name for asked in facts.asked for name in (asked.outcome, *asked.predictors)}
    variables = _named(planned, names)
    law, noised = facts.asked[0].family.fisher, None
    if facts.edge_rule is not None or (not facts.simulated and not facts.moments_only):
        noised = _planned_noise(planned, guarantee)
    if isinstance(facts.edge_rule, EdgeRule) and noised is not None:
        every = list(planned.public.variables)
        assumed = _assumptions(planned, records, every, FisherLaw(), "")
        found = _with_graph(found, _graph(assumed, noised, facts.edge_rule))
    elif noised is not None and law is not None and len(variables) > 1:
        assumed = _assumptions(planned, records, variables, law, facts.asked[0].outcome)
        search = feasibility(assumed, noised)
        found |= {"left": search.left, "least_rounds": search.least_rounds}
        if search.ends_too_early:
            found["words"] += f"; better: raise method.rounds to {search.least_rounds}"
    deviations = _deviations(planned.job, variables)
    listed = "the typical ranges of the job"
    if deviations:
        listed = f"{_listed(deviations)}: state `typical` of these columns"
    text = f"assumes {listed}; correlations of 0.3, and predictors that explain 20 % (if 5 %, the "
    text += "error is about twice as large, and so is the sampling error); with standard "
    text += f"deviations half as large, the error is {percent(found['error_if_narrow'])}"
    return found | {
        "assumed_deviations": {name: sd for name, (sd, _) in deviations.items()}, "assumes": text,
    }  # fmt: skip


def _by_formula(
    assumed: Assumptions, noised: PlannedNoise, rule: EdgeRule | None
) -> tuple[dict[str, Any], bool]:
    """Return the verdict, and whether it is about a graph only."""
    if rule is not None and not rule.beside_regressions:
        return _graph(assumed, noised, rule), True
    found = feasibility(assumed, noised).to_dict()
    return found if rule is None else _with_graph(found, _graph(assumed, noised, rule)), False


def _with_graph(found: dict[str, Any], graph: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict about regressions, with that about a graph beside them."""
    return found | {"words": f"{found['words']}; {graph['words']}", "graph": graph}


def _named(planned: Planned, names: Set[str] | None) -> list[Variable]:
    """Return the variables of columns with these names, or all."""
    every = planned.public.variables
    return [v for v in every if names is None or {v.column, v.name} & names]


def _assumptions(
    planned: Planned, records: int, variables: list[Variable], law: FisherLaw, outcome: str
) -> Assumptions:
    clip = planned.public.clip
    assert clip is not None  # with noise, records are always clipped
    indicators = sum(v.indicator for v in variables)
    stated = _stated(planned.job, planned.public.variables)
    assumed = Assumptions(
        records,
        len(variables) - indicators,
        indicators,
        clip.mean_square,
        law,
        stated=_in_order(variables, stated, outcome),
    )
    assumed = _relative(assumed, planned.public)
    others = [v for v in planned.public.variables if v not in variables]
    return replace(assumed, others=_squared_length(others, stated, assumed.indicator_size))


_Stated = Mapping[str, tuple[float, float]]
"""Means and standard deviations of scaled columns that the job states, by their typical ranges."""


def _stated(job: Job, variables: Sequence[Variable]) -> _Stated:
    typical = {
        name for name, c in job.columns.items() if isinstance(c, Number) and c.typical is not None
    }
    return {
        v.column: (v.typical_centre, v.typical_spread) for v in variables if v.column in typical
    }


def _deviations(job: Job, variables: Sequence[Variable]) -> dict[str, tuple[float, str]]:
    """Return the standard deviation that is assumed of continuous variables, and its unit."""
    found = {}
    for variable in variables:
        column = job.columns[variable.column]
        if isinstance(column, Number) and column.typical is None:
            name = f"ln({variable.name})" if column.transform == "log" else variable.name
            unit = "" if column.transform == "log" else column.unit
            found[name] = Assumptions.spread * variable.half_range, unit
    return found


def _in_order(
    variables: Sequence[Variable], stated: _Stated, outcome: str
) -> tuple[tuple[float, float] | None, ...]:
    """Return what is stated about the continuous variables, the outcome last.

    If several regressions are possible, the outcome is the column with the smallest spread, whose
    regression the noise affects most.
    """
    numbers = [v for v in variables if not v.indicator]

    def place(variable: Variable) -> tuple[bool, float]:
        _, spread = stated.get(variable.column, (0.0, Assumptions.spread))
        return outcome in (variable.name, variable.column), 0.0 if outcome else -spread

    return tuple(stated.get(v.column) for v in sorted(numbers, key=place))


def _relative(assumed: Assumptions, public: PublicFacts) -> Assumptions:
    """Return what is assumed of whole records, if they are relative to typical ranges.

    Their limit is for the constant, too, which has its share in it.
    """
    if public.clip is None or not public.clip.whole:
        return assumed
    squares = [v.typical_spread**2 for v in public.variables]
    share = sum(squares) / (sum(squares) + public.clip.constant**2)
    of_levels = [v.typical_spread**2 for v in public.variables if v.indicator] or [0.01]
    size = math.sqrt(float(np.mean(of_levels)))
    limit = public.clip.mean_square * share
    return replace(assumed, squared_norm=limit, indicator_size=size, indicator_spread=size)


def _squared_length(variables: Sequence[Variable], stated: _Stated, of_indicator: float) -> float:
    """Return the expected sum of squares of scaled variables."""
    usual = (0.0, Assumptions.spread)
    return sum(
        of_indicator**2 if v.indicator else float(np.sum(np.square(stated.get(v.column, usual))))
        for v in variables
    )


def _graph(assumed: Assumptions, noised: PlannedNoise, rule: EdgeRule) -> dict[str, Any]:
    """Return the verdict about a graph, with the name of its analysis if there may be several."""
    found = graph_feasibility(assumed, noised, rule).to_dict()
    if rule.analysis:
        found["words"] = f"the graph by {rule.analysis}: {found['words']}"
    return found


def _columns(facts: MethodFacts) -> frozenset[str] | None:
    """Return the names of the columns that the result is about; None for all."""
    if facts.regression is not None:
        return facts.regression.columns
    rule = facts.edge_rule
    return rule.columns if isinstance(rule, EdgeRule) and not rule.beside_regressions else None


def _planned_noise(planned: Planned, guarantee: Mapping[str, Any]) -> PlannedNoise:
    """Return the noise of the release that the result is computed from."""
    clip = planned.public.clip
    assert clip is not None
    *counting, noised = guarantee["mechanisms"]  # the last one is for the method's one release
    adjacency = "add" if guarantee["adjacency"] == Adjacency.ADD_REMOVE.value else "replace"
    sensitivity = noised[f"sensitivity_{adjacency}"]
    if noised["stage"] == SITE_MOMENTS:  # the count, a square, and then a product of two columns
        _, _, weight, *_ = planned.public.noise[SITE_MOMENTS].weights
        sensitivity *= math.sqrt(weight)  # in whose units `sensitivity` is
    placement, share = Placement(guarantee["placement"]), 1.0
    if counting:
        share = 1 - planned.job.privacy.count_share
    if planned.facts.moments_only and len(counting) > 1:  # the sum, after the sites' own means
        placement = Placement.SUM
        budgets = [stage.budget for stage in planned.method.stages(planned.public)]
        share *= budgets[-1] / sum(budgets)
    return PlannedNoise(
        sensitivity=sensitivity,
        epsilon=guarantee["epsilon"],
        delta=guarantee["delta"],
        placement=placement,
        sites=len(planned.public.sites),
        colluding=guarantee["colluding"],
        share=share,
        rounds=noised["releases"],
        constant=clip.constant,
    )


def _alone(assumed: Assumptions, noised: PlannedNoise) -> Feasibility:
    """Return the verdict about one site's records alone, if sites have equally many records."""
    records = max(assumed.records // noised.sites, 1)
    return feasibility(replace(assumed, records=records), replace(noised, sites=1))


def _not_known(error: float, alone: Feasibility) -> str:
    """Return the words if a method takes each site's noisy moments for exact, and should not.

    Where the noise at a site is large, the repair of its moments decides the site's coefficients,
    and an average over sites does not remove that error. It depends on the columns' means.
    """
    return (
        f"red: the coefficient error is not known, and at least about {percent(error)}: from one "
        f"site's records alone it would be {percent(alone.error)}, and this method computes as if "
        "the sites' moments had no noise, so it can be above 100 %. Use a method whose intervals "
        "account for noise at the sites, a larger epsilon, or more records at each site"
    )


def _at_a_site(assumed: Assumptions, noised: PlannedNoise, words: str) -> dict[str, Any]:
    """Return the error of a site's own coefficients."""
    alone, records = _alone(assumed, noised), max(assumed.records // noised.sites, 1)
    line = f"{words}; a site's own coefficients, from its own {records} records alone: "
    return {
        "error_at_a_site": alone.error,
        "verdict_at_a_site": alone.verdict.value,
        "words": f"{line}{percent(alone.error)} ({alone.verdict.value})",
    }


def _graph_statement(
    assumed: Assumptions, narrow: float | None, deviations: Mapping[str, tuple[float, str]]
) -> str:
    """Return in words on what the smallest edge depends; arguments as for `_statement`."""
    text = "assumes columns that are related to no third one"
    if narrow is not None:
        text += f", and {_listed(deviations)}; with standard deviations half as large, an "
        text += f"edge needs {narrow:.2f}"
    return (
        f"{text}; likely: more than half of such edges were found in simulations; an edge may be "
        "found in the wrong direction"
    )


def _listed(deviations: Mapping[str, tuple[float, str]]) -> str:
    shown = [f"{name} {sd:.2g} {unit}".rstrip() for name, (sd, unit) in deviations.items()]
    listed = ", ".join(shown[:_MOST_LISTED]) + (", …" if len(shown) > _MOST_LISTED else "")
    return f"standard deviations of 1/{2 / Assumptions.spread:.0f} of each range ({listed})"


def _statement(
    assumed: Assumptions, narrow: float | None, deviations: Mapping[str, tuple[float, str]]
) -> str:
    """Return in words on what the expected error depends, in the columns' own units.

    deviations: standard deviation and unit of each continuous variable
    """
    parts = []
    if deviations:
        parts.append(_listed(deviations))
    if assumed.law.indicator:
        frequency = (1 - math.sqrt(1 - 4 * assumed.outcome_variance)) / 2
        parts.append(f"an outcome in {percent(frequency)} of the records")
    parts.append(f"correlations of {assumed.correlation:g}")
    text = f"assumes {', '.join(parts)}, and predictors that explain {percent(assumed.explained)} "
    text += f"of {assumed.law.explained}"
    if narrow is not None:
        text += f"; with standard deviations half as large, the error is {percent(narrow)}: state "
        text += "them as `typical` of a column"
    return (
        f"{text}; the error is that of all slopes together, and a single slope, above all a small "
        "one, can be off by several times as many per cent"
    )
