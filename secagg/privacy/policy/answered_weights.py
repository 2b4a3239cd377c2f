"""How many records a sum, or the difference of two sums, depends on.

A coordinator chooses the messages, and a message decides how much each record weighs in a sum
(`secagg.contracts.RecordWeights`). Every released sum can be subtracted from every other. So a site
judges the weights of each message, and their differences to the weights of all messages that it has
answered in the session: Kish's effective number of records (1965, *Survey Sampling*, section 8.2),

    (sum |w|)^2 / sum w^2,                                                                      (1)

with the |w| of a person's records added up if a column names persons. If n records have the same
weight and all others 0, (1) is n. It must be at least `min_cell_records` for w itself and for every
difference. (If `min_cell_records` is above 11, the largest minimum of a convention, 11 is enough,
because weights of an ordinary fit are uneven too.) In Newton's method on four hospitals' records,
every difference depends on more than 30 records, also at the hospital with 117
(tests/attacks/test_chosen_coefficients.py).

A sum also has parts. The Hessian sum_i w_i z_i z_i' has a row for each combination c of columns:
sum_i w_i (c'z_i) z_i. If w_i (c'z_i)^2 is almost 0 in all records but one, this row is that
record's z_i times a number. A coordinator can choose coefficients with this effect: among the
patients with angina, one patient has nearly all the weight, and among all others it is spread over
many, so (1) is large. Therefore the leverage of a record (`secagg.privacy.policy.leverage`) in the
columns, weighted by the w of the message or by the |w| of a difference, is at most `max_leverage`.
This is Pregibon's leverage of a logistic regression (1981, *The Annals of Statistics* 9).

===============================================  ===============================================
case                                             result
===============================================  ===============================================
all weights 0: the sum depends on no record      allowed
equal weights                                    allowed from min_cell_records records on
the same message again                           allowed: the difference is 0
weights that differ by rounding only             allowed: the difference reveals no record
one record changes its weight, all others none   refused, whatever the weights themselves are
one record has nearly all weight of its level    refused by `max_leverage`
... or nearly all change of weight of its level  refused by `max_leverage`
===============================================  ===============================================

Not protected:

* A few records, instead of one, that have nearly all weight of a level or of another combination of
  columns.
* Differences to sums of other sessions.
* Combinations of more than two sums. With enough messages of its choice, a dishonest coordinator
  can combine sums so that few records are left. The limits on coefficients and the count of exact
  numbers (`secagg.privacy.policy.exact_numbers`) bound what it can ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.privacy.ledger.records import Decision
from secagg.privacy.policy.leverage import largest_leverage, orthonormal
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
        return len(self._answered)

    def add(self, weights: Sequence[Weights]) -> None:
        self._answered.append(tuple(weights))

    def judge(
        self,
        policy: SitePolicy,
        weights: Sequence[Weights],
        columns: NDArray[np.float64],
        persons: NDArray[np.int64] | None = None,
    ) -> tuple[Decision, ...]:
        """Return the decisions about a further message: `effective_records` and `max_leverage`.

        weights: of the site's records, in each part of the sum
        columns: that the weights multiply (`secagg.contracts.WeightedColumns`)
        persons: of each record (`secagg.contracts.SiteRecords.person_codes`)
        """
        needed = min(policy.smallest_cell, LARGEST_MINIMUM)
        alone = [n for own in weights if (n := effective_records(own, persons)) > 0]
        changes = [
            (difference, rounding)
            for earlier in self._answered
            for before, now in zip(earlier, weights, strict=True)
            if _changed(difference := now - before, rounding := rounding_of(before, now))
        ]
        differences = [effective_records(change, persons) for change, _ in changes]
        if not alone:
            return ()
        what, found = "the sum depends", min(alone)
        if min(differences, default=found) < min(found, needed):
            what, found = "the difference to an earlier sum depends", min(differences)
        allowed = found >= needed
        text = f"{what} on " + ("enough records" if allowed else f"{found:.3g} records")
        decision = Decision("effective_records", allowed, f"{text}; {needed} needed")
        limit = policy.max_leverage
        if not allowed or limit is None or limit >= 1:
            return (decision,)
        judged = [*((own, rounding_of(own)) for own in weights), *changes]
        return decision, _on_leverage(judged, columns, limit, persons)


def _on_leverage(
    judged: Sequence[tuple[Weights, float]],
    z: NDArray[np.float64],
    limit: float,
    persons: NDArray[np.int64] | None,
) -> Decision:
    """Return the decision about the leverage of records in the weighted columns.

    judged: weights or differences of weights, each with the size of its rounding
    """
    largest = max(weighted_leverage(z, own, rounding, persons) for own, rounding in judged)
    allowed = largest <= limit
    found = "not too large" if allowed else f"{largest:.3g}"
    text = f"in the weighted columns, the largest leverage is {found}; at most {limit:g} allowed"
    return Decision("max_leverage", allowed, text)


def weighted_leverage(
    z: NDArray[np.float64], weights: Weights, rounding: float,
    persons: NDArray[np.int64] | None = None,
) -> float:  # fmt: skip
    """Return the largest leverage of a person in the columns z, weighted by |weights|.

    rounding: the size of weights that may be rounding. It is added to all, so that records whose
        weights are smaller do not seem to differ
    persons: of each record; None if each record has its own
    """
    sizes = np.abs(weights) + rounding
    weighted = np.sqrt(sizes / (sizes.max(initial=0.0) or 1.0))[:, np.newaxis] * z
    weighted = weighted[:, weighted.any(axis=0)]
    return largest_leverage(orthonormal(weighted), persons) if weighted.size else 0.0


def rounding_of(*weights: Weights) -> float:
    """Return the size of differences of these weights that may be rounding."""
    return _ROUNDING * max(float(own.max(initial=0.0)) for own in weights)


def _changed(difference: Weights, rounding: float) -> bool:
    """Return whether weights differ by more than rounding."""
    return bool(np.abs(difference).max(initial=0.0) > rounding)
