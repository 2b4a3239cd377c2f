"""The rounds of a run, planned before data is read.

First the coordinator asks every site for consent (`secagg.sessions.party`), so a run that one site
refuses spends no budget at the other sites. Then comes the `cohort` round, an ordinary secure sum
of counts over all sites: of complete records; of incomplete records, which are left out; for each
column, of values outside the declared bounds; of records with each level and each pair of levels;
and of sites with each level, and at which each variable varies. The coordinator compares all but
the first three with a minimum (`secagg.privacy.policy.cell_counts`), then discards them. Under
differential privacy the round asks only for the number of complete records, with noise. Then the
coordinator asks for consent again, now that the number of records is known, and the stages of the
method follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from secagg.privacy.policy.cell_counts import (
    level_counts,
    person_level_counts,
    sites_with_level,
    varying,
    with_references,
)
from secagg.sessions.site_moments import WEIGHTS
from secagg.sessions.sum_plan import SumPlan, plan_sum

COHORT = "cohort"
_COUNT_GRID = 32
"""Fraction bits of a noised count: its grid must be fine compared with the noise."""
CONSENT = Phase("consent", Role.SITE)
"""The first phase of every session; it is the same for all protocols."""
COUNTERSIGN = Phase("countersign", Role.SITE)
"""The last phase of a session whose result is written (`secagg.sessions.countersignatures`)."""
SETUP_SHAPE = Shape(ring_bits=64, length=0, value_bits=0)
"""The shape in set-up phases, in which a protocol has no numbers to sum."""

_ITEMS, _ITEMS_EACH = 1 << 12, 64
_BYTES, _BYTES_EACH = 1 << 20, 1 << 16
"""Room in a message for what does not depend on the sums, and for each party. The signed claims of
one site take 700 bytes, and a share of a threshold key some kilobytes."""


@dataclass(frozen=True)
class StagePlans:
    """The stages of a run, each with its plan."""

    stages: Mapping[str, Stage]
    plans: Mapping[str, SumPlan]

    def of(self, stage: object) -> SumPlan:
        """Return the plan of the stage in a message. Raises `PeerError` if it is unknown."""
        if not isinstance(stage, str) or stage not in self.plans:
            raise PeerError("wire", "a message names a stage that the job does not have")
        return self.plans[stage]

    def message_items(self, parties: int) -> int:
        """Return the largest number of items in a message of this run, arrays counted as one.

        Lists in a message have an entry for each party, or at most one for each number of a sum.
        """
        return _ITEMS + _ITEMS_EACH * parties + 4 * self._longest

    def message_bytes(self, parties: int) -> int:
        """Return the largest number of bytes in a message of this run.

        The largest are ciphertexts: 2 KiB for each number, with the longest key (8192 bits).
        """
        return _BYTES + _BYTES_EACH * parties + 4096 * self._longest

    @property
    def _longest(self) -> int:
        return max((plan.length for plan in self.plans.values()), default=0)


def declared_stages(method: Method, public: PublicFacts) -> tuple[Stage, ...]:
    """Return every stage of a run, the cohort round first. Raises `JobError`."""
    stages = method.stages(public)
    if public.site_moments:
        stages = tuple(replace(stage, reads_records=False) for stage in stages)
    return tuple(of_unit(stage, public) for stage in (cohort_stage(public), *stages))


def of_unit(stage: Stage, public: PublicFacts) -> Stage:
    """Return the stage; its sensitivity is larger if the job itself chose the column of persons."""
    if not public.chosen_persons:
        return stage
    training = stage.training
    if training is not None:
        training = replace(training, sensitivity=training.sensitivity.of_chosen_persons())
    moved = None if stage.sensitivity is None else stage.sensitivity.of_chosen_persons()
    return replace(stage, sensitivity=moved, training=training)


def plan_stages(method: Method, public: PublicFacts, ring_bits: tuple[int, ...]) -> StagePlans:
    """Plan every stage of the run, the cohort round first.

    Raises `OverflowRefusal` or `JobError`, from public numbers alone.
    """
    stages, sites = declared_stages(method, public), len(public.sites)
    noise = {s.name: None if s.training else public.noise.get(s.name) for s in stages}
    plans = {s.name: plan_sum(s.spec, sites, ring_bits, noise[s.name]) for s in stages}
    return StagePlans(MappingProxyType({s.name: s for s in stages}), MappingProxyType(plans))


def cohort_stage(public: PublicFacts) -> Stage:
    """Return the stage that counts records, incomplete records and values out of bounds.

    Replacing a record by an incomplete one changes the first count by 1, as removing it does.
    """
    bound = float(public.max_rows)
    if public.site_moments:
        # Twice the bound, so that noise around it is not cut. The coordinator's ledger takes equal
        # sums for one draw (`CoordinatorLedger.record_release`), and cut ones would be equal.
        records = Field("records", (1,), 2 * bound, _COUNT_GRID, Kind.BOUNDED)
        sees = "number of complete records over all sites, with the noise of their moments"
        if public.clip is None or not public.clip.whole:
            return Stage(COHORT, (records,), 1, sees, reads_records=False)
        weights = replace(records, name=WEIGHTS)
        sees += "; how far they are from the typical ranges, as the sum of their weights"
        return Stage(COHORT, (records, weights), 1, sees, reads_records=False)
    if public.clip is not None:
        records = Field("records", (1,), bound, _COUNT_GRID, Kind.COUNT)
        sees = "number of complete records over all sites, with noise"
        return Stage(COHORT, (records,), 1, sees, Sensitivity(1.0, 1.0))
    spec: Spec = (
        Field("records", (1,), bound, 0, Kind.COUNT),
        Field("incomplete", (1,), bound, 0, Kind.COUNT),
        Field("outside", (len(public.columns),), bound, 0, Kind.COUNT),
        Field("varying_sites", (len(public.variables),), 1.0, 0, Kind.COUNT),
    )
    sees = (
        "record counts over all sites: complete, incomplete, clipped; at how many sites each "
        "column varies"
    )
    if public.counted_persons:
        spec = (*spec, Field("persons", (1,), bound, 0, Kind.COUNT))
        sees += "; persons with complete records"
    if q := sum(v.indicator for v in public.variables):
        levels = q + len({v.column for v in public.variables if v.indicator})
        pairs = levels if public.counted_persons else q
        spec = (*spec, Field("levels", (pairs * (pairs + 1) // 2,), bound, 0, Kind.COUNT))
        spec = (*spec, Field("level_sites", (levels,), 1.0, 0, Kind.COUNT))
        sees += (
            "; with each level of a column, and with each pair of levels; and at how many sites "
        )
        sees += "each level occurs"
    return Stage(COHORT, spec, 1, sees)


def cohort_update(rows: SiteRecords, public: PublicFacts, spec: Spec, minimum: int) -> Update:
    """Return a site's contribution to the cohort round: the counts in the spec.

    minimum: a count of incomplete records or clipped values is sent as 0 if it concerns fewer than
        `minimum` persons, or records if no column names persons
    """
    incomplete = np.array([rows.incomplete], dtype=np.float64)
    concerned = np.concatenate([incomplete, rows.outside])
    if public.counted_persons:
        concerned = np.array(rows.concerned or np.zeros(len(concerned)), dtype=np.float64)
    indicators = rows.values[:, [v.indicator for v in public.variables]] > 0
    columns = [v.column for v in public.variables if v.indicator]
    counts = {
        "records": np.array([len(rows.values)], dtype=np.float64),
        "incomplete": np.where(concerned[:1] < minimum, 0.0, incomplete),
        "outside": np.where(concerned[1:] < minimum, 0.0, rows.outside),
        "persons": np.array([rows.persons_count], dtype=np.float64),
        "levels": level_counts(indicators)
        if not public.counted_persons
        else person_level_counts(with_references(indicators, columns), rows.person_codes),
        "level_sites": sites_with_level(indicators, columns),
        "varying_sites": varying(rows.values),
    }
    return {field.name: counts[field.name] for field in spec}
