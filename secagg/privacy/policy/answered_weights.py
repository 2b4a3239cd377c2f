"""The records that a sum depends on, and that the difference of two sums depends on.

A coordinator chooses the messages, and a message decides how much each record weighs in a sum
(`secagg.contracts.RecordWeights`). Every released sum can be subtracted from every other. So a site
judges the weights of each message, and their differences to the weights of all messages that it has
answered in the session: Kish's effective number of records (1965, *Survey Sampling*, section 8.2),

    (sum |w|)^2 / sum w^2,                                                                      (1)

with the |w| of a person's records added up if a column names persons. It is n if n records have one
weight, is at least `min_cell_records` for w itself and for every
difference. More than the largest minimum of a convention is never required: weights of an ordinary
fit are uneven too. In Newton's method on four hospitals' records, the smallest value for any
difference is 73, at the hospital with 117 records.

===============================================  ===============================================
case                                             result
===============================================  ===============================================
all weights 0: the sum depends on no record      allowed
equal weights                                    allowed from min_cell_records records on
the same message again                           allowed: the difference is 0
weights that differ by rounding only             allowed: the difference reveals no record
one record changes its weight, all others none   refused, whatever the weights themselves are
=============================================== ================================================

Not protected: combinations of more than two sums. With enough messages of its choice, a dishonest
coordinator can combine sums so that few records are left. The limits on coefficients and the count
of exact numbers (`secagg.privacy.policy.exact_numbers`) bound what it can ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.privacy.ledger.records import Decision
from secagg.privacy.policy.questions import LARGEST_MINIMUM
from secagg.privacy.policy.site_policy import SitePolicy

Weights = NDArray[np.float64]
"""Weights of a site's records in one part of a sum, not negative."""
_ROUNDING = 1e-12
"""Differences of weights up to this share of the largest weight may be rounding."""


def effective_records(weights: Weights, persons: NDArray[np.int64] | None = None) -> float:
    """Return (1) for weights, or for differences of weights; 0 if all are 0.

    persons: of each record, whose sizes of weights then add up; None if each has its own
    """
    sizes = np.abs(weights)
    if persons is not None:
        sizes = np.bincount(persons, sizes)
    largest = sizes.max(initial=0.0)
    if largest == 0:
        return 0.0
    relative = sizes / largest  # whose squares do not all underflow
    return float(relative.sum() ** 2 / (relative**2).sum())


@dataclass(eq=False)
class AnsweredWeights:
    """The weights of all messages that a site has answered in a session.

    They never leave the site.
    """

    _answered: list[tuple[Weights, ...]] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._answered)

    def add(self, weights: Sequence[Weights]) -> None:
        """Add the weights of a message that is answered."""
        self._answered.append(tuple(weights))

    def judge(
        self,
        policy: SitePolicy,
        weights: Sequence[Weights],
        persons: NDArray[np.int64] | None = None,
    ) -> tuple[Decision, ...]:
        """Return the decision of the rule `effective_records` about a further message.

        weights: of the site's records, in each part of the sum
        persons: of each record (`secagg.contracts.SiteRecords.person_codes`)
        """
        needed = min(policy.smallest_cell, LARGEST_MINIMUM)
        alone = [n for own in weights if (n := effective_records(own, persons)) > 0]
        differences = [
            effective_records(difference, persons)
            for earlier in self._answered
            for before, now in zip(earlier, weights, strict=True)
            if _changed(difference := now - before, before, now)
        ]
        if not alone:
            return ()
        what, found = "the sum depends", min(alone)
        if min(differences, default=found) < min(found, needed):
            what, found = "the difference to an earlier sum depends", min(differences)
        allowed = found >= needed
        text = f"{what} on " + ("enough records" if allowed else f"{found:.3g} records")
        return (Decision("effective_records", allowed, f"{text}; {needed} needed"),)


def _changed(difference: Weights, before: Weights, now: Weights) -> bool:
    """Return whether weights differ by more than rounding."""
    largest = max(before.max(initial=0.0), now.max(initial=0.0))
    return bool(np.abs(difference).max(initial=0.0) > _ROUNDING * largest)
