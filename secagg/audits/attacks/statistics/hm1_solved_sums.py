"""Recover every site's coefficients from the sums of FedLin's HM1.

Yue, Al Kontar and Estrada Gomez (2022), section 3, in the sums of
`secagg.models.fedlin.site_covariance`. Equation (5) there contains the same rank-one matrices of
all sites twice, with different weights. So simultaneous diagonalisation (a generalised eigenvalue
problem, as in Jennrich's algorithm for tensors) separates the sites.

The attacker is the coordinator. It knows what it sent in each round, the sums over sites, the
method's settings and the number of sites. A coordinator that follows the protocol uses an honest
run (`query_sites`, `recover_coefficients`). A dishonest one replaces the sums by invented ones and
goes on with the method's own code: its messages are those of an honest run over other sites, so
sites cannot detect it. The sites' histories then differ more, and more sites can be separated.

What the result means. The attack finds each site's coefficients in every round and its least
squares. If a round's gradient steps stop before least squares, it also finds the site's X'X and
X'y. Sites come in any order. `separation` is the distance between the sites' eigenvalues: a larger
one makes the result more exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from secagg.contracts import PublicFacts, Update
from secagg.core.arrays import Array
from secagg.models.fedlin.base import FINISH, NOISE, ROUNDS
from secagg.models.fedlin.hm1 import FedLinHm1
from secagg.models.numerics.natural_gaussian import symmetric

Answered = tuple[Mapping[str, Any], Update]
"""A message, and the sum over sites that answers it."""
AskSites = Callable[[str, Mapping[str, Any]], Update]
"""Sends a message of a stage to all sites and returns the sum of their answers."""


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
    """Separate the sites with each two successive rounds, by (5) of `site_covariance`.

    There must be a round before the first of the two, and one after the second.
    """
    d, m = rounds[0][1]["S"].shape
    for t in range(1, len(rounds) - 2):
        U, c = rounds[t + 1][0]["U"], (1 - alpha) ** t
        first = U @ symmetric(rounds[t][1]["G"], m) @ U.T
        second = symmetric(rounds[t + 1][1]["G"], m)[: m - d, : m - d] / (1 - alpha)
        size, vectors = np.linalg.eigh(first)
        if size[-sites] <= 1e-15 * size[-1]:
            continue  # the histories are not yet linearly independent
        root = vectors[:, -sites:] / np.sqrt(size[-sites:])
        ratio, rotation = np.linalg.eigh(root.T @ second @ root)
        with np.errstate(all="ignore"):  # ratio may round to 1
            a = c * (1 - ratio * (1 - alpha)) / (ratio - 1)
        if np.all(np.isfinite(a) & (a > 0)):
            separation = float(np.min(np.diff(ratio)) * np.sqrt(size[-sites] / size[-1]))
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


def recover_coefficients(
    rounds: Sequence[Answered], final: Answered, alpha: float, sites: int
) -> Array:
    """Return the sites' final coefficients (K, d), in any order.

    Their sum in the final stage determines the signs and the best two rounds for the separation.
    """
    message, total = final
    signs = np.array(list(product([-1, 1], repeat=sites)))
    min_error, best = np.inf, np.empty(0)
    for separated in separations(rounds, alpha, sites):
        unsigned = after_shrinkage(separated, len(rounds) - 1, message["M"], alpha)
        errors = np.max(np.abs(signs @ unsigned - total["coefficients"]), axis=1)
        if np.min(errors) < min_error:
            min_error, best = np.min(errors), signs[np.argmin(errors)][:, None] * unsigned
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
