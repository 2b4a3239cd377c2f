"""Small cells: counts of records with a level or a pair, and of sites where a column varies.

A cell is a level of a binary or categorical column, or a pair of levels of two such columns. The
cross products X'X of the moments contain, for each level, the sums of all other columns over the
records with this level. If a single record has the level, these sums are that record's values. For
each pair of levels they contain the number of records. Official statistics and DataSHIELD therefore
refuse tables with small cells (Hundepool et al. 2012, *Statistical Disclosure Control*, chapter 4;
`nfilter.tab`).

A level may also name a site: all records of one hospital have it, and no others. Then the sums for
this level are the sums of that hospital alone, although the whole sum covers many sites.

If a variable is constant at all sites but one, sums of products of deviations from sites' means
depend on this one site only. This holds for a number, and for a level that all records of some
sites have, and no record of others. A site with one record is such a site, whatever its record is:
sums within sites do not contain it. In a sum of whole records it would hide the others as well as
any site, and there the rule is stricter than necessary. But the first sum does not say whether
single records differ from each other, and without that such a sum may be one site's, too.

Without noise, the first sum of a run counts the records of all cells, the sites at which each
level occurs, and the sites at which each variable varies. `check_cells`, `check_level_sites` and
`check_varying_sites` refuse the run before any sum of the method is requested, if a count is
neither 0 nor large enough. The refusal does not say which count.

By its bounds, a job could ask at how many sites somebody's value is above one. So before the first
sum, each site refuses a number of which fewer than `min_records` records differ from the most
common value (rule `constant_columns`). A site with a policy refuses such levels, too; at other
sites, the counts of all sites decide about levels.

If the job names a column of persons, a cell's count is the number of persons with a record in it. A
person can have several levels of one column. So the counts of reference levels do not follow from
the other counts, and the sites send them, too.

A method for tables has a sum of counts of its own (`secagg.contracts.Stage.counts_cells`), which
`check_table_cells` compares with the same minimum before the method sees it. If the job names
persons, it counts them, too. A cell is never suppressed alone: one small cell ends the run.

Guarantee: if all checks pass, every cell over all sites has no records, or `min_cell_records` or
more; every level occurs at no site, or at `min_level_sites` or more; and every variable varies
among the records of no site, or of `min_level_sites` or more.

================================================  ===========================
case                                              result
================================================  ===========================
every cell has 0 or `minimum` or more records     passes
a level with fewer                                refused
a reference level, which has no variable          counted like every level
a pair of levels of two columns with fewer        refused
a cell of a requested table with fewer            refused, with all tables
a level that occurs at fewer sites                refused
a reference level that occurs at fewer sites      refused
a variable that varies at fewer sites             refused
a variable that varies at no site                 passes
no binary or categorical column                   only the last two are checked
================================================  ===========================

Not protected:

* The coordinator's program sees the counts. It compares them with the minimum, and discards them. A
  coordinator that departs from its program learns the counts, and can continue. A site's own rule
  `min_level_records` does not depend on the coordinator.
* Cells of three or more columns, unless the method counts them.
* Small cells of one site, which may be large over all sites. If all other sites collude, they can
  subtract their own counts.
* Pairs of levels that occur together at one site only, and combinations of columns that vary at one
  site only: with x1 = x2 at all other sites, the sums show x1 - x2 at this site.
* A continuous column that has one value at each site, such as a number of the site. Over two sites,
  the sums with such a column determine the sums of each site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Variable
from secagg.errors import PolicyRefusal
from secagg.privacy.policy.release_rules import ReleasePolicy

CHECKED_COUNTS = ("levels", "level_sites", "varying_sites")
"""The counts in the first sum that are compared with a minimum, and then discarded."""
_OTHER_WAYS = (
    "Take {column} out of [columns]: the sites allow this if no records, or enough of them, lack "
    "only this column. Or let the sites agree on a smaller release.{rule}. Or use [privacy], if "
    "each site's policy sets a budget: then only this budget limits what is asked."
)


def level_counts(indicators: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the numbers of records with each pair of indicators: the upper triangle, by rows.

    indicators: shape (records, q)
    """
    ones = indicators.astype(np.float64)
    return (ones.T @ ones)[np.triu_indices(ones.shape[1])]


def sites_with_level(indicators: NDArray[np.bool_], columns: Sequence[str]) -> NDArray[np.float64]:
    """Return 1 for each level that one of a site's records has, and else 0.

    indicators: shape (records, q)
    columns: the column of each indicator; after the indicators come the columns' reference levels
    """
    return np.array(with_references(indicators, columns).any(axis=0), dtype=np.float64)


