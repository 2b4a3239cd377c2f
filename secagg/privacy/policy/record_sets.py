"""Differencing control inside one site: which records the exact sums of all jobs single out.

`secagg.privacy.policy.questions` describes the rules. This module has those that need the site's
records (rules 2 and 3), and the rule on leverage.

**Sets.** The records that are complete for a job are a set, and so are those of them that have a
given level. Sums over two sets give the sum over their difference, and so on.
`differencing.exposed` decides exactly whether a combination of sets covers fewer than `min_records`
records. It is asked for the complete records, and for each value of each column with two values or
levels, among the jobs that use this column.

**Leverage.** A combination of columns can also be zero in all records except one: suppose that
cancer = breast + colon in all patients but one. Then the cross products of the three columns with
another column give this patient's value. Put the columns of all jobs side by side in a matrix Z,
with zeros where a record is not in the job's set, and a column of ones for each job. The leverage
of record i is the largest value of (Zc)_i^2 / |Zc|^2 over all combinations c (Hoaglin and Welsch
1978, The American Statistician 32). It is 1 if some combination is record i alone, and near 1 if
some combination is almost record i alone, as when one cost is far larger than all others.

==========================================================  =======================================
case                                                        result
==========================================================  =======================================
equal sets                                                  allowed
sets that differ by n or more records (n: `min_records`)    allowed
sets that differ by fewer, but not 0                        refused
... by n or more, of which fewer have some level            refused
n records added, all sets of complete records equal         allowed
... of which fewer than n, but not 0, have some level       refused
... and this job leaves out other records than earlier      refused
a column that is a sum of others except in one record       refused by `max_leverage`
one value that is far larger than all others                refused by `max_leverage`
==========================================================  =======================================

Not protected:

* Combinations of columns that are zero in all records except a few, but more than one. A vector on
  m records gives one of them a leverage of 1/m or more, which is not unusual.
* Records of other sites add to a combination, unless it is zero for them too. So the rule on
  leverage is stricter than necessary.
* n records added and others changed at the same time: the rules see only that n were added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import SiteRecords
from secagg.core import encoding
from secagg.errors import SecaggError
from secagg.privacy.ledger.records import AskedQuestion, Decision
from secagg.privacy.policy.differencing import exposed
from secagg.privacy.policy.questions import Declarations, Question

Key = tuple[str, int]
"""A variable: its column, and its position among the variables of this column."""
Mask = NDArray[np.bool_]
"""Which rows of the site's table belong to a set of records."""

_RANK_TOLERANCE = 1e-9
"""Singular values below this share of the largest are rounding, for columns of length 1."""


@dataclass(frozen=True, repr=False)
class ReadQuestion:
    """A question, with the site's records as it reads them."""

    question: Question
    rows: SiteRecords

    def __repr__(self) -> str:
        """Return a text without records."""
        return "ReadQuestion(...)"

    def variables(self) -> Iterator[tuple[Key, NDArray[np.float64]]]:
        """Return the values of each variable, for the complete records."""
        names = [
            (name, i)
            for name, declared in self.question.columns.items()
            for i in range(len(declared["levels"]) - 1 if declared["type"] == "categorical" else 1)
        ]
        return zip(names, self.rows.values.T, strict=True)

    def levels(self) -> dict[Key, Mask]:
        """Return the sets of complete records with each value of a column that has two values.

        A column with more levels has one set for each level. Keys count from -1: the first level.
        """
        found: dict[Key, Mask] = {}
        if not len(self.rows.complete):  # the records come from no table
            return found
        for (name, i), values in self.variables():
            declared = self.question.columns[name]
            if declared["type"] == "continuous" and len(np.unique(values)) != 2:
                continue
            high = values > 0 if declared["type"] != "continuous" else values == values.max()
            found[name, i] = self._of_table(high)
            rest = found.get((name, -1), self.rows.complete)
            found[name, -1] = rest & ~found[name, i]
        return found

    def level_counts(self) -> dict[str, int]:
        """Return the number of records in each set of `levels`, for the ledger."""
        return {f"{name}.{i}": int(mask.sum()) for (name, i), mask in self.levels().items()}

    def columns(self) -> dict[tuple[Key, bytes], NDArray[np.float64]]:
        """Return all variables and a column of ones, over the rows of the table, by set."""
        own = self.rows.complete.tobytes()
        found = {(("", 0), own): self.rows.complete.astype(np.float64)}
        for key, values in self.variables():
            column = np.zeros(len(self.rows.complete))
            column[self.rows.complete] = values
            found[key, own] = column
        return found

    def _of_table(self, of_complete: Mask) -> Mask:
        mask = np.zeros(len(self.rows.complete), dtype=np.bool_)
        mask[self.rows.complete] = of_complete
        return mask


