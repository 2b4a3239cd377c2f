"""The sampling error of a fitted model: replicates of its networks, from the result alone.

Besag (1975) and Godambe (1960): maximum pseudo-likelihood is an estimating equation. The parameters
theta_c of column c's network solve sum_i s_c(r_i; theta_c) = Lambda theta_c over the records r_i,
where s_c is the slope of the log likelihood of the column given its neighbours, and Lambda the
precision of the normal prior (`secagg.models.neural.ngm.penalty`). Their covariance is nearly

    V = H^-1 (J + Lambda) H^-1,     J = N Cov s(r),                                             (6)
    H_c = N E D_c' A_c D_c + Lambda

D_c: derivatives of the column's outputs by theta_c; A_c: Fisher information of the outputs. H has a
block for each column, because no two share a parameter; J also has what columns have in common.
Lambda in the middle stands for the bias of the prior: if the model is right, J is H - Lambda, and
V = H^-1 is the posterior covariance. Its intervals cover on average over the prior (Wahba, JRSS B
1983; Nychka, JASA 1988). Without Lambda they would be too short wherever the prior counts.

Expectations are over records drawn from the fitted model, not over the sites' records. So no sum
over sites is needed, and nothing is revealed (docs/adr/032-intervals-of-queries.md compares this
with other ways). V itself, as wide as all parameters together, is never formed. Replicate b is

    delta_b = H^-1 (sqrt(N / S) sum_s xi_bs (s(r_s) - mean s) + Lambda^1/2 eta_b)               (7)

with S drawn records r_s and standard normal xi and eta. Given the drawn records, (6) is exactly the
covariance of delta_b. Outputs of replicate b are linear in delta_b:

    o_c(z) + D_c(z) delta_bc + shift_bc(g)                                                      (8)

as if A_c were exact (Immer, Korzepa and Bauer, AISTATS 2021): networks at theta + delta_b would
differ far more, since hidden units that hardly matter have almost no curvature. If residuals are
counted (equation 4 of `residuals`), the model's mean in group g also has the mean residual m of the
N_g records there, with 10 prior records; the shift is its error, less what (8) has changed already:

    shift_bc(g) = N_g / (N_g + 10) (error of m - mean of D_c in group g times delta_bc)         (9)

What it assumes: the graph is given; records are independent; the model is right in so far as drawn
records have the records' inputs and residual variances. What it does not do: account for noise, or
for sites whose true dependences differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.column_networks import ColumnNetwork
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.model import FittedNgm, States
from secagg.models.neural.ngm.fitted.residuals import GROUPS, PRIOR_RECORDS, group_of

REPLICATES: Final = 200
MAX_PARAMETERS: Final = 2000
"""Of one column's network; (6) needs the square of this number."""
MIN_LEVEL_RECORDS: Final = 5
_CHUNK = 1024  # drawn records whose derivatives are in memory together
_NO_CURVATURE = 1e-12  # a smaller share of the largest curvature is rounding


@dataclass(frozen=True, eq=False)
class ReplicatedNetwork(ColumnNetwork):
    """Equation (8) for all replicates at once.

    delta: shape (replicates, parameters); shifts: shape (replicates, groups), or no row
    """

    delta: Array
    shifts: Array

    def __call__(self, z: Array) -> Array:
        """Return the outputs, shape (variables of the column, states).

        z: shape (variables, states); replicate b has the b-th of equally many states in a row
        """
        outputs, slopes = super().__call__(z), self.derivatives(z)
        apart = (len(outputs), len(self.delta), -1)
        slopes = slopes.reshape(*apart, slopes.shape[2])
        moved = np.einsum("vbsp,bp->vbs", slopes, self.delta)
        if len(self.shifts):
            each = np.arange(len(self.delta))[:, None]
            moved[0] += self.shifts[each, group_of(outputs[0]).reshape(apart[1:])]
        return np.asarray(outputs + moved.reshape(len(outputs), -1))


@dataclass(frozen=True, eq=False)
class Replicates:
    """Replicates of all networks.

    log_sd: the deviations of log sd, shape (continuous columns, replicates)
    rare: the columns with a level that fewer than `MIN_LEVEL_RECORDS` of the N records have by the
        model. Its logit has almost no curvature, and (6) would not be its error
    """

    model: FittedNgm
    networks: tuple[ReplicatedNetwork, ...]
    log_sd: Array
    rare: frozenset[int] = frozenset()

    def of_states(self, states: int) -> FittedNgm:
        """Return a model of which every replicate has so many states, one after the other."""
        sd = np.repeat(self.model.sd[:, None] * np.exp(self.log_sd), states, axis=1)
        return replace(self.model, networks=self.networks, sd=sd)


