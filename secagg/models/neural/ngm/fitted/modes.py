"""The most probable values of columns given others, and how probable records are.

**Joint mode** (MAP). Chains start at random, cool down (each column is drawn from its conditional
distribution to the power 1 / temperature), and then set each column to its conditional mode until
none changes (iterated conditional modes; Besag, "On the statistical analysis of dirty pictures",
JRSS B 1986). Their ends x are compared by Brook's lemma (Besag, "Spatial interaction and the
statistical analysis of lattice systems", JRSS B 1974), with a common reference y:

    log p(x) / p(y) = sum_i log p(x_i | x_1..i-1, y_i+1..d) - log p(y_i | x_1..i-1, y_i+1..d)    (5)

which is exact if the conditional distributions belong to one joint distribution; else it depends
on the order, and the mean of both directions is used.

**Mode of each column**: the level of largest probability, or the largest value of the conditional
density, averaged over draws of the neighbours.

Continuous columns have the normal residuals of the loss here, also if residuals were counted: the
fullest bin of a histogram is a matter of chance. The mode is that in the unit of the analysis (of
the logarithm, if the job takes it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.model import States
from secagg.models.neural.ngm.fitted.queries import Answer
from secagg.models.neural.ngm.fitted.sampling import start

_COOLING = np.geomspace(1.0, 0.05, 40)
_MAX_ASCENT = 1000
_TOLERANCE = 1e-10  # in pooled standard deviations
_GRID = 501
_MAX_DRAWS = 4000


@dataclass(frozen=True, eq=False)
class Mode:
    """The most probable values of all columns, given some.

    values: shape (columns,), as `FittedNgm.values_of`
    reached: the share of restarts that ended there
    """

    values: Array
    reached: float


def joint_mode(
    conditionals: Sequence[Conditional], given: Array, restarts: int, rng: np.random.Generator
) -> Mode:
    """Return the joint mode of all columns that are not given (NaN)."""
    conditionals = _normal(conditionals)
    model = conditionals[0].model
    free = [c for c in conditionals if np.isnan(given[c.number])]
    states = model.states_of(np.repeat(given[None], restarts, axis=0))
    start(free, states, rng)
    for temperature in _COOLING:
        for conditional in free:
            _cooled_draw(conditional, states, temperature, rng)
    for _ in range(_MAX_ASCENT):
        before = states.z.copy()
        for conditional in free:
            _to_mode(conditional, states)
        if np.allclose(states.z, before, rtol=0, atol=_TOLERANCE):
            break
    scores = _relative(free, states)
    best = int(np.argmax(scores))
    same = np.abs(states.z - states.z[:, [best]]).max(axis=0) < np.sqrt(_TOLERANCE)
    return Mode(model.values_of(states)[best], float(same.mean()))


def _normal(conditionals: Sequence[Conditional]) -> list[Conditional]:
    model = replace(conditionals[0].model, residuals=None)
    return [replace(c, model=model) for c in conditionals]


def _cooled_draw(
    conditional: Conditional, states: States, temperature: float, rng: np.random.Generator
) -> None:
    outputs = conditional.outputs(states)
    if conditional.levels:
        logs = conditional.log_probabilities(outputs) / temperature
        conditional.set_level(states, np.argmax(logs + rng.gumbel(size=logs.shape), axis=0))
    else:
        noise = conditional.sd * np.sqrt(temperature) * rng.standard_normal(outputs.shape[1])
        conditional.set_value(states, outputs[0] + noise)


def _to_mode(conditional: Conditional, states: States) -> None:
    outputs = conditional.outputs(states)
    if conditional.levels:
        level = np.argmax(conditional.log_probabilities(outputs), axis=0)
        conditional.set_level(states, level)
    else:
        conditional.set_value(states, outputs[0])


def _relative(free: Sequence[Conditional], states: States) -> Array:
    """Return (5) for each state against the first, averaged over both directions."""
    found = np.zeros(states.z.shape[1])
    for order in (list(free), list(free)[::-1]):
        # Begin at the reference y, and exchange its columns for those of x one by one.
        between = States(
            np.repeat(states.z[:, :1], len(found), axis=1),
            np.repeat(states.level[:, :1], len(found), axis=1),
        )
        for conditional in order:
            outputs = conditional.outputs(between)
            found -= conditional.log_density(between, outputs) / 2
            at = list(conditional.model.layout.columns[conditional.number].positions)
            between.z[at] = states.z[at]
            between.level[conditional.number] = states.level[conditional.number]
            found += conditional.log_density(between, outputs) / 2
    return found


def column_mode(conditional: Conditional, answer: Answer) -> float:
    """Return the mode of one column from its answer: a number of a level, or a value."""
    if answer.probabilities is not None:
        return float(np.argmax(answer.probabilities[0]))
    assert answer.outputs is not None
    model, v, o = conditional.model, conditional.variable, answer.outputs[0]
    if len(o) == 1:
        z = float(np.clip(o[0], model.low[v], model.high[v]))
    else:
        o = o[:: max(len(o) // _MAX_DRAWS, 1)]
        first, last = np.clip([o.min(), o.max()], model.low[v], model.high[v])
        grid = np.linspace(first, last, _GRID)  # no mode of a mixture is outside its centres
        exponents = -(((grid[:, None] - o) / conditional.sd) ** 2) / 2
        z = float(grid[np.argmax(np.exp(exponents).sum(axis=1))])
    return float(model.origins[v] + model.slopes[v] * z)


def log_pseudo_likelihood(conditionals: Sequence[Conditional], values: Array) -> Array:
    """Return each complete record's sum of log conditional densities, in own units (Besag 1975).

    A value beyond the bounds counts as at the bound. A column that was constant in all records
    counts as 0.
    """
    model = conditionals[0].model
    states = model.states_of(values)
    found = np.zeros(len(values))
    for conditional in conditionals:
        if conditional.levels:
            found += conditional.log_density(states, conditional.outputs(states))
        elif model.scale[conditional.variable] > 0:
            v = conditional.variable
            density = conditional.log_density(states, conditional.outputs(states))
            found += density - np.log(model.slopes[v])
            if conditional.logarithm:
                found -= model.origins[v] + model.slopes[v] * states.z[v]
    return found