def compare_records(
    new: ReadQuestion,
    asked: Sequence[AskedQuestion],
    reread: Callable[[Declarations], SiteRecords] | None,
    minimum: int | None,
    max_leverage: float | None,
) -> tuple[Decision, ...]:
    """Return the decisions of this module's rules.

    asked: the earlier questions, from the ledger
    reread: returns the site's records as an earlier question reads them; None in tests
    minimum: the site's `min_records`
    """
    if reread is None or minimum is None or len(new.rows.complete) == 0:
        return ()
    known = {new.question.records: new}
    for earlier in asked:
        then = Question.of(earlier.question)
        try:
            if then.records not in known:
                known[then.records] = ReadQuestion(then, reread(then.columns))
        except SecaggError:
            text = "the records of an earlier exact job cannot be read any more"
            return (Decision("questions", False, text),)
        changed = _changed(earlier, known[then.records], new, minimum)
        if changed:
            return (Decision("questions", False, changed),)
    before = [each for key, each in known.items() if key != new.question.records]
    decisions = []
    if asked:
        alone = isolated(before, new, minimum)
        text = f"combinations of {len(asked) + 1} exact jobs do not isolate few records"
        if alone is not None:
            text = (
                f"combined with earlier exact jobs, this job isolates fewer than {minimum} "
                f"records{alone}. Keep all columns of an earlier job in [columns]; the method's "
                "settings need not name all of them"
            )
        decisions.append(Decision("questions", alone is None, text))
    if max_leverage is not None:
        largest = largest_leverage([new, *before])
        text = (
            f"the largest leverage of a record is {largest:.3g}; at most {max_leverage:g} allowed"
        )
        decisions.append(Decision("max_leverage", largest <= max_leverage, text))
    return tuple(decisions)


def _changed(
    earlier: AskedQuestion, then: ReadQuestion, new: ReadQuestion, minimum: int
) -> str | None:
    """Return why records that changed since an earlier question forbid the new one (rule 3)."""
    if earlier.same_records(encoding.digest(then.rows.values).hex()):
        return None
    change = abs(len(then.rows.values) - earlier.records)
    if change < minimum:
        text = f"{change} records were added or removed" if change else "cells were corrected"
        text += " since an earlier exact job, and a second result would show them"
        return f"{text}. Undo the change, or wait until {minimum} records have been added"
    if not np.array_equal(then.rows.complete, new.rows.complete):
        return (
            "records changed since an earlier exact job, and this job leaves out other incomplete "
            "records than that one. Undo the change, or keep all columns of the earlier job in "
            "[columns]"
        )
    before: Mapping[str, int] = earlier.question.get("levels", {})
    for name, count in then.level_counts().items():
        if 0 < abs(count - before.get(name, count)) < minimum:
            return (
                f"{change} records were added or removed since an earlier exact job, and fewer "
                f"than {minimum} of them have one of the levels of {name.rpartition('.')[0]}. Undo "
                "the change, or wait for more records"
            )
    return None


def isolated(earlier: Sequence[ReadQuestion], new: ReadQuestion, minimum: int) -> str | None:
    """Return where sets of records isolate fewer than `minimum` (rule 2); None if nowhere.

    "" stands for the complete records.
    """
    if isolates([each.rows.complete for each in earlier], new.rows.complete, minimum):
        return ""
    sets = [each.levels() for each in earlier]
    for key, mask in new.levels().items():
        before = [own[key] for own in sets if key in own]
        if before and isolates(before, mask, minimum):
            return f" with a level of {key[0]}"
    return None


def isolates(earlier: Sequence[Mask], new: Mask, minimum: int) -> bool:
    """Return whether combinations of the sets cover fewer than `minimum` records, but not none."""
    if earlier and all(np.array_equal(each, new) for each in earlier):
        return False
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


def largest_leverage(questions: Sequence[ReadQuestion]) -> float:
    """Return the largest leverage of a record in the columns of all questions together."""
    columns: dict[tuple[Key, bytes], NDArray[np.float64]] = {}
    for each in questions:
        columns |= each.columns()
    z = np.column_stack([*columns.values()])
    lengths = np.linalg.norm(z, axis=0)
    z = z[:, lengths > 0] / lengths[lengths > 0]
    left, singular, _ = np.linalg.svd(z, full_matrices=False)
    left = left[:, singular > _RANK_TOLERANCE * singular.max(initial=0.0)]
    return min(float((left**2).sum(axis=1).max(initial=0.0)), 1.0)  # at most 1, but for rounding