def replicates_of(
    model: FittedNgm,
    drawn: States,
    records: float,
    hidden: float,
    linear: float,
    rng: np.random.Generator,
) -> Replicates:
    """Return the model itself and, after it, `REPLICATES` replicates.

    drawn: records from the model; records: N; hidden, linear: the precisions in Lambda
    """
    S = drawn.z.shape[1]
    xi = _draws(S, rng) * np.sqrt(records / S)
    networks, log_sd, rare = [], np.zeros((len(model.sd), len(xi))), set[int]()
    for number, network in enumerate(model.networks):
        column = _Column(Conditional(model, number), network, drawn)
        precision = network.precisions(hidden, linear)
        eta = _draws(len(precision), rng) * np.sqrt(precision)
        H, slopes = column.curvature(), column.slopes(xi)
        delta = (slopes + eta) @ _inverse(H * records / S + np.diag(precision))
        shifts = np.zeros((0, GROUPS))
        if column.of.levels:
            if records * column.least_share() < MIN_LEVEL_RECORDS:
                rare.add(number)
        else:
            i = model.number_among_continuous[number]
            log_sd[i] = column.log_sd(xi) / records
            if model.residuals is not None:
                shifts = column.shifts(xi, delta, records / S)
        networks.append(ReplicatedNetwork(**vars(network), delta=delta, shifts=shifts))
    return Replicates(model, tuple(networks), log_sd, frozenset(rare))


@dataclass(frozen=True, eq=False)
class _Column:
    """One column of the drawn records."""

    of: Conditional
    network: ColumnNetwork
    drawn: States

    def curvature(self) -> Array:
        """Return the sum of D' A D over the drawn records, shape (parameters, parameters)."""
        H = np.zeros((self.network.parameters, self.network.parameters))
        variance = None if self.of.levels else self._variance
        for start in range(0, self.drawn.z.shape[1], _CHUNK):
            H += self.network.curvature(self.drawn.z[:, start : start + _CHUNK], variance)
        return H

    def slopes(self, xi: Array) -> Array:
        """Return the sum of xi times the centred slopes s, shape (replicates, parameters)."""
        total, mean = np.zeros((len(xi), self.network.parameters)), 0.0
        for z, outputs, at in self._chunks():
            residual = self._residuals(outputs, at)
            s = np.einsum("vs,vsp->sp", residual, self.network.derivatives(z))
            total += xi[:, at] @ s
            mean = mean + s.sum(axis=0) / xi.shape[1]
        return np.asarray(total - np.outer(xi.sum(axis=1), mean))

    def least_share(self) -> float:
        """Return the smallest mean probability of a level over the drawn records."""
        total = np.zeros(self.of.levels)
        for _, outputs, _ in self._chunks():
            total += np.exp(self.of.log_probabilities(outputs)).sum(axis=1)
        return float(total.min() / self.drawn.z.shape[1])

    def log_sd(self, xi: Array) -> Array:
        """Return N times the deviations of log sd, from its own equation; shape (replicates,).

        Its curvature is 2 N, and it has none in common with the outputs if residuals have mean 0.
        """
        squares = np.concatenate(
            [self._residuals(outputs, at)[0] ** 2 for _, outputs, at in self._chunks()]
        )
        squares *= self._variance
        return np.asarray(xi @ (squares - squares.mean())) / 2

    def shifts(self, xi: Array, delta: Array, ratio: float) -> Array:
        """Return (9), shape (replicates, groups). ratio: N / S"""
        n, D = np.zeros(GROUPS), np.zeros((GROUPS, self.network.parameters))
        e, weighted, weights = (
            np.zeros(GROUPS),
            np.zeros((GROUPS, len(xi))),
            np.zeros((GROUPS, len(xi))),
        )
        for z, outputs, at in self._chunks():
            member = np.equal.outer(np.arange(GROUPS), group_of(outputs[0])).astype(np.float64)
            residual = self._residuals(outputs, at)[0] * self._variance
            n += member.sum(axis=1)
            D += member @ self.network.derivatives(z)[0]
            e += member @ residual
            weighted += (member * residual) @ xi[:, at].T
            weights += member @ xi[:, at].T
        safe = np.maximum(n, 1)[:, None]
        error = (weighted - (e[:, None] / safe) * weights) / (safe * ratio)
        shrunk = n * ratio / (n * ratio + PRIOR_RECORDS)
        return np.asarray(shrunk[:, None] * (error - (D / safe) @ delta.T)).T

    @property
    def _variance(self) -> float:
        return float(self.of.sd) ** 2

    def _residuals(self, outputs: Array, at: slice) -> Array:
        """Return the slopes of the log likelihood by the outputs, shape (variables, records)."""
        if self.of.levels:
            levels = np.arange(1, self.of.levels)[:, None]
            on = self.drawn.level[self.of.number, at] == levels
            return np.asarray(on - np.exp(self.of.log_probabilities(outputs))[1:])
        return np.asarray((self.drawn.z[self.of.variable, at] - outputs) / self._variance)

    def _chunks(self) -> Iterator[tuple[Array, Array, slice]]:
        """Yield z, outputs and positions of some of the drawn records."""
        for start in range(0, self.drawn.z.shape[1], _CHUNK):
            at = slice(start, start + _CHUNK)
            z = self.drawn.z[:, at]
            yield z, self.network(z), at


def _draws(n: int, rng: np.random.Generator) -> Array:
    """Return standard normal numbers, and zeros for the model itself, shape (1 + replicates, n)."""
    return np.vstack([np.zeros(n), rng.standard_normal((REPLICATES, n))])


def _inverse(H: Array) -> Array:
    """Return the inverse of a curvature, without directions that change no output."""
    values, vectors = np.linalg.eigh(H)
    kept = values > _NO_CURVATURE * max(values[-1], 0.0)
    inverse = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)
    return np.asarray((vectors * inverse) @ vectors.T)
