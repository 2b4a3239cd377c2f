"""The guarantee of differential privacy that a job requests.

`secagg.jobs.privacy.Privacy.terms` makes one `Terms` object. The computation of the noise, the
policies of the sites, the ledgers and the report all use this object.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from secagg.contracts.noise import Adjacency, Placement


@dataclass(frozen=True)
class Terms:
    """The requested guarantee and the placement of the noise; see `secagg.jobs.privacy.Privacy`.

    records: largest number of records that one unit has at a site. Without persons it is above 1
        only if records are windows of series; the unit is then an event, one step of a series
    sites: largest number of sites at which one unit has records
    person: the column that names the person of each record; None if the unit is no person
    pinned: whether the policy of every site names this column; see
        `secagg.contracts.noise.Sensitivity.of_chosen_persons`
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
    pinned: bool = False

    @property
    def unit(self) -> str:
        """What is protected: a "record", an "event" with the windows around it, or a "person"."""
        if self.person is not None:
            return "person"
        return "record" if self.records == 1 else "event"

    def group(self, placement: Placement) -> float:
        """Return the sensitivity for one unit divided by the sensitivity for one record.

        In one sum, the effects of a unit's records add up (triangle inequality). With placement
        `site`, each contribution has its own noise. A unit with records at s sites then costs mu at
        each of these sites, and root(s) mu together.

        placement: of the noise of one stage. A stage in which sites train alone has noise at the
            sites, also in a run whose other noise is in sums
        """
        spread = math.sqrt(self.sites) if placement is Placement.SITE else self.sites
        return self.records * spread
