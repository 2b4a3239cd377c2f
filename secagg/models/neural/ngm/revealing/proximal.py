"""Proximal steps for penalties on path norms, which set paths exactly to 0.

The penalty ||P * S||_1 of `secagg.models.neural.ngm.path_norms` has a kink wherever a weight is 0.
A gradient step jumps over the kink and back, so no path ends at 0, and a line search stalls there.
But in the weights of one layer alone, the penalty is a weighted L1 norm: its weights are the slopes
G_l = A' S B'. So after each step of the optimiser on the loss, each weight is moved towards 0 by

    s_ij G_l,ij    and set to 0 if it is nearer than this                                        (1)

where s_ij is the length of the optimiser's step for this weight (Adam's is the rate over the root
of its mean squared slope). For one layer this is the proximal gradient step of the lasso; for all
layers at once, with G_l at the weights before the step, it is the linearised alternating step of
Bolte, Sabach and Teboulle (2014, "Proximal alternating linearized minimization") without its
alternation and without its proof of convergence.

A unit that reads a column and writes to it loses the lighter of the two weights first: under (1),
the difference of their squares is constant. So each unit decides which columns it reads and which
ones it writes to, and a large factor on self paths removes all of them.
"""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array
from secagg.models.neural.ngm.path_norms import path_slopes
from secagg.models.neural.ngm.shared_network import SharedNetwork


def proximal_step(
    network: SharedNetwork, before: Array, point: Array, lengths: Array, paths: Array
) -> Array:
    """Return the parameters after a step, moved by (1).

    before, point: the parameters before and after the optimiser's step
    lengths: s, shape (parameters,); paths: S times its factors, shape (outputs, inputs)
    """
    point = point.copy()
    slopes = path_slopes(network.weights(before), paths)
    for name, slope in zip(network.layers, slopes, strict=True):
        part = network.blocks.slices[name]
        distance = np.abs(point[part]) - lengths[part] * np.ravel(slope)
        point[part] = np.sign(point[part]) * np.maximum(distance, 0.0)
    return point
