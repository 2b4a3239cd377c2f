"""Whether the result of a planned job will be usable, from public numbers only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from secagg.contracts import OneRegression
from secagg.contracts.noise import Adjacency, Placement
from secagg.jobs.job import Continuous
from secagg.privacy.expected_error import (
    Assumptions,
    PlannedNoise,
    feasibility,
    percent,
)
from secagg.runtime.planned_job import Planned

_MOST_LISTED = 8  # columns whose assumed standard deviation is printed; run.json has all


def prospect(planned: Planned, guarantee: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the result will be usable, given the public guess of the number of records.

    guarantee: from `secagg.privacy.accounting.guarantee`, for all sites of the job
    """
    job, method, clip = planned.job, planned.method, planned.public.clip
    assert clip is not None  # with noise, records are always clipped
    if job.privacy.expected_records is None:
        return {"verdict": None, "words": "not judged: set privacy.expected_records"}
    if not isinstance(method, OneRegression) and any(
        stage.training or (stage.sensitivity and stage.max_rounds > 1)
        for stage in planned.plans.stages.values()
    ):
        words = "not judged: no error is predicted for a network; try it with simulated records"
        return {"verdict": None, "words": words}
    used, logistic = set(job.columns), False
    if isinstance(method, OneRegression):
        used, logistic = set(method.columns_used), method.logistic
    variables = [v for v in planned.public.variables if v.column in used]
    kinds = [job.columns[v.column].type for v in variables]
    if len(kinds) < 2:
        return {"verdict": None, "words": "not judged: a regression needs at least two variables"}
    continuous = kinds.count("continuous")
    *counting, noised = guarantee["mechanisms"]  # the last one is for the method's one release
    adjacency = "add" if guarantee["adjacency"] == Adjacency.ADD_REMOVE.value else "replace"
    assumed = Assumptions(
        job.privacy.expected_records,
        continuous,
        len(kinds) - continuous,
        clip.mean_square,
        logistic,
    )
    found = feasibility(
        assumed,
        PlannedNoise(
            sensitivity=noised[f"sensitivity_{adjacency}"],
            epsilon=guarantee["epsilon"],
            delta=guarantee["delta"],
            placement=Placement(guarantee["placement"]),
            sites=len(planned.public.sites),
            colluding=guarantee["colluding"],
            share=1 - job.privacy.count_share if counting else 1.0,
            rounds=noised["releases"],
        ),
    ).to_dict()
    deviations = {}
    for variable in variables:
        column = job.columns[variable.column]
        if isinstance(column, Continuous):
            name = f"ln({variable.name})" if column.transform == "log" else variable.name
            unit = "" if column.transform == "log" else column.unit
            deviations[name] = assumed.spread * variable.half_range, unit
    return found | {
        "assumed_deviations": {name: sd for name, (sd, _) in deviations.items()},
        "assumes": _statement(assumed, found["error_if_narrow"], deviations),
    }


def _statement(
    assumed: Assumptions, narrow: float | None, deviations: Mapping[str, tuple[float, str]]
) -> str:
    """Return in words on what the expected error depends, in the columns' own units.

    deviations: standard deviation and unit of each continuous variable
    """
    parts, of = [], "the outcome's variance"
    if deviations:
        shown = [f"{name} {sd:.2g} {unit}".rstrip() for name, (sd, unit) in deviations.items()]
        listed = ", ".join(shown[:_MOST_LISTED]) + (", …" if len(shown) > _MOST_LISTED else "")
        parts.append(f"standard deviations of 1/{2 / assumed.spread:.0f} of each range ({listed})")
    if assumed.logistic:
        frequency = (1 - math.sqrt(1 - 4 * assumed.outcome_variance)) / 2
        parts.append(f"an outcome in {percent(frequency)} of the records")
        of = "the log odds' latent variance"
    parts.append(f"correlations of {assumed.correlation:g}")
    text = f"assumes {', '.join(parts)}, and predictors that explain {percent(assumed.explained)} "
    text += f"of {of}"
    if narrow is not None:
        text += f"; with standard deviations half as large, the error is {percent(narrow)}"
    return (
        f"{text}; the error is that of all slopes together, and a single slope, above all a small "
        "one, can be off by several times as many per cent"
    )
