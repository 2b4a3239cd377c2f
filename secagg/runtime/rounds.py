"""The rounds of a run, planned before any record is read.

Before the first one every site is asked for its consent (`secagg.runtime.party`), so that a run
which one site refuses costs the others nothing of their budgets. Then comes the `cohort` round, a
secure sum
like any other: how many complete records there are in all, how many were left out as incomplete,
and how many values of each column lay outside the declared bounds. Under differential privacy it
asks for the first of these only, noised like everything else. Consent again, now that the number of
records is known, and the stages of the method follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from secagg.contracts import (
    Field,
    Kind,
    Method,
    Phase,
    PublicFacts,
    Shape,
    SiteRecords,
    Spec,
    Stage,
    Update,
)
from secagg.contracts.noise import Sensitivity
from secagg.core.identity import Role
from secagg.errors import PeerError
from secagg.runtime.sum_plan import SumPlan, plan_sum

COHORT = "cohort"
_COUNT_GRID = 32
"""Fraction bits of a noised count: the noise has to be wide on its grid (`discretised`)."""
CONSENT = Phase("consent", Role.SITE)
"""The first phase of every session, which no protocol has to provide."""
SETUP_SHAPE = Shape(ring_bits=64, length=0, value_bits=0)
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


def declared_stages(method: Method, public: PublicFacts) -> tuple[Stage, ...]:
    """Return every stage of a run, the cohort round first. Raises `JobError`."""
    return (cohort_stage(public), *method.stages(public))


def plan_stages(method: Method, public: PublicFacts, ring_bits: tuple[int, ...]) -> StagePlans:
    """Plan every stage of the run, the cohort round first.

    Raises `OverflowRefusal` or `JobError`, from public numbers alone.
    """
    stages, sites = declared_stages(method, public), len(public.sites)
    plans = {s.name: plan_sum(s.spec, sites, ring_bits, public.noise.get(s.name)) for s in stages}
    return StagePlans(MappingProxyType({s.name: s for s in stages}), MappingProxyType(plans))


def cohort_stage(public: PublicFacts) -> Stage:
    """Return the round that counts records, incomplete records and values out of bounds.

    Replacing a record by an incomplete one changes the first count by 1, as removing it does.
    """
    most = float(public.max_rows)
    if public.clip is not None:
        records = Field("records", (1,), most, _COUNT_GRID, Kind.COUNT)
        sees = "number of complete records over all sites, with noise"
        return Stage(COHORT, (records,), 1, sees, Sensitivity(1.0, 1.0))
    spec = (
        Field("records", (1,), most, 0, Kind.COUNT),
        Field("incomplete", (1,), most, 0, Kind.COUNT),
        Field("outside", (len(public.columns),), most, 0, Kind.COUNT),
    )
    return Stage(COHORT, spec, 1, "record counts over all sites: complete, incomplete, clipped")


def cohort_update(rows: SiteRecords, spec: Spec) -> Update:
    """Return a site's contribution to the cohort round: the counts that its spec asks for."""
    counts = {
        "records": np.array([len(rows.values)], dtype=np.float64),
        "incomplete": np.array([rows.incomplete], dtype=np.float64),
        "outside": rows.outside,
    }
    return {field.name: counts[field.name] for field in spec}
