"""The input of every graph learner: the pooled covariance or correlation of the chosen variables.

All checks are in this module. So no learner returns a graph for moments that no data can have,
which noise added for privacy can cause, or that contain no information about a variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.errors import UsageError
from secagg.models.common.pooled_moments import Moments
from secagg.models.graphs.noise_size import PooledNoise, pooled_noise
from secagg.models.numerics.cholesky import factor

# On the correlation scale. A variable whose squared multiple correlation with others exceeds
# 1 - RANK_TOLERANCE counts as an exact linear combination of them: double precision leaves about
# 1e-16, but the secure sum rounds to a fixed point, and this leaves room for that.
RANK_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class GraphInput:
    """The checked moments.

    names: p variables; n: records; matrix: (p, p) covariance, or correlation
    full_rank: whether the correlation matrix has full rank (see RANK_TOLERANCE)
    effective_n: number of records of one population that carry the same information. It is n; if
        each site's data were centred within the site, it is n less one for each site beyond the
        first. With normal noise the scatter within sites is distributed as that of effective_n
        records of one population.
    noise: in these moments; None without noise
    """

    names: tuple[str, ...]
    n: int
    effective_n: int
    matrix: NDArray[np.float64]
    full_rank: bool
    noise: PooledNoise | None = None

    def require_full_rank(self, method: str, *, few_records: bool = False) -> None:
        """Raise `UsageError` on a singular matrix: it does not tell effects apart.

        few_records: accept it if there are no more records than variables. A method whose penalty
            or tests choose among the equally good fits can then go on; with more records, the
            variables themselves are dependent, and the choice would be arbitrary.
        """
        if self.full_rank or (few_records and self.effective_n <= len(self.names)):
            return
        raise singular(method, self.n, self.matrix, self.names)


def singular(
    method: str,
    n: int,
    matrix: NDArray[np.float64],
    names: Sequence[str] = (),
    tolerance: float = RANK_TOLERANCE,
) -> UsageError:
    """Return the error of every graph method on a singular matrix, which names a variable at fault.

    matrix: covariance or correlation; names: of its variables, if one is to be named
    tolerance: below it, an eigenvalue of the correlations counts as 0
    """
    p, dependence = len(matrix), ""
    if names and n > p:
        root = np.sqrt(np.diagonal(matrix))
        try:  # the smallest unexplained share is at most p times the smallest eigenvalue
            factor(matrix / root / root[:, None], names, p * tolerance)
        except UsageError as error:
            dependence = f"; {error.what}"
    return UsageError(
        "analysis",
        f"{method} needs linearly independent variables and more records than variables "
        f"({n} records, {p} variables){dependence}",
        "Leave out variables that the others determine, such as one of a set of "
        "indicators that add up to 1.",
    )


def graph_input(
    moments: Moments, variables: Sequence[str] | None, *, standardise: bool
) -> GraphInput:
    """Return the chosen variables' covariance S / n (or correlation), checked.

    variables: at least two different column names; None takes all columns, in their order
    Raises `UsageError`: fewer than two variables or records, a name given twice or unknown, moments
    that are not finite, a constant column, a matrix that is not positive semidefinite.
    """
    chosen = tuple(moments.names if variables is None else variables)
    if len(set(chosen)) < max(2, len(chosen)):
        raise UsageError(
            "analysis", "a graph needs at least two different variables", f"Given: {list(chosen)}."
        )
    if moments.n < 2:
        raise UsageError("analysis", f"a graph needs at least 2 records, not {moments.n}")
    selected = moments.select(chosen)
    if not np.all(np.isfinite(selected.scatter)):
        raise UsageError("analysis", "the pooled moments are not finite")
    correlation = selected.correlation  # refuses constant columns
    smallest = float(np.linalg.eigvalsh(correlation)[0])
    tolerance = max(RANK_TOLERANCE, selected.tolerance)
    if smallest < -tolerance:
        raise UsageError(
            "analysis",
            f"the pooled covariance is not positive semidefinite (smallest eigenvalue of the "
            f"correlation matrix: {smallest:.3g})",
            "Privacy noise can cause it: use less noise, fewer variables or more records.",
        )
    matrix = correlation if standardise else selected.covariance
    return GraphInput(
        chosen,
        moments.n,
        moments.degrees_of_freedom + 1,
        matrix,
        full_rank=smallest > tolerance,
        noise=pooled_noise(selected, standardise=standardise),
    )
