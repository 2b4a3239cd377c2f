"""Differencing control inside one site: which records the exact sums of all jobs single out.

`secagg.privacy.policy.questions` describes the rules. This module has those that need the site's
records (rules 2 and 3), and the rule on leverage.

**Sets.** The records that are complete for a job are a set, and so are those of them that have a
given level. Sums over two sets give the sum over their difference, and so on.
`differencing.exposed` decides exactly whether a combination of sets covers fewer than `min_records`
records. It is called for the complete records, and for each value of each column with two values or
with levels, among the jobs that use this column.

**Persons.** If the job names a column of persons, these rules count persons. A combination of sets
covers a person if it covers one of the person's records. The leverage of a person is that of all
records of the person together, and a group consists of persons. A person can have records in
several parts into which the sets divide the table. Then each of these parts counts an equal share
of the person. So a combination never counts more persons than it covers, but it may count fewer.
Then a harmless job is refused.

**Added records.** An earlier job covered the records of that time. They must still be the first
complete records of the table, unchanged and in the same order; the ledger keeps a digest of them.
Then the records that were added are known, and the earlier sets do not contain them. So all rules
judge the difference. If the digest differs, nobody can say what the difference is, and every exact
job is refused.

**Held-out records.** A method can leave records out of its sums, to test its predictions. If they
are the last ones of the table, its sums are over the training records, and its first sum counts all
records. Both sets are compared.

**Leverage.** A combination of columns can also be zero in all records except a few. The module
`secagg.privacy.policy.leverage` finds it, in the columns of all jobs together, with all powers in
the methods' sums. Each column is mapped to 0 to 1 by its own smallest and largest value at this
site, and each job has a column of ones (docs/math/differencing.md).

**Sites without a policy file** judge no level by their own count, because the counts of all sites
decide (`release.min_cell_records`). There, a level that few records have is no column of its own,
but part of the most frequent level. A combination of other columns that is zero except in few
records is refused as at all sites.

==========================================================  =======================================
case                                                        result
==========================================================  =======================================
equal sets                                                  allowed
sets that differ by n or more records (n: `min_records`)    allowed
sets that differ by fewer, but not 0                        refused
... by n or more, of which fewer have some level            refused
n records added at the end of the table                     allowed
... of which fewer than n, but not 0, have some level       refused
... of which fewer than n have a value other than 0         refused by `max_leverage`
records corrected, removed, or in another order             refused
a column that is a sum of others except in one record       refused by `max_leverage`
... except in fewer than n records                          refused by `max_leverage`
one value that is far larger than all others                refused by `max_leverage`
... or whose power is, of a method with powers of a column  refused by `max_leverage`
sets that differ by 12 records of one person                refused, as by one record
a column that is a sum of others except for one person      refused by `max_leverage`
==========================================================  =======================================

Not protected:

* Pairs of levels among the records in which two jobs differ. An observer can learn that few of
  these have both levels of a pair, but none of their other values.
* The number of sites of a difference. If only one site has records that lack a column, the
  difference of two jobs is a sum over these records, of which there are `min_records` or more.
* At a site without a policy file, a combination of a level that few records have with two or more
  other columns. With one other level, the job's counts of pairs of levels find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import SiteRecords
from secagg.core import canonical_encoding
from secagg.errors import SecaggError
from secagg.privacy.ledger.records import AskedQuestion, Decision
from secagg.privacy.policy.differencing import exposed
from secagg.privacy.policy.leverage import on_leverage
from secagg.privacy.policy.questions import Question

Key = tuple[str, int]
"""A variable: its column, and its position among the variables of this column."""
Mask = NDArray[np.bool_]
"""Which rows of the site's table belong to a set of records."""


