"""The rounds of a run, planned before any record is read.

Every run begins with the `cohort` round, a secure sum like any other: how many complete records
there are in all, how many were left out as incomplete, and how many values of each column lay
outside the declared bounds. The stages of the method follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from secagg.codec import SumPlan, plan_sum
from secagg.contracts import Field, Kind, Method, Public, Rows, Shape, Stage, Update
from secagg.errors import PeerError

COHORT = "cohort"
SetupShape = Shape(ring_bits=64, length=0, value_bits=0)
"""What a protocol's set-up phases know of the numbers: nothing."""


@dataclass(frozen=True)
class StagePlans:
    """For each stage of a run, the proof that its sums fit."""

    stages: Mapping[str, Stage]
    plans: Mapping[str, SumPlan]

    def of(self, stage: object) -> SumPlan:
        """Return the plan of the stage a message names. Raises `PeerError` for an unknown one."""
        if not isinstance(stage, str) or stage not in self.plans:
            raise PeerError("wire", "a message names a stage that the job does not have")
        return self.plans[stage]


def plan_stages(method: Method, public: Public, ring_bits: tuple[int, ...]) -> StagePlans:
    """Plan every stage of the run, the cohort round first.

    Raises `OverflowRefusal` or `JobError`, from public numbers alone.
    """
    stages = (cohort_stage(public), *method.stages(public))
    return StagePlans(
        MappingProxyType({stage.name: stage for stage in stages}),
        MappingProxyType(
            {stage.name: plan_sum(stage.spec, len(public.sites), ring_bits) for stage in stages}
        ),
    )


def cohort_stage(public: Public) -> Stage:
    """Return the round that counts records, incomplete records and values out of bounds."""
    most = float(public.max_rows)
    spec = (
        Field("records", (1,), most, 0, Kind.COUNT),
        Field("incomplete", (1,), most, 0, Kind.COUNT),
        Field("outside", (len(public.columns),), most, 0, Kind.COUNT),
    )
    return Stage(COHORT, spec, 1, "record counts over all sites: complete, incomplete, clipped")


def cohort_update(rows: Rows) -> Update:
    """Return a site's contribution to the cohort round."""
    return {
        "records": np.array([len(rows.values)], dtype=np.float64),
        "incomplete": np.array([rows.incomplete], dtype=np.float64),
        "outside": rows.outside,
    }
