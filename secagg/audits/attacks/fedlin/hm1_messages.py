"""A4: a site's messages in HM1 of FedLin give its least squares, X'X and X'y.

Yue, Al Kontar and Estrada Gomez (2022), section 3 and Algorithm 1, in the notation of
`secagg.models.fedlin.site_covariance`. A site sends S = theta v' / b, G = v v' / b and |u|^2, where
u are the coefficients with which it began the round and theta those after its gradient steps. The
last d entries of v are root(alpha / d) u. So

    b = alpha |u|^2 / (d tr G_dd),    v = the root of b G,    theta = b S v / v'v,               (1)

with G_dd the last d rows and columns of G, up to a sign. All rounds have the same sign, because v
begins with U times the v before, and the last stage has the coefficients themselves. v = 0 in the
first round; its theta follows from the next u = theta / (1 + a). The T steps are affine:

    theta = P u + (I - P) l,    P = (I - 2 eta X'X)^T,    eta = step / (largest eigenvalue w),   (2)

with l the least squares. In the first round u = 0. This gives (I - P) l, and d further rounds P.
The T-th root of P is X'X / w, and the prior's weight a = b - (1 - alpha)^t gives w (see
`hm1_solved_sums.cross_products`) with the noise variance. This is in the coordinator's message;
that of a single site follows from its message in the stage `noise`.

The attacker reads each site's frame as its contribution. Under `plain` it is one. Under `masked` it
is a vector of uniformly random numbers, and (1) gives nothing.

What the result means. An eigenvalue w_i of X'X is found if (1 - 2 eta w_i)^T is not lost in the
rounding of (2): with many steps, a round ends at the least squares, and P is nearly 0. Then the
least squares are still exact, and X'X is not.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from secagg.audits.attacks.fedlin.fedlin_view import (
    MessageAttack,
    Regression,
    at_random,
    noise_of,
    stage_rounds,
)
from secagg.audits.attacks.fedlin.hm1_solved_sums import cross_products
from secagg.audits.views import View
from secagg.core.arrays import Array
from secagg.models.fedlin.base import FINISH
from secagg.models.fedlin.hm1 import FedLinHm1
from secagg.models.fedlin.site_covariance import shrunk
from secagg.models.numerics.natural_gaussian import symmetric

_UNMOVED = 1e-12  # eigenvalues of I - P below it are rounding, of directions without records


class Hm1Messages(MessageAttack):
    """Solve (1) and (2) for each site."""

    name: ClassVar[str] = "hm1_messages"
    title: ClassVar[str] = "Messages of FedLin HM1, solved for the site's own regression"
    source: ClassVar[str] = "Yue, Al Kontar and Estrada Gomez (2022), Algorithm 1"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        method = view.planned.method
        if not isinstance(method, FedLinHm1):
            return "for fedlin_hm1"
        rounds = stage_rounds(view)
        if len(rounds) <= method.layout(view.planned.public).d:
            return "there are not more rounds than coefficients"
        return view.why_not_readable or at_random(method)

    def solved(self, alone: View) -> Regression:
        """Return a site's regression from its messages."""
        return _solved(alone)


def _solved(alone: View) -> Regression:
    """Return a site's regression from its messages."""
    method = alone.planned.method
    assert isinstance(method, FedLinHm1)
    d = method.layout(alone.planned.public).d
    u, theta, a = path(alone, method)
    if not np.all(np.isfinite([u, theta])):  # the frames do not hold contributions
        nothing = np.full(d, np.nan)
        return Regression(np.full((d, d), np.nan), nothing, nothing, np.nan)
    P = np.linalg.lstsq(u[1:], theta[1:] - theta[0], rcond=None)[0]
    P = (P + P.T) / 2
    least = np.linalg.pinv(np.eye(d) - P, rcond=_UNMOVED, hermitian=True) @ theta[0]
    noise = noise_of(alone)
    gram = cross_products(P, a, noise, method)
    return Regression(gram, gram @ least, least, noise)


def path(alone: View, method: FedLinHm1) -> tuple[Array, Array, float]:
    """Return u and theta (rounds, d) of (2), and a, by (1); alone: of one site."""
    rounds, d, c = stage_rounds(alone), method.layout(alone.planned.public).d, 1 - method.alpha
    starts, ends, before, b = [np.zeros(d)], [np.zeros(d)], np.zeros(0), np.nan
    for seen in rounds[1:]:
        S, m = seen.total["S"], seen.total["S"].shape[1]
        G = symmetric(seen.total["G"], m)
        b = method.alpha / d * float(seen.total["moved"][1]) / float(np.trace(G[-d:, -d:]))
        j = int(np.argmax(np.diagonal(G)))
        v = G[j] * np.sqrt(b / G[j, j])
        if len(before) and v[: m - d] @ (seen.message["U"] @ before) < 0:
            v = -v
        starts.append(v[-d:] / np.sqrt(method.alpha / d))
        ends.append(b * S @ v / (v @ v))
        before = v
    a = b - c ** (len(rounds) - 1)
    ends[0] = starts[1] * (1 + a)
    last = next(seen for seen in alone.rounds if seen.stage == FINISH)
    settled = shrunk(ends[-1], before, last.message["M"], a / b)
    sign = -1.0 if settled @ last.total["coefficients"] < 0 else 1.0
    return sign * np.array(starts), sign * np.array(ends), a
