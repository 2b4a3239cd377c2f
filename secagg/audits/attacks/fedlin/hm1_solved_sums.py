"""Recover every site's coefficients from the sums of FedLin's HM1.

Yue, Al Kontar and Estrada Gomez (2022), section 3, in the sums of
`secagg.models.fedlin.site_covariance`. Equation (5) there contains the same rank-one matrices of
all sites twice, with different weights. So simultaneous diagonalisation (a generalised eigenvalue
problem, as in Jennrich's algorithm for tensors) separates the sites.

The attacker is the coordinator. It knows what it sent in each round, the sums over sites, the
method's settings and the number of sites. A coordinator that follows the protocol uses an honest
run (`recover_coefficients`). A dishonest one (`query_sites`) replaces the sums by invented ones and
goes on with the method's own code: its messages are those of an honest run over other sites, so
sites cannot detect it. The sites' histories then differ more, and more sites can be separated.

(5) has the sums of a round and of the next one. Here it is any two rounds: the history of a later
round contains that of an earlier one, and the weights differ more. The sum of coefficients in the
last stage chooses the two rounds, and the signs.

What the result means. The attack finds each site's coefficients in every round and its least
squares. If a round's gradient steps stop before least squares, it also finds the site's X'X and
X'y. Sites come in any order. `separation` is the distance between the sites' eigenvalues: a larger
one makes the result more exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from secagg.audits.views import AskSites
from secagg.contracts import PublicFacts, Update
from secagg.core.arrays import Array
from secagg.models.fedlin.base import FINISH, NOISE, ROUNDS
from secagg.models.fedlin.hm1 import FedLinHm1
from secagg.models.numerics.natural_gaussian import symmetric

Answered = tuple[Mapping[str, Any], Update]
"""A message, and the sum over sites that answers it."""
LAGS = frozenset({1, 2, 4, 8, 16})
"""Rounds from the first to the second of two that are compared; others add little."""
_UNMOVED = 1e-12  # eigenvalues below it are rounding, of directions without records


@dataclass(frozen=True)
class SeparatedSites:
    """HM1's sites from round `first` on, in any order, each up to its sign.

    separation: smallest distance between two eigenvalues, relative to rounding
    a (K,); theta (rounds, K, d), as sent; v (rounds, K, m)
    """

    first: int
    separation: float
    a: Array
    theta: Array
    v: Array


def query_sites(
    method: FedLinHm1, public: PublicFacts, ask: AskSites, sites: int, invented_size: float = 0.0
) -> tuple[list[Answered], Answered]:
    """Run HM1 as its coordinator, and return the rounds and the final stage.

    invented_size: 0 for a coordinator that follows the protocol. Otherwise the coordinator gives
        the method invented sums: M has entries of about this size, and the noise is as large as the
        outcome's standard deviation.
    """
    rng = np.random.default_rng(0)
    state, rounds = method.initial_state(public), list[Answered]()
    while (request := method.next_request(state)) is not None:
        stage, message = request
        summed = used = ask(stage, message)
        if stage == FINISH:
            return rounds, (message, summed)
        if stage == NOISE and invented_size:
            used = {**summed, "residual": summed["freedom"] / state["scale"][0] ** 2}
        if stage == ROUNDS:
            rounds.append((message, summed))
            d, m = summed["S"].shape
            if invented_size:
                G = symmetric(summed["G"], m)
                invented = invented_size * rng.standard_normal((d, m)) @ (G + np.eye(m))
                used = {**summed, "S": invented}
        state = method.aggregate(state, used, sites)
    raise AssertionError("the method ended without its final stage")


def separations(rounds: Sequence[Answered], alpha: float, sites: int) -> Iterator[SeparatedSites]:
    """Separate the sites with each two rounds, by (5) of `site_covariance`.

    There must be a round before the first of the two, and one after the second.
    """
    d, m = rounds[0][1]["S"].shape
    for t in range(1, len(rounds) - 2):
        U, c = rounds[t + 1][0]["U"], (1 - alpha) ** t
        first = U @ symmetric(rounds[t][1]["G"], m) @ U.T
        size, vectors = np.linalg.eigh(first)
        if size[-sites] <= 1e-15 * size[-1]:
            continue  # the histories are not yet linearly independent
        root = vectors[:, -sites:] / np.sqrt(size[-sites:])
        back = np.eye(m - d) / np.sqrt(1 - alpha)  # from a later history to U v of round t
        for s in range(t + 1, len(rounds) - 1):
            if s > t + 1:
                back = back @ rounds[s][0]["U"].T[: m - d] / np.sqrt(1 - alpha)
            if s - t not in LAGS:
                continue
            second = back @ symmetric(rounds[s][1]["G"], m)[: m - d, : m - d] @ back.T
            ratio, rotation = np.linalg.eigh(root.T @ second @ root)
            with np.errstate(all="ignore"):  # ratio may round to 1
                a = (c - ratio * (1 - alpha) ** s) / (ratio - 1)
            if np.all(np.isfinite(a) & (a > 0)):
                gap = np.min(np.diff(ratio) / ratio[1:], initial=1.0)
                separation = float(gap * np.sqrt(size[-sites] / size[-1]))
                histories = _histories(rounds, alpha, t, root @ rotation, a)
                yield SeparatedSites(t + 1, separation, a, *histories)


def _histories(
    rounds: Sequence[Answered], alpha: float, t: int, X: Array, a: Array
) -> tuple[Array, Array]:
    """Return theta and v from round t + 1 on; X (m - d, K) is orthogonal to all sites but one."""
    d, m = rounds[0][1]["S"].shape
    X, scale = np.vstack([X, np.zeros((d, len(a)))]), np.sqrt((1 - alpha) * ((1 - alpha) ** t + a))
    theta, v = [], []
    for s in range(t + 1, len(rounds)):
        message, sums = rounds[s]
        if s > t + 1:
            X = np.vstack([message["U"] @ X / np.sqrt(1 - alpha), np.zeros((d, len(a)))])
        weight = ((1 - alpha) ** s + a) / scale  # b_k / x_k'v_k
        theta.append((sums["S"] @ X * weight).T)
        v.append((symmetric(sums["G"], m) @ X * weight).T)
    return np.array(theta), np.array(v)


def after_shrinkage(separated: SeparatedSites, s: int, M: Array, alpha: float) -> Array:
    """Return the sites' coefficients (K, d) after the shrinkage that followed round s."""
    theta, v = separated.theta[s - separated.first], separated.v[s - separated.first]
    r = (separated.a / ((1 - alpha) ** s + separated.a))[:, None]
    shrunk: Array = theta - r * (theta - v @ M.T)
    return shrunk


