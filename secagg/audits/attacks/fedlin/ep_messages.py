"""A3: a site's message in HM2 of FedLin gives its least squares, and with `points` X'X and X'y.

Yue, Al Kontar and Estrada Gomez (2022), section 4 and example 4.1, prior "normal". The attacker
reads each site's frame as its contribution. Under `plain` it is one. Under `masked` it is a vector
of uniformly random numbers, and gives nothing.

With `points`, a message has at each point tau (equation (1) of
`secagg.models.fedlin.posterior.importance_points`, in the notation of `ep_site`)

    L = (A^-1 + T)^-1,  b = (I + A T)^-1 c,   so   A = (I - L T)^-1 L,  c = (I + A T) b.         (1)

The point with the smallest tau is used: there, errors grow least, by 1 + |A T| squared. (L is a
multiple of 2^-56.)

Without points, the first message is the change from the cavity, which is the q that the coordinator
sent, to a normal density with the moments of the tilted density. They have 2 d + d (2 d + 1)
numbers, for the d (d + 3) / 2 of A and c. Nonlinear least squares fits them (`ep_site`).

What the result means. With points, A and c are exact up to the encoding. Without, the site's own
moments have a Monte Carlo error of about 1e-3 standard deviations, because it integrates log tau by
random points. No fit can be better than that. It hides X'X where tau X'X / sigma^2 is much above 1,
because there the likelihood depends on the least squares only. Not used: all rounds of a site have
the same random numbers. An attacker that guesses these too may find more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from scipy.optimize import least_squares

from secagg.audits.attacks.fedlin.ep_site import TiltedDensity
from secagg.audits.attacks.fedlin.fedlin_view import (
    MessageAttack,
    Regression,
    at_random,
    noise_of,
    stage_rounds,
)
from secagg.audits.attacks.fedlin.hm2_solved_sums import sums_at_points
from secagg.audits.views import View
from secagg.core.arrays import Array
from secagg.models.fedlin.hm2 import POINTS_STAGE, FedLinHm2
from secagg.models.numerics.natural_gaussian import Natural, symmetric

_STARTS = (1.0, 30.0)
"""A relative to the precision that was sent, where a search starts; tau hides a part of A."""
_STEPS = 40


class EpMessages(MessageAttack):
    """Solve (1), or fit the first message, for each site."""

    name: ClassVar[str] = "ep_messages"
    title: ClassVar[str] = "One message of FedLin HM2, solved for the site's own regression"
    source: ClassVar[str] = "Yue, Al Kontar and Estrada Gomez (2022), example 4.1"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        method = view.planned.method
        if not isinstance(method, FedLinHm2) or method.prior != "normal":
            return 'for fedlin_hm2 with the prior "normal"'
        return view.why_not_readable or at_random(method)

    def solved(self, alone: View) -> Regression:
        """Return a site's regression from its messages."""
        return _solved(alone)


def _solved(alone: View) -> Regression:
    """Return a site's regression from its messages."""
    first, points = stage_rounds(alone)[0], stage_rounds(alone, POINTS_STAGE)
    d = len(first.message["r"]) // 2
    nothing = np.full(d, np.nan)
    try:
        A, c = _at_a_point(points[0].message, points[0].total) if points else _fitted(alone)
        least = np.asarray(np.linalg.solve(A, c), dtype=np.float64)
    except np.linalg.LinAlgError:  # the frames do not hold contributions
        return Regression(np.full((d, d), np.nan), nothing, nothing, np.nan)
    noise = noise_of(alone)
    return Regression(noise * A, noise * c, least, noise)


def _at_a_point(message: Mapping[str, Array], part: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return A and c by (1)."""
    sums = sums_at_points(_natural(message), part)
    i = int(np.argmin(np.max(sums.tau, axis=1)))
    L, tau = sums.precision[i], sums.tau[i]
    A = np.linalg.solve(np.eye(len(tau)) - L * tau, L)
    return (A + A.T) / 2, sums.shift[i] + A @ (tau * sums.shift[i])


def _fitted(alone: View) -> tuple[Array, Array]:
    """Return the A and c that fit the first message best."""
    first = stage_rounds(alone)[0]
    cavity, change = _natural(first.message), _natural(first.total)
    if not (cavity + change).proper:
        raise np.linalg.LinAlgError("no density")
    sent = TiltedDensity(cavity, cavity + change)
    d = sent.d
    rows, columns = np.triu_indices(d)

    def moments(unknown: Array) -> tuple[Array, Array]:
        root = np.zeros((d, d))
        root[columns, rows] = unknown[: len(rows)]
        root[range(d), range(d)] = np.exp(np.diagonal(root))
        A = root @ root.T
        return A, A @ unknown[len(rows) :]

    def misfits(unknown: Array) -> Array:
        return sent.misfits(*moments(unknown))

    best = None
    for factor in _STARTS:
        root = np.linalg.cholesky(factor * (cavity + change).Q[:d, :d])
        root[range(d), range(d)] = np.log(np.diagonal(root))
        start = np.concatenate([root[columns, rows], sent.mean[:d]])
        fit = least_squares(misfits, start, x_scale="jac", max_nfev=_STEPS)
        best = fit if best is None or fit.cost < best.cost else best
    assert best is not None
    return moments(best.x)


def _natural(values: Mapping[str, Array]) -> Natural:
    return Natural(values["r"], symmetric(values["Q"], len(values["r"])))
