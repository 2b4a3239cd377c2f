"""Gradients of a network's loss over records, as a coordinator sees them, with their parameters.

`torch_module` with "fedsgd": a contribution is the gradient at parameters that the coordinator
sent, summed over records and divided by `max_rows`; the weight says how many records.

`notears_mlp_admm`: a contribution is V = -grad l(B) with B a local optimum, where (Ng and Zhang
(2022), problem (4), in the notation of `secagg.models.notears_admm.mlp_site`)

    B = W + (V - beta) / rho2,    beta = V' + rho2' (W' - W),

with V', rho2' and W' of the round before, and beta = 0 in the first one.

The site's search for B ends where the gradient of (4) is 1e-5 or less, so B has an error of up to
1e-5 / rho2. For a sum over K sites, B is the mean of the sites' optima if rho2 is replaced by
K rho2; they differ by about 1 / rho2. So the last rounds, with the largest rho2, are solved. With
solver "gradient" a contribution is the gradient itself, at the networks that were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.special import expit

from secagg.audits.views import View
from secagg.core.arrays import Array
from secagg.models.graphs.mlp import Networks
from secagg.models.neural.record_gradients import record_gradients
from secagg.models.neural.rounds import TRAIN
from secagg.models.neural.torch_module import TorchModule
from secagg.models.notears_admm.mlp import NotearsMlpAdmm
from secagg.models.notears_admm.mlp_private import GRADIENT
from secagg.models.notears_admm.range import CONSENSUS

_T = TypeVar("_T")
_SPREAD = 0.3  # of values between -1 and 1
_ROUNDS = 4  # that are solved: each has a number for each parameter


class Gradients(NamedTuple):
    """Sums over records of gradients at several parameters.

    observed: shape (rounds * parameters,)
    of_each: from records (n, columns) to the gradients of each, (n, rounds * parameters)
    records: their number, as in the view: NaN or no count if that holds masked numbers
    columns: positions among the job's variables of the columns that the gradients depend on
    centre, scale: of_each reads (u - centre) scale, with u the stored values
    spread: a guess at the columns' standard deviations in these units
    """

    observed: Array
    of_each: Callable[[Array], Array]
    records: float
    columns: tuple[int, ...]
    centre: Array
    scale: Array
    spread: Array


def seen_gradients(view: View) -> Gradients | None:
    """Return the gradients in the opened sums; None if it is no run with gradients of networks."""
    method = view.planned.method
    if isinstance(method, NotearsMlpAdmm):
        return _consensus(view, method)
    if isinstance(method, TorchModule) and method.algorithm == "fedsgd":
        return _fedsgd(view, method)
    return None


def _fedsgd(view: View, method: TorchModule) -> Gradients | None:
    public = view.planned.public
    learner = method.learner(public)
    rounds = _some([seen for seen in view.rounds if seen.stage == TRAIN])
    if public.clip is not None or learner.loss == "cross_entropy" or not rounds:
        return None  # clipped gradients, and levels, are not smooth functions of the records
    columns = (*learner.predictors, *learner.outcome)
    thetas = [seen.message["theta"] for seen in rounds]

    def of_each(X: Array) -> Array:
        values = np.zeros((len(X), len(public.variables)))
        values[:, columns] = X
        of_rounds = [np.vstack(list(record_gradients(learner, each, values))) for each in thetas]
        return np.hstack(of_rounds)

    observed = np.concatenate([seen.total["change"] for seen in rounds]) * public.max_rows
    records = float(rounds[0].total["weight"][0]) * public.max_rows
    one = np.ones(len(columns))
    return Gradients(observed, of_each, records, columns, 0 * one, one, _SPREAD * one)


def _consensus(view: View, method: NotearsMlpAdmm) -> Gradients:
    networks = method.networks(view.planned.public)
    chosen = tuple(int(i) for i in method.chosen(view.planned.public))
    stage = GRADIENT if method.pooled else CONSENSUS
    rounds = [seen for seen in view.rounds if seen.stage == stage]
    message, K = rounds[0].message, len(view.sites)
    n, centre, scale = message["records"], message["centre"], message["scale"]
    units, found = method.units(networks, scale), list[tuple[Array, Array]]()
    rho2, before = 0.0, None
    for seen in rounds:
        if method.pooled:
            found.append((seen.message["W"], -seen.total["slopes"] * units))
            continue
        rho2, W = method.schedule.next_rho2(rho2), seen.message["W"]
        V = seen.total["slopes"] * units
        beta = np.zeros_like(V)
        if before is not None:
            beta = before[1] + K * before[2] * (before[0] - W)
        found.append((W + (V - beta) / (K * rho2), V))
        before = W, V, rho2
    late = _some(found) if method.pooled else found[-_ROUNDS:]

    def of_each(X: Array) -> Array:
        return np.hstack([slopes_of_each(networks, X, B) for B, _ in late])

    observed = n * np.concatenate([V for _, V in late])
    records = float(view.rounds[0].total["records"][0])
    standardised = bool(np.any(centre != 0))
    spread = np.ones(len(chosen)) if standardised else _SPREAD * scale
    return Gradients(observed, of_each, records, chosen, centre, scale, spread)


def slopes_of_each(networks: Networks, X: Array, theta: Array) -> Array:
    """Return the negative gradient of each record's |x - f(x)|^2 / 2, shape (records, parameters).

    The sum is that of `squared_loss`. A search for records needs each, many thousand times.
    """
    d, m = networks.d, networks.m
    A, b, C, c = networks.split(theta)
    layer = np.zeros((d, d, m))
    networks.free_entries(layer)[:] = A
    free = networks.free_entries(np.arange(d * d * m, dtype=np.float64).reshape(d, d, m))
    s = expit(X @ layer.reshape(d, -1) + b.ravel()).reshape(-1, d, m)
    residual = X - c - np.sum(s * C, axis=2)
    by_output = residual[:, :, None] * s
    by_input = by_output * (1 - s) * C
    by_weight = (X[:, :, None, None] * by_input[:, None]).reshape(len(X), -1)[
        :, free.ravel().astype(int)
    ]
    flat = [each.reshape(len(X), -1) for each in (by_input, by_output)]
    return np.hstack([by_weight, *flat, residual])


def _some(rounds: Sequence[_T]) -> list[_T]:
    """Return a few rounds that are far apart."""
    chosen = np.linspace(0, len(rounds) - 1, _ROUNDS).astype(int) if rounds else np.zeros(0, int)
    return [rounds[i] for i in sorted(set(chosen.tolist()))]
