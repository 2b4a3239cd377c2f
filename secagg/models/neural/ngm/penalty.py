"""The quadratic penalty of the masked networks: a normal prior on their weights.

The coordinator adds, for N records,

    (lambda / 2N) sum of squared weights of hidden and output layers
        + (mu / 2N) sum of squared weights of the linear part                                   (1)

to the mean loss. Minimising the sum is maximum a posteriori estimation with independent normal
priors of precision lambda and mu (for the pseudo-likelihood). Biases and residual deviations have
no penalty.
"""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array
from secagg.models.neural.parameters import Blocks
from secagg.models.neural.rounds import Penalty


def quadratic_penalty(blocks: Blocks, hidden: float, linear: float) -> Penalty:
    """Return (1). hidden: lambda; linear: mu; both at least 0."""
    precision = np.zeros(blocks.size)
    for block in blocks.blocks:
        if block.name.endswith(".weight"):
            factor = linear if block.name == "linear.weight" else hidden
            precision[blocks.slices[block.name]] = factor

    def penalty(theta: Array, records: float) -> tuple[float, Array]:
        slope = precision * theta / records
        return float(slope @ theta) / 2, slope

    return penalty