def varying(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 for each variable that has two different values at a site, and else 0.

    values: shape (records, variables)
    """
    if not len(values):
        return np.zeros(values.shape[1])
    return np.array(np.any(values != values[0], axis=0), dtype=np.float64)


def with_references(indicators: NDArray[np.bool_], columns: Sequence[str]) -> NDArray[np.bool_]:
    """Return which levels each record has: the indicators, and then the reference levels.

    indicators: shape (records, q); columns: the column of each indicator
    """
    names = np.array(columns)
    rest = [~indicators[:, names == name].any(axis=1) for name in dict.fromkeys(columns)]
    return np.column_stack([indicators, *rest])


def person_level_counts(
    levels: NDArray[np.bool_], persons: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the numbers of persons with a record that has each pair of levels, as `level_counts`.

    levels: from `with_references`; persons: of each record, numbered from 0 without gaps
    """
    count = levels.shape[1]
    found = np.zeros((count, count))
    if len(persons):
        order = np.argsort(persons, kind="stable")
        starts = np.searchsorted(persons[order], np.arange(persons.max() + 1))
        for i, own in enumerate(levels[order].T):
            both = levels[order] & own[:, np.newaxis]
            found[i] = np.logical_or.reduceat(both, starts, axis=0).sum(axis=0)
    return found[np.triu_indices(count)]


def count_refusals(
    who: str,
    rules: ReleasePolicy,
    variables: Sequence[Variable],
    records: int,
    totals: Mapping[str, NDArray[np.float64]],
) -> Iterator[PolicyRefusal]:
    """Yield a refusal for each of `CHECKED_COUNTS` that is too small.

    who: name of the party that checks; records: number of records over all sites
    totals: the sums over all sites; a job with noise has none of these counts
    """
    checks: dict[str, Callable[[NDArray[np.float64]], None]] = {
        "levels": partial(check_cells, who, rules.min_cell_records, variables, records),
        "level_sites": partial(check_level_sites, who, rules.min_level_sites),
        "varying_sites": partial(check_varying_sites, who, rules.min_level_sites),
    }
    for name, check in checks.items():
        if name in totals:
            try:
                check(totals[name])
            except PolicyRefusal as refusal:
                yield refusal


def check_level_sites(who: str, minimum: int | None, counts: NDArray[np.float64]) -> None:
    """Check that every level occurs at no site, or at `minimum` or more. Raises `PolicyRefusal`.

    who: name of the party that checks
    minimum: None if the rule is not set, which is an error too
    counts: the sum of `sites_with_level` over all sites
    """
    what = (
        f"one of the levels of the binary and categorical columns occurs at fewer than {minimum} "
        "sites, so sums over the records with this level cover too few sites"
    )
    column = "a column that names the site, or whose levels occur at few sites"
    _check_sites(who, minimum, counts, what, column)


def check_varying_sites(who: str, minimum: int | None, counts: NDArray[np.float64]) -> None:
    """Check that every variable varies at no site, or at `minimum` or more sites.

    who, minimum: as for `check_level_sites`; counts: the sum of `varying` over all sites

    Raises `PolicyRefusal`.
    """
    what = (
        f"one of the columns varies among the records of fewer than {minimum} sites and is "
        "constant at the others, as at each site with one record, so sums of its products within "
        "sites cover too few sites"
    )
    _check_sites(who, minimum, counts, what, "a column that has one value at most sites")


def _check_sites(
    who: str, minimum: int | None, counts: NDArray[np.float64], what: str, column: str
) -> None:
    if minimum is None:
        raise PolicyRefusal(who, "release rule min_level_sites is not set", "Set min_sites.")
    if np.any((counts > 0) & (counts < minimum)):
        raise PolicyRefusal(who, what, _OTHER_WAYS.format(column=column, rule="min_level_sites"))


def check_cells(
    who: str,
    minimum: int | None,
    variables: Sequence[Variable],
    records: int,
    counts: NDArray[np.float64],
) -> None:
    """Check that every cell has no records, or at least `minimum`. Raises `PolicyRefusal`.

    who: name of the party that checks
    minimum: None if the rule is not set, which is an error too
    records: number of records over all sites
    counts: the sum of `level_counts` over all sites; or of `person_level_counts`, which has all
        cells
    """
    if minimum is None:
        raise PolicyRefusal(who, "release rule min_cell_records is not set", "Set min_records.")
    columns = [v.column for v in variables if v.indicator]
    q = len(columns)
    if len(counts) != q * (q + 1) // 2:
        _check(who, minimum, counts, "persons")
        return
    gram = np.zeros((q + 1, q + 1))
    gram[0, 0] = records
    upper = np.triu_indices(q)
    gram[1:, 1:][upper] = counts
    gram[0, 1:] = gram.diagonal()[1:]
    gram = np.triu(gram) + np.triu(gram, 1).T
    # Columns of `levels`: each indicator, and for each column the reference level 1 - (its sum).
    references = [[1.0, *(-float(c == name) for c in columns)] for name in dict.fromkeys(columns)]
    levels = np.vstack([np.eye(q + 1)[1:], np.array(references).reshape(-1, q + 1)])
    _check(who, minimum, levels @ gram @ levels.T, "records")


def check_table_cells(
    who: str, minimum: int | None, counts: Mapping[str, NDArray[np.float64]]
) -> None:
    """Check a sum of counts of tables (`Stage.counts_cells`), as `check_cells`.

    Every margin is a sum of cells, so it passes if the cells do. Raises `PolicyRefusal`.
    """
    if minimum is None:
        raise PolicyRefusal(who, "release rule min_cell_records is not set", "Set min_records.")
    if any(np.any((cells > 0) & (cells < minimum)) for cells in counts.values()):
        raise PolicyRefusal(
            who,
            f"fewer than {minimum} records over all sites are in one of the cells of the tables, "
            "and at least one",
            "Ask for tables with fewer columns or levels; [columns] can join rare levels if the "
            "sites' mappings do. Or let the sites agree on a smaller release.min_cell_records. Or "
            "use [privacy].",
        )


def _check(who: str, minimum: int, cells: NDArray[np.float64], unit: str) -> None:
    if np.any((cells > 0) & (cells < minimum)):
        raise PolicyRefusal(
            who,
            f"fewer than {minimum} {unit} over all sites have one of the levels, or one of the "
            "pairs of levels, of the binary and categorical columns",
            _OTHER_WAYS.format(column="a column with rare levels", rule="min_cell_records"),
        )
