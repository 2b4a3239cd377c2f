"""What a job asks of differential privacy.

`secagg.jobs.job.Privacy.terms` makes the terms once; calibration, sites' policies, ledgers and run
facts all read the same object.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from secagg.contracts.noise import Adjacency, Placement


@dataclass(frozen=True)
class Terms:
    """The guarantee that is asked for, and where its noise goes; see `secagg.jobs.job.Privacy`.

    records, sites: the unit of privacy has at most so many records at a site, at so many sites
    person: the column that names the person of each record; without it the unit is a record
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
        """What is protected: a record, or a person with all their records within the caps."""
        return "record" if self.person is None else "person"

    def group(self) -> float:
        """Return how many times further a unit moves the releases than a single record does.

        Its effects add up (triangle inequality) where they meet in one sum. Where each site's
        contribution has its own noise, a unit's records at s sites cost mu at each, root(s) mu in
        all.
        """
        spread = math.sqrt(self.sites) if self.placement is Placement.SITE else self.sites
        return self.records * spread
