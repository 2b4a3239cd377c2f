"""Standard errors and intervals of queries: what other samples of records would have answered.

Each replicate of the networks (`secagg.models.neural.ngm.fitted.replicates`) answers the query. A
standard error is half of the distance between the quantiles of a normal distribution at -1 and 1
standard deviations, in the replicates' deviations from the model's own answer: a few replicates may
be far away, where draws of neighbours lead to states without records. An interval has a t quantile
with half as many degrees of freedom as there are replicates, since two quantiles are about as exact
as half as many squares. Probabilities p are judged as log(p / (1 - p)).

Where neighbours are drawn, all replicates use the same random numbers. So the Monte Carlo error
of the draws hardly enters the deviations (common random numbers: Glasserman and Yao, Management
Science 1992).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from scipy.special import expit, logit, ndtr, stdtrit  # scipy.stats would be slow to import

from secagg.core.arrays import Array
from secagg.models.neural.ngm.fitted.conditionals import Conditional
from secagg.models.neural.ngm.fitted.queries import moments_of
from secagg.models.neural.ngm.fitted.replicates import REPLICATES, Replicates
from secagg.models.neural.ngm.fitted.sampling import Effort, start, sweep, unknown_for

LEVEL: Final = 0.95
EFFORT: Final = Effort(chains=20, warm_up=50, sweeps=100)
"""Of each replicate, where neighbours are drawn."""
_NEVER = 1e-12  # a probability nearer to 0 or 1 is not resolved


def sampling_errors(
    conditionals: Sequence[Conditional],
    replicates: Replicates,
    given: Array,
    targets: Sequence[int],
    rng: np.random.Generator,
    shifted: Mapping[int, Array] | None = None,
) -> dict[int, Array]:
    """Return the standard errors of each target's mean, shape (1,), or of its levels' logits.

    A target with a level that hardly any record has (`Replicates.rare`) has none.

    Arguments as for `secagg.models.neural.ngm.fitted.queries.query`.
    """
    model, known = conditionals[0].model, ~np.isnan(given)
    targets = [t for t in targets if t not in replicates.rare]
    drawn = [t for t in targets if not np.all(known[model.graph[t]])]
    count = 1 + REPLICATES
    found: dict[int, Array] = {}
    if exact := [t for t in targets if t not in drawn]:
        each = _of(conditionals, replicates, 1)
        states = each[0].model.states_of(np.repeat(given[None], count, axis=0))
        found = {t: moments_of(each[t], each[t].outputs(states)) for t in exact}
    if drawn:
        each = _of(conditionals, replicates, EFFORT.chains)
        columns = [each[c] for c in unknown_for(model, known, drawn)]
        rows = np.repeat(given[None], count * EFFORT.chains, axis=0)
        states, common = each[0].model.states_of(rows), _Common(rng, count)
        start(columns, states, common)
        sums: dict[int, Array] = dict.fromkeys(drawn, np.zeros(()))
        for number in range(EFFORT.warm_up + EFFORT.sweeps):
            outputs = sweep(columns, states, common, shifted=shifted)
            if number >= EFFORT.warm_up:
                sums = {t: sums[t] + moments_of(each[t], outputs[t]) for t in drawn}
        for t, total in sums.items():
            found[t] = total.reshape(count, EFFORT.chains, -1).mean(axis=1) / EFFORT.sweeps
    return {t: _error(conditionals[t], answers) for t, answers in found.items()}


def mean_interval(mean: float, error: float) -> tuple[float, float]:
    """Return the ends of the interval of a mean."""
    half = _quantile() * error
    return mean - half, mean + half


def probability_interval(probability: float, error: float) -> tuple[float, float]:
    """Return the ends of the interval of a probability, in [0, 1]. error: of its logit"""
    centre, half = float(_logit(np.array(probability))), _quantile() * error
    return float(expit(centre - half)), float(expit(centre + half))


def _quantile() -> float:
    return float(stdtrit(REPLICATES / 2, (1 + LEVEL) / 2))


def _of(conditionals: Sequence[Conditional], replicates: Replicates, n: int) -> list[Conditional]:
    model = replicates.of_states(n)
    return [Conditional(model, c.number, c.logarithm) for c in conditionals]


def _error(conditional: Conditional, answers: Array) -> Array:
    """Return the standard error of each moment; answers: shape (1 + replicates, moments)."""
    shown = _logit(answers) if conditional.levels else answers[:, :1]
    low, high = np.quantile(shown[1:] - shown[0], [ndtr(-1), ndtr(1)], axis=0)
    return np.asarray((high - low) / 2)


def _logit(p: Array) -> Array:
    return np.asarray(logit(np.clip(p, _NEVER, 1 - _NEVER)))


class _Common(np.random.Generator):
    """Random numbers that are the same for all replicates; only the calls that samplers make."""

    def __init__(self, rng: np.random.Generator, replicates: int) -> None:
        super().__init__(rng.bit_generator)
        self._rng, self._replicates = rng, replicates

    def random(self, size: tuple[int], *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return self._repeated(self._rng.random(self._each(size), *args, **kwargs))

    def standard_normal(self, size: tuple[int], *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return self._repeated(self._rng.standard_normal(self._each(size), *args, **kwargs))

    def choice(self, a: Any, size: tuple[int], *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return self._repeated(self._rng.choice(a, self._each(size), *args, **kwargs))

    def _each(self, size: tuple[int]) -> tuple[int]:
        return (size[0] // self._replicates,)

    def _repeated(self, numbers: Array) -> Array:
        return np.tile(numbers, self._replicates)
