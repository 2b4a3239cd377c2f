"""A coordinator that chooses the parameters reads off the record with the largest value.

Fowl, Geiping, Czaja, Goldblum and Goldstein (ICLR 2022), "Robbing the Fed", section 4. Let one
hidden unit read one predictor only, a(s (x_j - t)), and the outputs read this unit only. The
gradient of a record's loss is then

    for the unit's weights    d a'(s (x_j - t)) x
    for the unit's bias       d a'(s (x_j - t)),                                                 (1)

with d from the layers above, and the quotient is the record's predictors x. If the unit is active
for one record alone, the secure sum of gradients is the gradient of this record. Nothing needs to
be known about the records:

tanh    a' is nearly 4 exp(-2 s (t - x_j)) for t above x_j. For t above all values, the largest
        value has the largest part in (1), by a factor exp(2 s g) for a gap g to the next one. So
        t + log(b / 4) / 2s, with b the sum of the biases' gradients, is an estimate of this
        value, with an error of the order 1 / s. s is doubled in every message.

The attacker is a coordinator that departs from the protocol. The rules of sites are not applied
(`secagg.audits.deployment`); it sends no more messages than the job has rounds. Noise hides the
record: one clipped gradient is far below it. Other directions than one predictor give other
records; the attack shows one.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from secagg.audits.contract import Attack, Finding, Limit, Truth
from secagg.audits.views import AskSites, View, Who
from secagg.core.arrays import Array
from secagg.models.neural.module_learner import ModuleLearner
from secagg.models.neural.rounds import TRAIN
from secagg.models.neural.torch_module import BUILT_IN, TorchModule

_MESSAGES = 24  # at most; bisection of [-1, 1] then ends at 1e-7
_FIRST_STEEP, _LAST_STEEP = 6.0, 25.0  # s; sites accept no parameter above 30
_ABOVE = 3.0  # by how much t is above the estimate for tanh, in units of 1 / s
_ZERO = 2.0**-38  # two steps of the fixed point


class LargestRecord(Attack):
    """Send the messages and read off (1)."""

    name: ClassVar[str] = "largest_record"
    title: ClassVar[str] = "The record with the largest value, from sums at chosen parameters"
    source: ClassVar[str] = "Fowl and others (2022), section 4"
    knows: ClassVar[str] = "the method's settings"
    views: ClassVar[tuple[Who, ...]] = (Who.DISHONEST,)
    metric: ClassVar[str] = "record_error"
    meaning: ClassVar[str] = "largest error of a predictor of this record, in standard deviations"

    def why_not(self, view: View) -> str:
        """Return why it does not apply."""
        method = view.planned.method
        if not isinstance(method, TorchModule) or method.module not in BUILT_IN:
            return "for torch_module with the module that comes with secagg"
        if method.algorithm != "fedsgd" or len(_learner(view).blocks.blocks) < 4:
            return "for sums of gradients of a network with a hidden layer"
        if _learner(view).settings.get("activation", "tanh") != "tanh":
            return "for units with tanh"
        return ""

    def limit(self, view: View) -> Limit:
        """Return the limit."""
        return Limit(0.5, errors=True)

    def run(self, view: View, rng: np.random.Generator) -> Array:
        """Return the predictors of the record, scaled."""
        assert view.open_session is not None
        ask, learner = view.open_session(), _learner(view)
        messages = min(_MESSAGES, _method(view).most_rounds(noised=False))
        rows = view.planned.public.max_rows
        weights, bias = _by_steeper_units(ask, learner, messages, rows)
        return weights / bias if bias else np.zeros_like(weights)

    def score(self, guess: Array, view: View, truth: Truth) -> Finding:
        """Return the error of the guess as the record with the largest first predictor."""
        columns = list(_learner(view).predictors)
        together = np.concatenate([truth.sites[site].values for site in view.sites])[:, columns]
        deviations = together.std(axis=0)
        deviations[deviations == 0] = 1.0
        largest = together[np.argmax(together[:, 0])]
        error, mean = (
            float(np.max(np.abs(each - largest) / deviations))
            for each in (guess, together.mean(axis=0))
        )
        return Finding.exact(error, mean)


def _method(view: View) -> TorchModule:
    method = view.planned.method
    assert isinstance(method, TorchModule)
    return method


def _learner(view: View) -> ModuleLearner:
    return _method(view).learner(view.planned.public)


def _by_steeper_units(
    ask: AskSites, learner: ModuleLearner, messages: int, max_rows: int
) -> tuple[Array, float]:
    """Return (1) for the steepest tanh, just above the estimate of the largest value.

    max_rows: by which sites divide their sums
    """
    s, t = _FIRST_STEEP, 1.0
    weights, bias = np.zeros(len(learner.predictors)), 0.0
    for _ in range(messages):
        weights, bias = _unit_gradient(ask, learner, s, t)
        estimate = t + np.log(max(abs(bias), _ZERO) * max_rows / 4) / (2 * s)
        s = min(2 * s, _LAST_STEEP)
        t = min(estimate + _ABOVE / s, 1 + _ABOVE / s)
    return weights, bias


def _unit_gradient(
    ask: AskSites, learner: ModuleLearner, s: float, t: float
) -> tuple[Array, float]:
    """Return (1), summed over all records, with the unit at t."""
    arrays = {block.name: np.zeros(block.shape) for block in learner.blocks.blocks}
    (first, bias, *above) = arrays
    arrays[first][0, 0], arrays[bias][0] = s, -s * t
    for name in above[::2]:
        arrays[name][-1 if name == above[-2] else 0, 0] = 1.0
    total = ask(TRAIN, {"theta": learner.blocks.join(arrays)})["change"]
    parts = learner.blocks.split(total)
    return np.asarray(parts[first][0]), float(parts[bias][0])
