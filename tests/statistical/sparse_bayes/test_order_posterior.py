"""The posterior over orders and effects of graphs without cycles, against exact enumeration.

Three columns have six orders. Parameters are drawn from the prior, and the likelihood of two small
sites is averaged over these draws for each order: that is the evidence of the order. Only constants
and scales of the errors are integrated out, by the integral that has a test of its own.
"""

from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.methods.playing import play, rows_of

from secagg.contracts import COLLECTED_DRAWS, PublicFacts, Variable
from secagg.core.randomness import seeded_random
from secagg.models.numerics.gaussian_draws import inverse_gamma
from secagg.models.sparse_bayes.base import recorded_draws
from secagg.models.sparse_bayes.directed_graph import SparseDirected
from secagg.models.sparse_bayes.joint import direction_means
from secagg.models.sparse_bayes.joint import orders as module
from secagg.models.sparse_bayes.laplace_graph import entry_positions
from secagg.models.sparse_bayes.metropolis.alternatives import log_evidence
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw

Array = NDArray[np.float64]

P, SIZES, HALF = 3, (8, 8), 8.0
ORDERS = list(permutations(range(P)))


def records() -> list[Array]:
    rng, graph = np.random.default_rng(5), np.zeros((P, P))
    graph[1, 0], graph[2, 1] = 0.9, 0.7
    parts = [np.linalg.solve(np.eye(P) - graph, rng.laplace(size=(P, n))).T for n in SIZES]
    return [np.clip(part / HALF, -1, 1) for part in parts]


@dataclass(frozen=True)
class Found:
    """Probabilities of orders, then means of tanh of the effects, with standard errors."""

    values: Array
    errors: Array

    def away(self, other: "Found") -> Array:
        return (self.values - other.values) / np.sqrt(self.errors**2 + other.errors**2)


def enumerated(method: SparseDirected, many: int) -> Found:
    parts = [part - part.mean(axis=0) for part in records()]
    deviation = np.sqrt(sum((part**2).sum(axis=0) for part in parts) / sum(SIZES))
    data = [(part / deviation).T for part in parts]
    prior, rng = method.constants(sum(SIZES)), np.random.default_rng(0)
    wide = (many, P, P)
    eta = inverse_gamma(prior.a_e, np.full((many, 1, 1), prior.b_e), rng)
    g = rng.random(wide) < rng.beta(prior.a_r, prior.b_r, (many, 1, 1))
    theta = rng.standard_normal(wide) * np.sqrt(np.where(g, eta, prior.narrow(eta)))
    tau = prior.spread * np.abs(rng.standard_cauchy(wide))
    row: dict[tuple[int, tuple[int, ...]], Array] = {}
    sets = {(order[i], tuple(sorted(order[:i]))) for order in ORDERS for i in range(P)}
    for j, before in sets:
        row[j, before] = np.zeros(many)
    for Y in data:
        lam = np.abs(rng.standard_cauchy(wide))
        mine = theta + tau * lam * rng.standard_normal(wide)
        law = ErrorLaw(1, Y.shape[1], np.ones(many))
        for j, before in sets:
            errors = Y[j] - mine[:, j, list(before)] @ Y[list(before)]
            row[j, before] += log_evidence(
                errors[:, None], np.array([j]), method.noise, law, np.ones((many, 1))
            )[0][:, 0]  # fmt: skip
    logs = np.array([sum(row[o[i], tuple(sorted(o[:i]))] for i in range(P)) for o in ORDERS])
    weights = np.exp(logs - logs.max())
    rows, sources = entry_positions(P)
    present = np.array([[o.index(h) < o.index(j) for j, h in zip(rows, sources, strict=True)]
                        for o in ORDERS])  # fmt: skip
    effects = np.tanh(theta[:, rows, sources]).T
    tops = np.concatenate([weights, np.einsum("os,oe->es", weights, present) * effects])
    total = weights.sum(axis=0)
    values = tops.sum(axis=1) / total.sum()
    away = tops - values[:, None] * total
    return Found(values, np.sqrt((away**2).sum(axis=1)) / total.sum())


def sampled(method: SparseDirected) -> Found:
    variables = tuple(Variable(name, name, 0.0, 2 * HALF) for name in "abc")
    public = PublicFacts(variables, tuple("abc"), 20, ("s0", "s1"))
    randoms = [seeded_random(bytes([k, 9]) * 16) for k in range(2)]
    state = play(
        method, [rows_of(part) for part in records()], public, randoms, together=True
    ).state
    assert state[COLLECTED_DRAWS]
    theta = recorded_draws(state)["theta"][:, :, 0]
    rows, sources = entry_positions(P)
    before = [{(int(h), int(j)) for h, j in pairwise(o)} | {(o[0], o[2])}
              for o in ORDERS]  # fmt: skip
    share = []
    for arrows in before:
        at = np.array([(h, j) in arrows for j, h in zip(rows, sources, strict=True)])
        share.append(np.all((theta != 0) == at, axis=-1).mean(axis=0))
    each = np.concatenate([np.array(share), np.tanh(theta).mean(axis=0).T])
    return Found(each.mean(axis=1), each.std(axis=1, ddof=1) / np.sqrt(each.shape[1]))


METHOD = SparseDirected(
    cycles=False, chains=24, temperatures=2, rounds=1200, warmup=200, path_steps=2
)


def test_orders_and_effects_have_their_exact_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    exact, found = enumerated(METHOD, 600_000), sampled(METHOD)
    assert exact.values[: len(ORDERS)].sum() == pytest.approx(1.0)
    assert found.values[: len(ORDERS)].sum() == pytest.approx(1.0)
    assert np.all(exact.errors < 0.02) and np.all(found.errors < 0.03)
    # 12 quantities, two-sided, 23 degrees of freedom: |t| > 5 in one of 2000 runs by chance
    assert np.max(np.abs(found.away(exact))) < 5
    right = module._reversed

    def without_weight(*read: Any) -> tuple[Array, Array]:
        new, weight = right(*read)
        return new, np.zeros_like(weight)

    monkeypatch.setattr(module, "_reversed", without_weight)
    monkeypatch.setattr(direction_means, "_SHARE", 0.0)
    assert np.max(np.abs(sampled(METHOD).away(exact))) > 7
