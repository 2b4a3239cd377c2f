"""The matrices of moments that a coordinator reads from a run's sums.

Let z = (1, x), with x the variables of a record as scaled. The matrix M = sum z z' has the number
of records, their sums and their cross products. The method `moments` releases it. The first sum of
Newton's method, at coefficients 0, has it for the predictors, unless there is an exposure: there
each record has the same weight w in the Hessian, in logistic regression 1/4. The gradient is
sum z (y - mu), with mu the mean at coefficients 0. So if y is 0 or 1, M has it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from secagg.audits.views import View
from secagg.contracts import Family, Outcome, Update, Variable
from secagg.core.arrays import Array
from secagg.models.common.variables import choose
from secagg.models.glm.newton_regression import NEWTON, NewtonRegression
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


def of_newton(view: View) -> Iterator[MomentMatrix]:
    """Yield the matrices that the attacker can compute from the first sum of Newton's method."""
    method, public = view.planned.method, view.planned.public
    if not isinstance(method, NewtonRegression) or method.exposure_column() is not None:
        return
    if not view.rounds or view.rounds[0].stage != NEWTON:
        return
    seen = view.rounds[0]
    predictors = choose(public, method.predictors, "method.predictors", method.outcome)
    variables = tuple(int(j) for j in predictors)
    outcome = None
    if method.family.outcome is Outcome.BINARY:
        (outcome,) = public.positions[method.outcome]
        variables += (outcome,)
    sums: list[tuple[tuple[str, ...], Update]] = [(view.sites, seen.total)]
    if view.in_clear:
        sums = [((site,), part) for site, part in seen.parts.items()]
    for of, total in sums:
        y = None if outcome is None else public.variables[outcome]
        yield MomentMatrix(of, variables, _at_zero(total, method.family, y))


def _at_zero(total: Update, family: Family, y: Variable | None) -> Array:
    """Return M of the predictors, and of a binary outcome."""
    p, zero = len(total["gradient"]), np.zeros(1)
    Z = symmetric(total["hessian"], p) / family.weight(zero)[0]
    if y is None:
        return np.asarray(Z)
    of_y = total["gradient"] + Z[:, 0] * family.mean(zero)[0]  # sum z y
    M = np.zeros((p + 1, p + 1))
    M[:p, :p], M[p, :p], M[:p, p], M[p, p] = Z, of_y, of_y, of_y[0]
    scale = np.eye(p + 1)
    scale[p, p], scale[p, 0] = 1 / y.half_range, -y.midpoint / y.half_range
    return np.asarray(scale @ M @ scale.T)
