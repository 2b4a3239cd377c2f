"""Training at a site from the coordinator's parameters: E epochs of FedAvg.

McMahan, Moore, Ramage, Hampson and y Arcas (AISTATS 2017), algorithm 1, `ClientUpdate`. The site
draws the order of its records anew in each epoch. The optimiser is torch's, by name, and starts
without momentum in every round.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from secagg.core.arrays import Array
from secagg.models.neural.learner import Learner
from secagg.models.neural.parameters import tensors
from secagg.models.neural.torch_import import one_thread

LocalOptimiser = Literal["sgd", "adam", "adamw", "rmsprop"]
_CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}


@one_thread()
def trained(
    learner: Learner,
    theta: Array,
    values: Array,
    *,
    epochs: int,
    batch: int | None,
    optimiser: LocalOptimiser,
    rate: float,
    rng: np.random.Generator,
) -> Array:
    """Return the parameters after training on a site's records, shape (parameters,).

    batch: records in a step; None for all
    rate: step size, of mean losses
    """
    import torch  # noqa: PLC0415

    vector, records = torch.tensor(theta), torch.tensor(values)
    # The optimiser takes steps in each block, a view of the vector. For steps in the whole vector,
    # torch would first fill a gradient as long as the vector for every block.
    parameters = {
        name: block.detach().requires_grad_()
        for name, block in tensors(learner.blocks, vector).items()
    }
    leaves = list(parameters.values())
    steps = getattr(torch.optim, _CLASSES[optimiser])(leaves, lr=rate)
    size = len(values) if batch is None else batch
    for _ in range(epochs if len(values) else 0):
        order = torch.from_numpy(rng.permutation(len(values)))
        for start in range(0, len(values), size):
            chosen = records[order[start : start + size]]
            loss = learner.losses(parameters, chosen).mean()
            gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
            for leaf, gradient in zip(leaves, gradients, strict=True):
                leaf.grad = gradient
            steps.step()
    return np.asarray(vector.numpy())
