"""What a job requests of differential privacy.

`secagg.jobs.job.Privacy.terms` builds the terms once. Calibration, site policies, ledgers and run
facts all read this object.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from secagg.contracts.noise import Adjacency, Placement


@dataclass(frozen=True)
class Terms:
    """The requested guarantee and the placement of the noise; see `secagg.jobs.job.Privacy`.

    records, sites: the unit of privacy has at most this many records at a site, at this many sites
    person: the column that names the person of each record; None if the unit is a record
    """

    placement: Placement
    epsilon: float
    delta: float
    adjacency: Adjacency
    colluding: int
    count_share: float
    records: int = 1
    sites: int = 1
    person: str | None = None

    @property
    def unit(self) -> str:
        """The unit of privacy: a record, or a person with all their records within the caps."""
        return "record" if self.person is None else "person"

    def group(self) -> float:
        """Return the factor by which a unit's sensitivity exceeds that of a single record.

        In one sum, the effects of a unit's records add up (triangle inequality). Where each site's
        contribution has its own noise, a unit with records at s sites costs mu at each of them, and
        root(s) mu in total.
        """
        spread = math.sqrt(self.sites) if self.placement is Placement.SITE else self.sites
        return self.records * spread
