"""What the frames and sums of the sparse linear methods hold, as arrays over rounds.

The notation is that of `secagg.models.sparse_bayes.horseshoe`. C chains and R regressions of q
coefficients run at once. Each (chain, regression) is a *series* of rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from secagg.audits.views import View
from secagg.contracts import SiteRecords
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.base import DRAWS
from secagg.models.sparse_bayes.horseshoe import Regression
from secagg.models.sparse_bayes.linear_rounds import SparseLinear
from secagg.models.sparse_bayes.sums import full

NOT_SPARSE = "for sparse_regression and sparse_markov"


@dataclass(frozen=True)
class Series:
    """One chain of one regression, over T rounds. theta, t: sent by the coordinator, (T, q).

    sent: fields of the sums or of one site's contributions, (T, ...); P as matrices (T, q, q)
    """

    theta: Array
    t: Array
    sent: dict[str, Array]

    def first(self, rounds: int) -> Series:
        """Return the first rounds."""
        sent = {name: values[:rounds] for name, values in self.sent.items()}
        return Series(self.theta[:rounds], self.t[:rounds], sent)


def sparse_method(view: View) -> SparseLinear | None:
    """Return the method of a job if it is a sparse linear one."""
    method = view.planned.method
    return method if isinstance(method, SparseLinear) else None


def regressions(view: View) -> Iterator[list[Series]]:
    """Yield for each regression its series, one a chain, from the opened sums of a view."""
    seen = [each for each in view.rounds if each.stage == DRAWS]
    sent = {name: np.array([each.total[name] for each in seen]) for name in seen[0].total}
    theta, t = (np.array([each.message[name] for each in seen]) for name in ("theta", "t"))
    if "P" in sent:
        sent["P"] = full(sent["P"], theta.shape[-1])
    _, chains, number, _ = theta.shape
    for i in range(number):
        yield [
            Series(theta[:, c, i], t[:, c, i], {name: v[:, c, i] for name, v in sent.items()})
            for c in range(chains)
        ]


def site_regressions(view: View, rows: SiteRecords) -> list[Regression]:
    """Return X'X, X'y and y'y of a site in the units of the run, for each regression."""
    method = sparse_method(view)
    assert method is not None
    public = view.planned.public
    message = next(seen.message for seen in view.rounds if seen.stage == DRAWS)
    random = np.random.default_rng(0).bytes
    memory = method.contribute(DRAWS, rows, message, {}, public, random)[1]
    each = method.design(public).regression(memory["gram"])
    return [Regression(*parts) for parts in zip(each.gram, each.cross, each.square, strict=True)]


def least_squares(regression: Regression) -> Array:
    """Return the coefficients of least squares, the shortest ones if they are not unique."""
    return np.asarray(np.linalg.pinv(regression.gram, hermitian=True) @ regression.cross)


def to_scale(gram: Array) -> Array:
    """Return a matrix divided by its trace."""
    trace = float(np.trace(gram))
    return gram / trace if trace > 0 else gram


def relative_error(found: Array, true: Array) -> float:
    """Return the error's norm over that of the truth; infinite if it is undefined."""
    error = float(np.linalg.norm(found - true) / np.linalg.norm(true))
    return error if np.isfinite(error) else float("inf")