@dataclass(frozen=True, repr=False)
class ReadQuestion:
    """A question, with the site's records as it reads them."""

    question: Question
    rows: SiteRecords

    def __repr__(self) -> str:
        """Return a text without records."""
        return "ReadQuestion(...)"

    def variables(self) -> Iterator[tuple[Key, NDArray[np.float64]]]:
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
            if "levels" not in declared and len(np.unique(values)) != 2:
                continue
            high = values > 0 if "levels" in declared else values == values.max()
            found[name, i] = self._of_table(high)
            rest = found.get((name, -1), self.rows.complete)
            found[name, -1] = rest & ~found[name, i]
        return found

    def first(self, records: int) -> ReadQuestion:
        """Return the question with the first complete records only: those of an earlier time."""
        rows = self.rows
        complete = rows.complete & (np.cumsum(rows.complete) <= records)
        earlier = replace(rows.part(0, records), complete=complete)
        return ReadQuestion(self.question, earlier)

    def training(self) -> ReadQuestion:
        """Return the question with the records that its method does not hold out.

        If it chooses them at random, there is no other exact job (rule 5), so no difference.
        """
        n, share = len(self.rows.values), self.question.held_out
        held = max(int(share * n), 1) if share and self.question.held_out_rows == "last" else 0
        return self.first(n - held)

    def columns(self, rare: int = 0) -> dict[tuple[Key, bytes], NDArray[np.float64]]:
        """Return all variables from 0 to 1, and a column of ones, over the rows, by set.

        rare: levels of fewer records than this are part of the most frequent level
        """
        own = self.rows.complete.tobytes()
        found = {(("", 0), own): self.rows.complete.astype(np.float64)}
        merged = self._merged_levels(rare)
        for key, values in self.variables():
            if key in merged:
                continue
            low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
            if low < high:
                column = np.zeros(len(self.rows.complete))
                column[self.rows.complete] = (values - low) / (high - low)
                found[key, own] = column
                for power in range(2, self.question.powers.get(key[0], 1) + 1):
                    found[(f"{key[0]}^{power}", key[1]), own] = column**power
        return found

    def counts(self, rare: int = 0) -> dict[tuple[Key, bytes], NDArray[np.float64]]:
        """Return those of `columns` that the first sum counts: records, and levels."""
        coded = {n for n, each in self.question.columns.items() if "levels" in each}
        return {k: v for k, v in self.columns(rare).items() if k[0][0] in {"", *coded}}

    def _merged_levels(self, rare: int) -> set[Key]:
        """Return the indicators to leave out, so that no level of few records has one.

        The first level has no indicator. Without that of the most frequent level, it is merged too.
        """
        counts: dict[str, dict[Key, int]] = {}
        for key, values in self.variables():
            if "levels" in self.question.columns[key[0]]:
                counts.setdefault(key[0], {})[key] = int(np.count_nonzero(values > 0))
        merged = set[Key]()
        for of_column in counts.values():
            merged |= {key for key, count in of_column.items() if 0 < count < rare}
            first = len(self.rows.values) - sum(of_column.values())
            if 0 < first < rare:
                merged.add(max(of_column, key=lambda key: of_column[key]))
        return merged

    def _of_table(self, of_complete: Mask) -> Mask:
        mask = np.zeros(len(self.rows.complete), dtype=np.bool_)
        mask[self.rows.complete] = of_complete
        return mask


def compare_records(
    new: ReadQuestion,
    asked: Sequence[AskedQuestion],
    reread: Callable[[Question], SiteRecords] | None,
    minimum: int | None,
    max_leverage: float | None,
    levels_of_all_sites: bool = False,
) -> tuple[Decision, ...]:
    """Return the decisions of this module's rules.

    asked: the earlier questions, from the ledger
    reread: returns the site's records as an earlier question reads them; None in tests
    minimum: the site's `min_records`
    levels_of_all_sites: whether levels of few records are judged by the counts of all sites only
    """
    if reread is None or minimum is None or len(new.rows.complete) == 0:
        return ()
    tables = {new.question.records: new.rows}
    before: dict[tuple[str, int], ReadQuestion] = {}
    for earlier in asked:
        then = Question.of(earlier.question)
        try:
            if then.records not in tables:
                tables[then.records] = reread(then)
        except SecaggError:
            text = "the records of an earlier exact job cannot be read any more"
            return (Decision("questions", False, text),)
        read = ReadQuestion(then, tables[then.records]).first(earlier.records)
        if why := _changed(earlier, read, new):
            return (Decision("questions", False, why),)
        before[then.records, earlier.records] = read
    questions = [*before.values()]
    persons = _persons([new, *questions])
    decisions = []
    if asked or new.question.held_out:
        alone = _isolated_somewhere(questions, new, minimum, persons)
        text = f"combinations of {len(asked) + 1} exact jobs do not isolate few records"
        if alone is not None:
            unit = "records" if persons is None else "persons"
            text = (
                f"{'combined with earlier exact jobs' if asked else 'with its held-out records'}, "
                f"this job isolates fewer than {minimum} {unit}{alone}. {_way_on(questions, new)}"
            )
        decisions.append(Decision("questions", alone is None, text))
    if max_leverage is not None:
        rare = minimum if levels_of_all_sites else 0
        z = _columns([new, *questions], rare)
        decisions.append(on_leverage(z, minimum, max_leverage, persons))
    return tuple(decisions)


def _changed(earlier: AskedQuestion, then: ReadQuestion, new: ReadQuestion) -> str | None:
    """Return why records that changed since an earlier question forbid the new one (rule 3)."""
    if not earlier.same_records(canonical_encoding.digest(then.rows.values).hex()):
        return (
            "since an earlier exact job, records were corrected, removed or put in another order, "
            "or were added elsewhere than at the end of the file. Undo the change, and add records "
            "at the end only"
        )
    added = new.rows.complete & ~then.rows.complete
    if then.question.held_out and new.question.held_out and added.any():
        return (
            "records were added since an earlier exact job that held out records, so other records "
            "would be held out now. Hold out none"
        )
    return None


