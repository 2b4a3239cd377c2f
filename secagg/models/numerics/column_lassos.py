"""The lasso of every variable on others, with ridge weights, from their covariance alone.

    minimise  1/2 tr((I - V)' S (I - V)) + sum penalty_ij |V_ij| + 1/2 sum ridge_ij V_ij^2    (P)

over the free entries of V. Each column of V is a separate problem. All are solved together, in two
stages.

* Accelerated proximal gradients (Beck and Teboulle, SIAM J. Imaging Sci. 2, 2009). The momentum
  restarts when it points uphill (O'Donoghue and Candes, Found. Comput. Math. 15, 2015). Steps are
  scaled to the variables: S <= L diag(S), L the largest eigenvalue of the correlation matrix. On
  well-conditioned data this stage suffices. If variables are strongly correlated, it needs a number
  of steps near the root of the condition number, and a small step does not mean that the minimum is
  near.
* Then a search on the support (Lee, Battle, Raina and Ng, NeurIPS 2007, "feature-sign"). No step
  increases the objective, and the condition number does not matter. The entry that would move most
  enters. While no sign changes, (P) is a quadratic in the nonzero entries, minimised by one solve.
  Entries whose sign would change leave, and the solve is repeated.

When to stop. Consider minimising (P) over a single entry of V with the others fixed. Let r(V) be
the largest such move, times the root of the curvature there: r^2 / 2 is what that move gains. r is
zero exactly at minimisers. The steps end when r(V) <= RELATIVE r(W), where W is the point at which
the caller built (P). This is the rule of inexact proximal Newton methods (Byrd, Nocedal and
Oztoprak, Math. Program. 157, 2016). It requires little accuracy while W is far from a minimum, and
more as W approaches a minimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from secagg.models.numerics.precision import ROUNDING

Matrix = NDArray[np.float64]
Columns = NDArray[np.intp]

RELATIVE = 0.1
_ROUNDING_SHARE = 1e-12  # of an entry, and of moves in units of the largest sd; less is rounding
_MAX_GRADIENT_STEPS = 25
_GRADIENT_TOLERANCE = 3e-6  # gradient steps end when no entry changes by more than this
_MAX_ENTRIES_RATIO = 10  # times p: how many entries may enter a column; p are usual
_TINY = float(np.finfo(np.float64).tiny)  # for variables without variance: their slopes are zero


@dataclass(frozen=True)
class ColumnLassos:
    """The problems (P).

    S: (p, p) covariance; penalty: at least 0, one or (p, p)
    free: (p, p), entries that may differ from zero
    """

    S: Matrix
    penalty: Matrix | float
    free: NDArray[np.bool_]

    def minimise(self, V: Matrix, ridge: Matrix, *, centre: Matrix | None = None) -> Matrix:
        """Return a minimiser of (P), descending from V.

        V: (p, p), zero where not free; ridge: (p, p), at least 0
        centre: W of the rule above; None: continue to rounding accuracy
        If `_MAX_ENTRIES_RATIO` does not suffice, returns the point reached.
        """
        tolerance = _ROUNDING_SHARE * math.sqrt(float(np.max(np.diagonal(self.S))))
        if centre is not None:
            tolerance = max(tolerance, RELATIVE * float(self._moves(centre, ridge)[1].max()))
        V = self._gradients(V, ridge)
        for _ in range(_MAX_ENTRIES_RATIO * len(V)):
            best, moves = self._moves(V, ridge)
            columns = np.flatnonzero(moves.max(axis=0) > tolerance)
            if columns.size == 0:
                break
            rows = moves[:, columns].argmax(axis=0)
            V = V.copy()
            V[rows, columns] = best[rows, columns]
            while columns.size:  # entries leave in each iteration
                V[:, columns], crossed = self._solve_on_support(V[:, columns], ridge, columns)
                columns = columns[crossed]
        return V

    def _moves(self, V: Matrix, ridge: Matrix) -> tuple[Matrix, Matrix]:
        """Return each entry's minimiser, the others fixed, and its move; r is the largest move."""
        curvature = np.maximum(np.diagonal(self.S)[:, None] + ridge, _TINY)
        target = V * curvature + self.S - self.S @ V - ridge * V
        best = np.copysign(np.maximum(np.abs(target) - self.penalty, 0), target) / curvature
        change = np.abs(best - V)
        moving = self.free & (change > _ROUNDING_SHARE * np.abs(best))
        return best, np.where(moving, change * np.sqrt(curvature), 0)

    @cached_property
    def _bound(self) -> Matrix:
        """Return L S_ii, (p, 1): a bound on the curvature of f in the units of each row of V."""
        variances = np.maximum(np.diagonal(self.S), _TINY)
        scale = np.sqrt(variances)
        largest = np.linalg.eigvalsh(self.S / scale[:, None] / scale)[-1]
        return max(float(largest), 1.0) * (1 + 1e-9) * variances[:, None]

    def _gradients(self, V: Matrix, ridge: Matrix) -> Matrix:
        bound = self._bound
        scaled, soft = self.S / bound, self.penalty / bound
        shrink = np.where(self.free, bound / (bound + ridge), 0)
        ahead, momentum = V, 1.0
        for _ in range(_MAX_GRADIENT_STEPS):
            target = ahead - scaled @ ahead + scaled
            after = np.copysign(np.maximum(np.abs(target) - soft, 0), target) * shrink
            change = after - V
            if float(np.vdot((ahead - after) * bound, change)) > 0:
                momentum = 1.0
            following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            V, ahead = after, after + (momentum - 1) / following * change
            momentum = following
            if float(np.max(np.abs(change))) <= _GRADIENT_TOLERANCE:
                break
        return V

    def _solve_on_support(
        self, current: Matrix, ridge: Matrix, columns: Columns
    ) -> tuple[Matrix, NDArray[np.bool_]]:
        """Step to the minimum over the nonzero entries, or to a change of sign before it.

        current: (p, m), these m columns of V
        Returns them after the step, and in which of them an entry left.
        """
        weights, support = ridge[:, columns], current != 0
        penalty = np.broadcast_to(self.penalty, self.S.shape)[:, columns]
        downhill = self.S[:, columns] - self.S @ current - weights * current
        slope = downhill - penalty * np.sign(current)

        # Row c of `chosen`: the support of column c, then others, for which `unit` is zero. `unit`
        # makes the diagonal 1: ridge weights range over 20 orders of magnitude.
        size = max(int(support.sum(axis=0).max()), 1)
        chosen = np.argsort(~support, axis=0, kind="stable")[:size].T
        curvature = np.maximum(np.diagonal(self.S)[:, None] + weights, _TINY)
        unit = np.take_along_axis(np.where(support, curvature**-0.5, 0).T, chosen, axis=1)
        gram = self.S[chosen[:, :, None], chosen[:, None, :]] * unit[:, :, None] * unit[:, None]
        # The added rounding of the eigenvalues makes it positive definite for collinear variables.
        gram[:, np.arange(size), np.arange(size)] = 1 + ROUNDING * size
        right = np.take_along_axis(slope.T, chosen, axis=1) * unit
        step = np.zeros_like(current.T)
        np.put_along_axis(
            step, chosen, np.linalg.solve(gram, right[:, :, None])[:, :, 0] * unit, axis=1
        )

        target = current + step.T
        crossing = support & (np.sign(target) != np.sign(current))
        # Take the full step, without the entries that would change sign, if that decreases the
        # objective. Otherwise go to the first change of sign, which always does.
        full_step = np.where(crossing, 0, target)
        moved = full_step - current
        gain = np.sum(
            moved * (downhill - 0.5 * (self.S @ moved + weights * moved))
            - penalty * (np.abs(full_step) - np.abs(current)),
            axis=0,
        )
        share = np.ones_like(current)
        np.divide(current, current - target, out=share, where=crossing)
        first = share.min(axis=0)
        partial_step = np.where(
            crossing & (share == first), 0, current + first * (target - current)
        )
        crossed = crossing.any(axis=0)
        return np.where(crossed & (gain <= 0), partial_step, full_step), crossed
