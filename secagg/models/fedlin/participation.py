"""Partial participation: in each round every site decides at random whether it takes part.

In Yue, Al Kontar and Estrada Gomez (2022), section 3, a server chooses. Here cohorts are fixed for
a run, because sums over different sites would reveal single contributions by subtraction. So every
site answers every round, and decides at random whether its coefficients change.

Not protected: in FedAvg and HM2 a site that does not take part adds nothing. If a single site takes
part in a round, the sum is that site's contribution, whatever `min_sites` is, and the coordinator
can tell (from FedAvg's weights directly). `SINGLE_SITE_ROUNDS_NOTE` says so in these methods. HM1's
sums contain all sites in every round.

A round with few sites may change little, which does not show convergence. So the rounds end early
only after several quiet rounds in a row. Their number is such that a given site takes part in none
of them with a probability of at most 1 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from secagg.errors import JobError

_MAX_MISS_PROBABILITY = 0.01
SINGLE_SITE_ROUNDS_NOTE = (
    " With participation below 1, a single site may take part in a round. The sum is then that "
    "site's contribution, and the coordinator can detect this."
)
"""A sentence for `Disclosure.text`."""


@dataclass(frozen=True, kw_only=True)
class Participation:
    """participation: probability that a site takes part in a round"""

    participation: float = 1.0
    """Probability that a site takes part in a round, above 0 and at most 1. Each site decides at
    random. In `fedavg` and `fedlin_hm2`, a value below 1 costs privacy: if only one site takes part
    in a round, the sum reveals its contribution, and the coordinator can detect this."""

    def check_participation(self) -> None:
        """Raise `JobError` for a probability out of range."""
        if not 0 < self.participation <= 1:
            raise JobError("method.participation", "must be above 0, at most 1")

    @property
    def few_sites(self) -> int:
        """The number of sites on which a sum may depend alone; 0 if all take part."""
        return 1 if self.participation < 1 else 0

    def takes_part(self, rng: np.random.Generator) -> bool:
        """Decide at random whether the site takes part."""
        return bool(rng.random() < self.participation)

    def quiet(self, before: int, change: float | None, tolerance: float) -> int:
        """Return how many rounds in a row have been quiet; before: the number before this round."""
        return before + 1 if change is not None and change < tolerance else 0

    @property
    def patience(self) -> int:
        """How many quiet rounds in a row end the rounds."""
        if self.participation >= 1 - _MAX_MISS_PROBABILITY:
            return 1
        return math.ceil(math.log(_MAX_MISS_PROBABILITY) / math.log1p(-self.participation))
