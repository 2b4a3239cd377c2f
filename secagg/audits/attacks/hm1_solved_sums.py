"""Recover every site's coefficients from the sums of FedLin's HM1.

Yue, Al Kontar and Estrada Gomez (2022), section 3, as `secagg.models.fedlin.site_covariance` sums
it. Its equation (5) holds the same rank-one matrices of all sites twice, with other weights. So
simultaneous diagonalisation (a generalised eigenvalue problem, as in Jennrich's algorithm for
tensors) separates the sites.

The attacker is the coordinator. It knows what it sent in each round, the sums over sites, the
method's settings and the number of sites. A coordinator that follows the protocol uses an honest
run (`query_sites`, `recover_coefficients`). A dishonest one replaces the sums by invented ones and
goes on with the method's own code: its messages are those of an honest run over other sites, so
sites cannot detect it. The sites' histories then differ more, and more sites can be separated.

What the result means. The attack finds each site's coefficients in every round, its least squares,
and, as far as a round's gradient steps stop short of least squares, its X'X and X'y. Sites come in
any order. `separation` says how far apart the sites' eigenvalues are: the larger, the more exact.
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

    separation: how far apart the closest two eigenvalues are, relative to rounding
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

    invented_size: 0 for a coordinator that follows the protocol. Otherwise it invents the sums that
        the method goes on with: M has entries of about this size, and the noise is as large as the
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
    """Separate the sites by any two successive rounds: (5) of `site_covariance`.

    The first of the two has a round before it, and the second one a round after it.
    """
    d, m = rounds[0][1]["S"].shape
    for t in range(1, len(rounds) - 2):
        U, c = rounds[t + 1][0]["U"], (1 - alpha) ** t
        one = U @ symmetric(rounds[t][1]["G"], m) @ U.T
        other = symmetric(rounds[t + 1][1]["G"], m)[: m - d, : m - d] / (1 - alpha)
        size, vectors = np.linalg.eigh(one)
        if size[-sites] <= 1e-15 * size[-1]:
            continue  # histories are not yet independent
        root = vectors[:, -sites:] / np.sqrt(size[-sites:])
        ratio, turned = np.linalg.eigh(root.T @ other @ root)
        with np.errstate(all="ignore"):  # where rounding leaves nothing
            a = c * (1 - ratio * (1 - alpha)) / (ratio - 1)
        if np.all(np.isfinite(a) & (a > 0)):
            separation = float(np.min(np.diff(ratio)) * np.sqrt(size[-sites] / size[-1]))
            histories = _histories(rounds, alpha, t, root @ turned, a)
            yield SeparatedSites(t + 1, separation, a, *histories)


def _histories(
    rounds: Sequence[Answered], alpha: float, t: int, X: Array, a: Array
) -> tuple[Array, Array]:
    """Return theta and v from round t + 1 on; X (m - d, K) is orthogonal to all sites but one."""
    d, m = rounds[0][1]["S"].shape
    X, mine = np.vstack([X, np.zeros((d, len(a)))]), np.sqrt((1 - alpha) * ((1 - alpha) ** t + a))
    theta, v = [], []
    for s in range(t + 1, len(rounds)):
        message, sums = rounds[s]
        if s > t + 1:
            X = np.vstack([message["U"] @ X / np.sqrt(1 - alpha), np.zeros((d, len(a)))])
        weight = ((1 - alpha) ** s + a) / mine  # b_k / x_k'v_k
        theta.append((sums["S"] @ X * weight).T)
        v.append((symmetric(sums["G"], m) @ X * weight).T)
    return np.array(theta), np.array(v)


def after_shrinkage(found: SeparatedSites, s: int, M: Array, alpha: float) -> Array:
    """Return the sites' coefficients (K, d) after the shrinkage that followed round s."""
    theta, v = found.theta[s - found.first], found.v[s - found.first]
    r = (found.a / ((1 - alpha) ** s + found.a))[:, None]
    moved: Array = theta - r * (theta - v @ M.T)
    return moved


def recover_coefficients(
    rounds: Sequence[Answered], final: Answered, alpha: float, sites: int
) -> Array:
    """Return the sites' final coefficients (K, d), in any order.

    Their sum in the final stage determines the signs and the best two rounds to separate by.
    """
    message, ended = final
    signs = np.array(list(product([-1, 1], repeat=sites)))
    smallest, best = np.inf, np.empty(0)
    for found in separations(rounds, alpha, sites):
        each = after_shrinkage(found, len(rounds) - 1, message["M"], alpha)
        away = np.max(np.abs(signs @ each - ended["coefficients"]), axis=1)
        if np.min(away) < smallest:
            smallest, best = np.min(away), signs[np.argmin(away)][:, None] * each
    return best


def recover_least_squares(
    found: SeparatedSites, rounds: Sequence[Answered], alpha: float
) -> tuple[Array, Array]:
    """Return each site's least squares (K, d), up to its sign, and P (K, d, d).

    A round's gradient steps take u to P u + (I - P) least: a linear regression over the rounds.
    With one step a round, I - P is X'X over its largest eigenvalue.
    """
    K, d = found.theta.shape[1:]
    least, steps = np.empty((K, d)), np.empty((K, d, d))
    last = found.first + len(found.theta) - 1
    before = [
        after_shrinkage(found, s, rounds[s + 1][0]["M"], alpha) for s in range(found.first, last)
    ]
    for k in range(K):
        u = np.array([each[k] for each in before])
        size = np.median(np.abs(u))
        design = np.column_stack([u, np.full(len(u), size)])
        weight = 1 / np.linalg.norm(design, axis=1)[:, None]
        solved = np.linalg.lstsq(design * weight, found.theta[1:, k] * weight, rcond=None)[0]
        steps[k] = (solved[:d].T + solved[:d]) / 2
        least[k] = np.linalg.solve(np.eye(d) - steps[k], size * solved[d])
    return least, steps
