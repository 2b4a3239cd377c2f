"""Small cells: how many records, over all sites, have a level or a pair of levels.

A cell is a level of a binary or categorical column, or a pair of levels of two such columns. The
cross products X'X of the moments contain, for each level, the sums of all other columns over the
records with this level. If a single record has the level, these sums are that record's values. For
each pair of levels they contain the number of records. Official statistics and DataSHIELD therefore
refuse tables with small cells (Hundepool et al. 2012, *Statistical Disclosure Control*, chapter 4;
`nfilter.tab`).

Without noise, the first sum of a run counts the records of all cells. `check_cells` refuses the run
before any sum of the method is requested, if a cell is neither empty nor large enough. It does not
say which cell.

Guarantee: if `check_cells` passes, every cell over all sites has no records, or `minimum` or more.

================================================  ===========================
case                                              `check_cells`
================================================  ===========================
every cell has 0 or `minimum` or more records     passes
a level with fewer                                refused
a reference level, which has no variable          counted like every level
a pair of levels of two columns with fewer        refused
no binary or categorical column                   nothing to check
================================================  ===========================

Not protected:

* The coordinator's program sees the counts. It compares and drops them. A coordinator that departs
  from its program learns the counts, and can continue. A site's own rule `min_level_records`
  does not depend on the coordinator.
* Cells of three or more columns, which the sums do not contain.
* Cells of one site: over all sites they may be large. If all other sites collude, they can subtract
  their own counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Variable
from secagg.errors import PolicyRefusal


def level_counts(indicators: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the numbers of records with each pair of indicators: the upper triangle, by rows.

    indicators: shape (records, q)
    """
    ones = indicators.astype(np.float64)
    return (ones.T @ ones)[np.triu_indices(ones.shape[1])]


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
    counts: the sum of `level_counts` over all sites
    """
    if minimum is None:
        raise PolicyRefusal(who, "release rule min_cell_records is not set", "Set min_records.")
    columns = [v.column for v in variables if v.indicator]
    q = len(columns)
    gram = np.zeros((q + 1, q + 1))
    gram[0, 0] = records
    upper = np.triu_indices(q)
    gram[1:, 1:][upper] = counts
    gram[0, 1:] = gram.diagonal()[1:]
    gram = np.triu(gram) + np.triu(gram, 1).T
    # Columns of `levels`: each indicator, and for each column the reference level 1 - (its sum).
    references = [[1.0, *(-float(c == name) for c in columns)] for name in dict.fromkeys(columns)]
    levels = np.vstack([np.eye(q + 1)[1:], np.array(references).reshape(-1, q + 1)])
    cells = levels @ gram @ levels.T
    if np.any((cells > 0) & (cells < minimum)):
        raise PolicyRefusal(
            who,
            f"fewer than {minimum} records over all sites have one of the levels, or one of the "
            "pairs of levels, of the binary and categorical columns",
            "Leave out a column with rare levels, use [privacy], or agree on another "
            "release.min_cell_records.",
        )
