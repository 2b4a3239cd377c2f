"""A network fitted to the records of one site alone, without any sum over sites.

With noise, the site makes the rounds of `secagg.models.neural.private_rounds` with itself as the
only site, and adds all of the noise.
"""

from __future__ import annotations

import numpy as np

from secagg.contracts import IntegerNoise, LocalTraining, PublicFacts
from secagg.core.arrays import Array
from secagg.core.randomness import RandomBytes
from secagg.errors import DataError
from secagg.models.neural.gradients import gradient_sum
from secagg.models.neural.learner import Learner
from secagg.models.neural.optimisers import advance, begin
from secagg.models.neural.rounds import NetworkRounds, Penalty, no_penalty, rises_not

_TOLERANCE = 1e-5  # of the largest slope, at which the search ends


def fit_locally(
    learner: Learner,
    start: Array,
    values: Array,
    penalty: Penalty = no_penalty,
    *,
    free: Array | None = None,
    steps: int = 500,
) -> Array:
    """Return the parameters that minimise the mean loss plus the penalty, by L-BFGS.

    values: at least one record; free: which parameters may change, None for all
    steps: largest number of gradients
    Raises `DataError` if the loss is not finite at the start.
    """
    state = begin("lbfgs", start)
    records = len(values)
    for _ in range(steps):
        loss, gradient = gradient_sum(learner, state["point"], values)
        extra, slope = penalty(state["point"], records)
        total = gradient / records + slope
        if free is not None:
            total = np.where(free, total, 0.0)
        if not np.isfinite(loss) and not state["steps"]:
            raise DataError("loss", "is not finite at the first parameters")
        value = loss / records + extra
        flat = np.max(np.abs(total), initial=0.0) <= _TOLERANCE
        if flat and rises_not(value, state["value"]):
            return np.asarray(state["point"])
        state = advance("lbfgs", state, value, total, 0.0, 0.0)
        if state["ended"]:
            break
    return np.asarray(state["best"])


def local_training(rounds: NetworkRounds, parameters: int, public: PublicFacts) -> LocalTraining:
    """Declare the noisy steps of `fit_privately`."""
    stage = rounds.train_stage(parameters, public)
    assert stage.sensitivity is not None
    numbers = sum(field.size for field in stage.spec)
    bits = stage.spec[0].fraction_bits
    return LocalTraining(stage.max_rounds, numbers, stage.sensitivity, bits, stage.sampling_rate)


def fit_privately(
    rounds: NetworkRounds,
    learner: Learner,
    start: Array,
    values: Array,
    public: PublicFacts,
    random: RandomBytes,
    noise: IntegerNoise,
    penalty: Penalty = no_penalty,
) -> Array:
    """Return parameters that depend on the records through noisy steps only.

    rounds: the steps, as `local_training` declares them; values: a site's records
    noise: fresh integers of the declared variance
    """
    training = rounds.begin_training(start, public.max_rows, noised=True)
    step = 2.0 ** -rounds.train_stage(len(start), public).spec[0].fraction_bits
    limit = public.max_rows
    while "ended" not in training:
        message = {"theta": training["optimiser"]["point"]}
        parts = [values[i : i + limit] for i in range(0, max(len(values), 1), limit)]
        total: dict[str, Array] = {}
        for part in parts:
            update = rounds.train_contribution(learner, part, message, public, random)
            total = {name: total.get(name, 0.0) + array for name, array in update.items()}
        total = {name: array + step * noise(len(array)) for name, array in total.items()}
        training = rounds.advance_training(training, total, penalty)
    return np.asarray(training["optimiser"]["best"])
