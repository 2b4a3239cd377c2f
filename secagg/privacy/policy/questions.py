"""Differencing control for questions: exact sums may not isolate a few of the same records.

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
   ones, covers fewer than `min_records` records (and at least one); nor does a combination of the
   sets of those complete records that have one level. The answer is exact, by
   `differencing.exposed`: records that belong to the same sets have equal weights in every
   combination.
3. *unchanged records*: the complete records of each earlier question are still the first ones of
   the table, unchanged and in the same order. So the records that were added are known, and rule 2
   judges them too.
4. *limits*: `max_rows` is not smaller, and `min_records` not larger, than in earlier questions. A
   site that accepts such a job says something about its number of rows.

5. *held-out records*: a method may leave out a share of the records, to test its predictions. If
   one of two questions does so, both have the same columns. If both do, they hold out the same
   records: an equal share from the end of the table. If a method chooses them at random, no other
   question on these columns is allowed.

Rules 1, 4 and 5 use public facts only. Rules 2 and 3 use the site's records
(`secagg.privacy.policy.record_sets`).

=================================================  =============================================
second question                                    result
=================================================  =============================================
the same                                           allowed
other method, same columns                         allowed
fewer or more columns, same complete records       allowed
... n or more complete records more or fewer       allowed (n: `min_records`)
... fewer than n, but not 0                        refused, as a refusal because of the records
... of which fewer than n have one of the levels   refused, as a refusal because of the records
another bound, transform, type or set of levels    refused
a smaller `max_rows`                               refused
a larger `min_records`, above `LARGEST_MINIMUM`    refused
one record added since                             refused, as a refusal because of the records
n records added since, at the end                  allowed, if rule 2 allows it
a cell corrected, or records in another order      refused, as a refusal because of the records
another share held out, or any at random           refused
with noise                                         always allowed: the budget limits it
=================================================  =============================================

Not protected:

* Sums of different functions of the same records. Enough of them (moments, then gradients at many
  points) determine the records of a small cohort. No rule that counts records prevents this; only
  noise does.
* Columns that are copies of each other under different names. The policy can list the columns that
  may be used (`columns`).
* A deleted ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from secagg.core import canonical_encoding

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
    held_out: the share of the records that the method leaves out of some sums
    held_out_rows: which ones: "last", "random", or "" for none
    powers: by variable, the highest power in the method's sums, if it is above 1
    person: the column that names persons, so that a record without a name is incomplete; None if
        the job names none
    rows: number of complete rows that it asked about, as the ledger has it; 0 if not known
    """

    columns: Declarations
    max_rows: int
    min_records: int
    held_out: float = 0.0
    held_out_rows: str = ""
    powers: Mapping[str, int] = field(default_factory=dict)
    person: str | None = None
    rows: int = 0

    def plain(self) -> dict[str, Any]:
        """Return the question as plain data for the ledger, which keeps the order of lists only."""
        columns = [[name, dict(declared)] for name, declared in self.columns.items()]
        plain = {**vars(self), "columns": columns, "powers": dict(self.powers)}
        del plain["rows"]
        if self.person is None:
            del plain["person"]
        return plain

    @property
    def records(self) -> str:
        """A text that is equal for questions about the same columns in the same order."""
        columns = self.plain()["columns"]
        return canonical_encoding.digest(
            columns if self.person is None else [columns, self.person]
        ).hex()

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Question:
        """Return the question that `plain` converted."""
        return cls(
            dict(plain["columns"]), plain["max_rows"], plain["min_records"],
            plain.get("held_out", 0.0), plain.get("held_out_rows", ""), plain.get("powers", {}),
            plain.get("person"), plain.get("records", 0),
        )  # fmt: skip


def conflict(earlier: Sequence[Question], new: Question) -> str | None:
    """Return why an exact answer to `new` may not follow the earlier ones, by rules 1 and 4."""
    for question in earlier:
        for name, declared in new.columns.items():
            before = question.columns.get(name)
            if before is not None and before != declared:
                use = "need not name it"
                if "levels" in before:
                    use = f"can name the levels to use as '{name}=LEVEL', or not name it"
                return (
                    f"an earlier exact job declared column {name!r} as {_text(before)}, and this "
                    f"job declares it as {_text(declared)}; results could differ in one record. "
                    f"Declare it as then; the method's settings {use}"
                )
        if new.max_rows < question.max_rows:
            return (
                f"sites.max_rows is {new.max_rows}, and an earlier exact job had "
                f"{question.max_rows}; a smaller one would ask for this site's number of rows. "
                "Set it as then"
            )
        if new.min_records > max(question.min_records, LARGEST_MINIMUM):
            return (
                f"min_records is {new.min_records}, and an earlier exact job had "
                f"{question.min_records}; a larger one would ask for this site's number of "
                "records. Set it as then"
            )
        if reason := _other_rows(question, new):
            return reason
    return None


def _other_rows(earlier: Question, new: Question) -> str | None:
    """Return why the held-out records forbid `new`, by rule 5."""
    if not earlier.held_out and not new.held_out:
        return None
    if earlier.records != new.records:
        return (
            "this job or an earlier exact one holds out records, and then all exact jobs must have "
            "the same columns in the same order, and the same privacy.person. Use those of the "
            "earlier one"
        )
    if "random" in (earlier.held_out_rows, new.held_out_rows):
        return (
            "this job or an earlier exact one holds out records that are chosen at random, and "
            "their sums could be computed from the two. Hold out the last records, or none"
        )
    if earlier.held_out and new.held_out:
        same = (earlier.held_out, earlier.held_out_rows) == (new.held_out, new.held_out_rows)
        if not same:
            return (
                "an earlier exact job held out other records; the difference could be one record. "
                "Hold out none, or the same share from the end of the table"
            )
    return None


def _text(declared: Mapping[str, Any]) -> str:
    if declared["type"] == "count":
        return f"counts up to {declared['high']:g}"
    if declared["type"] != "continuous":
        return f"{declared['type']} with levels {', '.join(declared['levels'])}"
    transform = "" if declared["transform"] == "none" else f", transform {declared['transform']}"
    return f"{declared['low']:g} to {declared['high']:g}{transform}"
