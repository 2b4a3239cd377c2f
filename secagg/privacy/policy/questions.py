"""Differencing control for questions: exact sums over the same records may not isolate a few.

Two sums over the same sites are harmless only if they ask the same of the records. Suppose that a
second job lowers the upper bound of one column, so that it clips the value of a single patient.
The difference of the two sums then contains this patient's other values. A job that declares one
column less, and therefore leaves out fewer incomplete records, has the same effect. This is the
differencing problem of official statistics (Hundepool et al. 2012, *Statistical Disclosure
Control*, section 3.4), one level below `secagg.privacy.policy.differencing`: there the parts of a
sum are sites, here they are the records of one site.

A question is what an exact job asks of the records: how it declares the columns, and which records
it admits. A site's ledger keeps the questions of all exact releases of a data set. For a further
exact job the site checks

1. *declarations*: a column that an earlier question used has the same type, bounds, transform and
   levels as then. So the same record always contributes the same values.
2. *records*: no combination of the sets of complete records, of this question and of all earlier
   ones, covers fewer than `min_records` records (and at least one). The answer is exact, by
   `differencing.exposed`: records that belong to the same sets have equal weights in every
   combination.
3. *unchanged records*: since each earlier question, either no record of this question's columns has
   changed, or the number of complete records has changed by `min_records` or more.
4. *limits*: `max_rows` is not smaller, and `min_records` not larger, than in earlier questions. A
   site that accepts such a job says something about its number of rows.

Rules 1 and 4 use public facts only. Rules 2 and 3 use the site's records.

=================================================  =============================================
second question                                    result
=================================================  =============================================
the same                                           allowed
other method, same columns                         allowed
fewer or more columns, same complete records       allowed
... n or more complete records more or fewer       allowed (n: `min_records`)
... fewer than n, but not 0                        refused, as a refusal because of the records
another bound, transform, type or set of levels    refused
a smaller `max_rows`                               refused
a larger `min_records`, above `LARGEST_MINIMUM`    refused
one record added since, or a cell corrected        refused, as a refusal because of the records
n records added since                              allowed
with noise                                         always allowed: the budget limits it
=================================================  =============================================

Not protected:

* Sums of different functions of the same records. Enough of them (moments, then gradients at many
  points) determine the records of a small cohort. No rule that counts records prevents this; only
  noise does.
* Columns that are copies of each other under different names. The policy can list the columns that
  may be used (`columns`).
* n records added and others changed at the same time: the rule sees only that n were added.
* A deleted ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import SiteRecords
from secagg.core import encoding
from secagg.errors import SecaggError
from secagg.privacy.ledger.records import AskedQuestion, Decision
from secagg.privacy.policy.differencing import exposed

LARGEST_MINIMUM = 11
"""The largest `min_records` of a convention (`secagg.privacy.policy.site_policy`). That a site has
at least this many records is no secret."""

Declarations = Mapping[str, Mapping[str, Any]]
"""For each column its declaration in the job: type, bounds, transform, levels."""


@dataclass(frozen=True)
class Question:
    """What an exact job asks of a site's records.

    max_rows: of the job
    min_records: the smallest number of complete records, by the job or the site's policy
    """

    columns: Declarations
    max_rows: int
    min_records: int

    def plain(self) -> dict[str, Any]:
        """Return the question as plain data for the ledger, which keeps the order of lists only."""
        columns = [[name, dict(declared)] for name, declared in self.columns.items()]
        return {**vars(self), "columns": columns}

    @property
    def records(self) -> str:
        """A text that is equal for questions about the same columns in the same order."""
        return encoding.digest(self.plain()["columns"]).hex()

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Question:
        """Return the question that `plain` converted."""
        return cls(dict(plain["columns"]), plain["max_rows"], plain["min_records"])


def conflict(earlier: Sequence[Question], new: Question) -> str | None:
    """Return why an exact answer to `new` may not follow the earlier ones, by rules 1 and 4."""
    for question in earlier:
        for name, declared in new.columns.items():
            before = question.columns.get(name)
            if before is not None and before != declared:
                return (
                    f"an earlier exact release declared column {name!r} as {_text(before)}, and "
                    f"this job declares it as {_text(declared)}; their difference could be one "
                    "record"
                )
        if new.max_rows < question.max_rows:
            return (
                f"sites.max_rows is {new.max_rows}, and an earlier exact release had "
                f"{question.max_rows}; a smaller one would ask for this site's number of rows"
            )
        if new.min_records > max(question.min_records, LARGEST_MINIMUM):
            return (
                f"min_records is {new.min_records}, and an earlier exact release had "
                f"{question.min_records}; a larger one would ask for this site's number of records"
            )
    return None


def compare_records(
    question: Question | None,
    asked: Sequence[AskedQuestion],
    rows: SiteRecords,
    reread: Callable[[Declarations], SiteRecords] | None,
    minimum: int | None,
) -> tuple[Decision, ...]:
    """Return the decision of rules 2 and 3; () if there is nothing to compare.

    question: the new one, None with noise
    asked: the earlier ones, from the ledger
    rows: the site's records as the new question reads them
    reread: returns the site's records as an earlier question reads them; None in tests
    minimum: the site's `min_records`
    """
    if question is None or reread is None or minimum is None or not asked:
        return ()

    def decide(allowed: bool, text: str) -> tuple[Decision, ...]:
        return (Decision("questions", allowed, text),)

    known: dict[str, SiteRecords] = {question.records: rows}
    masks: dict[str, NDArray[np.bool_]] = {}
    for earlier in asked:
        then = Question.of(earlier.question)
        try:
            if then.records not in known:
                known[then.records] = reread(then.columns)
        except SecaggError:
            return decide(False, "the records of an earlier exact release cannot be read any more")
        now = known[then.records]
        masks[then.records] = now.complete
        change = abs(len(now.values) - earlier.records)
        if change < minimum and not earlier.same_records(encoding.digest(now.values).hex()):
            text = f"records changed since an earlier exact release, {change} more or fewer"
            return decide(False, f"{text}; {minimum} needed")
    alone = isolates([*masks.values()], rows.complete, minimum)
    verb = "isolate" if alone else "do not isolate"
    return decide(
        not alone,
        f"combinations of {len(asked) + 1} exact releases {verb} fewer than {minimum} records",
    )


def isolates(earlier: Sequence[NDArray[np.bool_]], new: NDArray[np.bool_], minimum: int) -> bool:
    """Return whether the sets of records isolate fewer than `minimum` of them (rule 2).

    earlier: for each earlier question, which rows of the table are complete; shape (rows,)
    new: the same for the new question
    """
    members = np.stack([*earlier, new])
    atoms, sizes = np.unique(members[:, members.any(axis=0)], axis=1, return_counts=True)
    # `minimum` records of an atom are as good as all: a combination covers all of them or none.
    sets = [
        frozenset(
            f"{j}.{i}"
            for j in np.flatnonzero(inside)
            for i in range(min(int(sizes[j]), minimum))
        )
        for inside in atoms
    ]  # fmt: skip
    *before, last = sets
    return exposed(before, last, minimum) is not None


def _text(declared: Mapping[str, Any]) -> str:
    if declared["type"] != "continuous":
        return f"{declared['type']} with levels {', '.join(declared['levels'])}"
    transform = "" if declared["transform"] == "none" else f", transform {declared['transform']}"
    return f"{declared['low']:g} to {declared['high']:g}{transform}"