def _way_on(earlier: Sequence[ReadQuestion], new: ReadQuestion) -> str:
    """Return advice for a job whose set of records differs too little from earlier ones."""
    columns = set(new.question.columns)
    if not earlier:
        return "Hold out more records, or none"
    if any(set(each.question.columns) < columns for each in earlier):
        return "Few records lack only the columns that are new in this job. Leave these out"
    return "Keep all columns of an earlier job in [columns]; the method's settings may name fewer"


def _persons(questions: Sequence[ReadQuestion]) -> NDArray[np.int64] | None:
    """Return the person of each row of the table; None if the present job names no persons.

    The same numbers stand for the same persons in all questions, because they come from one table.

    questions: the present one first
    """
    if not len(questions[0].rows.persons):
        return None
    persons = np.full(len(questions[0].rows.complete), -1, dtype=np.int64)
    for each in questions:
        persons[each.rows.complete] = each.rows.persons
    return np.unique(persons, return_inverse=True)[1].reshape(-1)


def _sets(question: ReadQuestion) -> list[ReadQuestion]:
    """Return the question, and with held-out records also the question without them."""
    return [question, question.training()] if question.question.held_out else [question]


def _isolated_somewhere(
    earlier: Sequence[ReadQuestion],
    new: ReadQuestion,
    minimum: int,
    persons: NDArray[np.int64] | None,
) -> str | None:
    """Return where sums or counts isolate few records; None if nowhere.

    A method's sums are over the training records. The first sum counts all complete records, and
    those with each level.
    """
    sums = isolated([each.training() for each in earlier], new.training(), minimum, persons)
    if sums is not None:
        return sums
    counted = [*chain(*map(_sets, earlier))]
    for each in _sets(new):
        where = isolated(counted, each, minimum, persons)
        if where is not None:
            return where
        counted.append(each)
    return None


def isolated(
    earlier: Sequence[ReadQuestion],
    new: ReadQuestion,
    minimum: int,
    persons: NDArray[np.int64] | None = None,
) -> str | None:
    """Return where sets of records isolate fewer than `minimum` (rule 2); None if nowhere.

    "" stands for the complete records.

    persons: of each row of the table; None to count records
    """
    if isolates([each.rows.complete for each in earlier], new.rows.complete, minimum, persons):
        return ""
    sets = [each.levels() for each in earlier]
    for key, mask in new.levels().items():
        before = [own[key] for own in sets if key in own]
        if before and isolates(before, mask, minimum, persons):
            return f" with a level of {key[0]}"
    return None


def isolates(
    earlier: Sequence[Mask], new: Mask, minimum: int, persons: NDArray[np.int64] | None = None
) -> bool:
    """Return whether combinations of the sets cover fewer than `minimum` records, but not none.

    persons: of each row of the table, to count persons
    """
    if earlier and all(np.array_equal(each, new) for each in earlier):
        return False
    members = np.stack([*earlier, new])
    inside = members.any(axis=0)
    atoms, of_atom, sizes = np.unique(
        members[:, inside], axis=1, return_inverse=True, return_counts=True
    )
    if persons is not None:
        # A person in k atoms is 1/k of a person in each: in any union of atoms, the shares of a
        # person add up to at most 1. Sizes and minimum are multiplied by the largest k.
        pairs = np.unique(np.stack([persons[inside], of_atom.reshape(-1)]), axis=1)
        shared = np.unique(pairs[0], return_inverse=True, return_counts=True)
        times = shared[2][shared[1].reshape(-1)]
        most = int(times.max(initial=1))
        sizes = np.floor(np.bincount(pairs[1], most / times) * (1 + 1e-12)).astype(np.int64)
        minimum *= most
    # `minimum` records of an atom are as good as all: a combination covers all of them or none.
    sets = [
        frozenset(
            f"{j}.{i}"
            for j in np.flatnonzero(of_set)
            for i in range(min(int(sizes[j]), minimum))
        )
        for of_set in atoms
    ]  # fmt: skip
    *before, last = sets
    return exposed(before, last, minimum) is not None


def _columns(questions: Sequence[ReadQuestion], rare: int = 0) -> NDArray[np.float64]:
    """Return Z, over the rows of the table, without columns of zeros. rare: as in `columns`."""
    columns: dict[tuple[Key, bytes], NDArray[np.float64]] = {}
    for each in questions:
        columns |= each.training().columns(rare)
        if each.question.held_out:
            columns |= each.counts(rare)
    z = np.column_stack([*columns.values()])
    return np.asarray(z[:, z.any(axis=0)])
