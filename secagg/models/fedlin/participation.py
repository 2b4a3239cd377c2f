"""Rounds in which not all sites take part, by coins of their own.

Yue, Al Kontar and Estrada Gomez (2022), section 3, let a server choose. Here cohorts are fixed for
a run (a sum over other sites would tell, by subtraction, what a single one sent), so every site
answers every round, and decides by a coin of its own whether its part of it moves.

Not protected: in FedAvg and HM2 a site that sits out adds nothing, so that the sum of a round in
which one site takes part is that site's alone, whatever rule there is on the number of sites, and
the coordinator can tell (FedAvg's weights say it outright). `SINGLE_SITE_ROUNDS_NOTE` says so
wherever it holds. HM1's sums hold all sites' parts in every round.

A round in which few sites take part moves little: that is no sign of having arrived. Rounds end by
themselves only after as many quiet ones in a row as leave a site out of all with probability 1 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from secagg.errors import JobError

_MAX_MISS_PROBABILITY = 0.01
SINGLE_SITE_ROUNDS_NOTE = (
    " With participation below 1, the sum of a round in which a single site takes part is that "
    "site's alone, and the coordinator can tell."
)
"""For `Disclosure.text`."""


@dataclass(frozen=True, kw_only=True)
class Participation:
    """participation: probability that a site takes part in a round, by its own coin"""

    participation: float = 1.0
    """Probability that a site takes part in a round, above 0 and at most 1. Each site decides at
    random. In `fedavg` and `fedlin_hm2` a value below 1 costs privacy: a round in which one site
    takes part reveals that site's contribution, and the coordinator can tell."""

    def check_participation(self) -> None:
        """Raise `JobError` for a probability out of range."""
        if not 0 < self.participation <= 1:
            raise JobError("method.participation", "must be above 0, at most 1")

    def takes_part(self, rng: np.random.Generator) -> bool:
        """Toss the site's coin."""
        return bool(rng.random() < self.participation)

    def quiet(self, before: int, change: float | None, tolerance: float) -> int:
        """Return how many rounds in a row have been quiet; before: without this one."""
        return before + 1 if change is not None and change < tolerance else 0

    @property
    def patience(self) -> int:
        """How many quiet rounds in a row end the rounds."""
        if self.participation >= 1 - _MAX_MISS_PROBABILITY:
            return 1
        return math.ceil(math.log(_MAX_MISS_PROBABILITY) / math.log1p(-self.participation))
