"""The matrices of moments that a coordinator reads from a run's sums.

Let z = (1, x), with x the variables of a record as scaled. The matrix M = sum z z' has the number
of records, their sums and their cross products. The method `moments` releases it. The first sum of
`logistic`, at coefficients 0, has it for the predictors and the outcome y, too: there each record
has the weight 1/4 in the Hessian, and the gradient is sum z (y - 1/2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from secagg.audits.views import View
from secagg.contracts import PublicFacts, Update
from secagg.core.arrays import Array
from secagg.models.common.variables import choose, outcome_index
from secagg.models.glm.logistic import NEWTON, Logistic
from secagg.models.moments.method import STAGE
from secagg.models.numerics.natural_gaussian import symmetric


@dataclass(frozen=True)
class MomentMatrix:
    """M over the records of some sites. variables: positions of those of M, after the constant."""

    of: tuple[str, ...]
    variables: tuple[int, ...]
    M: Array


def of_moments(view: View) -> Iterator[MomentMatrix]:
    """Yield the matrices that the attacker can compute from the sum of the method `moments`."""
    every = tuple(range(len(view.planned.public.variables)))
    seen = next((s for s in view.rounds if s.stage == STAGE and "counts" not in s.total), None)
    if seen is None:  # also with centre = "site": that sum has no means
        return
    if view.in_clear:
        for site, part in seen.parts.items():
            yield MomentMatrix((site,), every, symmetric(part["moments"], len(every) + 1))
        return
    total = symmetric(seen.total["moments"], len(every) + 1)
    others = tuple(site for site in view.sites if site not in view.own)
    for site in set(view.sites) - set(others):
        z = np.column_stack([np.ones(len(view.own[site].values)), view.own[site].values])
        total = total - z.T @ z
    yield MomentMatrix(others, every, total)


def of_logistic(view: View) -> Iterator[MomentMatrix]:
    """Yield the matrices that the attacker can compute from the first sum of `logistic`."""
    method, public = view.planned.method, view.planned.public
    if not isinstance(method, Logistic) or not view.rounds or view.rounds[0].stage != NEWTON:
        return
    seen = view.rounds[0]
    outcome = outcome_index(public, method.outcome)
    predictors = choose(public, method.predictors, "method.predictors", method.outcome)
    variables = (*(int(j) for j in predictors), outcome)
    sums: list[tuple[tuple[str, ...], Update]] = [(view.sites, seen.total)]
    if view.in_clear:
        sums = [((site,), part) for site, part in seen.parts.items()]
    for of, total in sums:
        yield MomentMatrix(of, variables, _at_zero(total, outcome, public))


def _at_zero(total: Update, outcome: int, public: PublicFacts) -> Array:
    """Return M of the predictors and the outcome."""
    p = len(total["gradient"])
    H = 4 * symmetric(total["hessian"], p)
    of_y = total["gradient"] + H[:, 0] / 2  # sum z y
    M = np.zeros((p + 1, p + 1))
    M[:p, :p], M[p, :p], M[:p, p], M[p, p] = H, of_y, of_y, of_y[0]
    y, scale = public.variables[outcome], np.eye(p + 1)
    scale[p, p], scale[p, 0] = 1 / y.half_range, -y.midpoint / y.half_range
    return np.asarray(scale @ M @ scale.T)
