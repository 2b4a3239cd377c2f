"""Sums of the gradients of records' losses, computed with torch.

Without noise, a site sums over its records in one pass. Under differential privacy, each record's
gradient g_i is computed alone, clipped to norm C and cut off, towards zero, to a multiple of
2^-bits (Abadi et al. 2016, algorithm 1, lines 4 and 5):

    sum_i trunc(g_i min(1, C / |g_i|))                                                          (1)

Guarantees: one record changes (1) by at most C in L2 norm if it is added or removed, and by at most
2C if it is replaced. The other records' terms do not change in any bit
(`secagg.models.neural.record_gradients`). A gradient whose norm is not finite counts as 0.
Gradients are clipped to C (1 - 2^-30), which covers rounding: numpy adds the squares in pairs, so
the relative error of a norm grows by one unit, 2^-53, each time the number of parameters doubles,
and is below 2^-40. Sums are exact: they are integers of at most max_rows C 2^bits <= 2^53.

Not protected: this file does not add noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from secagg.core.arrays import Array
from secagg.models.common.clipped_sums import NORM_SLACK
from secagg.models.neural.learner import Learner
from secagg.models.neural.parameters import tensors
from secagg.models.neural.record_gradients import record_gradients
from secagg.models.neural.torch_import import one_thread

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK = 8192  # records in one pass, which bounds memory


@one_thread()
def record_losses(learner: Learner, theta: Array, values: Array) -> Array:
    import torch  # noqa: PLC0415  # needed only where networks are

    with torch.no_grad():
        parameters = tensors(learner.blocks, torch.tensor(theta))
        return np.asarray(learner.losses(parameters, torch.tensor(values)).numpy())


@one_thread()
def gradient_sum(learner: Learner, theta: Array, values: Array) -> tuple[float, Array]:
    """Return the sum of the records' losses at theta, and its gradient, shape (parameters,)."""
    total, gradient = 0.0, np.zeros(len(theta))
    for start in range(0, len(values), _CHUNK):
        loss, part = _loss_and_gradient(learner, theta, values[start : start + _CHUNK])
        total += loss
        gradient += part
    return total, gradient


@one_thread()
def loss_sum(learner: Learner, theta: Array, values: Array) -> float:
    """Return the sum of the records' losses at theta, the same bits as that of `gradient_sum`."""
    total = 0.0
    for start in range(0, len(values), _CHUNK):
        loss, _ = _loss(learner, theta, values[start : start + _CHUNK])
        total += float(loss.detach())
    return total


@one_thread()
def clipped_gradient_sum(
    learner: Learner, theta: Array, values: Array, clip: float, bits: int
) -> Array:
    """Return (1), shape (parameters,).

    clip: C, the largest norm of a record's gradient; bits: entries are multiples of 2^-bits
    """
    total, longest = np.zeros(len(theta)), clip * NORM_SLACK
    with np.errstate(
        over="ignore", invalid="ignore", divide="ignore"
    ):  # such a gradient counts as 0
        for gradients in record_gradients(learner, theta, values):
            for gradient in gradients:  # one at a time stays in the processor's cache
                norm = np.sqrt(np.sum(gradient**2))
                if np.isfinite(norm):
                    term = gradient * (np.minimum(1.0, longest / norm) * 2.0**bits)
                    total += np.trunc(term, out=term)
    return total * 2.0**-bits


def _loss_and_gradient(learner: Learner, theta: Array, values: Array) -> tuple[float, Array]:
    import torch  # noqa: PLC0415

    loss, vector = _loss(learner, theta, values)
    (gradient,) = torch.autograd.grad(loss, vector)
    return float(loss.detach()), gradient.numpy()


def _loss(learner: Learner, theta: Array, values: Array) -> tuple[Tensor, Tensor]:
    """Return the sum of the losses, and the parameters by which it can be differentiated."""
    import torch  # noqa: PLC0415

    vector = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    return learner.losses(tensors(learner.blocks, vector), torch.tensor(values)).sum(), vector
