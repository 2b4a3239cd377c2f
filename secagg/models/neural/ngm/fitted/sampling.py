"""Pseudo-Gibbs sampling from a fitted neural graphical model.

The networks form a dependency network: Heckerman, Chickering, Meek, Rounthwaite and Kadie,
"Dependency networks for inference, collaborative filtering, and data visualization" (Journal of
Machine Learning Research 1, 2000). Its joint distribution is defined as the one that the ordered
pseudo-Gibbs sampler converges to: each column in turn is drawn given its neighbours. If the
conditional distributions belong to one joint distribution, this is that distribution. Otherwise it
depends slightly on the order of columns, which is the order of the job.

All chains advance together, as arrays. They start from the pooled means and level shares, with all
columns independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.model import FittedNgm, States

_PILOT_CHAINS = 2000
_PILOT_SWEEPS = 120
_GAIN_STEPS = 20


@dataclass(frozen=True)
class Effort:
    """How many chains are run for each record, and how many sweeps of each: first without use."""

    chains: int = 100
    warm_up: int = 100
    sweeps: int = 200


def start(
    conditionals: Sequence[Conditional],
    states: States,
    rng: np.random.Generator,
    free: Mapping[int, NDArray[np.bool_]] | None = None,
) -> None:
    """Draw these columns independently of all others, from the pooled means and level shares."""
    for conditional in conditionals:
        model, number, n = conditional.model, conditional.number, states.z.shape[1]
        where = None if free is None else free[number]
        if conditional.levels:
            level = rng.choice(conditional.levels, (n,), p=model.marginals[number])
            conditional.set_level(states, level, where)
        else:
            conditional.set_value(states, rng.standard_normal((n,)), where)


def sweep(
    conditionals: Sequence[Conditional],
    states: States,
    rng: np.random.Generator,
    free: Mapping[int, NDArray[np.bool_]] | None = None,
    shifted: Mapping[int, Array] | None = None,
) -> dict[int, Array]:
    """Draw each of these columns in turn, given all others.

    free: for each column, in which states it is unknown; None: in all
    shifted: of columns with levels; see `shifts`
    Return the outputs of each column's network when the column was drawn.
    """
    return {
        c.number: c.draw(
            states, rng, None if free is None else free[c.number], (shifted or {}).get(c.number)
        )
        for c in conditionals
    }


def shifts(conditionals: Sequence[Conditional], rng: np.random.Generator) -> dict[int, Array]:
    """Return shifts of outputs with which samples have the pooled shares of levels.

    If conditional distributions contradict each other slightly, the shares in samples differ from
    those in the records, above all for a column that another one determines (a level "premature"
    and the weeks of gestation). The pooled shares are known exactly, so the intercepts are adjusted
    to them by stochastic approximation (Robbins and Monro, Annals of Mathematical Statistics 1951),
    averaged over the second half of the steps (Polyak and Juditsky, SIAM J. Control Optim. 1992).
    They are used only if no column is given.
    """
    model = conditionals[0].model
    states = model.states_of(np.full((_PILOT_CHAINS, model.layout.d), np.nan))
    start(conditionals, states, rng)
    levels = {
        c.number: c.levels for c in conditionals if c.levels and c.number in model.known_shares
    }
    now = {number: np.zeros(size - 1) for number, size in levels.items()}
    found = {number: np.zeros(size - 1) for number, size in levels.items()}
    for step in range(_PILOT_SWEEPS):
        sweep(conditionals, states, rng, shifted=now)
        for number, size in levels.items():
            counts = np.bincount(states.level[number], minlength=size)
            ratio = (model.marginals[number] * _PILOT_CHAINS + 1) / (counts + 1)
            now[number] += np.log(ratio[1:] / ratio[0]) / (1 + step / _GAIN_STEPS)
            if 2 * step >= _PILOT_SWEEPS:
                found[number] += now[number] * 2 / _PILOT_SWEEPS
    return found


def unknown_for(
    model: FittedNgm, given: NDArray[np.bool_], targets: Sequence[int]
) -> NDArray[np.intp]:
    """Return the columns that must be drawn for these targets, with the targets, in order.

    These are the columns that a path of columns that are not given connects with a target. All
    others are separated from the targets by the given columns, and cannot change them.
    """
    reached = np.zeros(model.layout.d, dtype=np.bool_)
    reached[list(targets)] = True
    while True:
        more = reached | (model.graph[reached].any(axis=0) & ~given)
        if np.array_equal(more, reached):
            return np.flatnonzero(reached)
        reached = more