class Recovered(NamedTuple):
    """The sites in any order: how they were separated, their signs, and final coefficients (K, d).

    misfit: difference between the sum of these coefficients and that of the last stage, relative to
        the sum of sizes. The best separation has the smallest
    """

    separated: SeparatedSites
    signs: Array
    theta: Array
    misfit: float


def recover_coefficients(
    rounds: Sequence[Answered], final: Answered, alpha: float, sites: int, at_least: int = 1
) -> Recovered | None:
    """Return the sites' final coefficients; None if no two rounds separate the sites.

    at_least: number of rounds after the first of the two
    """
    message, total = final
    signs = np.array(list(product([-1, 1], repeat=sites)))
    best = None
    for separated in separations(rounds, alpha, sites):
        if len(separated.theta) < at_least:
            continue
        unsigned = after_shrinkage(separated, len(rounds) - 1, message["M"], alpha)
        off = np.max(np.abs(signs @ unsigned - total["coefficients"]), axis=1)
        nearest = int(np.argmin(off))
        misfit = float(off[nearest] / np.max(np.sum(np.abs(unsigned), axis=0)))
        if best is None or misfit < best.misfit:
            own = signs[nearest][:, None]
            best = Recovered(separated, own, own * unsigned, misfit)
    return best


def recover_least_squares(
    separated: SeparatedSites, rounds: Sequence[Answered], alpha: float
) -> tuple[Array, Array]:
    """Return each site's least squares (K, d), up to its sign, and P (K, d, d).

    A round's gradient steps map u to P u + (I - P) b, b the least squares. A linear regression over
    the rounds estimates both. With one step a round, I - P is X'X over its largest eigenvalue.
    """
    K, d = separated.theta.shape[1:]
    estimates, steps = np.empty((K, d)), np.empty((K, d, d))
    first, last = separated.first, separated.first + len(separated.theta) - 1
    before = [
        after_shrinkage(separated, s, rounds[s + 1][0]["M"], alpha) for s in range(first, last)
    ]
    for k in range(K):
        u = np.array([each[k] for each in before])
        size = np.median(np.abs(u))
        design = np.column_stack([u, np.full(len(u), size)])
        weight = 1 / np.linalg.norm(design, axis=1)[:, None]
        solved = np.linalg.lstsq(design * weight, separated.theta[1:, k] * weight, rcond=None)[0]
        steps[k] = (solved[:d].T + solved[:d]) / 2
        estimates[k] = np.linalg.solve(np.eye(d) - steps[k], size * solved[d])
    return estimates, steps


def cross_products(P: Array, a: float, noise: float, method: FedLinHm1) -> Array:
    """Return X'X of a site with a round's steps P and the prior's weight a; noise: its variance.

    P = (I - 2 eta X'X)^T with eta = step / w, w the largest eigenvalue. So the T-th root of P is
    X'X / w, if 1 - 2 step is not negative or T is odd. a is the noise variance times the mean over
    eigenvalues of (1 - p_i) / w_i, or with `weight = "steps"` times 2 eta T. This gives w.
    """
    T, step = method.steps, method.step
    p, V = np.linalg.eigh(P)
    share = (1 - np.sign(p) * np.abs(p) ** (1 / T)) / (2 * step)
    share[0] = 1.0  # known, and lost in the rounding of p
    path = np.full(len(p), 2.0 * step * T)
    if method.weight == "posterior":
        path = np.divide(1 - p, share, out=path, where=share > _UNMOVED)
    w = noise * float(np.mean(path)) / a
    return np.asarray(w * (V * share) @ V.T)
