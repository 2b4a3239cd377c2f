"""Whether the result of a planned job will be usable, from public numbers only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.contracts import OneRegression
from secagg.contracts.noise import Adjacency, Placement
from secagg.privacy.expected_error import (
    Assumptions,
    PlannedNoise,
    feasibility,
)
from secagg.runtime.planned_job import Planned


def prospect(planned: Planned, guarantee: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the result will be usable, given the public guess of the number of records.

    guarantee: from `secagg.privacy.accounting.guarantee`, for all sites of the job
    """
    job, method, clip = planned.job, planned.method, planned.public.clip
    assert clip is not None  # with noise, records are always clipped
    if job.privacy.expected_records is None:
        return {"verdict": None, "words": "not judged: set privacy.expected_records"}
    used, logistic = set(job.columns), False
    if isinstance(method, OneRegression):
        used, logistic = set(method.columns_used), method.logistic
    kinds = [job.columns[v.column].type for v in planned.public.variables if v.column in used]
    if len(kinds) < 2:
        return {"verdict": None, "words": "not judged: a regression needs at least two variables"}
    continuous = kinds.count("continuous")
    _, noised = guarantee["mechanisms"]  # for the count of records, and for the method's one stage
    adjacency = "add" if guarantee["adjacency"] == Adjacency.ADD_REMOVE.value else "replace"
    return feasibility(
        Assumptions(
            job.privacy.expected_records,
            continuous,
            len(kinds) - continuous,
            clip.squared_norm,
            logistic,
        ),
        PlannedNoise(
            sensitivity=noised[f"sensitivity_{adjacency}"],
            epsilon=guarantee["epsilon"],
            delta=guarantee["delta"],
            placement=Placement(guarantee["placement"]),
            sites=len(planned.public.sites),
            colluding=guarantee["colluding"],
            share=1 - job.privacy.count_share,
            rounds=noised["releases"],
        ),
    ).to_dict()
